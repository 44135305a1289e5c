#include "backends/cuda/nccl_world.hpp"

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <utility>

namespace bp::cuda {
namespace {

constexpr auto kPause = std::chrono::milliseconds(1);
constexpr uint64_t kStoreRounds = 50;  // Pauses between looks at a store.
constexpr auto kCloseTime = std::chrono::seconds(10);
constexpr const char* kEndKey = "nccl/end";

}  // namespace

NcclClock::time_point deadline_of(uint64_t timeout_ns) {
  const auto now = NcclClock::now();
  const auto left = static_cast<uint64_t>((NcclClock::time_point::max() - now).count());
  if (timeout_ns >= left) return NcclClock::time_point::max();
  return now + std::chrono::nanoseconds(timeout_ns);
}

bool wait_until(NcclClock::time_point deadline, const std::function<bool()>& done) {
  if (deadline == NcclClock::time_point::max()) return poll(UINT64_MAX, done);
  const auto left = std::max(deadline - NcclClock::now(), NcclClock::duration::zero());
  return poll(static_cast<uint64_t>(std::chrono::nanoseconds(left).count()), done);
}

// ---- Worlds -------------------------------------------------------------------------------------

NcclWorld::~NcclWorld() {
  for (const auto& member : members_) abort(*member);
}

Outcome NcclWorld::status() const {
  const std::lock_guard lock(mutex_);
  return status_;
}

bool NcclWorld::end(const Outcome& why) {
  {
    const std::lock_guard lock(mutex_);
    if (status_.status != BP_OK) return false;
    status_ = why;
  }
  if (store_ != nullptr) {
    // If the store fails, the other processes end by their timeouts.
    static_cast<void>(
        store_->put(store_->self, (prefix_ + kEndKey).c_str(), why.text.data(), why.text.size()));
  }
  return true;
}

bool NcclWorld::look_for_end() {
  if (store_ == nullptr || status().status != BP_OK) return false;
  char text[256];
  uint64_t size_bytes = 0;
  const bp_status found =
      store_->try_get(store_->self, (prefix_ + kEndKey).c_str(), sizeof(text), text, &size_bytes);
  if (found != BP_OK) return false;
  const std::lock_guard lock(mutex_);
  if (status_.status != BP_OK) return false;
  status_ = {BP_ABORTED, "another process has ended the group: " +
                             std::string(text, std::min(size_bytes, uint64_t{sizeof(text)}))};
  return true;
}

ncclResult_t NcclWorld::state_of(NcclMember& member) {
  const std::lock_guard lock(member.mutex);
  if (member.comm == nullptr) return ncclInvalidUsage;
  ncclResult_t state = ncclSuccess;
  const ncclResult_t asked = nccl_.get_async_error(member.comm, &state);
  return asked == ncclSuccess ? state : asked;
}

void NcclWorld::wait_ready(const std::vector<NcclMember*>& members, NcclClock::time_point deadline,
                           const char* what) {
  for (NcclMember* member : members) {
    ncclResult_t state = ncclInProgress;
    const bool is_done = wait_until(deadline, [&] {
      state = state_of(*member);
      return state != ncclInProgress || status().status != BP_OK;
    });
    if (const Outcome ended = status(); ended.status != BP_OK) {
      throw StatusError(ended.status, ended.text);
    }
    if (!is_done) {
      throw StatusError(BP_TIMEOUT, std::string(what) + ": rank " + std::to_string(member->rank) +
                                        " waited for the others until its timeout");
    }
    check(nccl_, state, what);
  }
}

void NcclWorld::check_signature(uint64_t sequence, const NcclSignature& signature, uint32_t rank) {
  const std::lock_guard lock(mutex_);
  auto [at, is_new] = signatures_.try_emplace(sequence, signature, 0u);
  if (!(at->second.first == signature)) {
    throw StatusError(BP_INVALID_ARGUMENT, "submit: rank " + std::to_string(rank) + " calls " +
                                               collective_name(signature.kind) +
                                               " where another rank of this process calls " +
                                               collective_name(at->second.first.kind) +
                                               ", or with another reduction, dtype, root or count");
  }
  if (++at->second.second == members_.size()) signatures_.erase(at);
}

void NcclWorld::abort(NcclMember& member) {
  ncclComm_t comm = nullptr;
  {
    const std::lock_guard lock(member.mutex);
    comm = std::exchange(member.comm, nullptr);
  }
  if (comm != nullptr) member.device->quietly([&](const Driver&) { nccl_.abort(comm); });
  std::list<ncclComm_t> children;
  {
    const std::lock_guard lock(member.mutex);
    children = std::move(member.children);
  }
  for (const ncclComm_t child : children) {
    if (child != nullptr) member.device->quietly([&](const Driver&) { nccl_.abort(child); });
  }
}

// ---- The watch ----------------------------------------------------------------------------------

NcclWatch::~NcclWatch() {
  {
    const std::lock_guard lock(mutex_);
    is_stopping_ = true;
    stop_deadline_ = NcclClock::now() + kCloseTime;
  }
  drop_queued_work();
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
  launcher_.wait_idle();
  launcher_.stop();
  for (Reaper& reaper : reapers_) reaper.thread.join();
}

// Streams that wait for the host may never reach the calls, and nothing may run after the watch.
void NcclWatch::drop_queued_work() {
  std::vector<std::shared_ptr<NcclWork>> queued;
  {
    const std::lock_guard lock(mutex_);
    std::ranges::copy_if(work_, std::back_inserter(queued),
                         [](const auto& work) { return work->state == NcclWork::State::kQueued; });
  }
  for (const std::shared_ptr<NcclWork>& work : queued) {
    work->member->launches->lose({BP_ABORTED, work->what + ": the backend shuts down"});
  }
}

void NcclWatch::add(std::shared_ptr<NcclWork> work) {
  const std::lock_guard lock(mutex_);
  work_.push_back(std::move(work));
  if (!is_started_) thread_ = std::thread([this] { run(); });
  is_started_ = true;
  changed_.notify_all();
}

void NcclWatch::end(const std::shared_ptr<NcclWorld>& world, const Outcome& why) {
  if (!world->end(why)) return;
  fail_work(*world, why);
  abort_all(world);
}

void NcclWatch::close(const std::shared_ptr<NcclWorld>& world, NcclMember& member) {
  reap([this, world, &member] { close_now(*world, member); });
}

void NcclWatch::reap(std::function<void()> task) {
  auto is_done = std::make_shared<std::atomic<bool>>(false);
  const std::lock_guard lock(mutex_);
  std::erase_if(reapers_, [](Reaper& reaper) {
    if (!reaper.is_done->load()) return false;
    reaper.thread.join();
    return true;
  });
  reapers_.push_back({std::thread([task = std::move(task), is_done]() mutable {
                        task();
                        task = nullptr;  // It ends before the thread is done.
                        *is_done = true;
                      }),
                      is_done});
}

std::vector<std::shared_ptr<Lane>> NcclWatch::lanes_of(const NcclWorld& world) {
  const std::lock_guard lock(mutex_);
  std::vector<std::shared_ptr<Lane>> lanes;
  for (const std::shared_ptr<NcclWork>& work : work_) {
    if (work->world.get() == &world) lanes.push_back(work->lane);
  }
  return lanes;
}

// NCCL may put calls on their streams until it has aborted the communicator, so the streams live
// as long.
void NcclWatch::abort_all(const std::shared_ptr<NcclWorld>& world) {
  for (const auto& member : world->members()) {
    reap([world, at = member.get(), lanes = lanes_of(*world)] { world->abort(*at); });
  }
}

// Fails the streams before the kernels end, so that nobody sees the kernels as completed.
void NcclWatch::fail_work(const NcclWorld& world, const Outcome& why) {
  for (const auto& lane : lanes_of(world)) lane->fail(why.status, why.text);
}

bool NcclWatch::has_work(const NcclMember& member) {
  const std::lock_guard lock(mutex_);
  return std::ranges::any_of(work_, [&](const auto& w) { return w->member == &member; });
}

bool NcclWatch::is_launching(const NcclMember& member) {
  using State = NcclWork::State;
  const std::lock_guard lock(mutex_);
  return std::ranges::any_of(work_, [&](const auto& w) {
    return w->member == &member && (w->state == State::kQueued || w->state == State::kConnecting);
  });
}

void NcclWatch::run() {
  std::unique_lock lock(mutex_);
  for (uint64_t round = 0;; ++round) {
    changed_.wait(lock, [&] { return is_stopping_ || !work_.empty(); });
    if (is_stopping_ && work_.empty()) return;
    lock.unlock();
    look_at_work(round % kStoreRounds == 0);
    std::this_thread::sleep_for(kPause);
    lock.lock();
  }
}

bool NcclWatch::look_at(NcclWork& work, bool asks_stores, Outcome& out_why) {
  NcclWorld& world = *work.world;
  const NcclWork::State at = work.state;
  const bool is_launched = at == NcclWork::State::kLaunched;
  if (at == NcclWork::State::kOver) return true;
  try {
    if (is_launched && work.event->is_complete()) return true;
  } catch (const StatusError& e) {
    out_why = {e.status(), e.what()};
    return true;
  }
  const auto now = NcclClock::now();
  if (asks_stores) world.look_for_end();
  if (world.status().status != BP_OK) {
    // Another process or thread has ended the world, so its kernels will end soon.
    if (!work.is_ended) {
      work.is_ended = true;
      work.last_moment = now + kCloseTime;
      out_why = world.status();
    }
    return now >= work.last_moment;
  }
  const ncclResult_t state =
      at == NcclWork::State::kQueued ? ncclSuccess : world.state_of(*work.member);
  if (state != ncclSuccess && state != ncclInProgress) {
    out_why = {status_of(state), work.what + ": " + world.nccl().error_string(state)};
  } else if (is_launched && now >= work.deadline) {
    out_why = {BP_TIMEOUT, work.what + ": rank " + std::to_string(work.member->rank) +
                               " waited for the others until its timeout"};
  } else if (now >= stop_deadline_.load()) {
    out_why = {BP_ABORTED, work.what + ": the backend shuts down"};
  }
  return false;
}

void NcclWatch::look_at_work(bool asks_stores) {
  std::vector<std::shared_ptr<NcclWork>> seen, gone;
  {
    const std::lock_guard lock(mutex_);
    seen = work_;
  }
  for (const std::shared_ptr<NcclWork>& work : seen) {
    Outcome why;
    if (look_at(*work, asks_stores, why)) gone.push_back(work);
    if (why.status == BP_OK) continue;
    if (work->world->end(why) || work->is_ended) {
      fail_work(*work->world, why);
      abort_all(work->world);
    }
  }
  const std::lock_guard lock(mutex_);
  std::erase_if(work_,
                [&](const auto& work) { return std::ranges::find(gone, work) != gone.end(); });
}

// Closes a rank. Finalizing lets data on their way arrive. It waits for the other ranks, but only
// for a short time.
void NcclWatch::close_now(NcclWorld& world, NcclMember& member) {
  const auto is_over = [&] { return world.status().status != BP_OK || !has_work(member); };
  wait_until(NcclClock::time_point::max(),
             [&] { return is_over() || NcclClock::now() >= stop_deadline_.load(); });
  ncclResult_t state = world.status().status == BP_OK ? ncclSuccess : ncclInvalidUsage;
  if (state == ncclSuccess) {
    const std::lock_guard lock(member.mutex);
    if (member.comm == nullptr) return;
    member.device->quietly([&](const Driver&) { state = world.nccl().finalize(member.comm); });
  }
  if (state == ncclSuccess || state == ncclInProgress) {
    wait_until(NcclClock::now() + kCloseTime,
               [&] { return (state = world.state_of(member)) != ncclInProgress; });
  }
  if (state != ncclSuccess) return world.abort(member);
  ncclComm_t comm = nullptr;
  {
    const std::lock_guard lock(member.mutex);
    comm = std::exchange(member.comm, nullptr);
  }
  if (comm != nullptr) member.device->quietly([&](const Driver&) { world.nccl().destroy(comm); });
}

}  // namespace bp::cuda
