// Process groups whose ranks all live in this process, over the queues of one backend.
//
// A call of a rank is two things on its stream: an arrival, and a wait. Ranks meet where all of
// them have arrived; the last one does the work for all, and the waits end. No thread blocks, so
// ranks may share one thread, and a rank that does not come costs the others its timeout and no
// more.
#pragma once

#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "backplane/collective.h"
#include "backplane/shell/boundary.hpp"
#include "backplane/shell/queue.hpp"

namespace bp {

// Memory of a backend that a call works on; open while it does.
class GroupMemory {
 public:
  virtual ~GroupMemory() = default;
  virtual std::byte* open() = 0;  // Throws StatusError.
  virtual void close() = 0;
};

// How groups reach the streams and the memory of their backend. Throws StatusError for what is not
// of `device`, and for a range that leaves its buffer; `call` and `what` are for the text.
class GroupBackend {
 public:
  virtual ~GroupBackend() = default;
  virtual void check_device(bp_device* device, const char* call) = 0;
  virtual std::shared_ptr<Queue> queue(bp_stream* stream, bp_device* device, const char* call) = 0;
  virtual std::shared_ptr<GroupMemory> memory(const bp_buffer_ref& range, bp_device* device,
                                              bool is_written, const char* call,
                                              const char* what) = 0;
};

// What one rank submitted.
struct RankCall {
  uint32_t rank = 0, world_size = 0, root = 0;
  bp_collective_kind kind = 0;
  bp_reduction reduction = 0;
  bp_dtype dtype = 0;
  uint64_t count = 0, tag = 0, timeout_ns = 0;
  std::vector<uint64_t> send_counts;     // A part for each rank: `count` where parts are even.
  std::vector<uint64_t> receive_counts;  // Of all_to_all.
  double scale = 1;
  std::shared_ptr<GroupMemory> send, receive;  // NULL where the kind has none.
  std::shared_ptr<Queue> queue;
  std::shared_ptr<Point> done = std::make_shared<Point>(false);
};

// Elements that a rank sends and receives.
uint64_t sent_elements(const RankCall& call);
uint64_t received_elements(const RankCall& call);

// Does the work of a call of which `calls` are all ranks', in their order; of a send and its
// receive in this order. Throws StatusError.
void run_collective(const std::vector<const RankCall*>& calls);

class World;

// Ends what waits too long. One thread for all groups of an instance; it starts with the first
// deadline.
class Deadlines {
 public:
  ~Deadlines();

  // Calls `expire` once, at `when`, unless its owner is gone by then.
  void add(std::chrono::steady_clock::time_point when, std::weak_ptr<void> owner,
           std::function<void()> expire);

 private:
  struct Entry {
    std::weak_ptr<void> owner;
    std::function<void()> expire;
  };
  void run();

  std::mutex mutex_;  // Guards what follows.
  std::condition_variable changed_;
  std::multimap<std::chrono::steady_clock::time_point, Entry> entries_;
  bool is_stopping_ = false;
  std::thread thread_;
};

// One rank of a group: the handle.
struct LocalGroup {
  static constexpr uint32_t kMagic = 0x47726f75;

  uint32_t magic = kMagic;
  uint32_t rank;
  bp_device* device;
  std::shared_ptr<World> world;
  uint64_t next_sequence = 0;  // Of its collectives. Guarded by the world's mutex.
};

// The ranks of one group, and where they meet.
class World : public std::enable_shared_from_this<World> {
 public:
  World(Deadlines& deadlines, std::vector<bp_device*> devices, uint64_t timeout_ns)
      : deadlines_(deadlines), devices_(std::move(devices)), timeout_ns_(timeout_ns) {}

  uint32_t size() const { return static_cast<uint32_t>(devices_.size()); }
  bp_device* device(uint32_t rank) const { return devices_[rank]; }
  uint64_t timeout_ns() const { return timeout_ns_; }
  Outcome status() const;

  // The place of the next collective of `group`.
  uint64_t take_sequence(LocalGroup& group);

  // The stream of `call` has reached it, after `before`. `sequence` is that of take_sequence();
  // sends and receives meet by peer and tag instead.
  void arrive(const std::shared_ptr<RankCall>& call, uint64_t sequence, const Outcome& before);

  // Ends all that waits, and every later call, with `why`. The first counts.
  void end(const Outcome& why);

 private:
  // The ranks that have come to one place.
  struct Meeting {
    std::vector<std::shared_ptr<RankCall>> calls;  // By rank; NULL for those that have not come.
    uint32_t arrived = 0;
  };

  void arrive_at_meeting(const std::shared_ptr<RankCall>& call, uint64_t sequence);
  void arrive_at_peer(const std::shared_ptr<RankCall>& call);
  void watch(const std::shared_ptr<RankCall>& call, uint64_t sequence);
  // Whom a call that has arrived waits for: " rank 3"; "" if it does not wait any more.
  std::string awaited(const std::shared_ptr<RankCall>& call, uint64_t sequence);

  Deadlines& deadlines_;
  const std::vector<bp_device*> devices_;
  const uint64_t timeout_ns_;

  mutable std::mutex mutex_;  // Guards what follows; never held while work runs.
  Outcome status_;
  std::map<uint64_t, Meeting> meetings_;  // By sequence.
  std::deque<std::shared_ptr<RankCall>> sends_, receives_;
};

// The groups of one instance of a backend: the `self` of the table.
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
