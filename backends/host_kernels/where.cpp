// where and masked_fill, for tensors of every layout. Elements keep their bits, so the method
// depends only on their width.

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backends/host_kernels/where.cpp"
#include "hwy/foreach_target.h"
// The headers below must come after foreach_target.h.
#include "backends/host_kernels/rows-inl.hpp"
#include "backends/host_kernels/scalar.hpp"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace bp::kernels {
namespace HWY_NAMESPACE {
namespace {

// Selects elements. y may be a or b. The loop reads both a and b, so that the compiler can blend
// vectors.
template <typename T>
struct Select {
  static void run(int64_t n, T* y, const uint8_t* condition, const T* a, const T* b) {
    for (int64_t i = 0; i < n; ++i) {
      const T left = a[i], right = b[i];
      y[i] = condition[i] != 0 ? left : right;
    }
  }
};

template <typename T>
constexpr RowFunction* select_row() {
  return Row<Select<T>, T, uint8_t, T, T>::run;
}

// Returns the function for a dtype. Elements are moved as unsigned integers of their width, so that
// they keep their bits.
RowFunction* where_row(bp_dtype dtype) {
  return with_any(dtype,
                  []<typename T>(T) { return select_row<hwy::UnsignedFromSize<sizeof(T)>>(); });
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace bp::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace bp::kernels {
namespace {

HWY_EXPORT(where_row);

bp_status where_launch(const bp_where_args& args, Launch& launch) {
  const bp_dtype dtype = args.a->dtype;
  const uint64_t scalar = args.b == nullptr ? convert_moved_operand(args.b_scalar, dtype) : 0;
  const Loop loop = make_loop({args.y, args.condition, args.a, args.b}, scalar);
  RowFunction* const row = HWY_DYNAMIC_DISPATCH(where_row)(dtype);
  return submit_rows(launch, loop, row, kGrain);
}

// masked_fill selects the value of the call or an element of x.
bp_status masked_fill_launch(const bp_masked_fill_args& args, Launch& launch) {
  const bp_tensor& y = *args.y;
  const ScalarArgument value(args.value, args.value_scalar, y.dtype);
  constexpr int64_t kNoStrides[BP_MAX_RANK] = {};
  const int64_t size_bytes = dtype_size_bytes(y.dtype);
  const LoopOperand operands[] = {
      {data<std::byte>(y), y.strides, size_bytes},
      {data<std::byte>(*args.mask), args.mask->strides, 1},
      {const_cast<std::byte*>(value.address()), kNoStrides, size_bytes},
      {data<std::byte>(*args.x), args.x->strides, size_bytes},
  };
  const Loop loop = make_loop(y.ndim, y.shape, operands, value.bits());
  RowFunction* const row = HWY_DYNAMIC_DISPATCH(where_row)(y.dtype);
  return submit_rows(launch, loop, row, kGrain);
}

}  // namespace

extern constinit const bp_kernel kWhere = make_kernel<bp_where_args, where_launch>(
    kernel_row("where", BP_OP_WHERE, kAnyDtypes, BP_KERNEL_IN_PLACE | BP_KERNEL_TAKES_SCALAR));

extern constinit const bp_kernel kMaskedFill =
    make_kernel<bp_masked_fill_args, masked_fill_launch>(kernel_row(
        "masked_fill", BP_OP_MASKED_FILL, kAnyDtypes, BP_KERNEL_IN_PLACE | BP_KERNEL_TAKES_SCALAR));

}  // namespace bp::kernels
#endif  // HWY_ONCE
