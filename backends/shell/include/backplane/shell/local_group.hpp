// Process groups whose ranks all live in this process, over the queues of one backend.
//
// A call of a rank puts two items on its stream: an arrival, and a wait. When all ranks have
// arrived, the last one does the work for all of them, and the waits end. No thread blocks, so
// ranks may share one thread. If a rank does not arrive, the others wait for at most their timeout.
#pragma once

#include <array>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

#include "backplane/collective.h"
#include "backplane/shell/boundary.hpp"
#include "backplane/shell/group_checks.hpp"
#include "backplane/shell/rank_call.hpp"

namespace bp {

// Does the work of one collective. `calls` are the calls of all ranks in the order of the ranks, or
// a send and its receive in this order. Throws StatusError.
void run_collective(const std::vector<const RankCall*>& calls);

class World;

// Ends calls that wait too long. It has one thread for all groups of an instance, which starts with
// the first deadline.
class Deadlines {
 public:
  ~Deadlines();

  using TimePoint = std::chrono::steady_clock::time_point;

  // When, and a number that tells deadlines of one moment apart.
  using Key = std::pair<TimePoint, uint64_t>;

  // Calls `expire` once, at `when`, unless `owner` has expired by then. Returns the key for
  // remove().
  Key add(TimePoint when, std::weak_ptr<void> owner, std::function<void()> expire);

  // Forgets a deadline that is not needed any more. One that has just passed may still run.
  void remove(const Key& key);

 private:
  struct Entry {
    std::weak_ptr<void> owner;
    std::function<void()> expire;
  };
  static constexpr TimePoint kNever = TimePoint::max();

  void run();
  void sleep(std::unique_lock<std::mutex>& lock, TimePoint until);

  std::mutex mutex_;  // It guards the members below.
  std::condition_variable changed_;
  std::map<Key, Entry> entries_;
  TimePoint wakes_at_ = kNever;  // When the thread looks at the deadlines again.
  uint64_t next_number_ = 0;
  bool is_stopping_ = false;
  std::thread thread_;
};

// One rank of a group. A bp_process_group* points to it.
struct LocalGroup {
  static constexpr uint32_t kMagic = 0x47726f75;

  uint32_t magic = kMagic;
  uint32_t rank;
  bp_device* device;
  uint64_t generation;  // That of the device when the group was made.
  std::shared_ptr<World> world;
  uint64_t next_sequence = 0;  // The next collective. World::mutex_ guards it and what follows.
  std::map<uint32_t, std::array<uint64_t, 2>> next_letters;  // The next send and receive by peer.
};

inline uint32_t rank_of(const LocalGroup& group) { return group.rank; }

// The ranks of one group, and where they meet.
class World : public std::enable_shared_from_this<World> {
 public:
  World(Deadlines& deadlines, GroupBackend& backend, std::vector<bp_device*> devices,
        uint64_t timeout_ns)
      : deadlines_(deadlines),
        backend_(backend),
        devices_(std::move(devices)),
        timeout_ns_(timeout_ns) {}

  uint32_t size() const { return static_cast<uint32_t>(devices_.size()); }
  bp_device* device(uint32_t rank) const { return devices_[rank]; }
  uint64_t timeout_ns() const { return timeout_ns_; }
  Outcome status() const;

  // Returns the number of the next call of `group`: of its collectives, of its sends to the peer of
  // `call`, or of its receives from this peer.
  uint64_t take_sequence(LocalGroup& group, const RankCall& call);

  // Says that the stream of `call` has reached the call, with the outcome `before` of the work in
  // front of it. `sequence` is the number that take_sequence() gave.
  void arrive(const std::shared_ptr<RankCall>& call, uint64_t sequence, const Outcome& before);

  // Ends all calls that wait, and every later call, with `why`. A second end() changes nothing.
  void end(const Outcome& why);

 private:
  using Calls = std::vector<std::shared_ptr<RankCall>>;

  // The ranks that have arrived at one collective.
  struct Meeting {
    std::vector<std::shared_ptr<RankCall>> calls;  // By rank; NULL if a rank has not arrived.
    uint32_t arrived = 0;
  };

  // What has ended of a call to which all ranks have come.
  struct Flight {
    bool has_run = false;      // The data is where it belongs.
    bool has_crossed = false;  // It may be there already.
  };

  void arrive_at_meeting(const std::shared_ptr<RankCall>& call, uint64_t sequence);
  void arrive_at_peer(const std::shared_ptr<RankCall>& call, uint64_t sequence);
  void run(const Calls& calls, const std::shared_ptr<RankCall>& last, uint64_t sequence);
  void land(const Calls& calls);
  bool has_ended(bool& part, const bool& other);
  void watch(const std::shared_ptr<RankCall>& call, uint64_t sequence);
  // Returns what a call which has arrived waits for, such as " rank 3"; "" if it does not wait any
  // more.
  std::string awaited(const std::shared_ptr<RankCall>& call, uint64_t sequence);

  Deadlines& deadlines_;
  GroupBackend& backend_;
  const std::vector<bp_device*> devices_;
  const uint64_t timeout_ns_;

  mutable std::mutex mutex_;  // Guards the members below; not held while work runs.
  Outcome status_;
  std::map<uint64_t, Meeting> meetings_;  // The key is the sequence number.
  // The sends and receives whose other side has not arrived: from, to, and the sequence number.
  using Letter = std::tuple<uint32_t, uint32_t, uint64_t>;
  static Letter letter_of(const RankCall& call, uint64_t sequence);
  std::map<Letter, std::shared_ptr<RankCall>> letters_;
  std::set<std::shared_ptr<RankCall>> flying_;  // Their data has not crossed the wires.
};

// The groups of one instance of a backend. It is the `self` of their table.
class LocalGroups {
 public:
  LocalGroups(const bp_host& host, GroupBackend& backend) : host_(host), backend_(backend) {}

  const bp_host& host() const { return host_; }
  GroupBackend& backend() const { return backend_; }
  Deadlines& deadlines() { return deadlines_; }

  bp_process_group_ops table();

 private:
  const bp_host& host_;
  GroupBackend& backend_;
  Deadlines deadlines_;
};

}  // namespace bp
