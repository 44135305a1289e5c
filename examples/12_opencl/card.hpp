// A device of the machine as this process uses it. The instances of all hosts in the process share
// it, so a loss ends the work of all of them.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>

#include "backplane/shell/shared_card.hpp"
#include "driver.hpp"

namespace acme_opencl {

class Device;

class Card : public bp::SharedCard<Device> {
 public:
  explicit Card(DeviceInfo info) : info_(std::move(info)) {}

  const DeviceInfo& info() const { return info_; }

  // Returns the context. The first call opens it.
  std::shared_ptr<Context> context();
  bool is_open() const;

  // Ends the old context when its last memory and queue have ended, and opens another one when it
  // is needed.
  void reset(Device& device);

 private:
  const DeviceInfo info_;
  mutable std::mutex mutex_;  // It guards `context_`.
  std::shared_ptr<Context> context_;
};

// Returns the card number `index` of those that the driver finds. A card keeps its state while an
// instance has it.
std::shared_ptr<Card> card_of(uint32_t index, const DeviceInfo& info);

}  // namespace acme_opencl
