// grouped_matmul and its gradient for b. A block computes a tile of one group (product_tiles.cuh).
// The rows of a group are those of its tiles (groups.cuh), or in the gradient the depth of its
// product.
#include "backends/cuda/kernels/groups.cuh"
#include "backends/cuda/kernels/list.hpp"
#include "backends/cuda/kernels/product_tiles.cuh"

namespace bp::cuda {
namespace {

struct GroupedPlan {
  Groups groups;
  TileMatrix a, b, y;        // In the gradient a is transposed.
  int64_t group_stride = 0;  // Of the tensor with a matrix for each group.
  int64_t rows = 0, cols = 0, depth = 0;
  int64_t block = 0;  // The depth that is summed at a time.
  uint32_t row_tiles = 0;
};

template <typename Sum>
__device__ __forceinline__ void store_tile(const TileMatrix& y, TileLines rows, TileLines cols,
                                           const Sum (&sums)[kPerThread][kPerThread]) {
  BP_UNROLL for (int i = 0; i < kPerThread; ++i) {
    BP_UNROLL for (int j = 0; j < kPerThread; ++j) {
      const int64_t row = rows.first + product_row(i), col = cols.first + product_col(j);
      if (row < rows.count && col < cols.count) {
        store_as(y.address, y.kind, y.at(row, col), sums[i][j]);
      }
    }
  }
}

// The grid has (tiles of rows, tiles of columns) blocks.
template <typename Sum>
__global__ void __launch_bounds__(kProductThreads) grouped_kernel(GroupedPlan p) {
  const uint32_t tile = blockIdx.x;
  if (!p.groups.has_tile(tile)) return;
  const uint32_t group = p.groups.group_of(tile);
  const int64_t begin = p.groups.begin(group);
  const TileLines rows = {int64_t{tile - p.groups.tile_starts[group]} * kProductSide,
                          p.groups.size(group)};
  const TileLines cols = {int64_t{blockIdx.y} * kProductSide, p.cols};
  Sum sums[kPerThread][kPerThread];
  multiply_tile(p.a.from(begin * p.a.row_stride), p.b.from(group * p.group_stride), rows, cols,
                {p.depth, p.block}, sums);
  store_tile(p.y.from(begin * p.y.row_stride), rows, cols, sums);
}

// The grid has (groups * tiles of rows, tiles of columns) blocks.
template <typename Sum>
__global__ void __launch_bounds__(kProductThreads) grouped_gradient_kernel(GroupedPlan p) {
  const uint32_t group = blockIdx.x / p.row_tiles, tile = blockIdx.x % p.row_tiles;
  const int64_t begin = p.groups.begin(group);
  const TileLines rows = {int64_t{tile} * kProductSide, p.rows};
  const TileLines cols = {int64_t{blockIdx.y} * kProductSide, p.cols};
  Sum sums[kPerThread][kPerThread];
  multiply_tile(p.a.from(begin * p.a.col_stride), p.b.from(begin * p.b.row_stride), rows, cols,
                {p.groups.size(group), p.block}, sums);
  store_tile(p.y.from(group * p.group_stride), rows, cols, sums);
}

// Writes 0 to the rows of y that are of no group.
template <typename Sum>
__global__ void __launch_bounds__(kBlockThreads) clear_rows_kernel(GroupedPlan p, uint32_t count) {
  const uint32_t at = blockIdx.x * kBlockThreads + threadIdx.x;
  if (at >= count) return;
  const auto cols = static_cast<uint32_t>(p.cols);
  if (p.groups.has_row(at / cols)) return;
  store_as(p.y.address, p.y.kind, p.y.at(at / cols, at % cols), Sum{0});
}

template <typename Sum>
TileMatrix matrix_of(const bp_tensor& tensor) {
  const uint32_t row = tensor.ndim - 2;
  return {data<std::byte>(tensor), mixed_kind<Sum>(tensor.dtype), tensor.strides[row],
          tensor.strides[row + 1]};
}

Groups groups_of(const bp_tensor& offsets, int64_t rows) {
  return {index_view(offsets), rows, static_cast<uint32_t>(offsets.shape[0] - 1), 1, kProductSide};
}

unsigned sides_of(int64_t count) { return blocks_for(count, kProductSide); }

template <typename Sum>
bp_status launch_products(const bp_grouped_matmul_args& args, Launch& launch) {
  GroupedPlan p;
  p.groups = groups_of(*args.offsets, args.a->shape[0]);
  p.groups.tile_starts = launch.workspace<uint32_t>();
  p.a = matrix_of<Sum>(*args.a);
  p.b = matrix_of<Sum>(*args.b);
  p.y = matrix_of<Sum>(*args.y);
  p.group_stride = args.b->strides[0];
  p.cols = args.y->shape[1];
  p.depth = args.a->shape[1];
  p.block = block_of_sum(p.depth, kProductDepth);
  const auto count = static_cast<uint32_t>(element_count(*args.y));
  if (count == 0) return BP_OK;
  bp_status status = run<clear_rows_kernel<Sum>>(launch, blocks_for(count, kBlockThreads),
                                                 kBlockThreads, 0, p, count);
  if (status != BP_OK || p.groups.count == 0) return status;
  status = plan_tiles(p.groups, launch);
  if (status != BP_OK) return status;
  const dim3 blocks(static_cast<unsigned>(most_tiles(p.groups)), sides_of(p.cols));
  return run<grouped_kernel<Sum>>(launch, blocks, kProductThreads, 0, p);
}

template <typename Sum>
bp_status launch_products(const bp_grouped_matmul_backward_b_args& args, Launch& launch) {
  GroupedPlan p;
  p.groups = groups_of(*args.offsets, args.a->shape[0]);
  p.a = matrix_of<Sum>(*args.a).transposed();
  p.b = matrix_of<Sum>(*args.grad_y);
  p.y = matrix_of<Sum>(*args.grad_b);
  p.group_stride = args.grad_b->strides[0];
  p.rows = args.grad_b->shape[1];
  p.cols = args.grad_b->shape[2];
  p.block = block_of_sum(p.groups.rows, kProductDepth);
  p.row_tiles = sides_of(p.rows);
  if (element_count(*args.grad_b) == 0) return BP_OK;
  const dim3 blocks(p.groups.count * p.row_tiles, sides_of(p.cols));
  return run<grouped_gradient_kernel<Sum>>(launch, blocks, kProductThreads, 0, p);
}

template <typename Args>
bp_status grouped_launch(const Args& args, Launch& launch) {
  return args.a->dtype == BP_F64 ? launch_products<double>(args, launch)
                                 : launch_products<float>(args, launch);
}

uint64_t grouped_workspace(const bp_grouped_matmul_args& args, const Env&) {
  return tile_starts_bytes(args.offsets->shape[0] - 1);
}

// A grid counts 65535 tiles of columns, and 2^31 - 1 of groups and rows.
constexpr int64_t kMostCols = int64_t{65535} * kProductSide;

bp_reason grouped_supports(const bp_grouped_matmul_args& args) {
  if (args.y->shape[1] > kMostCols) return "y has more than 65535 tiles of columns";
  if (element_count(*args.y) > kMaxLaunchElements) return "y has more than 2^30 elements";
  const bool is_small = args.offsets->shape[0] <= kMaxLaunchElements;
  return is_small ? nullptr : "there are more than 2^30 groups";
}

bp_reason gradient_supports(const bp_grouped_matmul_backward_b_args& args) {
  if (args.grad_b->shape[2] > kMostCols) return "grad_b has more than 65535 tiles of columns";
  const bool is_small = element_count(*args.grad_b) <= kMaxLaunchElements;
  return is_small ? nullptr : "grad_b has more than 2^30 elements";
}

constexpr auto kDtypes = with_indices(kFloatDtypes);

}  // namespace

constinit const bp_kernel kGroupedMatmul =
    make_kernel<bp_grouped_matmul_args, grouped_launch<bp_grouped_matmul_args>, grouped_supports,
                grouped_workspace>(
        kernel_row("grouped_matmul", BP_OP_GROUPED_MATMUL, {kDtypes, 2}));
constinit const bp_kernel kGroupedMatmulBackwardB =
    make_kernel<bp_grouped_matmul_backward_b_args,
                grouped_launch<bp_grouped_matmul_backward_b_args>, gradient_supports>(
        kernel_row("grouped_matmul_backward_b", BP_OP_GROUPED_MATMUL_BACKWARD_B, {kDtypes, 2}));

}  // namespace bp::cuda
