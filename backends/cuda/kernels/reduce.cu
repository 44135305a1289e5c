#include <cstdlib>

#include "backends/cuda/kernels/reduce.cuh"

namespace bp::cuda {
namespace {

// So many blocks fill a large device a few times over. A chunk of one output with fewer elements
// than the other constants is not worth a second stage.
constexpr int64_t kBlocks = 1024, kBlocksAcross = 2048;
constexpr int64_t kLeastChunk = 4096, kLeastChunkAcross = 256;
// The most elements of a chunk. A thread adds a part of a chunk one element after the other, and
// the error of this sum must stay below the square root of the number of elements.
constexpr int64_t kMostChunk = int64_t{1} << 20, kMostChunkAcross = int64_t{1} << 15;

struct Shape {
  uint32_t ndim = 0;
  int64_t extents[kMaxRank], x_strides[kMaxRank], y_strides[kMaxRank];

  void add(int64_t extent, int64_t x_stride, int64_t y_stride) {
    extents[ndim] = extent;
    x_strides[ndim] = x_stride;
    y_strides[ndim++] = y_stride;
  }
};

// Returns the distance of neighbours along the inner axis of operand k.
int64_t inner_stride(const Loop& loop, int k) {
  return loop.rank == 0 ? INT64_MAX : std::abs(loop.strides[k][loop.rank - 1]);
}

// Returns whether each vector of `lanes` elements of a reduction along x is aligned.
bool has_vectors_along(const std::byte* x, const Loop& kept, const Loop& reduced, int lanes) {
  if (reduced.rank != 1 || reduced.strides[0][0] != 1) return false;
  if (reinterpret_cast<uintptr_t>(x) % 16 != 0) return false;
  for (int i = 0; i < kept.rank; ++i) {
    if (kept.strides[1][i] % lanes != 0) return false;
  }
  return true;
}

// Returns whether `lanes` neighbouring outputs lie side by side in x.
bool has_vectors_across(const std::byte* x, const Loop& kept, const Loop& reduced, int lanes) {
  const int inner = kept.rank - 1;
  if (inner < 0 || kept.strides[1][inner] != 1) return false;
  if (kept.extents[static_cast<size_t>(inner)] % lanes != 0) return false;
  const auto vector_bytes = static_cast<uintptr_t>(lanes * reduced.size_bytes[0]);
  if (reinterpret_cast<uintptr_t>(x) % vector_bytes != 0) return false;
  for (int i = 0; i < inner; ++i) {
    if (kept.strides[1][i] % lanes != 0) return false;
  }
  for (int i = 0; i < reduced.rank; ++i) {
    if (reduced.strides[0][i] % lanes != 0) return false;
  }
  return true;
}

// The members of a plan that are the same for all parts of x.
ReducePlan plan_of(const Reduction& r, const Loop& kept, const ReduceResult& result, void* parts) {
  ReducePlan plan;
  plan.kept = kept.axes<2>();
  plan.outputs = static_cast<uint32_t>(kept.count);
  plan.chunk = static_cast<uint32_t>(r.chunk);
  plan.parts = parts;
  plan.part_outputs = r.kept.count;
  plan.result = result;
  plan.result.y = const_cast<std::byte*>(kept.data[0]);
  return plan;
}

// Submits the stage over x for some outputs.
bp_status submit_stages(Launch& launch, const Reduction& r, const Loop& kept, ReducePlan plan,
                        const ReduceLaunchers& launchers) {
  plan.first_part = 0;
  plan.first = 0;
  for (const Loop& reduced : r.reduced_parts) {
    // A part begins at its kept offset plus its reduced offset from x.
    plan.x = kept.data[1] + (reduced.data[0] - r.reduced.data[0]);
    plan.reduced = reduced.axes<1>();
    plan.count = static_cast<uint32_t>(reduced.count);
    plan.has_vectors = r.is_across
                           ? has_vectors_across(plan.x, kept, reduced, launchers.across_lanes)
                           : has_vectors_along(plan.x, kept, reduced, launchers.lanes);
    const bp_status status = launchers.stage(launch, r, plan);
    if (status != BP_OK) return status;
    plan.first += reduced.count;
    plan.first_part += (reduced.count + r.chunk - 1) / r.chunk;
  }
  return BP_OK;
}

}  // namespace

uint32_t axis_bits(uint64_t count, const int64_t* axes) {
  uint32_t bits = 0;
  for (uint64_t i = 0; i < count; ++i) bits |= 1u << axes[i];
  return bits;
}

Reduction::Reduction(const bp_tensor& x, const bp_tensor& y, uint32_t axes, bool keeps_axes) {
  Shape kept_shape, reduced_shape;
  uint32_t y_axis = 0;
  for (uint32_t i = 0; i < x.ndim; ++i) {
    const bool is_reduced = (axes >> i & 1) != 0;
    if (is_reduced) {
      reduced_shape.add(x.shape[i], x.strides[i], 0);
    } else {
      kept_shape.add(x.shape[i], x.strides[i], y.strides[y_axis]);
    }
    if (!is_reduced || keeps_axes) ++y_axis;
  }
  const Operand from = operand(&x), to = operand(&y);
  kept = make_loop(kept_shape.ndim, kept_shape.extents,
                   {{to.data, kept_shape.y_strides, to.size_bytes},
                    {from.data, kept_shape.x_strides, from.size_bytes}});
  reduced = make_loop(reduced_shape.ndim, reduced_shape.extents,
                      {{from.data, reduced_shape.x_strides, from.size_bytes}});
  cut();
}

Reduction::Reduction(const Loop& kept_axes, const Loop& reduced_axes)
    : kept(kept_axes), reduced(reduced_axes) {
  cut();
}

void Reduction::cut() {
  reduced_parts = parts_of(reduced);
  if (reduced_parts.empty()) reduced_parts.push_back(reduced);
  // If there are few reduced elements, or outputs are neighbours, a warp reads along the outputs.
  is_across = kept.count >= kWarpSize && inner_stride(kept, 1) < inner_stride(reduced, 0);
  // The cut is the same if addresses allow no vectors: the workspace is known before them.
  const int64_t lanes =
      inner_stride(kept, 1) == 1 ? std::min(kMostAcrossLanes, 16 / reduced.size_bytes[0]) : 1;
  const int64_t of_group = is_across ? kWarpSize * lanes : 1;
  const int64_t groups = std::max<int64_t>(1, (kept.count + of_group - 1) / of_group);
  const int64_t wanted = std::max<int64_t>(1, (is_across ? kBlocksAcross : kBlocks) / groups);
  const int64_t least = is_across ? kLeastChunkAcross : kLeastChunk;
  const int64_t longest = std::max<int64_t>(1, std::min(reduced.count, kMaxLaunchElements));
  chunk = std::max<int64_t>(least, (longest + wanted - 1) / wanted);
  chunk = std::min(chunk, is_across ? kMostChunkAcross : kMostChunk);
  chunk = (chunk + 15) / 16 * 16;  // Whole vectors.
  part_count = 0;
  for (const Loop& part : reduced_parts) {
    part_count += std::max<int64_t>(1, (part.count + chunk - 1) / chunk);
  }
}

bp_status submit_reduction(Launch& launch, const Reduction& r, const ReduceResult& result,
                           const ReduceLaunchers& launchers) {
  void* const parts = r.part_count == 1 ? nullptr : launch.workspace();
  int64_t first_output = 0;
  for (const Loop& kept : parts_of(r.kept)) {
    ReducePlan plan = plan_of(r, kept, result, parts);
    plan.first_output = first_output;
    bp_status status = submit_stages(launch, r, kept, plan, launchers);
    if (status == BP_OK && parts != nullptr) {
      CombinePlan combining;
      combining.parts = parts;
      combining.part_count = r.part_count;
      combining.part_outputs = plan.part_outputs;
      combining.first_output = first_output;
      combining.kept = plan.kept;
      combining.outputs = plan.outputs;
      combining.result = plan.result;
      status = launchers.combine(launch, combining);
    }
    if (status != BP_OK) return status;
    first_output += kept.count;
  }
  return BP_OK;
}

}  // namespace bp::cuda
