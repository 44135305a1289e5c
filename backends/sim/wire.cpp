#include "backends/sim/wire.hpp"

#include <algorithm>
#include <numeric>
#include <utility>

namespace bp::sim {
namespace {

// A program whose calls have ever other sizes must not take ever more memory.
constexpr size_t kMostPlans = 4096;

}  // namespace

void Crossings::add(double now, simulate::Call call, const std::vector<uint32_t>& ranks,
                    uint64_t tag) {
  std::vector<uint32_t> order(ranks.size());
  std::iota(order.begin(), order.end(), 0u);
  std::ranges::stable_sort(order, {}, [&](uint32_t i) { return ranks[i]; });
  simulate::Group group;
  for (const uint32_t i : order) group.ranks.push_back(ranks[i]);
  const auto place_of = [&](uint32_t i) {
    return static_cast<uint32_t>(std::ranges::find(order, i) - order.begin());
  };
  call.source = place_of(call.source);
  call.target = place_of(call.target);
  if (costs_.plan_count() >= kMostPlans) costs_.forget_plans();
  const simulate::CallCost cost = costs_.cost(call, group);
  simulate::Transfer transfer{.tag = tag};
  if (cost.transfer_s > 0) {
    transfer.work = 1;
    transfer.loads = cost.loads;
    transfer.weight = transfer.max_rate = 1 / cost.transfer_s;
  }
  delayed_.emplace(now + cost.latency_s, std::move(transfer));
}

double Crossings::next() {
  const double end = transfers_.next_end();
  return delayed_.empty() ? end : std::min(end, delayed_.begin()->first);
}

std::vector<uint64_t> Crossings::take(double now) {
  std::vector<uint64_t> tags;
  for (double time = next(); time <= now && time != simulate::kNever; time = next()) {
    if (!delayed_.empty() && delayed_.begin()->first == time) {
      transfers_.add(time, std::move(delayed_.begin()->second));
      delayed_.erase(delayed_.begin());
    } else {
      transfers_.end_next(tags);
    }
  }
  return tags;
}

Wire::~Wire() {
  {
    const std::lock_guard lock(mutex_);
    is_stopping_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
}

void Wire::send(const simulate::Call& call, const std::vector<uint32_t>& ranks,
                std::function<void()> arrived) {
  const std::lock_guard lock(mutex_);
  if (!thread_.joinable()) thread_ = std::thread([this] { run(); });
  crossings_.add(now(), call, ranks, next_tag_);
  arrivals_.emplace(next_tag_++, std::move(arrived));
  changed_.notify_all();
}

// A call that begins late because the thread woke late does not end late: the thread takes all that
// has happened at the times at which it has.
void Wire::run() {
  std::unique_lock lock(mutex_);
  while (!is_stopping_) {
    std::vector<std::function<void()>> arrived;
    for (const uint64_t tag : crossings_.take(now())) {
      const auto place = arrivals_.find(tag);
      arrived.push_back(std::move(place->second));
      arrivals_.erase(place);
    }
    if (!arrived.empty()) {
      lock.unlock();
      for (auto& each : arrived) each();
      arrived.clear();
      lock.lock();
      continue;
    }
    const double next = crossings_.next();
    if (next == simulate::kNever) {
      changed_.wait(lock);
    } else {
      // A year is beyond the timeout of every call.
      constexpr double kLongest = 365.0 * 24 * 3600;
      const std::chrono::duration<double> until(std::min(next, now() + kLongest));
      changed_.wait_until(lock, begin_ + std::chrono::ceil<Clock::duration>(until));
    }
  }
}

}  // namespace bp::sim
