// Computes y = activation(a b + bias) for every stride and every mixture of dtypes. It runs the
// products that cuBLASLt does not take, and all products if cuBLASLt is missing.
//
// A block of 256 threads computes a tile of 64 by 64, from tiles of a and b in shared memory that
// are 16 deep; a thread computes 4 by 4. Sums are f32, or f64 for f64, and each runs over the depth
// in blocks and in one order, so that equal input gives equal bits. Elements of narrow dtypes are
// widened on their way to shared memory, by dtypes known at run time: one kernel serves all
// mixtures.
#include "backends/cuda/kernels/activation.cuh"
#include "backends/cuda/kernels/map.cuh"
#include "backends/cuda/kernels/mixed.cuh"
#include "backends/cuda/kernels/product_axes.cuh"

namespace bp::cuda {
namespace {

constexpr int kTile = 64, kDepth = 16, kPerThread = 4;
constexpr int kTileThreads = kTile / kPerThread * (kTile / kPerThread);
constexpr unsigned kMostBatchBlocks = 65535;

// A matrix on the device.
struct TileMatrix {
  std::byte* address = nullptr;
  MixedKind kind = MixedKind::kWide;
  int64_t row_stride = 0, col_stride = 0;
};

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

// Copies kTile lines of kDepth elements to shared memory, as to[depth][line], with zeros beyond the
// ends. Neighbouring threads read neighbours in memory.
template <typename Sum>
__device__ __forceinline__ void load_tile(const TileMatrix& m, int64_t offset, int64_t line_stride,
                                          int64_t depth_stride, int64_t first_line, int64_t lines,
                                          int64_t first_depth, int64_t depth,
                                          Sum (&to)[kDepth][kTile + 1]) {
  const bool is_deep = depth_stride == 1;
  BP_UNROLL for (int i = 0; i < kTile * kDepth / kTileThreads; ++i) {
    const int number = static_cast<int>(threadIdx.x) + i * kTileThreads;
    const int line = is_deep ? number / kDepth : number % kTile;
    const int deep = is_deep ? number % kDepth : number / kTile;
    const int64_t at_line = first_line + line, at_depth = first_depth + deep;
    to[deep][line] = at_line < lines && at_depth < depth
                         ? load_as<Sum>(m.address, m.kind,
                                        offset + at_line * line_stride + at_depth * depth_stride)
                         : Sum{0};
  }
}

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
__global__ void __launch_bounds__(kTileThreads) product_tiles(TilesPlan p) {
  __shared__ Sum a[kDepth][kTile + 1], b[kDepth][kTile + 1];
  const int64_t first_row = int64_t{blockIdx.x / p.col_tiles} * kTile;
  const int64_t first_col = int64_t{blockIdx.x % p.col_tiles} * kTile;
  const int row = static_cast<int>(threadIdx.x) / (kTile / kPerThread);
  const int col = static_cast<int>(threadIdx.x) % (kTile / kPerThread);
  for (uint32_t batch = blockIdx.y; batch < p.batches; batch += gridDim.y) {
    int64_t at[4];
    p.batch.locate(batch, at);
    Sum totals[kPerThread][kPerThread] = {};
    for (int64_t begin = 0; begin < p.depth; begin += p.block) {
      const int64_t end = begin + p.block < p.depth ? begin + p.block : p.depth;
      Sum sums[kPerThread][kPerThread] = {};
      for (int64_t k = begin; k < end; k += kDepth) {
        __syncthreads();
        load_tile(p.a, at[kAxesA], p.a.row_stride, p.a.col_stride, first_row, p.rows, k, p.depth,
                  a);
        load_tile(p.b, at[kAxesB], p.b.col_stride, p.b.row_stride, first_col, p.cols, k, p.depth,
                  b);
        __syncthreads();
        BP_UNROLL for (int d = 0; d < kDepth; ++d) {
          BP_UNROLL for (int i = 0; i < kPerThread; ++i) {
            const Sum left = a[d][row + i * (kTile / kPerThread)];
            BP_UNROLL for (int j = 0; j < kPerThread; ++j) {
              sums[i][j] += left * b[d][col + j * (kTile / kPerThread)];
            }
          }
        }
      }
      BP_UNROLL for (int i = 0; i < kPerThread; ++i) {
        BP_UNROLL for (int j = 0; j < kPerThread; ++j) totals[i][j] += sums[i][j];
      }
    }
    BP_UNROLL for (int i = 0; i < kPerThread; ++i) {
      BP_UNROLL for (int j = 0; j < kPerThread; ++j) {
        const int64_t y_row = first_row + row + i * (kTile / kPerThread);
        const int64_t y_col = first_col + col + j * (kTile / kPerThread);
        if (y_row < p.rows && y_col < p.cols) store_sum(p, at, y_row, y_col, totals[i][j]);
      }
    }
  }
}

template <typename Sum>
TileMatrix matrix(const ProductOperand& o) {
  return {o.address, mixed_kind<Sum>(o.dtype), o.row_stride, o.col_stride};
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
bp_status launch_tiles(const Product& product, Launch& launch) {
  TilesPlan plan;
  plan.rows = product.y.rows;
  plan.cols = product.y.cols;
  plan.depth = product.a.cols;
  plan.block = block_of_sum(plan.depth, kDepth);
  plan.a = matrix<Sum>(product.a);
  plan.b = matrix<Sum>(product.b);
  plan.y = matrix<Sum>(product.y);
  if (product.has_preactivation) plan.preactivation = matrix<Sum>(product.preactivation);
  plan.bias = product.has_bias ? product.bias : nullptr;
  plan.bias_stride = product.bias_stride;
  plan.activation = product.activation;
  plan.batch = batch_axes(product);
  const int64_t col_tiles = (plan.cols + kTile - 1) / kTile, batches = product.batch_count();
  const int64_t tiles = col_tiles * ((plan.rows + kTile - 1) / kTile);
  if (tiles > INT32_MAX || batches > INT32_MAX) {
    return launch.refuse(BP_UNSUPPORTED, "the product has more than 2^31 - 1 tiles or batches");
  }
  plan.col_tiles = static_cast<uint32_t>(col_tiles);
  plan.batches = static_cast<uint32_t>(batches);
  const dim3 blocks(static_cast<unsigned>(tiles), std::min(plan.batches, kMostBatchBlocks));
  return run<product_tiles<Sum>>(launch, blocks, kTileThreads, 0, plan);
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
