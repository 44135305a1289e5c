// grouped_matmul and its gradient for b. Groups are products of their own (gemm.hpp), whose rows
// are known when the work runs. If there are many groups, threads share them; else all threads work
// on each of them. With AMX, threads share the panels of all groups.
#include <algorithm>

#include "backends/host_kernels/gemm.hpp"
#include "backends/host_kernels/gemm_amx.hpp"
#include "backends/host_kernels/kernels.hpp"
#include "backends/host_kernels/product.hpp"
#include "backends/host_kernels/strided.hpp"

namespace bp::kernels {
namespace {

// The offsets of groups among rows.
struct GroupOffsets {
  View view;
  bool is_i64 = false;
  int64_t rows = 0;

  explicit GroupOffsets(const bp_tensor& tensor, int64_t row_count)
      : view(view_of(tensor)), is_i64(tensor.dtype == BP_I64), rows(row_count) {}

  int64_t groups() const { return view.shape[0] - 1; }
  // Returns the row where a group begins, or where the one before it ends.
  int64_t at(int64_t group) const {
    const int64_t offset = group * view.strides[0];
    const int64_t row = is_i64 ? reinterpret_cast<const int64_t*>(view.address)[offset]
                               : reinterpret_cast<const int32_t*>(view.address)[offset];
    return std::clamp<int64_t>(row, 0, rows);
  }
  int64_t count(int64_t group) const { return std::max<int64_t>(0, at(group + 1) - at(group)); }
};

// Returns what is known of the last two axes before a launch: there is no address.
Matrix layout_of(const bp_tensor& tensor) {
  const uint32_t row = tensor.ndim - 2;
  return {nullptr,
          tensor.dtype,
          tensor.shape[row],
          tensor.shape[row + 1],
          tensor.strides[row],
          tensor.strides[row + 1]};
}

Matrix matrix_of(const bp_tensor& tensor) {
  Matrix matrix = layout_of(tensor);
  matrix.data = data<std::byte>(tensor);
  return matrix;
}

// Returns matrix number `group` of a tensor of matrices, `stride` elements apart.
Matrix group_of(Matrix matrix, int64_t group, int64_t stride) {
  matrix.data += group * stride * dtype_size_bytes(matrix.dtype);
  return matrix;
}

void clear(const Matrix& y) {
  const int64_t size_bytes = dtype_size_bytes(y.dtype);
  for (int64_t row = 0; row < y.rows; ++row) {
    for (int64_t col = 0; col < y.cols; ++col) {
      std::fill_n(y.at(row, col), size_bytes, std::byte{0});
    }
  }
}

// The products of all groups.
struct GroupedProduct {
  GroupOffsets offsets;
  Gemm all;                  // With all rows.
  int64_t group_stride = 0;  // Of the tensor with a matrix for each group.
  bool is_gradient = false;  // y is that tensor, and the rows are the depth of the products.

  Gemm group(int64_t index) const {
    const int64_t first = offsets.at(index), count = offsets.count(index);
    Gemm gemm = all;
    if (is_gradient) {
      gemm.a = all.a.part(0, all.a.rows, first, count);
      gemm.b = all.b.part(first, count, 0, all.b.cols);
      gemm.y = group_of(all.y, index, group_stride);
    } else {
      gemm.a = all.a.part(first, count, 0, all.a.cols);
      gemm.b = group_of(all.b, index, group_stride);
      gemm.y = all.y.part(first, count, 0, all.y.cols);
    }
    return gemm;
  }
};

void run_group(const GroupedProduct& p, int64_t index, std::byte* workspace, int thread_count) {
  const Gemm gemm = p.group(index);
  if (gemm.y.rows == 0 || gemm.y.cols == 0) return;
  if (gemm.a.cols == 0) return clear(gemm.y);
  run_gemm(gemm, workspace, thread_count);
}

// Returns the product of the first `rows` rows.
Gemm of_rows(const GroupedProduct& p, int64_t rows) {
  Gemm gemm = p.all;
  gemm.a = p.is_gradient ? p.all.a.part(0, p.all.a.rows, 0, rows)
                         : p.all.a.part(0, rows, 0, p.all.a.cols);
  if (p.is_gradient) {
    gemm.b = p.all.b.part(0, rows, 0, p.all.b.cols);
  } else {
    gemm.y = p.all.y.part(0, rows, 0, p.all.y.cols);
  }
  return gemm;
}

// Returns a workspace that is enough for a group of any size. What a product needs grows with its
// rows, but for these numbers of them: products by a vector have a workspace of their own, which is
// largest at 256 rows, and copies of blocks are largest where one block has the whole depth. Such
// blocks and the sums of a longer product may be needed together.
uint64_t group_workspace(const GroupedProduct& p, int thread_count) {
  constexpr int64_t kRows[] = {1, 2, 256, 512};
  uint64_t most = 0;
  for (const int64_t rows : kRows) {
    const int64_t fewer = std::min(rows, p.offsets.rows);
    most = std::max(most, gemm_workspace_size_bytes(of_rows(p, fewer), thread_count));
  }
  return most + gemm_workspace_size_bytes(p.all, thread_count);
}

// Returns how many threads work on one group.
int sharers_of(const GroupedProduct& p, int thread_count) {
  return p.offsets.groups() >= int64_t{4} * thread_count ? 1 : thread_count;
}

// Clears the rows that are of no group.
void clear_other_rows(const GroupedProduct& p) {
  const int64_t begin = p.offsets.at(0), end = p.offsets.at(p.offsets.groups());
  clear(p.all.y.part(0, begin, 0, p.all.y.cols));
  clear(p.all.y.part(end, p.all.y.rows - end, 0, p.all.y.cols));
}

void run_groups(const GroupedProduct& p, std::byte* workspace, uint64_t team_size_bytes,
                int thread_count) {
  const int64_t groups = p.offsets.groups();
  const int sharers = sharers_of(p, thread_count), teams = thread_count / sharers;
  if (!p.is_gradient) clear_other_rows(p);
  parallel_for(thread_count, teams, 1, [&](int64_t begin, int64_t end) {
    for (int64_t team = begin; team < end; ++team) {
      std::byte* const own = workspace + static_cast<uint64_t>(team) * team_size_bytes;
      // Large groups often lie side by side, so a team takes groups that are `teams` apart.
      for (int64_t g = team; g < groups; g += teams) run_group(p, g, own, sharers);
    }
  });
}

GroupedProduct product_of(const bp_grouped_matmul_args& args) {
  GroupedProduct p{GroupOffsets(*args.offsets, args.a->shape[0]), {}};
  p.all.a = matrix_of(*args.a);
  p.all.b = matrix_of(*args.b);
  p.all.y = matrix_of(*args.y);
  p.group_stride = args.b->strides[0];
  return p;
}

GroupedProduct product_of(const bp_grouped_matmul_backward_b_args& args) {
  GroupedProduct p{GroupOffsets(*args.offsets, args.a->shape[0]), {}};
  p.all.a = matrix_of(*args.a).transposed();
  p.all.b = matrix_of(*args.grad_y);
  p.all.y = matrix_of(*args.grad_b);
  p.group_stride = args.grad_b->strides[0];
  p.is_gradient = true;
  return p;
}

template <typename Args>
uint64_t grouped_workspace(const Args& args, const Env& env) {
  const GroupedProduct p = product_of(args);
  const int threads = env.thread_count(), sharers = sharers_of(p, threads);
  return group_workspace(p, sharers) * static_cast<uint64_t>(threads / sharers);
}

template <typename Args>
bp_status grouped_launch(const Args& args, Launch& launch) {
  const GroupedProduct p = product_of(args);
  const int threads = launch.thread_count();
  const uint64_t team_size_bytes = group_workspace(p, sharers_of(p, threads));
  return launch.submit(
      [=, workspace = launch.workspace()] { run_groups(p, workspace, team_size_bytes, threads); });
}

void run_groups_by_amx(const GroupedProduct& p, std::byte* workspace, int thread_count) {
  constexpr int64_t kParallelProducts = 1 << 22;  // With fewer products a team costs more.
  const int64_t panels = ceil_div(p.all.b.cols, kAmxColumns), tasks = p.offsets.groups() * panels;
  const uint64_t size_bytes = amx_panel_size_bytes(p.all.a.cols);
  const bool is_small = p.all.a.rows * p.all.a.cols * p.all.b.cols < kParallelProducts;
  clear_other_rows(p);
#pragma omp parallel for num_threads(thread_count) if (!is_small) schedule(dynamic, 1)
  for (int64_t task = 0; task < tasks; ++task) {
    std::byte* const own = workspace + static_cast<uint64_t>(thread_number()) * size_bytes;
    const Gemm gemm = p.group(task / panels);
    if (gemm.y.rows > 0) run_amx_panel(gemm, task % panels, own);
  }
}

bp_reason amx_supports(const bp_grouped_matmul_args& args) {
  Gemm gemm;
  gemm.a = layout_of(*args.a);
  gemm.b = layout_of(*args.b);
  gemm.y = layout_of(*args.y);
  return takes_amx(gemm) ? nullptr
                         : "the processor has no AMX for bf16, the depth is not a "
                           "multiple of 32, or the rows of a or b are not dense";
}

uint64_t amx_workspace(const bp_grouped_matmul_args& args, const Env& env) {
  return static_cast<uint64_t>(env.thread_count()) * amx_panel_size_bytes(args.a->shape[1]);
}

bp_status amx_launch(const bp_grouped_matmul_args& args, Launch& launch) {
  if (const bp_reason reason = amx_supports(args)) {
    return launch.refuse(BP_UNSUPPORTED, std::string("grouped_matmul: ") + reason);
  }
  return launch.submit(
      [p = product_of(args), workspace = launch.workspace(), threads = launch.thread_count()] {
        run_groups_by_amx(p, workspace, threads);
      });
}

constexpr auto kDtypes = with_indices(kFloatDtypes);
constexpr bp_dtype kBf16[] = {BP_BF16};
constexpr auto kAmxDtypes = with_indices(kBf16);

}  // namespace

extern constinit const bp_kernel kGroupedMatmulDotBf16 =
    make_kernel<bp_grouped_matmul_args, amx_launch, amx_supports, amx_workspace>(
        dot_bf16_row(kernel_row("grouped_matmul.dot_bf16", BP_OP_GROUPED_MATMUL, {kAmxDtypes, 2})));

extern constinit const bp_kernel kGroupedMatmul =
    make_kernel<bp_grouped_matmul_args, grouped_launch<bp_grouped_matmul_args>, nullptr,
                grouped_workspace<bp_grouped_matmul_args>>(
        kernel_row("grouped_matmul", BP_OP_GROUPED_MATMUL, {kDtypes, 2}));

extern constinit const bp_kernel kGroupedMatmulBackwardB =
    make_kernel<bp_grouped_matmul_backward_b_args,
                grouped_launch<bp_grouped_matmul_backward_b_args>, nullptr,
                grouped_workspace<bp_grouped_matmul_backward_b_args>>(
        kernel_row("grouped_matmul_backward_b", BP_OP_GROUPED_MATMUL_BACKWARD_B, {kDtypes, 2}));

}  // namespace bp::kernels
