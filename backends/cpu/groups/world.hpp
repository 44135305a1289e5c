// The ranks of one group that live in this process, and the calls that they run.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "backends/cpu/groups/listener.hpp"
#include "backends/cpu/groups/member.hpp"
#include "backends/cpu/groups/store.hpp"
#include "backends/cpu/groups/waits.hpp"
#include "backends/cpu/shm/call.hpp"
#include "backplane/shell/deadline.hpp"
#include "backplane/shell/local_group.hpp"
#include "backplane/shell/rank_call.hpp"

namespace bp::cpu {

class BegunCall;

// The threads of all groups of an instance.
struct GroupThreads {
  explicit GroupThreads(const bp_host& its_host) : host(its_host) {}

  // A call that has arrived holds a thread until it ends, since Gloo's collectives block.
  static constexpr size_t kMaxCalls = 512;

  const bp_host& host;
  Deadlines deadlines;
  Executor calls{kMaxCalls};
};

// What makes a group. If the host gave no store, all ranks are local, and `local_store` is set.
struct WorldPlan {
  std::vector<bp_device*> devices;  // Of the local ranks.
  std::vector<uint32_t> ranks;      // The local ranks.
  uint32_t size = 0;
  const bp_store* store = nullptr;
  std::shared_ptr<LocalStore> local_store;
  std::string prefix;
  uint64_t timeout_ns = 0;  // Of calls that give none.
  ListenOptions options;
};

// A call from its submission to its end.
struct Running : RankCall {
  const char* name = "";                          // Of the call, for people.
  std::function<void(gloo::Context& mesh)> body;  // If set, this is the work instead of the call.
  Member* member = nullptr;
  uint64_t sequence = 0;  // Among the collectives of its rank, or the letters to or from its peer.
  Waits waits;
  std::shared_ptr<BegunCall> begun;   // Set if the call has begun on the thread where it arrived.
  std::unique_ptr<shm::Call> shared;  // Set from its arrival if it goes through shared memory.
  bool has_deadline = false;
  Deadlines::Key deadline;
};

class World : public std::enable_shared_from_this<World> {
 public:
  using Call = Running;

  // Begins to connect the local ranks, for the entry `call`. Throws StatusError.
  static std::shared_ptr<World> start(GroupThreads& threads, const WorldPlan& plan,
                                      const char* call);
  World(GroupThreads& threads, const WorldPlan& plan);
  World(const World&) = delete;

  // Waits until the local ranks have connected to all ranks. Throws StatusError, also if `deadline`
  // passes first; then there is no group, and its members are over soon.
  void wait_until_made(const Deadline& deadline, uint64_t timeout_ns, const char* call);

  uint32_t size() const { return plan_.size; }
  const WorldPlan& plan() const { return plan_; }
  const bp_store& store() const;
  const std::string& prefix() const { return plan_.prefix; }
  bool is_local(uint32_t rank) const;
  const std::vector<std::unique_ptr<Member>>& members() const { return members_; }
  Outcome status() const;

  // Returns the number of the next split or shrink, which all processes count alike.
  uint64_t next_child();

  // Gives a call its number, in the order of the submissions.
  void number(Running& call);

  // Says that the stream of `call` has reached the call, with the outcome `before` of the work in
  // front of it. The call runs on a thread of its own, or on one that waits for it.
  void arrive(const std::shared_ptr<Running>& call, const Outcome& before);

  // Ends the group if the host has not destroyed it, and waits until its members are over.
  void shut_down();

  // Returns whether the host has destroyed the handles of all members, and their calls are over.
  bool is_leaving() const;

  // Returns whether all members are over.
  bool is_over() const;

  // Ends all calls that run, and every later call, with `why`. The ranks of other processes are
  // told. A second end() changes nothing.
  void end(const Outcome& why);

 private:
  // Sends to itself meet receives from itself here.
  using Letters = std::map<std::pair<uint32_t, uint64_t>, std::shared_ptr<Running>>;

  void watch(const std::shared_ptr<Running>& call);
  void expire(const std::shared_ptr<Running>& call, uint64_t timeout_ns);
  bool run_at_once(const std::shared_ptr<Running>& call);
  static void begin(Running& call);
  static void run_shared(Running& call);
  void run(const std::shared_ptr<Running>& call);
  void deliver(const std::shared_ptr<Running>& call);
  void conclude(const std::shared_ptr<Running>& call, const Outcome& outcome);
  void finish(const std::shared_ptr<Running>& call, const Outcome& outcome);
  std::string missing_ranks() const;

  GroupThreads& threads_;  // Not used after end(), because the instance may be gone.
  const WorldPlan plan_;
  std::vector<std::unique_ptr<Member>> members_;
  std::unique_ptr<QuickLoop> quick_;  // Set while the members connect.

  mutable std::mutex mutex_;  // It guards the members below.
  Outcome status_;
  std::set<std::shared_ptr<Running>> running_;
  Letters own_letters_;                         // The key is the rank and the number of the letter.
  std::map<uint32_t, uint64_t> next_sequence_;  // The next collective by rank.
  std::map<std::pair<uint32_t, uint32_t>, uint64_t> next_send_, next_receive_;  // By rank and peer.
  uint64_t next_child_ = 0;
};

}  // namespace bp::cpu
