// Own kernels of ops that put, unfold, fold or reduce elements.
#include <algorithm>
#include <cmath>
#include <vector>

#include "backplane/ops.h"
#include "conformance/mutants/own_kernels.hpp"
#include "conformance/reference/indexing.hpp"
#include "conformance/reference/pooling.hpp"
#include "conformance/reference/vector_norm.hpp"

namespace bp::mutants {
namespace {

using conformance::Array;
using conformance::Shape;
namespace reference = conformance::reference;

using Numbers = Array<double>;

// ---- index_add and index_put --------------------------------------------------------------------

// Returns the last number that an index has among those that are equal.
int64_t last_equal(const Array<int64_t>& indices, int64_t i) {
  for (int64_t k = indices.size(); k-- > i;) {
    if (indices[k] == indices[i]) return k;
  }
  return i;
}

// Wrong: of the slices for one index the last one is added, as threads do that do not wait for each
// other.
template <bool kIsRight>
bp_status add_slices(const Call& call, const bp_index_add_args& args) {
  Inputs inputs(call);
  const auto x = inputs.array<double>(*args.x);
  auto src = inputs.array<double>(*args.src);
  const auto indices = inputs.array<int64_t>(*args.indices);
  if (inputs.status() != BP_OK) return inputs.status();
  const auto axis = static_cast<size_t>(args.axis);
  for (int64_t i = 0; i < src.size() && !kIsRight; ++i) {
    const int64_t slice = conformance::coordinates(i, src.shape)[axis];
    if (last_equal(indices, slice) != slice) src[i] = 0;
  }
  return write(call, *args.y, reference::index_add(x, indices, src, axis));
}

enum class Put { kRight, kFirst, kOverwrites };

// First: of the slices for one index the first one counts. Overwrites: nothing is added.
template <Put kPut>
bp_status put_slices(const Call& call, const bp_index_put_args& args) {
  Inputs inputs(call);
  const auto x = inputs.array<double>(*args.x);
  auto values = inputs.array<double>(*args.values);
  auto indices = inputs.array<int64_t>(*args.indices);
  if (inputs.status() != BP_OK) return inputs.status();
  if (kPut == Put::kFirst) {
    const int64_t inner = indices.size() == 0 ? 0 : values.size() / indices.size();
    const Numbers given = values;
    for (int64_t i = 0; i < values.size(); ++i) {
      values[i] = given[(indices.size() - 1 - i / inner) * inner + i % inner];
    }
    std::ranges::reverse(indices.data);
  }
  const bool accumulates = args.accumulate != 0 && kPut != Put::kOverwrites;
  const auto indexed = static_cast<size_t>(args.indexed_ndim);
  return write(call, *args.y, reference::index_put(x, indices, values, indexed, accumulates));
}

// ---- norm ---------------------------------------------------------------------------------------

enum class Size { kRight, kSigned, kSquares };

// Signed: the largest element takes the place of the largest size. Squares: they are added in f32.
template <Size kSize>
bp_status measure(const Call& call, const bp_norm_args& args) {
  Inputs inputs(call);
  auto x = inputs.array<double>(*args.x);
  if (inputs.status() != BP_OK) return inputs.status();
  if (kSize == Size::kSigned && args.p == HUGE_VAL) {
    for (double& element : x.data) element = element < 0 ? 0 : element;
  }
  const Shape axes(args.axes, args.axes + args.axes_count);
  Numbers y = reference::norm(x, axes, args.p, args.keepdims != 0);
  const auto groups = reference::reduced_groups(x, axes);
  for (size_t i = 0; i < groups.size() && kSize == Size::kSquares && args.p == 2; ++i) {
    float total = 0;
    for (const double element : groups[i]) {
      total += static_cast<float>(element) * static_cast<float>(element);
    }
    y.data[i] = std::sqrt(total);
  }
  return write(call, *args.y, y);
}

// ---- unfold and fold ----------------------------------------------------------------------------

template <typename Args>
reference::Window window_of(const Args& args) {
  return {{args.kernel_size, args.kernel_size + 2},
          {args.stride, args.stride + 2},
          {args.padding, args.padding + 4},
          {args.dilation, args.dilation + 2}};
}

// Wrong: the channel runs faster than the place in the window.
template <bool kIsRight>
bp_status take_columns(const Call& call, const bp_unfold_args& args) {
  Inputs inputs(call);
  const auto x = inputs.array<double>(*args.x);
  if (inputs.status() != BP_OK) return inputs.status();
  const reference::Window window = window_of(args);
  const Numbers columns = reference::unfold(x, window);
  Numbers y(columns.shape);
  const int64_t channels = x.shape[1], windows = y.shape[2];
  const int64_t taps = conformance::element_count(window.kernel_size);
  for (int64_t i = 0; i < y.size(); ++i) {
    const int64_t row = i / windows % y.shape[1], rest = i - row * windows;
    const int64_t to = kIsRight ? row : row % taps * channels + row / taps;
    y[rest + to * windows] = columns[i];
  }
  return write(call, *args.y, y);
}

// Wrong: where windows overlap, the last one counts.
template <bool kIsRight>
bp_status add_columns(const Call& call, const bp_fold_args& args) {
  Inputs inputs(call);
  const auto x = inputs.array<double>(*args.x);
  if (inputs.status() != BP_OK) return inputs.status();
  const reference::Window window = window_of(args);
  const Shape size(args.output_size, args.output_size + 2);
  Numbers y = reference::fold(x, size, window);
  if (!kIsRight) {
    reference::for_each_column_element(y.shape, window,
                                       [&](int64_t to, int64_t from) { y[to] = x[from]; });
  }
  return write(call, *args.y, y);
}

constexpr Mistake kRight[] = {
    {"index_add", BP_OP_INDEX_ADD, on_frame<add_slices<true>>},
    {"index_put", BP_OP_INDEX_PUT, on_frame<put_slices<Put::kRight>>},
    {"norm", BP_OP_NORM, on_frame<measure<Size::kRight>>},
    {"unfold", BP_OP_UNFOLD, on_frame<take_columns<true>>},
    {"fold", BP_OP_FOLD, on_frame<add_columns<true>>},
};

constexpr Mistake kWrong[] = {
    {"index_add", BP_OP_INDEX_ADD, on_frame<add_slices<false>>},
    {"index_put_first", BP_OP_INDEX_PUT, on_frame<put_slices<Put::kFirst>>},
    {"index_put_add", BP_OP_INDEX_PUT, on_frame<put_slices<Put::kOverwrites>>},
    {"norm_sign", BP_OP_NORM, on_frame<measure<Size::kSigned>>},
    {"norm_squares", BP_OP_NORM, on_frame<measure<Size::kSquares>>},
    {"unfold", BP_OP_UNFOLD, on_frame<take_columns<false>>},
    {"fold", BP_OP_FOLD, on_frame<add_columns<false>>},
};

}  // namespace

std::span<const Mistake> right_moves() { return kRight; }
std::span<const Mistake> wrong_moves() { return kWrong; }

}  // namespace bp::mutants
