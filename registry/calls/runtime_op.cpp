// Reads the description of an op.
#include "registry/calls/runtime_op.hpp"

#include <algorithm>
#include <charconv>
#include <cstring>
#include <optional>
#include <string_view>
#include <utility>

#include "backplane/host.h"
#include "registry/boundary/plugin_text.hpp"
#include "registry/calls/dtypes.hpp"

namespace bp::core {
namespace {

// The exception that rejects a description.
struct Rejected {
  std::string why;
};

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

uint32_t size_of(bp_argument_kind kind) {
  switch (kind) {
    case BP_ARGUMENT_OPERAND:
    case BP_ARGUMENT_SCALAR_TENSOR:
      return sizeof(void*) + sizeof(bp_scalar);
    case BP_ARGUMENT_I32:
    case BP_ARGUMENT_DTYPE:
    case BP_ARGUMENT_ENUM:
      return sizeof(uint32_t);
    default:
      return sizeof(uint64_t);
  }
}

bool is_output_kind(bp_argument_kind kind) {
  return kind == BP_ARGUMENT_OUT || kind == BP_ARGUMENT_OPTIONAL_OUT ||
         kind == BP_ARGUMENT_OUT_LIST;
}

// Returns whether an argument of this kind may be absent, which is all zero.
bool is_appendable(bp_argument_kind kind) {
  return kind != BP_ARGUMENT_TENSOR && kind != BP_ARGUMENT_OUT && kind != BP_ARGUMENT_INOUT;
}

bool is_member_name(std::string_view name) {
  const auto is_letter = [](char c) { return (c >= 'a' && c <= 'z') || c == '_'; };
  return !name.empty() && name.size() <= 64 && is_letter(name[0]) && name != "struct_size" &&
         name != "flags" &&
         std::ranges::all_of(name, [&](char c) { return is_letter(c) || (c >= '0' && c <= '9'); });
}

class Reader {
 public:
  explicit Reader(const bp_op_desc& theirs)
      : given_(read_struct(&theirs, BP_STRUCT_OP_DESC, kFirstDesc, "the description")),
        made_(std::make_unique<RuntimeOp>()) {}

  std::unique_ptr<RuntimeOp> read() {
    read_head();
    for (uint64_t i = 0; i < given_.argument_count; ++i) read_place(argument_at(i), i);
    for (const bp_op_argument& argument : made_->described) {
      rule_arguments_.push_back({.name = argument.name,
                                 .kind = argument.kind,
                                 .offset = argument.offset_bytes,
                                 .values = {argument.value_names, argument.value_count},
                                 .first_value = argument.first_value});
    }
    for (uint32_t i = 0; i < made_->described.size(); ++i) read_rules(i);
    order_dtypes();
    read_formulas();
    fill_row();
    fill_checks();
    return std::move(made_);
  }

 private:
  [[noreturn]] void reject(const std::string& why) const { throw Rejected{why}; }
  [[noreturn]] void reject(const bp_op_argument& argument, const std::string& why) const {
    reject(std::string(argument.name) + ": " + why);
  }

  // Copies a text of the owner.
  const char* keep(const char* text) {
    if (text == nullptr) return nullptr;
    return made_->texts.emplace_back(clean_text(text, LineBreaks::kIndent)).c_str();
  }
  // Copies lines, which a parser reads.
  const char* keep_lines(const char* what, const char* text) {
    if (text == nullptr) return nullptr;
    const size_t size = strnlen(text, kMaxPluginText + 1);
    if (size > kMaxPluginText) {
      reject(std::string(what) + " has more than " + std::to_string(kMaxPluginText) + " bytes");
    }
    return made_->texts.emplace_back(text, size).c_str();
  }

  void read_head() {
    if (given_.name == nullptr || !is_vendor_name(given_.name)) {
      reject("its name is " + clean_name(given_.name) +
             ", not vendor.name with both in [a-z0-9_]+");
    }
    if (given_.since == 0) given_.since = 1;
    if (given_.revision == 0) given_.revision = given_.since;
    if (given_.revision < given_.since) {
      reject("since is " + std::to_string(given_.since) + " and revision is " +
             std::to_string(given_.revision) + "; revision is at least since");
    }
    if (given_.frame_size_bytes % 8 != 0 || given_.frame_size_bytes > kMaxRuntimeFrameBytes ||
        given_.frame_size_bytes < 2 * sizeof(uint32_t)) {
      reject("frame_size_bytes is " + std::to_string(given_.frame_size_bytes) +
             "; allowed are multiples of 8 up to " + std::to_string(kMaxRuntimeFrameBytes));
    }
    if (given_.argument_count == 0 || given_.argument_count > kMaxRuntimeArguments) {
      reject("it has " + std::to_string(given_.argument_count) + " arguments; allowed are 1 to " +
             std::to_string(kMaxRuntimeArguments));
    }
    if (given_.arguments == nullptr) reject("arguments is NULL");
    made_->desc = given_;
    made_->desc.next = nullptr;
    made_->desc.name = keep(given_.name);
    made_->desc.doc = keep(given_.doc);
    made_->desc.numerics = keep(given_.numerics);
    made_->desc.decomposition = keep_lines("decomposition", given_.decomposition);
    made_->desc.backward = keep_lines("backward", given_.backward);
    read_formula_revisions();
    made_->desc.infer = nullptr;
    made_->desc.state = nullptr;
    made_->infers = given_.infer != nullptr;
    made_->described.reserve(given_.argument_count);
  }

  void read_formula_revisions() {
    bp_op_desc& desc = made_->desc;
    if (desc.formula_revision == 0) desc.formula_revision = given_.since;
    check_revision("formula_revision", desc.formula_revision);
    if (desc.backward_revision == 0) desc.backward_revision = desc.formula_revision;
    check_revision("backward_revision", desc.backward_revision);
  }

  void check_revision(const std::string& member, uint32_t revision) const {
    if (revision >= given_.since && revision <= given_.revision) return;
    reject(member + " is " + std::to_string(revision) + "; allowed are " +
           std::to_string(given_.since) + " to " + std::to_string(given_.revision));
  }

  bp_op_argument argument_at(uint64_t i) const {
    const auto* const theirs = reinterpret_cast<const bp_op_argument*>(
        reinterpret_cast<const char*>(given_.arguments) + i * given_.argument_stride_bytes);
    const std::string what = "argument " + std::to_string(i);
    if (i != 0 && given_.argument_stride_bytes < theirs->struct_size) {
      reject("argument_stride_bytes is " + std::to_string(given_.argument_stride_bytes) +
             ", less than the size of an argument");
    }
    return read_struct(theirs, BP_STRUCT_OP_ARGUMENT, kFirstArgument, what.c_str());
  }

  // Reads everything but the rules, and checks the place in the frame.
  void read_place(bp_op_argument a, uint64_t index) {
    if (a.name == nullptr || !is_member_name(a.name)) {
      reject("argument " + std::to_string(index) + " is called " + clean_name(a.name) +
             ", which is no name in [a-z_][a-z0-9_]*");
    }
    a.name = keep(a.name);
    a.next = nullptr;
    a.doc = keep(a.doc);
    a.dtypes = nullptr;
    a.dtype_count = 0;
    for (const bp_op_argument& earlier : made_->described) {
      if (std::strcmp(earlier.name, a.name) == 0) reject(a, "two arguments have this name");
    }
    if (a.kind < BP_ARGUMENT_TENSOR || a.kind > BP_ARGUMENT_ENUM) {
      reject(a, "its kind is " + std::to_string(a.kind) + ", which this host does not know");
    }
    if (a.since == 0) a.since = given_.since;
    read_since(a);
    const uint32_t size = size_of(a.kind), count_size = is_list_kind(a.kind) ? 8 : 0;
    const uint32_t first = a.offset_bytes - count_size;
    const uint32_t alignment = std::min(size, 8u);
    if (a.offset_bytes < end_ + count_size || a.offset_bytes % alignment != 0 ||
        uint64_t{a.offset_bytes} + size > given_.frame_size_bytes) {
      reject(a, "offset_bytes is " + std::to_string(a.offset_bytes) +
                    "; allowed is a multiple of " + std::to_string(alignment) +
                    " behind the argument before and inside the frame");
    }
    if (a.since != last_since_) {
      if (first % 8 != 0) reject(a, "what a revision appends begins at a multiple of 8 bytes");
      add_size(last_since_, first);
      last_since_ = a.since;
    }
    end_ = a.offset_bytes + size;
    read_enumeration(a);
    made_->described.push_back(a);
    made_->desc.arguments = made_->described.data();
  }

  void read_since(const bp_op_argument& a) {
    if (last_since_ == 0) last_since_ = given_.since;
    if (a.since < last_since_ || a.since > given_.revision) {
      reject(a, "since is " + std::to_string(a.since) + "; allowed are " +
                    std::to_string(last_since_) + ", that of the argument before, to " +
                    std::to_string(given_.revision));
    }
    if (a.since > given_.since && !is_appendable(a.kind)) {
      reject(a, "an argument that a later revision appends must be one that may be absent");
    }
  }

  void add_size(uint32_t revision, uint32_t size_bytes) {
    if (made_->size_count + 1 == kMaxFrameSizes) {
      reject("its frame has grown more than " + std::to_string(kMaxFrameSizes - 1) + " times");
    }
    made_->sizes[made_->size_count++] = {revision, size_bytes};
  }

  void read_enumeration(bp_op_argument& a) {
    const bool is_appended = a.since > given_.since;
    if (a.kind != BP_ARGUMENT_ENUM) {
      if (a.value_count != 0) reject(a, "it has values, and is no enumeration");
      return;
    }
    if (a.value_count == 0 || a.value_count > 256 || a.value_names == nullptr) {
      reject(a, "an enumeration has 1 to 256 values, and value_names");
    }
    if (a.first_value > (is_appended ? 0 : 1)) {
      reject(a, "first_value is " + std::to_string(a.first_value) + "; it must be 0" +
                    (is_appended ? ", because the argument is appended" : " or 1"));
    }
    auto& names = made_->lists.emplace_back();
    auto& revisions = made_->numbers.emplace_back();
    for (uint32_t i = 0; i < a.value_count; ++i) {
      const char* const name = a.value_names[i];
      if (name == nullptr || !is_member_name(name)) {
        reject(a, "value " + std::to_string(i) + " has no name in [a-z_][a-z0-9_]*");
      }
      names.push_back(keep(name));
      revisions.push_back(a.value_revisions == nullptr ? a.since : a.value_revisions[i]);
      const uint32_t before = i == 0 ? a.since : revisions[i - 1];
      if (revisions[i] < before || revisions[i] > given_.revision) {
        reject(a, std::string(name) + " came in revision " + std::to_string(revisions[i]) +
                      "; allowed are " + std::to_string(before) + " to " +
                      std::to_string(given_.revision));
      }
      if (revisions[i] == a.since) continue;
      made_->later.push_back({.offset = a.offset_bytes,
                              .value = a.first_value + i,
                              .revision = revisions[i],
                              .member = a.name,
                              .name = names.back()});
    }
    a.value_names = names.data();
    a.value_revisions = revisions.data();
  }

  // ---- Rules ----

  uint32_t tensor_named(const bp_op_argument& a, std::string_view name) const {
    for (uint32_t i = 0; i < made_->described.size(); ++i) {
      const bp_op_argument& other = made_->described[i];
      if (other.name == name && is_tensor_kind(other.kind)) return i;
    }
    reject(a, "'" + std::string(name) + "' is no tensor of this op");
  }

  bp_dtype dtype_named(const bp_op_argument& a, std::string_view name) const {
    const bp_dtype dtype = bp_dtype_from_name(std::string(name).c_str());
    if (dtype == 0) reject(a, "there is no dtype '" + std::string(name) + "'");
    return dtype;
  }

  // Reads "like(x)", "acc(x)" or "sum(x)"; nothing if `text` is none of them.
  std::optional<std::pair<DtypeRule, uint32_t>> other_rule(const bp_op_argument& a,
                                                           std::string_view text) const {
    constexpr std::pair<std::string_view, DtypeRule> kRules[] = {
        {"like(", DtypeRule::like}, {"acc(", DtypeRule::accumulator}, {"sum(", DtypeRule::sum}};
    for (const auto& [begin, rule] : kRules) {
      if (!text.starts_with(begin) || !text.ends_with(")")) continue;
      text.remove_prefix(begin.size());
      text.remove_suffix(1);
      return std::pair{rule, tensor_named(a, text)};
    }
    return std::nullopt;
  }

  // Returns the dtypes of "float", "set(f32, i64)" or "f32".
  std::vector<bp_dtype> dtypes_of(const bp_op_argument& a, std::string_view text) const {
    std::vector<bp_dtype> dtypes;
    if (const std::string_view set = dtypes_of_set(text); !set.empty()) {
      text = set;
    } else if (text.starts_with("set(") && text.ends_with(")")) {
      text = text.substr(4, text.size() - 5);
    } else {
      return {dtype_named(a, text)};
    }
    while (!text.empty()) {
      const size_t end = std::min(text.find(','), text.size());
      dtypes.push_back(dtype_named(a, text.substr(0, end)));
      text.remove_prefix(std::min(end + 1, text.size()));
      while (text.starts_with(' ')) text.remove_prefix(1);
    }
    if (dtypes.empty()) reject(a, "its set of dtypes is empty");
    return dtypes;
  }

  void read_dtype(bp_op_argument& a, RuntimeArgument& made) {
    if (!is_tensor_kind(a.kind)) {
      if (a.dtype_rule != nullptr) reject(a, "it is no tensor, and has a dtype_rule");
      return;
    }
    if (a.dtype_rule == nullptr) reject(a, "a tensor needs a dtype_rule");
    a.dtype_rule = keep(a.dtype_rule);
    if (const auto other = other_rule(a, a.dtype_rule)) {
      std::tie(made.dtype_rule, made.other) = *other;
    } else {
      made.dtypes = dtypes_of(a, a.dtype_rule);
      made.dtype_rule = made.dtypes.size() == 1 ? DtypeRule::fixed : DtypeRule::free;
    }
    const bool is_like = made.dtype_rule == DtypeRule::like;
    if (a.kind == BP_ARGUMENT_OPERAND && !is_like) {
      reject(a, "the dtype_rule of an operand is like(x)");
    }
    if (a.kind == BP_ARGUMENT_SCALAR_TENSOR && !is_like && made.dtype_rule != DtypeRule::fixed) {
      reject(a, "the dtype_rule of a scalar that may be a tensor is like(x) or one dtype");
    }
    if (made.dtype_rule == DtypeRule::free) {
      a.dtypes = made.dtypes.data();
      a.dtype_count = static_cast<uint32_t>(made.dtypes.size());
    }
    read_default_dtype(a, made);
  }

  void read_default_dtype(bp_op_argument& a, RuntimeArgument& made) {
    if (a.default_dtype == nullptr) return;
    if (!is_output_kind(a.kind) || made.dtype_rule != DtypeRule::free) {
      reject(a, "only a free output has a default_dtype");
    }
    a.default_dtype = keep(a.default_dtype);
    if (const auto other = other_rule(a, a.default_dtype)) {
      std::tie(made.default_rule, made.default_other) = *other;
      return;
    }
    made.default_rule = DtypeRule::fixed;
    made.default_dtype = dtype_named(a, a.default_dtype);
  }

  void read_rule(const bp_op_argument& a, const char* what, const char*& text, RuleType type,
                 Rule& rule) {
    if (text == nullptr) return;
    text = keep(text);
    const std::string fault = Rule::parse(text, rule_arguments_, rule);
    if (!fault.empty()) reject(a, std::string(what) + " \"" + text + "\", " + fault);
    for (uint32_t i = 0; i < made_->described.size(); ++i) {
      const bp_op_argument& named = made_->described[i];
      if ((rule.names() >> i & 1) == 0 || !is_output_kind(named.kind)) continue;
      if (named.shape_rule != nullptr && std::strcmp(named.shape_rule, "given") == 0) continue;
      reject(a, std::string(what) + " \"" + text + "\" reads " + named.name +
                    ", an output whose shape is not \"given\"");
    }
    if (rule.type() == type) return;
    reject(a, std::string(what) + " \"" + text + "\" is no " +
                  (type == RuleType::dims ? "shape" : "number"));
  }

  void read_rank(bp_op_argument& a, RuntimeArgument& made) {
    if (a.rank_rule == nullptr) return;
    const std::string_view text = a.rank_rule;
    if (const size_t middle = text.find(" to "); middle != text.npos) {
      const char* const end = text.data() + text.size();
      const auto low = std::from_chars(text.data(), end, made.min_rank);
      const auto high = std::from_chars(text.data() + middle + 4, end, made.max_rank);
      if (low.ptr == text.data() + middle && high.ptr == end && made.min_rank <= made.max_rank &&
          low.ec == std::errc() && high.ec == std::errc()) {
        a.rank_rule = keep(a.rank_rule);
        return;
      }
    }
    read_rule(a, "rank_rule", a.rank_rule, RuleType::number, made.rank);
  }

  // Reads the bounds of a double, which are numbers.
  void read_number(const bp_op_argument& a, const char* what, const char*& text, double& number) {
    if (text == nullptr) return;
    text = keep(text);
    const char* const end = text + std::strlen(text);
    const auto read = std::from_chars(text, end, number);
    if (read.ec == std::errc() && read.ptr == end) return;
    reject(a, std::string(what) + " \"" + text + "\" is no number");
  }

  void read_bounds(bp_op_argument& a, RuntimeArgument& made) {
    const bool may_have = a.kind >= BP_ARGUMENT_I32 && a.kind <= BP_ARGUMENT_I64_LIST;
    const bool has = a.at_least != nullptr || a.at_most != nullptr || a.below != nullptr;
    if (has && !may_have) reject(a, "an argument of its kind has no bounds");
    if (a.kind == BP_ARGUMENT_F64) {
      made.has_number_bounds = has;
      read_number(a, "at_least", a.at_least, made.least);
      read_number(a, "at_most", a.at_most, made.most);
      read_number(a, "below", a.below, made.less_than);
      return;
    }
    read_rule(a, "at_least", a.at_least, RuleType::number, made.at_least);
    read_rule(a, "at_most", a.at_most, RuleType::number, made.at_most);
    read_rule(a, "below", a.below, RuleType::number, made.below);
  }

  void read_default(bp_op_argument& a) {
    a.default_value = {};
    if (a.default_text == nullptr) return;
    a.default_text = keep(a.default_text);
    const std::string_view text = a.default_text;
    const char* const end = text.data() + text.size();
    for (uint32_t i = 0; i < a.value_count; ++i) {
      if (text == a.value_names[i]) a.default_value = {BP_I64, 0, uint64_t{a.first_value} + i};
    }
    if (a.kind == BP_ARGUMENT_ENUM) {
      if (a.default_value.dtype == 0) reject(a, "its default is none of its values");
      return;
    }
    double real = 0;
    int64_t whole = 0;
    if (a.kind == BP_ARGUMENT_F64) {
      if (std::from_chars(text.data(), end, real).ptr != end) return;
      a.default_value.dtype = BP_F64;
      std::memcpy(&a.default_value.bits, &real, sizeof(real));
    } else if (!is_tensor_kind(a.kind) && a.kind != BP_ARGUMENT_I64_LIST) {
      if (std::from_chars(text.data(), end, whole).ptr != end) return;
      a.default_value = {BP_I64, 0, static_cast<uint64_t>(whole)};
    }
  }

  void read_rules(uint32_t index) {
    bp_op_argument& a = made_->described[index];
    RuntimeArgument& made = made_->arguments.emplace_back();
    read_dtype(a, made);
    const bool has_shape = is_tensor_kind(a.kind) && a.kind != BP_ARGUMENT_SCALAR_TENSOR;
    if (a.shape_rule != nullptr && !has_shape) reject(a, "an argument of its kind has no shape");
    if (a.shape_rule != nullptr && std::strcmp(a.shape_rule, "given") == 0) {
      if (!is_output_kind(a.kind)) reject(a, "only the shape of an output is \"given\"");
      made.is_given = true;
      a.shape_rule = keep(a.shape_rule);
    } else {
      read_rule(a, "shape_rule", a.shape_rule, RuleType::dims, made.shape);
    }
    const bool is_plain_output = a.kind == BP_ARGUMENT_OUT || a.kind == BP_ARGUMENT_OPTIONAL_OUT;
    if (is_plain_output && a.shape_rule == nullptr && !made_->infers) {
      reject(a, "an output needs a shape_rule, or the description an infer()");
    }
    read_rank(a, made);
    if (a.count_rule != nullptr && !is_list_kind(a.kind)) reject(a, "only a list has a count_rule");
    read_rule(a, "count_rule", a.count_rule, RuleType::number, made.count);
    read_bounds(a, made);
    read_default(a);
    check_aliases(a);
  }

  void check_aliases(const bp_op_argument& a) const {
    for (uint32_t i = 0; i < 64; ++i) {
      if ((a.may_alias >> i & 1) == 0) continue;
      const bool is_input = i < made_->described.size() &&
                            is_tensor_kind(made_->described[i].kind) &&
                            !is_output_kind(made_->described[i].kind);
      if (is_input && is_output_kind(a.kind)) continue;
      reject(a, "may_alias has bit " + std::to_string(i) +
                    "; an output may be the memory of inputs alone");
    }
  }

  // Puts each argument behind those whose dtype it follows.
  void order_dtypes() {
    std::vector<uint8_t> state(made_->arguments.size());  // 1: begun, 2: done.
    for (uint32_t i = 0; i < state.size(); ++i) visit(i, state);
  }

  void visit(uint32_t i, std::vector<uint8_t>& state) {
    const RuntimeArgument& a = made_->arguments[i];
    if (state[i] == 2 || a.dtype_rule == DtypeRule::none) return;
    if (state[i] == 1) reject(made_->described[i], "its dtype follows from itself");
    state[i] = 1;
    const auto follows = [](DtypeRule rule) {
      return rule == DtypeRule::like || rule == DtypeRule::accumulator || rule == DtypeRule::sum;
    };
    if (follows(a.dtype_rule)) visit(a.other, state);
    if (follows(a.default_rule)) visit(a.default_other, state);
    state[i] = 2;
    made_->dtype_order.push_back(i);
  }

  // ---- Formulas ----

  void read_formulas() {
    const bp_op_desc& desc = made_->desc;
    FormulaSubject subject{.name = desc.name,
                           .arguments = made_->described,
                           .since = given_.since,
                           .revision = desc.formula_revision,
                           .frame_size_bytes = size_in_formula(desc.formula_revision)};
    if (desc.decomposition != nullptr) {
      auto formula = std::make_unique<Formula>();
      const std::string defect = parse_decomposition(subject, desc.decomposition, *formula);
      if (!defect.empty()) reject("decomposition, " + defect);
      made_->formula = std::move(formula);
    }
    if (desc.backward == nullptr) return;
    subject.revision = desc.backward_revision;
    subject.frame_size_bytes = size_in_formula(desc.backward_revision);
    Formula gradients;
    const std::string defect = check_backward(subject, desc.backward, gradients);
    if (!defect.empty()) reject("backward, " + defect);
  }

  // Returns the size of the frame in the revision of a formula.
  uint32_t size_in_formula(uint32_t revision) const {
    return revision >= last_since_ ? given_.frame_size_bytes : made_->size_in(revision);
  }

  // ---- The rows for the choice of a kernel and for the checks ----

  void fill_row() {
    RuntimeOp& op = *made_;
    add_size(last_since_, given_.frame_size_bytes);
    op.name = op.desc.name;
    op.numerics = op.desc.numerics == nullptr ? "" : op.desc.numerics;
    op.frame_size_bytes = given_.frame_size_bytes;
    op.revision = given_.revision;
    op.later_values = op.later;
    std::vector<uint8_t> tensor_of(op.described.size(), kNoArgument);
    for (uint32_t i = 0; i < op.described.size(); ++i) {
      const bp_op_argument& a = op.described[i];
      const Kind kind = static_cast<Kind>(a.kind - 1);
      const bool is_tensor = is_tensor_kind(a.kind);
      op.members.push_back({0, a.offset_bytes, kind, is_tensor, a.name});
      if (kind == Kind::i64_list) {
        if (op.integer_list_count == kMaxIntegerLists) {
          reject("it has more than " + std::to_string(kMaxIntegerLists) + " lists of integers");
        }
        op.integer_lists[op.integer_list_count++] = static_cast<uint16_t>(a.offset_bytes);
      }
      if (!is_tensor) continue;
      if (op.tensor_count == kMaxRuntimeTensors) {
        reject("it has more than " + std::to_string(kMaxRuntimeTensors) + " tensors");
      }
      tensor_of[i] = static_cast<uint8_t>(op.tensor_count);
      fill_tensor(a, op.arguments[i], kind);
    }
    for (uint32_t i = 0; i < op.described.size(); ++i) {
      if (op.arguments[i].dtype_rule != DtypeRule::like) continue;
      op.tensors[tensor_of[i]].like = tensor_of[op.arguments[i].other];
    }
  }

  void fill_tensor(const bp_op_argument& a, const RuntimeArgument& made, Kind kind) {
    RuntimeOp& op = *made_;
    const uint32_t bit = 1u << op.tensor_count;
    TensorArgument& tensor = op.tensors[op.tensor_count++];
    tensor.name = a.name;
    tensor.offset = static_cast<uint16_t>(a.offset_bytes);
    tensor.kind = kind;
    tensor.is_free = made.dtype_rule == DtypeRule::free;
    tensor.may_be_absent = a.since > given_.since;
    if (made.dtype_rule == DtypeRule::fixed) tensor.dtype = made.dtypes[0];
    op.free_count += tensor.is_free ? 1 : 0;
    op.list_mask |= tensor.is_list() ? bit : 0;
    op.required_mask |= tensor.is_required() ? bit : 0;
    op.output_mask |= tensor.is_output() ? bit : 0;
  }

  void fill_checks() {
    RuntimeOp& op = *made_;
    uint32_t output_count = 0;
    for (const bp_op_argument& a : op.described) {
      std::string& values = op.texts.emplace_back();
      for (uint32_t i = 0; i < a.value_count; ++i) {
        values += (i == 0 ? "" : ", ") + std::string(a.value_names[i]);
      }
      const auto kind = static_cast<ops::Kind>(a.kind - 1);
      op.check_arguments.push_back({.name = a.name,
                                    .values = values.c_str(),
                                    .aliases = static_cast<uint32_t>(a.may_alias),
                                    .offset = static_cast<uint16_t>(a.offset_bytes),
                                    .first = static_cast<uint16_t>(a.first_value),
                                    .kind = kind});
      output_count += kind == ops::Kind::out || kind == ops::Kind::out_opt ? 1 : 0;
    }
    if (output_count > ops::kMaxOutputs) {
      reject("it has more than " + std::to_string(ops::kMaxOutputs) + " outputs");
    }
    op.check.name = op.name;
    op.check.arguments = op.check_arguments.data();
    op.check.infer = infer_runtime_op;
    op.check.frame_bytes = op.frame_size_bytes;
    op.check.first_bytes = op.first_size_bytes();
    op.check.argument_count = static_cast<uint32_t>(op.described.size());
    op.check.output_count = output_count;
    op.check.owner = &op;
    op.desc.argument_stride_bytes = sizeof(bp_op_argument);
  }

  bp_op_desc given_;
  std::unique_ptr<RuntimeOp> made_;
  std::vector<RuleArgument> rule_arguments_;
  uint32_t end_ = 2 * sizeof(uint32_t);  // Where the next argument may begin.
  uint32_t last_since_ = 0;
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
