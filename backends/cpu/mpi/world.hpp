// One rank of a group over MPI, and the calls that it runs. Each process has one rank of a group.
//
// One thread, that of pump.hpp, goes on with the calls of all groups of the instance, and never
// waits in MPI. Other threads leave calls here, and take what has become of them. A thread that
// waits for a call goes on with the calls of its group itself meanwhile, so that no other thread
// must wake up for them.
//
// Each rank sends each other one exactly one notice: that it leaves, or that its group has ended.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "backends/cpu/mpi/alarm.hpp"
#include "backends/cpu/mpi/channel.hpp"
#include "backplane/shell/rank_call.hpp"

namespace bp::mpi {

using Clock = std::chrono::steady_clock;

// What makes a group.
struct WorldPlan {
  bp_device* device = nullptr;
  uint32_t rank = 0, size = 1;
  const bp_store* store = nullptr;  // Not used by a group of one rank.
  std::string prefix;
  uint64_t timeout_ns = 0;    // Of calls that give none.
  bool shares_memory = true;  // The ranks use memory that they share, if they are on one machine.
};

// A call from its submission to its end.
struct Running : RankCall {
  const char* name = "";  // Of the call, for people.
  uint64_t sequence = 0;  // Among the collectives of its rank, or the letters to or from its peer.
  // If set, it makes the work of this call, which is none of the host.
  std::function<std::unique_ptr<Activity>(Channel& channel)> make;
  std::unique_ptr<Activity> activity;
  uint64_t limit_ns = 0;  // The timeout.
  Clock::time_point deadline = Clock::time_point::max();
};

class World : public std::enable_shared_from_this<World> {
 public:
  using Call = Running;

  // Meets the other ranks, for the entry `call`, and joins them within timeout_ns. Throws
  // StatusError.
  static std::shared_ptr<World> make(const std::shared_ptr<Alarm>& alarm, const WorldPlan& plan,
                                     uint64_t timeout_ns, const char* call);
  World(std::shared_ptr<Alarm> alarm, const WorldPlan& plan, std::optional<Channel> channel);
  World(const World&) = delete;
  ~World();

  uint32_t rank() const { return plan_.rank; }
  uint32_t size() const { return plan_.size; }
  const WorldPlan& plan() const { return plan_; }
  const Api* api() const { return channel_ ? &channel_->api : nullptr; }  // NULL without MPI.
  bool has_lanes() const { return has_lanes_; }
  Outcome status() const;

  // Returns the number of the next split or shrink, which all processes count alike.
  uint64_t next_child();

  // Gives a call its number, in the order of the submissions.
  void number(Running& call);

  // Says that the stream of `call` has reached the call, with the outcome `before` of the work in
  // front of it.
  void arrive(const std::shared_ptr<Running>& call, const Outcome& before);

  // Ends all calls, and every later one, with `why`. The other ranks are told. A second end()
  // changes nothing. It never waits.
  void end(const Outcome& why);

  // The host has destroyed the group, which leaves when its calls are over. If they are, this waits
  // until the other ranks are told, but not for long.
  void leave();

  // ---- For the thread of the pump ---------------------------------------------------------------

  // What became of the calls of a group in pump().
  struct Progress {
    bool has_happened = false;  // A call went on.
    bool has_calls = false;     // There are calls that are not over, or one may come unheard.
    bool is_helped = false;     // Threads that wait for calls go on with them.
  };

  // Goes on with all calls, without waiting. Leaves them to threads that wait for one of them.
  Progress pump();

  // Returns whether nothing is left to do for a group that the host has destroyed.
  bool is_over() const;

  // Returns whether the other ranks know how the group has ended, or that this rank has left.
  bool has_said() const;

 private:
  // The key is the number of the letter; a letter of the rank to itself waits for its other half.
  using Letters = std::map<uint64_t, std::shared_ptr<Running>>;

  bool poll(bool may_have_notices);
  bool begin_at_once(const Running& call);
  void pump_until_done(const Running& call);
  void take_arrivals();
  void start(const std::shared_ptr<Running>& call);
  void deliver(const std::shared_ptr<Running>& call);
  bool go_on(const std::shared_ptr<Running>& call);
  bool is_turn_of(const Running& call) const;
  void pass_turn(const Running& call);
  void finish(const std::shared_ptr<Running>& call, const Outcome& outcome);
  void wind_up();
  void read_notices();
  void say_if_due();
  void check_departed(const Running& call);
  void expire_own_letters();
  Outcome late(const Running& call, const std::string& awaited) const;
  std::string awaited(const Running& call) const;

  const std::shared_ptr<Alarm> alarm_;
  const WorldPlan plan_;
  const bool has_lanes_;  // Collectives go through memory that the ranks share.

  mutable std::mutex mutex_;  // It guards the members below.
  std::condition_variable changed_;
  Outcome status_;
  std::vector<std::shared_ptr<Running>> arrivals_;
  uint64_t next_sequence_ = 0;
  std::set<uint64_t> ahead_;  // The collectives that may still begin operations.
  std::map<uint32_t, uint64_t> next_send_, next_receive_;  // By peer.
  uint64_t next_child_ = 0;
  int submitted_ = 0;
  bool is_destroyed_ = false, has_said_ = false;

  // They are set with status_ and is_destroyed_, and are read without the mutex.
  std::atomic<bool> has_ended_ = false, is_leaving_ = false;

  std::atomic<int> helpers_ = 0;          // Threads that wait for a call and go on with it.
  std::atomic<bool> was_helped_ = false;  // Whether such a thread saw the end of the last call.

  std::atomic<std::thread::id> poller_;  // The thread that is in poll().

  std::mutex polling_;              // It guards the members below. It is locked before mutex_.
  std::optional<Channel> channel_;  // A group of one rank has none.
  std::vector<std::shared_ptr<Running>> active_;
  Letters own_letters_;
  std::optional<Pending> inbox_;
  std::map<uint32_t, Clock::time_point> departed_;  // When the notice of a rank came.
  std::vector<Pending> outbox_;
  std::optional<Clock::time_point> saying_;  // Since when the notices leave.
  bool is_wound_up_ = false;
};

}  // namespace bp::mpi
