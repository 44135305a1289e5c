// Defines bp_op_infer(), bp_op_check() and what belongs to them.
#include <algorithm>
#include <array>
#include <cstddef>
#include <functional>
#include <memory_resource>
#include <new>
#include <string>
#include <vector>

#include "ops_spec/checks.hpp"
#include "ops_spec/frame.hpp"
#include "ops_spec/overlap.hpp"
#include "registry/boundary/prefix.hpp"
#include "registry/calls/call.hpp"

namespace bp::ops {
namespace {

// A tensor of a frame, with the memory that it uses.
struct Use {
  const bp_tensor* tensor;
  ByteRange range;
  uint32_t index;
  bool written;
};

bool may_share(const Row& row, const Use& a, const Use& b) {
  const auto allows = [&row](const Use& out, const Use& in) {
    return is_output(row.arguments[out.index].kind) && !in.written &&
           (row.arguments[out.index].aliases >> in.index & 1u) != 0;
  };
  return (allows(a, b) || allows(b, a)) && is_same_memory(*a.tensor, *b.tensor);
}

bp_status bad_overlap(const Row& row, const Use& a, const Use& b) {
  const Use& out = a.written ? a : b;
  const Use& other = a.written ? b : a;
  return refuse([&] {
    const bool may = (row.arguments[out.index].aliases >> other.index & 1u) != 0;
    return head(row, out.index) + " overlaps the memory of " + row.arguments[other.index].name +
           "; allowed: " + (may ? "all of it or none" : "memory of its own");
  });
}

// Compares the memory of all uses. They are sorted by where they begin, so that only neighbours can
// meet and lists of thousands of parameters stay cheap. Two uses that only read never clash, so a
// use that reads is compared with written ones only. Many written uses that reach into each other
// are refused at the first pair that shares a byte.
bp_status check_memory(const Row& row, std::pmr::vector<Use>& uses) {
  std::sort(uses.begin(), uses.end(), [](const Use& a, const Use& b) {
    const std::less<const bp_buffer*> before;
    if (a.tensor->buffer != b.tensor->buffer) return before(a.tensor->buffer, b.tensor->buffer);
    return a.range.begin < b.range.begin;
  });
  const auto meet = [](const Use& a, const Use& b) {
    return a.tensor->buffer == b.tensor->buffer && a.range.begin < b.range.end &&
           b.range.begin < a.range.end;
  };
  // Earlier uses that may still reach the present one, divided into written and read.
  std::pmr::vector<const Use*> written(uses.get_allocator()), read(uses.get_allocator());
  for (const Use& use : uses) {
    std::erase_if(written, [&](const Use* earlier) { return !meet(*earlier, use); });
    for (const Use* earlier : written) {
      if (overlap(*earlier->tensor, *use.tensor) && !may_share(row, *earlier, use)) {
        return bad_overlap(row, *earlier, use);
      }
    }
    if (use.written) {
      std::erase_if(read, [&](const Use* earlier) { return !meet(*earlier, use); });
      for (const Use* earlier : read) {
        if (overlap(*earlier->tensor, *use.tensor) && !may_share(row, *earlier, use)) {
          return bad_overlap(row, *earlier, use);
        }
      }
    }
    (use.written ? written : read).push_back(&use);
  }
  return BP_OK;
}

// Checks where the elements of a tensor may lie, as far as this can be seen without its buffer.
bp_status check_place(const Row& row, uint32_t index, int64_t item, const bp_tensor& tensor,
                      const ByteRange& range) {
  const uint64_t size = std::max<uint64_t>(bp_dtype_bits(tensor.dtype) / 8, 1);
  if (tensor.buffer == nullptr) {
    return refuse([&] {
      return head(row, index, item) +
             " has elements and no buffer; allowed: NULL for a tensor without elements";
    });
  }
  if (tensor.byte_offset % size != 0) {
    return refuse([&] {
      return head(row, index, item) + " begins at byte " + std::to_string(tensor.byte_offset) +
             " of its buffer; allowed: multiples of " + std::to_string(size) + ", the size of " +
             bp_dtype_name(tensor.dtype);
    });
  }
  if (range.begin >= 0 && range.end < kFarthestByte) return BP_OK;
  return refuse([&] {
    if (tensor.byte_offset > static_cast<uint64_t>(kFarthestByte)) {
      return head(row, index, item) + " begins at byte " + std::to_string(tensor.byte_offset) +
             " of its buffer; allowed: bytes from 0 to the end of the buffer";
    }
    const bool is_known = range.begin > -kFarthestByte && range.end < kFarthestByte;
    return head(row, index, item) +
           (is_known ? " reaches down to byte " + std::to_string(range.begin) + " of its buffer"
                     : " reaches beyond every buffer") +
           "; allowed: bytes from 0 to the end of the buffer";
  });
}

bp_status check_memory(const Row& row, const void* frame) try {
  alignas(Use) std::array<std::byte, 16 * sizeof(Use)> few;  // Only lists need the heap.
  std::pmr::monotonic_buffer_resource memory(few.data(), few.size());
  std::pmr::vector<Use> uses(&memory);
  uses.reserve(8);
  for (uint32_t i = 0; i < row.argument_count; ++i) {
    const bool written = is_written(row.arguments[i].kind);
    const Tensors tensors = tensors_of(row.arguments[i], frame);
    for (uint64_t item = 0; item < tensors.count; ++item) {
      const bp_tensor* tensor = tensors[item];
      if (written && overlaps_itself(*tensor)) {
        return refuse([&] {
          return head(row, i, tensors.item(item)) +
                 " overlaps itself; allowed: strides that give each element a place of its own";
        });
      }
      const ByteRange range = byte_range(*tensor);
      if (range.is_empty()) continue;
      const bp_status status = check_place(row, i, tensors.item(item), *tensor, range);
      if (status != BP_OK) return status;
      uses.push_back({tensor, range, i, written});
    }
  }
  return check_memory(row, uses);
} catch (const std::bad_alloc&) {
  if (!has_refusal_texts) return BP_OUT_OF_MEMORY;
  return fail(BP_OUT_OF_MEMORY, "bp_op_check: no memory to compare the tensors");
}

bp_status check_outputs(const Row& row, const void* frame, const bp_op_output* expected) {
  for (uint32_t i = 0, next = 0; i < row.argument_count; ++i) {
    const Kind kind = row.arguments[i].kind;
    if (kind != Kind::out && kind != Kind::out_opt) continue;
    const bp_op_output& output = expected[next++];
    const auto* tensor = member<const bp_tensor*>(frame, row.arguments[i].offset);
    if (tensor == nullptr && kind == Kind::out_opt) continue;
    if (!is_sound(tensor)) return bad_tensor(row, i, kNoItem, tensor);
    if (tensor->dtype != output.dtype) {
      return bad_dtype(row, i, kNoItem, tensor->dtype, 1u << output.dtype);
    }
    if (!(dims::shape(*tensor) == shape(output))) {
      return bad_shape(row, i, kNoItem, dims::shape(*tensor), shape(output),
                       "what follows from the arguments");
    }
  }
  return BP_OK;
}

// Asks for 0 bytes behind the last element. A range that leaves its buffer is refused, also if
// the range is empty.
bp_status check_end(const bp_target& target, const Row& row, uint32_t index, int64_t item,
                    const bp_tensor& tensor) {
  const ByteRange range = byte_range(tensor);
  if (range.is_empty()) return BP_OK;
  const bp_buffer_ref end{tensor.buffer, static_cast<uint64_t>(range.end), 0};
  const bp_allocator_ops& memory = *target.allocator;
  const bp_status status = memory.copy(memory.self, target.default_stream, &end, &end);
  if (status != BP_INVALID_ARGUMENT) return status;
  return refuse([&] {
    return head(row, index, item) + " takes bytes " + std::to_string(range.begin) + " to " +
           std::to_string(range.end) +
           " of its buffer; allowed: bytes inside it, and it is smaller, or none of " +
           target.name + " (" + bp_error_text() + ")";
  });
}

bp_status check_ends(const bp_target& target, const Row& row, const void* frame) {
  for (uint32_t i = 0; i < row.argument_count; ++i) {
    const Tensors tensors = tensors_of(row.arguments[i], frame);
    for (uint64_t item = 0; item < tensors.count; ++item) {
      const bp_status status = check_end(target, row, i, tensors.item(item), *tensors[item]);
      if (status != BP_OK) return status;
    }
  }
  return BP_OK;
}

// A frame of this build. It is `args` itself, or a copy of the frame of an older or newer build.
// Members that an older build lacks are absent.
struct Frame {
  const Row* row = nullptr;
  const void* args = nullptr;
  alignas(8) std::array<unsigned char, kMaxFrameBytes> copy;
};

// Returns how many outputs a frame of `size_bytes` has. A caller of an older build knows no others.
uint32_t output_count(const Row& row, uint32_t size_bytes) {
  return static_cast<uint32_t>(
      std::count_if(row.arguments, row.arguments + row.argument_count, [&](const Argument& a) {
        return (a.kind == Kind::out || a.kind == Kind::out_opt) && a.offset < size_bytes;
      }));
}

bp_status read_frame(uint32_t op, const void* args, Frame& frame) {
  frame.row = op < core::kFirstRuntimeOp ? find_row(op) : find_runtime_row(op);
  if (frame.row == nullptr && op >= core::kFirstRuntimeOp) return core::unknown_op(op);
  if (frame.row == nullptr) {
    return refuse([op] { return "there is no op " + std::to_string(op); });
  }
  if (args == nullptr) {
    return refuse([&frame] { return std::string(frame.row->name) + ": args, the frame, is NULL"; });
  }
  frame.args = args;
  const uint32_t ours = frame.row->frame_bytes;
  if (member<uint32_t>(args, 0) != ours) {
    uint32_t offset = 0;
    if (core::read_prefix(args, frame.row->first_bytes, frame.copy.data(), ours, &offset) !=
        BP_OK) {
      if (!has_refusal_texts) return BP_INCOMPATIBLE;
      try {
        return fail(BP_INCOMPATIBLE, std::string(frame.row->name) + ": the frame has " +
                                         std::to_string(member<uint32_t>(args, 0)) +
                                         " bytes and differs from byte " + std::to_string(offset) +
                                         " on; allowed: at least " +
                                         std::to_string(frame.row->first_bytes) +
                                         ", and zeros behind " + std::to_string(ours));
      } catch (const std::bad_alloc&) {
        return BP_INCOMPATIBLE;
      }
    }
    frame.args = frame.copy.data();
  }
  const auto flags = member<uint32_t>(args, 4);
  if (flags == 0) return BP_OK;
  return refuse([&] {
    return std::string(frame.row->name) + ": flags is " + std::to_string(flags) + "; allowed: 0";
  });
}

}  // namespace
}  // namespace bp::ops

bp_status bp_op_infer(uint32_t op, const void* args, uint32_t capacity, bp_op_output* out_outputs,
                      uint32_t* out_count) {
  if (out_outputs == nullptr) return bp::is_null("bp_op_infer: out_outputs");
  if (out_count == nullptr) return bp::is_null("bp_op_infer: out_count");
  bp::ops::Frame frame;
  bp_status status = bp::ops::read_frame(op, args, frame);
  if (status != BP_OK) return status;
  const bp::ops::Row& row = *frame.row;
  const uint32_t count = bp::ops::output_count(row, bp::ops::member<uint32_t>(args, 0));
  if (capacity < count) {
    return bp::ops::refuse([&] {
      return std::string(row.name) + ": capacity is " + std::to_string(capacity) +
             "; allowed: at least " + std::to_string(count);
    });
  }
  bp_op_output outputs[bp::ops::kMaxOutputs];
  status = row.infer(row, frame.args, outputs);
  if (status != BP_OK) return status;
  std::copy_n(outputs, count, out_outputs);
  *out_count = count;
  return BP_OK;
}

// Checks all that bp_op_check() checks, and returns the frame in `frame` for further checks.
static bp_status check_frame(uint32_t op, const void* args, bp::ops::Frame& frame) {
  bp_status status = bp::ops::read_frame(op, args, frame);
  if (status != BP_OK) return status;
  bp_op_output outputs[bp::ops::kMaxOutputs];
  status = frame.row->infer(*frame.row, frame.args, outputs);
  if (status == BP_OK) status = bp::ops::check_outputs(*frame.row, frame.args, outputs);
  return status == BP_OK ? bp::ops::check_memory(*frame.row, frame.args) : status;
}

bp_status bp_op_check(uint32_t op, const void* args) {
  bp::ops::Frame frame;
  return check_frame(op, args, frame);
}

uint32_t bp_op_is_valid(uint32_t op, const void* args) {
  bp::ops::has_refusal_texts = false;
  bp::ops::Frame frame;
  const bp_status status = check_frame(op, args, frame);
  bp::ops::has_refusal_texts = true;
  return status == BP_OK ? 1 : 0;
}

// Finds the tensor argument with this number, in the order of the frame. Returns NULL if there is
// none.
static const bp::ops::Argument* find_tensor(const bp::ops::Row& row, uint32_t number) {
  for (uint32_t i = 0; i < row.argument_count; ++i) {
    if (!bp::ops::is_tensor(row.arguments[i].kind)) continue;
    if (number-- == 0) return &row.arguments[i];
  }
  return nullptr;
}

uint32_t bp_op_can_alias(uint32_t op, uint32_t out, uint32_t in) {
  const bp::ops::Row* const row = bp::ops::find_row(op);
  if (row == nullptr) return 0;
  const bp::ops::Argument* const output = find_tensor(*row, out);
  const bp::ops::Argument* const input = find_tensor(*row, in);
  if (output == nullptr || input == nullptr || !bp::ops::is_output(output->kind)) return 0;
  return output->aliases >> (input - row->arguments) & 1u;
}

bp_status bp_op_check_buffers(const bp_target* target, uint32_t op, const void* args) {
  if (target == nullptr) {
    return bp::ops::refuse([] { return std::string("bp_op_check_buffers: target is NULL"); });
  }
  bp::ops::Frame frame;
  const bp_status status = check_frame(op, args, frame);
  return status == BP_OK ? bp::ops::check_ends(*target, *frame.row, frame.args) : status;
}
