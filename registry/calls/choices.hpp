// Remembers which kernels were chosen for earlier calls.
//
// A choice is remembered by the key of its call (call.hpp). Readers take no lock: they read a hash
// table of pointers to which entries are added, and from which none is removed. When the table is
// half full, a copy of twice the size replaces it. When a plugin is loaded or unloaded, an empty
// table replaces it. Old tables stay readable until the target ends, so a reader may still use one.
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
  bool asks_supports;         // If true, supports() must be asked about every call.
  bool needs_scalar_tensors;  // If true, a tensor must replace each inline scalar of the call.
  bool has_reason = false;    // If true, the reason is noted: it is no kernel of the device alone.
};

struct Choices {
  Key key;
  uint64_t hash = 0;                  // Of the key.
  std::vector<Candidate> candidates;  // From every source, the best first.
};

// The choices for one target. It is thread-safe.
class Selection {
 public:
  Selection();
  Selection(const Selection&) = delete;

  // Returns what is remembered for `key`, or NULL if nothing is.
  const Choices* find(const Key& key, uint64_t hash) const {
    const Table& table = *table_.load(std::memory_order_acquire);
    for (uint64_t i = hash & table.mask;; i = (i + 1) & table.mask) {
      const Choices* choices = table.slots[i].load(std::memory_order_acquire);
      if (choices == nullptr || choices->key == key) return choices;
    }
  }

  // Returns a number that each clear() raises. A caller reads it before it reads the facts from
  // which it makes a choice.
  uint64_t generation() const { return generation_.load(std::memory_order_acquire); }

  // Keeps `choices` alive, and remembers them unless clear() was called since the caller read
  // `generation`. If another thread has remembered choices for the key first, returns those, else
  // returns `choices`.
  const Choices* insert(std::unique_ptr<const Choices> choices, uint64_t hash, uint64_t generation);

  // Forgets everything.
  void clear();

 private:
  struct Table {
    explicit Table(uint64_t slot_count);

    uint64_t mask;
    // The slots. An empty slot ends a search, so there is always one.
    std::unique_ptr<std::atomic<const Choices*>[]> slots;
    uint64_t used_count = 0;
  };

  static void put(Table& table, const Choices* choices, uint64_t hash);
  Table& grown_locked();

  std::atomic<Table*> table_;
  std::atomic<uint64_t> generation_ = 0;
  std::mutex mutex_;
  // mutex_ guards the members below.
  std::vector<std::unique_ptr<Table>> tables_;  // The last one is in use.
  std::vector<std::unique_ptr<const Choices>> choices_;
};

}  // namespace bp::core
