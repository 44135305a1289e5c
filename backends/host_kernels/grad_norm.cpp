// grad_norm over a list of tensors, for every layout.
//
// Each tensor is walked in blocks of kLoopBlock elements, whose squares are added in f64. The sums
// of blocks lie in the workspace until they are added in order, so equal input gives equal bits for
// any number of threads.

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backends/host_kernels/grad_norm.cpp"
#include "hwy/foreach_target.h"
// The headers below must come after foreach_target.h.
#include <cmath>
#include <vector>

#include "backends/host_kernels/dtypes.hpp"
#include "backends/host_kernels/loop_blocks.hpp"
#include "backends/host_kernels/wide_sums-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace bp::kernels {
namespace HWY_NAMESPACE {
namespace {

// Returns the sum of the squares of n dense elements. They are squared in f64, because the square
// of an f32 may overflow.
template <typename T>
double squares_of_row(const T* x, int64_t n) {
  const hn::ScalableTag<double> d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  auto s0 = hn::Zero(d), s1 = s0, s2 = s0, s3 = s0;
  const auto add_square = [&](auto sum, const T* from) HWY_ATTR {
    const auto wide = load_wide(d, from, Itself());
    return hn::MulAdd(wide, wide, sum);
  };
  int64_t i = 0;
  for (; i + 4 * lanes <= n; i += 4 * lanes) {
    s0 = add_square(s0, x + i);
    s1 = add_square(s1, x + i + lanes);
    s2 = add_square(s2, x + i + 2 * lanes);
    s3 = add_square(s3, x + i + 3 * lanes);
  }
  double sum = hn::GetLane(hn::SumOfLanes(d, hn::Add(hn::Add(s0, s1), hn::Add(s2, s3))));
  for (; i < n; ++i) {
    const auto wide = static_cast<double>(widen(x[i]));
    sum += wide * wide;
  }
  return sum;
}

template <typename T>
void squares_row(std::byte* const* data, const int64_t* strides, int64_t n, const void* context) {
  double& sum = *static_cast<const BlockSum*>(context)->sum;
  if (strides[0] == sizeof(T)) {
    sum += squares_of_row(reinterpret_cast<const T*>(data[0]), n);
    return;
  }
  for (int64_t i = 0; i < n; ++i) {
    const auto wide =
        static_cast<double>(widen(*reinterpret_cast<const T*>(data[0] + i * strides[0])));
    sum += wide * wide;
  }
}

RowFunction* find_squares_row(bp_dtype dtype) {
  return with_float(dtype, []<typename T>(T) -> RowFunction* { return squares_row<T>; });
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace bp::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace bp::kernels {
namespace {

HWY_EXPORT(find_squares_row);

struct NormPart {
  Loop loop;
  RowFunction* row;
};

bp_status norm_launch(const bp_grad_norm_args& args, Launch& launch) {
  std::vector<NormPart> parts;
  parts.reserve(args.xs_count);
  for (uint64_t i = 0; i < args.xs_count; ++i) {
    parts.push_back(
        {make_loop({args.xs[i]}), HWY_DYNAMIC_DISPATCH(find_squares_row)(args.xs[i]->dtype)});
  }
  return launch.submit([parts = std::move(parts), sums = launch.workspace<double>(),
                        y = data<std::byte>(*args.y), is_f64 = args.y->dtype == BP_F64,
                        threads = launch.thread_count()] {
    double total = 0;
    for (const NormPart& part : parts) {
      sum_blocks(part.loop, part.row, sums, threads, kGrain);
      for (int64_t i = 0; i < loop_block_count(part.loop.count); ++i) total += sums[i];
    }
    const double norm = std::sqrt(total);
    if (is_f64) {
      *reinterpret_cast<double*>(y) = norm;
    } else {
      *reinterpret_cast<float*>(y) = static_cast<float>(norm);
    }
  });
}

// The tensors take turns in the workspace.
uint64_t norm_workspace(const bp_grad_norm_args& args, const Env&) {
  int64_t most = 0;
  for (uint64_t i = 0; i < args.xs_count; ++i) {
    most = std::max(most, loop_block_count(element_count(*args.xs[i])));
  }
  return static_cast<uint64_t>(most) * sizeof(double);
}

constexpr bp_dtype kNormDtypes[] = {BP_F32, BP_F64};
constexpr auto kNormPairs = pairs_of(kFloatDtypes, kNormDtypes);

}  // namespace

extern constinit const bp_kernel kGradNorm =
    make_kernel<bp_grad_norm_args, norm_launch, nullptr, norm_workspace>(
        kernel_row("grad_norm", BP_OP_GRAD_NORM, {kNormPairs, 2}));

}  // namespace bp::kernels
#endif  // HWY_ONCE
