// Keeps the choices of a library's heuristics, by everything on which a choice depends. The
// heuristics take some ten microseconds, and a lookup a tenth of one.
//
// It also keeps that a library has no choice for a shape, because this takes as long to find out.
#pragma once

#include <cstdint>
#include <list>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <utility>
#include <vector>

namespace bp::cuda {

// The words on which a choice depends.
class PlanKey {
 public:
  void add(int64_t word) { words_.push_back(word); }
  bool operator==(const PlanKey&) const = default;

  size_t hash() const {
    uint64_t hash = 0x9E3779B97F4A7C15u;
    for (const int64_t word : words_) {
      hash = (hash ^ static_cast<uint64_t>(word)) * 0xBF58476D1CE4E5B9u;
      hash ^= hash >> 29;
    }
    return static_cast<size_t>(hash);
  }

 private:
  std::vector<int64_t> words_;
};

// Holds up to `capacity` choices, and drops the one that was not used for the longest time. It is
// safe from any thread.
template <typename Plan>
class PlanCache {
 public:
  explicit PlanCache(size_t capacity) : capacity_(capacity) {}

  // Returns the choice of `key`, a shared_ptr<const Plan>, or NULL if there is none. If the cache
  // lacks the key, make() makes the choice. make() runs without the lock, so two threads may both
  // run it; the first result is kept. An exception of make() is not kept.
  template <typename Make>
  std::shared_ptr<const Plan> find(const PlanKey& key, Make&& make) {
    {
      const std::lock_guard lock(mutex_);
      if (const auto at = places_.find(key); at != places_.end()) {
        order_.splice(order_.begin(), order_, at->second);
        return at->second->plan;
      }
    }
    std::shared_ptr<const Plan> made = std::forward<Make>(make)();
    const std::lock_guard lock(mutex_);
    if (const auto at = places_.find(key); at != places_.end()) return at->second->plan;
    order_.push_front({key, std::move(made)});
    places_.emplace(key, order_.begin());
    if (order_.size() > capacity_) {
      places_.erase(order_.back().key);
      order_.pop_back();
    }
    return order_.front().plan;
  }

  size_t size() const {
    const std::lock_guard lock(mutex_);
    return order_.size();
  }

  void clear() {
    const std::lock_guard lock(mutex_);
    places_.clear();
    order_.clear();
  }

 private:
  struct Entry {
    PlanKey key;
    std::shared_ptr<const Plan> plan;
  };
  struct Hash {
    size_t operator()(const PlanKey& key) const { return key.hash(); }
  };

  const size_t capacity_;
  mutable std::mutex mutex_;  // It guards the members below.
  std::list<Entry> order_;    // The last used one is first.
  std::unordered_map<PlanKey, typename std::list<Entry>::iterator, Hash> places_;
};

}  // namespace bp::cuda
