// The worlds of an instance, until their members are over.
#pragma once

#include <chrono>
#include <memory>
#include <mutex>
#include <vector>

#include "backends/cpu/groups/world.hpp"

namespace bp::cpu {

class Worlds : public std::enable_shared_from_this<Worlds> {
 public:
  // The deadlines outlive the worlds.
  explicit Worlds(Deadlines& deadlines) : deadlines_(deadlines) {}
  Worlds(const Worlds&) = delete;

  void add(std::shared_ptr<World> world);

  // Forgets the worlds whose members are over. If the host has destroyed others, it looks again
  // later by itself: the thread of a member ends a little after its rank has left.
  void forget_ended() { forget_ended(kFirstPause); }

  // Ends all worlds, and waits until their members are over.
  void shut_down();

 private:
  static constexpr std::chrono::milliseconds kFirstPause{10}, kLongestPause{1000};

  void forget_ended(std::chrono::milliseconds pause);
  bool has_left() const;  // Needs the lock.

  Deadlines& deadlines_;
  std::mutex mutex_;  // It guards the members below.
  std::vector<std::shared_ptr<World>> worlds_;
  bool looks_again_ = false;  // A deadline is set.
};

}  // namespace bp::cpu
