#include "backends/cpu/device.hpp"

#include <sched.h>
#include <unistd.h>

#include <algorithm>

#include "backends/cpu/memory.hpp"
#include "backends/cpu/proc_file.hpp"
#include "backends/cpu/stream.hpp"
#include "backplane/shell/deadline.hpp"
#include "backplane/shell/identity.hpp"
#include "backplane/shell/properties.hpp"
#include "backplane/shell/virtual_memory.hpp"

namespace bp::cpu {
namespace {

// Includes "infer".
constexpr const char* kProfiles[] = {"train", "llm"};

// Processors that this process may run on.
int processor_count() {
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof(set), &set) == 0) return std::max(1, CPU_COUNT(&set));
  return std::max(1, static_cast<int>(sysconf(_SC_NPROCESSORS_ONLN)));
}

uint64_t physical_bytes() {
  return static_cast<uint64_t>(sysconf(_SC_PHYS_PAGES)) *
         static_cast<uint64_t>(sysconf(_SC_PAGE_SIZE));
}

}  // namespace

Device::Device(const bp_host& host, const Options& options)
    : host_(host),
      name_(first_value("/proc/cpuinfo", "model name")),
      thread_count_(options.thread_count != 0 ? options.thread_count : processor_count()) {
  if (name_.empty()) name_ = "host processor";
  heap_ = make_heap(physical_bytes(),
                    BP_HEAP_DEVICE_LOCAL | BP_HEAP_HOST_VISIBLE | BP_HEAP_HOST_COHERENT);
  properties_ = make_properties(name_.c_str(), BP_DEVICE_HOST, {&heap_, 1}, kDeviceDtypes);
  write_uuid("backplane.cpu", name_, properties_.uuid);
  properties_.compute_unit_count = static_cast<uint32_t>(processor_count());
  properties_.subgroup_size = 1;
  properties_.profiles = kProfiles;
  properties_.profile_count = std::size(kProfiles);
  properties_.dlpack_device_type = 1;

  default_stream_ = make_stream(true);
}

// Running work is waited for. What waits for an event that nobody can signal any more is aborted.
Device::~Device() {
  executor_.wait_idle();
  const std::vector<std::shared_ptr<Queue>> queues = live_queues();
  for (const std::shared_ptr<Queue>& queue : queues) queue->abandon();
  executor_.wait_idle();
  executor_.stop();
  for (Event* const event : events_) delete event;
  for (Stream* const stream : streams_) delete stream;
  for (Buffer* const buffer : buffers_) release(buffer);
  for (MemoryOwner* const memory : memories_) delete memory;
}

Stream* Device::make_stream(bool is_inline) {
  auto stream = std::make_unique<Stream>(*this);
  stream->queue = std::make_shared<Queue>(host_, executor_, is_inline);
  const std::lock_guard lock(mutex_);
  streams_.insert(stream.get());
  return stream.release();
}

Stream* Device::create_stream() {
  executor_.start();
  return make_stream(false);
}

Stream* Device::wrap_stream(const void* native) {
  const std::lock_guard lock(mutex_);
  const auto known = std::ranges::find_if(
      streams_, [&](const Stream* stream) { return stream->queue.get() == native; });
  if (known == streams_.end()) return nullptr;
  auto wrapper = std::make_unique<Stream>(*this);
  wrapper->queue = (*known)->queue;
  streams_.insert(wrapper.get());
  return wrapper.release();
}

void Device::destroy_stream(Stream* stream) {
  {
    const std::lock_guard lock(mutex_);
    std::erase_if(closing_, [](const std::weak_ptr<Queue>& queue) { return queue.expired(); });
    if (!stream->queue->is_idle()) closing_.push_back(stream->queue);
    streams_.erase(stream);
  }
  stream->magic = 0;
  delete stream;
}

std::vector<std::shared_ptr<Queue>> Device::live_queues() {
  std::vector<std::shared_ptr<Queue>> queues;
  const std::lock_guard lock(mutex_);
  for (const Stream* stream : streams_) queues.push_back(stream->queue);
  for (const std::weak_ptr<Queue>& closing : closing_) {
    if (std::shared_ptr<Queue> queue = closing.lock()) queues.push_back(std::move(queue));
  }
  return queues;
}

bool Device::wait(uint64_t timeout_ns) {
  const Deadline deadline(timeout_ns);
  for (const std::shared_ptr<Queue>& queue : live_queues()) {
    if (!queue->wait(deadline.left_ns())) return false;
  }
  return true;
}

bool Device::add(Buffer* buffer) {
  const std::lock_guard lock(mutex_);
  const auto address = reinterpret_cast<uintptr_t>(buffer->address);
  if (!buffer->is_wrapped && !places_.add(address, buffer->size_bytes, buffer)) return false;
  try {
    buffers_.insert(buffer);
  } catch (...) {
    places_.remove(address, buffer);
    throw;
  }
  return true;
}

void Device::remove(Buffer* buffer) {
  const std::lock_guard lock(mutex_);
  buffers_.erase(buffer);
  places_.remove(reinterpret_cast<uintptr_t>(buffer->address), buffer);
}

bool Device::find(uint64_t address, bp_address_info& info) {
  const std::lock_guard lock(mutex_);
  Buffer* const found = places_.find(address);
  if (found == nullptr) return false;
  info.device = reinterpret_cast<bp_device*>(this);
  info.buffer = reinterpret_cast<bp_buffer*>(found);
  info.byte_offset = address - reinterpret_cast<uintptr_t>(found->address);
  info.size_bytes = found->size_bytes;
  return true;
}

void Device::add(MemoryOwner* memory) {
  const std::lock_guard lock(mutex_);
  memories_.insert(memory);
}

void Device::remove(MemoryOwner* memory) {
  const std::lock_guard lock(mutex_);
  memories_.erase(memory);
}

void Device::add(Event* event) {
  const std::lock_guard lock(mutex_);
  events_.insert(event);
}

void Device::remove(Event* event) {
  const std::lock_guard lock(mutex_);
  events_.erase(event);
}

Device& device_of(const Instance& i, bp_device* handle, const char* call) {
  Device* const d = device(i, handle);
  if (d != nullptr) return *d;
  throw StatusError(BP_INVALID_ARGUMENT,
                    std::string(call) + ": device is NULL or not one of this backend");
}

}  // namespace bp::cpu
