// The kernels of the fake CUDA. They are as many as the conformance suite needs to test streams,
// graphs and failures. They use the same Launch as the kernels of a device.
#include <atomic>
#include <cstring>
#include <tuple>
#include <type_traits>

#include "backends/cuda/fake/cuda.hpp"
#include "backends/cuda/make_kernel.hpp"
#include "backends/cuda/memory.hpp"
#include "backplane/shell/shape.hpp"

namespace bp::cuda {
namespace {

// ---- Kernels ------------------------------------------------------------------------------------

// Integers are added as unsigned numbers, which wrap.
template <typename T>
void add_elements(T* y, const T* a, const T* b, int64_t count) {
  using Ring = std::conditional_t<std::is_integral_v<T>, uint32_t, T>;
  for (int64_t i = 0; i < count; ++i) {
    y[i] = static_cast<T>(static_cast<Ring>(a[i]) + static_cast<Ring>(b[i]));
  }
}

void gather_elements(float* y, const float* x, const int64_t* indices, int64_t count,
                     int64_t extent, Reporter reporter) {
  for (int64_t i = 0; i < count; ++i) {
    if (indices[i] >= 0 && indices[i] < extent) {
      y[i] = x[indices[i]];
    } else {
      const std::atomic_ref launch(reporter.report->launch);
      if (launch.load() != 0) continue;
      std::atomic_ref(reporter.report->index).store(indices[i]);
      std::atomic_ref(reporter.report->place).store(reinterpret_cast<uintptr_t>(indices + i));
      launch.store(reporter.launch);
    }
  }
}

void fill_elements(uint8_t* to, uint64_t count, Pattern pattern) {
  for (uint64_t i = 0; i < count; ++i) to[i] = pattern.bytes[i % pattern.size_bytes];
}

// Makes `function` a kernel. A launch copies the arguments, as CUDA does.
template <typename... Params>
void add_kernel(void (*function)(Params...)) {
  fake::add_kernel(reinterpret_cast<const void*>(function), [function](void** args) {
    std::tuple<Params...> values;
    size_t next = 0;
    std::apply([&](auto&... value) { (std::memcpy(&value, args[next++], sizeof(value)), ...); },
               values);
    return [function, values] { std::apply(function, values); };
  });
}

// ---- Launches -----------------------------------------------------------------------------------

constexpr unsigned kThreads = 256;

template <typename T>
bp_status launch_add(const bp_add_args& a, Launch& launch) {
  const int64_t count = element_count(*a.y);
  return launch.launch(add_elements<T>, count == 0 ? 0 : 1, kThreads, 0, data<T>(*a.y),
                       data<const T>(*a.a), data<const T>(*a.b), count);
}

bp_status add(const bp_add_args& a, Launch& launch) {
  return a.y->dtype == BP_I32 ? launch_add<int32_t>(a, launch) : launch_add<float>(a, launch);
}

bp_status gather(const bp_gather_args& a, Launch& launch) {
  const int64_t count = element_count(*a.y), extent = axis_extent(*a.x, 0);
  return launch.launch(gather_elements, count == 0 ? 0 : 1, kThreads, 0, data<float>(*a.y),
                       data<const float>(*a.x), data<const int64_t>(*a.indices), count, extent,
                       launch.reporter(*a.indices, "indices", extent));
}

constexpr bp_dtype kAddDtypes[] = {BP_I32, BP_F32};
constexpr bp_dtype kGatherDtypes[] = {BP_F32, BP_I64};

constinit const bp_kernel kAdd = make_kernel<bp_add_args, add>({
    .name = "add.fake",
    .op = BP_OP_ADD,
    .flags = BP_KERNEL_DETERMINISTIC | BP_KERNEL_IN_PLACE,
    .dtype_rows = kAddDtypes,
    .dtype_row_count = 2,
    .dtype_count = 1,
    .layouts = BP_LAYOUT_CONTIGUOUS,
});

constinit const bp_kernel kGather = make_kernel<bp_gather_args, gather>({
    .name = "gather.fake",
    .op = BP_OP_GATHER,
    .flags = BP_KERNEL_DETERMINISTIC,
    .dtype_rows = kGatherDtypes,
    .dtype_row_count = 1,
    .dtype_count = 2,
    .layouts = BP_LAYOUT_CONTIGUOUS,
    .max_rank = 1,
});

constexpr const bp_kernel* kKernels[] = {&kAdd, &kGather};

}  // namespace

// The device has no layouts, because no kernel converts them.
const Layouts* MemoryTraits::layouts_of(const Instance&) { return nullptr; }
void make_layouts(Instance&) {}

std::span<const bp_kernel* const> kernel_list() {
  add_kernel(add_elements<int32_t>);
  add_kernel(add_elements<float>);
  add_kernel(gather_elements);
  add_kernel(fill_elements);
  return kKernels;
}

void fill_pattern(const Driver& driver, cudaStream_t stream, std::byte* to, uint64_t size_bytes,
                  const Pattern& pattern) {
  if (size_bytes == 0) return;
  if (pattern.size_bytes == 1) {
    check(driver, driver.cudaMemsetAsync(to, pattern.bytes[0], size_bytes, stream), "fill");
    return;
  }
  Pattern copied = pattern;
  void* args[] = {&to, &size_bytes, &copied};
  check(driver,
        driver.cudaLaunchKernel(reinterpret_cast<const void*>(fill_elements), 1, kThreads, args, 0,
                                stream),
        "fill");
}

}  // namespace bp::cuda
