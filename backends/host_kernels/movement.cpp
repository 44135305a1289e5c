// fill, copy and arange, for tensors of every layout.
//
// copy converts between all dtypes of the device; a copy without conversion is in copy.cpp. The
// 16-bit floats are converted through f32. A value with too many bits for f32 is rounded to odd:
// its last bit says that bits were dropped, so that only the second rounding changes the result.

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backends/host_kernels/movement.cpp"
#include "hwy/foreach_target.h"
// The headers below must come after foreach_target.h.
#include <bit>
#include <cmath>
#include <type_traits>

#include "backends/host_kernels/copy.hpp"
#include "backends/host_kernels/rows-inl.hpp"
#include "backends/host_kernels/scalar.hpp"
#include "backends/host_kernels/strided.hpp"
#include "hwy/highway.h"

#ifndef BACKPLANE_CPU_MOVEMENT_BOOL
#define BACKPLANE_CPU_MOVEMENT_BOOL
namespace bp::kernels {
namespace {

// An element of bool. It is a type of its own, so that conversions to bool can differ from those to
// u8.
struct Bool {
  uint8_t value;
};

}  // namespace
}  // namespace bp::kernels
#endif

HWY_BEFORE_NAMESPACE();
namespace bp::kernels {
namespace HWY_NAMESPACE {
namespace {

// Converts to an integer. Integers wrap, and a float drops its fraction. A float that does not fit
// in 64 bits gives any value.
template <typename To, typename From>
HWY_INLINE To convert(From x) {
  if constexpr (std::is_same_v<To, From>) {
    return x;
  } else if constexpr (std::is_same_v<To, Bool>) {
    return Bool{x != From{0}};
  } else if constexpr (std::is_floating_point_v<From> && sizeof(To) < 4) {
    return static_cast<To>(static_cast<int32_t>(x));
  } else {
    return static_cast<To>(x);
  }
}

// Returns x if it is an f32, else the f32 next to x whose last bit is set. The order of the
// comparisons leaves NaN as it is.
HWY_INLINE float round_to_odd_f32(double x) {
  const auto nearest = static_cast<float>(x);
  const double back = nearest;
  const auto bits = std::bit_cast<uint32_t>(nearest);
  const bool is_inexact = back < x || back > x;
  const bool is_low = std::abs(back) < std::abs(x);
  const uint32_t step = is_low ? 1u : ~0u;
  return std::bit_cast<float>(bits + (is_inexact && (bits & 1) == 0 ? step : 0u));
}

template <typename From>
HWY_INLINE float to_f32_for_narrowing(From x) {
  if constexpr (sizeof(From) <= 2) {
    return x;
  } else {
    return round_to_odd_f32(round_to_odd(x));
  }
}

// Widens 16-bit floats, and prefetches those one page further on.
template <typename From>
HWY_INLINE void widen_elements(int64_t n, float* HWY_RESTRICT y, const From* x) {
  const ComputeTag<From> d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  int64_t i = 0;
  for (; i + lanes <= n; i += lanes) {
    prefetch(x + i, kAheadBytes / int64_t{sizeof(From)});
    store_lanes(load_lanes(d, x + i), d, y + i);
  }
  for (; i < n; ++i) y[i] = widen(x[i]);
}

template <typename To, typename From>
struct Cast {
  static void run(int64_t n, To* HWY_RESTRICT y, const From* from) {
    if constexpr (kIsNarrow<From> && std::is_same_v<To, float>) return widen_elements(n, y, from);
    BlockBuffer<Compute<From>> wide;
    const Compute<From>* const HWY_RESTRICT x = widen_block(from, n, wide);
    if constexpr (kIsNarrow<To> && std::is_same_v<Compute<From>, float>) {
      narrow_block(n, y, x);
    } else if constexpr (kIsNarrow<To>) {
      BlockBuffer<float> rounded;
      for (int64_t i = 0; i < n; ++i) rounded.elements[i] = to_f32_for_narrowing(x[i]);
      narrow_block(n, y, rounded.elements);
    } else {
      for (int64_t i = 0; i < n; ++i) y[i] = convert<To>(x[i]);
    }
  }
};

template <typename To, typename From>
constexpr RowFunction* cast_row() {
  return Row<Cast<To, From>, To, From>::run;
}

template <typename From>
RowFunction* cast_row_from(bp_dtype to) {
  if (to == BP_BOOL) return cast_row<Bool, From>();
  return with_any(to, []<typename To>(To) { return cast_row<To, From>(); });
}

// Returns the function that converts from one dtype to another. Both are in kAnyDtypes.
RowFunction* row_of_cast(bp_dtype to, bp_dtype from) {
  return with_any(from, [to]<typename From>(From) { return cast_row_from<From>(to); });
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace bp::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace bp::kernels {
namespace {

HWY_EXPORT(row_of_cast);

bp_status copy_launch(const bp_copy_args& args, Launch& launch) {
  const Loop loop = make_loop({args.y, args.x});
  const int threads = launch.thread_count();
  if (args.y->dtype == args.x->dtype) {
    return launch.submit([loop, size_bytes = dtype_size_bytes(args.y->dtype), threads] {
      run_copy(loop, size_bytes, threads);
    });
  }
  RowFunction* const row = HWY_DYNAMIC_DISPATCH(row_of_cast)(args.y->dtype, args.x->dtype);
  return submit_rows(launch, loop, row, kGrain);
}

// Launches a fill, which is a copy of one element with strides of 0.
bp_status fill_launch(const bp_fill_args& args, Launch& launch) {
  const bp_dtype dtype = args.y->dtype;
  const ScalarArgument value(args.value, args.value_scalar, dtype);
  Loop loop = make_loop({args.y, nullptr});
  loop.data[1] = const_cast<std::byte*>(value.address());
  loop.scalar = value.bits();
  return launch.submit([loop, size_bytes = dtype_size_bytes(dtype),
                        threads = launch.thread_count()] { run_copy(loop, size_bytes, threads); });
}

// Computes in W, as the op specifies, and rounds once. Integers wrap.
template <typename T, typename W>
void arange(T* y, int64_t stride, int64_t count, W start, W step) {
  for (int64_t i = 0; i < count; ++i) {
    const W value = start + static_cast<W>(i) * step;
    if constexpr (std::is_floating_point_v<W>) {
      y[i * stride] = narrow<T>(value);
    } else {
      y[i * stride] = static_cast<T>(value);
    }
  }
}

bp_status arange_launch(const bp_arange_args& args, Launch& launch) {
  const bp_dtype dtype = args.y->dtype;
  const ScalarArgument start(args.start, args.start_scalar, dtype);
  const ScalarArgument step(args.step, args.step_scalar, dtype);
  const int64_t count = args.y->shape[0], stride = args.y->strides[0];
  const auto submit = [&]<typename T, typename W>(T, W) {
    return launch.submit([=, y = data<T>(*args.y)] {
      arange(y, stride, count, static_cast<W>(widen(start.get<T>())),
             static_cast<W>(widen(step.get<T>())));
    });
  };
  return with_number(dtype, [&]<typename T>(T) {
    using Wide = std::conditional_t<std::is_integral_v<T>, uint64_t, double>;
    return submit(T{}, Wide{});
  });
}

// All pairs of dtypes.
constexpr auto kPairs = pairs_of(kAnyDtypes, kAnyDtypes);

}  // namespace

void convert_elements(const View& from, bp_dtype from_dtype, const View& to, bp_dtype to_dtype,
                      int thread_count) {
  if (from_dtype == to_dtype) {
    return copy_elements(from, to, dtype_size_bytes(to_dtype), thread_count);
  }
  const LoopOperand operands[] = {{to.address, to.strides, dtype_size_bytes(to_dtype)},
                                  {from.address, from.strides, dtype_size_bytes(from_dtype)}};
  const RowOptions options;  // Converted data is not streamed, since it is read soon.
  run_loop(make_loop(to.ndim, to.shape, operands),
           HWY_DYNAMIC_DISPATCH(row_of_cast)(to_dtype, from_dtype), thread_count, kGrain, &options);
}

extern constinit const bp_kernel kFill = make_kernel<bp_fill_args, fill_launch>(
    kernel_row("fill", BP_OP_FILL, kAnyDtypes, BP_KERNEL_TAKES_SCALAR));

extern constinit const bp_kernel kCopy =
    make_kernel<bp_copy_args, copy_launch>(kernel_row("copy", BP_OP_COPY, {kPairs, 2}));

extern constinit const bp_kernel kArange = make_kernel<bp_arange_args, arange_launch>(
    kernel_row("arange", BP_OP_ARANGE, kNumberDtypes, BP_KERNEL_TAKES_SCALAR));

}  // namespace bp::kernels
#endif  // HWY_ONCE
