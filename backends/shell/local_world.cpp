// The place where the ranks of a group meet.
#include <algorithm>
#include <string>

#include "backplane/shell/local_group.hpp"

namespace bp {
namespace {

void complete_all(const std::vector<std::shared_ptr<RankCall>>& calls, const Outcome& outcome) {
  for (const std::shared_ptr<RankCall>& call : calls) {
    if (call == nullptr) continue;
    call->send = call->receive = nullptr;  // A waiter may free the memory after this.
    call->done->complete(outcome);
  }
}

}  // namespace

Deadlines::~Deadlines() {
  {
    const std::lock_guard lock(mutex_);
    is_stopping_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
}

Deadlines::Key Deadlines::add(TimePoint when, std::weak_ptr<void> owner,
                              std::function<void()> expire) {
  const std::lock_guard lock(mutex_);
  const Key key{when, next_number_++};
  entries_.emplace(key, Entry{std::move(owner), std::move(expire)});
  if (!thread_.joinable()) thread_ = std::thread([this] { run(); });
  if (when < wakes_at_) changed_.notify_all();
  return key;
}

void Deadlines::remove(const Key& key) {
  const std::lock_guard lock(mutex_);
  entries_.erase(key);
}

// The thread is woken for deadlines alone that pass before `until`. When a deadline is removed it
// sleeps on. So calls that end in time do not wake it, each of which adds a deadline and removes
// it.
void Deadlines::sleep(std::unique_lock<std::mutex>& lock, TimePoint until) {
  wakes_at_ = until;
  if (until == kNever) {
    changed_.wait(lock);
  } else {
    changed_.wait_until(lock, until);
  }
}

void Deadlines::run() {
  std::unique_lock lock(mutex_);
  while (!is_stopping_) {
    const auto first = entries_.begin();
    if (first == entries_.end() || std::chrono::steady_clock::now() < first->first.first) {
      sleep(lock, first == entries_.end() ? kNever : first->first.first);
      continue;
    }
    const Entry entry = std::move(first->second);
    entries_.erase(first);
    lock.unlock();
    if (const std::shared_ptr<void> owner = entry.owner.lock(); owner != nullptr) entry.expire();
    lock.lock();
  }
}

Outcome World::status() const {
  const std::lock_guard lock(mutex_);
  return status_;
}

uint64_t World::take_sequence(LocalGroup& group, const RankCall& call) {
  const std::lock_guard lock(mutex_);
  if (!is_between_peers(call.kind)) return group.next_sequence++;
  return group.next_letters[call.root][call.kind == BP_COLLECTIVE_SEND ? 0 : 1]++;
}

World::Letter World::letter_of(const RankCall& call, uint64_t sequence) {
  const bool is_send = call.kind == BP_COLLECTIVE_SEND;
  return {is_send ? call.rank : call.root, is_send ? call.root : call.rank, sequence};
}

void World::arrive(const std::shared_ptr<RankCall>& call, uint64_t sequence,
                   const Outcome& before) {
  if (before.status != BP_OK) {
    call->done->complete(before);
    end({BP_ABORTED, std::string(kind_name(call->kind)) + ": the stream of rank " +
                         std::to_string(call->rank) + " failed before: " + before.text});
    return;
  }
  is_between_peers(call->kind) ? arrive_at_peer(call, sequence) : arrive_at_meeting(call, sequence);
}

void World::arrive_at_meeting(const std::shared_ptr<RankCall>& call, uint64_t sequence) {
  std::string problem;
  std::vector<std::shared_ptr<RankCall>> complete;
  {
    const std::lock_guard lock(mutex_);
    if (status_.status != BP_OK) {  // Looked at here, or an end would miss this call.
      call->done->complete(status_);
      return;
    }
    Meeting& meeting = meetings_[sequence];
    meeting.calls.resize(size());
    for (const std::shared_ptr<RankCall>& other : meeting.calls) {
      if (other != nullptr && problem.empty()) {
        problem = difference(signature_of(*other, call->rank), other->rank,
                             signature_of(*call, other->rank), call->rank);
      }
    }
    meeting.calls[call->rank] = call;
    if (++meeting.arrived == size()) {
      complete = std::move(meeting.calls);
      meetings_.erase(sequence);
    }
  }
  if (!problem.empty()) {
    complete_all(complete, {BP_INVALID_ARGUMENT, problem});
    end({BP_INVALID_ARGUMENT, problem});
  } else if (!complete.empty()) {
    run(complete, call, sequence);
  } else {
    watch(call, sequence);
  }
}

void World::arrive_at_peer(const std::shared_ptr<RankCall>& call, uint64_t sequence) {
  const bool is_send = call->kind == BP_COLLECTIVE_SEND;
  std::shared_ptr<RankCall> other;
  {
    const std::lock_guard lock(mutex_);
    if (status_.status != BP_OK) {  // Looked at here, or an end would miss this call.
      call->done->complete(status_);
      return;
    }
    const auto [place, is_first] = letters_.try_emplace(letter_of(*call, sequence), call);
    if (!is_first) {
      other = place->second;
      letters_.erase(place);
    }
  }
  if (other == nullptr) return watch(call, sequence);
  const std::shared_ptr<RankCall>&send = is_send ? call : other, &receive = is_send ? other : call;
  if (send->count != receive->count || send->dtype != receive->dtype) {
    const std::string problem =
        "rank " + std::to_string(send->rank) + " sends " + std::to_string(send->count) +
        " elements of dtype " + std::to_string(send->dtype) + ", rank " +
        std::to_string(receive->rank) + " receives " + std::to_string(receive->count) +
        " of dtype " + std::to_string(receive->dtype);
    complete_all({send, receive}, {BP_INVALID_ARGUMENT, problem});
    return end({BP_INVALID_ARGUMENT, problem});
  }
  run({send, receive}, call, sequence);
}

// Runs the collective of `calls`, of which `last` has arrived last, while its data crosses the
// wires. Their streams go on after both.
void World::run(const Calls& calls, const std::shared_ptr<RankCall>& last, uint64_t sequence) {
  std::vector<const RankCall*> plain;
  std::vector<bp_device*> devices;
  for (const std::shared_ptr<RankCall>& call : calls) {
    plain.push_back(call.get());
    devices.push_back(device(call->rank));
  }
  const auto flight = std::make_shared<Flight>();
  const bool has_wires =
      backend_.deliver(plain, devices, [world = shared_from_this(), calls, flight] {
        if (world->has_ended(flight->has_crossed, flight->has_run)) world->land(calls);
      });
  if (!has_wires) flight->has_crossed = true;
  Outcome outcome = outcome_of([&] { run_collective(plain); });
  {
    const std::lock_guard lock(mutex_);
    if (outcome.status == BP_OK) outcome = status_;  // The group may have ended meanwhile.
    if (outcome.status == BP_OK) flying_.insert(calls.begin(), calls.end());
  }
  if (outcome.status != BP_OK) return complete_all(calls, outcome);
  if (has_ended(flight->has_run, flight->has_crossed)) return land(calls);
  watch(last, sequence);
}

// Notes the end of one part of a flight. Returns whether the other one has ended before.
bool World::has_ended(bool& part, const bool& other) {
  const std::lock_guard lock(mutex_);
  part = true;
  return other;
}

// Lets the streams of `calls` go on, but for those of a group that has ended meanwhile.
void World::land(const Calls& calls) {
  Calls landed;
  {
    const std::lock_guard lock(mutex_);
    for (const std::shared_ptr<RankCall>& call : calls) {
      if (flying_.erase(call) != 0) landed.push_back(call);
    }
  }
  complete_all(landed, {});
}

std::string World::awaited(const std::shared_ptr<RankCall>& call, uint64_t sequence) {
  const std::lock_guard lock(mutex_);
  if (flying_.contains(call)) return " its data to cross the network";
  if (is_between_peers(call->kind)) {
    const bool waits = letters_.contains(letter_of(*call, sequence));
    return waits ? " rank " + std::to_string(call->root) : "";
  }
  std::string absent;
  const auto meeting = meetings_.find(sequence);
  if (meeting == meetings_.end()) return "";
  for (uint32_t rank = 0; rank < size(); ++rank) {
    if (meeting->second.calls[rank] == nullptr) absent += " rank " + std::to_string(rank);
  }
  return absent;
}

void World::watch(const std::shared_ptr<RankCall>& call, uint64_t sequence) {
  const uint64_t timeout_ns = call->timeout_ns == 0 ? timeout_ns_ : call->timeout_ns;
  const auto now = std::chrono::steady_clock::now();
  const auto longest = static_cast<uint64_t>((now.max() - now).count());
  if (timeout_ns >= longest) return;
  const std::weak_ptr<RankCall> weak = call;
  deadlines_.add(now + std::chrono::nanoseconds(timeout_ns), shared_from_this(),
                 [this, weak, sequence, timeout_ns] {
                   const std::shared_ptr<RankCall> late = weak.lock();
                   if (late == nullptr || late->done->is_complete()) return;
                   const std::string who = awaited(late, sequence);
                   if (who.empty()) return;  // The call ends at this moment.
                   end({BP_TIMEOUT, std::string(kind_name(late->kind)) + ": rank " +
                                        std::to_string(late->rank) + " waited " +
                                        std::to_string(timeout_ns / 1'000'000) + " ms for" + who});
                 });
}

void World::end(const Outcome& why) {
  std::vector<std::shared_ptr<RankCall>> waiting;
  Outcome first;
  {
    const std::lock_guard lock(mutex_);
    if (status_.status == BP_OK) status_ = why;
    first = status_;
    for (auto& [sequence, meeting] : meetings_) {
      waiting.insert(waiting.end(), meeting.calls.begin(), meeting.calls.end());
    }
    for (auto& [letter, call] : letters_) waiting.push_back(call);
    waiting.insert(waiting.end(), flying_.begin(), flying_.end());
    meetings_.clear();
    letters_.clear();
    flying_.clear();
  }
  complete_all(waiting, first);
}

}  // namespace bp
