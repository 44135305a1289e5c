// rope rotates pairs of elements of the last axis by angles: (a, b) becomes (a * cos - b * sin, b *
// cos + a * sin). rope_backward rotates by the opposite angles. The loop runs over all other axes,
// and its row is a number of heads. If a head is dense, vectors work on its pairs in place; else
// the pairs are gathered into lines first.
#include <cstring>

#include "backends/host_kernels/dtypes.hpp"
#include "backends/host_kernels/loop.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backends/host_kernels/rope.cpp"
// clang-format off: this header compiles the file once for each target, and comes first.
#include <hwy/foreach_target.h>
// clang-format on
#include <hwy/highway.h>

#include "backends/host_kernels/lines-inl.hpp"
#include "backends/host_kernels/sums-inl.hpp"

#ifndef BACKPLANE_KERNELS_ROPE_HEAD
#define BACKPLANE_KERNELS_ROPE_HEAD
namespace bp::kernels {

// The layout of the elements of one head. Strides count elements.
struct RopeHead {
  int64_t width, pairs;
  int64_t y_stride, x_stride, cos_stride, sin_stride;
  bool is_interleaved, is_backward;

  // step() is the distance from pair to pair; the next function gives the distance between the
  // elements of a pair.
  int64_t step() const { return is_interleaved ? 2 : 1; }
  int64_t distance() const { return is_interleaved ? 1 : pairs; }
  bool is_dense() const {
    return y_stride == 1 && x_stride == 1 && cos_stride == 1 && sin_stride == 1;
  }
};

}  // namespace bp::kernels
#endif

HWY_BEFORE_NAMESPACE();
namespace bp::kernels::HWY_NAMESPACE {
namespace {

constexpr int64_t kLine = kGatherElements;

// Rotates n pairs. n is a multiple of the number of lanes.
template <typename Sum>
void turn(Sum* HWY_RESTRICT a, Sum* HWY_RESTRICT b, const Sum* HWY_RESTRICT cos,
          const Sum* HWY_RESTRICT sin) {
  const hn::CappedTag<Sum, kLine> d;
  for (int64_t i = 0; i < kLine; i += static_cast<int64_t>(hn::Lanes(d))) {
    const auto x = hn::Load(d, a + i), y = hn::Load(d, b + i);
    const auto c = hn::Load(d, cos + i), s = hn::Load(d, sin + i);
    hn::Store(hn::Sub(hn::Mul(x, c), hn::Mul(y, s)), d, a + i);
    hn::Store(hn::Add(hn::Mul(y, c), hn::Mul(x, s)), d, b + i);
  }
}

// Copies the elements that are not in a pair.
template <typename T>
void copy_rest(const RopeHead& h, const T* x, T* y) {
  const int64_t begin = 2 * h.pairs;
  if (x == y || begin == h.width) return;
  if (h.x_stride == 1 && h.y_stride == 1) {
    std::memcpy(y + begin, x + begin, static_cast<size_t>(h.width - begin) * sizeof(T));
    return;
  }
  for (int64_t i = begin; i < h.width; ++i) y[i * h.y_stride] = x[i * h.x_stride];
}

// Rotates the pair (a, b) by the angle, or back.
template <class V>
struct Turned {
  Turned(bool is_backward, V a, V b, V c, V s) {
    const V ac = hn::Mul(a, c), as = hn::Mul(a, s), bc = hn::Mul(b, c), bs = hn::Mul(b, s);
    first = is_backward ? hn::Add(ac, bs) : hn::Sub(ac, bs);
    second = is_backward ? hn::Sub(bc, as) : hn::Add(bc, as);
  }
  V first, second;
};

// Rotates pairs of a dense head, and returns how many it rotated.
template <bool kIsBackward, typename T>
HWY_INLINE int64_t turn_dense(const RopeHead& h, const T* x, const Compute<T>* cos,
                              const Compute<T>* sin, T* y) {
  const ComputeTag<T> d;
  using V = hn::Vec<decltype(d)>;
  if (!h.is_interleaved) {
    for_each_lanes<T>(h.pairs, [&](auto lanes) HWY_ATTR {
      const Turned<V> to(kIsBackward, lanes.load(x), lanes.load(x + h.pairs), lanes.load(cos),
                         lanes.load(sin));
      lanes.store(to.first, y);
      lanes.store(to.second, y + h.pairs);
    });
    return h.pairs;
  }
  int64_t i = 0;
  if constexpr (std::is_same_v<T, Compute<T>>) {
    const auto lanes = static_cast<int64_t>(hn::Lanes(d));
    for (; i + lanes <= h.pairs; i += lanes) {
      V a, b;
      hn::LoadInterleaved2(d, x + 2 * i, a, b);
      const Turned<V> to(kIsBackward, a, b, hn::LoadU(d, cos + i), hn::LoadU(d, sin + i));
      hn::StoreInterleaved2(to.first, to.second, d, y + 2 * i);
    }
  }
  return i;
}

// Rotates the pairs from `begin` on. y may be x, because a line is read before it is written.
template <typename T>
void turn_lines(const RopeHead& h, int64_t begin, const T* x, const Compute<T>* cos,
                const Compute<T>* sin, T* y) {
  using Sum = Compute<T>;
  HWY_ALIGN Sum a[kLine] = {}, b[kLine] = {}, c[kLine] = {}, s[kLine] = {};
  const int64_t x_step = h.step() * h.x_stride, y_step = h.step() * h.y_stride;
  for (int64_t i = begin; i < h.pairs; i += kLine) {
    const int64_t n = std::min(kLine, h.pairs - i);
    load_line(x + i * x_step, x_step, n, a);
    load_line(x + i * x_step + h.distance() * h.x_stride, x_step, n, b);
    load_line(cos + i * h.cos_stride, h.cos_stride, n, c);
    load_line(sin + i * h.sin_stride, h.sin_stride, n, s);
    if (h.is_backward) {
      turn(b, a, c, s);  // (b, a) gives (b * cos - a * sin, a * cos + b * sin).
    } else {
      turn(a, b, c, s);
    }
    store_line(a, n, y + i * y_step, y_step);
    store_line(b, n, y + i * y_step + h.distance() * h.y_stride, y_step);
  }
}

template <typename T>
void turn_head(const RopeHead& h, const T* x, const Compute<T>* cos, const Compute<T>* sin, T* y) {
  int64_t done = 0;
  if (h.is_dense()) {
    done =
        h.is_backward ? turn_dense<true>(h, x, cos, sin, y) : turn_dense<false>(h, x, cos, sin, y);
  }
  if (done < h.pairs) turn_lines(h, done, x, cos, sin, y);
  copy_rest(h, x, y);
}

// The row function (loop.hpp) for n heads. data is that of (y, x, cos, sin).
template <typename T>
void turn_heads(std::byte* const* data, const int64_t* strides, int64_t n, const void* context) {
  const RopeHead& head = *static_cast<const RopeHead*>(context);
  for (int64_t i = 0; i < n; ++i) {
    turn_head(head, reinterpret_cast<const T*>(data[1] + i * strides[1]),
              reinterpret_cast<const Compute<T>*>(data[2] + i * strides[2]),
              reinterpret_cast<const Compute<T>*>(data[3] + i * strides[3]),
              reinterpret_cast<T*>(data[0] + i * strides[0]));
  }
}

void run_rope(const Loop& loop, const RopeHead& head, bp_dtype dtype, int thread_count) {
  const int64_t grain = std::max<int64_t>(1, kGrain / std::max<int64_t>(1, head.width));
  RowFunction* const row =
      with_float(dtype, []<typename T>(T) -> RowFunction* { return turn_heads<T>; });
  run_loop(loop, row, thread_count, grain, &head);
}

}  // namespace
}  // namespace bp::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace bp::kernels {
namespace {

HWY_EXPORT(run_rope);

// Submits the op. The loop walks over the tensors without their last axis.
bp_status submit_rope(const bp_tensor& y, const bp_tensor& x, const bp_tensor& cos,
                      const bp_tensor& sin, bool is_interleaved, bool is_backward, Launch& launch) {
  const auto operand = [](const bp_tensor& t) {
    return LoopOperand{data<std::byte>(t), t.strides, dtype_size_bytes(t.dtype)};
  };
  const LoopOperand operands[] = {operand(y), operand(x), operand(cos), operand(sin)};
  const Loop loop = make_loop(x.ndim - 1, x.shape, operands);
  const uint32_t last = x.ndim - 1;
  const RopeHead head = {x.shape[last],     cos.shape[last],   y.strides[last], x.strides[last],
                         cos.strides[last], sin.strides[last], is_interleaved,  is_backward};
  return launch.submit([loop, head, dtype = x.dtype, thread_count = launch.thread_count()] {
    HWY_DYNAMIC_DISPATCH(run_rope)(loop, head, dtype, thread_count);
  });
}

bp_status rope_launch(const bp_rope_args& args, Launch& launch) {
  return submit_rope(*args.y, *args.x, *args.cos, *args.sin, args.is_interleaved != 0, false,
                     launch);
}

bp_status rope_backward_launch(const bp_rope_backward_args& args, Launch& launch) {
  return submit_rope(*args.grad_x, *args.grad_y, *args.cos, *args.sin, args.is_interleaved != 0,
                     true, launch);
}

}  // namespace

extern constinit const bp_kernel kRope = make_kernel<bp_rope_args, rope_launch>(
    kernel_row("rope", BP_OP_ROPE, kFloatDtypes, BP_KERNEL_IN_PLACE));

extern constinit const bp_kernel kRopeBackward =
    make_kernel<bp_rope_backward_args, rope_backward_launch>(
        kernel_row("rope_backward", BP_OP_ROPE_BACKWARD, kFloatDtypes, BP_KERNEL_IN_PLACE));

}  // namespace bp::kernels
#endif
