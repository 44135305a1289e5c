// A device on the host. Kernels that are compiled as C++ run here, block by block, with a fiber for
// each thread of a block. Barriers and shuffles are real: a fiber waits in them for the others, and
// if a thread does not arrive, an error names the kernel's block. Fibers run up to the next
// barrier, in ascending order in one block and in descending order in the next, so that a missing
// barrier shows. The emulation proves the results of kernels, but neither their speed nor memory
// ordering.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <tuple>
#include <utility>

#include "backends/cuda/emulation/unchecked.hpp"
#include "backends/cuda/fake/cuda.hpp"

namespace bp::cuda::emulation {

// Where a fiber is in the grid, and what it keeps.
struct Place {
  uint3 thread{}, block{};
  dim3 threads, blocks;
  unsigned shuffles = 0;   // The count so far, equal in a warp.
  uint64_t additions = 0;  // See longest_sum().
  std::byte* shared = nullptr;
};

// The place of the running fiber.
extern thread_local constinit Place* running_place;

inline Place& place() { return *running_place; }

// These functions wait for all threads of the block, or for all lanes of the warp.
void wait_for_block();
void wait_for_warp();

// Waits for all lanes of the warp, but orders no accesses of memory. Shuffles do so.
void wait_for_exchange();

// Returns the memory in which the lanes of the running warp exchange values, 16 bytes for each
// lane.
std::byte* exchange_slots(unsigned parity);

// The grid of a launch. It is the last argument of a launch here, behind the kernel's arguments.
struct Grid {
  dim3 blocks, threads;
  size_t shared_bytes;
};

// Counts an addition of the running thread to a sum of many terms (LongSum).
void count_addition();

// Returns the most such additions that one thread made in a launch, of all launches that ended
// since the last call. On a device each of them waits for the one before, and for its load: some
// 0.5 us.
uint64_t longest_sum();

// Runs `thread` for each thread of a grid. Throws std::logic_error if threads of a block wait for
// each other forever.
void run(const Grid& grid, const std::function<void()>& thread);

// Returns what a launch passes to the driver in place of kKernel. The first call registers it with
// the fake CUDA, which copies the arguments at the launch and runs the grid on the stream.
template <auto kKernel, typename... Params>
const void* entry_of() {
  static const char entry = 0;
  static const bool is_known = [] {
    fake::add_kernel(&entry, [](void** args) -> std::function<void()> {
      const Grid grid = *static_cast<const Grid*>(args[sizeof...(Params)]);
      const auto copies = [args]<size_t... kIndex>(std::index_sequence<kIndex...>) {
        return std::make_tuple(*static_cast<const Params*>(args[kIndex])...);
      }
      (std::index_sequence_for<Params...>());
      return [grid, copies] { run(grid, [&copies] { std::apply(kKernel, copies); }); };
    });
    return true;
  }();
  static_cast<void>(is_known);
  return &entry;
}

// Returns the inverse of erf().
double erfinv(double x);
inline float erfinv(float x) { return static_cast<float>(erfinv(static_cast<double>(x))); }

template <typename T>
T shuffle(T value, unsigned from_lane) {
  static_assert(sizeof(T) <= 16);
  Place& here = place();
  const unsigned parity = here.shuffles++ % 2;
  const unsigned lane = here.thread.x % 32;
  {
    const Unchecked unchecked;
    std::memcpy(exchange_slots(parity) + size_t{lane} * 16, &value, sizeof(T));
  }
  wait_for_exchange();
  const Unchecked unchecked;
  std::memcpy(&value, exchange_slots(parity) + size_t{from_lane} * 16, sizeof(T));
  return value;
}

// Returns a bit for each lane of the warp.
inline unsigned ballot(bool is_set) {
  Place& here = place();
  const std::byte* const slots = exchange_slots(here.shuffles % 2);
  shuffle(is_set, here.thread.x % 32);
  const Unchecked unchecked;
  unsigned bits = 0;
  for (unsigned lane = 0; lane < 32; ++lane) {
    bool is_set_there = false;
    std::memcpy(&is_set_there, slots + size_t{lane} * 16, sizeof(bool));
    bits |= (is_set_there ? 1u : 0u) << lane;
  }
  return bits;
}

}  // namespace bp::cuda::emulation

// The names below are those of CUDA.
// NOLINTBEGIN(bugprone-reserved-identifier,readability-identifier-naming)
#undef __shared__
#ifdef __clang__
#define __shared__ static thread_local
#else
// GCC would add a variable that says whether the memory was set up, and setting it is a race.
#define __shared__ static thread_local constinit
#endif
#undef __launch_bounds__
#define __launch_bounds__(...)
#define threadIdx (::bp::cuda::emulation::place().thread)
#define blockIdx (::bp::cuda::emulation::place().block)
#define blockDim (::bp::cuda::emulation::place().threads)
#define gridDim (::bp::cuda::emulation::place().blocks)

inline void __syncthreads() { bp::cuda::emulation::wait_for_block(); }
inline void __syncwarp(unsigned = 0xFFFFFFFFu) { bp::cuda::emulation::wait_for_warp(); }

template <typename T>
T __shfl_xor_sync(unsigned, T value, int mask) {
  return bp::cuda::emulation::shuffle(value, (threadIdx.x % 32) ^ static_cast<unsigned>(mask));
}
template <typename T>
T __shfl_sync(unsigned, T value, int lane) {
  return bp::cuda::emulation::shuffle(value, static_cast<unsigned>(lane) % 32);
}
template <typename T>
T __shfl_up_sync(unsigned, T value, unsigned distance) {
  const unsigned lane = threadIdx.x % 32;
  return bp::cuda::emulation::shuffle(value, lane < distance ? lane : lane - distance);
}
inline unsigned __ballot_sync(unsigned, bool is_set) { return bp::cuda::emulation::ballot(is_set); }
inline int __popc(unsigned bits) { return std::popcount(bits); }

inline uint32_t __umulhi(uint32_t a, uint32_t b) {
  return static_cast<uint32_t>(uint64_t{a} * b >> 32);
}

// Atomic operations need no atomics here, because the fibers of a block never run at the same time.
template <typename T>
T atomicMax(T* address, T value) {
  const bp::cuda::emulation::Unchecked unchecked;
  unchecked.note(address, sizeof(T), bp::cuda::emulation::AccessKind::kAtomic);
  const T old = *address;
  if (old < value) *address = value;
  return old;
}
template <typename T>
T atomicExch(T* address, T value) {
  const bp::cuda::emulation::Unchecked unchecked;
  unchecked.note(address, sizeof(T), bp::cuda::emulation::AccessKind::kAtomic);
  return std::exchange(*address, value);
}
template <typename T>
T atomicAdd(T* address, T value) {
  const bp::cuda::emulation::Unchecked unchecked;
  unchecked.note(address, sizeof(T), bp::cuda::emulation::AccessKind::kAtomic);
  return std::exchange(*address, static_cast<T>(*address + value));
}
inline void __threadfence_system() {}
// NOLINTEND(bugprone-reserved-identifier,readability-identifier-naming)
