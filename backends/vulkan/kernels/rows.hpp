// Kernels that work row by row, several invocations each (lanes.glsl): the walk over the rows.
#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>

#include "backends/vulkan/kernels/submit.hpp"
#include "backends/vulkan/kernels/walk.hpp"

namespace bp::vulkan {

// The most invocations of a row.
constexpr int64_t kMostLanes = 256;

inline constexpr const char* kRowTooLong = "a row is too long for one workgroup";

// The walk over the rows of `tensors`, which are of one shape, without the `count` axes from
// `first` on: rows in row-major order. NULL repeats one row.
Walk make_row_walk(std::initializer_list<const bp_tensor*> tensors, uint32_t first, uint32_t count);

// How many invocations share a row: many where rows are few or long, one where they are many and
// short. None takes more than `most` elements of its row; 0 if that cannot be.
uint32_t lanes_of_row(const Env& env, int64_t row_count, int64_t row_size, int64_t most);

// The invocations of a workgroup whose rows are shared by `lanes` each. A subgroup is enough for a
// processor.
uint32_t row_group_size(const Env& env, uint32_t lanes);

// How many neighbours shaders take at a time of rows that are bound (row_values.glsl).
constexpr int64_t kNeighbours = 4;

// What such a shader has as buffers 0 to 3; NULL: it does not touch that one.
using BoundTensors = std::array<const bp_tensor*, 4>;

// Whether all begin at vectors and can be bound.
bool can_bind_all(const Launch& launch, const BoundTensors& tensors);

// The ranges that are then bound. A place that is not touched has another's range.
std::array<Range, 4> bound_ranges(const Launch& launch, const BoundTensors& tensors);

// The extents of a walk, as records have them.
void copy_extents(const Walk& walk, uint32_t (&out_extents)[BP_MAX_RANK]);

}  // namespace bp::vulkan
