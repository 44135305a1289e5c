// One rank of a group in this process: its connections to all other ranks, and the thread that
// watches them.
//
// Each rank sends each other one at most one notice: that it leaves, or that its group has ended.
// The thread waits for the notices of the others. A connection that closes without a notice means
// that the rank at its other end is gone.
#pragma once

#include <gloo/context.h>

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "backends/cpu/groups/listener.hpp"
#include "backends/cpu/groups/store.hpp"
#include "backends/cpu/groups/waits.hpp"
#include "backends/cpu/shm/lanes.hpp"
#include "backplane/collective.h"
#include "backplane/shell/queue.hpp"

namespace bp::cpu {

class ListeningDevice;
class World;

class Member {
 public:
  Member(World& world, uint32_t rank, bp_device* device);
  Member(const Member&) = delete;
  ~Member();

  uint32_t rank() const { return rank_; }
  bp_device* device() const { return device_; }

  // Starts the thread, which connects the rank to the others through `listener`.
  void start(std::shared_ptr<gloo::transport::tcp::Device> listener);

  // Completes when the rank has connected, or has failed to.
  Point& joined() { return joined_; }

  // Returns the ranks that this one waits for while it connects, such as " rank 3".
  std::string awaited() const;

  // Ends the waits of the thread with `why`, because the group has ended.
  void end(const Outcome& why);

  // The host has destroyed the group of this rank, which leaves when its calls are over. If they
  // are, this waits until the other ranks are told.
  void leave();
  bool is_leaving() const;  // Returns whether this has come.

  // Counts the calls that were submitted, and those that run. A call runs on mesh().
  void count_submitted(int calls);
  void count_running(int calls);
  const std::shared_ptr<gloo::Context>& mesh() const { return mesh_; }

  // The memory that all ranks share, or NULL if they are not on one machine.
  shm::Lanes* lanes() const { return lanes_.get(); }

  // Returns the ranks that have left.
  std::set<uint32_t> departed() const;

  // Returns whether the thread has ended. join() waits for it.
  bool is_over() const { return is_over_; }
  void join();

 private:
  void run();
  void connect();
  void meet();
  void share_memory();
  void ask_for_notices();
  void watch();
  void read_notice();
  void say(const Outcome& end);
  void close();
  std::string lost(const std::string& reason);

  World& world_;
  const uint32_t rank_;
  bp_device* const device_;
  std::shared_ptr<gloo::transport::tcp::Device> listener_;  // Ended with the connections.
  GroupStore store_;
  Waits joining_;
  Point joined_{false};
  std::shared_ptr<gloo::Context> mesh_;  // Set before joined(), and ended after the last call.
  std::unique_ptr<shm::Lanes> lanes_;    // Set before joined().
  std::vector<std::byte> notices_;       // Of each rank.

  mutable std::mutex mutex_;  // It guards the members below.
  std::condition_variable changed_;
  std::shared_ptr<ListeningDevice> connecting_;  // Set while the rank connects.
  std::unique_ptr<gloo::transport::UnboundBuffer> inbox_;
  std::set<uint32_t> departed_;  // Only the thread writes it.
  int submitted_ = 0, running_ = 0;
  bool is_destroyed_ = false, has_said_ = false;

  std::atomic<bool> is_over_ = false;
  std::thread thread_;  // It ends before the members above.
};

}  // namespace bp::cpu
