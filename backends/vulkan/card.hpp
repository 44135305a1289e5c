// A physical device as this process uses it: all instances of this library share it, so that their
// buffers, streams and events work together. It stands for the card in the machine and knows no
// host; it is the one thing here that is not part of an instance.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "backends/vulkan/context.hpp"
#include "backends/vulkan/pipelines.hpp"
#include "backends/vulkan/recorder.hpp"
#include "backends/vulkan/shadows.hpp"
#include "backends/vulkan/staging.hpp"

namespace bp::vulkan {

class Device;

// Everything that an open device has.
struct Engine {
  explicit Engine(const std::shared_ptr<Context>& its_context)
      : context(its_context),
        uploads(its_context, false),
        readbacks(its_context, true),
        pipelines(its_context),
        recorder(its_context) {
    if (its_context->options.has_validation) shadows = std::make_unique<Shadows>(its_context);
  }

  const std::shared_ptr<Context> context;
  Staging uploads, readbacks;
  Pipelines pipelines;
  std::unique_ptr<Shadows> shadows;  // For validation layers; else NULL.
  Recorder recorder;                 // Ends first: work may use the others.
};

class Card : public std::enable_shared_from_this<Card> {
 public:
  Card(Physical physical, ContextOptions options);
  Card(const Card&) = delete;

  const Physical& physical() const { return physical_; }
  const ContextOptions& options() const { return options_; }

  // Opens the device at the first call. Throws StatusError.
  std::shared_ptr<Engine> engine();

  // The same, or NULL where it is not open: nothing is initialised.
  std::shared_ptr<Engine> engine_if_open() const;

  bool is_lost() const;
  uint64_t generation() const { return generation_.load(std::memory_order_acquire); }

  // The memory that lies at a device address, for as long as it exists.
  void add(const std::shared_ptr<Memory>& memory);
  std::shared_ptr<Memory> find(uint64_t address);

  // The devices of instances, each for as long as it lives.
  void attach(Device* device);
  void detach(Device* device);

  // Ends all work on the card: from now on its calls fail with BP_DEVICE_LOST.
  void lose();

  // ": vkQueueSubmit failed: VK_ERROR_DEVICE_LOST", behind words that the device is lost; "" where
  // the driver has not said so.
  std::string loss() const;

  // Brings the card back for `device`, whose handles all end. Throws StatusError of BP_UNSUPPORTED
  // while another instance uses the card.
  void reset(Device& device);

  // A line for the logs of all hosts that use the card.
  void log(bp_log_level level, const std::string& text) const;

 private:
  std::vector<Device*> attached() const;
  void lose_engine(const Engine* lost);
  void end_work();

  const Physical physical_;
  ContextOptions options_;
  std::atomic<bool> is_lost_ = false;
  std::atomic<uint64_t> generation_ = 0;
  std::mutex reset_mutex_;    // One reset at a time.
  mutable std::mutex mutex_;  // Guards `devices_`.
  std::vector<Device*> devices_;
  mutable std::mutex engine_mutex_;  // Guards `engine_`.
  std::shared_ptr<Engine> engine_;
  std::mutex memory_mutex_;                             // Guards what follows.
  std::map<uint64_t, std::weak_ptr<Memory>> memories_;  // By address; some have ended.
  size_t swept_count_ = 0;  // How many were left when the ended ones were removed last.
};

// The card of a physical device, for everybody who opens it in the same way.
std::shared_ptr<Card> card_of(const Physical& physical, const ContextOptions& options);

}  // namespace bp::vulkan
