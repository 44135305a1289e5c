#include "backends/host_kernels/reduce.hpp"

#include <algorithm>
#include <cstdlib>
#include <cstring>

namespace bp::kernels {
namespace {

// A part has at least kPartSize elements. An op with too few tiles to keep the threads of a large
// machine busy is cut into parts.
constexpr int64_t kPartSize = 65536;
constexpr int64_t kManyTiles = 64;

// A tile of rows that are reduced along themselves has at least this many elements. The number is
// below kGrain, so that there are enough tiles for the threads.
constexpr int64_t kAlongElements = 16384;

void append(ReduceAxes& axes, int64_t extent, int64_t x_stride, int64_t y_stride) {
  axes.count *= extent;
  if (extent == 1) return;
  const auto end = static_cast<size_t>(axes.rank++);
  axes.extents[end] = extent;
  axes.x_strides[end] = x_stride;
  axes.y_strides[end] = y_stride;
}

// Orders the axes by the strides of x, and merges axes that continue each other in x and y.
void simplify(ReduceAxes& axes) {
  ReduceAxes ordered;
  std::array<bool, BP_MAX_RANK> is_taken{};
  for (int i = 0; i < axes.rank; ++i) {
    size_t outermost = BP_MAX_RANK;
    for (size_t k = 0; k < static_cast<size_t>(axes.rank); ++k) {
      if (is_taken[k]) continue;
      if (outermost == BP_MAX_RANK ||
          std::abs(axes.x_strides[k]) > std::abs(axes.x_strides[outermost])) {
        outermost = k;
      }
    }
    is_taken[outermost] = true;
    const int64_t extent = axes.extents[outermost];
    const int64_t x = axes.x_strides[outermost], y = axes.y_strides[outermost];
    const auto last = static_cast<size_t>(ordered.rank - 1);
    if (ordered.rank > 0 && ordered.x_strides[last] == x * extent &&
        ordered.y_strides[last] == y * extent) {
      ordered.extents[last] *= extent;
      ordered.x_strides[last] = x;
      ordered.y_strides[last] = y;
      ordered.count *= extent;
    } else {
      append(ordered, extent, x, y);
    }
  }
  ordered.count = axes.count;
  axes = ordered;
}

// Returns the bytes from the first element to element `index`.
int64_t offset_of(const ReduceAxes& axes, const std::array<int64_t, BP_MAX_RANK>& strides,
                  int64_t index) {
  int64_t offset = 0;
  for (auto axis = static_cast<size_t>(axes.rank); axis-- > 0;) {
    offset += index % axes.extents[axis] * strides[axis];
    index /= axes.extents[axis];
  }
  return offset;
}

// Calls row(x, n) for the rows of the reduced elements [begin, end). Their offsets are relative to
// x.
template <typename Row>
void for_each_row(const ReduceAxes& axes, const std::byte* x, int64_t begin, int64_t end,
                  const Row& row) {
  const int64_t length = inner_extent(axes);
  for (int64_t done = begin; done < end;) {
    const int64_t n = std::min(length - done % length, end - done);
    row(x + offset_of(axes, axes.x_strides, done), n);
    done += n;
  }
}

// The outputs [output, output + n), which are neighbours on the innermost kept axis.
struct Tile {
  int64_t output, n;
};

// Adds the reduced elements of `range` to the accumulators of a tile.
void accumulate(const ReducePlan& plan, const Reducer& reducer, PartRange range, Tile tile,
                void* accumulators, const void* shifts) {
  const std::byte* const x = x_address(plan, tile.output);
  const int64_t n = tile.n;
  const InnerStrides strides = inner_strides(plan);
  auto* const to = static_cast<std::byte*>(accumulators);
  const auto* const from = static_cast<const std::byte*>(shifts);
  reducer.start(accumulators, n);
  for_each_row(plan.reduced, x, range.begin, range.end, [&](const std::byte* row, int64_t length) {
    if (plan.is_across) {
      reducer.across(to, from, row, strides.reduced_x, length, strides.kept_x, n);
      return;
    }
    for (int64_t i = 0; i < n; ++i) {
      reducer.along(to + i * reducer.accumulator_size_bytes, from + i * reducer.shift_size_bytes,
                    row + i * strides.kept_x, strides.reduced_x, length);
    }
  });
}

// One value of 8 bytes for each output of a tile.
using TileValues = std::array<uint64_t, kTileWidth>;

// Returns the shifts of a tile. They are in the plan, or are computed in `own`.
const void* shifts_of_tile(const ReducePlan& plan, const Reducer& reducer, Tile tile,
                           TileValues& own) {
  if (reducer.shift == nullptr) return nullptr;
  if (plan.shifts != nullptr) return plan.shifts + tile.output * reducer.shift_size_bytes;
  alignas(64) TileValues accumulators;
  const PartRange all{0, plan.reduced.count};
  accumulate(plan, *reducer.shift, all, tile, accumulators.data(), nullptr);
  reducer.shift->finish(accumulators.data(), nullptr, reinterpret_cast<std::byte*>(own.data()),
                        reducer.shift_size_bytes, tile.n, plan.reduced.count);
  return own.data();
}

// Computes one part of a tile. The results go to y, or to their place in the workspace if there are
// several parts.
void reduce_tile(const ReducePlan& plan, const Reducer& reducer, int64_t part, Tile tile) {
  alignas(64) TileValues accumulators, own_shifts;
  const void* const shifts = shifts_of_tile(plan, reducer, tile, own_shifts);
  accumulate(plan, reducer, part_range(plan, part), tile, accumulators.data(), shifts);
  if (plan.part_count > 1) {
    std::byte* const place =
        plan.parts + (part * plan.kept.count + tile.output) * reducer.accumulator_size_bytes;
    std::memcpy(place, accumulators.data(),
                static_cast<size_t>(tile.n * reducer.accumulator_size_bytes));
    return;
  }
  reducer.finish(accumulators.data(), shifts, y_address(plan, tile.output),
                 inner_strides(plan).kept_y, tile.n, plan.reduced.count);
}

// Combines the parts of all outputs, in order.
void combine_parts(const ReducePlan& plan, const Reducer& reducer) {
  const int64_t size_bytes = plan.kept.count * reducer.accumulator_size_bytes;
  for (int64_t part = 1; part < plan.part_count; ++part) {
    reducer.combine(plan.parts, plan.parts + part * size_bytes, plan.kept.count);
  }
  const int64_t columns = inner_extent(plan.kept);
  for (int64_t output = 0; output < plan.kept.count; output += columns) {
    reducer.finish(plan.parts + output * reducer.accumulator_size_bytes,
                   plan.shifts + output * reducer.shift_size_bytes, y_address(plan, output),
                   inner_strides(plan).kept_y, columns, plan.reduced.count);
  }
}

// Computes the shifts of all outputs, which lie without gaps.
void find_shifts(ReducePlan plan, const Reducer& reducer, int threads) {
  plan.y = plan.shifts;
  int64_t stride = reducer.shift_size_bytes;
  for (auto axis = static_cast<size_t>(plan.kept.rank); axis-- > 0;) {
    plan.kept.y_strides[axis] = stride;
    stride *= plan.kept.extents[axis];
  }
  run_reduce(plan, *reducer.shift, threads);
}

}  // namespace

uint32_t axis_bits(uint64_t count, const int64_t* axes) {
  uint32_t bits = 0;
  for (uint64_t i = 0; i < count; ++i) bits |= 1u << axes[i];
  return bits;
}

ReducePlan make_reduce_plan(const bp_tensor& x, const bp_tensor& y, uint32_t axes, bool keepdims) {
  ReducePlan plan;
  plan.x = data<const std::byte>(x);
  plan.y = data<std::byte>(y);
  uint32_t y_axis = 0;
  for (uint32_t axis = 0; axis < x.ndim; ++axis) {
    const bool is_reduced = (axes >> axis & 1) != 0;
    const int64_t x_stride = x.strides[axis] * dtype_size_bytes(x.dtype);
    if (is_reduced) {
      append(plan.reduced, x.shape[axis], x_stride, 0);
      y_axis += keepdims ? 1 : 0;
    } else {
      append(plan.kept, x.shape[axis], x_stride, y.strides[y_axis++] * dtype_size_bytes(y.dtype));
    }
  }
  simplify(plan.kept);
  simplify(plan.reduced);
  const InnerStrides strides = inner_strides(plan);
  const bool is_kept_denser = std::abs(strides.kept_x) < std::abs(strides.reduced_x);
  // A call for each row of only a few elements would take too long.
  const bool is_short = inner_extent(plan.reduced) < 16 && inner_extent(plan.kept) >= 16;
  plan.is_across = plan.kept.rank > 0 && (plan.reduced.rank == 0 || is_kept_denser || is_short);
  if (plan.kept.count == 0) return plan;
  const int64_t widest =
      plan.is_across ? kTileWidth : kAlongElements / std::max<int64_t>(1, plan.reduced.count);
  plan.tile_width = std::clamp<int64_t>(widest, 1, std::min(kTileWidth, inner_extent(plan.kept)));
  const int64_t tiles = tile_count(plan);
  if (tiles < kManyTiles) {
    const int64_t worth = plan.reduced.count * plan.kept.count / (tiles * kPartSize);
    plan.part_count =
        std::clamp<int64_t>(worth, 1, std::min(kManyTiles / tiles, plan.reduced.count + 1));
  }
  return plan;
}

uint64_t place_parts(ReducePlan& plan, std::byte* workspace, bool has_shifts) {
  if (plan.part_count == 1) return 0;
  constexpr int64_t kSizeBytes = sizeof(uint64_t);
  const int64_t parts_size_bytes = plan.part_count * plan.kept.count * kSizeBytes;
  plan.parts = workspace;
  if (!has_shifts) return static_cast<uint64_t>(parts_size_bytes);
  plan.shifts = workspace == nullptr ? nullptr : workspace + parts_size_bytes;
  return static_cast<uint64_t>(parts_size_bytes + plan.kept.count * kSizeBytes);
}

const std::byte* x_address(const ReducePlan& plan, int64_t output) {
  return plan.x + offset_of(plan.kept, plan.kept.x_strides, output);
}

std::byte* y_address(const ReducePlan& plan, int64_t output) {
  return plan.y + offset_of(plan.kept, plan.kept.y_strides, output);
}

InnerStrides inner_strides(const ReducePlan& plan) {
  InnerStrides strides{};
  if (plan.kept.rank > 0) {
    const auto inner = static_cast<size_t>(plan.kept.rank - 1);
    strides.kept_x = plan.kept.x_strides[inner];
    strides.kept_y = plan.kept.y_strides[inner];
  }
  if (plan.reduced.rank > 0) {
    strides.reduced_x = plan.reduced.x_strides[static_cast<size_t>(plan.reduced.rank - 1)];
  }
  return strides;
}

void run_reduce(const ReducePlan& plan, const Reducer& reducer, int threads) {
  if (plan.shifts != nullptr && reducer.shift != nullptr) find_shifts(plan, reducer, threads);
  for_each_tile(plan, threads, reducer.grain, [&](int64_t part, int64_t output, int64_t n) {
    reduce_tile(plan, reducer, part, {output, n});
  });
  if (plan.part_count > 1 && plan.kept.count > 0) combine_parts(plan, reducer);
}

}  // namespace bp::kernels
