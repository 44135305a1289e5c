// cross_entropy and its gradient, row by row (softmax_rows.cpp). After its exponentials, a row has
// only a few numbers, which are f64 for every dtype. The losses lie in the workspace until they are
// summed in the order of the rows.
#include <algorithm>
#include <atomic>
#include <cmath>
#include <limits>

#include "backends/host_kernels/dtypes.hpp"
#include "backends/host_kernels/kernels.hpp"
#include "backends/host_kernels/softmax_rows.hpp"
#include "backends/host_kernels/strided.hpp"
#include "backends/host_kernels/targets.hpp"

namespace bp::kernels {
namespace {

constexpr int64_t kGrainElements = 4096;

int64_t grain_for(int64_t cols) {
  return std::max<int64_t>(1, kGrainElements / std::max<int64_t>(1, cols));
}

// Returns the copy of x that is needed if the elements of its rows are not neighbours.
DenseCopy copy_of_rows(const View& x, bp_dtype dtype) {
  return x.strides[1] == 1 || x.shape[1] == 1 ? DenseCopy() : DenseCopy(x, dtype, dtype);
}

// Gives `copy` its place and copies the rows there. Returns a view of the rows.
View fetch_rows(DenseCopy& copy, const View& x, std::byte* address, int thread_count) {
  if (!copy.is_needed) return x;
  copy.dense.address = address;
  copy.fetch(thread_count);
  return copy.dense;
}

struct Forward {
  View x, y, lse;
  Targets targets;
  bool has_lse;
  uint32_t reduction;
  double label_smoothing;

  uint64_t losses_size_bytes() const { return static_cast<uint64_t>(x.shape[0]) * sizeof(double); }
};

template <typename T>
double row_sum(const T* row, int64_t count) {
  double parts[8] = {};
  for (int64_t i = 0; i < count; ++i) parts[i % 8] += static_cast<double>(widen(row[i]));
  for (int step = 4; step > 0; step /= 2) {
    for (int i = 0; i < step; ++i) parts[i] += parts[i + step];
  }
  return parts[0];
}

template <typename T>
double row_loss(const Forward& f, const T* row, int64_t target, double lse) {
  const double picked = lse - static_cast<double>(widen(row[target]));
  if (f.label_smoothing == 0) return picked;
  const double mean = row_sum(row, f.x.shape[1]) / static_cast<double>(f.x.shape[1]);
  return (1 - f.label_smoothing) * picked + f.label_smoothing * (lse - mean);
}

template <typename T>
void run_forward(const Forward& f, double* losses, int thread_count) {
  const int64_t rows = f.x.shape[0], cols = f.x.shape[1];
  const int64_t kept = f.targets.check("cross_entropy");
  parallel_for(thread_count, rows, grain_for(cols), [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const T* const row = at<const T>(f.x, i);
      const int64_t target = f.targets[i];
      const bool is_ignored = target == f.targets.ignore_index;
      const double lse = is_ignored && !f.has_lse ? 0.0 : log_sum_exp(row, cols);
      if (f.has_lse) *at<Compute<T>>(f.lse, i) = static_cast<Compute<T>>(lse);
      losses[i] = is_ignored ? 0.0 : row_loss(f, row, target, lse);
      if (f.reduction == BP_CROSS_ENTROPY_REDUCTION_NONE) {
        *at<T>(f.y, i) = narrow<T>(losses[i]);
      }
    }
  });
  if (f.reduction == BP_CROSS_ENTROPY_REDUCTION_NONE) return;
  double total = 0.0;
  for (int64_t i = 0; i < rows; ++i) total += losses[i];
  if (f.reduction == BP_CROSS_ENTROPY_REDUCTION_MEAN) total /= static_cast<double>(kept);
  *reinterpret_cast<T*>(f.y.address) = narrow<T>(total);
}

bp_reason forward_supports(const bp_cross_entropy_args& args) {
  return unknown_reduction(args.reduction);
}

uint64_t forward_workspace(const bp_cross_entropy_args& args, const Env&) {
  uint64_t size_bytes = 0;
  reserve_bytes(static_cast<uint64_t>(args.x->shape[0]) * sizeof(double), size_bytes);
  reserve_bytes(copy_of_rows(view_of(*args.x), args.x->dtype).size_bytes(), size_bytes);
  return size_bytes;
}

bp_status forward_launch(const bp_cross_entropy_args& args, Launch& launch) {
  if (const bp_reason reason = unknown_reduction(args.reduction)) {
    return launch.refuse(BP_UNSUPPORTED, refusal_text("cross_entropy", reason));
  }
  Forward f = {
      view_of(*args.x),    view_of(*args.y),    args.lse == nullptr ? View() : view_of(*args.lse),
      targets_of(args),    args.lse != nullptr, args.reduction,
      args.label_smoothing};
  uint64_t end = 0;
  reserve_bytes(f.losses_size_bytes(), end);
  return launch.submit([f, end, copy = copy_of_rows(f.x, args.x->dtype), dtype = args.x->dtype,
                        workspace = launch.workspace(),
                        thread_count = launch.thread_count()]() mutable {
    f.x = fetch_rows(copy, f.x, workspace + end, thread_count);
    double* const losses = reinterpret_cast<double*>(workspace);
    with_float(dtype, [&]<typename T>(T) { run_forward<T>(f, losses, thread_count); });
  });
}

struct Backward {
  View grad_y, x, lse, grad_x;
  Targets targets;
  uint32_t reduction;
  double label_smoothing;
};

// Computes the gradient. The elements of a row of grad_x are neighbours. grad_x may be x.
template <typename T>
void run_backward(const Backward& b, int thread_count) {
  using Sum = Compute<T>;
  const int64_t rows = b.x.shape[0], cols = b.x.shape[1];
  const int64_t kept = b.targets.check("cross_entropy_backward");
  const bool is_mean = b.reduction == BP_CROSS_ENTROPY_BACKWARD_REDUCTION_MEAN;
  const double divisor = is_mean ? static_cast<double>(kept) : 1.0;
  const bool has_rows = b.reduction == BP_CROSS_ENTROPY_BACKWARD_REDUCTION_NONE;
  const double base = b.label_smoothing / static_cast<double>(cols);
  parallel_for(thread_count, rows, grain_for(cols), [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      T* const to = at<T>(b.grad_x, i);
      const int64_t target = b.targets[i];
      if (target == b.targets.ignore_index) {
        std::fill_n(to, cols, T{});
        continue;
      }
      const T* const row = at<const T>(b.x, i);
      const Sum lse = *at<const Sum>(b.lse, i);
      const T grad =
          has_rows ? *at<const T>(b.grad_y, i) : *reinterpret_cast<const T*>(b.grad_y.address);
      const Sum scale = static_cast<Sum>(static_cast<double>(widen(grad)) / divisor);
      // The element of the target subtracts more. It subtracts from the exponential, which keeps
      // more digits than the difference.
      T picked = row[target];
      const Sum picked_base = static_cast<Sum>(1 - b.label_smoothing + base);
      scaled_exp(&picked, &picked, 1, lse, picked_base, scale);
      scaled_exp(row, to, cols, lse, static_cast<Sum>(base), scale);
      to[target] = picked;
    }
  });
}

bp_reason backward_supports(const bp_cross_entropy_backward_args& args) {
  return unknown_reduction(args.reduction);
}

// The copies of the gradient. One copy serves x and also grad_x, if the rows of grad_x cannot be
// written in place.
struct BackwardCopies {
  DenseCopy x, grad_x;
};

BackwardCopies backward_copies(const bp_cross_entropy_backward_args& args) {
  return {copy_of_rows(view_of(*args.x), args.x->dtype),
          copy_of_rows(view_of(*args.grad_x), args.x->dtype)};
}

uint64_t place_copies(BackwardCopies& copies) {
  uint64_t size_bytes = 0;
  for (DenseCopy* copy : {&copies.x, &copies.grad_x}) {
    copy->offset = reserve_bytes(copy->size_bytes(), size_bytes);
  }
  return size_bytes;
}

uint64_t backward_workspace(const bp_cross_entropy_backward_args& args, const Env&) {
  BackwardCopies copies = backward_copies(args);
  return place_copies(copies);
}

bp_status backward_launch(const bp_cross_entropy_backward_args& args, Launch& launch) {
  if (const bp_reason reason = unknown_reduction(args.reduction)) {
    return launch.refuse(BP_UNSUPPORTED, refusal_text("cross_entropy_backward", reason));
  }
  Backward b = {view_of(*args.grad_y), view_of(*args.x), view_of(*args.lse),  view_of(*args.grad_x),
                targets_of(args),      args.reduction,   args.label_smoothing};
  BackwardCopies copies = backward_copies(args);
  place_copies(copies);
  return launch.submit([b, copies, dtype = args.x->dtype, workspace = launch.workspace(),
                        thread_count = launch.thread_count()]() mutable {
    b.x = fetch_rows(copies.x, b.x, workspace + copies.x.offset, thread_count);
    if (copies.grad_x.is_needed) {
      copies.grad_x.dense.address = workspace + copies.grad_x.offset;
      b.grad_x = copies.grad_x.dense;
    }
    with_float(dtype, [&]<typename T>(T) { run_backward<T>(b, thread_count); });
    if (copies.grad_x.is_needed) copies.grad_x.store(thread_count);
  });
}

constexpr auto kDtypes = with_indices(kFloatDtypes);

}  // namespace

extern constinit const bp_kernel kCrossEntropy =
    make_kernel<bp_cross_entropy_args, forward_launch, forward_supports, forward_workspace>(
        kernel_row_of_any_shape("cross_entropy", BP_OP_CROSS_ENTROPY, {kDtypes, 2}));

extern constinit const bp_kernel kCrossEntropyBackward =
    make_kernel<bp_cross_entropy_backward_args, backward_launch, backward_supports,
                backward_workspace>(kernel_row_of_any_shape(
        "cross_entropy_backward", BP_OP_CROSS_ENTROPY_BACKWARD, {kDtypes, 2}, BP_KERNEL_IN_PLACE));

}  // namespace bp::kernels
