// The walk over the rows, for kernels in which several invocations share a row (lanes.glsl).
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

// Makes the walk over the rows of `tensors`, which have one shape. The `count` axes from `first` on
// are the row, and the other axes count rows in row-major order. NULL repeats one row.
Walk make_row_walk(std::initializer_list<const bp_tensor*> tensors, uint32_t first, uint32_t count);

// Returns how many invocations share a row: many if rows are few or long, one if they are many and
// short. No invocation takes more than `most` elements of its row. Returns 0 if that is not
// possible.
uint32_t lanes_of_row(const Env& env, int64_t row_count, int64_t row_size, int64_t most);

// Returns the invocations of a workgroup in which `lanes` invocations share a row. On a processor a
// workgroup is a subgroup.
uint32_t row_group_size(const Env& env, uint32_t lanes);

// The number of neighbours that shaders take at a time from bound rows (row_values.glsl).
constexpr int64_t kNeighbours = 4;

// The buffers 0 to 3 of such a shader; NULL if it does not access that buffer.
using BoundTensors = std::array<const bp_tensor*, 4>;

// Returns whether all tensors begin at vectors and can be bound.
bool can_bind_all(const Launch& launch, const BoundTensors& tensors);

// Returns the ranges to bind. A buffer that is not accessed gets the range of another one.
std::array<Range, 4> bound_ranges(const Launch& launch, const BoundTensors& tensors);

// Copies the extents of a walk to a record.
void copy_extents(const Walk& walk, uint32_t (&out_extents)[BP_MAX_RANK]);

}  // namespace bp::vulkan
