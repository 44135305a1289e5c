// Element-wise kernels: y = op(x...) over tensors of one shape and any strides.
//
// If the inner axis is dense, a thread moves 16 bytes of the widest operand at once; else it moves
// one element. An operand with stride 0 along an axis, or with a value in the call, is read in
// place. y may be any x, because a thread reads its elements before it writes them.
#pragma once

#include <algorithm>
#include <utility>

#include "backends/cuda/kernels/kernels.hpp"

namespace bp::cuda {

// What a kernel knows of one loop. Operand 0 of the axes is y.
template <int kInputs>
struct MapPlan {
  std::byte* y = nullptr;
  const std::byte* x[kInputs] = {};
  bool is_one[kInputs] = {};  // The stride of the inner axis is 0.
  uint64_t scalar = 0;        // The value of an x without an address.
  Axes<kInputs + 1> axes;
  uint32_t units = 0;  // Units of kVector elements.
  uint32_t rest = 0;   // Elements behind the units, if there is one axis.
};

template <typename X, int kVector>
__device__ __forceinline__ Vec<X, kVector> load_unit(const std::byte* x, bool is_one,
                                                     const uint64_t& scalar, int64_t at) {
  const X* const from =
      x == nullptr ? reinterpret_cast<const X*>(&scalar) : reinterpret_cast<const X*>(x) + at;
  if (!is_one) return *reinterpret_cast<const Vec<X, kVector>*>(from);
  Vec<X, kVector> values;
  const X value = *from;
  BP_UNROLL
  for (int i = 0; i < kVector; ++i) values.at[i] = value;
  return values;
}

template <int kVector, class Op, typename Y, typename... X>
struct MapUnit {
  template <size_t... kIndex>
  __device__ __forceinline__ static void run(const MapPlan<sizeof...(X)>& plan, const Op& op,
                                             const int64_t (&at)[sizeof...(X) + 1],
                                             std::index_sequence<kIndex...>) {
    write(
        plan, op, at[0],
        load_unit<X, kVector>(plan.x[kIndex], plan.is_one[kIndex], plan.scalar, at[kIndex + 1])...);
  }

 private:
  __device__ __forceinline__ static void write(const MapPlan<sizeof...(X)>& plan, const Op& op,
                                               int64_t at, const Vec<X, kVector>&... values) {
    Vec<Y, kVector> result;
    BP_UNROLL
    for (int i = 0; i < kVector; ++i) result.at[i] = op(values.at[i]...);
    *reinterpret_cast<Vec<Y, kVector>*>(reinterpret_cast<Y*>(plan.y) + at) = result;
  }
};

template <int kVector, class Op, typename Y, typename... X>
__global__ void __launch_bounds__(kBlockThreads) map_kernel(MapPlan<sizeof...(X)> plan, Op op) {
  constexpr auto kIndices = std::index_sequence_for<X...>();
  const uint32_t unit = blockIdx.x * kBlockThreads + threadIdx.x;
  int64_t at[sizeof...(X) + 1];
  if (unit < plan.units) {
    plan.axes.locate(unit, at);
    MapUnit<kVector, Op, Y, X...>::run(plan, op, at, kIndices);
  } else if (kVector > 1 && unit - plan.units < plan.rest) {
    at[0] = int64_t{plan.units} * kVector + (unit - plan.units);
    BP_UNROLL
    for (size_t k = 0; k < sizeof...(X); ++k) at[k + 1] = plan.is_one[k] ? 0 : at[0];
    MapUnit<1, Op, Y, X...>::run(plan, op, at, kIndices);
  }
}

// The plan of a part of a loop, for a kernel whose threads move `vector` elements.
template <int kInputs>
MapPlan<kInputs> map_plan_of(const Loop& part, int vector, uint64_t scalar) {
  MapPlan<kInputs> plan;
  plan.scalar = scalar;
  plan.y = const_cast<std::byte*>(part.data[0]);
  plan.axes = part.axes<kInputs + 1>(vector);
  plan.units = static_cast<uint32_t>(part.count / vector);
  plan.rest = static_cast<uint32_t>(part.count % vector);
  for (int k = 0; k < kInputs; ++k) {
    plan.x[k] = part.data[k + 1];
    plan.is_one[k] = part.rank == 0 || part.strides[k + 1][part.rank - 1] == 0 ||
                     plan.x[k] == nullptr || vector == 1;
  }
  return plan;
}

// How kernels of one op are launched: with units of `vector` elements, and of one. There are
// hundreds of them, so what does not depend on the op is compiled once.
template <int kInputs>
struct MapLaunchers {
  using Launcher = bp_status (*)(Launch&, const MapPlan<kInputs>&, const void* op);

  [[gnu::noinline]] bp_status submit(Launch& launch, const Loop& loop, uint64_t scalar,
                                     const void* op) const {
    for (const Loop& part : parts_of(loop)) {
      const bool is_wide = part.has_vectors(vector);
      const auto plan = map_plan_of<kInputs>(part, is_wide ? vector : 1, scalar);
      const bp_status status = (is_wide ? wide : narrow)(launch, plan, op);
      if (status != BP_OK) return status;
    }
    return BP_OK;
  }

  int vector;
  Launcher wide, narrow;
};

template <int kVector, class Op, typename Y, typename... X>
bp_status launch_map(Launch& launch, const MapPlan<sizeof...(X)>& plan, const void* op) {
  return run<map_kernel<kVector, Op, Y, X...>>(
      launch, blocks_for(int64_t{plan.units} + plan.rest, kBlockThreads), kBlockThreads, 0, plan,
      *static_cast<const Op*>(op));
}

// Launches y = op(x...) over `loop`; `scalar` is the value of an operand without an address.
template <class Op, typename Y, typename... X>
bp_status submit_map(Launch& launch, const Op& op, const Loop& loop, uint64_t scalar = 0) {
  constexpr int kVector = 16 / static_cast<int>(std::max({sizeof(Y), sizeof(X)...}));
  constexpr MapLaunchers<sizeof...(X)> kLaunchers = {kVector, launch_map<kVector, Op, Y, X...>,
                                                     launch_map<1, Op, Y, X...>};
  return kLaunchers.submit(launch, loop, scalar, &op);
}

// Makes a loop over tensors of one shape. The first one is the result; NULL stands for a value in
// the call.
template <typename... Tensors>
Loop loop_over(const bp_tensor& y, const Tensors*... x) {
  return make_loop(y.ndim, y.shape, {operand(&y), operand(x)...});
}

}  // namespace bp::cuda
