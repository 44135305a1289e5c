#include "backends/vulkan/kernels/reduce.hpp"

#include <algorithm>

#include "backends/vulkan/kernels/rows.hpp"
#include "backends/vulkan/kernels/walk.hpp"
#include "reductions.hpp"

namespace bp::vulkan {
namespace {

struct ReduceRecord {
  uint64_t x, y, shifts;
  uint64_t outer_count, inner_count;
  uint64_t part_count, part_size;
  uint64_t count;
  uint32_t outer_extents[BP_MAX_RANK];
  int64_t outer_x[BP_MAX_RANK];
  int64_t outer_y[BP_MAX_RANK];
  uint32_t inner_extents[BP_MAX_RANK];
  int64_t inner_x[BP_MAX_RANK];
  int64_t y_step;
};

static_assert(BP_OP_ARGMAX == 303 && BP_OP_ARGMIN == 310, "the shader has these numbers too");

// Returns whether the results of an op are indices.
constexpr bool gives_indices(uint32_t op) { return op == BP_OP_ARGMAX || op == BP_OP_ARGMIN; }

// A part has at most this many elements, so that no invocation takes more than 8,192: drivers may
// end a loop silently after 65,535 trips.
constexpr int64_t kMostOfPart = 65536, kMostOfLane = 8192;

// Returns the number of parts of a long sum. If there are few results, there are more parts, so
// that the device has enough work.
int64_t part_count(const Reduction& r) {
  if (gives_indices(r.op)) return 1;
  const int64_t needed = (r.inner_count + kMostOfPart - 1) / kMostOfPart;
  const int64_t wanted = r.outer_count < 64 ? std::min<int64_t>(64, r.inner_count / 8192) : 1;
  return std::max<int64_t>({1, needed, wanted});
}

// Returns the dtype of parts and shifts.
bp_dtype part_dtype(const Reduction& r) {
  if (counts(r.op)) return BP_I64;
  if (is_f32_class(r.from)) return BP_F32;
  return r.from == BP_F64 ? BP_F64 : BP_I64;
}

const Module& module_of(bp_dtype from) {
  if (is_f32_class(from)) return kReduceF32Module;
  return from == BP_F64 ? kReduceF64Module : kReduceI64Module;
}

// Refuses dtypes for which the module of a reduction has no code. An op may store
// indices. A reduction that counts takes every dtype that a module can load, and stores bools or
// counts.
void check_dtypes(const Reduction& r) {
  static constexpr bp_dtype kF64[] = {BP_F64};
  static constexpr bp_dtype kIntegers[] = {BP_I32, BP_I64}, kCounted[] = {BP_BOOL, BP_I32, BP_I64};
  static constexpr bp_dtype kCounts[] = {BP_BOOL, BP_I64};
  if (counts(r.op)) {
    one_of(kAnyDtypes, r.from);
    one_of(kCounts, r.to);
    return;
  }
  const auto check = [&](const auto& from, const auto& to) {
    one_of(from, r.from);
    gives_indices(r.op) ? one_of(kIndexDtypes, r.to) : one_of(to, r.to);
  };
  if (is_f32_class(r.from)) return check(kF32Dtypes, kF32Dtypes);
  if (r.from == BP_F64) return check(kF64, kF64);
  check(kCounted, kIntegers);
}

// Returns how many invocations share a result. If there are many results, each has one invocation.
uint32_t lanes_of(const Env& env, const Reduction& r, int64_t part_size) {
  const uint32_t least = env.is_processor() ? 8 : 32;
  uint32_t lanes = 1;
  if (r.outer_count < (env.is_processor() ? 64 : 16384) && part_size >= least) lanes = least;
  if (!env.is_processor() && r.inner_rank == 1 && part_size >= least &&
      r.inner_from[0] == dtype_size_bytes(r.from)) {
    lanes = least;
  }
  while (part_size > kMostOfLane * lanes && lanes < 256) lanes *= 2;
  return lanes;
}

// The way in which neighbours are read: one by one, four of one result, or one of each of four
// results.
enum class Neighbours { kNone, kAlong, kAcross };

Neighbours neighbours_of(const Launch& launch, const Reduction& r, int64_t part_size) {
  const int64_t item = dtype_size_bytes(r.from), bytes = item * kNeighbours;
  if (gives_indices(r.op) || counts(r.op) || !is_f32_class(r.from) || r.from_tensor == nullptr ||
      r.inner_count == 0 || !can_bind_all(launch, {r.from_tensor})) {
    return Neighbours::kNone;
  }
  const auto are_vectors = [&](const auto& strides, uint32_t first, uint32_t rank) {
    return std::all_of(strides.begin() + first, strides.begin() + std::max(first, rank),
                       [&](int64_t stride) { return stride % bytes == 0; });
  };
  if (r.inner_rank == 1 && r.inner_from[0] == item && r.inner_count % kNeighbours == 0 &&
      are_vectors(r.outer_from, 0, r.outer_rank)) {
    return Neighbours::kAlong;
  }
  if (r.outer_rank > 0 && r.outer_from[0] == item && r.outer_extents[0] % kNeighbours == 0 &&
      part_size <= kMostOfLane && are_vectors(r.outer_from, 1, r.outer_rank) &&
      are_vectors(r.inner_from, 0, r.inner_rank)) {
    return Neighbours::kAcross;
  }
  return Neighbours::kNone;
}

// Writes the axes of the record, and returns the outer rank. The parts of a result are the
// innermost outer axis. If `joins` is true, four results along their innermost axis become one.
uint32_t put_axes(const Reduction& r, int64_t parts, bool joins, ReduceRecord& record) {
  uint32_t rank = 0;
  const auto add_outer = [&](int64_t extent, int64_t from, int64_t to) {
    record.outer_extents[rank] = static_cast<uint32_t>(extent);
    record.outer_x[rank] = from;
    record.outer_y[rank++] = to;
  };
  if (parts > 1) add_outer(parts, 0, dtype_size_bytes(r.to));
  for (uint32_t i = 0; i < r.outer_rank; ++i) {
    const int64_t count = joins && i == 0 ? kNeighbours : 1;
    add_outer(r.outer_extents[i] / count, r.outer_from[i] * count, r.outer_to[i] * count);
  }
  if (rank == 0) add_outer(1, 0, 0);
  for (uint32_t i = 0; i < r.inner_rank; ++i) {
    record.inner_extents[i] = static_cast<uint32_t>(r.inner_extents[i]);
    record.inner_x[i] = r.inner_from[i];
  }
  return rank;
}

bp_status submit_stage(Launch& launch, const Reduction& r, int64_t parts, const Ranges& reads,
                       const Ranges& writes) {
  // Parts begin at vectors.
  const int64_t part_size =
      (r.inner_count + parts * kNeighbours - 1) / (parts * kNeighbours) * kNeighbours;
  const Neighbours neighbours = neighbours_of(launch, r, part_size);
  const bool joins = neighbours == Neighbours::kAcross;
  const uint32_t lanes = joins ? 1 : lanes_of(launch, r, part_size);
  if (part_size > kMostOfLane * lanes) {
    return launch.refuse(BP_UNSUPPORTED, "the axis has more than 2^21 elements");
  }
  const uint32_t size = joins ? row_group_size(launch, lanes) : std::max(local_size(launch), lanes);
  ReduceRecord record{};
  record.x = neighbours == Neighbours::kNone ? r.from_address : 0;
  record.y = r.to_address;
  record.shifts = r.shift_address;
  record.outer_count = static_cast<uint64_t>(r.outer_count * parts / (joins ? kNeighbours : 1));
  record.inner_count = static_cast<uint64_t>(r.inner_count);
  record.part_count = static_cast<uint64_t>(parts);
  record.part_size = static_cast<uint64_t>(part_size);
  record.count = static_cast<uint64_t>(r.count);
  record.y_step = r.outer_to[0];
  const uint32_t rank = put_axes(r, parts, joins, record);
  const std::array<uint32_t, 10> constants = {size,
                                              lanes,
                                              r.op,
                                              r.to,
                                              r.from,
                                              rank,
                                              std::max(r.inner_rank, 1u),
                                              joins ? 1u : 0u,
                                              r.maps ? 1u : 0u,
                                              r.finishes ? 1u : 0u};
  const uint64_t groups = ceil_divide(record.outer_count, size / lanes);
  if (neighbours == Neighbours::kNone) {
    return submit(launch, module_of(r.from), constants, record, groups, {reads, writes});
  }
  const auto bound = bound_ranges(launch, {nullptr, r.from_tensor, nullptr, nullptr});
  return submit(launch, kReduceBoundModule, constants, record, groups, {reads, writes, bound});
}

uint64_t parts_size_bytes(const Reduction& r) {
  const int64_t parts = part_count(r);
  return parts == 1
             ? 0
             : static_cast<uint64_t>(r.outer_count * parts * dtype_size_bytes(part_dtype(r)));
}

// Returns the reduction to scratch memory, where each result is the first of `parts` neighbours.
Reduction to_scratch(Reduction r, uint64_t address, int64_t parts) {
  r.to = part_dtype(r);
  r.to_address = address;
  int64_t stride = parts * dtype_size_bytes(r.to);
  for (uint32_t i = 0; i < r.outer_rank; ++i) {
    r.outer_to[i] = stride;
    stride *= r.outer_extents[i];
  }
  return r;
}

// Submits one pass, in parts if the reduction is long.
bp_status submit_pass(Launch& launch, const Reduction& r, const Ranges& reads, const Ranges& writes,
                      uint64_t workspace) {
  const int64_t parts = part_count(r);
  if (parts == 1) return submit_stage(launch, r, 1, reads, writes);
  Ranges scratch(launch);
  scratch.add(launch.workspace());

  Reduction first = to_scratch(r, workspace, parts);
  first.finishes = false;
  const bp_status status = submit_stage(launch, first, parts, reads, scratch);
  if (status != BP_OK) return status;

  Reduction second = r;
  second.maps = false;
  second.from = first.to;
  second.from_address = workspace;
  second.from_tensor = nullptr;
  second.outer_from = first.outer_to;
  second.inner_rank = 1;
  second.inner_extents = {parts};
  second.inner_from = {dtype_size_bytes(first.to)};
  second.inner_count = parts;
  return submit_stage(launch, second, 1, scratch, writes);
}

}  // namespace

Reduction make_reduction(uint32_t op, const bp_tensor& x, const bp_tensor& y, uint32_t axes) {
  Reduction r{.op = op, .from = x.dtype, .to = y.dtype};
  std::array<int64_t, BP_MAX_RANK> shape{}, x_strides{}, y_strides{}, inner{}, inner_x{};
  uint32_t outer_ndim = 0, inner_ndim = 0, y_axis = 0;
  const bool keeps = y.ndim == x.ndim;
  for (uint32_t i = 0; i < x.ndim; ++i) {
    if ((axes >> i & 1) != 0) {
      inner[inner_ndim] = x.shape[i];
      inner_x[inner_ndim++] = x.strides[i];
      if (keeps) ++y_axis;
      continue;
    }
    shape[outer_ndim] = x.shape[i];
    x_strides[outer_ndim] = x.strides[i];
    y_strides[outer_ndim++] = y.strides[y_axis++];
  }
  const WalkOperand outer_operands[] = {{x_strides.data(), dtype_size_bytes(x.dtype)},
                                        {y_strides.data(), dtype_size_bytes(y.dtype)}};
  const WalkOperand inner_operands[] = {{inner_x.data(), dtype_size_bytes(x.dtype)}};
  const Walk outer = make_walk(outer_ndim, shape.data(), outer_operands);
  // The order of elements decides which of several equal elements is the first.
  const Walk reduced = make_walk(inner_ndim, inner.data(), inner_operands, gives_indices(op));
  r.outer_rank = outer.rank;
  r.outer_extents = outer.extents;
  r.outer_from = outer.strides[0];
  r.outer_to = outer.strides[1];
  r.outer_count = outer.count;
  r.inner_rank = reduced.rank;
  r.inner_extents = reduced.extents;
  r.inner_from = reduced.strides[0];
  r.inner_count = r.count = reduced.count;
  return r;
}

uint64_t reduction_workspace(const Reduction& reduction) {
  const int64_t shifts = has_shift(reduction.op) ? reduction.outer_count : 0;
  return parts_size_bytes(reduction) +
         static_cast<uint64_t>(shifts * dtype_size_bytes(part_dtype(reduction)));
}

bp_status submit_reduction(Launch& launch, const Reduction& r, const Ranges& reads,
                           const Ranges& writes, uint64_t workspace) {
  if (r.outer_count == 0) return BP_OK;
  check_dtypes(r);
  if (!has_shift(r.op)) return submit_pass(launch, r, reads, writes, workspace);
  Ranges scratch(launch);
  scratch.add(launch.workspace());
  Reduction largest = to_scratch(r, workspace + parts_size_bytes(r), 1);
  largest.op = BP_OP_AMAX;
  const bp_status status = submit_pass(launch, largest, reads, scratch, workspace);
  if (status != BP_OK) return status;

  Reduction shifted = r;
  shifted.shift_address = largest.to_address;
  Ranges with_shifts = reads;
  with_shifts.add(launch.workspace());
  return submit_pass(launch, shifted, with_shifts, writes, workspace);
}

}  // namespace bp::vulkan
