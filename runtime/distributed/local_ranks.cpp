#include <map>

#include "runtime/distributed/group_state.hpp"

namespace bp::distributed {

// Splits the groups of all ranks, and lets the ranks of each new group meet again.
void LocalRanks::run(const bp_process_group_ops& ops, Round& round, Duration timeout,
                     const std::vector<uint32_t>& ranks) {
  std::vector<bp_process_group*> groups;
  std::vector<uint32_t> colors, keys;
  for (const Request& request : round.requests) {
    groups.push_back(request.group);
    colors.push_back(request.color);
    keys.push_back(request.key);
  }
  const auto count = static_cast<uint32_t>(ranks.size());
  std::vector<bp_process_group*> made(count);
  round.status = ops.split(ops.self, count, groups.data(), colors.data(), keys.data(),
                           timeout_ns(timeout), made.data());
  if (round.status != BP_OK) {
    round.text = bp_error_text();
    return;
  }
  std::map<uint32_t, std::vector<uint32_t>> members;  // Places by color.
  for (uint32_t i = 0; i < count; ++i) members[colors[i]].push_back(i);
  for (const auto& [color, places] : members) {
    std::vector<uint32_t> old_ranks;
    for (const uint32_t place : places) old_ranks.push_back(ranks[place]);
    const auto local = std::make_shared<LocalRanks>(std::move(old_ranks));
    for (uint32_t i = 0; i < places.size(); ++i)
      round.parts[places[i]] = {made[places[i]], local, i};
  }
}

std::string LocalRanks::missing_ranks(const Round& round) const {
  std::string text;
  for (size_t i = 0; i < ranks_.size(); ++i) {
    if (!round.has_come[i])
      text += (text.empty() ? "rank " : ", rank ") + std::to_string(ranks_[i]);
  }
  return text;
}

LocalRanks::Part LocalRanks::split(const bp_process_group_ops& ops, uint32_t index,
                                   const Request& request, Duration timeout) {
  std::unique_lock lock(mutex_);
  if (round_ == nullptr) {
    round_ = std::make_shared<Round>();
    round_->requests.resize(ranks_.size());
    round_->has_come.resize(ranks_.size());
    round_->parts.resize(ranks_.size());
  }
  const std::shared_ptr<Round> round = round_;
  round->requests[index] = request;
  round->has_come[index] = true;
  if (++round->count == ranks_.size()) {
    round_ = nullptr;
    lock.unlock();  // The table is foreign code. Nobody else touches a round that is full.
    run(ops, *round, timeout, ranks_);
    lock.lock();
    round->is_done = true;
    changed_.notify_all();
  } else {
    // A full round ends by itself, since the table has the timeout too.
    const auto is_full = [&] { return round->is_done || round->count == ranks_.size(); };
    if (timeout == Duration::max()) {
      changed_.wait(lock, is_full);
    } else if (!changed_.wait_for(lock, timeout, is_full)) {
      const std::string missing = missing_ranks(*round);
      round->has_come[index] = false;
      --round->count;
      throw Error(BP_TIMEOUT, "split: " + missing + " of this process did not come in time");
    }
    changed_.wait(lock, [&] { return round->is_done; });
  }
  if (round->status != BP_OK) throw Error(round->status, "split: " + round->text);
  return round->parts[index];
}

}  // namespace bp::distributed
