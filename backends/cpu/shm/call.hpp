// A collective of one rank from its arrival to its end, on the lane that its number gives it.
#pragma once

#include <sched.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <thread>
#include <utility>

#include "backends/cpu/shm/collective.hpp"
#include "backends/cpu/shm/lanes.hpp"
#include "backplane/shell/shape.hpp"

namespace bp::shm {

// One thread at a time uses a call, except for awaits(), awaited() and has_begun().
class Call {
 public:
  // `sequence` is the number of the call among the collectives of its rank.
  Call(Lanes& lanes, const RankCall& call, uint64_t sequence)
      : lanes_(lanes),
        lane_(lanes.of(sequence)),
        before_(Lanes::calls_before(sequence)),
        call_(call) {}

  // Goes on as far as it can, and returns whether the call is over. It waits for other ranks as
  // long as a short call takes. A call of a group that has failed never begins. Throws StatusError
  // as Collective::poll() does.
  bool poll() {
    if (!inner_ && !begin()) return false;
    bool is_over = inner_->poll();
    for (int i = 0; !is_over && i < kSpins; ++i) is_over = inner_->poll();
    step_ = inner_->reading();
    if (is_over) lane_.end_call();
    return is_over;
  }

  // Returns a number that grows while the call goes on.
  uint64_t progress() const { return inner_ ? inner_->progress() : 0; }

  // Lets the memory of the call go.
  void close() { inner_.reset(); }

  bool has_begun() const { return step_ != kNone; }

  // Returns whether `rank` has yet to come to the step at which this rank is, of a call that has
  // begun here.
  bool awaits(uint32_t rank) const {
    const uint64_t step = step_;
    return step != kNone && rank != lane_.slots().rank() && !lane_.slots().has_posted(rank, step);
  }

  // Returns the ranks that have yet to come, such as " rank 1 rank 3"; "" if there are none.
  std::string awaited() const {
    std::string ranks;
    for (uint32_t rank = 0; rank < lane_.slots().world_size(); ++rank) {
      if (awaits(rank)) ranks += " rank " + std::to_string(rank);
    }
    return ranks;
  }

 private:
  static constexpr uint64_t kNone = UINT64_MAX;

  // A look at all other ranks takes some 20 ns.
  static constexpr int kSpins = 100;

  bool begin() {
    if (!lane_.may_begin(before_) || lanes_.has_ended()) return false;
    inner_.emplace(lane_.slots(), call_);
    step_ = lane_.slots().next_step;
    return true;
  }

  Lanes& lanes_;
  Lane& lane_;
  const uint64_t before_;
  const RankCall& call_;
  std::optional<Collective> inner_;
  std::atomic<uint64_t> step_ = kNone;  // That is read next.
};

// Returns whether a call takes no longer than to wake up another thread would.
inline bool is_short(const RankCall& call) {
  if (call.kind == BP_COLLECTIVE_BARRIER) return true;
  const auto item_bytes = static_cast<uint64_t>(dtype_size_bytes(call.dtype));
  return std::max(sent_elements(call), received_elements(call)) <= Slots::kDataBytes / item_bytes;
}

// How a thread waits for other ranks, which may need its processor.
class Patience {
 public:
  // `progress` is that of the call. A wait begins when it has grown.
  void wait(uint64_t progress) {
    const auto now = std::chrono::steady_clock::now();
    if (std::exchange(progress_, progress) != progress) begin_ = now;
    const auto waited = now - begin_;
    if (waited < kBusy) {
      sched_yield();
    } else {
      std::this_thread::sleep_for(waited < kSoon ? kShort : kLong);
    }
  }

 private:
  static constexpr auto kBusy = std::chrono::microseconds(200);
  static constexpr auto kSoon = std::chrono::milliseconds(5);
  static constexpr auto kShort = std::chrono::microseconds(50), kLong = kShort * 10;

  std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
  uint64_t progress_ = 0;
};

}  // namespace bp::shm
