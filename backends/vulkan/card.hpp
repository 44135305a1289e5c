// A physical device as this process uses it. All instances of this library share it, so that their
// buffers, streams and events work together. It stands for the card in the machine, so it knows no
// host. Only this object is not part of an instance.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "backends/vulkan/attached.hpp"
#include "backends/vulkan/context.hpp"
#include "backends/vulkan/pipelines.hpp"
#include "backends/vulkan/recorder.hpp"
#include "backends/vulkan/shadows.hpp"
#include "backends/vulkan/staging.hpp"

namespace bp::vulkan {

class Device;

// All parts of an open device.
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
  std::unique_ptr<Shadows> shadows;  // NULL without validation layers.
  Recorder recorder;                 // It ends first, because work may use the others.
};

class Card : public std::enable_shared_from_this<Card> {
 public:
  Card(Physical physical, ContextOptions options);
  Card(const Card&) = delete;

  const Physical& physical() const { return physical_; }
  const ContextOptions& options() const { return options_; }

  // Opens the device at the first call. Throws StatusError.
  std::shared_ptr<Engine> engine();

  // Returns the engine, or NULL if the device is not open. It never opens the device.
  std::shared_ptr<Engine> engine_if_open() const;

  bool is_lost() const;
  uint64_t generation() const { return generation_.load(std::memory_order_acquire); }

  // Memory is added with its device address, and can be found as long as it exists.
  void add(const std::shared_ptr<Memory>& memory);
  std::shared_ptr<Memory> find(uint64_t address);

  // The device of an instance is attached until the instance shuts down. detach() blocks while
  // other threads call the device for this card.
  void attach(Device* device) { attached_.add(device); }
  void detach(Device* device) { attached_.remove(device); }

  // Ends all work on the card. Later calls on it fail with BP_DEVICE_LOST.
  void lose();

  // Returns the text that follows "the device is lost", such as ": vkQueueSubmit failed:
  // VK_ERROR_DEVICE_LOST", or "" if the driver did not report the loss.
  std::string loss() const;

  // Makes the card usable again for `device`, and ends all handles of that device. Throws
  // StatusError of BP_UNSUPPORTED while another instance uses the card.
  void reset(Device& device);

  // Writes a line to the logs of all hosts that use the card.
  void log(bp_log_level level, const std::string& text) const;

 private:
  void lose_engine(const Engine* lost);
  void end_work();

  const Physical physical_;
  ContextOptions options_;
  std::atomic<bool> is_lost_ = false;
  std::atomic<uint64_t> generation_ = 0;
  std::mutex reset_mutex_;  // Allows one reset at a time.
  AttachedDevices<Device> attached_;
  mutable std::mutex engine_mutex_;  // It guards `engine_`.
  std::shared_ptr<Engine> engine_;
  std::mutex memory_mutex_;                             // It guards the members below.
  std::map<uint64_t, std::weak_ptr<Memory>> memories_;  // By address; some may have ended.
  size_t swept_count_ = 0;  // The size after the last removal of ended ones.
};

// Returns the card of a physical device. All who open the device with the same options share the
// card.
std::shared_ptr<Card> card_of(const Physical& physical, const ContextOptions& options);

}  // namespace bp::vulkan
