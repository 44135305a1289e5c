// searchsorted: a thread finds the place of a value in its row by bisection. Elements are compared
// by their keys (keys.cuh), in which NaN is the largest number and -0 equals 0.
#include "backends/cuda/kernels/grid.cuh"
#include "backends/cuda/kernels/keys.cuh"
#include "backends/cuda/kernels/list.hpp"
#include "backends/cuda/kernels/rows.cuh"

namespace bp::cuda {
namespace {

struct SearchPlan {
  RowTensor sorted, values, y;
  uint32_t length = 0, values_per_row = 0;
  bool is_one_row = false, is_right = false, is_i64 = false;
};

// Returns how many of the elements come before the value with this key.
template <typename T>
__device__ __forceinline__ int64_t place_of(const T* row, int64_t stride, int64_t count,
                                            KeyOf<T> key, bool is_right) {
  int64_t begin = 0;
  while (count > 0) {
    const int64_t half = count / 2;
    const KeyOf<T> own = key_of(row[(begin + half) * stride]);
    if (own < key || (is_right && own == key)) {
      begin += half + 1;
      count -= half + 1;
    } else {
      count = half;
    }
  }
  return begin;
}

template <typename T>
__global__ void __launch_bounds__(kBlockThreads) search_kernel(SearchPlan p, int64_t count) {
  for_elements(count, [&](int64_t i) {
    const auto row = static_cast<uint32_t>(i / p.values_per_row);
    const auto at = static_cast<uint32_t>(i % p.values_per_row);
    const T value = p.values.row<T>(row)[p.values.elements.offset(at)];
    const T* const sorted = p.sorted.row<T>(p.is_one_row ? 0 : row);
    const int64_t place =
        place_of(sorted, p.sorted.elements.strides[0][0], p.length, key_of(value), p.is_right);
    store_index(p.y.data, p.y.rows.offset(row) + p.y.elements.offset(at), p.is_i64, place);
  });
}

// Returns the bit of the last axis, or of axis 0 of a tensor without axes.
uint32_t last_axis(const bp_tensor& tensor) {
  return 1u << (tensor.ndim == 0 ? 0 : tensor.ndim - 1);
}

bp_status search_launch(const bp_searchsorted_args& args, Launch& launch) {
  const RowExtents values = row_extents(*args.values, last_axis(*args.values));
  SearchPlan plan;
  plan.sorted = row_tensor(*args.sorted, last_axis(*args.sorted));
  plan.values = row_tensor(*args.values, last_axis(*args.values));
  plan.y = row_tensor(*args.y, last_axis(*args.y));
  plan.length = static_cast<uint32_t>(row_extents(*args.sorted, last_axis(*args.sorted)).count);
  plan.values_per_row = static_cast<uint32_t>(values.count);
  plan.is_one_row = args.sorted->ndim == 1;
  plan.is_right = args.side == BP_SEARCHSORTED_SIDE_RIGHT;
  plan.is_i64 = is_i64_index(args.y->dtype);
  return with_number(args.sorted->dtype, [&]<typename T>(T) {
    return run_elements<search_kernel<T>>(launch, values.rows * values.count, plan);
  });
}

bp_reason search_supports(const bp_searchsorted_args& args) {
  // A place may also be behind the last element.
  const int64_t length = args.sorted->shape[args.sorted->ndim - 1];
  if (const bp_reason reason = index_reason(args.y, length + 1)) return reason;
  if (const bp_reason reason = too_many_rows(*args.sorted, last_axis(*args.sorted))) return reason;
  return too_many_rows(*args.values, last_axis(*args.values));
}

constexpr auto kDtypes = with_indices(kNumberDtypes);

}  // namespace

constinit const bp_kernel kSearchsorted =
    make_kernel<bp_searchsorted_args, search_launch, search_supports>(
        kernel_row("searchsorted", BP_OP_SEARCHSORTED, {kDtypes, 2}));

}  // namespace bp::cuda
