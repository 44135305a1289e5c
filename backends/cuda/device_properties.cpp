// The properties of a device, from CUDA and the host.
#include <unistd.h>

#include <cstring>
#include <iterator>

#include "backends/cuda/device.hpp"
#include "backplane/shell/properties.hpp"

namespace bp::cuda {
namespace {

constexpr int32_t kDlpackCuda = 2;  // kDLCUDA.

int attribute(const Driver& driver, cudaDeviceAttr which, int ordinal) {
  int value = 0;
  return driver.cudaDeviceGetAttribute(&value, which, ordinal) == cudaSuccess ? value : 0;
}

// Returns the f32 units of one multiprocessor, by compute capability, or 0 if not known.
int f32_lanes(int major, int minor) {
  switch (major) {
    case 8:
      return minor == 0 ? 64 : 128;
    case 9:
    case 10:
    case 12:
      return 128;
    default:
      return 0;
  }
}

// Returns a value that sysconf() counts in pages, in bytes.
uint64_t host_bytes(int which) {
  return static_cast<uint64_t>(sysconf(which)) * static_cast<uint64_t>(sysconf(_SC_PAGE_SIZE));
}

}  // namespace

// Initialises CUDA, and makes no context.
void Device::open() {
  if (is_open_.load(std::memory_order_acquire)) return;
  const std::lock_guard lock(opening_);
  if (is_open_.load(std::memory_order_relaxed)) return;
  check(driver(), driver().cuInit(0), "cuInit");
  if (ordinal_ < 0) {
    const cudaError_t error = driver().cudaDeviceGetByPCIBusId(&ordinal_, bus_id_.c_str());
    if (error == cudaErrorInvalidDevice) {
      driver().cudaGetLastError();
      refuse(BP_UNSUPPORTED, name_ + " at " + bus_id_ +
                                 " is there, but CUDA does not show it: look at "
                                 "CUDA_VISIBLE_DEVICES, or choose others by option devices");
    }
    check(driver(), error, "cudaDeviceGetByPCIBusId");
  }
  cudaDeviceProp properties{};
  check(driver(), driver().cudaGetDeviceProperties(&properties, ordinal_),
        "cudaGetDeviceProperties");
  set_properties(properties);
  is_open_.store(true, std::memory_order_release);
}

void Device::set_limits(const cudaDeviceProp& p) {
  limits_ = {.major = p.major,
             .minor = p.minor,
             .multiprocessor_count = p.multiProcessorCount,
             .max_threads_per_block = p.maxThreadsPerBlock,
             .max_threads_per_multiprocessor = p.maxThreadsPerMultiProcessor,
             .shared_bytes_per_block = static_cast<int>(p.sharedMemPerBlock),
             .max_shared_bytes_per_block = static_cast<int>(p.sharedMemPerBlockOptin),
             .shared_bytes_per_multiprocessor = static_cast<int>(p.sharedMemPerMultiprocessor),
             .l2_cache_bytes = p.l2CacheSize};
}

void Device::set_properties(const cudaDeviceProp& p) {
  set_limits(p);
  has_pool_ = instance_.options.has_pool && p.memoryPoolsSupported != 0;
  // Kernels check the alignment of 128-bit accesses, so any offset is allowed.
  heaps_[0] = make_heap(p.totalGlobalMem, BP_HEAP_DEVICE_LOCAL);
  heaps_[1] =
      make_heap(host_bytes(_SC_PHYS_PAGES), BP_HEAP_HOST_VISIBLE | BP_HEAP_HOST_COHERENT |
                                                BP_HEAP_HOST_CONCURRENT | BP_HEAP_HOST_CACHED);
  properties_ =
      make_properties(name_.c_str(), p.integrated != 0 ? BP_DEVICE_INTEGRATED : BP_DEVICE_DISCRETE,
                      heaps_, kQuantizedDeviceDtypes);
  properties_.bus_id = bus_id_.empty() ? nullptr : bus_id_.c_str();
  static_assert(sizeof(properties_.uuid) == sizeof(p.uuid));
  std::memcpy(properties_.uuid, &p.uuid, sizeof(p.uuid));
  properties_.compute_unit_count = static_cast<uint32_t>(p.multiProcessorCount);
  properties_.subgroup_size = static_cast<uint32_t>(p.warpSize);
  // Clocks are in kHz, and memory moves data on both edges.
  const double memory_hz = 1e3 * attribute(driver(), cudaDevAttrMemoryClockRate, ordinal_);
  const double clock_hz = 1e3 * attribute(driver(), cudaDevAttrClockRate, ordinal_);
  properties_.peak_bytes_per_second = 2 * memory_hz * p.memoryBusWidth / 8;
  properties_.peak_f32_flops = 2 * clock_hz * p.multiProcessorCount * f32_lanes(p.major, p.minor);
  properties_.host_register_alignment_bytes = 1;  // CUDA pins the pages around the memory.
  properties_.dlpack_device_type = kDlpackCuda;
  properties_.dlpack_device_id = ordinal_;
}

uint64_t free_host_bytes() { return host_bytes(_SC_AVPHYS_PAGES); }

}  // namespace bp::cuda
