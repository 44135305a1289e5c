// Where the ranks of a group find each other: the host's store in the form that Gloo knows, and a
// store for ranks that all live in this process.
#pragma once

#include <gloo/rendezvous/store.h>

#include <chrono>
#include <condition_variable>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "backplane/collective.h"
#include "backplane/shell/queue.hpp"

namespace bp::cpu {

// A bp_store in the memory of this process. Its functions leave no error text.
class LocalStore {
 public:
  LocalStore();
  LocalStore(const LocalStore&) = delete;
  const bp_store* table() const { return &table_; }

 private:
  bp_status get(const char* key, uint64_t timeout_ns, uint64_t capacity, void* out_value,
                uint64_t* out_size_bytes);
  bp_status put(const char* key, const void* value, uint64_t size_bytes);

  bp_store table_{};
  std::mutex mutex_;  // It guards the values.
  std::condition_variable changed_;
  std::map<std::string, std::string> values_;
};

// The keys of a bp_store that begin with a prefix. Functions throw StatusError. Any thread may end
// the waits of the thread that connects a rank. Each value ends with the number of ranks, so that
// ranks which disagree about it are told: Gloo would fail at the size of their lists of addresses.
class GroupStore final : public gloo::rendezvous::Store {
 public:
  // `rank` is the rank that connects, of `world_size`.
  GroupStore(const bp_store& store, std::string prefix, uint32_t rank, uint32_t world_size);

  void set(const std::string& key, const std::vector<char>& data) override;
  std::vector<char> get(const std::string& key) override;
  void wait(const std::vector<std::string>& keys) override;
  void wait(const std::vector<std::string>& keys,
            const std::chrono::milliseconds& timeout) override;

  // Lets the functions throw `why`, now and later; the first reason counts. Returns whether the
  // rank has published its addresses: from then on Gloo does not change its list of connections.
  bool end(const Outcome& why);

  // Returns the reason of end(), or BP_OK.
  Outcome ended() const;

  // Returns the rank whose key was asked for last, such as " rank 3"; "" if none was.
  std::string awaited() const;

 private:
  // Throws StatusError if the waits have ended.
  void check() const;
  bp_status put(const std::string& name, const std::vector<char>& data) const;
  // Returns what a rank has put without its number of ranks. Throws StatusError if that is another.
  std::vector<char> without_size(std::vector<char> value) const;

  const bp_store& store_;
  const std::string prefix_;
  const std::string address_key_;  // Gloo puts the addresses of the rank there.
  const uint32_t world_size_;

  mutable std::mutex mutex_;  // It guards the members below.
  Outcome ended_;
  bool is_published_ = false;
  std::string awaited_;
};

}  // namespace bp::cpu
