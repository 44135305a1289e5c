// fill, copy and arange, for tensors of every layout.
//
// copy converts between all dtypes of the device. Rows of one dtype that are dense on both sides
// are moved as bytes. A copy that transposes goes through tiles (loop.hpp).

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backends/cpu/kernels/movement.cpp"
#include "hwy/foreach_target.h"
// After foreach_target.h.
#include <cstring>
#include <type_traits>

#include "backends/cpu/kernels/loop.hpp"
#include "backends/cpu/kernels/scalar.hpp"
#include "hwy/highway.h"

#ifndef BACKPLANE_CPU_MOVEMENT_BOOL
#define BACKPLANE_CPU_MOVEMENT_BOOL
namespace bp::kernels {
namespace {

// An element of bool, so that conversions to it can differ from those to u8.
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

// Integers wrap, and a float drops its fraction. One that fits in no 64 bits gives some value.
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

// data and strides are those of (y, x).
template <typename To, typename From>
void copy_row(std::byte* const* data, const int64_t* strides, int64_t n, const void*) {
  constexpr int64_t kDenseTo = sizeof(To), kDenseFrom = sizeof(From);
  To* const HWY_RESTRICT y = reinterpret_cast<To*>(data[0]);
  const From* const HWY_RESTRICT x = reinterpret_cast<const From*>(data[1]);
  if (strides[0] == kDenseTo && strides[1] == kDenseFrom) {
    if constexpr (std::is_same_v<To, From>) {
      std::memcpy(y, x, static_cast<size_t>(n) * sizeof(To));
    } else {
      for (int64_t i = 0; i < n; ++i) y[i] = convert<To>(x[i]);
    }
  } else if (strides[0] == kDenseTo && strides[1] == 0) {
    const To value = convert<To>(*x);
    for (int64_t i = 0; i < n; ++i) y[i] = value;
  } else {
    for (int64_t i = 0; i < n; ++i) {
      *reinterpret_cast<To*>(data[0] + i * strides[0]) =
          convert<To>(*reinterpret_cast<const From*>(data[1] + i * strides[1]));
    }
  }
}

template <typename From>
RowFunction* copy_row_from(bp_dtype to) {
  switch (to) {
    case BP_BOOL:
      return copy_row<Bool, From>;
    case BP_U8:
      return copy_row<uint8_t, From>;
    case BP_I8:
      return copy_row<int8_t, From>;
    case BP_I16:
      return copy_row<int16_t, From>;
    case BP_I32:
      return copy_row<int32_t, From>;
    case BP_I64:
      return copy_row<int64_t, From>;
    case BP_F32:
      return copy_row<float, From>;
    default:
      return copy_row<double, From>;
  }
}

// The function that copies from one dtype to another, which the claims limit to those below.
RowFunction* row_of_copy(bp_dtype to, bp_dtype from) {
  switch (to == from ? dtype_size_bytes(to) : 0) {
    case 1:
      return copy_row<uint8_t, uint8_t>;
    case 2:
      return copy_row<int16_t, int16_t>;
    case 4:
      return copy_row<int32_t, int32_t>;
    case 8:
      return copy_row<int64_t, int64_t>;
    default:
      break;
  }
  switch (from) {
    case BP_BOOL:
    case BP_U8:
      return copy_row_from<uint8_t>(to);
    case BP_I8:
      return copy_row_from<int8_t>(to);
    case BP_I16:
      return copy_row_from<int16_t>(to);
    case BP_I32:
      return copy_row_from<int32_t>(to);
    case BP_I64:
      return copy_row_from<int64_t>(to);
    case BP_F32:
      return copy_row_from<float>(to);
    default:
      return copy_row_from<double>(to);
  }
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace bp::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace bp::kernels {
namespace {

HWY_EXPORT(row_of_copy);

bp_status copy_launch(const bp_copy_args& args, Launch& launch) {
  RowFunction* const row = HWY_DYNAMIC_DISPATCH(row_of_copy)(args.y->dtype, args.x->dtype);
  return launch.submit([loop = make_loop({args.y, args.x}), row, threads = launch.thread_count()] {
    run_loop(loop, row, threads, kGrain);
  });
}

// A copy of one element that does not move.
bp_status fill_launch(const bp_fill_args& args, Launch& launch) {
  const bp_dtype dtype = args.y->dtype;
  const ScalarArgument value(args.value, args.value_scalar, dtype);
  Loop loop = make_loop({args.y, nullptr});
  loop.data[1] = const_cast<std::byte*>(value.address());
  loop.scalar = value.bits();
  RowFunction* const row = HWY_DYNAMIC_DISPATCH(row_of_copy)(dtype, dtype);
  return launch.submit(
      [loop, row, threads = launch.thread_count()] { run_loop(loop, row, threads, kGrain); });
}

// Computes in W, as the op says; integers wrap.
template <typename T, typename W>
void arange(T* y, int64_t stride, int64_t count, W start, W step) {
  for (int64_t i = 0; i < count; ++i) {
    y[i * stride] = static_cast<T>(start + static_cast<W>(i) * step);
  }
}

bp_status arange_launch(const bp_arange_args& args, Launch& launch) {
  const bp_dtype dtype = args.y->dtype;
  const ScalarArgument start(args.start, args.start_scalar, dtype);
  const ScalarArgument step(args.step, args.step_scalar, dtype);
  const int64_t count = args.y->shape[0], stride = args.y->strides[0];
  const auto submit = [&]<typename T, typename W>(T, W) {
    return launch.submit([=, y = data<T>(*args.y)] {
      arange(y, stride, count, static_cast<W>(start.get<T>()), static_cast<W>(step.get<T>()));
    });
  };
  switch (dtype) {
    case BP_F32:
      return submit(float{}, double{});
    case BP_F64:
      return submit(double{}, double{});
    case BP_I32:
      return submit(int32_t{}, uint64_t{});
    default:
      return submit(int64_t{}, uint64_t{});
  }
}

constexpr bp_dtype kAny[] = {BP_BOOL, BP_U8, BP_I8, BP_I16, BP_I32, BP_I64, BP_F32, BP_F64};
constexpr bp_dtype kArithmetic[] = {BP_F32, BP_F64, BP_I32, BP_I64};

// Every pair of dtypes.
constexpr auto kPairs = [] {
  std::array<bp_dtype, 2 * std::size(kAny) * std::size(kAny)> pairs{};
  size_t next = 0;
  for (const bp_dtype x : kAny) {
    for (const bp_dtype y : kAny) {
      pairs[next++] = x;
      pairs[next++] = y;
    }
  }
  return pairs;
}();

}  // namespace

constinit const bp_kernel kFill = make_kernel<bp_fill_args, fill_launch>({
    .name = "fill",
    .op = BP_OP_FILL,
    .flags = BP_KERNEL_DETERMINISTIC | BP_KERNEL_TAKES_SCALAR,
    .dtype_rows = kAny,
    .dtype_row_count = std::size(kAny),
    .dtype_count = 1,
    .layouts = BP_LAYOUT_ANY,
});

constinit const bp_kernel kCopy = make_kernel<bp_copy_args, copy_launch>({
    .name = "copy",
    .op = BP_OP_COPY,
    .flags = BP_KERNEL_DETERMINISTIC,
    .dtype_rows = kPairs.data(),
    .dtype_row_count = kPairs.size() / 2,
    .dtype_count = 2,
    .layouts = BP_LAYOUT_ANY,
});

constinit const bp_kernel kArange = make_kernel<bp_arange_args, arange_launch>({
    .name = "arange",
    .op = BP_OP_ARANGE,
    .flags = BP_KERNEL_DETERMINISTIC | BP_KERNEL_TAKES_SCALAR,
    .dtype_rows = kArithmetic,
    .dtype_row_count = std::size(kArithmetic),
    .dtype_count = 1,
    .layouts = BP_LAYOUT_ANY,
});

}  // namespace bp::kernels
#endif  // HWY_ONCE
