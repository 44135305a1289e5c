// Element-wise updates in place of many tensors. One launch takes a batch of dense tensors, so that
// a model of many small parameters needs only a few launches. A tensor with gaps has its own
// launch.
//
// A method is a struct of what the update needs, with
//   kOperands, kWritten          tensors of one update, and a bit for each that it writes
//   Ready prepare() const        what all elements share; one thread of a block computes it
//   static void apply<C>(const Ready&, C (&values)[kOperands], Outcome&)
//   static void finish(const Method&, const Outcome&)   what a thread does at the end
#pragma once

#include <algorithm>
#include <vector>

#include "backends/cuda/kernels/kernels.hpp"

namespace bp::cuda {

// The tensors of one update, which are all dense in the same order of axes.
struct BatchItem {
  std::byte* at[kMaxOperands];
  int64_t count;
  uint32_t first_block;
  bool has_vectors;
};

constexpr int kBatchItems = 32;
constexpr uint32_t kBatchBlock = 2048;  // The elements of one block.

struct Batch {
  BatchItem items[kBatchItems];
  uint32_t count = 0;
};

template <class Method, typename T, int kVector>
__device__ __forceinline__ void update_unit(const typename Method::Ready& ready,
                                            T* const (&at)[Method::kOperands],
                                            typename Method::Outcome& outcome) {
  using C = Compute<T>;
  Vec<T, kVector> units[Method::kOperands];
  BP_UNROLL
  for (int k = 0; k < Method::kOperands; ++k) {
    units[k] = *reinterpret_cast<const Vec<T, kVector>*>(at[k]);
  }
  BP_UNROLL
  for (int i = 0; i < kVector; ++i) {
    C values[Method::kOperands];
    BP_UNROLL
    for (int k = 0; k < Method::kOperands; ++k) values[k] = widen(units[k].at[i]);
    Method::template apply<C>(ready, values, outcome);
    BP_UNROLL
    for (int k = 0; k < Method::kOperands; ++k) {
      if ((Method::kWritten >> k & 1) == 0) continue;
      units[k].at[i] = narrow<T>(values[k]);
      if constexpr (Method::kChecksStored) Method::check(widen(units[k].at[i]), outcome);
    }
  }
  BP_UNROLL
  for (int k = 0; k < Method::kOperands; ++k) {
    if ((Method::kWritten >> k & 1) != 0) {
      *reinterpret_cast<Vec<T, kVector>*>(at[k]) = units[k];
    }
  }
}

template <class Method, typename T>
__global__ void __launch_bounds__(kBlockThreads) update_batch_kernel(Method method, Batch batch) {
  __shared__ typename Method::Ready ready;
  if (threadIdx.x == 0) ready = method.prepare();
  __syncthreads();
  uint32_t number = 0;
  while (number + 1 < batch.count && batch.items[number + 1].first_block <= blockIdx.x) ++number;
  const BatchItem& item = batch.items[number];
  const int64_t begin = int64_t{blockIdx.x - item.first_block} * kBatchBlock;
  const int64_t end = item.count - begin < kBatchBlock ? item.count : begin + kBatchBlock;
  typename Method::Outcome outcome{};
  T* at[Method::kOperands];
  const auto seek = [&](int64_t i) {
    BP_UNROLL
    for (int k = 0; k < Method::kOperands; ++k) at[k] = reinterpret_cast<T*>(item.at[k]) + i;
  };
  constexpr int kVector = kLanes<T>;
  int64_t whole = begin;
  if (item.has_vectors) {
    whole = begin + (end - begin) / kVector * kVector;
    for (int64_t i = begin + threadIdx.x * kVector; i < whole; i += kBlockThreads * kVector) {
      seek(i);
      update_unit<Method, T, kVector>(ready, at, outcome);
    }
  }
  for (int64_t i = whole + threadIdx.x; i < end; i += kBlockThreads) {
    seek(i);
    update_unit<Method, T, 1>(ready, at, outcome);
  }
  method.finish(outcome);
}

// One part of tensors with gaps.
template <int kOperands>
struct UpdatePlan {
  std::byte* at[kOperands];
  Axes<kOperands> axes;
  uint32_t count;
};

template <class Method, typename T>
__global__ void __launch_bounds__(kBlockThreads)
    update_kernel(Method method, UpdatePlan<Method::kOperands> plan) {
  __shared__ typename Method::Ready ready;
  if (threadIdx.x == 0) ready = method.prepare();
  __syncthreads();
  const uint32_t i = blockIdx.x * kBlockThreads + threadIdx.x;
  if (i >= plan.count) return;
  int64_t offsets[Method::kOperands];
  plan.axes.locate(i, offsets);
  T* at[Method::kOperands];
  BP_UNROLL
  for (int k = 0; k < Method::kOperands; ++k) {
    at[k] = reinterpret_cast<T*>(plan.at[k]) + offsets[k];
  }
  typename Method::Outcome outcome{};
  update_unit<Method, T, 1>(ready, at, outcome);
  method.finish(outcome);
}

// ---- On the host --------------------------------------------------------------------------------

// Collects the loops of one dtype, without loops that have no elements.
template <class Method, typename T>
class Updates {
 public:
  Updates(Launch& launch, const Method& method) : launch_(launch), method_(method) {}

  bp_status add(const Loop& loop) {
    if (loop.count == 0) return BP_OK;
    if (!is_dense(loop)) return launch_loop(loop);
    BatchItem& item = batch_.items[batch_.count];
    bool has_vectors = true;
    for (size_t k = 0; k < Method::kOperands; ++k) {
      item.at[k] = const_cast<std::byte*>(loop.data[k]);
      has_vectors = has_vectors && reinterpret_cast<uintptr_t>(loop.data[k]) % 16 == 0;
    }
    item.count = loop.count;
    item.first_block = blocks_;
    item.has_vectors = has_vectors;
    blocks_ += blocks_for(loop.count, kBatchBlock);
    if (++batch_.count < kBatchItems) return BP_OK;
    return flush();
  }

  bp_status flush() {
    if (batch_.count == 0) return BP_OK;
    const bp_status status =
        run<update_batch_kernel<Method, T>>(launch_, blocks_, kBlockThreads, 0, method_, batch_);
    batch_.count = blocks_ = 0;
    return status;
  }

 private:
  static bool is_dense(const Loop& loop) {
    if (loop.rank > 1) return false;
    for (int k = 0; k < loop.operand_count; ++k) {
      if (loop.rank == 1 && loop.strides[k][0] != 1) return false;
    }
    return true;
  }

  bp_status launch_loop(const Loop& loop) {
    for (const Loop& part : parts_of(loop)) {
      UpdatePlan<Method::kOperands> plan;
      for (size_t k = 0; k < Method::kOperands; ++k) {
        plan.at[k] = const_cast<std::byte*>(part.data[k]);
      }
      plan.axes = part.axes<Method::kOperands>();
      plan.count = static_cast<uint32_t>(part.count);
      const bp_status status = run<update_kernel<Method, T>>(
          launch_, blocks_for(part.count, kBlockThreads), kBlockThreads, 0, method_, plan);
      if (status != BP_OK) return status;
    }
    return BP_OK;
  }

  Launch& launch_;
  const Method method_;
  Batch batch_;
  uint32_t blocks_ = 0;
};

// Updates the tensors of `list`, which may have different dtypes. loop_of(i) is the loop over the
// operands of tensor i.
template <class Method, typename LoopOf>
bp_status submit_updates(Launch& launch, const Method& method, uint64_t count,
                         const bp_tensor* const* list, const LoopOf& loop_of) {
  for (const bp_dtype dtype : kFloatDtypes) {
    const bp_status outcome = with_float(dtype, [&]<typename T>(T) {
      Updates<Method, T> updates(launch, method);
      for (uint64_t i = 0; i < count; ++i) {
        if (list[i]->dtype != dtype) continue;
        if (const bp_status status = updates.add(loop_of(i)); status != BP_OK) return status;
      }
      return updates.flush();
    });
    if (outcome != BP_OK) return outcome;
  }
  return BP_OK;
}

}  // namespace bp::cuda
