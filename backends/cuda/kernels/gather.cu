// gather, index_select and embedding read the elements of x whose place along one axis an index
// names.
//
// If one index names a row of neighbours, a thread moves 16 bytes of it at once.
#include <array>

#include "backends/cuda/kernels/list.hpp"
#include "backends/cuda/kernels/map.cuh"

namespace bp::cuda {
namespace {

// The operands of the axes are y, x without the indexed axis, and the indices.
struct GatherPlan {
  std::byte* y = nullptr;
  const std::byte* x = nullptr;
  const std::byte* indices = nullptr;
  Axes<3> axes;
  int64_t axis_stride = 0;
  Bounds bounds;  // Of the axis.
  uint32_t units = 0;
  Reporter reporter{};
};

template <typename T, typename Index, int kVector>
__global__ void __launch_bounds__(kBlockThreads) gather_kernel(GatherPlan plan) {
  const uint32_t unit = blockIdx.x * kBlockThreads + threadIdx.x;
  if (unit >= plan.units) return;
  int64_t at[3];
  plan.axes.locate(unit, at);
  const Index* const place = reinterpret_cast<const Index*>(plan.indices) + at[2];
  const int64_t index = plan.bounds.acting(*place);
  if (!plan.bounds.contains(index)) return report(plan.reporter, index, place);
  using Unit = Vec<T, kVector>;
  const T* const from = reinterpret_cast<const T*>(plan.x) + at[1] + index * plan.axis_stride;
  *reinterpret_cast<Unit*>(reinterpret_cast<T*>(plan.y) + at[0]) =
      *reinterpret_cast<const Unit*>(from);
}

// Returns whether `lanes` elements of the inner axis share an index and can be moved at once.
bool has_rows(const Loop& loop, int64_t lanes, int64_t axis_stride) {
  if (loop.rank == 0 || !loop.has_vectors(lanes)) return false;
  const auto inner = static_cast<size_t>(loop.rank - 1);
  return loop.strides[2][inner] == 0 && loop.strides[1][inner] == 1 &&
         loop.extents[inner] % lanes == 0 && axis_stride % lanes == 0;
}

struct Axis {
  Bounds bounds;
  int64_t stride;
};

// Submits the op. The operands of `loop` are y, x and indices.
bp_status submit_gather(Launch& launch, const Loop& loop, Axis axis, const bp_tensor& indices) {
  const bool is_i64 = is_i64_index(indices.dtype);
  const Reporter reporter = launch.reporter(indices, "indices", axis.bounds.extent);
  const auto launch_part = [&]<typename T, int kVector>(T, const Loop& part,
                                                        std::integral_constant<int, kVector>) {
    GatherPlan plan;
    plan.y = const_cast<std::byte*>(part.data[0]);
    plan.x = part.data[1];
    plan.indices = part.data[2];
    plan.axes = part.axes<3>(kVector);
    plan.axis_stride = axis.stride;
    plan.bounds = axis.bounds;
    plan.units = static_cast<uint32_t>(part.count / kVector);
    plan.reporter = reporter;
    const unsigned blocks = blocks_for(plan.units, kBlockThreads);
    return is_i64 ? run<gather_kernel<T, int64_t, kVector>>(launch, blocks, kBlockThreads, 0, plan)
                  : run<gather_kernel<T, int32_t, kVector>>(launch, blocks, kBlockThreads, 0, plan);
  };
  return with_width(loop.size_bytes[0], [&]<typename T>(T) {
    for (const Loop& part : parts_of(loop)) {
      constexpr int kVector = kLanes<T>;
      const bp_status status = has_rows(part, kVector, axis.stride)
                                   ? launch_part(T{}, part, std::integral_constant<int, kVector>())
                                   : launch_part(T{}, part, std::integral_constant<int, 1>());
      if (status != BP_OK) return status;
    }
    return bp_status{BP_OK};
  });
}

using Strides = std::array<int64_t, kMaxRank>;

bp_status submit(Launch& launch, const bp_tensor& y, const bp_tensor& x, const Strides& x_strides,
                 const bp_tensor& indices, const Strides& index_strides, Axis axis) {
  const Operand from = {data<const std::byte>(x), x_strides.data(), dtype_size_bytes(x.dtype)};
  const Operand index = {data<const std::byte>(indices), index_strides.data(),
                         dtype_size_bytes(indices.dtype)};
  const Loop loop = make_loop(y.ndim, y.shape, {operand(&y), from, index});
  return submit_gather(launch, loop, axis, indices);
}

bp_status gather_launch(const bp_gather_args& args, Launch& launch) {
  const auto axis = static_cast<size_t>(args.axis);
  Strides x{}, indices{};
  std::copy_n(args.x->strides, args.x->ndim, x.begin());
  std::copy_n(args.indices->strides, args.indices->ndim, indices.begin());
  x[axis] = 0;
  return submit(launch, *args.y, *args.x, x, *args.indices, indices,
                {{axis_extent(*args.x, axis), args.bounds}, axis_stride(*args.x, axis)});
}

bp_status index_select_launch(const bp_index_select_args& args, Launch& launch) {
  const auto axis = static_cast<size_t>(args.axis);
  Strides x{}, indices{};
  std::copy_n(args.x->strides, args.x->ndim, x.begin());
  x[axis] = 0;
  indices[axis] = args.indices->strides[0];
  return submit(launch, *args.y, *args.x, x, *args.indices, indices,
                {{args.x->shape[axis], args.bounds}, args.x->strides[axis]});
}

bp_status embedding_launch(const bp_embedding_args& args, Launch& launch) {
  Strides x{}, indices{};
  std::copy_n(args.indices->strides, args.indices->ndim, indices.begin());
  x[args.indices->ndim] = args.weight->strides[1];
  return submit(launch, *args.y, *args.weight, x, *args.indices, indices,
                {{args.weight->shape[0], args.bounds}, args.weight->strides[0]});
}

constexpr auto kDtypes = with_indices(kAnyDtypes);

}  // namespace

constinit const bp_kernel kGather =
    make_kernel<bp_gather_args, gather_launch>(kernel_row("gather", BP_OP_GATHER, {kDtypes, 2}));
constinit const bp_kernel kIndexSelect = make_kernel<bp_index_select_args, index_select_launch>(
    kernel_row("index_select", BP_OP_INDEX_SELECT, {kDtypes, 2}));
constinit const bp_kernel kEmbedding = make_kernel<bp_embedding_args, embedding_launch>(
    kernel_row("embedding", BP_OP_EMBEDDING, {kDtypes, 2}));

}  // namespace bp::cuda
