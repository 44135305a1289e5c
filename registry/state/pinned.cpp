// The C functions of pinned.h.
#include "backplane/pinned.h"

#include <cstddef>

#include "registry/boundary/fail.hpp"
#include "registry/boundary/guard.hpp"
#include "registry/boundary/out_struct.hpp"
#include "registry/state/state.hpp"

namespace bp::core {
namespace {

// The size of the struct in the first release. It stays the same when members are added.
constexpr uint32_t kFirstStatistics =
    offsetof(bp_cache_statistics, out_of_memory_count) + sizeof(uint64_t);

// Calls body(pinned memory of the target). Refuses a target that is NULL, or whose backend has been
// unloaded.
template <typename Body>
bp_status with_pinned(const bp_target* target, Body&& body) {
  return guarded([&]() -> bp_status {
    if (target == nullptr) return is_null("target");
    services::PinnedMemory* const pinned = impl(target).pinned.get();
    return pinned == nullptr ? backend_unloaded(target->name) : body(*pinned);
  });
}

}  // namespace
}  // namespace bp::core

// NOLINTNEXTLINE(google-build-using-namespace): the functions below are the namespace's C API.
using namespace bp::core;
using bp::is_null;
using bp::services::PinnedMemory;

bp_status bp_pinned_allocate(const bp_target* target, uint64_t size_bytes, void** out_memory) {
  return with_pinned(target, [&](PinnedMemory& pinned) {
    return out_memory == nullptr ? is_null("out_memory") : pinned.allocate(size_bytes, out_memory);
  });
}

bp_status bp_pinned_record_stream(const bp_target* target, void* memory, bp_stream* stream) {
  return with_pinned(target, [&](PinnedMemory& pinned) {
    if (memory == nullptr) return is_null("memory");
    if (stream == nullptr) return is_null("stream");
    return pinned.record_stream(memory, stream);
  });
}

bp_status bp_pinned_free(const bp_target* target, void* memory) {
  if (memory == nullptr) return BP_OK;
  return guarded([&]() -> bp_status {
    if (target == nullptr) return is_null("target");
    PinnedMemory* const pinned = impl(target).pinned.get();
    return pinned == nullptr ? bp_status{BP_OK} : pinned->free(memory);
  });
}

bp_status bp_pinned_trim(const bp_target* target) {
  return with_pinned(target, [](PinnedMemory& pinned) { return pinned.trim(); });
}

bp_status bp_pinned_get_statistics(const bp_target* target, bp_cache_statistics* out_statistics) {
  return with_pinned(target, [&](const PinnedMemory& pinned) {
    return write_out(pinned.statistics(), out_statistics, kFirstStatistics, "out_statistics");
  });
}
