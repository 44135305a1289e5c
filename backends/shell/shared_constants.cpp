#include "backplane/shell/shared_constants.hpp"

#include "backplane/shell/boundary.hpp"

namespace bp {
namespace {

bool has_ended(const bp_event_ops& ops, const OwnedEvent& event) {
  uint32_t is_done = 0;
  return ops.query != nullptr && ops.query(ops.self, event.get(), &is_done) == BP_OK &&
         is_done != 0;
}

}  // namespace

std::shared_ptr<SharedConstant> SharedConstants::find(bp_device* device, uint64_t generation,
                                                      const ProgramValue& value,
                                                      const std::string& name) {
  const std::lock_guard lock(mutex_);
  std::erase_if(constants_, [](const auto& entry) { return entry.second.expired(); });
  std::weak_ptr<SharedConstant>& place = constants_[{device, generation, value.key}];
  if (std::shared_ptr<SharedConstant> found = place.lock()) {
    const bool is_same = found->dtype == value.dtype && found->shape == value.shape &&
                         found->layout_words == value.layout_words;
    if (is_same) return found;
    throw StatusError(
        BP_INVALID_ARGUMENT,
        name + ": key \"" + value.key + "\" names a constant of another dtype, shape or layout");
  }
  auto made = std::make_shared<SharedConstant>();
  made->dtype = value.dtype;
  made->shape = value.shape;
  made->layout_words = value.layout_words;
  made->size_bytes = value.size_bytes();
  place = made;
  return made;
}

void SharedConstants::drop(std::vector<std::shared_ptr<SharedConstant>>& constants,
                           const bp_event_ops& ops, std::vector<OwnedEvent>& events,
                           std::vector<bp_buffer*>& buffers) {
  const std::vector<OwnedEvent> own = events;
  const std::lock_guard lock(mutex_);
  for (std::shared_ptr<SharedConstant>& constant : constants) {
    std::erase_if(constant->uses, [&](const OwnedEvent& event) { return has_ended(ops, event); });
    if (constant.use_count() > 1) {
      constant->uses.insert(constant->uses.end(), own.begin(), own.end());
    } else {
      events.insert(events.end(), constant->uses.begin(), constant->uses.end());
      if (constant->buffer != nullptr) buffers.push_back(constant->buffer);
    }
    constant.reset();
  }
  constants.clear();
}

}  // namespace bp
