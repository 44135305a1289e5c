// The ranks of a process group that live in this process, and the thread that watches them.
//
// Communicators do not block: work that they cannot do at once goes on in the background, and its
// state is polled. nccl_launch.hpp says how calls get there. If a rank does not arrive, the others
// wait for at most their timeout. Then the watch fails their streams and aborts the communicators,
// which ends the kernels that wait. A call that ends a communicator may wait for all work of its
// device, so each such call has its own thread.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "backends/cuda/nccl_call.hpp"
#include "backends/cuda/stream.hpp"

namespace bp::cuda {

using NcclClock = std::chrono::steady_clock;

// Returns the deadline of a timeout, which is NcclClock::time_point::max() for UINT64_MAX.
NcclClock::time_point deadline_of(uint64_t timeout_ns);

// Waits until done() is true. Returns false if the deadline passed first.
bool wait_until(NcclClock::time_point deadline, const std::function<bool()>& done);

// One rank.
struct NcclMember {
  uint32_t rank = 0;
  Device* device = nullptr;
  void* scratch = nullptr;  // 8 bytes of the device that nobody reads.
  uint64_t next_sequence = 0;
  bool is_closed = false;           // Set when the host destroys the group.
  std::shared_ptr<Queue> launches;  // The calls that NCCL has not taken yet.
  std::mutex mutex;                 // It guards what follows, for one thread at a time.
  ncclComm_t comm = nullptr;
  // The places where NCCL stores the communicators of a split, at any time before abort() returns.
  std::list<ncclComm_t> children;
};

// The arguments of a collective that must be equal on all ranks.
struct NcclSignature {
  bp_collective_kind kind;
  bp_reduction reduction;
  bp_dtype dtype;
  uint32_t root;
  uint64_t count;
  bool operator==(const NcclSignature&) const = default;
};

// The options of a group, as NCCL has them.
struct NcclOptions {
  int min_ctas = NCCL_CONFIG_UNDEF_INT;
  int max_ctas = NCCL_CONFIG_UNDEF_INT;
};

class NcclWorld {
 public:
  NcclWorld(const Nccl& nccl, uint32_t size, uint64_t timeout_ns, const bp_store* store,
            std::string prefix, const NcclOptions& options)
      : nccl_(nccl),
        size_(size),
        timeout_ns_(timeout_ns),
        store_(store),
        prefix_(std::move(prefix)),
        options_(options) {}
  NcclWorld(const NcclWorld&) = delete;
  ~NcclWorld();

  const Nccl& nccl() const { return nccl_; }
  uint32_t size() const { return size_; }
  uint64_t timeout_ns() const { return timeout_ns_; }
  const bp_store* store() const { return store_; }
  const std::string& prefix() const { return prefix_; }
  const NcclOptions& options() const { return options_; }
  std::vector<std::unique_ptr<NcclMember>>& members() { return members_; }

  Outcome status() const;

  // Ends the group with `why`, and tells the other processes. Returns false if the group has
  // already ended.
  bool end(const Outcome& why);
  // Checks whether another process has ended the group; if so, ends it here too and returns true.
  bool look_for_end();

  // Returns the state of a communicator, which is ncclInProgress while it is busy in the
  // background.
  ncclResult_t state_of(NcclMember& member);
  // Waits until none of `members` is busy. Throws StatusError for a failure and for BP_TIMEOUT.
  void wait_ready(const std::vector<NcclMember*>& members, NcclClock::time_point deadline,
                  const char* what);

  // Throws StatusError unless the local ranks give equal signatures for the same collective.
  void check_signature(uint64_t sequence, const NcclSignature& signature, uint32_t rank);

  // Returns how many parts were made of this world before. The number is equal in every process.
  uint32_t take_split_number() { return next_split_.fetch_add(1); }

  // Aborts a communicator, which also ends the kernels that wait in it, and a split of it that goes
  // on.
  void abort(NcclMember& member);

 private:
  const Nccl& nccl_;
  const uint32_t size_;
  const uint64_t timeout_ns_;
  const bp_store* const store_;
  const std::string prefix_;
  const NcclOptions options_;
  std::vector<std::unique_ptr<NcclMember>> members_;
  std::atomic<uint32_t> next_split_ = 0;

  mutable std::mutex mutex_;  // It guards the members below.
  Outcome status_;
  std::map<uint64_t, std::pair<NcclSignature, uint32_t>>
      signatures_;  // The value counts the ranks that gave it.
};

// Submitted work that has not ended.
struct NcclWork {
  enum class State {
    kQueued,      // Earlier calls of the rank, or earlier work of the stream, are in front of it.
    kConnecting,  // NCCL has it.
    kLaunched,    // It is on its stream, with `event` behind it.
    kOver,        // It will not be launched.
  };
  NcclWork(std::shared_ptr<NcclWorld> its_world, NcclMember* its_member,
           std::shared_ptr<Lane> its_lane, std::string its_name)
      : world(std::move(its_world)),
        member(its_member),
        lane(std::move(its_lane)),
        what(std::move(its_name)) {}

  void launch(std::unique_ptr<NativeEvent> its_event, NcclClock::time_point its_deadline) {
    event = std::move(its_event);
    deadline = its_deadline;
    state = State::kLaunched;
  }

  const std::shared_ptr<NcclWorld> world;
  NcclMember* const member;
  const std::shared_ptr<Lane> lane;
  const std::string what;
  std::atomic<State> state = State::kQueued;
  // Valid in the state kLaunched.
  std::unique_ptr<NativeEvent> event;
  NcclClock::time_point deadline = NcclClock::time_point::max();
  // Only the watch uses these. After the end of its world, work may run until `last_moment`.
  bool is_ended = false;
  NcclClock::time_point last_moment;
};

class NcclWatch {
 public:
  NcclWatch() = default;
  NcclWatch(const NcclWatch&) = delete;
  // Waits for running work, at most for its timeouts, and ends the rest.
  ~NcclWatch();

  void add(std::shared_ptr<NcclWork> work);

  // The threads that give calls to NCCL. Each of them may wait for connections, so each rank can
  // have its own.
  Executor& launcher() { return launcher_; }

  // Returns whether calls of the rank have not reached their streams.
  bool is_launching(const NcclMember& member);

  // Ends a world with `why`. The streams of its work fail at once, and its communicators end soon
  // after.
  void end(const std::shared_ptr<NcclWorld>& world, const Outcome& why);

  // Ends one rank when its work has ended.
  void close(const std::shared_ptr<NcclWorld>& world, NcclMember& member);

 private:
  struct Reaper {
    std::thread thread;
    std::shared_ptr<std::atomic<bool>> is_done;
  };
  void run();
  // Returns the streams of the work of a world.
  std::vector<std::shared_ptr<Lane>> lanes_of(const NcclWorld& world);
  void fail_work(const NcclWorld& world, const Outcome& why);
  void look_at_work(bool asks_stores);
  // Returns true if the work need not be watched any more. Else sets out_why to the reason why it
  // must end, or to BP_OK.
  bool look_at(NcclWork& work, bool asks_stores, Outcome& out_why);
  // Runs `task` on a thread of its own.
  void reap(std::function<void()> task);
  void abort_all(const std::shared_ptr<NcclWorld>& world);
  void close_now(NcclWorld& world, NcclMember& member);
  bool has_work(const NcclMember& member);
  void drop_queued_work();

  Executor launcher_{SIZE_MAX};
  std::mutex mutex_;  // It guards the members below.
  std::condition_variable changed_;
  std::vector<std::shared_ptr<NcclWork>> work_;
  std::list<Reaper> reapers_;
  bool is_stopping_ = false, is_started_ = false;
  std::atomic<NcclClock::time_point> stop_deadline_ = NcclClock::time_point::max();
  std::thread thread_;
};

}  // namespace bp::cuda
