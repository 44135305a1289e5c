// The schedule of recorded ranks.
#include <algorithm>
#include <map>
#include <optional>
#include <utility>

#include "backplane/runtime/error.hpp"
#include "runtime/simulate/recorded.hpp"
#include "runtime/simulate/recorded_matches.hpp"

namespace bp::simulate {
namespace {

// Numbers things from 0, in the order of their first use.
template <class T>
class Numbers {
 public:
  uint32_t number(const T& thing) {
    const auto place = std::ranges::find(things, thing);
    if (place != things.end()) return static_cast<uint32_t>(place - things.begin());
    things.push_back(thing);
    return static_cast<uint32_t>(things.size() - 1);
  }
  std::vector<T> things;
};

// What programs have in common.
struct Shared {
  Numbers<RecordedGroup> groups;
  Numbers<std::string> labels, streams;
};

// The number of a stream or of a group of a rank.
uint8_t small_number(uint32_t number, const char* what) {
  if (number <= UINT8_MAX) return static_cast<uint8_t>(number);
  throw Error(BP_INVALID_ARGUMENT, std::string("the recording has more than 255 ") + what);
}

// Writes the program of a rank.
class Replay {
 public:
  Replay(const RecordedRank& rank, Shared& shared)
      : rank_(rank), shared_(shared), submissions_(rank.groups.size()) {}

  void compute(double seconds, const char* label) {
    last_compute_ =
        add({.label = shared_.labels.number(label), .seconds = seconds, .after = needs_});
    needs_.clear();
  }

  void play(const RecordedEvent& event) {
    if (event.kind == RecordedEvent::Kind::kCompute) return compute(event.seconds, "compute");
    if (event.kind != RecordedEvent::Kind::kWait) return add_call(event);
    // A wait for a call of a step that is left out has ended.
    const auto calls = calls_.find({event.group, event.number});
    if (calls == calls_.end()) return;
    needs_.insert(needs_.end(), calls->second.begin(), calls->second.end());
  }

  Program take() {
    if (!needs_.empty()) compute(0, "end");
    return std::move(program_);
  }

 private:
  // Sends and receives with the same peer and direction, or all collective calls.
  using Lane = std::pair<RecordedEvent::Kind, uint32_t>;
  // The latest one of a group.
  struct Submission {
    uint64_t number = 0;
    std::vector<uint32_t> calls, calls_before;  // Operations: its own, and those of the one before.
    Numbers<Lane> lanes;
  };

  void add_call(const RecordedEvent& event) {
    Submission& submission = submissions_[event.group];
    if (submission.number != event.number) {
      submission = {
          .number = event.number, .calls = {}, .calls_before = submission.calls, .lanes = {}};
      calls_.erase({event.group, event.number});  // Those of another group of the same name.
    }
    const RecordedGroup& group = rank_.groups[event.group];
    const bool is_call = event.kind == RecordedEvent::Kind::kCall;
    const uint32_t lane = submission.lanes.number({event.kind, is_call ? 0 : event.peer});
    const auto peer = std::ranges::lower_bound(group.ranks, event.peer) - group.ranks.begin();
    submission.calls.push_back(add({.kind = kind_of(event.kind),
                                    .stream = stream_of(group, lane),
                                    .axis = small_number(event.group, "groups"),
                                    .call = event.call,
                                    .peer = static_cast<uint32_t>(peer),
                                    .label = shared_.labels.number(label_of(event)),
                                    .bytes = event.bytes,
                                    .after = before(event),
                                    .line = event.line}));
    calls_[{event.group, event.number}].push_back(submission.calls.back());
  }

  // Returns the operations that must end before the call starts.
  std::vector<uint32_t> before(const RecordedEvent& event) const {
    std::vector<uint32_t> result = needs_;
    const auto add = [&](const std::vector<uint32_t>& operations) {
      result.insert(result.end(), operations.begin(), operations.end());
    };
    if (last_compute_) result.push_back(*last_compute_);
    add(submissions_[event.group].calls_before);
    if (event.behind && *event.behind != event.group) add(submissions_[*event.behind].calls);
    return result;
  }

  static OperationKind kind_of(RecordedEvent::Kind kind) {
    if (kind == RecordedEvent::Kind::kSend) return OperationKind::kSend;
    return kind == RecordedEvent::Kind::kReceive ? OperationKind::kReceive : OperationKind::kCall;
  }

  static const char* label_of(const RecordedEvent& event) {
    return event.kind == RecordedEvent::Kind::kReceive ? "receive" : call_name(event.call);
  }

  uint8_t stream_of(const RecordedGroup& group, uint32_t lane) {
    const std::string name =
        lane == 0 ? group.name : group.name + ", beside " + std::to_string(lane);
    return small_number(shared_.streams.number(name), "streams");
  }

  uint32_t add(Operation operation) {
    program_.operations.push_back(std::move(operation));
    return static_cast<uint32_t>(program_.operations.size() - 1);
  }

  const RecordedRank& rank_;
  Shared& shared_;
  Program program_;
  std::vector<Submission> submissions_;                                   // Of each group.
  std::map<std::pair<uint32_t, uint64_t>, std::vector<uint32_t>> calls_;  // Group and number.
  std::vector<uint32_t> needs_;  // What the next operation waits for.
  std::optional<uint32_t> last_compute_;
};

Program program_of(const RecordedRank& rank, size_t first, Shared& shared) {
  Replay replay(rank, shared);
  for (size_t step = first; step < rank.steps.size(); ++step) {
    if (step > first) replay.compute(rank.steps[step].between_s, "between steps");
    for (const RecordedEvent& event : rank.steps[step].events) replay.play(event);
  }
  return replay.take();
}

void check_ranks(const std::vector<RecordedRank>& ranks) {
  for (size_t i = 0; i < ranks.size(); ++i) {
    const RecordedRank& rank = ranks[i];
    if (rank.rank != i || rank.ranks != ranks.size()) {
      throw Error(BP_INVALID_ARGUMENT,
                  "file " + std::to_string(i + 1) + " of " + std::to_string(ranks.size()) +
                      " is that of rank " + std::to_string(rank.rank) + " of " +
                      std::to_string(rank.ranks) + "; give the files of all ranks, in their order");
    }
    if (rank.steps.size() == ranks[0].steps.size()) continue;
    throw Error(BP_INVALID_ARGUMENT,
                "rank " + std::to_string(i) + " has " + std::to_string(rank.steps.size()) +
                    " steps, and rank 0 has " + std::to_string(ranks[0].steps.size()));
  }
}

}  // namespace

Schedule schedule_of(const std::vector<RecordedRank>& ranks, size_t first) {
  check_ranks(ranks);
  check_matches(ranks, first);
  Schedule schedule;
  Shared shared;
  shared.streams.number("compute");
  for (const RecordedRank& rank : ranks) {
    SimulatedRank simulated{.rank = rank.rank, .program = rank.rank};
    for (const RecordedGroup& group : rank.groups) {
      simulated.groups.push_back(shared.groups.number(group));
    }
    schedule.programs.push_back(program_of(rank, first, shared));
    schedule.ranks.push_back(std::move(simulated));
  }
  for (const RecordedGroup& group : shared.groups.things) {
    schedule.groups.push_back({group.ranks, {}});
  }
  schedule.streams = std::move(shared.streams.things);
  schedule.labels = std::move(shared.labels.things);
  return schedule;
}

double measured_seconds(const std::vector<RecordedRank>& ranks, size_t first) {
  double sum = 0;
  for (const RecordedRank& rank : ranks) {
    for (size_t step = first; step < rank.steps.size(); ++step) {
      sum += rank.steps[step].seconds + (step > first ? rank.steps[step].between_s : 0);
    }
  }
  return sum / static_cast<double>(ranks.size());
}

}  // namespace bp::simulate
