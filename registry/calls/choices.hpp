// The memory of earlier choices of kernels.
//
// A choice is remembered by the key of its call (call.hpp) and read without a lock: a table of
// pointers that only ever fills up. It grows by a copy of twice its size, and is replaced by an
// empty one when a plugin comes or goes; what was replaced stays readable until the target ends, so
// that readers need no protection.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "backplane/host.h"
#include "registry/calls/call.hpp"

namespace bp::core {

// A kernel whose claims cover a call.
struct Candidate {
  const bp_kernel* kernel;
  bp_kernel_sources source;
  bool asks_supports;         // The kernel's answer cannot be remembered.
  bool needs_scalar_tensors;  // It takes no inline scalars, and the call has one.
};

struct Choices {
  Key key;
  std::vector<Candidate> candidates;  // Best first; from every source.
};

// Thread-safe.
class Selection {
 public:
  Selection();
  Selection(const Selection&) = delete;

  // What is remembered for `key`; NULL if nothing is.
  const Choices* find(const Key& key, uint64_t hash) const {
    const Table& table = *table_.load(std::memory_order_acquire);
    for (uint64_t i = hash & table.mask;; i = (i + 1) & table.mask) {
      const Choices* choices = table.slots[i].load(std::memory_order_acquire);
      if (choices == nullptr || choices->key == key) return choices;
    }
  }

  // Raised by each clear(). To be read before the facts that a choice is made from.
  uint64_t generation() const { return generation_.load(std::memory_order_acquire); }

  // Keeps `choices`, and remembers them unless the generation has changed since.
  const Choices* insert(std::unique_ptr<const Choices> choices, uint64_t hash, uint64_t generation);

  // Forgets everything.
  void clear();

 private:
  struct Table {
    explicit Table(uint64_t slot_count);

    uint64_t mask;
    std::unique_ptr<std::atomic<const Choices*>[]> slots;  // NULL ends a search: never all full.
    uint64_t used_count = 0;
  };

  static void put(Table& table, const Choices* choices, uint64_t hash);
  Table& grown_locked();

  std::atomic<Table*> table_;
  std::atomic<uint64_t> generation_ = 0;
  std::mutex mutex_;
  // Guarded by mutex_.
  std::vector<std::unique_ptr<Table>> tables_;  // The last is in use.
  std::vector<std::unique_ptr<const Choices>> choices_;
};

}  // namespace bp::core
