// Iteration for reductions over any set of axes, of tensors with any strides.
//
// The axes of x are split into kept and reduced ones; each set is ordered by the strides of x, and
// neighbours are merged. The densest axis of x decides how x is walked:
//
//   along    the innermost axis is a reduced one: each output takes whole rows of x
//   across   the innermost axis is a kept one: kTileWidth outputs at a time take rows side by side
//
// Outputs whose rows are short share a tile as well, so that they share the cost of a tile.
//
// An op with few outputs and many elements is cut into parts. The results of the parts lie in the
// workspace (part, output) until they are combined in order. The order depends on the shape alone,
// so equal input gives equal bits for any number of threads.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>

#include "backends/host_kernels/kernels.hpp"
#include "backends/host_kernels/loop.hpp"

namespace bp::kernels {

// The most outputs of a tile.
constexpr int64_t kTileWidth = 512;

// Some axes of x, the outermost first. Strides are in bytes.
struct ReduceAxes {
  int rank = 0;
  int64_t count = 1;  // The product of the extents.
  std::array<int64_t, BP_MAX_RANK> extents{}, x_strides{}, y_strides{};
};

// Returns the extent of the innermost axis, or 1 if there is no axis.
inline int64_t inner_extent(const ReduceAxes& axes) {
  return axes.rank == 0 ? 1 : axes.extents[static_cast<size_t>(axes.rank - 1)];
}

struct ReducePlan {
  const std::byte* x = nullptr;
  std::byte* y = nullptr;
  ReduceAxes kept, reduced;
  bool is_across = false;
  int64_t tile_width = 1;  // Outputs of a tile; the last of a row may have fewer.
  int64_t part_count = 1;
  std::byte* parts = nullptr;   // (part_count, kept.count) accumulators of 8 bytes, or NULL.
  std::byte* shifts = nullptr;  // (kept.count) shifts of a reduction that has them and is cut.
};

// Makes the plan. Bit i of `axes` is set if axis i of x is reduced; y keeps this axis with extent 1
// if `keepdims` is true.
ReducePlan make_reduce_plan(const bp_tensor& x, const bp_tensor& y, uint32_t axes, bool keepdims);

// Returns the bits for a list of axes.
uint32_t axis_bits(uint64_t count, const int64_t* axes);

// How one op reduces one dtype. Accumulators and shifts have at most 8 bytes and lie without gaps.
struct Reducer {
  int64_t accumulator_size_bytes;
  // Sets n accumulators to the result of no elements.
  void (*start)(void* accumulators, int64_t n);
  // Sets n accumulators for a reduction over no axes, in which each result has one element.
  void (*start_of_one)(void* accumulators, int64_t n);
  // Adds n elements of x, `stride` bytes apart, to one accumulator, whose shift is `shift`.
  void (*along)(void* accumulator, const void* shift, const std::byte* x, int64_t stride,
                int64_t n);
  // Adds one element of each of `rows` rows, `row_stride` bytes apart, to each of n accumulators.
  void (*across)(void* accumulators, const void* shifts, const std::byte* x, int64_t row_stride,
                 int64_t rows, int64_t stride, int64_t n);
  // Combines n accumulators of later elements into n accumulators of earlier ones.
  void (*combine)(void* accumulators, const void* later, int64_t n);
  // Writes n results, `stride` bytes apart, of `count` elements each.
  void (*finish)(const void* accumulators, const void* shifts, std::byte* y, int64_t stride,
                 int64_t n, int64_t count);
  int64_t grain = kGrain;          // The elements that are worth a thread.
  const Reducer* shift = nullptr;  // Reduces x to shifts; NULL if there are none.
  int64_t shift_size_bytes = 0;
};

// Sets `parts` and `shifts` of the plan to places in `workspace`, and returns the size of the
// workspace in bytes.
uint64_t place_parts(ReducePlan& plan, std::byte* workspace, bool has_shifts);

void run_reduce(const ReducePlan& plan, const Reducer& reducer, int threads);

// x_address() returns where the elements of an output begin in x. y_address() returns the place of
// the output in y.
const std::byte* x_address(const ReducePlan& plan, int64_t output);
std::byte* y_address(const ReducePlan& plan, int64_t output);

// Bytes between neighbours on the innermost axis; 0 if there is no axis.
struct InnerStrides {
  int64_t kept_x, kept_y, reduced_x;
};
InnerStrides inner_strides(const ReducePlan& plan);

// The reduced elements of a part.
struct PartRange {
  int64_t begin, end;
};
inline PartRange part_range(const ReducePlan& plan, int64_t part) {
  return {plan.reduced.count * part / plan.part_count,
          plan.reduced.count * (part + 1) / plan.part_count};
}

// Returns the number of tiles of all outputs. There must be at least one output.
inline int64_t tile_count(const ReducePlan& plan) {
  const int64_t columns = inner_extent(plan.kept);
  return plan.kept.count / columns * ((columns + plan.tile_width - 1) / plan.tile_width);
}

// Calls body(part, output, n) for each part of each tile of n outputs, on up to `threads` threads.
// A thread is used for every `worth` elements. The outputs of a tile are neighbours on the
// innermost kept axis.
template <typename Body>
void for_each_tile(const ReducePlan& plan, int threads, int64_t worth, const Body& body) {
  if (plan.kept.count == 0) return;
  const int64_t columns = inner_extent(plan.kept), width = plan.tile_width;
  const int64_t tiles = tile_count(plan), tiles_per_row = tiles / (plan.kept.count / columns);
  const int64_t cost = std::max<int64_t>(1, plan.reduced.count / plan.part_count) * width;
  const int64_t grain = std::max<int64_t>(1, worth / cost);
  parallel_for(threads, tiles * plan.part_count, grain, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t tile = i % tiles, column = tile % tiles_per_row * width;
      body(i / tiles, tile / tiles_per_row * columns + column, std::min(width, columns - column));
    }
  });
}

// The kernels of the reductions that the operator specification gives by a formula.
#define BP_REDUCTION(name, Name, OP, dtypes) extern const bp_kernel k##Name;
#include "reductions.def"

}  // namespace bp::kernels
