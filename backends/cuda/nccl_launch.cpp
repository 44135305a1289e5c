#include "backends/cuda/nccl_launch.hpp"

#include <algorithm>
#include <mutex>
#include <utility>

namespace bp::cuda {
namespace {

// The calls of one rank that are one group of NCCL's.
class Batch {
 public:
  Batch(NcclWatch& watch, std::vector<NcclSubmission> calls)
      : watch_(watch), calls_(std::move(calls)) {
    for (const NcclSubmission& c : calls_) {
      const bool is_known = std::ranges::find(lanes_, c.lane) != lanes_.end();
      if (!is_known) lanes_.push_back(c.lane);
      auto work =
          std::make_shared<NcclWork>(c.world, c.member, c.lane, collective_name(c.call.kind));
      works_.push_back(work);
      watch_.add(std::move(work));
    }
  }
  Batch(const Batch&) = delete;
  ~Batch() { finish({BP_ABORTED, "the backend was shut down before the call reached NCCL"}); }

  NcclMember& member() const { return *calls_[0].member; }
  const std::vector<std::shared_ptr<Lane>>& lanes() const { return lanes_; }

  // Completes when NCCL has put the calls on their streams, or cannot.
  const std::shared_ptr<Point>& launched() const { return launched_; }

  // Takes note that a stream has reached the calls, after work with this outcome.
  void reach(const Outcome& before) {
    const std::lock_guard lock(mutex_);
    if (before_.status == BP_OK) before_ = before;
  }

  // Gives the calls to NCCL, and waits until they are on their streams.
  void run() noexcept {
    Outcome outcome;
    {
      const std::lock_guard lock(mutex_);
      outcome = before_;
    }
    if (outcome.status != BP_OK) return finish(outcome);  // The other ranks end by their timeout.
    try {
      issue();
    } catch (const StatusError& e) {
      outcome = {e.status(), e.what()};
    } catch (const std::exception& e) {
      outcome = {BP_INTERNAL, e.what()};
    }
    // Who sees the stream fail finds the world ended.
    if (outcome.status != BP_OK) watch_.end(calls_[0].world, outcome);
    finish(outcome);
  }

 private:
  void finish(const Outcome& outcome) noexcept {
    if (!launched_->complete(outcome) || outcome.status == BP_OK) return;
    for (const auto& work : works_) work->state = NcclWork::State::kOver;
  }

  void issue() {
    NcclWorld& world = *calls_[0].world;
    for (const auto& work : works_) work->state = NcclWork::State::kConnecting;
    auto deadline = NcclClock::time_point::max();
    for (const NcclSubmission& c : calls_) {
      deadline = std::min(deadline, deadline_of(c.timeout_ns));
    }
    const Current current(*member().device);
    submit();
    world.wait_ready({&member()}, deadline, collective_name(calls_[0].call.kind));
    const Driver& driver = member().device->driver();
    for (size_t i = 0; i < calls_.size(); ++i) {
      auto event = std::make_unique<NativeEvent>(*member().device, false);
      check(driver, driver.cudaEventRecord(event->get(), calls_[i].lane->native()),
            "cudaEventRecord");
      works_[i]->launch(std::move(event), deadline_of(calls_[i].timeout_ns));
    }
  }

  // Makes the calls. They go on in the background, where no lock is held.
  void submit() {
    NcclWorld& world = *calls_[0].world;
    const Nccl& nccl = world.nccl();
    const std::lock_guard lock(member().mutex);
    if (const Outcome ended = world.status(); ended.status != BP_OK) {
      refuse(ended.status, ended.text);
    }
    if (member().comm == nullptr) refuse(BP_ABORTED, "submit: the group has ended");
    NcclReductions reductions(nccl, member().comm);
    check(nccl, nccl.group_start(), "ncclGroupStart");
    Outcome failure;
    try {
      for (const NcclSubmission& c : calls_) {
        submit_nccl_call(nccl, member().comm, reductions, c.call, member().scratch,
                         c.lane->native());
      }
    } catch (const StatusError& e) {
      failure = {e.status(), e.what()};
    }
    const ncclResult_t ended = nccl.group_end();
    if (failure.status != BP_OK) refuse(failure.status, failure.text);
    check(nccl, ended, "ncclGroupEnd");
  }

  NcclWatch& watch_;
  const std::vector<NcclSubmission> calls_;
  std::vector<std::shared_ptr<Lane>> lanes_;
  std::vector<std::shared_ptr<NcclWork>> works_;  // One for each call.
  const std::shared_ptr<Point> launched_ = std::make_shared<Point>(false);
  std::mutex mutex_;  // It guards `before_`.
  Outcome before_;
};

}  // namespace

void launch_calls(NcclWatch& watch, std::vector<NcclSubmission> calls) {
  auto batch = std::make_shared<Batch>(watch, std::move(calls));
  Queue& launches = *batch->member().launches;
  for (const std::shared_ptr<Lane>& lane : batch->lanes()) {
    if (lane->is_free()) continue;
    const auto reached = std::make_shared<Point>(false);
    static_cast<void>(lane->submit_always([batch, reached](const Outcome& before) {
      batch->reach(before);
      reached->complete({});
    }));
    static_cast<void>(launches.wait_for(reached));
  }
  const std::vector<std::shared_ptr<Lane>> lanes = batch->lanes();
  const std::shared_ptr<Point> launched = batch->launched();
  static_cast<void>(launches.submit([batch = std::move(batch)] { batch->run(); }));
  // A stream that failed meanwhile takes no work, so nothing must wait there.
  for (const std::shared_ptr<Lane>& lane : lanes) static_cast<void>(lane->wait_for(launched));
}

}  // namespace bp::cuda
