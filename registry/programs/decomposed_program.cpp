// Writes decompositions into programs.
//
//   query() -> nodes with a reason -> their decompositions, as nodes -> query() ...
#include <algorithm>
#include <array>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "backplane/program.h"
#include "registry/boundary/error_slot.hpp"
#include "registry/boundary/fail.hpp"
#include "registry/boundary/guard.hpp"
#include "registry/calls/call.hpp"
#include "registry/calls/claims.hpp"
#include "registry/programs/node_place.hpp"
#include "registry/state/state.hpp"

namespace bp::core {
namespace {

constexpr uint32_t kMaxDepth = 8;  // As deeply as decompositions nest when they are launched.
constexpr uint32_t kFirstDesc = offsetof(bp_compile_desc, user_data) + sizeof(void*);
constexpr uint32_t kFirstProgram = offsetof(bp_program, extent_stride_bytes) + sizeof(uint64_t);
constexpr uint32_t kFirstValue = offsetof(bp_program_value, buffer) + sizeof(bp_buffer_ref);
constexpr uint32_t kFirstNode = offsetof(bp_program_node, binding_count) + sizeof(uint64_t);

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
      nodes_.push_back({node, 0});
    }
    desc_.struct_size = sizeof(desc_);
    desc_.data = &program_;
    desc_.size_bytes = sizeof(program_);
    while (replace_refused()) {
    }
    write();
  }
  DecomposedProgram(const DecomposedProgram&) = delete;

  const bp_compile_desc& desc() const { return desc_; }

 private:
  struct Node {
    bp_program_node node;
    uint32_t depth;  // How many decompositions it is in.
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
      if (partitions[i] == BP_NO_PARTITION) made = decomposed(nodes_[i]);
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

  // Returns the nodes of the decomposition, or nothing if the node stays as it is.
  std::optional<std::vector<Node>> decomposed(const Node& node) {
    const OpRow* const row = find_op(node.node.op);
    const bp_kernel* const kernel = row == nullptr ? nullptr : services::decomposition(*row);
    if (kernel == nullptr || node.depth == kMaxDepth || node.node.binding_count != 0) {
      return std::nullopt;
    }
    const std::unique_ptr<NodeFrame> frame = frame_of(node.node, *row);
    if (frame == nullptr || bp_op_is_valid(row->op, frame->data()) == 0) return std::nullopt;
    alignas(8) std::array<std::byte, kMaxFrameBytes> storage;
    uint32_t offset = 0;
    const void* const args =
        fit_frame(*row, frame->data(), kernel->args_size_bytes, storage.data(), &offset);
    const bool is_served = args != nullptr && later_value_refusal(*row, *kernel, args).empty() &&
                           (kernel->supports == nullptr ||
                            kernel->supports(kernel, target_.device, desc_.flags, args) == nullptr);
    if (!is_served) return std::nullopt;
    return run(*row, args, node.depth + 1);
  }

  std::optional<std::vector<Node>> run(const OpRow& row, const void* args, uint32_t depth) {
    const size_t value_count = values_.all.size();
    NodePlace place(values_);
    try {
      services::Evaluator e(place);
      services::run_decomposition(e, row, args);
    } catch (const services::Failed& failed) {
      if (failed.status != BP_UNSUPPORTED) throw Refused{failed.status};
      values_.all.resize(value_count);
      return std::nullopt;
    }
    std::vector<Node> nodes;
    for (MadeNode& each : place.nodes) {
      MadeNode& kept = made_.emplace_back(std::move(each));
      bp_program_node node{};
      node.struct_size = sizeof(node);
      node.struct_type = BP_STRUCT_PROGRAM_NODE;
      node.args = kept.frame->data();
      node.values = kept.values.data();
      node.value_count = kept.values.size();
      node.op = kept.frame->row().op;
      nodes.push_back({node, depth});
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
    frame->visit_tensors([&](bp_tensor* tensor) {
      const uint32_t value = next < node.value_count ? node.values[next] : BP_NO_VALUE;
      ++next;
      if (tensor == nullptr) return;
      if (value >= values_.all.size()) {
        is_sound = false;
      } else {
        tensor->buffer = ProgramValues::buffer_of(value);
      }
    });
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

bp_status bp_decomposed_program_release(bp_decomposed_program* program) {
  delete reinterpret_cast<DecomposedProgram*>(program);
  return BP_OK;
}
