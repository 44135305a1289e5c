// The order of all work on a device: command buffers in batches on its one queue, and a timeline
// that tells what has ended.
//
// What is recorded gets the ticket of its batch: the value to which the timeline rises when the
// batch has ended. Streams record in the order in which their work may begin, so the queue never
// waits for anything. Barriers stand where ranges meet (hazards.hpp), and at the beginning of each
// batch.
//
// Rules: safe from any thread; nothing waits for the device but wait() and the destructor. Failures
// are StatusErrors.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "backends/vulkan/context.hpp"
#include "backends/vulkan/hazards.hpp"
#include "backends/vulkan/watcher.hpp"

namespace bp::vulkan {

class Recorder;

// A moment on the device's clock; its place in a query pool is taken until it ends.
class Timestamp {
 public:
  Timestamp(Recorder& recorder, uint32_t place) : recorder_(recorder), place_(place) {}
  Timestamp(const Timestamp&) = delete;
  ~Timestamp();

  uint32_t place() const { return place_; }

  // In nanoseconds; the batch in which it was written has ended.
  int64_t time_ns() const;

 private:
  Recorder& recorder_;
  const uint32_t place_;
};

// What records one piece of work, while it holds the recorder.
class Recording {
 public:
  explicit Recording(Recorder& recorder) : recorder_(recorder) {}

  // Puts a barrier in front of what comes next, if it needs one.
  void order(std::span<const AddressRange> ranges);

  VkCommandBuffer commands() const;

  // A copy between two ranges that do not overlap.
  void copy(VkBuffer to, uint64_t to_offset, VkBuffer from, uint64_t from_offset,
            uint64_t size_bytes);

  // Keeps `object` until the work has ended.
  void retain(std::shared_ptr<const void> object);

  // Runs `job` on another thread when the work has ended, which counts as ended after that.
  void on_end(std::function<void()> job);

  // The device's time when all work before has ended.
  std::shared_ptr<Timestamp> stamp();

 private:
  Recorder& recorder_;
};

class Recorder {
 public:
  explicit Recorder(std::shared_ptr<Context> context);
  Recorder(const Recorder&) = delete;
  ~Recorder();

  const std::shared_ptr<Context>& context() const { return context_; }

  // Runs body(Recording&), and returns the ticket of what it recorded.
  template <typename Body>
  Ticket record(Body&& body) {
    const std::lock_guard lock(mutex_);
    open_batch();
    Recording recording(*this);
    body(recording);
    return end_command();
  }

  // Hands what is recorded to the device.
  void flush();

  // Whether what has this ticket has ended.
  bool is_done(Ticket ticket);

  // Waits for it; hands it to the device first. False if timeout_ns passed before.
  bool wait(Ticket ticket, uint64_t timeout_ns);

  // Runs `job` when it has ended: here if it has, else on another thread.
  void when_done(Ticket ticket, std::function<void()> job);

  // The newest ticket.
  Ticket latest() const { return last_.load(std::memory_order_acquire); }

  // Lets go of what ended work holds.
  void collect();

  bool is_lost() const { return is_lost_.load(std::memory_order_acquire); }

  // Nothing is recorded any more, and what was is taken for ended. The first `why` counts.
  void lose(const std::string& why);

  // Why the device is lost: "vkQueueSubmit failed: VK_ERROR_DEVICE_LOST"; "" where the driver has
  // not said so.
  std::string loss() const;

  // Waits for what runs, and for the jobs behind it, also on a lost device.
  void drain();

  // Called once, on another thread, when the device is found to be lost. Before the first work.
  void set_on_lost(std::function<void()> on_lost) { on_lost_ = std::move(on_lost); }

 private:
  friend class Recording;
  friend class Timestamp;

  // A command buffer and what it holds until it has ended.
  struct Batch {
    VkCommandBuffer commands = nullptr;
    Ticket ticket = 0;
    uint32_t command_count = 0;
    std::vector<std::shared_ptr<const void>> retained;
    std::vector<std::function<void()>> jobs;
  };

  void open_batch();
  Ticket end_command();
  void submit();
  void abandon(Ticket ticket, const std::string& why);
  void put_barrier(VkPipelineStageFlags to, VkAccessFlags access);
  void retire();
  Ticket reached();
  void check_lost(VkResult result, const char* call);
  uint32_t take_place();

  const std::shared_ptr<Context> context_;
  VkCommandPool pool_ = nullptr;
  VkSemaphore timeline_ = nullptr;
  std::atomic<Ticket> last_ = 0;       // Recorded.
  std::atomic<Ticket> submitted_ = 0;  // Handed to the device.
  std::atomic<Ticket> reached_ = 0;    // Seen to have ended.
  std::atomic<bool> is_lost_ = false;
  std::function<void()> on_lost_;
  mutable std::mutex loss_mutex_;
  std::string loss_;  // Guarded by loss_mutex_.

  std::mutex mutex_;  // Guards what follows, and the queue.
  bool is_open_ = false;
  Batch batch_;
  std::deque<Batch> in_flight_;
  std::vector<VkCommandBuffer> idle_;
  Hazards hazards_;

  std::mutex place_mutex_;  // Guards what follows.
  std::vector<VkQueryPool> query_pools_;
  std::vector<uint32_t> free_places_;

  Watcher watcher_;  // Ends first.
};

}  // namespace bp::vulkan
