// Writes decompositions into programs.
//
//   query() -> nodes with a reason -> their decompositions, as nodes -> query() ...
#include <algorithm>
#include <array>
#include <cstring>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "backplane/program.h"
#include "registry/boundary/error_slot.hpp"
#include "registry/boundary/fail.hpp"
#include "registry/boundary/guard.hpp"
#include "registry/calls/call.hpp"
#include "registry/calls/claims.hpp"
#include "registry/programs/bound_attributes.hpp"
#include "registry/programs/node_place.hpp"
#include "registry/state/state.hpp"

namespace bp::core {
namespace {

constexpr uint32_t kMaxDepth = 8;  // As deeply as decompositions nest when they are launched.
constexpr uint32_t kFirstDesc = offsetof(bp_compile_desc, user_data) + sizeof(void*);
constexpr uint32_t kFirstProgram = offsetof(bp_program, extent_stride_bytes) + sizeof(uint64_t);
constexpr uint32_t kFirstValue = offsetof(bp_program_value, buffer) + sizeof(bp_buffer_ref);
constexpr uint32_t kFirstNode = offsetof(bp_program_node, binding_count) + sizeof(uint64_t);
constexpr uint32_t kFirstExtent = offsetof(bp_program_extent, term_count) + sizeof(uint64_t);

// The exception that ends the call with a status, whose text is in the error slot.
struct Refused {
  bp_status status;
};

template <typename Struct>
Struct read_struct(const void* theirs, uint32_t first, const std::string& what) {
  Struct ours{};
  if (theirs == nullptr) throw Refused{is_null(what.c_str())};
  const bp_status status = bp_struct_read(theirs, first, &ours, sizeof(ours), nullptr);
  if (status == BP_OK) return ours;
  throw Refused{fail(status, "bp_program_decompose: " + what + " cannot be read by this host")};
}

template <typename Struct>
std::vector<Struct> read_array(const void* first, uint64_t count, uint64_t stride_bytes,
                               uint32_t first_size, const char* what) {
  std::vector<Struct> all;
  for (uint64_t i = 0; i < count; ++i) {
    const auto* const at = static_cast<const std::byte*>(first) + i * stride_bytes;
    const std::string name = std::string(what) + " " + std::to_string(i);
    all.push_back(read_struct<Struct>(first == nullptr ? nullptr : at, first_size, name));
    if (count == 1 || all.back().struct_size <= stride_bytes) continue;
    throw Refused{fail(BP_INVALID_ARGUMENT, "bp_program_decompose: the stride of " + name + " is " +
                                                std::to_string(stride_bytes) +
                                                ", less than its struct_size")};
  }
  return all;
}

// The frame of a node with numbers for its extents, as a decomposition takes it.
struct ServedFrame {
  ServedFrame() = default;
  ServedFrame(const ServedFrame&) = delete;

  std::unique_ptr<NodeFrame> frame;
  alignas(8) std::array<std::byte, kMaxFrameBytes> storage;
  const void* args = nullptr;  // It points into one of them.
};

// Numbers of the extents at one or two moments. `second` is empty if one is enough.
struct Numbers {
  std::vector<int64_t> first, second;
};

// Returns why the formulas of an op compute with an attribute that has a binding, or "".
std::string computing_defect(const OpRow& row, const bp_program_node& node) {
  const bp_op_desc* desc = nullptr;
  if (bp_op_describe(row.op, &desc) != BP_OK) return take_error();
  for (uint64_t i = 0; i < node.binding_count; ++i) {
    for (uint64_t k = 0; k < desc->argument_count; ++k) {
      const bp_op_argument& argument = desc->arguments[k];
      if (argument.offset_bytes != node.bindings[i].member_offset) continue;
      for (const char* const text : {desc->decomposition, desc->condition}) {
        if (text == nullptr || only_hands_on(text, argument.name)) continue;
        return std::string("the decomposition computes with ") + argument.name +
               ", which is bound to an extent";
      }
    }
  }
  return "";
}

}  // namespace

// What bp_program_decompose() made.
class DecomposedProgram {
 public:
  DecomposedProgram(const bp_target& target, const bp_compile_desc* desc)
      : target_(target),
        desc_(read_struct<bp_compile_desc>(desc, kFirstDesc, "desc")),
        program_(read_program(desc_)) {
    values_.all = read_array<bp_program_value>(program_.values, program_.value_count,
                                               program_.value_stride_bytes, kFirstValue, "value");
    for (const bp_program_node& node : read_array<bp_program_node>(
             program_.nodes, program_.node_count, program_.node_stride_bytes, kFirstNode, "node")) {
      nodes_.push_back({node, 0, ""});
    }
    extents_ = read_array<bp_program_extent>(program_.extents, program_.extent_count,
                                             program_.extent_stride_bytes, kFirstExtent, "extent");
    desc_.struct_size = sizeof(desc_);
    desc_.data = &program_;
    desc_.size_bytes = sizeof(program_);
    while (replace_refused()) {
    }
    write();
  }
  DecomposedProgram(const DecomposedProgram&) = delete;

  const bp_compile_desc& desc() const { return desc_; }
  uint64_t node_count() const { return nodes_.size(); }

  // Returns why a node that the compiler refuses was not replaced, or NULL for every other node.
  const char* reason(uint64_t node) const {
    return nodes_[node].reason.empty() ? nullptr : nodes_[node].reason.c_str();
  }

 private:
  struct Node {
    bp_program_node node;
    uint32_t depth;  // How many decompositions it is in.
    std::string reason;
  };

  static bp_program read_program(const bp_compile_desc& desc) {
    if (desc.format == nullptr || std::strcmp(desc.format, "backplane.graph") != 0) {
      throw Refused{fail(BP_UNSUPPORTED, std::string("bp_program_decompose: format is ") +
                                             (desc.format == nullptr ? "NULL" : desc.format) +
                                             "; allowed is backplane.graph")};
    }
    auto program = read_struct<bp_program>(desc.data, kFirstProgram, "desc.data");
    program.struct_size = sizeof(program);
    return program;
  }

  // Lets the program have the present values and nodes.
  void write() {
    written_.clear();
    for (const Node& node : nodes_) written_.push_back(node.node);
    program_.values = values_.all.data();
    program_.value_count = values_.all.size();
    program_.value_stride_bytes = sizeof(bp_program_value);
    program_.nodes = written_.data();
    program_.node_count = written_.size();
    program_.node_stride_bytes = sizeof(bp_program_node);
  }

  // Returns whether a node was replaced.
  bool replace_refused() {
    write();
    const bp_compiler_ops& compiler = *target_.compiler;
    std::vector<uint32_t> partitions(nodes_.size());
    std::vector<bp_reason> reasons(nodes_.size());
    uint64_t count = 0;
    const bp_status status = compiler.query(compiler.self, target_.device, &desc_, nodes_.size(),
                                            partitions.data(), reasons.data(), &count);
    if (status != BP_OK) throw Refused{status};
    std::vector<Node> nodes;
    bool has_changed = false;
    for (size_t i = 0; i < nodes_.size(); ++i) {
      std::optional<std::vector<Node>> made;
      nodes_[i].reason.clear();
      if (partitions[i] == BP_NO_PARTITION) made = decomposed(nodes_[i], nodes_[i].reason);
      if (!made) {
        nodes.push_back(nodes_[i]);
        continue;
      }
      has_changed = true;
      nodes.insert(nodes.end(), made->begin(), made->end());
    }
    nodes_ = std::move(nodes);
    return has_changed;
  }

  // Returns the nodes of the decomposition. Returns nothing if the node stays as it is, and says
  // why.
  std::optional<std::vector<Node>> decomposed(const Node& node, std::string& out_reason) {
    const OpRow* const row = find_op(node.node.op);
    const bp_kernel* const kernel = row == nullptr ? nullptr : services::decomposition(*row);
    if (kernel == nullptr || node.depth == kMaxDepth) {
      out_reason = kernel == nullptr ? "the op has no decomposition"
                                     : "it is in as many decompositions as may nest";
      return std::nullopt;
    }
    const std::optional<Numbers> numbers = numbers_for(node.node, *row, out_reason);
    if (!numbers) return std::nullopt;
    ServedFrame first, second;
    out_reason = serve(node.node, *row, *kernel, numbers->first, first);
    if (out_reason.empty() && !numbers->second.empty()) {
      out_reason = serve(node.node, *row, *kernel, numbers->second, second);
    }
    if (!out_reason.empty()) return std::nullopt;
    const size_t value_count = values_.all.size();
    std::vector<MadeNode> made;
    out_reason = evaluate(*row, first.args, made);
    if (out_reason.empty() && !numbers->second.empty()) {
      out_reason = bind(node.node, *row, *numbers, second.args, value_count, made);
    }
    if (out_reason.empty()) return nodes_of(std::move(made), node.depth + 1);
    values_.all.resize(value_count);
    return std::nullopt;
  }

  // Returns the numbers with which a node is decomposed. An extent that a binding names, and that
  // is not the same in all launches, has two numbers.
  std::optional<Numbers> numbers_for(const bp_program_node& node, const OpRow& row,
                                     std::string& out_reason) const {
    if (node.binding_count == 0) return Numbers{};
    const std::span<const bp_extent_binding> bindings(node.bindings, node.binding_count);
    constexpr std::pair<Moment, Moment> kPairs[] = {{Moment::preferred, Moment::least},
                                                    {Moment::preferred, Moment::most},
                                                    {Moment::least, Moment::most}};
    out_reason = "the numbers of its extents are not known";
    for (const auto& [one, other] : kPairs) {
      const auto first = extents_at(extents_, one), second = extents_at(extents_, other);
      if (!first || !second) return std::nullopt;
      bool is_constant = true, differs = true;
      for (const bp_extent_binding& binding : bindings) {
        if (binding.extent >= first->size()) return std::nullopt;
        if (core::is_constant(extents_, binding.extent)) continue;
        is_constant = false;
        differs &= (*first)[binding.extent] != (*second)[binding.extent];
      }
      if (is_constant) return Numbers{*first, {}};
      out_reason = computing_defect(row, node);
      if (!out_reason.empty()) return std::nullopt;
      if (differs) return Numbers{*first, *second};
      out_reason = "min, preferred and max do not tell its extents from constants";
    }
    return std::nullopt;
  }

  // Makes the frame of a node. Returns why the decomposition does not serve it, or "".
  std::string serve(const bp_program_node& node, const OpRow& row, const bp_kernel& kernel,
                    const std::vector<int64_t>& numbers, ServedFrame& out) const {
    out.frame = frame_of(node, row);
    if (out.frame == nullptr) {
      return "a tensor of it names an extent, which only kernels of the device take, or its frame "
             "cannot be read";
    }
    for (uint64_t i = 0; i < node.binding_count; ++i) {
      const bp_extent_binding& binding = node.bindings[i];
      if (out.frame->bind(binding, numbers[binding.extent])) continue;
      return "binding " + std::to_string(i) + " fits no attribute";
    }
    if (bp_op_check(row.op, out.frame->data()) != BP_OK) return take_error();
    uint32_t offset = 0;
    out.args =
        fit_frame(row, out.frame->data(), kernel.args_size_bytes, out.storage.data(), &offset);
    if (out.args == nullptr) return later_member_refusal(row, kernel, offset);
    std::string refusal = later_value_refusal(row, kernel, out.args);
    if (!refusal.empty() || kernel.supports == nullptr) return refusal;
    const bp_reason reason = kernel.supports(&kernel, target_.device, desc_.flags, out.args);
    return reason == nullptr ? "" : reason;
  }

  // Runs the decomposition as nodes. Returns why it does not serve the call, or "".
  std::string evaluate(const OpRow& row, const void* args, std::vector<MadeNode>& out_nodes) {
    NodePlace place(values_);
    try {
      services::Evaluator e(place);
      services::run_decomposition(e, row, args);
    } catch (const services::Failed& failed) {
      if (failed.status != BP_UNSUPPORTED) throw Refused{failed.status};
      return take_error();
    }
    out_nodes = std::move(place.nodes);
    return "";
  }

  // Binds the attributes of `made`, which has the first numbers. Returns "", or why it cannot.
  std::string bind(const bp_program_node& node, const OpRow& row, const Numbers& numbers,
                   const void* second_args, size_t value_count, std::vector<MadeNode>& made) {
    const std::vector<bp_program_value> temporaries(
        values_.all.begin() + static_cast<ptrdiff_t>(value_count), values_.all.end());
    values_.all.resize(value_count);
    std::vector<MadeNode> second;
    std::string defect = evaluate(row, second_args, second);
    values_.all.resize(value_count);
    values_.all.insert(values_.all.end(), temporaries.begin(), temporaries.end());
    if (!defect.empty()) return defect;
    return bind_differences({node.bindings, node.binding_count}, numbers.first, numbers.second,
                            made, second);
  }

  std::vector<Node> nodes_of(std::vector<MadeNode> made, uint32_t depth) {
    std::vector<Node> nodes;
    for (MadeNode& each : made) {
      MadeNode& kept = made_.emplace_back(std::move(each));
      bp_program_node node{};
      node.struct_size = sizeof(node);
      node.struct_type = BP_STRUCT_PROGRAM_NODE;
      node.args = kept.frame->data();
      node.values = kept.values.data();
      node.value_count = kept.values.size();
      node.op = kept.frame->row().op;
      node.bindings = kept.bindings.data();
      node.binding_count = kept.bindings.size();
      nodes.push_back({node, depth, ""});
    }
    return nodes;
  }

  // Returns a copy of the frame whose tensors name their values by their buffers. Returns NULL if
  // it is not one that the host can read, or names extents.
  std::unique_ptr<NodeFrame> frame_of(const bp_program_node& node, const OpRow& row) const {
    alignas(8) std::array<std::byte, kMaxFrameBytes> storage;
    if (node.args == nullptr || frame_size(node.args) > kMaxFrameBytes) return nullptr;
    uint32_t offset = 0;
    const void* const args =
        fit_frame(row, node.args, row.frame_size_bytes, storage.data(), &offset);
    if (args == nullptr || !is_readable(row, args)) return nullptr;
    auto frame = std::make_unique<NodeFrame>(row, args);
    uint64_t next = 0;
    bool is_sound = true;
    for (bp_tensor* const tensor : frame->tensors()) {
      const uint32_t value = next < node.value_count ? node.values[next] : BP_NO_VALUE;
      ++next;
      if (tensor == nullptr) continue;
      if (value >= values_.all.size()) {
        is_sound = false;
      } else {
        tensor->buffer = ProgramValues::buffer_of(value);
      }
    }
    return is_sound ? std::move(frame) : nullptr;
  }

  // Returns whether every tensor has shape and strides in numbers.
  static bool is_readable(const OpRow& row, const void* args) {
    const auto has_numbers = [](const bp_tensor* t) {
      return t->ndim == 0 ||
             (t->ndim <= BP_MAX_RANK && t->shape != nullptr && t->strides != nullptr &&
              std::all_of(t->shape, t->shape + t->ndim, [](int64_t entry) { return entry >= 0; }));
    };
    for (uint32_t i = 0; i < row.tensor_count; ++i) {
      const TensorArgument& argument = row.tensors[i];
      const bp_tensor* const single = argument.is_list() ? nullptr : tensor_at(args, argument);
      const TensorList list =
          argument.is_list() ? list_at(args, argument) : TensorList{single != nullptr, &single};
      if (list.count != 0 && list.items == nullptr) return false;
      for (uint64_t k = 0; k < list.count; ++k) {
        if (list.items[k] == nullptr || !has_numbers(list.items[k])) return false;
      }
    }
    for (uint32_t i = 0; i < row.integer_list_count; ++i) {
      const uint16_t at = row.integer_lists[i];
      const bool is_given = *static_cast<const void* const*>(member(args, at)) != nullptr;
      if (!is_given && *static_cast<const uint64_t*>(member(args, at - 8u)) != 0) return false;
    }
    return true;
  }

  const bp_target& target_;
  bp_compile_desc desc_;
  bp_program program_;
  ProgramValues values_;
  std::vector<bp_program_extent> extents_;
  std::vector<Node> nodes_;
  std::vector<bp_program_node> written_;  // What the program points to.
  std::deque<MadeNode> made_;
};

}  // namespace bp::core

using bp::fail;
using bp::is_null;
using bp::core::DecomposedProgram;

bp_status bp_program_decompose(const bp_target* target, const bp_compile_desc* desc,
                               bp_decomposed_program** out_program) {
  return bp::core::guarded([&]() -> bp_status {
    if (target == nullptr) return is_null("target");
    if (desc == nullptr) return is_null("desc");
    if (out_program == nullptr) return is_null("out_program");
    if (bp_target_has_table(target, BP_STRUCT_COMPILER_OPS) == 0) {
      return fail(BP_UNSUPPORTED,
                  std::string("bp_program_decompose: ") + target->name + " has no compiler");
    }
    try {
      *out_program = reinterpret_cast<bp_decomposed_program*>(new DecomposedProgram(*target, desc));
      return BP_OK;
    } catch (const bp::core::Refused& refused) {
      return refused.status;
    }
  });
}

bp_status bp_decomposed_program_desc(const bp_decomposed_program* program,
                                     const bp_compile_desc** out_desc) {
  if (program == nullptr) return is_null("program");
  if (out_desc == nullptr) return is_null("out_desc");
  *out_desc = &reinterpret_cast<const DecomposedProgram*>(program)->desc();
  return BP_OK;
}

bp_status bp_decomposed_program_reason(const bp_decomposed_program* program, uint64_t node,
                                       const char** out_reason) {
  if (program == nullptr) return is_null("program");
  if (out_reason == nullptr) return is_null("out_reason");
  const auto& its = *reinterpret_cast<const DecomposedProgram*>(program);
  if (node >= its.node_count()) {
    return fail(BP_INVALID_ARGUMENT, "bp_decomposed_program_reason: node is " +
                                         std::to_string(node) + ", and the program has " +
                                         std::to_string(its.node_count()) + " nodes");
  }
  *out_reason = its.reason(node);
  return BP_OK;
}

bp_status bp_decomposed_program_release(bp_decomposed_program* program) {
  delete reinterpret_cast<DecomposedProgram*>(program);
  return BP_OK;
}
