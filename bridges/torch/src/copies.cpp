// Copies between the host and the devices, and what reads a tensor's value: _copy_from, item().
#include <ATen/MemoryOverlap.h>
#include <torch/library.h>

#include "backplane/transfers.h"
#include "fallback.h"
#include "memory.h"
#include "streams.h"
#include "tensors.h"

namespace bpt {
namespace {

using at::Tensor;

bool is_device(const Tensor& tensor) { return tensor.device().type() == kBp; }

// A dtype of the same width stands for one that the library does not know: bits are copied.
bp_dtype dtype_for_bits(const Tensor& tensor) {
  const bp_dtype known = to_bp(tensor.scalar_type());
  if (known != 0) return known;
  switch (tensor.itemsize()) {
    case 1:
      return BP_U8;
    case 2:
      return BP_U16;
    case 4:
      return BP_U32;
    case 8:
      return BP_U64;
    default:
      return 0;
  }
}

// The axes of a pair of tensors of one shape, with neighbours merged where both allow it.
struct Axes {
  at::DimVector shape, src, dst;

  Axes(const Tensor& from, const Tensor& to) {
    for (int64_t axis = 0; axis < to.dim(); ++axis) {
      const int64_t extent = to.size(axis);
      if (extent == 1) continue;
      const int64_t of_src = from.stride(axis), of_dst = to.stride(axis);
      if (!shape.empty() && src.back() == of_src * extent && dst.back() == of_dst * extent) {
        shape.back() *= extent;
        src.back() = of_src;
        dst.back() = of_dst;
      } else {
        shape.push_back(extent);
        src.push_back(of_src);
        dst.push_back(of_dst);
      }
    }
  }
};

bp_tensor describe(const Tensor& tensor, const at::DimVector& shape, const at::DimVector& strides,
                   bp_dtype dtype) {
  bp_tensor view{};
  if (is_device(tensor)) {
    const bp_buffer_ref place = place_of(tensor);
    view.buffer = place.buffer;
    view.byte_offset = place.byte_offset;
  } else {
    view.buffer = static_cast<bp_buffer*>(tensor.data_ptr());
  }
  view.shape = shape.data();
  view.strides = strides.data();
  view.ndim = static_cast<uint32_t>(shape.size());
  view.dtype = dtype;
  return view;
}

// Pinned memory stays until its copies have ended, so nothing has to be told.
void released(void*, bp_status) {}

// Submits a copy of tensors of one shape. BP_UNSUPPORTED says that the device has no such copy.
bp_status submit(const Tensor& src, const Tensor& dst, bool non_blocking) {
  require_open();
  const Axes axes(src, dst);
  if (axes.shape.size() > BP_MAX_RANK) return BP_UNSUPPORTED;
  const bool is_same = src.scalar_type() == dst.scalar_type();
  const bp_dtype from = is_same ? dtype_for_bits(src) : to_bp(src.scalar_type());
  const bp_dtype to = is_same ? from : to_bp(dst.scalar_type());
  if (from == 0 || to == 0) return BP_UNSUPPORTED;
  const bp_tensor src_view = describe(src, axes.shape, axes.src, from);
  const bp_tensor dst_view = describe(dst, axes.shape, axes.dst, to);
  bp_tensor_copy_desc desc{};
  desc.struct_size = sizeof(desc);
  desc.struct_type = BP_STRUCT_TENSOR_COPY_DESC;
  desc.src = &src_view;
  desc.dst = &dst_view;
  if (is_device(src)) {
    desc.src_target = target_of(src.device());
    desc.src_stream = current_stream_of(src.device());
  } else if (non_blocking && is_pinned(src.data_ptr())) {
    desc.release = &released;
  }
  if (is_device(dst)) {
    desc.dst_target = target_of(dst.device());
    desc.dst_stream = current_stream_of(dst.device());
  }
  const bp_status status = bp_copy_tensor(&desc);
  if (status == BP_OK || status == BP_UNSUPPORTED) return status;
  const Tensor& own = is_device(src) ? src : dst;
  if (status == BP_STREAM_FAILED || status == BP_DATA_FAILURE) {
    raise_failure_of(target_of(own.device()), current_stream_of(own.device()), status, "copy");
  }
  raise(status, "copy_tensor");
}

void wait_for(const Tensor& src) {
  synchronize(target_of(src.device()), current_stream_of(src.device()), "copy to the host");
}

// The whole storage of a tensor as bytes of the host, seen as the tensor is.
Tensor download_storage(const Tensor& src) {
  const size_t size = src.storage().nbytes();
  const Tensor bytes = at::empty({static_cast<int64_t>(size)}, at::kByte);
  if (const Block* own = block_of(src.storage())) {
    check(bp_block_download(own->block, 0, bytes.data_ptr(), size, current_stream_of(src.device()),
                            nullptr, nullptr),
          "block_download");
    wait_for(src);
  }
  Tensor host = at::empty({0}, src.options().device(at::kCPU));
  host.set_(bytes.storage(), src.storage_offset(), src.sizes(), src.strides());
  return host;
}

Tensor on_host(const Tensor& src) {
  const Tensor host = at::empty(src.sizes(), src.options().device(at::kCPU).pinned_memory(false));
  if (submit(src, host, false) != BP_OK) return download_storage(src);
  wait_for(src);
  return host;
}

// `host` has the shape and the dtype of `dst`.
void upload(const Tensor& host, const Tensor& dst) {
  if (submit(host, dst, false) == BP_OK) return;
  const Tensor whole = download_storage(dst);
  whole.copy_(host);
  const Block* own = block_of(dst.storage());
  check(bp_block_upload(own->block, 0, whole.storage().data(), whole.storage().nbytes(),
                        current_stream_of(dst.device()), nullptr, nullptr),
        "block_upload");
}

void copy_through_host(const Tensor& src, const Tensor& dst) {
  count_fallback("copy", c10::str("the device does not convert ", src.scalar_type(), " to ",
                                  dst.scalar_type(), ", or has no kernel for these strides"));
  const Tensor host = is_device(src) ? on_host(src) : src;
  if (!is_device(dst)) {
    dst.copy_(host);
    return;
  }
  upload(host.to(dst.scalar_type()), dst);
}

// The elements as they lie in memory: a tensor may stand for their conjugates or negatives.
Tensor as_stored(const Tensor& tensor) {
  const Tensor plain = tensor.is_conj() ? at::_conj(tensor) : tensor;
  return plain.is_neg() ? at::_neg_view(plain) : plain;
}

Tensor copy_from(const Tensor& src, const Tensor& dst, bool non_blocking) {
  const bool changes_sign = src.is_neg() != dst.is_neg();
  const bool changes_conj = src.is_conj() != dst.is_conj();
  const Tensor to = as_stored(dst);
  const Tensor from = as_stored(src);
  at::assert_no_internal_overlap(to);
  at::assert_no_partial_overlap(to, from);
  copy_into(from, to, non_blocking && !changes_sign && !changes_conj);
  if (changes_conj && to.is_complex()) at::view_as_real(to).select(-1, 1).neg_();
  if (changes_sign) to.neg_();
  return dst;
}

Tensor copy_from_and_resize(const Tensor& src, const Tensor& dst) {
  if (dst.sizes() != src.sizes()) dst.resize_(src.sizes());
  return copy_from(src, dst, false);
}

at::Scalar local_scalar_dense(const Tensor& self) {
  const Tensor host = at::empty({}, self.options().device(at::kCPU).pinned_memory(false));
  const bp_status status = submit(self.reshape({}), host, false);
  if (status != BP_OK) return on_host(self).item();
  wait_for(self);
  return host.item();
}

}  // namespace

void copy_into(const Tensor& src, const Tensor& dst, bool non_blocking) {
  if (dst.numel() == 0 || dst.is_same(src)) return;
  const Tensor whole = src.sizes() == dst.sizes() ? src : src.expand(dst.sizes());
  if (submit(whole, dst, non_blocking) != BP_OK) {
    copy_through_host(whole, dst);
    return;
  }
  const bool is_later = non_blocking && !is_device(dst) && is_pinned(dst.data_ptr());
  if (!is_device(dst) && !is_later) wait_for(whole);
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("_copy_from", &copy_from);
  m.impl("_copy_from_and_resize", &copy_from_and_resize);
  m.impl("_local_scalar_dense", &local_scalar_dense);
}

// PyTorch resolves these properties of a tensor by a copy, so the copy itself must take them.
TORCH_LIBRARY_IMPL(aten, Conjugate, m) {
  m.impl("_copy_from", torch::CppFunction::makeFallthrough());
}
TORCH_LIBRARY_IMPL(aten, Negative, m) {
  m.impl("_copy_from", torch::CppFunction::makeFallthrough());
}

}  // namespace bpt
