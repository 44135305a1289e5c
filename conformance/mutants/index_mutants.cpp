// Mutants of the ops that find, select and scan elements, and of windows over them. Each makes a
// mistake that kernels of its op may make.
#include <algorithm>
#include <cmath>
#include <vector>

#include "backplane/ops.h"
#include "conformance/mutants/lines.hpp"
#include "conformance/mutants/mistakes.hpp"

namespace bp::mutants {
namespace {

// ---- nonzero, masked_select and searchsorted ----------------------------------------------------

using Place = std::vector<double>;  // The indices of an element along each axis.

// Returns the used rows of the result of nonzero.
std::vector<Place> places_in(const Values& indices, size_t axes) {
  std::vector<Place> places;
  for (size_t first = 0; axes != 0 && first < indices.size() && indices[first] >= 0;
       first += axes) {
    Place& place = places.emplace_back();
    for (size_t axis = 0; axis < axes; ++axis) place.push_back(indices[first + axis]);
  }
  return places;
}

// Lists the places as they lie in an array whose first index runs fastest.
bp_status list_by_columns(const Call& call, const bp_nonzero_args& frame) {
  if (const bp_status status = call.run(&frame); status != BP_OK) return status;
  Values indices(call, *frame.indices);
  const auto axes = static_cast<size_t>(frame.indices->shape[1]);
  std::vector<Place> places = places_in(indices, axes);
  std::ranges::sort(places, [](const Place& a, const Place& b) {
    return std::lexicographical_compare(a.rbegin(), a.rend(), b.rbegin(), b.rend());
  });
  for (size_t i = 0; i < places.size() * axes; ++i) indices.set(i, places[i / axes][i % axes]);
  return indices.write();
}

// Compares by `x < 0 || x > 0`, so that NaN is no element that differs from 0.
bp_status skip_nan(const Call& call, const bp_nonzero_args& frame) {
  const Values x(call, *frame.x);
  if (const bp_status status = first_failure({&x}); status != BP_OK) return status;
  if (const bp_status status = call.run(&frame); status != BP_OK) return status;
  Values indices(call, *frame.indices);
  const auto axes = static_cast<size_t>(frame.indices->shape[1]);
  size_t kept = 0;
  for (const Place& place : places_in(indices, axes)) {
    double at = 0;
    for (size_t axis = 0; axis < axes; ++axis) {
      at = at * static_cast<double>(frame.x->shape[axis]) + place[axis];
    }
    if (std::isnan(x[static_cast<size_t>(at)])) continue;
    for (size_t axis = 0; axis < axes; ++axis) indices.set(kept * axes + axis, place[axis]);
    ++kept;
  }
  for (size_t i = kept * axes; i < indices.size(); ++i) indices.set(i, -1);
  return indices.write();
}

// Writes as many elements as the mask selects, and leaves the rest of the result.
bp_status write_the_selected(const Call& call, const bp_masked_select_args& frame) {
  const Values mask(call, *frame.mask);
  size_t selected = 0;
  for (size_t i = 0; i < mask.size(); ++i) selected += mask[i] != 0;
  return leave_elements(call, &frame, *frame.y, [=](size_t i) { return i >= selected; });
}

// Takes the other side of equal elements.
bp_status search_other_side(const Call& call, const bp_searchsorted_args& args) {
  bp_searchsorted_args frame = args;
  const bool is_left = args.side == BP_SEARCHSORTED_SIDE_LEFT;
  frame.side = is_left ? BP_SEARCHSORTED_SIDE_RIGHT : BP_SEARCHSORTED_SIDE_LEFT;
  return call.run(&frame);
}

// Searches with `<` alone, by which NaN belongs in front of all elements.
bp_status search_nan_in_front(const Call& call, const bp_searchsorted_args& frame) {
  const Values values(call, *frame.values);
  if (const bp_status status = first_failure({&values}); status != BP_OK) return status;
  if (const bp_status status = call.run(&frame); status != BP_OK) return status;
  Values y(call, *frame.y);
  for (size_t i = 0; i < y.size(); ++i) {
    if (std::isnan(values[i])) y.set(i, 0);
  }
  return y.write();
}

// ---- Scans --------------------------------------------------------------------------------------

// Gives the index of the first of equal maxima.
bp_status index_of_the_first(const Call& call, const bp_cummax_args& frame) {
  if (const bp_status status = call.run(&frame); status != BP_OK) return status;
  if (frame.indices == nullptr) return BP_OK;
  const Values y(call, *frame.y);
  Values indices(call, *frame.indices);
  for_each_line(y, *frame.y, frame.axis, [&](const Line& line) {
    for (size_t i = 1; i < line.count; ++i) {
      const double now = y[line.at(i)], before = y[line.at(i - 1)];
      const bool is_same = now == before || (std::isnan(now) && std::isnan(before));
      if (is_same) indices.set(line.at(i), indices[line.at(i - 1)]);
    }
  });
  return indices.write();
}

// Compares with `<`, so that a NaN is passed over.
bp_status pass_over_nan(const Call& call, const bp_cummin_args& frame) {
  const Values x(call, *frame.x);
  if (const bp_status status = first_failure({&x}); status != BP_OK) return status;
  if (const bp_status status = call.run(&frame); status != BP_OK) return status;
  Values y(call, *frame.y);
  for_each_line(x, *frame.x, frame.axis, [&](const Line& line) {
    double least = x[line.first];
    for (size_t i = 0; i < line.count; ++i) {
      least = std::fmin(least, x[line.at(i)]);
      y.set(line.at(i), least);
    }
  });
  return y.write();
}

// Adds exponentials in f32. `total` is that of the elements before, and grows.
void add_exponentials(const Line& line, Values& y, float& total) {
  for (size_t i = 0; i < line.count; ++i) {
    total += std::exp(line[i]);
    y.set(line.at(i), std::log(total));
  }
}

// Adds the exponentials of the elements as they are, which overflow.
bp_status add_without_maximum(const Call& call, const bp_logcumsumexp_args& frame) {
  if (frame.is_reverse != 0 || frame.x->dtype != BP_F32) return call.run(&frame);
  const Values x(call, *frame.x);
  Values y(call, *frame.y);
  if (const bp_status status = first_failure({&x, &y}); status != BP_OK) return status;
  for_each_line(x, *frame.x, frame.axis, [&](const Line& line) {
    float total = 0;
    add_exponentials(line, y, total);
  });
  return y.write();
}

// Begins each line with the sum of the line before.
bp_status carry_into_next_line(const Call& call, const bp_logcumsumexp_args& frame) {
  if (frame.is_reverse != 0 || frame.x->dtype != BP_F32) return call.run(&frame);
  const Values x(call, *frame.x);
  Values y(call, *frame.y);
  if (const bp_status status = first_failure({&x, &y}); status != BP_OK) return status;
  float total = 0;
  for_each_line(x, *frame.x, frame.axis,
                [&](const Line& line) { add_exponentials(line, y, total); });
  return y.write();
}

// Forgets in reversed sums that they leave their own element out.
bp_status include_in_reverse(const Call& call, const bp_cumsum_args& args) {
  bp_cumsum_args frame = args;
  if (frame.is_reverse != 0) frame.is_exclusive = 0;
  return call.run(&frame);
}

// Sums blocks of 256 elements, and does not add the sums of the blocks before.
bp_status restart_in_blocks(const Call& call, const bp_cumsum_args& frame) {
  constexpr size_t kBlock = 256;
  if (const bp_status status = call.run(&frame); status != BP_OK) return status;
  if (frame.is_reverse != 0 || frame.is_exclusive != 0) return BP_OK;
  const Values sums(call, *frame.y);
  Values y(call, *frame.y);
  for_each_line(sums, *frame.y, frame.axis, [&](const Line& line) {
    for (size_t i = kBlock; i < line.count; ++i) {
      const double before = sums[line.at(i / kBlock * kBlock - 1)];
      y.set(line.at(i), sums[line.at(i)] - before);
    }
  });
  return y.write();
}

// Divides the products by their own element to leave it out, which a 0 does not allow.
bp_status divide_own_element_out(const Call& call, const bp_cumprod_args& args) {
  const bool is_f32 = args.x->dtype == BP_F32 && args.y->dtype == BP_F32;
  if (args.is_exclusive == 0 || !is_f32) return call.run(&args);
  const Values x(call, *args.x);
  if (const bp_status status = first_failure({&x}); status != BP_OK) return status;
  bp_cumprod_args frame = args;
  frame.is_exclusive = 0;
  if (const bp_status status = call.run(&frame); status != BP_OK) return status;
  Values y(call, *args.y);
  for (size_t i = 0; i < y.size(); ++i) y.set(i, y[i] / x[i]);
  return y.write();
}

// ---- Windows ------------------------------------------------------------------------------------

// The elements of one axis in a window of adaptive pooling.
struct Extent {
  int64_t begin, end;
};

Extent window_along(int64_t i, int64_t n, int64_t m) {
  return {i * n / m, ((i + 1) * n + m - 1) / m};
}

// Ends at the last element that is whole in the window.
Extent short_window_along(int64_t i, int64_t n, int64_t m) {
  return {i * n / m, std::max(i * n / m + 1, (i + 1) * n / m)};
}

// Returns the numbers of the elements of the window `window` of a plane, flat over its axes.
std::vector<size_t> elements_of_window(const bp_tensor& x, const bp_tensor& y, int64_t window,
                                       Extent (*along)(int64_t, int64_t, int64_t)) {
  std::vector<Extent> extents(x.ndim);
  for (uint32_t axis = x.ndim; axis-- > 2;) {
    extents[axis] = along(window % y.shape[axis], x.shape[axis], y.shape[axis]);
    window /= y.shape[axis];
  }
  std::vector<size_t> elements = {0};
  for (uint32_t axis = 2; axis < x.ndim; ++axis) {
    std::vector<size_t> longer;
    for (const size_t before : elements) {
      for (int64_t at = extents[axis].begin; at < extents[axis].end; ++at) {
        longer.push_back(before * static_cast<size_t>(x.shape[axis]) + static_cast<size_t>(at));
      }
    }
    elements = std::move(longer);
  }
  return elements;
}

int64_t elements_per_plane(const bp_tensor& tensor) {
  int64_t count = 1;
  for (uint32_t axis = 2; axis < tensor.ndim; ++axis) count *= tensor.shape[axis];
  return count;
}

// Ends each window at floor((i + 1) * n / m), and not at the next integer above.
bp_status end_windows_early(const Call& call, const bp_adaptive_max_pool_args& frame) {
  const Values x(call, *frame.x);
  if (const bp_status status = first_failure({&x}); status != BP_OK) return status;
  if (const bp_status status = call.run(&frame); status != BP_OK) return status;
  Values y(call, *frame.y);
  const auto windows = static_cast<size_t>(elements_per_plane(*frame.y));
  const auto plane = static_cast<size_t>(elements_per_plane(*frame.x));
  for (size_t i = 0; i < y.size(); ++i) {
    double most = -HUGE_VAL;
    for (const size_t at : elements_of_window(*frame.x, *frame.y, static_cast<int64_t>(i % windows),
                                              short_window_along)) {
      const double value = x[i / windows * plane + at];
      if (!(value <= most)) most = value;
      if (std::isnan(most)) break;
    }
    y.set(i, most);
  }
  return y.write();
}

// Divides by the size of the largest window, as if all had it.
bp_status divide_by_one_size(const Call& call, const bp_adaptive_avg_pool_args& frame) {
  if (const bp_status status = call.run(&frame); status != BP_OK) return status;
  Values y(call, *frame.y);
  const auto windows = static_cast<size_t>(elements_per_plane(*frame.y));
  std::vector<double> sizes;
  for (size_t i = 0; i < std::min(windows, y.size()); ++i) {
    const auto window = static_cast<int64_t>(i);
    const auto size = elements_of_window(*frame.x, *frame.y, window, window_along).size();
    sizes.push_back(static_cast<double>(size));
  }
  if (sizes.empty()) return BP_OK;
  const double largest = *std::ranges::max_element(sizes);
  for (size_t i = 0; i < y.size() && largest != 0; ++i) {
    y.set(i, y[i] * sizes[i % windows] / largest);
  }
  return y.write();
}

// Knows no corners that align.
bp_status align_no_corners(const Call& call, const bp_interpolate_args& args) {
  bp_interpolate_args frame = args;
  if (frame.coordinates == BP_INTERPOLATE_COORDINATES_ALIGN_CORNERS) {
    frame.coordinates = BP_INTERPOLATE_COORDINATES_HALF_PIXEL;
  }
  return call.run(&frame);
}

// Takes the second of two equally near elements always.
bp_status round_halves_up(const Call& call, const bp_interpolate_args& args) {
  bp_interpolate_args frame = args;
  if (frame.rounding == BP_INTERPOLATE_ROUNDING_HALF_DOWN) {
    frame.rounding = BP_INTERPOLATE_ROUNDING_HALF_UP;
  }
  return call.run(&frame);
}

constexpr Mistake kMistakes[] = {
    {"nonzero_columns", BP_OP_NONZERO, on_frame<list_by_columns>},
    {"nonzero_nan", BP_OP_NONZERO, on_frame<skip_nan>},
    {"masked_select", BP_OP_MASKED_SELECT, on_frame<write_the_selected>},
    {"searchsorted", BP_OP_SEARCHSORTED, on_frame<search_other_side>},
    {"searchsorted_nan", BP_OP_SEARCHSORTED, on_frame<search_nan_in_front>},
    {"cummax", BP_OP_CUMMAX, on_frame<index_of_the_first>},
    {"cummin", BP_OP_CUMMIN, on_frame<pass_over_nan>},
    {"logcumsumexp", BP_OP_LOGCUMSUMEXP, on_frame<add_without_maximum>},
    {"logcumsumexp_lines", BP_OP_LOGCUMSUMEXP, on_frame<carry_into_next_line>},
    {"cumsum", BP_OP_CUMSUM, on_frame<include_in_reverse>},
    {"cumsum_blocks", BP_OP_CUMSUM, on_frame<restart_in_blocks>},
    {"cumprod", BP_OP_CUMPROD, on_frame<divide_own_element_out>},
    {"adaptive_max_pool", BP_OP_ADAPTIVE_MAX_POOL, on_frame<end_windows_early>},
    {"adaptive_avg_pool", BP_OP_ADAPTIVE_AVG_POOL, on_frame<divide_by_one_size>},
    {"interpolate_corners", BP_OP_INTERPOLATE, on_frame<align_no_corners>},
    {"interpolate_halves", BP_OP_INTERPOLATE, on_frame<round_halves_up>},
};

// 61: finds, selects, scans or pools wrongly.
constexpr Mutant kTable[] = {
    {.id = "61", .ops = {}, .launch = make_mistake<kMistakes>, .replaces = has_row<kMistakes>},
};

}  // namespace

std::span<const Mutant> index_mutants() { return kTable; }

}  // namespace bp::mutants
