// Loads a backend: its library, its entry point, its instance.
#pragma once

#include <memory>
#include <string>

#include "backplane/host.h"
#include "registry/layers/stack.hpp"

namespace bp::core {

// One instance of a backend, and its library unless the backend is linked in. The destructor ends
// both.
class Instance {
 public:
  Instance() = default;
  Instance(Instance&& other) noexcept { swap(other); }
  Instance& operator=(Instance&& other) noexcept {
    swap(other);
    return *this;
  }
  ~Instance() { static_cast<void>(end()); }

  // Opens the plugin file at `path`, an absolute path, and negotiates.
  bp_status open(const std::string& path, const bp_host* host, layers::Stack& layers);

  // Agrees on an ABI with a backend whose entry point is in this process, and takes an instance. On
  // failure the text says why, in the backend's own words if it has any. `name` is for the text.
  // `layers` is put in front of the instance and must outlive it.
  bp_status negotiate(const std::string& name, bp_backend_entry_fn* entry, const bp_host* host,
                      layers::Stack& layers);

  const bp_backend* backend() const { return has_backend_ ? &backend_ : nullptr; }
  uint32_t abi_major() const { return abi_major_; }
  uint32_t abi_minor() const { return abi_minor_; }

  // Shuts the instance down, closes its library, and returns the status of the shutdown.
  bp_status end();

 private:
  void swap(Instance& other) noexcept;

  void* library_ = nullptr;
  bool has_backend_ = false;
  bp_backend backend_{};  // A copy, because a backend's own struct may be shorter.
  uint32_t abi_major_ = 0, abi_minor_ = 0;
};

}  // namespace bp::core
