// tril, triu and one_hot, whose elements depend on where they lie.
//
// A row of a triangle is the part of x that is kept, and zeros. A block of rows of one_hot is
// zeros, which are written to the first-level cache, and ones. Dense results that no cache holds
// are streamed. Elements keep their bits, so the methods depend only on their width.

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backends/host_kernels/places.cpp"
#include "hwy/foreach_target.h"
// The headers below must come after foreach_target.h.
#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "backends/host_kernels/dense_rows-inl.hpp"
#include "backends/host_kernels/scalar.hpp"
#include "backends/host_kernels/strided.hpp"

#ifndef BACKPLANE_CPU_PLACES_PLANS
#define BACKPLANE_CPU_PLACES_PLANS
namespace bp::kernels {
namespace {

// Matrices in the last two axes. Element [i, j] is kept where j - i is at most `diagonal`, or at
// least `diagonal`.
struct Triangle {
  View y, x;
  bool is_lower = false;
  int64_t diagonal = 0;
  bool is_copied = false;  // y has the elements of x already.
  bool is_streamed = false;
};

// Writes the rows [begin, end) of a triangle.
using TriangleFunction = void(const Triangle& t, int64_t begin, int64_t end);

// The bytes of the rows of one_hot that are written at a time.
constexpr int64_t kOneHotBytes = 8192;

// The context of the row functions of one_hot.
struct Classes {
  int64_t count;
  int64_t stride;    // In elements of y.
  uint64_t one;      // The bits of 1 in the dtype of y.
  bool is_streamed;  // Dense rows are written past the caches.
};

}  // namespace
}  // namespace bp::kernels
#endif

HWY_BEFORE_NAMESPACE();
namespace bp::kernels {
namespace HWY_NAMESPACE {
namespace {

// Writes zeros to n elements that are `stride` elements apart. The bits of zero are the same in all
// dtypes.
template <typename T>
void zero_elements(T* y, int64_t stride, int64_t n, bool is_streamed) {
  const int64_t size_bytes = n * int64_t{sizeof(T)};
  if (stride == 1 && is_streamed) return stream_zeros(reinterpret_cast<std::byte*>(y), size_bytes);
  if (stride == 1) {
    std::memset(y, 0, static_cast<size_t>(size_bytes));
    return;
  }
  for (int64_t i = 0; i < n; ++i) y[i * stride] = T{0};
}

template <typename T>
void copy_elements_of_row(const T* x, int64_t x_stride, T* y, int64_t y_stride, int64_t n,
                          bool is_streamed) {
  const auto* const from = reinterpret_cast<const std::byte*>(x);
  const bool is_dense = x_stride == 1 && y_stride == 1;
  if (is_dense && is_streamed) {
    return stream_bytes(from, reinterpret_cast<std::byte*>(y), n * int64_t{sizeof(T)});
  }
  if (y_stride == 1) return gather_row(from, x_stride * int64_t{sizeof(T)}, n, y);
  for (int64_t i = 0; i < n; ++i) y[i * y_stride] = x[i * x_stride];
}

template <typename T>
void write_rows(const Triangle& t, int64_t first_row, int64_t end_row) {
  const uint32_t last = t.y.ndim - 1;
  const int64_t cols = t.y.shape[last], y_stride = t.y.strides[last], x_stride = t.x.strides[last];
  for (int64_t row = first_row; row < end_row; ++row) {
    const int64_t edge = row % t.y.shape[last - 1] + t.diagonal + (t.is_lower ? 1 : 0);
    const int64_t inside = std::clamp<int64_t>(edge, 0, cols);
    const int64_t begin = t.is_lower ? 0 : inside, end = t.is_lower ? inside : cols;  // It is kept.
    T* const y = reinterpret_cast<T*>(t.y.address) + row_offset(t.y, row);
    zero_elements(y, y_stride, begin, t.is_streamed);
    if (!t.is_copied) {
      const T* const x = reinterpret_cast<const T*>(t.x.address) + row_offset(t.x, row);
      copy_elements_of_row(x + begin * x_stride, x_stride, y + begin * y_stride, y_stride,
                           end - begin, t.is_streamed);
    }
    zero_elements(y + end * y_stride, y_stride, cols - end, t.is_streamed);
  }
}

TriangleFunction* triangle_function(bp_dtype dtype) {
  return with_any(dtype, []<typename T>(T) -> TriangleFunction* {
    return write_rows<hwy::UnsignedFromSize<sizeof(T)>>;
  });
}

// Calls fn(j, index) for each of n indices that names a class.
template <typename Index, typename Fn>
HWY_INLINE void for_each_class(const std::byte* indices, int64_t stride, int64_t n, int64_t count,
                               const Fn& fn) {
  for (int64_t j = 0; j < n; ++j) {
    const int64_t index = *reinterpret_cast<const Index*>(indices + j * stride);
    if (index >= 0 && index < count) fn(j, index);
  }
}

// Writes n dense rows past the caches. The ones are set in a block of zeros, and taken back.
template <typename T, typename Index>
void stream_one_hot(T* y, const std::byte* indices, int64_t stride, int64_t n,
                    const Classes& classes) {
  alignas(64) T block[kOneHotBytes / int64_t{sizeof(T)}] = {};
  const int64_t count = classes.count, most = kOneHotBytes / int64_t{sizeof(T)} / count;
  for (int64_t i = 0, rows = 0; i < n; i += rows) {
    rows = std::min(most, n - i);
    const auto set = [&](T value) {
      for_each_class<Index>(indices + i * stride, stride, rows, count,
                            [&](int64_t j, int64_t index) { block[j * count + index] = value; });
    };
    set(static_cast<T>(classes.one));
    stream_bytes(reinterpret_cast<const std::byte*>(block),
                 reinterpret_cast<std::byte*>(y + i * count), rows * count * int64_t{sizeof(T)});
    set(T{0});
  }
}

// data and strides are those of (y, indices), where each element of y is its row of classes.
template <typename T, typename Index>
void write_one_hot(std::byte* const* data, const int64_t* strides, int64_t n, const void* context) {
  const Classes& classes = *static_cast<const Classes*>(context);
  const int64_t row_bytes = classes.count * int64_t{sizeof(T)};
  const bool is_dense = classes.stride == 1 && strides[0] == row_bytes;
  if (is_dense && classes.is_streamed) {
    return stream_one_hot<T, Index>(reinterpret_cast<T*>(data[0]), data[1], strides[1], n, classes);
  }
  const int64_t most = is_dense && row_bytes > 0 ? kOneHotBytes / row_bytes : 0;
  for (int64_t i = 0, rows = 0; i < n; i += rows) {
    rows = std::min(std::max<int64_t>(most, 1), n - i);
    std::byte* const y = data[0] + i * strides[0];
    zero_elements(reinterpret_cast<T*>(y), classes.stride, rows * classes.count, false);
    for_each_class<Index>(data[1] + i * strides[1], strides[1], rows, classes.count,
                          [&](int64_t j, int64_t index) {
                            T* const row = reinterpret_cast<T*>(y + j * strides[0]);
                            row[index * classes.stride] = static_cast<T>(classes.one);
                          });
  }
}

RowFunction* one_hot_function(bp_dtype dtype, bool is_i64) {
  return with_any(dtype, [is_i64]<typename E>(E) -> RowFunction* {
    using T = hwy::UnsignedFromSize<sizeof(E)>;
    return is_i64 ? write_one_hot<T, int64_t> : write_one_hot<T, int32_t>;
  });
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace bp::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace bp::kernels {
namespace {

HWY_EXPORT(triangle_function);
HWY_EXPORT(one_hot_function);

// ---- tril and triu ------------------------------------------------------------------------------

// Makes the axis that is denser in y the last one. That turns a lower triangle into an upper one.
void turn_matrices(Triangle& t) {
  const uint32_t last = t.y.ndim - 1;
  if (std::abs(t.y.strides[last - 1]) >= std::abs(t.y.strides[last])) return;
  for (View* view : {&t.y, &t.x}) {
    std::swap(view->shape[last - 1], view->shape[last]);
    std::swap(view->strides[last - 1], view->strides[last]);
  }
  t.is_lower = !t.is_lower;
  t.diagonal = -t.diagonal;
}

void write_triangle(Triangle t, int64_t size_bytes, TriangleFunction* write, int threads) {
  const uint32_t last = t.y.ndim - 1;
  const int64_t count = element_count(t.y), cols = t.y.shape[last];
  if (count == 0) return;
  // Elements of x that lie across its rows are moved tile by tile before.
  const bool is_across = std::abs(t.x.strides[last - 1]) < std::abs(t.x.strides[last]);
  if (!t.is_copied && is_across) {
    copy_elements(t.x, t.y, size_bytes, threads);
    t.is_copied = true;
  }
  constexpr int64_t kStreamRowBytes = 1024;  // Too many lines of shorter rows are written in parts.
  t.is_streamed = !t.is_copied && 2 * count * size_bytes >= kStreamBytes &&
                  cols * size_bytes >= kStreamRowBytes;
  parallel_for(threads, count / cols, std::max<int64_t>(1, kGrain / cols),
               [&](int64_t begin, int64_t end) {
                 write(t, begin, end);
                 hwy::FlushStream();  // Every thread sees streamed data after this.
               });
}

template <typename Args, bool kIsLower>
bp_status triangle_launch(const Args& args, Launch& launch) {
  Triangle t{view_of(*args.y), view_of(*args.x), kIsLower};
  const int64_t rows = t.y.shape[t.y.ndim - 2], cols = t.y.shape[t.y.ndim - 1];
  t.diagonal = std::clamp<int64_t>(args.diagonal, -rows, cols);
  t.is_copied = t.y.address == t.x.address;
  turn_matrices(t);
  TriangleFunction* const write = HWY_DYNAMIC_DISPATCH(triangle_function)(args.y->dtype);
  return launch.submit(
      [t, write, size_bytes = dtype_size_bytes(args.y->dtype), threads = launch.thread_count()] {
        write_triangle(t, size_bytes, write, threads);
      });
}

// ---- one_hot ------------------------------------------------------------------------------------

bp_status one_hot_launch(const bp_one_hot_args& args, Launch& launch) {
  const bp_tensor &y = *args.y, &indices = *args.indices;
  const int64_t size_bytes = dtype_size_bytes(y.dtype);
  const bool is_streamed = element_count(y) * size_bytes >= kStreamBytes &&
                           args.num_classes * size_bytes <= kOneHotBytes;
  const Classes classes{args.num_classes, y.strides[indices.ndim],
                        convert_scalar({BP_I64, 0, 1, 0}, y.dtype), is_streamed};
  const LoopOperand operands[] = {
      {data<std::byte>(y), y.strides, size_bytes},
      {data<std::byte>(indices), indices.strides, dtype_size_bytes(indices.dtype)}};
  const Loop loop = make_loop(indices.ndim, indices.shape, operands);
  RowFunction* const rows =
      HWY_DYNAMIC_DISPATCH(one_hot_function)(y.dtype, indices.dtype == BP_I64);
  const int64_t grain = std::max<int64_t>(1, kGrain / std::max<int64_t>(1, classes.count));
  return launch.submit([loop, rows, classes, grain, threads = launch.thread_count()] {
    run_loop(loop, rows, threads, grain, &classes);
  });
}

constexpr auto kOneHotDtypes = pairs_of(kIndexDtypes, kAnyDtypes);

}  // namespace

extern constinit const bp_kernel kTril =
    make_kernel<bp_tril_args, triangle_launch<bp_tril_args, true>>(
        kernel_row("tril", BP_OP_TRIL, kAnyDtypes, BP_KERNEL_IN_PLACE));
extern constinit const bp_kernel kTriu =
    make_kernel<bp_triu_args, triangle_launch<bp_triu_args, false>>(
        kernel_row("triu", BP_OP_TRIU, kAnyDtypes, BP_KERNEL_IN_PLACE));
extern constinit const bp_kernel kOneHot = make_kernel<bp_one_hot_args, one_hot_launch>(
    kernel_row("one_hot", BP_OP_ONE_HOT, {kOneHotDtypes, 2}));

}  // namespace bp::kernels
#endif  // HWY_ONCE
