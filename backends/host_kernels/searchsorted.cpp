// searchsorted: a bisection of a row for each value, without branches that depend on elements.
// Elements are compared by their keys (records.hpp), in which NaN is the largest number and -0
// equals 0. Threads share the values.
#include <algorithm>

#include "backends/host_kernels/dtypes.hpp"
#include "backends/host_kernels/indices.hpp"
#include "backends/host_kernels/loop.hpp"
#include "backends/host_kernels/records.hpp"
#include "backends/host_kernels/strided.hpp"

namespace bp::kernels {
namespace {

struct Search {
  View sorted, values, y;
  int64_t length = 0;  // Of a row of `sorted`.
  bool is_right = false;
  bool is_i64 = true;  // The dtype of y.
};

// Returns how many of n elements, `stride` elements apart, come before the value with this key.
template <typename T>
int64_t place_of(const T* row, int64_t stride, int64_t n, BitsOf<T> key, bool is_right) {
  const auto is_before = [=](int64_t i) {
    const BitsOf<T> own = key_of(row[i * stride]);
    return own < key || (is_right && own == key);
  };
  int64_t begin = 0;
  while (n > 1) {  // The place is one of begin to begin + n.
    const int64_t half = n / 2;
    begin += is_before(begin + half - 1) ? half : 0;
    n -= half;
  }
  return n == 0 ? 0 : begin + (is_before(begin) ? 1 : 0);
}

template <typename T>
void search_values(const Search& s, int64_t begin, int64_t end) {
  const uint32_t last = s.values.ndim - 1;
  const int64_t per_row = s.values.shape[last], index_bytes = s.is_i64 ? 8 : 4;
  const int64_t stride = s.sorted.strides[s.sorted.ndim - 1];
  for (int64_t i = begin; i < end;) {
    const int64_t row = i / per_row, stop = std::min(end, (row + 1) * per_row);
    const T* const sorted = reinterpret_cast<const T*>(s.sorted.address) +
                            (s.sorted.ndim == 1 ? 0 : row_offset(s.sorted, row));
    const T* const values =
        reinterpret_cast<const T*>(s.values.address) + row_offset(s.values, row);
    std::byte* const y = s.y.address + row_offset(s.y, row) * index_bytes;
    for (; i < stop; ++i) {
      const int64_t at = i - row * per_row;
      const BitsOf<T> key = key_of(values[at * s.values.strides[last]]);
      store_index(y + at * s.y.strides[last] * index_bytes, s.is_i64,
                  place_of(sorted, stride, s.length, key, s.is_right));
    }
  }
}

// Searches for the values [begin, end), counted in row-major order.
using SearchFunction = void(const Search& search, int64_t begin, int64_t end);

SearchFunction* find_search(bp_dtype dtype) {
  return with_number(dtype, []<typename T>(T) -> SearchFunction* { return search_values<T>; });
}

// Returns a view that has an axis of one element if the tensor has no axes.
View with_axes(const bp_tensor& tensor) {
  View view = view_of(tensor);
  if (view.ndim == 0) view.ndim = 1, view.shape[0] = 1, view.strides[0] = 0;
  return view;
}

bp_status search_launch(const bp_searchsorted_args& args, Launch& launch) {
  Search search;
  search.sorted = view_of(*args.sorted);
  search.values = with_axes(*args.values);
  search.y = with_axes(*args.y);
  search.length = search.sorted.shape[search.sorted.ndim - 1];
  search.is_right = args.side == BP_SEARCHSORTED_SIDE_RIGHT;
  search.is_i64 = args.y->dtype == BP_I64;
  SearchFunction* const run = find_search(args.sorted->dtype);
  return launch.submit([=, threads = launch.thread_count()] {
    constexpr int64_t kSearchGrain = 1024;  // A search costs about as much as 30 moved elements.
    parallel_for(threads, element_count(search.y), kSearchGrain,
                 [&](int64_t begin, int64_t end) { run(search, begin, end); });
  });
}

bp_reason search_supports(const bp_searchsorted_args& args) {
  // A place may also be behind the last element.
  return index_reason(args.y, args.sorted->shape[args.sorted->ndim - 1] + 1);
}

constexpr auto kDtypes = with_indices(kNumberDtypes);

}  // namespace

extern constinit const bp_kernel kSearchsorted =
    make_kernel<bp_searchsorted_args, search_launch, search_supports>(
        kernel_row("searchsorted", BP_OP_SEARCHSORTED, {kDtypes, 2}));

}  // namespace bp::kernels
