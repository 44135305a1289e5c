// Runs an op on the first device of class host: its tensors are copied there, and its outputs back.
//
// Every tensor is copied as the range of bytes that its elements span, so that strides stay as they
// are. An output with gaps between its elements is copied in first: what lies in the gaps must be
// the same afterwards. An output that aliases an input gets memory of its own over there, which is
// why in-place ops are right as well. The call waits for the device.
#include <algorithm>
#include <array>
#include <cstring>
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "registry/fail.hpp"
#include "registry/guard.hpp"
#include "registry/host_target.hpp"
#include "registry/op_rows.hpp"
#include "registry/services/services.hpp"

namespace bp::services {
namespace {

using core::Kind;
using core::OpRow;
using core::TensorArgument;

struct FreeBlock {
  void operator()(bp_block* block) const { static_cast<void>(bp_block_free(block)); }
};

// The elements of a tensor as a range of its buffer.
struct Span {
  uint64_t begin_byte = 0;   // In the buffer.
  uint64_t size_bytes = 0;   // 0 for a tensor without elements.
  uint64_t origin_byte = 0;  // Of the first element, in the span: not 0 with negative strides.
  bool has_gaps = false;
};

Span span_of(const bp_tensor& t) {
  const auto element = static_cast<int64_t>(bp_dtype_bits(t.dtype) / 8);
  int64_t low = 0, high = 0, count = 1;
  for (uint32_t axis = 0; axis < t.ndim; ++axis) {
    if (t.shape[axis] == 0) return {};
    const int64_t reach = (t.shape[axis] - 1) * t.strides[axis];
    (reach < 0 ? low : high) += reach;
    count *= t.shape[axis];
  }
  return {.begin_byte = t.byte_offset + static_cast<uint64_t>(low * element),
          .size_bytes = static_cast<uint64_t>((high - low + 1) * element),
          .origin_byte = static_cast<uint64_t>(-low * element),
          .has_gaps = high - low + 1 != count};
}

// A tensor of the device and its copy on the host.
struct Copy {
  const bp_tensor* original;
  Span span;
  std::unique_ptr<bp_block, FreeBlock> block;
  bp_tensor tensor;
  bool is_written;
};

class Run {
 public:
  Run(const bp_target& target, const bp_target& host, const OpRow& row, bp_stream* stream)
      : target_(target), host_(host), row_(row), stream_(stream) {}

  bp_status operator()(bp_launch_flags flags, const void* args) {
    alignas(16) std::array<std::byte, core::kMaxFrameBytes> frame;
    std::memcpy(frame.data(), args, row_.frame_size_bytes);
    for (uint32_t i = 0; i < row_.tensor_count; ++i) {
      const bp_status status = bring(row_.tensors[i], frame.data());
      if (status != BP_OK) return status;
    }
    flags &= ~bp_launch_flags{BP_LAUNCH_DEVICE_CURRENT};
    const bp_status status = bp_op_launch(&host_, nullptr, flags, row_.op, frame.data());
    return status == BP_OK ? take_back() : status;
  }

 private:
  // Copies what the argument needs, and lets the frame name the copies.
  bp_status bring(const TensorArgument& argument, std::byte* frame) {
    const bool is_written = argument.is_output() || argument.kind == Kind::out_list ||
                            argument.kind == Kind::inout || argument.kind == Kind::inout_list;
    const bool is_read = !argument.is_output() && argument.kind != Kind::out_list;
    std::byte* member = frame + argument.offset;
    if (!argument.is_list()) {
      const bp_tensor*& tensor = *reinterpret_cast<const bp_tensor**>(member);
      return tensor == nullptr ? bp_status{BP_OK} : bring_one(tensor, is_read, is_written);
    }
    const uint64_t count = *reinterpret_cast<const uint64_t*>(member - sizeof(uint64_t));
    const bp_tensor* const*& list = *reinterpret_cast<const bp_tensor* const**>(member);
    std::vector<const bp_tensor*>& copies = lists_.emplace_back(list, list + count);
    for (const bp_tensor*& tensor : copies) {
      const bp_status status = bring_one(tensor, is_read, is_written);
      if (status != BP_OK) return status;
    }
    list = copies.data();
    return BP_OK;
  }

  bp_status bring_one(const bp_tensor*& tensor, bool is_read, bool is_written) {
    Copy& copy = copies_.emplace_back();
    copy.original = tensor;
    copy.span = span_of(*tensor);
    copy.tensor = *tensor;
    copy.is_written = is_written;
    bp_block* block = nullptr;
    bp_status status = bp_block_allocate(&host_, nullptr, copy.span.size_bytes, &block);
    if (status != BP_OK) return status;
    copy.block.reset(block);
    copy.tensor.buffer = block->ref.buffer;
    copy.tensor.byte_offset = block->ref.byte_offset + copy.span.origin_byte;
    tensor = &copy.tensor;
    const bool copies_in = is_read || copy.span.has_gaps;
    return copies_in ? move(copy, /*to_host=*/true) : bp_status{BP_OK};
  }

  bp_status take_back() {
    for (const Copy& copy : copies_) {
      if (!copy.is_written) continue;
      const bp_status status = move(copy, /*to_host=*/false);
      if (status != BP_OK) return status;
    }
    return BP_OK;
  }

  // Copies between the two devices by way of host memory.
  bp_status move(const Copy& copy, bool to_host) {
    if (copy.span.size_bytes == 0) return BP_OK;
    staging_.resize(copy.span.size_bytes);
    const bp_buffer_ref there{copy.original->buffer, copy.span.begin_byte, copy.span.size_bytes};
    const bp_buffer_ref here{copy.block->ref.buffer, copy.block->ref.byte_offset,
                             copy.span.size_bytes};
    const bp_target& from = to_host ? target_ : host_;
    const bp_target& to = to_host ? host_ : target_;
    bp_stream* from_stream = to_host ? stream_ : host_.default_stream;
    bp_stream* to_stream = to_host ? host_.default_stream : stream_;
    const bp_status status =
        from.allocator->copy_to_host(from.allocator->self, from_stream, staging_.data(),
                                     to_host ? &there : &here, BP_BORROW_DURING_CALL);
    if (status != BP_OK) return status;
    return to.allocator->copy_from_host(to.allocator->self, to_stream, to_host ? &here : &there,
                                        staging_.data(), BP_BORROW_DURING_CALL);
  }

  const bp_target& target_;
  const bp_target& host_;
  const OpRow& row_;
  bp_stream* stream_;
  std::deque<Copy> copies_;  // Does not move what the frame points to.
  std::deque<std::vector<const bp_tensor*>> lists_;
  std::vector<std::byte> staging_;
};

bp_status launch(const bp_kernel* self, const bp_launch* launch, const void* args) {
  const auto& row = *static_cast<const OpRow*>(self->state);
  const auto* target = static_cast<const bp_target*>(launch->next);
  const bp_target* host = target == nullptr ? nullptr : host_target(target->registry);
  if (host == nullptr) {
    return fail(BP_UNSUPPORTED, std::string(row.name) +
                                    ": no device of class host is loaded for the fallback; load a "
                                    "backend that has one, such as a CPU backend");
  }
  if (host == target) {
    return fail(BP_UNSUPPORTED, std::string(row.name) + ": " + target->name +
                                    " is the host device itself and has no kernel for this call");
  }
  return core::guarded(
      [&] { return Run(*target, *host, row, launch->stream)(launch->flags, args); });
}

// A kernel for each op, in the order of core::op_rows().
std::vector<bp_kernel> make_kernels() {
  std::vector<bp_kernel> kernels;
  for (const OpRow& row : core::op_rows()) {
    bp_kernel kernel{};
    kernel.struct_size = sizeof(bp_kernel);
    kernel.struct_type = BP_STRUCT_KERNEL;
    kernel.state = const_cast<OpRow*>(&row);  // Only read.
    kernel.name = "host_fallback";
    kernel.op = row.op;
    kernel.op_version = row.version;
    kernel.args_size_bytes = row.frame_size_bytes;
    kernel.flags = BP_KERNEL_IN_PLACE | BP_KERNEL_TAKES_SCALAR;
    kernel.layouts = BP_LAYOUT_ANY;
    kernel.launch = launch;
    kernels.push_back(kernel);
  }
  return kernels;
}

}  // namespace

const bp_kernel* host_fallback(uint32_t op) {
  static const std::vector<bp_kernel> kernels = make_kernels();
  const OpRow* row = core::find_op(op);
  return row == nullptr ? nullptr : &kernels[row->index];
}

}  // namespace bp::services
