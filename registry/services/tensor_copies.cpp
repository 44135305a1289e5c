// Copies of tensors between host memory and devices. A copy changes strides and dtype on a device,
// by the op `copy`, and moves bytes from side to side that lie one behind the other.
#include <algorithm>
#include <string>

#include "backplane/ops.h"
#include "registry/boundary/error_slot.hpp"
#include "registry/boundary/fail.hpp"
#include "registry/services/staged_bytes.hpp"
#include "registry/services/transfers.hpp"
#include "registry/tensors/strides.hpp"

namespace bp::services {
namespace {

uint64_t packed_bytes(const bp_tensor& tensor, bp_dtype dtype) {
  return tensors::packed_bytes(static_cast<uint64_t>(tensors::element_count(tensor)),
                               bp_dtype_bits(dtype));
}

unsigned char* host_bytes(const bp_tensor& tensor) {
  return reinterpret_cast<unsigned char*>(tensor.buffer) + tensor.byte_offset;
}

// A tensor without gaps for the elements of another one.
struct Packed {
  bp_tensor tensor;
  int64_t strides[BP_MAX_RANK];
  BlockHandle block;  // Empty if `tensor` is the other one itself.

  bp_buffer_ref range() const {
    return {tensor.buffer, tensor.byte_offset, packed_bytes(tensor, tensor.dtype)};
  }
};

// Gives the tensor of the side if its elements are packed and have `dtype`, else a new one.
bp_status pack(const CopySide& side, bp_dtype dtype, Packed& out) {
  out.tensor = *side.tensor;
  if (tensors::is_contiguous(*side.tensor) && side.tensor->dtype == dtype) return BP_OK;
  bp_block* block = nullptr;
  const bp_status status =
      side.cache->allocate(side.stream, packed_bytes(*side.tensor, dtype), &block);
  if (status != BP_OK) return status;
  out.block.reset(block);
  tensors::set_contiguous_strides(out.tensor.ndim, out.tensor.shape, out.strides);
  out.tensor.strides = out.strides;
  out.tensor.dtype = dtype;
  out.tensor.buffer = block->ref.buffer;
  out.tensor.byte_offset = block->ref.byte_offset;
  return BP_OK;
}

bp_status launch_copy(const CopySide& side, const bp_tensor& x, const bp_tensor& y,
                      LaunchOp launch) {
  const bp_copy_args args{.struct_size = sizeof(args), .flags = 0, .x = &x, .y = &y};
  return launch(side.target, side.stream, 0, BP_OP_COPY, &args);
}

// Lets `waiter` wait for the work of `first`. Both are streams of one backend.
bp_status order(const CopySide& first, const CopySide& waiter) {
  if (first.stream == waiter.stream) return BP_OK;
  const bp_event_ops& events = *first.target->events;
  const bp_stream_ops& streams = *waiter.target->streams;
  bp_event* event = nullptr;
  bp_status status = events.create(events.self, first.target->device, nullptr, &event);
  if (status != BP_OK) return status;
  status = events.record(events.self, event, first.stream);
  if (status == BP_OK) status = streams.wait_event(streams.self, waiter.stream, event);
  if (status == BP_OK) return events.destroy(events.self, event);
  const std::string words = core::take_error();
  static_cast<void>(events.destroy(events.self, event));
  return fail(status, words);
}

bp_status copy_on_one(const CopySide& dst, const CopySide& src, const Completion& completion,
                      LaunchOp launch) {
  bp_status status = order(src, dst);
  if (status == BP_OK) status = launch_copy(dst, *src.tensor, *dst.tensor, launch);
  if (status == BP_OK) status = order(dst, src);
  if (status == BP_OK) call_when_done(*dst.target, dst.stream, completion);
  return status;
}

bp_status copy_from_host(const CopySide& dst, const bp_tensor& src, const Completion& completion,
                         LaunchOp launch) {
  Packed packed;
  bp_status status = pack(dst, src.dtype, packed);
  if (status != BP_OK) return status;
  const bp_buffer_ref range = packed.range();
  const bool is_packed = tensors::is_contiguous(src);
  if (is_packed) {
    // If a later step fails, the program keeps its memory, and no work may read it any more.
    status = upload(dst.place(range), host_bytes(src),
                    packed.block == nullptr ? completion : Completion{});
  } else {
    status = upload_filled(dst.place(range), [&](unsigned char* bytes) { gather(src, bytes); });
  }
  if (status != BP_OK) return status;
  if (packed.block != nullptr) status = launch_copy(dst, packed.tensor, *dst.tensor, launch);
  const bool is_called = is_packed && packed.block == nullptr;
  if (status == BP_OK && !is_called && completion.call != nullptr) {
    completion.call(completion.user_data, BP_OK);  // The bytes were taken during the call.
  }
  return status;
}

bp_status copy_to_host(const bp_tensor& dst, const CopySide& src, const Completion& completion,
                       LaunchOp launch) {
  Packed packed;
  bp_status status = pack(src, dst.dtype, packed);
  if (status == BP_OK && packed.block != nullptr) {
    status = launch_copy(src, *src.tensor, packed.tensor, launch);
  }
  if (status != BP_OK) return status;
  const bp_buffer_ref range = packed.range();
  if (tensors::is_contiguous(dst)) {
    return download(host_bytes(dst), src.place(range), completion);
  }
  status = download_to([&](const unsigned char* bytes) { scatter(bytes, dst); }, src.place(range));
  if (status != BP_OK) return status;
  if (completion.call != nullptr) completion.call(completion.user_data, BP_OK);
  return BP_OK;
}

// Copies by the backend's own way between two of its devices. Returns BP_UNSUPPORTED if it has
// none.
bp_status copy_peer(const CopySide& dst, const bp_buffer_ref& to, const CopySide& src,
                    const bp_buffer_ref& from, const Completion& completion) {
  if (dst.target->plugin != src.target->plugin) return BP_UNSUPPORTED;
  bp_status status = order(src, dst);
  if (status != BP_OK) return status;
  const bp_allocator_ops& memory = *dst.target->allocator;
  status = memory.copy_peer(memory.self, dst.stream, &to, &from);
  if (status == BP_OK) status = order(dst, src);
  if (status == BP_OK) call_when_done(*dst.target, dst.stream, completion);
  return status;
}

bp_status copy_between(const CopySide& dst, const CopySide& src, const Completion& completion,
                       LaunchOp launch) {
  const bp_dtype on_the_way = bp_dtype_bits(dst.tensor->dtype) < bp_dtype_bits(src.tensor->dtype)
                                  ? dst.tensor->dtype
                                  : src.tensor->dtype;
  Packed from, to;
  bp_status status = pack(src, on_the_way, from);
  if (status == BP_OK) status = pack(dst, on_the_way, to);
  if (status == BP_OK && from.block != nullptr) {
    status = launch_copy(src, *src.tensor, from.tensor, launch);
  }
  if (status != BP_OK) return status;
  status = copy_peer(dst, to.range(), src, from.range(), completion);
  if (status == BP_UNSUPPORTED) {
    status = copy_through_host(dst, to.range(), src, from.range(), completion);
  }
  if (status != BP_OK || to.block == nullptr) return status;
  return launch_copy(dst, to.tensor, *dst.tensor, launch);
}

bp_status check(const char* name, const CopySide& side, bool is_alone) {
  const bp_tensor* const t = side.tensor;
  const auto refuse = [&](bp_status status, const char* what) {
    return fail(status, std::string("copy_tensor: ") + name + what);
  };
  if (t->ndim > BP_MAX_RANK) return refuse(BP_INVALID_ARGUMENT, " has more than 8 axes");
  if (t->ndim != 0 && (t->shape == nullptr || t->strides == nullptr)) {
    return refuse(BP_INVALID_ARGUMENT, " has no shape or no strides; allowed: one entry per axis");
  }
  if (std::any_of(t->shape, t->shape + t->ndim, [](int64_t extent) { return extent < 0; })) {
    return refuse(BP_INVALID_ARGUMENT, " has a negative extent");
  }
  if (t->buffer == nullptr && tensors::has_elements(*t)) {
    return refuse(BP_INVALID_ARGUMENT, " has elements and no buffer");
  }
  if (is_alone) return BP_OK;  // The op `copy` checks the rest.
  if (t->layout != nullptr) {
    return refuse(BP_UNSUPPORTED, " has a layout; copy it to strides on its device first");
  }
  const uint32_t bits = bp_dtype_bits(t->dtype);
  if (bits == 0) return refuse(BP_INVALID_ARGUMENT, " has a dtype that this host does not know");
  if (bits % 8 == 0) return BP_OK;
  if (!tensors::is_contiguous(*t) || tensors::element_count(*t) * bits % 8 != 0) {
    return refuse(
        BP_UNSUPPORTED,
        " has packed elements with gaps, or its last element ends within a byte; allowed: "
        "row-major elements that fill whole bytes");
  }
  return BP_OK;
}

}  // namespace

bp_status copy_tensor(const CopySide& dst, const CopySide& src, const Completion& completion,
                      LaunchOp launch) {
  if (dst.target == nullptr && src.target == nullptr) {
    return fail(BP_INVALID_ARGUMENT, "copy_tensor: both tensors are in host memory; give a target");
  }
  const bool is_one = dst.target == src.target;
  bp_status status = check("dst", dst, is_one);
  if (status == BP_OK) status = check("src", src, is_one);
  if (status != BP_OK) return status;
  const bp_tensor &d = *dst.tensor, &s = *src.tensor;
  if (d.ndim != s.ndim || !std::equal(d.shape, d.shape + d.ndim, s.shape)) {
    return fail(BP_INVALID_ARGUMENT, "copy_tensor: dst and src have different shapes");
  }
  for (const CopySide* side : {&dst, &src}) {
    if (completion.call == nullptr || side->target == nullptr) continue;
    status = check_not_capturing(*side->target, side->stream);
    if (status != BP_OK) return status;
  }
  if (is_one) return copy_on_one(dst, src, completion, launch);
  if (!tensors::has_elements(d)) {
    if (completion.call != nullptr) completion.call(completion.user_data, BP_OK);
    return BP_OK;
  }
  if (src.target == nullptr) return copy_from_host(dst, s, completion, launch);
  if (dst.target == nullptr) return copy_to_host(d, src, completion, launch);
  return copy_between(dst, src, completion, launch);
}

}  // namespace bp::services
