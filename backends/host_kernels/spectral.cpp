// fft, ifft, rfft and irfft (fourier.hpp).
#include <cmath>
#include <type_traits>

#include "backends/host_kernels/dtypes.hpp"
#include "backends/host_kernels/fourier.hpp"

namespace bp::kernels {
namespace {

template <typename Args>
constexpr bool kIsInverse =
    std::is_same_v<Args, bp_ifft_args> || std::is_same_v<Args, bp_irfft_args>;
template <typename Args>
constexpr bool kHasRealX = std::is_same_v<Args, bp_rfft_args>;
template <typename Args>
constexpr bool kHasRealY = std::is_same_v<Args, bp_irfft_args>;

template <typename Args>
int64_t length_of(const Args& args) {
  if constexpr (kHasRealY<Args>) {
    return args.length;
  } else {
    return args.x->shape[args.axis];
  }
}

// All four ops have the same values of normalization.
double scale_of(uint32_t normalization, bool is_inverse, int64_t length) {
  if (normalization == BP_FFT_NORMALIZATION_ORTHO)
    return 1 / std::sqrt(static_cast<double>(length));
  const bool is_divided = (normalization == BP_FFT_NORMALIZATION_FORWARD) != is_inverse;
  return is_divided ? 1 / static_cast<double>(length) : 1;
}

// Returns the tensor without the axis of the parts, if it has one.
bp_tensor numbers_of(const bp_tensor& tensor, bool is_real) {
  bp_tensor numbers = tensor;
  if (!is_real) --numbers.ndim;
  return numbers;
}

template <typename Args>
FourierPlan plan_of(const Args& args) {
  const LineSpace space(numbers_of(*args.x, kHasRealX<Args>), static_cast<size_t>(args.axis));
  FourierCall call{.length = length_of(args),
                   .is_inverse = kIsInverse<Args>,
                   .has_real_x = kHasRealX<Args>,
                   .has_real_y = kHasRealY<Args>,
                   .size_bytes = args.x->dtype == BP_F64 ? 8 : 4,
                   .line_count = space.count};
  call.scale = scale_of(args.normalization, call.is_inverse, call.length);
  return FourierPlan(call);
}

// The even and the odd elements of a real line may be the parts of numbers.
FourierSide side_of(const bp_tensor& tensor, size_t axis, bool is_real, bool is_halved) {
  const bp_tensor numbers = numbers_of(tensor, is_real);
  FourierSide side{.lines = LineOperand(&numbers, axis), .has_parts = !is_real || is_halved};
  if (!is_real) {
    side.part_stride = tensor.strides[tensor.ndim - 1] * dtype_size_bytes(tensor.dtype);
  } else if (is_halved) {
    side.part_stride = side.lines.stride;
    side.lines.stride *= 2;
  }
  return side;
}

// Lines are longer nowhere, and no size overflows.
constexpr int64_t kMostPoints = int64_t{1} << 40;

template <typename Args>
bp_reason fourier_supports(const Args& args) {
  return length_of(args) <= kMostPoints ? nullptr : "a line has more than 2^40 elements";
}

template <typename Args>
uint64_t fourier_workspace(const Args& args, const Env& env) {
  const FourierPlan plan = plan_of(args);
  return plan.table_bytes() + static_cast<uint64_t>(env.thread_count()) * plan.thread_bytes();
}

template <typename Args>
bp_status fourier_launch(const Args& args, Launch& launch) {
  const auto axis = static_cast<size_t>(args.axis);
  FourierWork work{.plan = plan_of(args),
                   .space = LineSpace(numbers_of(*args.x, kHasRealX<Args>), axis),
                   .dtype = args.x->dtype,
                   .threads = launch.thread_count(),
                   .memory = launch.workspace()};
  work.x = side_of(*args.x, axis, kHasRealX<Args>, work.plan.is_halved);
  work.y = side_of(*args.y, axis, kHasRealY<Args>, work.plan.is_halved);
  return launch.submit([work] {
    if (work.space.count > 0) run_fourier(work);
  });
}

template <typename Args>
constexpr bp_kernel fourier_kernel(const char* name, uint32_t op) {
  return make_kernel<Args, fourier_launch<Args>, fourier_supports<Args>, fourier_workspace<Args>>(
      kernel_row(name, op, kFloatDtypes));
}

}  // namespace

extern constinit const bp_kernel kFft = fourier_kernel<bp_fft_args>("fft", BP_OP_FFT);
extern constinit const bp_kernel kIfft = fourier_kernel<bp_ifft_args>("ifft", BP_OP_IFFT);
extern constinit const bp_kernel kRfft = fourier_kernel<bp_rfft_args>("rfft", BP_OP_RFFT);
extern constinit const bp_kernel kIrfft = fourier_kernel<bp_irfft_args>("irfft", BP_OP_IRFFT);

}  // namespace bp::kernels
