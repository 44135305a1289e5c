// MPI tells nobody that a message has come, so the thread asks again and again: without a pause
// while messages come, and ever more seldom if none does. It leaves its processor to others each
// time, because ranks and their calculations may share few processors. It takes no time from
// threads that go on with their calls themselves.
#include "backends/cpu/mpi/pump.hpp"

#include <sched.h>

#include <algorithm>
#include <utility>

namespace bp::mpi {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;

constexpr auto kBusy = microseconds(200);       // After something has happened.
constexpr auto kFarewell = milliseconds(1000);  // For all notices when the instance ends.

// Returns how long to rest when nothing has happened for `idle`.
std::chrono::nanoseconds pause_after(std::chrono::nanoseconds idle, bool has_calls) {
  if (!has_calls) return milliseconds(2);
  return idle < milliseconds(5) ? microseconds(50) : microseconds(500);
}

}  // namespace

Pump::~Pump() {
  if (api_ != nullptr) api_->not_on_exit(this);
  stop();
}

// It is called a second time if the process exits before the backend is shut down.
void Pump::stop() {
  {
    const std::lock_guard lock(mutex_);
    is_stopping_ = true;
  }
  alarm_->ring();
  if (thread_.joinable()) thread_.join();
}

void Pump::add(std::shared_ptr<World> world) {
  const Api* const api = world->api();
  bool is_first = false;
  {
    const std::lock_guard lock(mutex_);
    added_.push_back(std::move(world));
    if (!thread_.joinable()) thread_ = std::thread([this] { run(); });
    is_first = api != nullptr && api_ == nullptr;
    if (is_first) api_ = api;
  }
  if (is_first) {
    api->on_exit([](void* context) { static_cast<Pump*>(context)->stop(); }, this);
  }
  alarm_->ring();
}

bool Pump::is_stopping() {
  const std::lock_guard lock(mutex_);
  return is_stopping_;
}

Pump::Worlds Pump::take_added() {
  const std::lock_guard lock(mutex_);
  return std::exchange(added_, {});
}

void Pump::run() {
  Clock::time_point last = Clock::now();
  while (!is_stopping()) {
    for (auto& world : take_added()) worlds_.push_back(std::move(world));
    bool has_calls = false, is_changed = false, is_helped = false;
    for (const auto& world : worlds_) {
      const World::Progress progress = world->pump();
      is_changed |= progress.has_happened;
      has_calls |= progress.has_calls;
      is_helped |= progress.is_helped;
    }
    std::erase_if(worlds_, [](const auto& world) { return world->is_over(); });
    const auto now = Clock::now();
    if (is_changed) last = now;
    if (now - last < kBusy && !is_helped) {
      sched_yield();
    } else if (worlds_.empty()) {
      alarm_->wait();
    } else {
      alarm_->wait(pause_after(now - last, has_calls));
    }
  }
  say_goodbye();
  worlds_.clear();
}

void Pump::say_goodbye() {
  for (auto& world : take_added()) worlds_.push_back(std::move(world));
  for (const auto& world : worlds_) {
    if (!world->has_said()) world->end({BP_ABORTED, "the backend was shut down"});
  }
  const auto end = Clock::now() + kFarewell;
  bool has_said = false;
  while (!has_said && Clock::now() < end) {
    has_said = true;
    for (const auto& world : worlds_) {
      static_cast<void>(world->pump());
      has_said &= world->has_said();
    }
    sched_yield();
  }
}

}  // namespace bp::mpi
