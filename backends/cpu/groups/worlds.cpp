#include "backends/cpu/groups/worlds.hpp"

#include <algorithm>
#include <utility>

namespace bp::cpu {

void Worlds::add(std::shared_ptr<World> world) {
  const std::lock_guard lock(mutex_);
  worlds_.push_back(std::move(world));
}

bool Worlds::has_left() const {
  return std::ranges::any_of(worlds_, [](const auto& world) { return world->is_leaving(); });
}

void Worlds::forget_ended(std::chrono::milliseconds pause) {
  std::vector<std::shared_ptr<World>> ended;  // Ended without the lock.
  const std::lock_guard lock(mutex_);
  std::erase_if(worlds_, [&](const std::shared_ptr<World>& world) {
    if (!world->is_over()) return false;
    ended.push_back(world);
    return true;
  });
  if (looks_again_ || !has_left()) return;
  looks_again_ = true;
  deadlines_.add(std::chrono::steady_clock::now() + pause, weak_from_this(), [this, pause] {
    {
      const std::lock_guard again(mutex_);
      looks_again_ = false;
    }
    forget_ended(std::min(2 * pause, kLongestPause));
  });
}

void Worlds::shut_down() {
  const std::lock_guard lock(mutex_);
  for (const std::shared_ptr<World>& world : worlds_) world->shut_down();
}

}  // namespace bp::cpu
