// Process groups: devices that reduce, gather, send and receive tensors together.
//
//   auto store = std::make_shared<bp::distributed::TcpStore>(host, port, rank == 0, world_size);
//   bp::distributed::ProcessGroup group(bp::Device("npu"), rank, world_size, store);
//   bp::distributed::Work work = group.all_reduce(tensor);  // Runs beside the caller's stream.
//   work.join();                                            // Later work sees the sum.
//
// Rules for everything here, unless it says otherwise:
//   Threads    Each rank submits from one thread at a time. abort(), status() and all of Work are
//              safe from any thread.
//   Blocking   Making and splitting groups waits for the other ranks, but no longer than the
//              timeout. Work::wait() waits. Nothing else does.
//   Errors     Throws bp::Error, which names the call, the rank and the group. If a rank is gone or
//              late, work on every other rank fails with BP_TIMEOUT or BP_ABORTED; the group then
//              can only be destroyed, and a new one be made under another name.
//   Ownership  A ProcessGroup owns its group of the backend, a stream, and a share of the store.
//              Work that was submitted keeps group and tensors until it has ended.
//   Order      All ranks make the same calls in the same order. A call starts after the work that
//              is on the caller's current stream of the device then.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "backplane/collective.h"
#include "backplane/runtime/device.hpp"
#include "backplane/runtime/distributed/store.hpp"
#include "backplane/runtime/tensor.hpp"

namespace bp::distributed {

enum class Reduction : bp_reduction {
  kSum = BP_REDUCTION_SUM,
  kProduct = BP_REDUCTION_PRODUCT,
  kMin = BP_REDUCTION_MIN,
  kMax = BP_REDUCTION_MAX,
  kAverage = BP_REDUCTION_AVERAGE,
  kScaledSum = BP_REDUCTION_SCALED_SUM,
};

// One call of one rank. bp_collective_call says what each kind reads and writes, and what `counts`
// and `receive_counts` mean. Tensors are contiguous, on the device of the group, and of one dtype.
struct Collective {
  bp_collective_kind kind = 0;
  Tensor send, receive;  // The same tensor in a call that is in place. Empty where nothing moves.
  Reduction reduction = Reduction::kSum;
  double scale = 1;                              // For kScaledSum.
  uint32_t root = 0;                             // The peer for send and receive.
  std::vector<uint64_t> counts, receive_counts;  // For uneven parts.

  static Collective all_reduce(const Tensor& tensor, Reduction reduction = Reduction::kSum);
  static Collective reduce(const Tensor& tensor, uint32_t root,
                           Reduction reduction = Reduction::kSum);
  static Collective broadcast(const Tensor& tensor, uint32_t root);
  static Collective all_gather(const Tensor& output, const Tensor& input);
  static Collective reduce_scatter(const Tensor& output, const Tensor& input,
                                   Reduction reduction = Reduction::kSum);
  static Collective all_to_all(const Tensor& output, const Tensor& input);
  // `output` is read at the root alone, as is the input of scatter(). Elsewhere it may be empty.
  static Collective gather(const Tensor& output, const Tensor& input, uint32_t root);
  static Collective scatter(const Tensor& output, const Tensor& input, uint32_t root);
  static Collective send_to(const Tensor& tensor, uint32_t peer);
  static Collective receive_from(const Tensor& tensor, uint32_t peer);
  static Collective barrier();
};

class ProcessGroup;
struct GroupState;
struct WorkState;

// Calls that were submitted together. Copies share it. It may be dropped: the work still runs.
class Work {
 public:
  Work() = default;  // Has ended well.

  bool is_done() const;

  // Blocks until the work has ended. Throws its failure, also when called again, and BP_TIMEOUT if
  // the work has not ended within `timeout`; the work then goes on.
  void wait(Duration timeout = Duration::max()) const;

  // Makes later work on the thread's current stream of the device wait for this work. Does not
  // block. If the work fails, so does that stream.
  void join() const;

  // Return BP_OK and "" while the work runs and if it has ended well, else its failure.
  bp_status status() const;
  std::string error_text() const;

 private:
  friend class ProcessGroup;
  explicit Work(std::shared_ptr<WorkState> state) : state_(std::move(state)) {}
  std::shared_ptr<WorkState> state_;
};

// Sees the calls of a group on this rank, on the threads that make them, such as for a recording.
// Functions may be empty. They must not call the group, and what they throw comes out of the call.
struct CallObserver {
  // Runs when a group has been made. `members` are the ranks that its members had in the group that
  // ProcessGroup's constructor or make_local() made: member i had the rank members[i]. With this
  // function split() and shrink() make a call of the new group, so all ranks have it, or none.
  std::function<void(const ProcessGroup& group, std::span<const uint32_t> members)> on_group;
  // Runs before calls are submitted together. `number` counts the submissions of the group, from 1.
  std::function<void(const ProcessGroup& group, uint64_t number, std::span<const Collective> calls)>
      on_submit;
  // Runs before Work::join() and Work::wait() of this submission, and again when they have ended
  // without an error.
  std::function<void(const std::string& group, uint64_t number, bool has_ended)> on_wait;
};

struct GroupOptions {
  // The name of the group. It begins the keys of the group in the store, so a store serves one
  // group of each name.
  std::string name = "world";
  std::string table_name;  // The backend's way to join devices; "" is the first one that it has.
  // A device of the host, such as "cpu", whose groups carry the calls through host memory
  // (backplane/staged.h); table_name is then one of its ways. "": the device's own groups, or those
  // of the first loaded device of the host where it has none. All ranks give the same.
  std::string transport;
  Duration timeout = std::chrono::minutes(10);  // For making the group, and for each call.
  std::vector<std::pair<std::string, std::string>> options;  // Options of that table.
  std::shared_ptr<const CallObserver> observer;  // Of this group and of those made from it.
};

class ProcessGroup {
 public:
  // Joins the group as rank `rank`. Every rank does so, each in its own process or thread.
  ProcessGroup(Device device, uint32_t rank, uint32_t world_size, std::shared_ptr<Store> store,
               const GroupOptions& options = {});

  // Makes a group whose ranks all live in this process. Rank i is on devices[i].
  static std::vector<ProcessGroup> make_local(std::span<const Device> devices,
                                              const GroupOptions& options = {});

  uint32_t rank() const;
  uint32_t size() const;
  Device device() const;
  const std::string& name() const;
  const char* table_name() const;  // The table's own name, as the backend gives it.
  const Stream& stream() const;    // Where the work of the group runs.
  Duration timeout() const;        // Of each call.

  // Returns whether the backend runs such calls. `reduction` counts for kinds that reduce.
  bool supports(bp_collective_kind kind, bp_dtype dtype,
                Reduction reduction = Reduction::kSum) const;

  // Submits the calls together, so that sends and receives cannot deadlock. If a call is refused,
  // none is submitted.
  Work submit(std::span<const Collective> calls) const;
  Work submit(const Collective& call) const { return submit({&call, 1}); }

  // Each submits the call of its name.
  Work all_reduce(const Tensor& tensor, Reduction reduction = Reduction::kSum) const;
  Work reduce(const Tensor& tensor, uint32_t root, Reduction reduction = Reduction::kSum) const;
  Work broadcast(const Tensor& tensor, uint32_t root) const;
  Work all_gather(const Tensor& output, const Tensor& input) const;
  Work reduce_scatter(const Tensor& output, const Tensor& input,
                      Reduction reduction = Reduction::kSum) const;
  Work all_to_all(const Tensor& output, const Tensor& input) const;
  Work gather(const Tensor& output, const Tensor& input, uint32_t root) const;
  Work scatter(const Tensor& output, const Tensor& input, uint32_t root) const;
  Work send(const Tensor& tensor, uint32_t peer) const;
  Work receive(const Tensor& tensor, uint32_t peer) const;

  // Blocks until all ranks have come here, and the work before on their group's streams has ended.
  void barrier() const;

  // Makes groups of the ranks that give the same color, ordered by key, then by rank. Every rank
  // calls it, ranks that share a process from threads of their own. Without a color the rank gets
  // no group.
  std::optional<ProcessGroup> split(std::optional<uint32_t> color, uint32_t key,
                                    const std::string& name) const;

  // Makes a group without the `gone` ranks, after a failure. All other ranks call it with the same
  // list, ranks that share a process from threads of their own. Ranks keep their order, and this
  // group is aborted.
  ProcessGroup shrink(std::span<const uint32_t> gone, const std::string& name) const;

  // Ends all work of the group, here and on the other ranks, with BP_ABORTED. Does not block.
  void abort() const;

  // Return BP_OK and "", or why the group cannot be used any more.
  bp_status status() const;
  std::string error_text() const;

 private:
  explicit ProcessGroup(std::shared_ptr<GroupState> state) : state_(std::move(state)) {}
  std::shared_ptr<GroupState> state_;
};

}  // namespace bp::distributed
