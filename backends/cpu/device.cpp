#include "backends/cpu/device.hpp"

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <string>

#include "backends/cpu/memory.hpp"
#include "backends/cpu/proc_file.hpp"
#include "backends/cpu/stream.hpp"
#include "backplane/shell/identity.hpp"
#include "backplane/shell/properties.hpp"
#include "backplane/shell/virtual_memory.hpp"

namespace bp::cpu {
namespace {

// The profile "train" includes "infer".
constexpr const char* kProfiles[] = {"train", "llm", "spectral"};

// Returns the number of processors that this process may run on.
int processor_count() {
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof(set), &set) == 0) return std::max(1, CPU_COUNT(&set));
  return std::max(1, static_cast<int>(sysconf(_SC_NPROCESSORS_ONLN)));
}

uint64_t physical_bytes() {
  return static_cast<uint64_t>(sysconf(_SC_PHYS_PAGES)) *
         static_cast<uint64_t>(sysconf(_SC_PAGE_SIZE));
}

// Refuses several threads in a child of a process that had several. The OpenMP runtime keeps the
// threads of a loop for the next loop, and in a child it would wait forever for threads of its
// parent.
int allowed_threads(int count) {
  static std::atomic<pid_t> owner = 0;  // The process that had several threads first.
  pid_t first = 0;
  if (count == 1 || owner.compare_exchange_strong(first, getpid()) || first == getpid()) {
    return count;
  }
  refuse(BP_UNSUPPORTED,
         "threads is " + std::to_string(count) +
             ", but this process is a fork of one that had several, and would wait forever for the "
             "OpenMP threads that the parent alone has; allowed: 1; a worker that is started as a "
             "new process can have several");
}

}  // namespace

Device::Device(const bp_host& host, const Options& options)
    : host_(host),
      name_(first_value("/proc/cpuinfo", "model name")),
      thread_count_(
          allowed_threads(options.thread_count != 0 ? options.thread_count : processor_count())) {
  if (name_.empty()) name_ = "host processor";
  heap_ = make_heap(physical_bytes(), BP_HEAP_DEVICE_LOCAL | BP_HEAP_HOST_VISIBLE |
                                          BP_HEAP_HOST_COHERENT | BP_HEAP_HOST_CACHED);
  properties_ = make_properties(name_.c_str(), BP_DEVICE_HOST, {&heap_, 1}, kQuantizedDeviceDtypes);
  write_uuid("backplane.cpu", name_, properties_.uuid);
  properties_.compute_unit_count = static_cast<uint32_t>(processor_count());
  properties_.subgroup_size = 1;
  properties_.profiles = kProfiles;
  properties_.profile_count = std::size(kProfiles);
  properties_.host_register_alignment_bytes = 1;
  properties_.dlpack_device_type = 1;
}

// Waits for running work, and aborts work that waits for an event which nobody can signal any more.
Device::~Device() {
  executors_.wait_idle();
  abandon_work();
  executors_.wait_idle();
  executors_.stop();
  delete_all();
  memories_.delete_all();
}

bool Device::is_in_use() const { return DeviceHandles::is_in_use() || !memories_.is_empty(); }

std::unique_ptr<Stream> Device::make_stream(Executor& executor, bool is_inline) {
  auto stream = std::make_unique<Stream>(*this);
  stream->queue = std::make_shared<Queue>(host_, executor, is_inline);
  return stream;
}

void Device::set_thread_count(int count) { thread_count_ = allowed_threads(count); }

Stream* Device::default_stream() {
  return streams_.default_stream([this] { return make_stream(executors_.streams, true); });
}

Stream* Device::create_stream() {
  executors_.streams.start();
  return streams_.add(make_stream(executors_.streams, false));
}

Stream* Device::create_callback_stream() {
  return streams_.add(make_stream(executors_.callbacks, false));
}

Stream* Device::wrap_stream(const void* native) {
  return streams_.add_copy([&](const Stream& stream) { return stream.queue.get() == native; });
}

bool Device::add(Buffer* buffer) {
  return buffers_.add(buffer, reinterpret_cast<uintptr_t>(buffer->address), !buffer->is_wrapped);
}

}  // namespace bp::cpu
