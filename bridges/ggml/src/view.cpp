#include "view.h"

#include <algorithm>

namespace bpg {

int64_t View::count() const {
  int64_t n = 1;
  for (uint32_t i = 0; i < ndim; ++i) n *= shape[i];
  return n;
}

bool View::is_contiguous() const {
  int64_t expected = 1;
  for (int i = static_cast<int>(ndim) - 1; i >= 0; --i) {
    if (shape[i] != 1 && strides[i] != expected) return false;
    expected *= shape[i];
  }
  return true;
}

bool View::has_shape(const View& other) const {
  return ndim == other.ndim && std::equal(shape.begin(), shape.begin() + ndim, other.shape.begin());
}

View dense(bp_buffer* buffer, uint64_t byte_offset, bp_dtype dtype, const Shape& shape) {
  View y;
  y.buffer = buffer;
  y.byte_offset = byte_offset;
  y.dtype = dtype;
  y.ndim = static_cast<uint32_t>(shape.size());
  int64_t stride = 1;
  for (int i = static_cast<int>(y.ndim) - 1; i >= 0; --i) {
    y.shape[i] = shape[i];
    y.strides[i] = stride;
    stride *= shape[i];
  }
  return y;
}

View permute(const View& x, std::initializer_list<int> axes) {
  View y = x;
  int i = 0;
  for (const int axis : axes) {
    y.shape[i] = x.shape[axis];
    y.strides[i++] = x.strides[axis];
  }
  return y;
}

View swap_last(const View& x) {
  View y = x;
  std::swap(y.shape[x.ndim - 1], y.shape[x.ndim - 2]);
  std::swap(y.strides[x.ndim - 1], y.strides[x.ndim - 2]);
  return y;
}

View every(const View& x, int axis, int64_t start, int64_t step, int64_t count) {
  View y = x;
  const int a = axis < 0 ? axis + static_cast<int>(x.ndim) : axis;
  y.byte_offset += start * x.strides[a] * x.element_bytes();
  y.shape[a] = count;
  y.strides[a] *= step;
  return y;
}

View slice(const View& x, int axis, int64_t start, int64_t stop) {
  return every(x, axis, start, 1, stop - start);
}

View split(const View& x, int axis, int64_t inner) {
  if (x.ndim == BP_MAX_RANK) throw Refusal("the shapes need more than 8 axes");
  View y = x;
  std::copy_backward(x.shape.begin() + axis, x.shape.begin() + x.ndim,
                     y.shape.begin() + x.ndim + 1);
  std::copy_backward(x.strides.begin() + axis, x.strides.begin() + x.ndim,
                     y.strides.begin() + x.ndim + 1);
  y.ndim = x.ndim + 1;
  y.shape[axis] = x.shape[axis] / inner;
  y.shape[axis + 1] = inner;
  y.strides[axis] = x.strides[axis] * inner;
  return y;
}

bool merge(View& x, int axis) {
  const int64_t outer = x.shape[axis], inner = x.shape[axis + 1];
  int64_t stride = x.strides[axis + 1];
  if (outer != 1) {
    if (inner == 1) {
      stride = x.strides[axis];
    } else if (x.strides[axis] != inner * x.strides[axis + 1]) {
      return false;
    }
  }
  std::copy(x.shape.begin() + axis + 1, x.shape.begin() + x.ndim, x.shape.begin() + axis);
  std::copy(x.strides.begin() + axis + 1, x.strides.begin() + x.ndim, x.strides.begin() + axis);
  --x.ndim;
  x.shape[axis] = outer * inner;
  x.strides[axis] = stride;
  return true;
}

View unsqueeze(const View& x, int axis) {
  if (axis == static_cast<int>(x.ndim)) {
    View y = x;
    y.shape[y.ndim] = y.strides[y.ndim] = 1;
    ++y.ndim;
    return y;
  }
  return split(x, axis, std::max<int64_t>(x.shape[axis], 1));
}

View squeeze(const View& x, int axis) {
  View y = x;
  std::copy(x.shape.begin() + axis + 1, x.shape.begin() + x.ndim, y.shape.begin() + axis);
  std::copy(x.strides.begin() + axis + 1, x.strides.begin() + x.ndim, y.strides.begin() + axis);
  --y.ndim;
  return y;
}

View expand(const View& x, int axis, int64_t count) {
  View y = x;
  y.shape[axis] = count;
  if (count != 1) y.strides[axis] = 0;
  return y;
}

View expand_to(const View& x, const Shape& shape) {
  View y = x;
  for (uint32_t i = 0; i < x.ndim; ++i) {
    if (x.shape[i] == shape[i]) continue;
    if (x.shape[i] != 1) throw Refusal("a tensor cannot be broadcast to the other shape");
    y = expand(y, static_cast<int>(i), shape[i]);
  }
  return y;
}

View simplified(const View& x) {
  View y = x;
  for (int axis = static_cast<int>(y.ndim) - 2; axis >= 0; --axis) merge(y, axis);
  return y;
}

bool reshape_view(const View& x, const Shape& shape, View& out) {
  const View from = simplified(x);
  View y = x;
  y.ndim = static_cast<uint32_t>(shape.size());
  int source = static_cast<int>(from.ndim) - 1;
  int64_t left = source >= 0 ? from.shape[source] : 1;
  int64_t stride = source >= 0 ? from.strides[source] : 1;
  for (int i = static_cast<int>(shape.size()) - 1; i >= 0; --i) {
    y.shape[i] = shape[i];
    while (left == 1 && shape[i] != 1 && source > 0) {
      --source;
      left = from.shape[source];
      stride = from.strides[source];
    }
    y.strides[i] = stride;
    if (shape[i] == 1) continue;
    if (shape[i] == 0) return false;
    if (left % shape[i] != 0) return false;
    left /= shape[i];
    stride *= shape[i];
  }
  out = y;
  return true;
}

namespace {

struct Range {
  int64_t first, end;
};

Range bytes_of(const View& x) {
  int64_t low = 0, high = 0;
  for (uint32_t i = 0; i < x.ndim; ++i) {
    if (x.shape[i] == 0) return {0, 0};
    const int64_t span = (x.shape[i] - 1) * x.strides[i];
    (span < 0 ? low : high) += span;
  }
  const auto size = static_cast<int64_t>(x.element_bytes());
  const auto begin = static_cast<int64_t>(x.byte_offset);
  if (x.layout != nullptr) {
    return {begin, begin + static_cast<int64_t>(x.layout->physical_size_bytes)};
  }
  return {begin + low * size, begin + (high + 1) * size};
}

}  // namespace

bool overlap(const View& a, const View& b) {
  if (a.buffer != b.buffer) return false;
  const Range x = bytes_of(a), y = bytes_of(b);
  return x.first < y.end && y.first < x.end;
}

bool same_elements(const View& a, const View& b) {
  if (a.buffer != b.buffer || a.byte_offset != b.byte_offset || a.dtype != b.dtype) return false;
  if (!a.has_shape(b) || a.layout != b.layout) return false;
  for (uint32_t i = 0; i < a.ndim; ++i) {
    if (a.shape[i] != 1 && a.strides[i] != b.strides[i]) return false;
  }
  return true;
}

bp_dtype dtype_of(ggml_type type) {
  switch (type) {
    case GGML_TYPE_F32:
      return BP_F32;
    case GGML_TYPE_F16:
      return BP_F16;
    case GGML_TYPE_BF16:
      return BP_BF16;
    case GGML_TYPE_F64:
      return BP_F64;
    case GGML_TYPE_I8:
      return BP_I8;
    case GGML_TYPE_I16:
      return BP_I16;
    case GGML_TYPE_I32:
      return BP_I32;
    case GGML_TYPE_I64:
      return BP_I64;
    default:
      return 0;
  }
}

}  // namespace bpg
