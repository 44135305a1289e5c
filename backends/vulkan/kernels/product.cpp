#include "backends/vulkan/kernels/product.hpp"

#include <algorithm>
#include <initializer_list>

#include "backends/vulkan/kernels/reduce.hpp"
#include "backends/vulkan/kernels/walk.hpp"

namespace bp::vulkan {
namespace {

constexpr bp_dtype kAllProductDtypes[] = {BP_F32, BP_F16, BP_BF16, BP_I8,
                                          BP_U8,  BP_I16, BP_I32,  BP_I64};

bool is_integer_product(bp_dtype dtype) { return !is_f32_class(dtype); }

struct ProductRecord {
  uint64_t a, b, y, bias, preactivation;
  uint64_t batch_count;
  uint32_t m, n, k;
  uint32_t part_count, part_size;
  uint32_t batch_extents[BP_MAX_RANK];
  int64_t a_m, a_k, b_k, b_n, y_m, y_n, bias_n, preactivation_m, preactivation_n;
  int64_t y_part;
  int64_t batch_a[BP_MAX_RANK], batch_b[BP_MAX_RANK], batch_y[BP_MAX_RANK], batch_bias[BP_MAX_RANK];
};

int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

int64_t batch_count(const Product& p) {
  int64_t count = 1;
  for (uint32_t i = 0; i < p.batch_ndim; ++i) count *= p.batch_shape[i];
  return count;
}

// The push constants of matmul_bound.comp: the elements at which the matrices begin in their bound
// ranges.
struct ProductPush {
  uint32_t a, b, y;
};

// A shader and its tile.
struct Variant {
  const Module* module;
  uint32_t invocations;
  int64_t rows, cols;
};

Variant variant_of(const Env& env, const Product& p) {
  if (is_integer_product(p.y.dtype)) {
    const bool is_wide = p.y.dtype == BP_I64;
    return {is_wide ? &kMatmulI64Module : &kMatmulI32Module, 256, 64, 64};
  }
  const uint32_t lanes = env.subgroup_size();
  const int64_t edge = 4 * int64_t{lanes};
  const bool shuffles = (env.limits().subgroup_operations & VK_SUBGROUP_FEATURE_SHUFFLE_BIT) != 0;
  if (env.is_processor() && shuffles && (lanes == 4 || lanes == 8)) {
    return {&kMatmulSubgroupModule, lanes, edge, edge};
  }
  return {&kMatmulF32Module, 256, 64, 64};
}

// Returns the number of parts of a sum. A long sum is cut if one invocation would loop too often,
// or if there are too few tiles to keep the device busy.
int64_t part_count(const Env& env, const Product& p) {
  const Variant variant = variant_of(env, p);
  const int64_t tiles = batch_count(p) * ceil_div(p.m, variant.rows) * ceil_div(p.n, variant.cols);
  if (is_integer_product(p.y.dtype)) return 1;
  const int64_t needed = ceil_div(p.k, kMostOfProduct);
  if (p.has_bias || p.has_preactivation || p.activation != BP_LINEAR_ACTIVATION_NONE) return 1;
  const int64_t busy = env.is_processor() ? 8 : 256;
  const int64_t wanted = tiles < busy ? std::min(busy / std::max<int64_t>(tiles, 1), p.k / 512) : 1;
  return std::max<int64_t>({1, needed, wanted});
}

// Returns how `count` neighbours of a matrix can be loaded at a time: 0 means not at all, 1 along
// k, 2 along the other axis. `along_k` and `across` are the strides along both. Groups of
// neighbours begin at multiples of `count`.
uint32_t neighbours_of(const Matrix& x, int64_t along_k, int64_t across, const Product& p,
                       int64_t across_extent, int64_t count) {
  for (uint32_t i = 0; i < p.batch_ndim; ++i) {
    if (p.batch_shape[i] != 1 && x.batch_strides[i] % count != 0) return 0;
  }
  if (along_k == 1 && (across % count == 0 || across_extent == 1)) return 1;
  // Groups across would leave the matrix if its extent is not a multiple of `count`.
  if (across == 1 && along_k % count == 0 && across_extent % count == 0) return 2;
  return 0;
}

// Returns whether all tensors begin at vectors of 16 bytes.
bool is_aligned(const Launch& launch, const Product& p) {
  return std::ranges::all_of(
      std::initializer_list<const Matrix*>{&p.a, &p.b, &p.y},
      [&](const Matrix* x) { return x->tensor == nullptr || launch.is_aligned(*x->tensor); });
}

// Returns whether the operands that are read can be bound.
bool can_bind(const Launch& launch, const Product& p) {
  return variant_of(launch, p).module == &kMatmulSubgroupModule && p.a.tensor != nullptr &&
         p.b.tensor != nullptr && launch.can_bind(*p.a.tensor) && launch.can_bind(*p.b.tensor);
}

// Returns the element of its tensor at which a matrix begins.
uint32_t first_of(const Launch& launch, const Matrix& x) {
  const uint64_t bytes = x.address - launch.device_address(*x.tensor);
  return static_cast<uint32_t>(bytes / static_cast<uint64_t>(dtype_size_bytes(x.dtype)));
}

// Returns how neighbours are loaded by address, eight bytes at a time.
uint32_t pairs_of(const Matrix& x, int64_t along_k, int64_t across, const Product& p,
                  int64_t across_extent) {
  if (x.dtype != BP_F32 || x.address % 8 != 0) return 0;
  return neighbours_of(x, along_k, across, p, across_extent, 2);
}

void put_batch(ProductRecord& record, const Product& p, uint32_t& out_rank) {
  const WalkOperand operands[] = {
      {p.y.batch_strides.data(), dtype_size_bytes(p.y.dtype)},
      {p.a.batch_strides.data(), dtype_size_bytes(p.a.dtype)},
      {p.b.batch_strides.data(), dtype_size_bytes(p.b.dtype)},
      {p.bias_batch_strides.data(), dtype_size_bytes(p.y.dtype)},
  };
  const Walk walk = make_walk(p.batch_ndim, p.batch_shape.data(), operands);
  out_rank = std::max(walk.rank, 1u);
  std::fill_n(record.batch_extents, BP_MAX_RANK, 1u);
  for (size_t i = 0; i < walk.rank; ++i) {
    record.batch_extents[i] = static_cast<uint32_t>(walk.extents[i]);
    record.batch_y[i] = walk.strides[0][i];
    record.batch_a[i] = walk.strides[1][i];
    record.batch_b[i] = walk.strides[2][i];
    record.batch_bias[i] = walk.strides[3][i];
  }
}

// Submits the product with bound matrices.
bp_status submit_bound(Launch& launch, const Product& p, const ProductRecord& record,
                       std::array<uint32_t, 11>& constants, uint64_t groups,
                       const Touched& touched) {
  ProductPush push{.a = first_of(launch, p.a), .b = first_of(launch, p.b)};
  // The binding of y always has y's own range, because it counts as written even if no store uses
  // it.
  const std::array<Range, 3> bound = {
      launch.range(*p.a.tensor), launch.range(*p.b.tensor),
      p.y.tensor == nullptr ? launch.workspace() : launch.range(*p.y.tensor)};
  const auto fours = [&](const Matrix& x, uint32_t first, int64_t along, int64_t across,
                         int64_t extent) {
    return first % 4 != 0 ? 0 : neighbours_of(x, along, across, p, extent, 4);
  };
  constants[8] = fours(p.a, push.a, p.a.col_stride, p.a.row_stride, p.m);
  constants[9] = fours(p.b, push.b, p.b.row_stride, p.b.col_stride, p.n);
  if (p.y.tensor != nullptr && launch.can_bind(*p.y.tensor)) {
    push.y = first_of(launch, p.y);
    constants[10] = fours(p.y, push.y, p.y.row_stride, p.y.col_stride, p.n) == 2 ? 1 : 0;
  }
  Dispatch dispatch{.module = &kMatmulBoundModule,
                    .constants = constants,
                    .arguments = std::as_bytes(std::span(&record, 1)),
                    .pushed = std::as_bytes(std::span(&push, 1)),
                    .bound = bound,
                    .reads = touched.reads,
                    .writes = touched.writes};
  fold_groups(launch, groups, dispatch.groups);
  return launch.dispatch(dispatch);
}

bp_status submit_parts(Launch& launch, const Product& p, int64_t parts, int64_t y_part,
                       const Ranges& reads, const Ranges& writes) {
  const Variant variant = variant_of(launch, p);
  const int64_t a_item = dtype_size_bytes(p.a.dtype), b_item = dtype_size_bytes(p.b.dtype);
  const int64_t y_item = dtype_size_bytes(p.y.dtype);
  ProductRecord record{};
  record.a = p.a.address;
  record.b = p.b.address;
  record.y = p.y.address;
  record.bias = p.bias;
  record.preactivation = p.preactivation;
  record.batch_count = static_cast<uint64_t>(batch_count(p) * parts);
  record.m = static_cast<uint32_t>(p.m);
  record.n = static_cast<uint32_t>(p.n);
  record.k = static_cast<uint32_t>(p.k);
  record.part_count = static_cast<uint32_t>(parts);
  // Parts begin at elements where four neighbours can be loaded.
  record.part_size = static_cast<uint32_t>(ceil_div(ceil_div(p.k, parts), 4) * 4);
  record.a_m = p.a.row_stride * a_item;
  record.a_k = p.a.col_stride * a_item;
  record.b_k = p.b.row_stride * b_item;
  record.b_n = p.b.col_stride * b_item;
  record.y_m = p.y.row_stride * y_item;
  record.y_n = p.y.col_stride * y_item;
  record.y_part = y_part * y_item;
  record.bias_n = p.bias_stride * y_item;
  record.preactivation_m = p.preactivation_row_stride * y_item;
  record.preactivation_n = p.preactivation_col_stride * y_item;
  uint32_t batch_rank = 1;
  put_batch(record, p, batch_rank);
  const bool aligned = is_aligned(launch, p);
  std::array<uint32_t, 11> constants = {
      variant.invocations,
      one_of(kAllProductDtypes, p.a.dtype),
      one_of(kAllProductDtypes, p.b.dtype),
      one_of(kAllProductDtypes, p.y.dtype),
      p.activation,
      p.has_bias ? 1u : 0u,
      p.has_preactivation ? 1u : 0u,
      batch_rank,
      aligned ? pairs_of(p.a, p.a.col_stride, p.a.row_stride, p, p.m) : 0,
      aligned ? pairs_of(p.b, p.b.row_stride, p.b.col_stride, p, p.n) : 0,
  };
  const int64_t tiles = ceil_div(p.m, variant.rows) * ceil_div(p.n, variant.cols);
  const uint64_t groups = record.batch_count * static_cast<uint64_t>(tiles);
  if (aligned && can_bind(launch, p)) {
    return submit_bound(launch, p, record, constants, groups, {reads, writes});
  }
  return submit(launch, *variant.module, std::span(constants).first(10), record, groups,
                {reads, writes});
}

}  // namespace

uint64_t product_workspace(const Env& env, const Product& p) {
  const int64_t parts = part_count(env, p);
  return parts == 1 ? 0 : static_cast<uint64_t>(parts * batch_count(p) * p.m * p.n * 4);
}

bp_status submit_product(Launch& launch, const Product& p, const Ranges& reads,
                         const Ranges& writes, uint64_t scratch) {
  if (p.m == 0 || p.n == 0 || batch_count(p) == 0) return BP_OK;
  const int64_t parts = part_count(launch, p);
  if (parts == 1) return submit_parts(launch, p, 1, 0, reads, writes);

  // Results of parts lie as (parts, batch, m, n), and are added afterwards.
  Ranges partial(launch);
  partial.add(launch.workspace());
  Product first = p;
  first.y = {.address = scratch, .dtype = BP_F32, .row_stride = p.n, .col_stride = 1};
  int64_t size = p.m * p.n;
  for (uint32_t i = p.batch_ndim; i-- > 0;) {
    first.y.batch_strides[i] = size;
    size *= p.batch_shape[i];
  }
  const bp_status status = submit_parts(launch, first, parts, size, reads, partial);
  if (status != BP_OK) return status;

  std::array<int64_t, BP_MAX_RANK + 3> shape{}, from{}, to{};
  shape[0] = parts;
  from[0] = size;
  const uint32_t ndim = p.batch_ndim + 3;
  for (uint32_t i = 0; i < p.batch_ndim; ++i) {
    shape[i + 1] = p.batch_shape[i];
    from[i + 1] = first.y.batch_strides[i];
    to[i] = p.y.batch_strides[i];
  }
  shape[ndim - 2] = p.m;
  shape[ndim - 1] = p.n;
  from[ndim - 2] = p.n;
  from[ndim - 1] = 1;
  to[ndim - 3] = p.y.row_stride;
  to[ndim - 2] = p.y.col_stride;
  const bp_tensor x{.shape = shape.data(), .strides = from.data(), .ndim = ndim, .dtype = BP_F32};
  const bp_tensor y{
      .shape = shape.data() + 1, .strides = to.data(), .ndim = ndim - 1, .dtype = p.y.dtype};
  Reduction reduction = make_reduction(BP_OP_SUM, x, y, 1);
  reduction.from_address = scratch;
  reduction.to_address = p.y.address;
  return submit_reduction(launch, reduction, partial, writes, 0);
}

}  // namespace bp::vulkan
