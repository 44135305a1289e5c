#include "registry/captures/program_writer.hpp"

#include <algorithm>
#include <memory>
#include <utility>

#include "backplane/ops.h"
#include "registry/boundary/fail.hpp"

namespace bp::core {
namespace {

// What the nodes do with a value.
struct Use {
  ByteRange reached;  // By all tensors of the value.
  bool is_used = false;
  bool is_read_first = false;  // If true, something is read that no node has written.
  bool is_written = false;
  bool is_whole = false;             // If true, a node has written all that is reached.
  const bp_tensor* shape = nullptr;  // A row-major tensor of all that is reached.
  bool is_of_bits = false;           // It is of an op that may take elements for another dtype.
  bp_dtype dtype = 0;                // That of the first tensor.
};

bool covers(const bp_tensor& tensor, const ByteRange& range) {
  const ByteRange own = range_of(tensor);
  return tensors::is_contiguous(tensor) && own.begin == range.begin && own.end == range.end;
}

// Turns launches into a program.
class Writer {
 public:
  Writer(RecordedProgram& program, const std::vector<Source>& sources)
      : out_(program), sources_(sources), uses_(sources.size()) {}

  bp_status write() {
    find_reached();
    find_accesses();
    for (uint32_t value = 0; value < uses_.size(); ++value) {
      const Use& use = uses_[value];
      if (!use.is_used || sources_[value].is_outside || !use.is_read_first) continue;
      return fail(BP_INVALID_ARGUMENT,
                  "capture.end: a launch reads memory that was allocated in the capture, and no "
                  "launch before it writes it");
    }
    add_values();
    rewrite_nodes();
    return BP_OK;
  }

 private:
  void find_reached() {
    for (const MadeNode& node : out_.made) {
      for_tensors(node, [&](size_t k, Access) {
        if (node.values[k] == kEmpty) return;
        const bp_tensor& tensor = *node.frame->tensors()[k];
        Use& use = uses_[node.values[k]];
        const ByteRange own = range_of(tensor);
        if (!use.is_used) use.reached = own;
        if (!use.is_used) use.dtype = tensor.dtype;
        use.is_used = true;
        use.reached.begin = std::min(use.reached.begin, own.begin);
        use.reached.end = std::max(use.reached.end, own.end);
      });
    }
  }

  void find_accesses() {
    for (const MadeNode& node : out_.made) {
      for_tensors(node, [&](size_t k, Access access) {
        if (node.values[k] == kEmpty || access == Access::written) return;
        Use& use = uses_[node.values[k]];
        // What a node has written in part is read as a whole when all parts are there, which
        // nobody can tell. Memory from before the capture keeps what it had in the other parts.
        use.is_read_first |= sources_[node.values[k]].is_outside ? !use.is_whole : !use.is_written;
      });
      for_tensors(node, [&](size_t k, Access access) {
        if (node.values[k] == kEmpty) return;
        Use& use = uses_[node.values[k]];
        const bp_tensor& tensor = *node.frame->tensors()[k];
        const bool is_all = covers(tensor, use.reached);
        const uint32_t op = node.frame->row().op;
        const bool is_of_bits = op == BP_OP_COPY || op == BP_OP_FILL;
        if (is_all && (use.shape == nullptr || (use.is_of_bits && !is_of_bits))) {
          use.shape = &tensor;
          use.is_of_bits = is_of_bits;
        }
        if (access == Access::read) return;
        use.is_written = true;
        use.is_whole |= is_all;
      });
    }
  }

  // Appends a value and returns its index. Its memory is that of `source`.
  uint32_t add_value(uint32_t source, bp_value_role role) {
    const Use& use = uses_[source];
    std::vector<int64_t>& shape = out_.numbers.emplace_back();
    bp_dtype dtype = use.dtype;
    if (use.shape != nullptr) {
      shape.assign(use.shape->shape, use.shape->shape + use.shape->ndim);
      dtype = use.shape->dtype;
    } else {
      const uint64_t bits = bp_dtype_bits(dtype), bytes = use.reached.end - use.reached.begin;
      if (bits % 8 != 0 || bytes % (bits / 8) != 0) dtype = BP_U8;
      shape.push_back(static_cast<int64_t>(dtype == BP_U8 ? bytes : bytes / (bits / 8)));
    }
    bp_program_value value{};
    value.struct_size = sizeof(value);
    value.struct_type = BP_STRUCT_PROGRAM_VALUE;
    value.shape = shape.data();
    value.dtype = dtype;
    value.ndim = static_cast<uint32_t>(shape.size());
    value.role = role;
    out_.values.push_back(value);
    source_of_.push_back(source);
    return static_cast<uint32_t>(out_.values.size() - 1);
  }

  void add_values() {
    value_of_.resize(uses_.size(), BP_NO_VALUE);
    std::vector<uint32_t> input_of(uses_.size(), BP_NO_VALUE);
    for (uint32_t source = 0; source < uses_.size(); ++source) {
      const Use& use = uses_[source];
      const bool keeps = use.is_read_first || (use.is_written && !use.is_whole);
      if (use.is_used && sources_[source].is_outside && keeps) {
        input_of[source] = value_of_[source] = add_value(source, BP_VALUE_INPUT);
      }
    }
    for (uint32_t source = 0; source < uses_.size(); ++source) {
      const Use& use = uses_[source];
      const bool is_output =
          sources_[source].is_outside ? use.is_written : sources_[source].is_held;
      if (!use.is_used || !is_output) continue;
      value_of_[source] = add_value(source, BP_VALUE_OUTPUT);
      if (input_of[source] == BP_NO_VALUE) continue;
      out_.aliases.push_back({input_of[source], value_of_[source]});
    }
    const size_t argument_count = out_.values.size();
    for (uint32_t source = 0; source < uses_.size(); ++source) {
      if (!uses_[source].is_used || value_of_[source] != BP_NO_VALUE) continue;
      value_of_[source] = add_value(source, BP_VALUE_TEMPORARY);
    }
    for (size_t value = 0; value < argument_count; ++value) add_argument(value);
  }

  void add_argument(size_t value) {
    const bp_program_value& its = out_.values[value];
    bp_tensor& tensor = out_.arguments.emplace_back(view_of(its));
    tensor.buffer = const_cast<bp_buffer*>(uses_[source_of_[value]].reached.buffer);
    tensor.byte_offset = uses_[source_of_[value]].reached.begin;
  }

  bp_tensor view_of(const bp_program_value& value) {
    bp_tensor tensor{};
    tensor.shape = value.shape;
    std::vector<int64_t>& strides = out_.numbers.emplace_back(value.ndim);
    tensors::set_contiguous_strides(value.ndim, value.shape, strides.data());
    tensor.strides = strides.data();
    tensor.dtype = value.dtype;
    tensor.ndim = value.ndim;
    return tensor;
  }

  // A program writes no inputs: what nodes change in memory from before the capture is an output
  // that begins as a copy of the input. The two may be one memory.
  void add_copies() {
    const OpRow& row = *find_op(BP_OP_COPY);
    for (const bp_program_alias& alias : out_.aliases) {
      const bp_tensor x = view_of(out_.values[alias.input]);
      const bp_copy_args args{.struct_size = sizeof(args), .flags = 0, .x = &x, .y = &x};
      MadeNode& node = copies_.emplace_back();
      node.frame = std::make_unique<NodeFrame>(row, &args);
      node.values = {alias.input, alias.output};
    }
  }

  void rewrite_nodes() {
    for (MadeNode& node : out_.made) {
      for_tensors(node, [&](size_t k, Access access) {
        bp_tensor* const tensor = node.frame->tensors()[k];
        tensor->buffer = nullptr;
        if (node.values[k] == kEmpty) {
          node.values[k] = add_empty(access);
          tensor->byte_offset = 0;
          return;
        }
        tensor->byte_offset -= uses_[node.values[k]].reached.begin;
        node.values[k] = value_of_[node.values[k]];
      });
    }
    add_copies();
    for (const MadeNode& node : copies_) add_node(node);
    for (const MadeNode& node : out_.made) add_node(node);
    for (MadeNode& node : copies_) out_.made.push_back(std::move(node));
  }

  // Appends a value without elements.
  uint32_t add_empty(Access access) {
    bp_program_value value{};
    value.struct_size = sizeof(value);
    value.struct_type = BP_STRUCT_PROGRAM_VALUE;
    value.shape = out_.numbers.emplace_back(1, 0).data();
    value.dtype = BP_U8;
    value.ndim = 1;
    value.role = BP_VALUE_TEMPORARY;
    if (access == Access::read) {
      value.role = BP_VALUE_CONSTANT;
      value.data = value.shape;  // Nothing of it is read.
    }
    out_.values.push_back(value);
    return static_cast<uint32_t>(out_.values.size() - 1);
  }

  void add_node(const MadeNode& node) {
    bp_program_node its{};
    its.struct_size = sizeof(its);
    its.struct_type = BP_STRUCT_PROGRAM_NODE;
    its.args = node.frame->data();
    its.values = node.values.data();
    its.value_count = node.values.size();
    its.op = node.frame->row().op;
    out_.nodes.push_back(its);
  }

  RecordedProgram& out_;
  const std::vector<Source>& sources_;
  std::vector<Use> uses_;            // Of each source, which is memory of a tensor.
  std::vector<uint32_t> value_of_;   // Of each source: the value that nodes have.
  std::vector<uint32_t> source_of_;  // Of each value.
  std::deque<MadeNode> copies_;
};

}  // namespace

bp_compile_desc RecordedProgram::desc() const {
  bp_compile_desc desc{};
  desc.struct_size = sizeof(desc);
  desc.struct_type = BP_STRUCT_COMPILE_DESC;
  desc.format = "backplane.graph";
  desc.data = &program;
  desc.size_bytes = sizeof(program);
  desc.flags = flags;
  return desc;
}

bp_status write_program(RecordedProgram& out, const std::vector<Source>& sources) {
  const bp_status status = Writer(out, sources).write();
  if (status != BP_OK) return status;
  out.program.struct_size = sizeof(out.program);
  out.program.struct_type = BP_STRUCT_PROGRAM;
  out.program.values = out.values.data();
  out.program.value_count = out.values.size();
  out.program.value_stride_bytes = sizeof(bp_program_value);
  out.program.nodes = out.nodes.data();
  out.program.node_count = out.nodes.size();
  out.program.node_stride_bytes = sizeof(bp_program_node);
  out.program.aliases = out.aliases.data();
  out.program.alias_count = out.aliases.size();
  return BP_OK;
}

}  // namespace bp::core
