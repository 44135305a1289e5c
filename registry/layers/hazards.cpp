#include "registry/layers/hazards.hpp"

#include <algorithm>
#include <iterator>

namespace bp::layers {

uint64_t Hazards::at(const Clock& clock, uint32_t number) {
  const auto found = clock.find(number);
  return found == clock.end() ? 0 : found->second;
}

void Hazards::take_over(Clock& mine, const Clock& theirs) {
  for (const auto& [number, epoch] : theirs) {
    uint64_t& known = mine[number];
    known = std::max(known, epoch);
  }
}

void Hazards::add_stream(bp_stream* stream, bp_device* device) {
  if (streams_.count(stream) != 0) return;
  Stream& added = streams_[stream];
  added.number = next_number_++;
  added.device = device;
}

void Hazards::remove_stream(bp_stream* stream) {
  const auto found = streams_.find(stream);
  if (found == streams_.end()) return;
  const Stream& s = found->second;
  const uint32_t number = s.number;
  const bool is_known = at(s.clock, number) <= at(host_, number);
  if (!is_known) ended_.push_back(s);
  for (auto& [handle, semaphore] : semaphores_) {
    std::erase_if(semaphore.waiters, [&](const Waiter& w) { return w.stream == stream; });
  }
  streams_.erase(found);
  if (is_known) forget(number);
}

// Forgets a stream that has ended and all of whose work the host has waited for.
void Hazards::forget(uint32_t number) {
  for (auto& [buffer, records] : accesses_) {
    std::erase_if(records, [&](const Record& r) { return r.stream_number == number; });
  }
  for (auto& [handle, stream] : streams_) stream.clock.erase(number);
  for (auto& [event, clock] : events_) clock.erase(number);
  for (auto& [handle, semaphore] : semaphores_) {
    for (auto& [value, clock] : semaphore.signals) clock.erase(number);
  }
  host_.erase(number);
}

void Hazards::begin_unseen(bp_stream* stream) {
  if (const auto found = streams_.find(stream); found != streams_.end()) {
    ++found->second.unseen_count;
  }
}

void Hazards::end_unseen(bp_stream* stream) {
  const auto found = streams_.find(stream);
  if (found != streams_.end() && found->second.unseen_count != 0) --found->second.unseen_count;
}

void Hazards::prune(std::vector<Record>& records, const Stream& stream,
                    const Access& access) const {
  std::erase_if(records, [&](const Record& r) {
    if (r.epoch <= at(host_, r.stream_number)) return true;
    if (r.stream_number != stream.number || access.where.axis_count != 0) return false;
    const bool is_inside =
        access.where.begin <= r.access.where.begin && r.access.where.end <= access.where.end;
    return is_inside && (access.writes || !r.access.writes);
  });
}

std::vector<Hazard> Hazards::submit(bp_stream* stream, const std::vector<Access>& accesses,
                                    const Work& work, uint64_t* out_epoch) {
  std::vector<Hazard> hazards;
  *out_epoch = 0;
  const auto found = streams_.find(stream);
  if (found == streams_.end() || found->second.unseen_count != 0) return hazards;
  Stream& s = found->second;
  take_over(s.clock, host_);
  const uint64_t epoch = ++s.clock[s.number];
  *out_epoch = epoch;
  for (const Access& access : accesses) {
    if (access.where.is_empty()) continue;
    std::vector<Record>& records = accesses_[access.where.buffer];
    for (const Record& r : records) {
      if (r.epoch <= at(s.clock, r.stream_number)) continue;
      if ((!access.writes && !r.access.writes) || !overlap(access.where, r.access.where)) continue;
      hazards.push_back({r.work, r.access.writes, access.writes, r.stream, access.where});
    }
    prune(records, s, access);
    records.push_back({access, s.number, stream, epoch, work});
  }
  return hazards;
}

void Hazards::retract(bp_stream* stream, uint64_t epoch, const std::vector<Access>& accesses) {
  const auto found = streams_.find(stream);
  if (found == streams_.end() || epoch == 0) return;
  for (const Access& access : accesses) {
    const auto records = accesses_.find(access.where.buffer);
    if (records == accesses_.end()) continue;
    std::erase_if(records->second, [&](const Record& r) {
      return r.stream_number == found->second.number && r.epoch == epoch;
    });
  }
}

std::vector<Hazard> Hazards::host_touches(const Footprint& where, bool writes) const {
  std::vector<Hazard> hazards;
  const auto found = accesses_.find(where.buffer);
  if (found == accesses_.end()) return hazards;
  for (const Record& r : found->second) {
    if (r.epoch <= at(host_, r.stream_number)) continue;
    if ((!writes && !r.access.writes) || !overlap(where, r.access.where)) continue;
    hazards.push_back({r.work, r.access.writes, writes, r.stream, where});
  }
  return hazards;
}

void Hazards::record_event(bp_event* event, bp_stream* stream) {
  const auto found = streams_.find(stream);
  if (found == streams_.end()) return;
  take_over(found->second.clock, host_);
  events_[event] = found->second.clock;
}

void Hazards::wait_event(bp_stream* stream, bp_event* event) {
  const auto s = streams_.find(stream);
  const auto e = events_.find(event);
  if (s != streams_.end() && e != events_.end()) take_over(s->second.clock, e->second);
}

void Hazards::signal_event(bp_event* event) { events_[event] = host_; }

void Hazards::copy_event(bp_event* copy, bp_event* event) {
  if (const auto found = events_.find(event); found != events_.end()) events_[copy] = found->second;
}

void Hazards::host_waits_for_stream(bp_stream* stream) {
  const auto found = streams_.find(stream);
  if (found != streams_.end()) take_over(host_, found->second.clock);
}

void Hazards::host_waits_for_event(bp_event* event) {
  const auto found = events_.find(event);
  if (found != events_.end()) take_over(host_, found->second);
}

void Hazards::host_waits_for_device(bp_device* device) {
  for (const auto& [handle, stream] : streams_) {
    if (stream.device == device) take_over(host_, stream.clock);
  }
  std::vector<uint32_t> known;
  std::erase_if(ended_, [&](const Stream& stream) {
    if (stream.device != device) return false;
    take_over(host_, stream.clock);
    known.push_back(stream.number);
    return true;
  });
  for (const uint32_t number : known) forget(number);
}

// ---- Semaphores ---------------------------------------------------------------------------------

void Hazards::add_semaphore(bp_semaphore* semaphore, uint64_t value) {
  semaphores_[semaphore] = {.reached = value};
}

// Returns false if nobody has signalled the value yet.
bool Hazards::take_over(Clock& mine, const Semaphore& semaphore, uint64_t value) {
  if (value <= semaphore.reached) return true;  // Every stream takes over the clock of the host.
  const auto last = semaphore.signals.lower_bound(value);
  if (last == semaphore.signals.end()) return false;
  for (auto each = semaphore.signals.begin(); each != std::next(last); ++each) {
    take_over(mine, each->second);
  }
  return true;
}

void Hazards::signal_semaphore(bp_semaphore* semaphore, bp_stream* stream, uint64_t value) {
  const auto found = semaphores_.find(semaphore);
  if (found == semaphores_.end()) return;
  Semaphore& s = found->second;
  s.signals[value] = host_;
  if (const auto by = streams_.find(stream); by != streams_.end()) {
    take_over(s.signals[value], by->second.clock);
  }
  std::erase_if(s.waiters, [&](const Waiter& waiter) {
    const auto waiting = streams_.find(waiter.stream);
    if (waiting == streams_.end()) return true;
    if (!take_over(waiting->second.clock, s, waiter.value)) return false;
    end_unseen(waiter.stream);
    return true;
  });
}

void Hazards::wait_semaphore(bp_stream* stream, bp_semaphore* semaphore, uint64_t value) {
  const auto waiting = streams_.find(stream);
  const auto found = semaphores_.find(semaphore);
  if (waiting == streams_.end() || found == semaphores_.end()) return;
  if (take_over(waiting->second.clock, found->second, value)) return;
  begin_unseen(stream);
  found->second.waiters.push_back({stream, value});
}

void Hazards::host_waits_for_semaphore(bp_semaphore* semaphore, uint64_t value) {
  const auto found = semaphores_.find(semaphore);
  if (found == semaphores_.end() || value <= found->second.reached) return;
  Semaphore& s = found->second;
  // If no signal is known, another process has raised the value.
  if (!take_over(host_, s, value)) {
    for (const auto& [signalled, clock] : s.signals) take_over(host_, clock);
  }
  s.reached = value;
  s.signals.erase(s.signals.begin(), s.signals.upper_bound(value));
}

}  // namespace bp::layers
