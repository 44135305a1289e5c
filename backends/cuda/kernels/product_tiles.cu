// Computes y = activation(a b + bias) for every stride and every mixture of dtypes. It runs the
// products that cuBLASLt does not take, and all products if cuBLASLt is missing.
//
// A block computes one tile of y (product_tiles.cuh).
#include "backends/cuda/kernels/activation.cuh"
#include "backends/cuda/kernels/map.cuh"
#include "backends/cuda/kernels/product_axes.cuh"
#include "backends/cuda/kernels/product_tiles.cuh"

namespace bp::cuda {
namespace {

constexpr unsigned kMostBatchBlocks = 65535;

struct TilesPlan {
  int64_t rows = 0, cols = 0, depth = 0;
  int64_t block = 0;  // The depth that is summed at a time.
  uint32_t col_tiles = 0, batches = 0;
  TileMatrix a, b, y, preactivation;  // A missing preactivation has no address.
  const std::byte* bias = nullptr;
  int64_t bias_stride = 0;
  uint32_t activation = 0;
  Axes<4> batch;
};

template <typename Sum>
__device__ __forceinline__ void store_sum(const TilesPlan& p, const int64_t (&at)[4], int64_t row,
                                          int64_t col, Sum sum) {
  if (p.bias != nullptr) sum += load_as<Sum>(p.bias, p.y.kind, col * p.bias_stride);
  if (p.preactivation.address != nullptr) {
    store_as(p.preactivation.address, p.y.kind,
             at[kAxesPreactivation] + row * p.preactivation.row_stride +
                 col * p.preactivation.col_stride,
             sum);
  }
  store_as(p.y.address, p.y.kind, at[kAxesY] + row * p.y.row_stride + col * p.y.col_stride,
           activate(p.activation, sum));
}

template <typename Sum>
__global__ void __launch_bounds__(kProductThreads) product_tiles(TilesPlan p) {
  const int64_t first_row = int64_t{blockIdx.x / p.col_tiles} * kProductSide;
  const int64_t first_col = int64_t{blockIdx.x % p.col_tiles} * kProductSide;
  for (uint32_t batch = blockIdx.y; batch < p.batches; batch += gridDim.y) {
    int64_t at[4];
    p.batch.locate(batch, at);
    Sum totals[kPerThread][kPerThread];
    multiply_tile(p.a.from(at[kAxesA]), p.b.from(at[kAxesB]), {first_row, p.rows},
                  {first_col, p.cols}, {p.depth, p.block}, totals);
    BP_UNROLL for (int i = 0; i < kPerThread; ++i) {
      BP_UNROLL for (int j = 0; j < kPerThread; ++j) {
        const int64_t y_row = first_row + product_row(i);
        const int64_t y_col = first_col + product_col(j);
        if (y_row < p.rows && y_col < p.cols) store_sum(p, at, y_row, y_col, totals[i][j]);
      }
    }
  }
}

// ---- Steps beside cuBLASLt ----------------------------------------------------------------------

struct ActivateElement {
  uint32_t activation;
  template <typename T>
  __device__ T operator()(T x) const {
    return narrow<T>(activate(activation, widen(x)));
  }
};

template <typename T>
struct RoundElement {
  uint32_t activation;
  __device__ T operator()(float sum, T bias) const {
    return narrow<T>(activate(activation, sum + widen(bias)));
  }
};

struct KeepElement {
  template <typename T>
  __host__ __device__ T operator()(T x) const {
    return x;
  }
};

// The axes of a product in the form of a loop.
struct OperandAxes {
  explicit OperandAxes(const Product& p, const ProductOperand& o) {
    std::copy_n(p.batch, p.batch_ndim, shape);
    std::copy_n(o.batch_strides, p.batch_ndim, strides);
    shape[p.batch_ndim] = o.rows;
    strides[p.batch_ndim] = o.row_stride;
    shape[p.batch_ndim + 1] = o.cols;
    strides[p.batch_ndim + 1] = o.col_stride;
  }
  int64_t shape[BP_MAX_RANK], strides[BP_MAX_RANK];
};

template <typename Sum>
TileMatrix tile_matrix(const ProductOperand& o) {
  return {o.address, mixed_kind<Sum>(o.dtype), o.row_stride, o.col_stride};
}

template <typename Sum>
bp_status launch_tiles(const Product& product, Launch& launch) {
  TilesPlan plan;
  plan.rows = product.y.rows;
  plan.cols = product.y.cols;
  plan.depth = product.a.cols;
  plan.block = block_of_sum(plan.depth, kProductDepth);
  plan.a = tile_matrix<Sum>(product.a);
  plan.b = tile_matrix<Sum>(product.b);
  plan.y = tile_matrix<Sum>(product.y);
  if (product.has_preactivation) plan.preactivation = tile_matrix<Sum>(product.preactivation);
  plan.bias = product.has_bias ? product.bias : nullptr;
  plan.bias_stride = product.bias_stride;
  plan.activation = product.activation;
  plan.batch = batch_axes(product);
  const int64_t col_tiles = (plan.cols + kProductSide - 1) / kProductSide,
                batches = product.batch_count();
  const int64_t tiles = col_tiles * ((plan.rows + kProductSide - 1) / kProductSide);
  if (tiles > INT32_MAX || batches > INT32_MAX) {
    return launch.refuse(BP_UNSUPPORTED, "the product has more than 2^31 - 1 tiles or batches");
  }
  plan.col_tiles = static_cast<uint32_t>(col_tiles);
  plan.batches = static_cast<uint32_t>(batches);
  const dim3 blocks(static_cast<unsigned>(tiles), std::min(plan.batches, kMostBatchBlocks));
  return run<product_tiles<Sum>>(launch, blocks, kProductThreads, 0, plan);
}

}  // namespace

Axes<4> batch_axes(const Product& p) {
  Axes<4> axes;
  axes.rank = p.batch_ndim == 0 ? 1 : static_cast<int>(p.batch_ndim);
  for (uint32_t i = 0; i < p.batch_ndim; ++i) {
    const uint32_t from = p.batch_ndim - 1 - i;
    axes.extents[i] = Divider(static_cast<uint32_t>(p.batch[from]));
    axes.strides[kAxesA][i] = p.a.batch_strides[from];
    axes.strides[kAxesB][i] = p.b.batch_strides[from];
    axes.strides[kAxesY][i] = p.y.batch_strides[from];
    axes.strides[kAxesPreactivation][i] = p.preactivation.batch_strides[from];
  }
  return axes;
}

bp_status launch_product_tiles(const Product& product, Launch& launch) {
  if (product.is_empty()) return BP_OK;
  return product.y.dtype == BP_F64 ? launch_tiles<double>(product, launch)
                                   : launch_tiles<float>(product, launch);
}

bp_status launch_activation(const Product& product, Launch& launch) {
  if (product.activation == BP_LINEAR_ACTIVATION_NONE && !product.has_preactivation) return BP_OK;
  const ProductOperand &y = product.y, &x = product.has_preactivation ? product.preactivation : y;
  const OperandAxes to(product, y), from(product, x);
  const int64_t item = dtype_size_bytes(y.dtype);
  const Loop loop = make_loop(product.batch_ndim + 2, to.shape,
                              {{y.address, to.strides, item}, {x.address, from.strides, item}});
  return with_float(y.dtype, [&]<typename T>(T) {
    return submit_map<ActivateElement, T, T>(launch, {product.activation}, loop);
  });
}

bp_status launch_rounding(const Product& product, const ProductOperand& sums, Launch& launch) {
  const OperandAxes from(product, sums);
  int64_t along_cols[BP_MAX_RANK] = {};
  along_cols[product.batch_ndim + 1] = product.bias_stride;
  const auto round_to = [&](const ProductOperand& y, uint32_t activation) {
    const OperandAxes to(product, y);
    const int64_t item = dtype_size_bytes(y.dtype);
    const Loop loop = make_loop(product.batch_ndim + 2, to.shape,
                                {{y.address, to.strides, item},
                                 {sums.address, from.strides, sizeof(float)},
                                 {product.bias, along_cols, item}});
    return with_float(y.dtype, [&]<typename T>(T) {
      return submit_map<RoundElement<T>, T, float, T>(launch, {activation}, loop);
    });
  };
  if (product.has_preactivation && product.preactivation.address != nullptr) {
    const bp_status status = round_to(product.preactivation, BP_LINEAR_ACTIVATION_NONE);
    if (status != BP_OK) return status;
  }
  return round_to(product.y, product.activation);
}

bp_status launch_bias_copy(const Product& product, std::byte* to, Launch& launch) {
  const int64_t one = 1, item = dtype_size_bytes(product.y.dtype);
  const Loop loop =
      make_loop(1, &product.y.cols, {{to, &one, item}, {product.bias, &product.bias_stride, item}});
  return with_width(item, [&]<typename T>(T) {
    return submit_map<KeepElement, T, T>(launch, KeepElement(), loop);
  });
}

}  // namespace bp::cuda
