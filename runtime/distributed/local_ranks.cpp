#include <algorithm>
#include <map>

#include "runtime/distributed/group_state.hpp"

namespace bp::distributed {

// Splits or shrinks the groups of all ranks, and lets the ranks of each new group meet again.
void LocalRanks::run(const bp_process_group_ops& ops, Round& round, Duration timeout,
                     const std::vector<uint32_t>& ranks) {
  std::vector<bp_process_group*> groups;
  std::vector<uint32_t> colors, keys;
  std::map<uint32_t, std::vector<uint32_t>> members;  // Places in `ranks`, by color.
  std::vector<uint32_t> places;                       // Of the ranks that came.
  for (uint32_t place = 0; place < ranks.size(); ++place) {
    if (!round.has_come[place]) continue;
    const Request& request = round.requests[place];
    groups.push_back(request.group);
    colors.push_back(request.color);
    keys.push_back(request.key);
    members[request.color].push_back(place);
    places.push_back(place);
  }
  const auto count = static_cast<uint32_t>(groups.size());
  std::vector<bp_process_group*> made(count);
  if (round.gone.empty()) {
    round.status = ops.split(ops.self, count, groups.data(), colors.data(), keys.data(),
                             timeout_ns(timeout), made.data());
  } else {
    round.status =
        ops.shrink(ops.self, count, groups.data(), static_cast<uint32_t>(round.gone.size()),
                   round.gone.data(), timeout_ns(timeout), made.data());
  }
  if (round.status != BP_OK) {
    round.text = bp_error_text();
    return;
  }
  for (uint32_t i = 0; i < count; ++i) round.parts[places[i]].group = made[i];
  for (const auto& [color, together] : members) {
    std::vector<uint32_t> old_ranks;
    for (const uint32_t place : together) old_ranks.push_back(ranks[place]);
    const auto local = std::make_shared<LocalRanks>(std::move(old_ranks));
    for (uint32_t i = 0; i < together.size(); ++i) {
      round.parts[together[i]].local = local;
      round.parts[together[i]].index = i;
    }
  }
}

std::string LocalRanks::missing_ranks(const Round& round) const {
  std::string text;
  for (size_t i = 0; i < ranks_.size(); ++i) {
    const bool is_gone = std::ranges::find(round.gone, ranks_[i]) != round.gone.end();
    if (round.has_come[i] || is_gone) continue;
    text += (text.empty() ? "rank " : ", rank ") + std::to_string(ranks_[i]);
  }
  return text;
}

std::shared_ptr<LocalRanks::Round> LocalRanks::make_round(const std::vector<uint32_t>& gone) const {
  auto round = std::make_shared<Round>();
  round->gone = gone;
  round->requests.resize(ranks_.size());
  round->has_come.resize(ranks_.size());
  round->parts.resize(ranks_.size());
  round->missing = static_cast<uint32_t>(std::ranges::count_if(
      ranks_, [&](uint32_t rank) { return std::ranges::find(gone, rank) == gone.end(); }));
  return round;
}

LocalRanks::Part LocalRanks::meet(const bp_process_group_ops& ops, uint32_t index,
                                  const Request& request, const std::vector<uint32_t>& gone,
                                  Duration timeout) {
  const std::string call = gone.empty() ? "split: " : "shrink: ";
  std::unique_lock lock(mutex_);
  if (round_ == nullptr) round_ = make_round(gone);
  const std::shared_ptr<Round> round = round_;
  if (round->gone != gone) {
    throw Error(BP_INVALID_ARGUMENT,
                call + "another rank of this process calls it with other ranks that are gone");
  }
  round->requests[index] = request;
  round->has_come[index] = true;
  if (--round->missing == 0) {
    round_ = nullptr;
    lock.unlock();  // The table is foreign code. Nobody else touches a round that is full.
    run(ops, *round, timeout, ranks_);
    lock.lock();
    round->is_done = true;
    changed_.notify_all();
  } else {
    // A full round ends by itself, since the table has the timeout too.
    const auto is_full = [&] { return round->is_done || round->missing == 0; };
    if (timeout == Duration::max()) {
      changed_.wait(lock, is_full);
    } else if (!changed_.wait_for(lock, timeout, is_full)) {
      const std::string missing = missing_ranks(*round);
      round->has_come[index] = false;
      ++round->missing;
      throw Error(BP_TIMEOUT, call + missing + " of this process did not come in time");
    }
    changed_.wait(lock, [&] { return round->is_done; });
  }
  if (round->status != BP_OK) throw Error(round->status, call + round->text);
  return round->parts[index];
}

}  // namespace bp::distributed
