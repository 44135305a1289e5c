// Checks of a request for memory, which are the same for all devices of this tree.
//
//   if (request.layout != nullptr) apply_layout(request, layouts);
//   check_allocation(request, {.peer = "this device has no peers"});
//   const size_t heap = find_heap(device.properties(), request);
//   check_size(device.heap(heap), request.size_bytes, "allocate");
//
// Every function may be called from any thread, and throws StatusError for a request that it does
// not take.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "backplane/device.h"
#include "backplane/memory.h"
#include "backplane/shell/entry.hpp"
#include "backplane/shell/layout.hpp"

namespace bp {

// The largest alignment that a request may ask for.
constexpr uint64_t kMaxAlignmentBytes = 4096;

// Why a device does not serve a use of memory. The text ends the sentence "usage has ..., and". It
// is NULL if the device serves the use.
struct UnservedUsages {
  const char* peer = nullptr;
  const char* stream_ordered = nullptr;
  const char* exported = nullptr;
  const char* collective = nullptr;
};

// Checks the alignment, the usage and the stream of a request. The caller checks whether the stream
// is of the same device.
inline void check_allocation(const bp_allocate_desc& desc, const UnservedUsages& unserved) {
  constexpr bp_memory_usage kKnown =
      BP_MEMORY_PEER | BP_MEMORY_STREAM_ORDERED | BP_MEMORY_EXPORT | BP_MEMORY_COLLECTIVE;
  constexpr bp_memory_usage kApart = BP_MEMORY_STREAM_ORDERED | BP_MEMORY_EXPORT;
  const uint64_t alignment = desc.alignment_bytes;
  if (alignment != 0 && (!std::has_single_bit(alignment) || alignment > kMaxAlignmentBytes)) {
    refuse(BP_INVALID_ARGUMENT, "allocate: alignment_bytes is " + std::to_string(alignment) +
                                    "; 0 and powers of two up to " +
                                    std::to_string(kMaxAlignmentBytes) + " are allowed");
  }
  if ((desc.usage & ~kKnown) != 0) {
    refuse(BP_INVALID_ARGUMENT, "allocate: usage is " + std::to_string(desc.usage) + "; the bits " +
                                    std::to_string(kKnown) + " are known");
  }
  const auto check = [&](bp_memory_usage usage, const char* name, const char* reason) {
    if ((desc.usage & usage) == 0 || reason == nullptr) return;
    refuse(BP_UNSUPPORTED, std::string("allocate: usage has ") + name + ", and " + reason);
  };
  check(BP_MEMORY_EXPORT, "BP_MEMORY_EXPORT", unserved.exported);
  check(BP_MEMORY_PEER, "BP_MEMORY_PEER", unserved.peer);
  check(BP_MEMORY_COLLECTIVE, "BP_MEMORY_COLLECTIVE", unserved.collective);
  check(BP_MEMORY_STREAM_ORDERED, "BP_MEMORY_STREAM_ORDERED", unserved.stream_ordered);
  if ((desc.usage & kApart) == kApart) {
    refuse(BP_UNSUPPORTED,
           "allocate: usage has BP_MEMORY_STREAM_ORDERED and BP_MEMORY_EXPORT; memory that others "
           "see is in no stream's order");
  }
  if ((desc.usage & BP_MEMORY_STREAM_ORDERED) == 0 && desc.stream != nullptr) {
    refuse(BP_INVALID_ARGUMENT,
           "allocate: stream is given, and usage has no BP_MEMORY_STREAM_ORDERED");
  }
}

// Replaces the layout of a request by the size and the alignment that the layout needs.
inline void apply_layout(bp_allocate_desc& desc, const Layouts& layouts) {
  if (desc.size_bytes != 0) {
    refuse(BP_INVALID_ARGUMENT, "allocate: size_bytes is " + std::to_string(desc.size_bytes) +
                                    " and a layout is given, which has the size; 0 is allowed");
  }
  const LayoutFacts facts = layouts.facts_of(*desc.layout, "allocate: layout");
  desc.size_bytes = facts.physical_size_bytes;
  desc.alignment_bytes = std::max(desc.alignment_bytes, facts.alignment_bytes);
  desc.layout = nullptr;
}

// Checks a heap_index, of which the numbers below `end` are allowed.
inline void check_heap_index(uint64_t heap_index, uint64_t end, const char* call) {
  if (heap_index < end) return;
  refuse(BP_INVALID_ARGUMENT,
         std::string(call) + ": heap_index is " + std::to_string(heap_index) + "; " +
             (end == 1 ? "0 is" : "0 to " + std::to_string(end - 1) + " are") + " allowed");
}

// Returns the index of the first heap of heap_mask that has the wanted flags. The heaps are an
// array of bp_heap, as make_properties() leaves it.
inline size_t find_heap(const bp_device_properties& device, const bp_allocate_desc& desc) {
  const uint64_t all = ~uint64_t{0} >> (64 - device.heap_count);
  if ((desc.heap_mask & ~all) != 0) {
    refuse(BP_INVALID_ARGUMENT, "allocate: heap_mask is " + std::to_string(desc.heap_mask) +
                                    "; the bits " + std::to_string(all) + " stand for heaps");
  }
  const uint64_t mask = desc.heap_mask == 0 ? all : desc.heap_mask;
  const std::span heaps(device.heaps, device.heap_count);
  for (size_t heap = 0; heap < heaps.size(); ++heap) {
    if ((mask >> heap & 1) != 0 && (desc.heap_flags & ~heaps[heap].flags) == 0) return heap;
  }
  refuse(BP_NOT_FOUND,
         "allocate: no heap that may be used has the flags " + std::to_string(desc.heap_flags));
}

// Checks that the heap gives as much memory at once as `call` asks for.
inline void check_size(const bp_heap& heap, uint64_t size_bytes, const char* call) {
  if (size_bytes <= heap.max_allocation_bytes) return;
  refuse(BP_OUT_OF_MEMORY, std::string(call) + ": " + std::to_string(size_bytes) +
                               " bytes were asked for, and at most " +
                               std::to_string(heap.max_allocation_bytes) + " are given at once");
}

}  // namespace bp
