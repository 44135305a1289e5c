// A physical device as this process uses it. All instances of this library share it, so that their
// buffers, streams and events work together. Only this object is not part of an instance.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "backends/vulkan/context.hpp"
#include "backends/vulkan/pipelines.hpp"
#include "backends/vulkan/recorder.hpp"
#include "backends/vulkan/shadows.hpp"
#include "backends/vulkan/staging.hpp"
#include "backplane/shell/shared_card.hpp"

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

class Card : public SharedCard<Device>, public std::enable_shared_from_this<Card> {
 public:
  Card(Physical physical, ContextOptions options);
  Card(const Card&) = delete;

  const Physical& physical() const { return physical_; }
  const ContextOptions& options() const { return options_; }

  // Opens the device at the first call. Throws StatusError.
  std::shared_ptr<Engine> engine();

  // Returns the engine, or NULL if the device is not open. It never opens the device.
  std::shared_ptr<Engine> engine_if_open() const;

  // Returns true also if the driver has reported a loss, and the work is not ended yet.
  bool is_lost() const;

  // Memory is added with its device address, and can be found as long as it exists.
  void add(const std::shared_ptr<Memory>& memory);
  std::shared_ptr<Memory> find(uint64_t address);

  // Returns the text that follows "the device is lost", such as ": vkQueueSubmit failed:
  // VK_ERROR_DEVICE_LOST", or "" if the driver did not report the loss.
  std::string loss() const;

  // Does what SharedCard does, and closes the engine. The next call opens a new one.
  void reset(Device& device);

  // Writes a line to the logs of all hosts that use the card.
  void log(bp_log_level level, const std::string& text) const;

 private:
  void lose_engine(const Engine* lost);
  void close_engine();

  const Physical physical_;
  ContextOptions options_;
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
