#include "runtime/distributed/rendezvous_leader.hpp"

#include <algorithm>
#include <sstream>
#include <utility>

#include "runtime/distributed/store_values.hpp"

namespace bp::distributed {
namespace {

std::string counted(size_t count, const char* noun) {
  return std::to_string(count) + " " + noun + (count == 1 ? "" : "s");
}

std::string key_of(const char* what, uint32_t id) { return what + ("/" + std::to_string(id)); }

std::string key_of(const char* what, uint32_t round, uint32_t id) {
  return key_of(what, round) + "/" + std::to_string(id);
}

}  // namespace

RendezvousLeader::RendezvousLeader(Store& store, const RendezvousOptions& options, Deadline now)
    : store_(store), options_(options), gathering_since_(now) {}

void RendezvousLeader::step(Deadline now) {
  read_launchers(now);
  if (phase_ == Phase::kRunning) watch();
  if (phase_ == Phase::kStopping) wait_for_stops(now);
  if (phase_ == Phase::kGathering) gather(now);
}

void RendezvousLeader::finish(int code, const std::string& text) {
  phase_ = Phase::kEnded;
  give({Verb::kEnd, round_, code, text});
}

bool RendezvousLeader::is_over() {
  return phase_ == Phase::kEnded && std::ranges::all_of(here(), [&](uint32_t id) {
           return store_.try_get(key_of("end", id)).has_value();
         });
}

void RendezvousLeader::give(const Order& order) { store_.put("order", order.encoded()); }

// ---- The launchers -----------------------------------------------------------------------------

void RendezvousLeader::read_launchers(Deadline now) {
  const uint64_t count = std::stoull(store_.try_get("launchers").value_or("0"));
  for (auto id = static_cast<uint32_t>(launchers_.size() + 1); id <= count; ++id) {
    const auto text = store_.try_get(key_of("launcher", id));
    if (!text) break;  // It comes in a moment.
    Launcher& launcher = launchers_[id];
    std::istringstream(*text) >> launcher.ranks >> launcher.node_rank >> launcher.address;
    launcher.last_beat = now;
  }
  for (auto& [id, launcher] : launchers_) look_at(id, launcher, now);
}

// A launcher that was thought to be gone, and lives, counts as one that comes.
void RendezvousLeader::look_at(uint32_t id, Launcher& launcher, Deadline now) {
  if (!launcher.is_here && launcher.beat == "left") return;
  std::string why;
  if (const auto left = store_.try_get(key_of("left", id))) {
    launcher.beat = "left";
    why = *left;
  } else {
    std::string beat = store_.try_get(key_of("beat", id)).value_or("");
    if (beat != launcher.beat) {
      launcher.beat = std::move(beat);
      launcher.last_beat = now;
      launcher.is_here = true;
    }
    if (now - launcher.last_beat < options_.heartbeat_timeout) return;
    why = "it has given no sign of life for " + duration_text(options_.heartbeat_timeout);
  }
  if (!launcher.is_here) return;
  launcher.is_here = false;
  if (!runs(id)) return;
  const std::string text = name_of(id) + " is lost: " + why;
  if (phase_ != Phase::kRunning) {  // The ranks of others have failed before, or another one came.
    lost_ += "; " + text;
    return;
  }
  failure_ = {.text = text};
  stop(text);
}

std::vector<uint32_t> RendezvousLeader::here() const {
  std::vector<uint32_t> ids;
  for (const auto& [id, launcher] : launchers_) {
    if (launcher.is_here) ids.push_back(id);
  }
  // Those with a node rank are first. The others are in the order in which they came.
  std::ranges::stable_sort(
      ids, {}, [&](uint32_t id) { return static_cast<uint64_t>(launchers_.at(id).node_rank); });
  return ids;
}

bool RendezvousLeader::runs(uint32_t id) const {
  return std::ranges::find(running_, id) != running_.end();
}

std::string RendezvousLeader::name_of(uint32_t id) const {
  return "launcher " + std::to_string(id) + " on " + launchers_.at(id).address;
}

// ---- The rounds --------------------------------------------------------------------------------

void RendezvousLeader::gather_from(Deadline now) {
  phase_ = Phase::kGathering;
  gathering_since_ = now;
  enough_since_.reset();
}

// Only the first start waits for more launchers than are needed. Later ones start the ranks again.
void RendezvousLeader::gather(Deadline now) {
  const size_t count = here().size();
  if (count < options_.least) {
    enough_since_.reset();
    if (now - gathering_since_ < options_.join_timeout) return;
    return finish(1, "only " + counted(count, "launcher") + " came within " +
                         duration_text(options_.join_timeout) + "; --nnodes asks for at least " +
                         std::to_string(options_.least));
  }
  if (!enough_since_) enough_since_ = now;
  if (count >= options_.most || round_ > 0 || now - *enough_since_ >= options_.last_call) start();
}

void RendezvousLeader::start() {
  if (counts_) ++restarts_;
  counts_ = false;
  failure_.reset();
  has_result_.clear();
  running_ = here();
  if (running_.size() > options_.most) running_.resize(options_.most);
  std::string text = std::to_string(round_) + "\n";
  uint32_t rank = 0;
  for (const uint32_t id : running_) {
    const uint32_t ranks = launchers_.at(id).ranks;
    text += std::to_string(id) + " " + std::to_string(rank) + " " + std::to_string(ranks) + "\n";
    rank += ranks;
  }
  ++round_;
  store_.put(key_of("round", round_), text);
  phase_ = Phase::kRunning;
  give({Verb::kRun, round_, 0,
        "start " + std::to_string(round_) + ": " + counted(rank, "rank") + " of " +
            counted(running_.size(), "launcher") + std::exchange(lost_, "")});
}

void RendezvousLeader::read_result(uint32_t id) {
  const auto text = store_.try_get(key_of("result", round_, id));
  if (!text || has_result_.contains(id)) return;
  has_result_[id] = true;
  Failure failure{};
  std::istringstream in(*text);
  in >> failure.code;
  if (failure.code == 0) return;
  in >> failure.by_signal;
  std::getline(in >> std::ws, failure.text);
  if (failure_ && (failure_->by_signal || !failure.by_signal)) return;
  failure_ = failure;
}

void RendezvousLeader::watch() {
  for (const uint32_t id : running_) read_result(id);
  if (failure_) return stop(failure_->text);
  if (has_result_.size() == running_.size()) return finish(0, "");
  const std::vector<uint32_t> all = here();
  if (running_.size() == options_.most || all.size() <= running_.size()) return;
  const auto other = std::ranges::find_if(all, [&](uint32_t id) { return !runs(id); });
  stop(name_of(*other) + " has come");
}

void RendezvousLeader::stop(const std::string& why) {
  counts_ = failure_.has_value();
  phase_ = Phase::kStopping;
  give({Verb::kStop, round_, 0, why});
}

void RendezvousLeader::wait_for_stops(Deadline now) {
  for (const uint32_t id : running_) {
    if (!launchers_.at(id).is_here) continue;
    if (!store_.try_get(key_of("stopped", round_, id))) return;
    read_result(id);  // Another rank may have failed before the one that was seen first.
  }
  if (failure_ && restarts_ == options_.max_restarts) {
    const std::string often = counted(restarts_, "time");
    return finish(failure_->code, failure_->text + "; the job was started again " + often +
                                      ", which is all that --max-restarts allows");
  }
  gather_from(now);
}

}  // namespace bp::distributed
