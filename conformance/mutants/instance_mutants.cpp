// Mutants of the whole instance: its guard, what it leaves behind, and its behaviour toward the
// host.
#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <utility>

#include "conformance/mutants/runtime.hpp"

namespace bp::mutants {
namespace {

// ---- 29: the current device ---------------------------------------------------------------------

// A driver keeps the current device for each thread. A mutant keeps one for all threads.
thread_local bp_device* current_of_thread = nullptr;
bp_device* current_of_all = nullptr;

bp_status exchange(void*, bp_device* device, bp_device** out_previous) {
  bp_device* const previous = std::exchange(current_of_thread, device);
  if (out_previous != nullptr) *out_previous = previous;
  return BP_OK;
}

bp_status exchange_for_all(void*, bp_device* device, bp_device** out_previous) {
  bp_device* const previous = std::exchange(current_of_all, device);
  if (out_previous != nullptr) *out_previous = previous;
  return BP_OK;
}

bp_status is_initialized(void*, bp_device*, uint32_t* out_is_initialized) {
  *out_is_initialized = 1;
  return BP_OK;
}

constexpr bp_device_guard_ops kGuard = {.struct_size = sizeof(bp_device_guard_ops),
                                        .struct_type = BP_STRUCT_DEVICE_GUARD_OPS,
                                        .next = nullptr,
                                        .self = nullptr,
                                        .exchange = exchange,
                                        .is_initialized = is_initialized};
constexpr bp_device_guard_ops kGuardOfAll = {.struct_size = sizeof(bp_device_guard_ops),
                                             .struct_type = BP_STRUCT_DEVICE_GUARD_OPS,
                                             .next = nullptr,
                                             .self = nullptr,
                                             .exchange = exchange_for_all,
                                             .is_initialized = is_initialized};

// Makes its device current, as a driver requires, and does not restore the old one on failure.
bp_status allocate_and_stay(void* self, bp_device* device, const bp_allocate_desc* desc,
                            bp_buffer** out_buffer) {
  const bp_allocator_ops& good = runtime_of(self).good.allocator;
  bp_device* const previous = std::exchange(current_of_thread, device);
  const bp_status status = good.allocate(good.self, device, desc, out_buffer);
  if (status == BP_OK) current_of_thread = previous;
  return status;
}

void stay_after_errors(Runtime& r) { r.bent.allocator.allocate = allocate_and_stay; }

// ---- 39: what a reload leaves behind ------------------------------------------------------------

void* sleep_for_ever(void*) {
  for (;;) pause();
}

// Starts a thread that outlives the instance, and so the code that it runs.
bool start_thread() {
  Dl_info info{};
  if (dladdr(reinterpret_cast<void*>(&sleep_for_ever), &info) == 0) return false;
  if (dlopen(info.dli_fname, RTLD_NOW | RTLD_NODELETE) == nullptr) return false;
  pthread_t thread;
  if (pthread_create(&thread, nullptr, sleep_for_ever, nullptr) != 0) return false;
  pthread_detach(thread);
  return true;
}

bp_status leave_something(const bp_host& host, std::string_view strength, const bp_entry_request&,
                          bp_entry_reply&) {
  bool is_left = false;
  if (strength == "thread") {
    is_left = start_thread();
  } else if (strength == "host") {
    void* memory = nullptr;
    is_left = host.allocate(host.self, 256, 16, &memory) == BP_OK;
  } else if (strength == "memory") {
    constexpr size_t kBytes = 64 << 10;
    void* const memory = std::malloc(kBytes);
    is_left = memory != nullptr;
    if (is_left) std::memset(memory, 1, kBytes);
  } else {
    is_left = open("/dev/null", O_RDONLY | O_CLOEXEC) >= 0;
  }
  return is_left ? bp_status{BP_OK}
                 : host.set_error(host.self, BP_INTERNAL, "the mutant could not leak");
}

// ---- Mutants of the ABI -------------------------------------------------------------------------

// These mutants write or read outside the memory that they were given. The suite has to find that.
// A sanitizer would end the process before, so these functions are built without it, as a vendor's
// backend is.

// Assumes that each host's reply is as long as this build would make it in a later release.
__attribute__((no_sanitize("address"))) bp_status overrun_reply(const bp_host&, std::string_view,
                                                                const bp_entry_request&,
                                                                bp_entry_reply& reply) {
  volatile char* const end = reinterpret_cast<volatile char*>(&reply) + reply.struct_size;
  for (size_t i = 0; i < 16; ++i) end[i] = 0;
  return BP_OK;
}

// Assumes that each host's table is as long as in a later release.
__attribute__((no_sanitize("address"))) bp_status read_longer_host(const bp_host& host,
                                                                   std::string_view,
                                                                   const bp_entry_request&,
                                                                   bp_entry_reply&) {
  const volatile char* const table = reinterpret_cast<const volatile char*>(&host);
  char sum = 0;
  for (size_t i = 0; i < 64; ++i) sum = static_cast<char>(sum ^ table[sizeof(bp_host) + i]);
  static_cast<void>(sum);
  return BP_OK;
}

bp_status refuse_newer(const bp_host& host, std::string_view, const bp_entry_request& request,
                       bp_entry_reply&) {
  if (request.abi_minor <= BP_ABI_MINOR) return BP_OK;
  return host.set_error(host.self, BP_INCOMPATIBLE, "the mutant serves hosts of 0.2 and no newer");
}

bp_status tell_other_majors(const bp_host&, std::string_view, const bp_entry_request&,
                            bp_entry_reply& reply) {
  reply.abi_major_min = reply.abi_major_max = BP_ABI_MAJOR + 1;
  return BP_OK;
}

bp_status ignore_stream_flags(void* self, bp_device* device, const bp_stream_desc* desc,
                              bp_stream** out_stream) {
  const bp_stream_ops& good = runtime_of(self).good.streams;
  if (desc == nullptr || desc->struct_size < sizeof(bp_stream_desc)) {
    return good.create(good.self, device, desc, out_stream);
  }
  bp_stream_desc known = *desc;
  known.struct_size = sizeof(known);
  known.flags = BP_STREAM_DEFAULT;
  return good.create(good.self, device, &known, out_stream);
}

void ignore_flags(Runtime& r) { r.bent.streams.create = ignore_stream_flags; }

constexpr RuntimeMutant kTable[] = {
    {.id = "29", .bend = stay_after_errors, .guard = &kGuard},
    {.id = "29_shared", .guard = &kGuardOfAll},
    {.id = "39", .enter = leave_something},
    {.id = "abi_overrun", .enter = overrun_reply},
    {.id = "abi_long_host", .enter = read_longer_host},
    {.id = "abi_newer", .enter = refuse_newer},
    {.id = "abi_majors", .enter = tell_other_majors},
    {.id = "abi_flags", .bend = ignore_flags},
    {.id = "benign_guard", .guard = &kGuard},
};

}  // namespace

std::span<const RuntimeMutant> instance_mutants() { return kTable; }

}  // namespace bp::mutants
