// Orders all work on a device: command buffers in batches on its one queue, and a timeline that
// says which batches have ended.
//
// Recorded work gets the ticket of its batch, which is the value that the timeline reaches when the
// batch has ended. Streams record work only when it may begin, so the queue never waits. Barriers
// are recorded where ranges conflict (hazards.hpp), and at the beginning of each batch.
//
// The functions are safe from any thread. Only wait() and the destructor wait for the device.
// Failures are StatusErrors.
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

// A moment on the device's clock. It keeps a place in a query pool until it is destroyed.
class Timestamp {
 public:
  Timestamp(Recorder& recorder, uint32_t place) : recorder_(recorder), place_(place) {}
  Timestamp(const Timestamp&) = delete;
  ~Timestamp();

  uint32_t place() const { return place_; }

  // Returns the time in nanoseconds. The batch that wrote the timestamp must have ended.
  int64_t time_ns() const;

 private:
  Recorder& recorder_;
  const uint32_t place_;
};

// Records one piece of work, while it holds the recorder.
class Recording {
 public:
  explicit Recording(Recorder& recorder) : recorder_(recorder) {}

  // Records a barrier before the next command, if the command needs one.
  void order(std::span<const AddressRange> ranges);

  VkCommandBuffer commands() const;

  // Records a copy between two ranges that do not overlap.
  void copy(VkBuffer to, uint64_t to_offset, VkBuffer from, uint64_t from_offset,
            uint64_t size_bytes);

  // Keeps `object` alive until the work has ended.
  void retain(std::shared_ptr<const void> object);

  // Runs `job` on another thread when the device has finished the work. The work counts as ended
  // after the job.
  void on_end(std::function<void()> job);

  // Records a timestamp, which gives the device's time when all earlier work has ended.
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

  // Submits the recorded work to the device.
  void flush();

  // Returns whether the work with this ticket has ended.
  bool is_done(Ticket ticket);

  // Submits the work with this ticket if needed, and waits for it. Returns false if timeout_ns
  // passed first.
  bool wait(Ticket ticket, uint64_t timeout_ns);

  // Runs `job` when the work with this ticket has ended: on the calling thread if it already has,
  // else on another thread.
  void when_done(Ticket ticket, std::function<void()> job);

  // Returns the newest ticket.
  Ticket latest() const { return last_.load(std::memory_order_acquire); }

  // Releases what ended work holds.
  void collect();

  bool is_lost() const { return is_lost_.load(std::memory_order_acquire); }

  // Marks the device as lost. Nothing is recorded any more, and all work counts as ended. The first
  // `why` is kept.
  void lose(const std::string& why);

  // Returns why the device is lost, such as "vkQueueSubmit failed: VK_ERROR_DEVICE_LOST", or "" if
  // the driver did not report the loss.
  std::string loss() const;

  // Waits for running work and its jobs, also on a lost device.
  void drain();

  // Sets the function that is called once, on another thread, when the device is found to be lost.
  // It must be set before the first work.
  void set_on_lost(std::function<void()> on_lost) { on_lost_ = std::move(on_lost); }

 private:
  friend class Recording;
  friend class Timestamp;

  // A command buffer, and the objects that it keeps until it has ended.
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
  std::atomic<Ticket> last_ = 0;       // The newest recorded ticket.
  std::atomic<Ticket> submitted_ = 0;  // The newest submitted ticket.
  std::atomic<Ticket> reached_ = 0;    // The newest ticket known to have ended.
  std::atomic<bool> is_lost_ = false;
  std::function<void()> on_lost_;
  mutable std::mutex loss_mutex_;
  std::string loss_;  // `loss_mutex_` guards it.

  std::mutex mutex_;  // It guards the members below and the queue.
  bool is_open_ = false;
  Batch batch_;
  std::deque<Batch> in_flight_;
  std::vector<VkCommandBuffer> idle_;
  Hazards hazards_;

  std::mutex place_mutex_;  // It guards the members below.
  std::vector<VkQueryPool> query_pools_;
  std::vector<uint32_t> free_places_;

  Watcher watcher_;  // It ends first.
};

}  // namespace bp::vulkan
