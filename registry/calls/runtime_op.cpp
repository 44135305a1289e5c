// Reads the description of an op.
#include "registry/calls/runtime_op.hpp"

#include <cstring>
#include <string_view>
#include <utility>

#include "backplane/host.h"
#include "registry/boundary/plugin_text.hpp"
#include "registry/calls/op_draft.hpp"

namespace bp::core {
namespace {

constexpr uint32_t kFirstDesc = offsetof(bp_op_desc, state) + sizeof(void*);
constexpr uint32_t kFirstArgument = offsetof(bp_op_argument, doc) + sizeof(char*);

// Reads a struct of any build, which is a request.
template <typename Struct>
Struct read_struct(const Struct* theirs, uint32_t struct_type, uint32_t first, const char* what) {
  Struct ours{};
  uint32_t offset = 0;
  if (theirs == nullptr) throw Rejected{std::string(what) + " is NULL"};
  if (theirs->struct_type != struct_type) {
    throw Rejected{std::string(what) + ": its struct_type is " +
                   std::to_string(theirs->struct_type) + ", not " + std::to_string(struct_type)};
  }
  if (bp_struct_read(theirs, first, &ours, sizeof(ours), &offset) != BP_OK) {
    throw Rejected{std::string(what) + ": struct_size is " + std::to_string(theirs->struct_size) +
                   ", and this host cannot read byte " + std::to_string(offset)};
  }
  return ours;
}

class Reader {
 public:
  explicit Reader(const bp_op_desc& theirs) {
    given_ = read_struct(&theirs, BP_STRUCT_OP_DESC, kFirstDesc, "the description");
  }

  std::unique_ptr<RuntimeOp> read() {
    read_head();
    for (uint64_t i = 0; i < given_.argument_count; ++i) {
      read_place(draft_, argument_at(i), i);
    }
    read_rules(draft_);
    read_formulas();
    fill_rows(draft_);
    return std::move(draft_.made);
  }

 private:
  // Copies lines, which a parser reads.
  const char* keep_lines(const char* what, const char* text) {
    if (text == nullptr) return nullptr;
    const size_t size = strnlen(text, kMaxPluginText + 1);
    if (size > kMaxPluginText) {
      draft_.reject(std::string(what) + " has more than " + std::to_string(kMaxPluginText) +
                    " bytes");
    }
    return made_.texts.emplace_back(text, size).c_str();
  }

  void read_head() {
    if (given_.name == nullptr || !is_vendor_name(given_.name)) {
      draft_.reject("its name is " + clean_name(given_.name) +
                    ", not vendor.name with both in [a-z0-9_]+");
    }
    if (given_.since == 0) given_.since = 1;
    if (given_.revision == 0) given_.revision = given_.since;
    if (given_.revision < given_.since) {
      draft_.reject("since is " + std::to_string(given_.since) + " and revision is " +
                    std::to_string(given_.revision) + "; revision is at least since");
    }
    if (given_.frame_size_bytes % 8 != 0 || given_.frame_size_bytes > kMaxRuntimeFrameBytes ||
        given_.frame_size_bytes < 2 * sizeof(uint32_t)) {
      draft_.reject("frame_size_bytes is " + std::to_string(given_.frame_size_bytes) +
                    "; allowed are multiples of 8 up to " + std::to_string(kMaxRuntimeFrameBytes));
    }
    if (given_.argument_count == 0 || given_.argument_count > kMaxRuntimeArguments) {
      draft_.reject("it has " + std::to_string(given_.argument_count) +
                    " arguments; allowed are 1 to " + std::to_string(kMaxRuntimeArguments));
    }
    if (given_.arguments == nullptr) draft_.reject("arguments is NULL");
    made_.desc = given_;
    made_.desc.next = nullptr;
    made_.desc.name = draft_.keep(given_.name);
    made_.desc.doc = draft_.keep(given_.doc);
    made_.desc.numerics = draft_.keep(given_.numerics);
    made_.desc.decomposition = keep_lines("decomposition", given_.decomposition);
    made_.desc.condition = draft_.keep(given_.condition);
    made_.desc.backward = keep_lines("backward", given_.backward);
    read_formula_revisions();
    made_.desc.infer = nullptr;
    made_.desc.state = nullptr;
    made_.infers = given_.infer != nullptr;
    made_.described.reserve(given_.argument_count);
  }

  void read_formula_revisions() {
    bp_op_desc& desc = made_.desc;
    if (desc.formula_revision == 0) desc.formula_revision = given_.since;
    check_revision("formula_revision", desc.formula_revision);
    if (desc.backward_revision == 0) desc.backward_revision = desc.formula_revision;
    check_revision("backward_revision", desc.backward_revision);
  }

  void check_revision(const std::string& member, uint32_t revision) const {
    if (revision >= given_.since && revision <= given_.revision) return;
    draft_.reject(member + " is " + std::to_string(revision) + "; allowed are " +
                  std::to_string(given_.since) + " to " + std::to_string(given_.revision));
  }

  bp_op_argument argument_at(uint64_t i) const {
    const auto* const theirs = reinterpret_cast<const bp_op_argument*>(
        reinterpret_cast<const char*>(given_.arguments) + i * given_.argument_stride_bytes);
    const std::string what = "argument " + std::to_string(i);
    if (i != 0 && given_.argument_stride_bytes < theirs->struct_size) {
      draft_.reject("argument_stride_bytes is " + std::to_string(given_.argument_stride_bytes) +
                    ", less than the size of an argument");
    }
    return read_struct(theirs, BP_STRUCT_OP_ARGUMENT, kFirstArgument, what.c_str());
  }

  void read_formulas() {
    const bp_op_desc& desc = made_.desc;
    FormulaSubject subject{.name = desc.name,
                           .arguments = made_.described,
                           .since = given_.since,
                           .revision = desc.formula_revision,
                           .frame_size_bytes = size_in_formula(desc.formula_revision)};
    if (desc.decomposition != nullptr) {
      auto formula = std::make_unique<Formula>();
      const std::string defect = parse_decomposition(subject, desc.decomposition, *formula);
      if (!defect.empty()) draft_.reject("decomposition, " + defect);
      read_condition(subject, *formula);
      made_.formula = std::move(formula);
    } else if (desc.condition != nullptr) {
      draft_.reject("it has a condition, and no decomposition");
    }
    if (desc.backward == nullptr) return;
    subject.revision = desc.backward_revision;
    subject.frame_size_bytes = size_in_formula(desc.backward_revision);
    Formula gradients;
    const std::string defect = check_backward(subject, desc.backward, gradients);
    if (!defect.empty()) draft_.reject("backward, " + defect);
  }

  void read_condition(const FormulaSubject& subject, Formula& formula) {
    const char* const text = made_.desc.condition;
    if (text == nullptr) return;
    const std::string defect = parse_condition(subject, text, formula);
    if (!defect.empty()) draft_.reject(std::string("condition \"") + text + "\", " + defect);
  }

  // Returns the size of the frame in the revision of a formula.
  uint32_t size_in_formula(uint32_t revision) const {
    return revision >= draft_.last_since ? given_.frame_size_bytes : made_.size_in(revision);
  }

  OpDraft draft_;
  bp_op_desc& given_ = draft_.given;
  RuntimeOp& made_ = *draft_.made;
};

}  // namespace

std::unique_ptr<RuntimeOp> read_runtime_op(const bp_op_desc& theirs, std::string& out_refusal) {
  try {
    return Reader(theirs).read();
  } catch (const Rejected& rejected) {
    out_refusal = rejected.why;
    return nullptr;
  }
}

}  // namespace bp::core
