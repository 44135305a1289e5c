#include "backends/cuda/engines.hpp"

namespace bp::cuda {
namespace {

// Makes an engine if it does not exist yet. No library runs under the lock, so two threads may both
// make an engine; the first one is kept.
template <typename Engine, typename Table>
Engine* find_or_start(std::mutex& mutex, std::unique_ptr<Engine>& place, const Table* library) {
  if (library == nullptr) return nullptr;
  {
    const std::lock_guard lock(mutex);
    if (place != nullptr) return place.get();
  }
  auto made = std::make_unique<Engine>(*library);
  const std::lock_guard lock(mutex);
  if (place == nullptr) place = std::move(made);
  return place.get();
}

}  // namespace

Engines::Engines(const bp_host& host, const LibrarySearch& search) : libraries_(host, search) {}

Engines::~Engines() {
  for (auto& [device, started] : started_) {
    try {
      const Current current(*device);
      started = {};
    } catch (const StatusError&) {
      // The device is lost, and so is all that the libraries had on it. Their handles are not
      // destroyed.
      static_cast<void>(started.lt.release());
      static_cast<void>(started.dnn.release());
    }
  }
}

LtEngine* Engines::lt(Device& device) {
  std::unique_lock lock(mutex_);
  Started& started = started_[&device];
  lock.unlock();
  return find_or_start(mutex_, started.lt, libraries_.cublaslt());
}

DnnEngine* Engines::dnn(Device& device) {
  std::unique_lock lock(mutex_);
  Started& started = started_[&device];
  lock.unlock();
  return find_or_start(mutex_, started.dnn, libraries_.cudnn());
}

}  // namespace bp::cuda
