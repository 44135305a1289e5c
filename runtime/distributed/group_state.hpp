// What a ProcessGroup and its Work share.
#pragma once

#include <atomic>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "backplane/runtime/distributed/process_group.hpp"
#include "backplane/runtime/error.hpp"

namespace bp::distributed {

// Returns the nanoseconds of the C side. A duration below 0 is 0, and Duration::max() never
// expires.
uint64_t timeout_ns(Duration timeout);

// The groups of one create(), split() or shrink() that live in this process. The table splits or
// shrinks all of them in one call, so the rank that comes last makes the call for all.
class LocalRanks {
 public:
  struct Part {
    bp_process_group* group = nullptr;  // NULL for a rank without a color.
    std::shared_ptr<LocalRanks> local;
    uint32_t index = 0;  // The place of the rank in `local`.
  };
  struct Request {
    bp_process_group* group;
    uint32_t color;
    uint32_t key;
  };

  explicit LocalRanks(std::vector<uint32_t> ranks) : ranks_(std::move(ranks)) {}

  // Called by each rank, whose place is `index`. Waits for the others.
  Part split(const bp_process_group_ops& ops, uint32_t index, const Request& request,
             Duration timeout) {
    return meet(ops, index, request, {}, timeout);
  }

  // Called by each rank that is not among the `gone` ones, which all ranks give alike.
  Part shrink(const bp_process_group_ops& ops, uint32_t index, bp_process_group* group,
              const std::vector<uint32_t>& gone, Duration timeout) {
    return meet(ops, index, {group, 0, 0}, gone, timeout);
  }

 private:
  // One split or shrink, from its first rank to its last.
  struct Round {
    std::vector<uint32_t> gone;  // The ranks that do not come. None, if the groups are split.
    std::vector<Request> requests;
    std::vector<bool> has_come;
    uint32_t missing = 0;
    std::vector<Part> parts;
    bp_status status = BP_OK;
    std::string text;
    bool is_done = false;
  };
  Part meet(const bp_process_group_ops& ops, uint32_t index, const Request& request,
            const std::vector<uint32_t>& gone, Duration timeout);
  std::shared_ptr<Round> make_round(const std::vector<uint32_t>& gone) const;
  static void run(const bp_process_group_ops& ops, Round& round, Duration timeout,
                  const std::vector<uint32_t>& ranks);
  std::string missing_ranks(const Round& round) const;

  const std::vector<uint32_t> ranks_;
  std::mutex mutex_;  // Guards the members below, and the rounds.
  std::condition_variable changed_;
  std::shared_ptr<Round> round_;  // The round that ranks can still come to.
};

struct GroupState {
  GroupState(Device on, const bp_process_group_ops& table, const GroupOptions& options,
             std::shared_ptr<Store> shared)
      : device(on),
        ops(table),
        stream(on),
        store(std::move(shared)),
        name(options.name),
        timeout(options.timeout),
        observer(options.observer) {}
  ~GroupState();
  GroupState(const GroupState&) = delete;

  // Returns text like "rank 1 of 4 of the group 'world'".
  std::string describe() const;

  const Device device;
  const bp_process_group_ops& ops;
  const Stream stream;
  const std::shared_ptr<Store> store;
  const std::string name;
  const Duration timeout;
  const std::shared_ptr<const CallObserver> observer;  // May be null.
  bp_process_group* handle = nullptr;
  uint32_t rank = 0;
  uint32_t size = 0;
  std::vector<uint32_t> members;  // For CallObserver::on_group. Empty if there is none.
  std::shared_ptr<LocalRanks> local;
  uint32_t local_index = 0;
  std::atomic<uint64_t> submit_count{0};
};

struct WorkState {
  WorkState(std::shared_ptr<GroupState> of, uint64_t count, std::string names)
      : group(std::move(of)),
        number(count),
        what(std::move(names) + " (submission " + std::to_string(count) + ")"),
        done(group->device) {}

  const std::shared_ptr<GroupState> group;
  const uint64_t number;   // Of the submission, from 1.
  const std::string what;  // Names the calls, such as "all_reduce (submission 3)".
  Event done;
  std::vector<Tensor> tensors;  // What the calls use.
};

// Returns the calls as the table takes them. They borrow from `calls`. Throws Error for a call that
// does not fit the group.
std::vector<bp_collective_call> make_calls(const GroupState& group,
                                           std::span<const Collective> calls);

// Returns the name of a kind, such as "all_reduce".
const char* kind_name(bp_collective_kind kind);

}  // namespace bp::distributed
