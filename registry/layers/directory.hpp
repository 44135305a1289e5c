// Knows which tables behind a layer serve a device, for layers that make calls of their own.
#pragma once

#include <algorithm>
#include <vector>

#include "registry/layers/layer.hpp"

namespace bp::layers {

// on_table() fills it; after that it is only read.
class Directory {
 public:
  void add(const AnyTable& table) {
    if (const auto* allocator = std::get_if<Wrapped<bp_allocator_ops>*>(&table)) {
      allocators_.push_back(*allocator);
    }
    if (const auto* streams = std::get_if<Wrapped<bp_stream_ops>*>(&table)) {
      streams_.push_back(*streams);
    }
  }

  // Returns NULL if no table was added for the device. If there are several, the first one counts,
  // as in the registry.
  const bp_allocator_ops* allocator(bp_device* device) const { return find(allocators_, device); }
  const bp_stream_ops* streams(bp_device* device) const { return find(streams_, device); }

 private:
  template <typename Table>
  static const Table* find(const std::vector<Wrapped<Table>*>& tables, bp_device* device) {
    for (const Wrapped<Table>* wrapped : tables) {
      if (wrapped->devices.empty() || std::ranges::count(wrapped->devices, device) != 0) {
        return &wrapped->next;
      }
    }
    return nullptr;
  }

  std::vector<Wrapped<bp_allocator_ops>*> allocators_;
  std::vector<Wrapped<bp_stream_ops>*> streams_;
};

}  // namespace bp::layers
