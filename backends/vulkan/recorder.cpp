#include "backends/vulkan/recorder.hpp"

#include <chrono>
#include <utility>

#include "backplane/shell/boundary.hpp"

namespace bp::vulkan {
namespace {

constexpr uint32_t kMostCommands = 256;  // The device starts a batch of this many.
constexpr uint32_t kEagerCommands = 16;  // An idle device gets smaller batches.
constexpr uint32_t kPlacesOfPool = 256;

constexpr VkPipelineStageFlags kWorkStages =
    VK_PIPELINE_STAGE_COMPUTE_SHADER_BIT | VK_PIPELINE_STAGE_TRANSFER_BIT;
constexpr VkAccessFlags kWorkWrites = VK_ACCESS_SHADER_WRITE_BIT | VK_ACCESS_TRANSFER_WRITE_BIT;
constexpr VkAccessFlags kWorkAccess =
    kWorkWrites | VK_ACCESS_SHADER_READ_BIT | VK_ACCESS_TRANSFER_READ_BIT;

// Returns the text that check() throws for `result`.
std::string words(const char* call, VkResult result) {
  return std::string(call) + " failed: " + result_name(result);
}

}  // namespace

// ---- Timestamp ----------------------------------------------------------------------------------

Timestamp::~Timestamp() {
  const std::lock_guard lock(recorder_.place_mutex_);
  recorder_.free_places_.push_back(place_);
}

int64_t Timestamp::time_ns() const {
  const Context& context = *recorder_.context_;
  VkQueryPool pool = nullptr;
  {
    const std::lock_guard lock(recorder_.place_mutex_);
    pool = recorder_.query_pools_[place_ / kPlacesOfPool];
  }
  uint64_t ticks = 0;
  check(context.vk.GetQueryPoolResults(context.device, pool, place_ % kPlacesOfPool, 1,
                                       sizeof(ticks), &ticks, sizeof(ticks),
                                       VK_QUERY_RESULT_64_BIT | VK_QUERY_RESULT_WAIT_BIT),
        "vkGetQueryPoolResults");
  const uint32_t bits = context.physical.timestamp_bits;
  if (bits < 64) ticks &= (uint64_t{1} << bits) - 1;
  return static_cast<int64_t>(static_cast<double>(ticks) * context.physical.timestamp_period_ns);
}

// ---- Recording ----------------------------------------------------------------------------------

void Recording::order(std::span<const AddressRange> asked) {
  Recorder& r = recorder_;
  std::span<const AddressRange> ranges = asked;
  std::vector<AddressRange> widened;
  if (r.context_->options.has_validation) {
    // The ranges are widened as for descriptors (shadows.hpp).
    const uint64_t alignment = r.context_->physical.storage_alignment_bytes;
    widened.assign(asked.begin(), asked.end());
    for (AddressRange& range : widened) range.begin = range.begin / alignment * alignment;
    ranges = widened;
  }
  if (r.hazards_.meet(ranges) || r.hazards_.is_full()) {
    if (r.context_->options.has_barriers) r.put_barrier(kWorkStages, kWorkAccess);
    r.hazards_.clear();
  }
  r.hazards_.add(ranges);
}

VkCommandBuffer Recording::commands() const { return recorder_.batch_.commands; }

void Recording::copy(VkBuffer to, uint64_t to_offset, VkBuffer from, uint64_t from_offset,
                     uint64_t size_bytes) {
  const VkBufferCopy region{from_offset, to_offset, size_bytes};
  recorder_.context_->vk.CmdCopyBuffer(commands(), from, to, 1, &region);
}

void Recording::retain(std::shared_ptr<const void> object) {
  std::vector<std::shared_ptr<const void>>& retained = recorder_.batch_.retained;
  if (retained.empty() || retained.back() != object) retained.push_back(std::move(object));
}

void Recording::on_end(std::function<void()> job) {
  recorder_.batch_.jobs.push_back(std::move(job));
}

std::shared_ptr<Timestamp> Recording::stamp() {
  const uint32_t place = recorder_.take_place();
  auto timestamp = std::make_shared<Timestamp>(recorder_, place);
  const VkQueryPool pool = recorder_.query_pools_[place / kPlacesOfPool];
  const DeviceFunctions& vk = recorder_.context_->vk;
  vk.CmdResetQueryPool(commands(), pool, place % kPlacesOfPool, 1);
  vk.CmdWriteTimestamp(commands(), VK_PIPELINE_STAGE_BOTTOM_OF_PIPE_BIT, pool,
                       place % kPlacesOfPool);
  retain(timestamp);
  return timestamp;
}

// ---- Recorder -----------------------------------------------------------------------------------

Recorder::Recorder(std::shared_ptr<Context> context)
    : context_(std::move(context)), watcher_([this](Ticket ticket) {
        const VkSemaphoreWaitInfo info{.sType = VK_STRUCTURE_TYPE_SEMAPHORE_WAIT_INFO,
                                       .semaphoreCount = 1,
                                       .pSemaphores = &timeline_,
                                       .pValues = &ticket};
        const VkResult result = context_->vk.WaitSemaphores(context_->device, &info, UINT64_MAX);
        if (result == VK_ERROR_DEVICE_LOST) lose(words("vkWaitSemaphores", result));
      }) {
  const VkCommandPoolCreateInfo pool{.sType = VK_STRUCTURE_TYPE_COMMAND_POOL_CREATE_INFO,
                                     .flags = VK_COMMAND_POOL_CREATE_TRANSIENT_BIT |
                                              VK_COMMAND_POOL_CREATE_RESET_COMMAND_BUFFER_BIT,
                                     .queueFamilyIndex = context_->physical.queue_family};
  const VkSemaphoreTypeCreateInfo type{.sType = VK_STRUCTURE_TYPE_SEMAPHORE_TYPE_CREATE_INFO,
                                       .semaphoreType = VK_SEMAPHORE_TYPE_TIMELINE};
  const VkSemaphoreCreateInfo timeline{.sType = VK_STRUCTURE_TYPE_SEMAPHORE_CREATE_INFO,
                                       .pNext = &type};
  const DeviceFunctions& vk = context_->vk;
  check(vk.CreateCommandPool(context_->device, &pool, nullptr, &pool_), "vkCreateCommandPool");
  const VkResult result = vk.CreateSemaphore(context_->device, &timeline, nullptr, &timeline_);
  if (result != VK_SUCCESS) vk.DestroyCommandPool(context_->device, pool_, nullptr);
  check(result, "vkCreateSemaphore");
}

Recorder::~Recorder() {
  try {
    flush();
    wait(submitted_, UINT64_MAX);
  } catch (const StatusError&) {
    // The device is lost, so no work runs any more.
  }
  watcher_.stop();
  const DeviceFunctions& vk = context_->vk;
  vk.DeviceWaitIdle(context_->device);
  in_flight_.clear();
  batch_ = {};
  vk.DestroySemaphore(context_->device, timeline_, nullptr);
  vk.DestroyCommandPool(context_->device, pool_, nullptr);
  for (const VkQueryPool queries : query_pools_) {
    vk.DestroyQueryPool(context_->device, queries, nullptr);
  }
}

void Recorder::put_barrier(VkPipelineStageFlags to, VkAccessFlags access) {
  const VkMemoryBarrier barrier{.sType = VK_STRUCTURE_TYPE_MEMORY_BARRIER,
                                .srcAccessMask = kWorkWrites,
                                .dstAccessMask = access};
  context_->vk.CmdPipelineBarrier(batch_.commands, kWorkStages, to, 0, 1, &barrier, 0, nullptr, 0,
                                  nullptr);
}

void Recorder::check_lost(VkResult result, const char* call) {
  if (result == VK_ERROR_DEVICE_LOST) lose(words(call, result));
  check(result, call);
}

// Called with the mutex.
void Recorder::open_batch() {
  if (is_lost()) throw StatusError(BP_DEVICE_LOST, "the device is lost: " + loss());
  if (is_open_) return;
  retire();
  const DeviceFunctions& vk = context_->vk;
  if (idle_.empty()) {
    const VkCommandBufferAllocateInfo info{.sType = VK_STRUCTURE_TYPE_COMMAND_BUFFER_ALLOCATE_INFO,
                                           .commandPool = pool_,
                                           .level = VK_COMMAND_BUFFER_LEVEL_PRIMARY,
                                           .commandBufferCount = 1};
    VkCommandBuffer commands = nullptr;
    check(vk.AllocateCommandBuffers(context_->device, &info, &commands),
          "vkAllocateCommandBuffers");
    idle_.push_back(commands);
  }
  const VkCommandBufferBeginInfo begin{.sType = VK_STRUCTURE_TYPE_COMMAND_BUFFER_BEGIN_INFO,
                                       .flags = VK_COMMAND_BUFFER_USAGE_ONE_TIME_SUBMIT_BIT};
  check(vk.BeginCommandBuffer(idle_.back(), &begin), "vkBeginCommandBuffer");
  batch_.commands = idle_.back();
  idle_.pop_back();
  batch_.ticket = submitted_ + 1;
  is_open_ = true;
  put_barrier(kWorkStages, kWorkAccess);  // It orders the batch behind all earlier ones.
  hazards_.clear();
}

Ticket Recorder::end_command() {
  const Ticket ticket = batch_.ticket;
  last_.store(ticket, std::memory_order_release);
  ++batch_.command_count;
  const bool is_due = batch_.command_count >= kMostCommands ||
                      (batch_.command_count % kEagerCommands == 0 && reached() == submitted_);
  if (is_due) submit();
  return ticket;
}

// The caller holds the mutex, and a batch is open.
void Recorder::submit() {
  const DeviceFunctions& vk = context_->vk;
  put_barrier(VK_PIPELINE_STAGE_HOST_BIT, VK_ACCESS_HOST_READ_BIT);
  is_open_ = false;
  in_flight_.push_back(std::move(batch_));
  batch_ = {};
  Batch& batch = in_flight_.back();
  const VkTimelineSemaphoreSubmitInfo values{
      .sType = VK_STRUCTURE_TYPE_TIMELINE_SEMAPHORE_SUBMIT_INFO,
      .signalSemaphoreValueCount = 1,
      .pSignalSemaphoreValues = &batch.ticket};
  const VkSubmitInfo info{.sType = VK_STRUCTURE_TYPE_SUBMIT_INFO,
                          .pNext = &values,
                          .commandBufferCount = 1,
                          .pCommandBuffers = &batch.commands,
                          .signalSemaphoreCount = 1,
                          .pSignalSemaphores = &timeline_};
  for (std::function<void()>& job : batch.jobs) watcher_.add(batch.ticket, std::move(job));
  batch.jobs.clear();
  const char* call = "vkEndCommandBuffer";
  VkResult result = vk.EndCommandBuffer(batch.commands);
  if (result == VK_SUCCESS) {
    call = "vkQueueSubmit";
    result = vk.QueueSubmit(context_->queue, 1, &info, VK_NULL_HANDLE);
  }
  if (result != VK_SUCCESS) abandon(batch.ticket, words(call, result));
  check(result, call);
  submitted_.store(batch.ticket, std::memory_order_release);
}

// Loses the device because the queue did not take a batch. The recorded work is gone, and with it
// the order of all work. Waiters for the batch go on.
void Recorder::abandon(Ticket ticket, const std::string& why) {
  const DeviceFunctions& vk = context_->vk;
  const Ticket before = submitted_;
  const VkSemaphoreWaitInfo wait{.sType = VK_STRUCTURE_TYPE_SEMAPHORE_WAIT_INFO,
                                 .semaphoreCount = 1,
                                 .pSemaphores = &timeline_,
                                 .pValues = &before};
  const VkSemaphoreSignalInfo signal{
      .sType = VK_STRUCTURE_TYPE_SEMAPHORE_SIGNAL_INFO, .semaphore = timeline_, .value = ticket};
  if (vk.WaitSemaphores(context_->device, &wait, UINT64_MAX) == VK_SUCCESS) {
    static_cast<void>(vk.SignalSemaphore(context_->device, &signal));
  }
  lose(why);
}

void Recorder::flush() {
  if (last_.load(std::memory_order_acquire) <= submitted_) return;
  const std::lock_guard lock(mutex_);
  if (is_open_ && batch_.command_count > 0 && !is_lost()) submit();
}

Ticket Recorder::reached() {
  uint64_t value = 0;
  check_lost(context_->vk.GetSemaphoreCounterValue(context_->device, timeline_, &value),
             "vkGetSemaphoreCounterValue");
  uint64_t before = reached_;
  while (before < value && !reached_.compare_exchange_weak(before, value)) {
  }
  return std::max(before, value);
}

// Called with the mutex.
void Recorder::retire() {
  const Ticket ended = reached();
  while (!in_flight_.empty() && in_flight_.front().ticket <= ended) {
    Batch& batch = in_flight_.front();
    check(context_->vk.ResetCommandBuffer(batch.commands, 0), "vkResetCommandBuffer");
    idle_.push_back(batch.commands);
    in_flight_.pop_front();
  }
}

void Recorder::collect() {
  const std::lock_guard lock(mutex_);
  if (!is_lost()) retire();
}

bool Recorder::is_done(Ticket ticket) {
  if (is_lost()) return true;
  if (reached_.load(std::memory_order_acquire) < ticket && reached() < ticket) return false;
  return watcher_.is_done(ticket);
}

bool Recorder::wait(Ticket ticket, uint64_t timeout_ns) {
  using Clock = std::chrono::steady_clock;
  const Clock::time_point begin = Clock::now();
  if (ticket > submitted_) flush();
  if (is_lost()) return true;
  if (reached_.load(std::memory_order_acquire) < ticket) {
    const VkSemaphoreWaitInfo info{.sType = VK_STRUCTURE_TYPE_SEMAPHORE_WAIT_INFO,
                                   .semaphoreCount = 1,
                                   .pSemaphores = &timeline_,
                                   .pValues = &ticket};
    const VkResult result = context_->vk.WaitSemaphores(context_->device, &info, timeout_ns);
    if (result == VK_TIMEOUT) return false;
    check_lost(result, "vkWaitSemaphores");
    reached();
  }
  const auto passed = static_cast<uint64_t>((Clock::now() - begin) / std::chrono::nanoseconds(1));
  const bool is_endless = timeout_ns == UINT64_MAX;
  return watcher_.wait(ticket, is_endless            ? timeout_ns
                               : passed < timeout_ns ? timeout_ns - passed
                                                     : 0);
}

void Recorder::when_done(Ticket ticket, std::function<void()> job) {
  if (ticket > submitted_) flush();
  if (is_done(ticket)) {
    job();
  } else {
    watcher_.add(ticket, std::move(job));
  }
}

std::string Recorder::loss() const {
  const std::lock_guard lock(loss_mutex_);
  return loss_;
}

void Recorder::drain() {
  try {
    wait(latest(), UINT64_MAX);
  } catch (const StatusError&) {
    // This call found that the device is lost.
  }
  watcher_.wait(latest(), UINT64_MAX);
}

void Recorder::lose(const std::string& why) {
  {
    const std::lock_guard lock(loss_mutex_);
    if (loss_.empty()) loss_ = why;
  }
  if (is_lost_.exchange(true, std::memory_order_acq_rel) || !on_lost_) return;
  watcher_.add(submitted_, on_lost_);
}

uint32_t Recorder::take_place() {
  const std::lock_guard lock(place_mutex_);
  if (free_places_.empty()) {
    const VkQueryPoolCreateInfo info{.sType = VK_STRUCTURE_TYPE_QUERY_POOL_CREATE_INFO,
                                     .queryType = VK_QUERY_TYPE_TIMESTAMP,
                                     .queryCount = kPlacesOfPool};
    VkQueryPool queries = nullptr;
    check(context_->vk.CreateQueryPool(context_->device, &info, nullptr, &queries),
          "vkCreateQueryPool");
    const auto first = static_cast<uint32_t>(query_pools_.size()) * kPlacesOfPool;
    query_pools_.push_back(queries);
    for (uint32_t k = 0; k < kPlacesOfPool; ++k) free_places_.push_back(first + k);
  }
  const uint32_t place = free_places_.back();
  free_places_.pop_back();
  return place;
}

}  // namespace bp::vulkan
