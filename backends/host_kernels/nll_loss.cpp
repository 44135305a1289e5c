// nll_loss, which picks one element of each row. Rows are taken in blocks of kBlockRows. The sums
// of blocks, in f64, lie in the workspace until they are added in order, so equal input gives equal
// bits for any number of threads.
#include <algorithm>
#include <string>

#include "backends/host_kernels/dtypes.hpp"
#include "backends/host_kernels/kernels.hpp"
#include "backends/host_kernels/targets.hpp"

namespace bp::kernels {
namespace {

constexpr int64_t kBlockRows = 1024;

// What a block of rows brings.
struct RowBlock {
  double total = 0;
  int64_t kept = 0;        // How many rows count.
  int64_t wrong_row = -1;  // The first row whose target is not a class; -1 if there is none.
};

int64_t block_count(int64_t rows) { return (rows + kBlockRows - 1) / kBlockRows; }

struct NllLoss {
  View x, y;
  Targets targets;
  uint32_t reduction;
};

// Writes the losses of the rows [begin, end) if they are wanted, and adds them.
template <typename T>
RowBlock run_block(const NllLoss& loss, int64_t begin, int64_t end) {
  const bool is_none = loss.reduction == BP_NLL_LOSS_REDUCTION_NONE;
  RowBlock block;
  for (int64_t row = begin; row < end; ++row) {
    const int64_t target = loss.targets[row];
    double value = 0;
    if (target != loss.targets.ignore_index) {
      if (!loss.targets.bounds.contains(target)) {
        block.wrong_row = row;
        return block;
      }
      value = -static_cast<double>(widen(at<const T>(loss.x, row)[target * loss.x.strides[1]]));
      ++block.kept;
    }
    if (is_none) {
      *at<T>(loss.y, row) = narrow<T>(value);
    } else {
      block.total += value;
    }
  }
  return block;
}

template <typename T>
void run_loss(const NllLoss& loss, RowBlock* blocks, int thread_count) {
  const int64_t rows = loss.x.shape[0];
  parallel_for(thread_count, block_count(rows), 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      blocks[i] = run_block<T>(loss, i * kBlockRows, std::min(rows, (i + 1) * kBlockRows));
    }
  });
  RowBlock all;
  for (int64_t i = 0; i < block_count(rows); ++i) {
    if (blocks[i].wrong_row >= 0) loss.targets.fail("nll_loss", blocks[i].wrong_row);
    all.total += blocks[i].total;
    all.kept += blocks[i].kept;
  }
  if (loss.reduction == BP_NLL_LOSS_REDUCTION_NONE) return;
  if (loss.reduction == BP_NLL_LOSS_REDUCTION_MEAN) all.total /= static_cast<double>(all.kept);
  *reinterpret_cast<T*>(loss.y.address) = narrow<T>(all.total);
}

bp_reason nll_loss_supports(const bp_nll_loss_args& args) {
  return unknown_reduction(args.reduction);
}

uint64_t nll_loss_workspace(const bp_nll_loss_args& args, const Env&) {
  return static_cast<uint64_t>(block_count(args.x->shape[0])) * sizeof(RowBlock);
}

bp_status nll_loss_launch(const bp_nll_loss_args& args, Launch& launch) {
  if (const bp_reason reason = unknown_reduction(args.reduction)) {
    return launch.refuse(BP_UNSUPPORTED, refusal_text("nll_loss", reason));
  }
  const NllLoss loss{view_of(*args.x), view_of(*args.y), targets_of(args), args.reduction};
  return launch.submit([loss, blocks = launch.workspace<RowBlock>(), dtype = args.x->dtype,
                        thread_count = launch.thread_count()] {
    with_float(dtype, [&]<typename T>(T) { run_loss<T>(loss, blocks, thread_count); });
  });
}

constexpr auto kDtypes = with_indices(kFloatDtypes);

}  // namespace

extern constinit const bp_kernel kNllLoss =
    make_kernel<bp_nll_loss_args, nll_loss_launch, nll_loss_supports, nll_loss_workspace>(
        kernel_row_of_any_shape("nll_loss", BP_OP_NLL_LOSS, {kDtypes, 2}));

}  // namespace bp::kernels
