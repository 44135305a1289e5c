#include "backends/cpu/mpi/world.hpp"

#include <sched.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "backends/cpu/mpi/collective.hpp"
#include "backends/cpu/mpi/letter.hpp"
#include "backends/cpu/mpi/shared_collective.hpp"
#include "backplane/shell/deadline.hpp"
#include "backplane/shell/local_group.hpp"

namespace bp::mpi {
namespace {

// What a rank tells another when it leaves.
struct Notice {
  uint32_t from;
  bp_status status;  // BP_OK if the rank leaves in peace, else why its group has ended.
  char text[496];
};

// The last messages of a rank are here when its notice is. MPI may need a moment to end them.
constexpr auto kLastMessages = std::chrono::milliseconds(5);

// A notice is short, so it leaves at once unless the other process hangs.
constexpr auto kNoticeTimeout = std::chrono::milliseconds(200);
constexpr auto kLeaveTimeout = std::chrono::seconds(1);

// A look for a notice takes as long as a short call.
constexpr uint64_t kPollsPerNotice = 32;

std::string name_of(uint32_t rank) { return "rank " + std::to_string(rank); }

}  // namespace

World::World(std::shared_ptr<Alarm> alarm, const WorldPlan& plan, std::optional<Channel> channel)
    : alarm_(std::move(alarm)),
      plan_(plan),
      has_lanes_(channel && channel->lanes != nullptr),
      channel_(std::move(channel)) {}

// MPI frees a communicator with all its messages only if none is under way. That of a group which
// has failed stays.
World::~World() {
  if (!channel_) return;
  const bool is_whole =
      departed_.size() + 1 == size() && outbox_.empty() && status_.status == BP_OK;
  if (inbox_) inbox_->cancel();
  outbox_.clear();
  if (is_whole) channel_->api.leave(channel_->communicator);
}

Outcome World::status() const {
  const std::lock_guard lock(mutex_);
  return status_;
}

uint64_t World::next_child() {
  const std::lock_guard lock(mutex_);
  return next_child_++;
}

void World::number(Running& call) {
  if (call.make == nullptr) call.name = kind_name(call.kind);
  const std::lock_guard lock(mutex_);
  ++submitted_;
  if (call.make != nullptr) return;
  if (call.kind == BP_COLLECTIVE_SEND) {
    call.sequence = next_send_[call.root]++;
  } else if (call.kind == BP_COLLECTIVE_RECEIVE) {
    call.sequence = next_receive_[call.root]++;
  } else {
    call.sequence = next_sequence_++;
    if (!has_lanes_) ahead_.insert(call.sequence);
  }
}

void World::arrive(const std::shared_ptr<Running>& call, const Outcome& before) {
  if (before.status != BP_OK) {
    finish(call, before);
    return end({BP_ABORTED, std::string(call->name) + ": the stream of rank " +
                                std::to_string(call->rank) + " failed before: " + before.text});
  }
  call->limit_ns = call->timeout_ns == 0 ? plan_.timeout_ns : call->timeout_ns;
  const auto now = Clock::now();
  if (call->limit_ns < static_cast<uint64_t>((now.max() - now).count())) {
    call->deadline = now + std::chrono::nanoseconds(call->limit_ns);
  }
  Outcome ended;
  {
    const std::lock_guard lock(mutex_);
    ended = status_;
    if (ended.status == BP_OK) arrivals_.push_back(call);
  }
  if (ended.status != BP_OK) return finish(call, ended);
  if (has_lanes_ && begin_at_once(*call)) return;
  call->done->offer([world = shared_from_this(), call] { world->pump_until_done(*call); });
  // A host that has waited for its last call is about to wait for this one. If it is not, the
  // thread of the pump comes soon without being woken, which would take the time of a short call.
  if (!was_helped_.exchange(false)) alarm_->ring();
}

// Lets the data of a short call be there for the other ranks, and takes theirs if it is there
// already. Returns whether this has ended the call.
bool World::begin_at_once(const Running& call) {
  if (call.make != nullptr || is_between_peers(call.kind) || !shm::is_short(call)) return false;
  if (poller_ == std::this_thread::get_id()) return false;  // This goes on with an earlier call.
  const std::unique_lock lock(polling_, std::try_to_lock);
  if (lock) poll(false);
  return call.done->is_complete();
}

void World::end(const Outcome& why) {
  {
    const std::lock_guard lock(mutex_);
    if (status_.status != BP_OK) return;
    status_ = why;
    has_ended_ = true;
  }
  if (has_lanes_) channel_->lanes->end();
  alarm_->ring();
}

void World::leave() {
  {
    const std::lock_guard lock(mutex_);
    is_destroyed_ = true;
    is_leaving_ = true;
  }
  alarm_->ring();
  std::unique_lock lock(mutex_);
  changed_.wait_for(lock, kLeaveTimeout, [this] { return has_said_ || submitted_ > 0; });
}

// ---- Calls --------------------------------------------------------------------------------------

World::Progress World::pump() {
  std::unique_lock lock(polling_, std::defer_lock);
  const bool is_helped = helpers_ > 0 || was_helped_;
  if (helpers_ > 0 || !lock.try_lock()) return {false, true, is_helped};
  const bool has_happened = poll(true);
  return {has_happened, !active_.empty() || !own_letters_.empty() || is_helped, is_helped};
}

void World::pump_until_done(const Running& call) {
  ++helpers_;
  uint64_t polls = 1;
  while (!call.done->is_complete()) {
    {
      const std::lock_guard lock(polling_);
      poll(polls++ % kPollsPerNotice == 0);
    }
    // Ranks and their calculations may share few processors.
    if (!call.done->is_complete()) sched_yield();
  }
  was_helped_ = true;
  --helpers_;
}

bool World::poll(bool may_have_notices) {
  poller_ = std::this_thread::get_id();
  const uint64_t events = channel_ ? channel_->events : 0;
  const size_t before = active_.size();
  if (may_have_notices) read_notices();
  take_arrivals();
  bool is_changed = active_.size() != before;
  for (size_t i = 0; i < active_.size();) {
    const std::shared_ptr<Running> call = active_[i];
    if (!go_on(call)) {
      ++i;
      continue;
    }
    active_.erase(active_.begin() + static_cast<std::ptrdiff_t>(i));
    is_changed = true;
  }
  expire_own_letters();
  if (!is_wound_up_ && has_ended_) wind_up();
  if (has_ended_ || is_leaving_) say_if_due();
  poller_ = std::thread::id();
  return is_changed || (channel_ && channel_->events != events);
}

void World::take_arrivals() {
  std::vector<std::shared_ptr<Running>> arrivals;
  {
    const std::lock_guard lock(mutex_);
    arrivals.swap(arrivals_);
  }
  for (const auto& call : arrivals) {
    const bool is_own_letter = is_between_peers(call->kind) && call->root == call->rank;
    is_own_letter ? deliver(call) : active_.push_back(call);
  }
}

// Returns whether a call is over, and has been finished.
bool World::go_on(const std::shared_ptr<Running>& call) {
  bool is_over = false;
  const Outcome outcome = outcome_of([&] {
    if (has_ended_) return;
    if (!channel_) {
      run_collective({call.get()});
      is_over = true;
      return;
    }
    if (call->activity == nullptr) start(call);
    is_over = call->activity->poll(is_turn_of(*call));
    if (call->activity->has_begun_all()) pass_turn(*call);
    if (is_over) return;
    check_departed(*call);
    if (Clock::now() >= call->deadline) end(late(*call, awaited(*call)));
  });
  if (outcome.status != BP_OK) end(outcome);
  if (!is_over) return false;
  finish(call, {});
  return true;
}

void World::start(const std::shared_ptr<Running>& call) {
  if (call->make != nullptr) {
    call->activity = call->make(*channel_);
  } else if (is_between_peers(call->kind)) {
    call->activity = std::make_unique<Letter>(*channel_, *call, call->sequence);
  } else if (channel_->lanes) {
    call->activity = std::make_unique<SharedCollective>(*channel_, *call, call->sequence);
  } else {
    call->activity = std::make_unique<Collective>(*channel_, *call, call->sequence);
  }
}

// MPI needs one order of operations on all ranks, which is that of the submissions.
bool World::is_turn_of(const Running& call) const {
  if (has_lanes_) return true;
  const std::lock_guard lock(mutex_);
  return ahead_.empty() || *ahead_.begin() >= call.sequence;
}

void World::pass_turn(const Running& call) {
  if (has_lanes_ || call.make != nullptr || is_between_peers(call.kind)) return;
  const std::lock_guard lock(mutex_);
  ahead_.erase(call.sequence);
}

// Moves a letter of a rank to itself when both its calls have arrived.
void World::deliver(const std::shared_ptr<Running>& call) {
  const auto [place, is_first] = own_letters_.try_emplace(call->sequence, call);
  if (is_first) return;
  const std::shared_ptr<Running> other = place->second;
  own_letters_.erase(place);
  const bool is_send = call->kind == BP_COLLECTIVE_SEND;
  const RankCall &sent = is_send ? *call : *other, &received = is_send ? *other : *call;
  const Outcome outcome = outcome_of([&] {
    if (sent.count != received.count || sent.dtype != received.dtype) {
      refuse(BP_INVALID_ARGUMENT,
             name_of(call->rank) + " sends itself something else than it receives");
    }
    run_collective({&sent, &received});
  });
  if (outcome.status != BP_OK) end(outcome);
  finish(call, outcome);
  finish(other, outcome);
}

void World::expire_own_letters() {
  for (const auto& [number, call] : own_letters_) {
    if (Clock::now() >= call->deadline) end(late(*call, name_of(rank())));
  }
}

Outcome World::late(const Running& call, const std::string& awaited) const {
  return {BP_TIMEOUT, std::string(call.name) + ": " + name_of(rank()) + " waited " +
                          std::to_string(call.limit_ns / 1'000'000) + " ms for " + awaited};
}

// Returns what a call waits for, such as "rank 1 rank 3".
std::string World::awaited(const Running& call) const {
  std::string ranks;
  for (uint32_t peer = 0; peer < size(); ++peer) {
    if (call.activity->awaits(peer)) ranks += (ranks.empty() ? "" : " ") + name_of(peer);
  }
  if (!ranks.empty()) return ranks;
  return is_turn_of(call) && call.activity->has_begun()
             ? "its data to move"
             : "an earlier call, which its stream has not reached";
}

void World::check_departed(const Running& call) {
  for (const auto& [peer, when] : departed_) {
    if (!call.activity->awaits(peer) || Clock::now() < when + kLastMessages) continue;
    refuse(BP_ABORTED, std::string(call.name) + ": " + name_of(peer) +
                           " has destroyed its group, and will not come");
  }
}

void World::finish(const std::shared_ptr<Running>& call, const Outcome& outcome) {
  call->activity.reset();
  pass_turn(*call);
  call->send = call->receive = nullptr;  // A waiter may free the memory after this.
  {
    const std::lock_guard lock(mutex_);
    --submitted_;  // Before a waiter may shut the backend down.
    changed_.notify_all();
  }
  call->done->complete(outcome);
}

// Ends all calls of a group that has ended.
void World::wind_up() {
  is_wound_up_ = true;
  take_arrivals();
  const Outcome why = status();
  std::vector<std::shared_ptr<Running>> calls;
  calls.swap(active_);
  for (const auto& [number, call] : std::exchange(own_letters_, {})) calls.push_back(call);
  for (const auto& call : calls) finish(call, why);
}

// ---- Notices ------------------------------------------------------------------------------------

void World::read_notices() {
  if (!channel_ || is_wound_up_ || departed_.size() + 1 == size()) return;
  const Outcome outcome = outcome_of([&] {
    const int tag = tag_of(Topic::kNotice, 0);
    if (!inbox_) inbox_ = channel_->receive(-1, tag, sizeof(Notice));
    while (departed_.size() + 1 < size() && channel_->ends(*inbox_)) {
      Notice notice{};
      std::memcpy(&notice, inbox_->data(), sizeof(notice));
      departed_[notice.from] = Clock::now();
      notice.text[sizeof(notice.text) - 1] = '\0';
      inbox_.reset();
      if (departed_.size() + 1 < size()) inbox_ = channel_->receive(-1, tag, sizeof(Notice));
      if (notice.status != BP_OK) end({notice.status, notice.text});
    }
  });
  if (outcome.status != BP_OK) end(outcome);
}

// Tells the other ranks how the group has ended, or that this rank leaves.
void World::say_if_due() {
  if (!saying_) {
    Outcome ended;
    {
      const std::lock_guard lock(mutex_);
      ended = status_;
      const bool is_due = is_wound_up_ || (is_destroyed_ && submitted_ == 0);
      if (!is_due) return;
    }
    saying_ = Clock::now();
    Notice notice{.from = rank(), .status = ended.status, .text = {}};
    ended.text.copy(notice.text, sizeof(notice.text) - 1);
    for (uint32_t peer = 0; channel_ && peer < size(); ++peer) {
      if (peer == rank()) continue;
      static_cast<void>(outcome_of([&] {
        Block block(sizeof(notice));
        std::memcpy(block.data(), &notice, sizeof(notice));
        outbox_.push_back(
            channel_->send(peer, tag_of(Topic::kNotice, 0), std::move(block), sizeof(notice)));
      }));
    }
  }
  std::erase_if(outbox_, [&](Pending& sent) {
    bool is_sent = true;  // If MPI fails, nothing can be told.
    static_cast<void>(outcome_of([&] { is_sent = channel_->ends(sent); }));
    return is_sent;
  });
  if (!outbox_.empty() && Clock::now() < *saying_ + kNoticeTimeout) return;
  const std::lock_guard lock(mutex_);
  has_said_ = true;
  changed_.notify_all();
}

bool World::has_said() const {
  const std::lock_guard lock(mutex_);
  return has_said_;
}

bool World::is_over() const {
  const std::lock_guard lock(mutex_);
  if (!is_destroyed_ || !has_said_ || submitted_ != 0) return false;
  const bool is_alone = departed_.size() + 1 == size() || status_.status != BP_OK;
  return !channel_ || (outbox_.empty() && is_alone);
}

}  // namespace bp::mpi
