// scatter and scatter_reduce, for tensors of every layout. A line is the elements along `axis`.
//
// scatter finds, for each element of y, the last position that names it. It is the largest
// position, which does not depend on the order of the threads. scatter_reduce sorts the positions
// of a line by what they name (indices.cuh), and adds up each run of them (runs.cuh). Sums of
// 16-bit floats are f32, and are rounded once.
#include "backends/cuda/kernels/indices.cuh"
#include "backends/cuda/kernels/list.hpp"
#include "backends/cuda/kernels/runs.cuh"

namespace bp::cuda {
namespace {

struct ScatterPlan {
  RowTensor x, indices, src, y;
  int64_t lines = 0, count = 0, extent = 0;  // `count` positions in a line of `extent` elements.
  Bounds bounds;                             // Of a line.
  uint32_t* last = nullptr;                  // (lines, extent), the last position and one; or 0.
  Reporter reporter{};
};

struct ScatterSumPlan {
  ScatterPlan tensors;
  SortedIndices sorted;
  Runs runs;                   // Of one line; the keys are those of a thread's line.
  std::byte* parts = nullptr;  // Of all lines: kPartsOfChunk for each chunk.
};

template <typename Index>
__global__ void __launch_bounds__(kBlockThreads) find_last_kernel(ScatterPlan plan) {
  const int64_t at = int64_t{blockIdx.x} * kBlockThreads + threadIdx.x;
  if (at >= plan.lines * plan.count) return;
  const auto line = static_cast<uint32_t>(at / plan.count);
  const auto i = static_cast<uint32_t>(at % plan.count);
  const Index* const place = plan.indices.row<Index>(line) + plan.indices.elements.offset(i);
  const int64_t index = plan.bounds.acting(*place);
  if (!plan.bounds.contains(index)) return report(plan.reporter, index, place);
  atomicMax(plan.last + line * plan.extent + index, i + 1);
}

template <typename T>
__global__ void __launch_bounds__(kBlockThreads) scatter_kernel(ScatterPlan plan) {
  const int64_t at = int64_t{blockIdx.x} * kBlockThreads + threadIdx.x;
  if (at >= plan.lines * plan.extent) return;
  const auto line = static_cast<uint32_t>(at / plan.extent);
  const auto i = static_cast<uint32_t>(at % plan.extent);
  const uint32_t last = plan.last[at];
  const T value = last == 0 ? plan.x.row<T>(line)[plan.x.elements.offset(i)]
                            : plan.src.row<T>(line)[plan.src.elements.offset(last - 1)];
  plan.y.row<T>(line)[plan.y.elements.offset(i)] = value;
}

// Elements that nothing names keep what x has.
template <typename T>
__global__ void __launch_bounds__(kBlockThreads) copy_elements_kernel(ScatterPlan plan) {
  const int64_t at = int64_t{blockIdx.x} * kBlockThreads + threadIdx.x;
  if (at >= plan.lines * plan.extent) return;
  const auto line = static_cast<uint32_t>(at / plan.extent);
  const auto i = static_cast<uint32_t>(at % plan.extent);
  plan.y.row<T>(line)[plan.y.elements.offset(i)] = plan.x.row<T>(line)[plan.x.elements.offset(i)];
}

// The chunk of one thread: what runs.cuh asks for, of the line that has the chunk. Integers are
// added as unsigned numbers, which wrap.
template <typename T>
struct ScatterChunk {
  using Sum = Compute<T>;

  __device__ explicit ScatterChunk(const ScatterSumPlan& plan, int64_t at)
      : tensors(plan.tensors), runs(plan.runs), number(at % plan.runs.chunk_count()) {
    const int64_t chunks = plan.runs.chunk_count();
    line = static_cast<uint32_t>(at / chunks);
    runs.keys = plan.sorted.keys + line * tensors.count;
    positions = plan.sorted.positions + line * tensors.count;
    parts = reinterpret_cast<Sum*>(plan.parts) + line * chunks * kPartsOfChunk;
  }
  __device__ Sum term(int64_t k) const {
    return widen(tensors.src.row<T>(line)[tensors.src.elements.offset(positions[k])]);
  }
  __device__ void finish(uint32_t key, Sum total) const {
    const Sum before = widen(tensors.x.row<T>(line)[tensors.x.elements.offset(key)]);
    tensors.y.row<T>(line)[tensors.y.elements.offset(key)] =
        narrow<T>(static_cast<Sum>(before + total));
  }

  const ScatterPlan& tensors;
  Runs runs;
  int64_t number;
  uint32_t line;
  const uint32_t* positions;
  Sum* parts;
};

// Adds up chunks, or joins the parts that they left.
template <typename T, bool kJoinsParts>
__global__ void __launch_bounds__(kBlockThreads) scatter_runs_kernel(ScatterSumPlan plan) {
  const int64_t at = int64_t{blockIdx.x} * kBlockThreads + threadIdx.x;
  if (at >= plan.tensors.lines * plan.runs.chunk_count()) return;
  const ScatterChunk<T> chunk(plan, at);
  const auto finish = [&](uint32_t key, auto total) { chunk.finish(key, total); };
  const auto part = [&](int64_t number) { return chunk.parts + number; };
  if constexpr (kJoinsParts) {
    add_parts<Compute<T>>(chunk.runs, chunk.number, finish, part);
  } else {
    const auto term = [&](int64_t k) { return chunk.term(k); };
    add_chunk<Compute<T>>(chunk.runs, chunk.number, term, finish, part);
  }
}

template <typename Args>
ScatterPlan plan_of(const Args& args) {
  const uint32_t axes = 1u << args.axis;
  ScatterPlan plan;
  plan.x = row_tensor(*args.x, axes);
  plan.indices = row_tensor(*args.indices, axes);
  plan.src = row_tensor(*args.src, axes);
  plan.y = row_tensor(*args.y, axes);
  const RowExtents extents = row_extents(*args.y, axes);
  plan.lines = extents.rows;
  plan.extent = extents.count;
  plan.bounds = {plan.extent, args.bounds};
  plan.count = axis_extent(*args.indices, static_cast<size_t>(args.axis));
  return plan;
}

bp_status find_last(const ScatterPlan& plan, bool is_i64, Launch& launch) {
  const auto size_bytes = static_cast<size_t>(plan.lines * plan.extent) * sizeof(uint32_t);
  if (const bp_status status = launch.fill(plan.last, 0, size_bytes); status != BP_OK) {
    return status;
  }
  const unsigned blocks = blocks_for(plan.lines * plan.count, kBlockThreads);
  return is_i64 ? run<find_last_kernel<int64_t>>(launch, blocks, kBlockThreads, 0, plan)
                : run<find_last_kernel<int32_t>>(launch, blocks, kBlockThreads, 0, plan);
}

bp_status scatter_launch(const bp_scatter_args& args, Launch& launch) {
  ScatterPlan plan = plan_of(args);
  plan.last = launch.workspace<uint32_t>();
  plan.reporter = launch.reporter(*args.indices, "indices", plan.extent);
  const bp_status status = find_last(plan, is_i64_index(args.indices->dtype), launch);
  if (status != BP_OK) return status;
  const unsigned blocks = blocks_for(plan.lines * plan.extent, kBlockThreads);
  return with_width(dtype_size_bytes(args.x->dtype), [&]<typename T>(T) {
    return run<scatter_kernel<T>>(launch, blocks, kBlockThreads, 0, plan);
  });
}

template <typename T>
using Summed =
    std::conditional_t<std::is_integral_v<T>, std::make_unsigned<T>, std::type_identity<T>>::type;

template <typename T>
bp_status scatter_sums(const ScatterSumPlan& plan, Launch& launch) {
  const ScatterPlan& tensors = plan.tensors;
  bp_status status = BP_OK;
  if (tensors.x.data != tensors.y.data) {
    const unsigned blocks = blocks_for(tensors.lines * tensors.extent, kBlockThreads);
    status = run<copy_elements_kernel<T>>(launch, blocks, kBlockThreads, 0, tensors);
  }
  const unsigned blocks = blocks_for(tensors.lines * plan.runs.chunk_count(), kBlockThreads);
  if (status != BP_OK || blocks == 0) return status;
  status = run<scatter_runs_kernel<T, false>>(launch, blocks, kBlockThreads, 0, plan);
  if (status != BP_OK || plan.runs.chunk_count() == 1) return status;
  return run<scatter_runs_kernel<T, true>>(launch, blocks, kBlockThreads, 0, plan);
}

bp_status scatter_reduce_launch(const bp_scatter_reduce_args& args, Launch& launch) {
  ScatterSumPlan plan;
  plan.tensors = plan_of(args);
  IndexPlan indices;
  indices.indices = plan.tensors.indices;
  indices.lines = plan.tensors.lines;
  indices.count = plan.tensors.count;
  indices.bounds = plan.tensors.bounds;
  indices.reporter = launch.reporter(*args.indices, "indices", plan.tensors.extent);
  const bp_status status =
      sort_indices(launch, indices, is_i64_index(args.indices->dtype), launch.workspace());
  if (status != BP_OK) return status;
  plan.sorted = indices.sorted;
  plan.runs.count = indices.count;
  plan.runs.chunk = chunk_of(indices.count);
  plan.runs.extent = static_cast<uint32_t>(plan.tensors.extent);
  plan.parts = launch.workspace() + sort_indices_bytes(indices.lines, indices.count);
  return with_number(args.x->dtype,
                     [&]<typename T>(T) { return scatter_sums<Summed<T>>(plan, launch); });
}

uint64_t scatter_workspace(const bp_scatter_args& args, const Env&) {
  return static_cast<uint64_t>(element_count(*args.y)) * sizeof(uint32_t);
}

uint64_t scatter_reduce_workspace(const bp_scatter_reduce_args& args, const Env&) {
  const RowExtents extents = row_extents(*args.indices, 1u << args.axis);
  const int64_t chunk = chunk_of(extents.count), chunks = (extents.count + chunk - 1) / chunk;
  const uint64_t parts = static_cast<uint64_t>(extents.rows * chunks * kPartsOfChunk);
  return sort_indices_bytes(extents.rows, extents.count) +
         (chunks == 1 ? 0 : parts * sizeof(double));  // No sum is larger.
}

template <typename Args>
bp_reason supports(const Args& args) {
  if (const bp_reason reason = too_many_rows(*args.y, 1u << args.axis)) return reason;
  return too_many_rows(*args.indices, 1u << args.axis);
}

constexpr auto kMoved = with_indices(kAnyDtypes);
constexpr auto kAdded = with_indices(kNumberDtypes);

}  // namespace

constinit const bp_kernel kScatter =
    make_kernel<bp_scatter_args, scatter_launch, supports<bp_scatter_args>, scatter_workspace>(
        kernel_row("scatter", BP_OP_SCATTER, {kMoved, 2}, BP_KERNEL_IN_PLACE));
constinit const bp_kernel kScatterReduce =
    make_kernel<bp_scatter_reduce_args, scatter_reduce_launch, supports<bp_scatter_reduce_args>,
                scatter_reduce_workspace>(
        kernel_row("scatter_reduce", BP_OP_SCATTER_REDUCE, {kAdded, 2}, BP_KERNEL_IN_PLACE));

}  // namespace bp::cuda
