// Properties that are the same for all devices of this tree. A backend adds the properties of its
// own device.
#pragma once

#include <cstdint>
#include <iterator>
#include <span>

#include "backplane/device.h"
#include "backplane/tensor.h"

namespace bp {

// The dtypes of a device that uses the kernels of this tree.
constexpr bp_dtype kDeviceDtypes[] = {BP_BOOL, BP_I8,  BP_U8,  BP_I16,  BP_I32, BP_I64,
                                      BP_U64,  BP_F32, BP_F16, BP_BF16, BP_F64};

// The dtypes of a device whose kernels take quantised tensors too.
constexpr bp_dtype kQuantizedDeviceDtypes[] = {
    BP_BOOL,     BP_I8,     BP_U8,     BP_I16,    BP_I32,    BP_I64,       BP_U64,
    BP_F32,      BP_F16,    BP_BF16,   BP_I4,     BP_U4,     BP_I2,        BP_U2,
    BP_F8E4M3FN, BP_F8E5M2, BP_F6E2M3, BP_F6E3M2, BP_F4E2M1, BP_F8E8M0FNU, BP_F64};

// The same without f64.
constexpr std::span<const bp_dtype> kQuantizedDeviceDtypesWithoutF64 =
    std::span(kQuantizedDeviceDtypes).first(std::size(kQuantizedDeviceDtypes) - 1);

// Returns a heap that can give all of its memory to one allocation, and in which a tensor may begin
// at any byte. map_granularity_bytes counts for a heap that the host sees and that is not coherent.
constexpr bp_heap make_heap(uint64_t size_bytes, bp_heap_flags flags,
                            uint64_t map_granularity_bytes = 1) {
  if ((flags & BP_HEAP_HOST_VISIBLE) == 0) map_granularity_bytes = 0;
  if ((flags & BP_HEAP_HOST_COHERENT) != 0) map_granularity_bytes = 1;
  return {.struct_size = sizeof(bp_heap),
          .struct_type = BP_STRUCT_HEAP,
          .size_bytes = size_bytes,
          .max_allocation_bytes = size_bytes,
          .tensor_offset_alignment_bytes = 1,
          .suballocation_granularity_bytes = 1,
          .map_granularity_bytes = map_granularity_bytes,
          .flags = flags};
}

// Returns the properties of a device whose tensors may have as many dimensions as the ABI allows.
// `heaps` and `dtypes` must live as long as the device.
constexpr bp_device_properties make_properties(const char* name, bp_device_class device_class,
                                               std::span<const bp_heap> heaps,
                                               std::span<const bp_dtype> dtypes) {
  return {.struct_size = sizeof(bp_device_properties),
          .struct_type = BP_STRUCT_DEVICE_PROPERTIES,
          .name = name,
          .device_class = device_class,
          .max_rank = BP_MAX_RANK,
          .heaps = heaps.data(),
          .heap_count = heaps.size(),
          .heap_stride_bytes = sizeof(bp_heap),
          .dtypes = dtypes.data(),
          .dtype_count = dtypes.size()};
}

}  // namespace bp
