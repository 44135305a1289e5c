#include "runtime/simulate/recorded.hpp"

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <sstream>

#include "backplane/runtime/error.hpp"
#include "registry/files/json_depth.hpp"
#include "registry/files/read_file.hpp"

namespace bp::simulate {
namespace {

using Json = nlohmann::json;

class Parser {
 public:
  Parser(const std::string& text, std::string name) : in_(text), name_(std::move(name)) {}

  RecordedRank parse() {
    std::string line;
    for (number_ = 1; std::getline(in_, line); ++number_) {
      if (line.empty()) continue;
      if (const std::string defect = json_depth_defect(line); !defect.empty()) refuse(defect);
      try {
        take(Json::parse(line));
      } catch (const Json::exception& e) {
        refuse(e.what());
      }
    }
    if (!has_start_) refuse("the file has no event \"start\"");
    if (is_in_step_) refuse("the last step has no event \"end\"; the recording was cut off");
    if (rank_.steps.empty()) refuse("the file has no step");
    return std::move(rank_);
  }

 private:
  [[noreturn]] void refuse(const std::string& why) const {
    throw Error(BP_INVALID_ARGUMENT, name_ + ":" + std::to_string(number_) + ": " + why);
  }

  double amount(const Json& event, const char* key) const {
    const double value = event.at(key).get<double>();
    if (value >= 0 && value < kNever) return value;
    refuse(std::string(key) + " is " + event.at(key).dump() + "; allowed: at least 0");
  }

  template <class T>
  T whole(const Json& event, const char* key) const {
    const Json& value = event.at(key);
    if (value.is_number_unsigned() && value.get<uint64_t>() <= std::numeric_limits<T>::max()) {
      return value.get<T>();
    }
    refuse(std::string(key) + " is " + value.dump() + "; allowed: an integer of at least 0");
  }

  void take(const Json& event) {
    const std::string kind = event.at("event").get<std::string>();
    if (kind == "start") return take_start(event);
    if (kind == "step" || kind == "end") {
      if (is_in_step_ == (kind == "step")) refuse("\"step\" and \"end\" do not come in turn");
      is_in_step_ = !is_in_step_;
      if (is_in_step_) {
        rank_.steps.push_back({.between_s = amount(event, "between")});
      } else {
        rank_.steps.back().seconds = amount(event, "seconds");
      }
      return;
    }
    if (!is_in_step_) refuse("the event \"" + kind + "\" is outside of a step");
    rank_.steps.back().events.push_back(read(event, kind));
  }

  void take_start(const Json& event) {
    rank_.rank = whole<uint32_t>(event, "rank");
    rank_.ranks = whole<uint32_t>(event, "ranks");
    has_start_ = true;
    if (rank_.rank >= rank_.ranks) {
      refuse("rank is " + std::to_string(rank_.rank) + ", of " + std::to_string(rank_.ranks) +
             " ranks; allowed: below");
    }
  }

  RecordedEvent read(const Json& event, const std::string& kind) const {
    RecordedEvent read;
    if (kind == "compute") {
      read.seconds = amount(event, "seconds");
      return read;
    }
    if (kind != "call" && kind != "wait") {
      refuse("event is \"" + kind + "\"; allowed: start, step, compute, call, wait, end");
    }
    read.group = event.at("group").get<std::string>();
    read.number = whole<uint64_t>(event, "number");
    read.kind = RecordedEvent::Kind::kWait;
    if (kind == "wait") return read;
    read.kind = RecordedEvent::Kind::kCall;
    try {
      read.call = call_kind(event.at("call").get<std::string>());
    } catch (const NetworkError& e) {
      refuse(e.what());
    }
    if (read.call == CallKind::kSend) refuse("sends and receives cannot be replayed");
    read.bytes = amount(event, "bytes");
    if (event.contains("root")) read.root = whole<uint32_t>(event, "root");
    if (read.root >= rank_.ranks) refuse("root is not below the number of ranks");
    return read;
  }

  std::istringstream in_;
  const std::string name_;
  size_t number_ = 0;
  RecordedRank rank_;
  bool has_start_ = false, is_in_step_ = false;
};

// Numbers names from 0, in the order of their first use.
class Names {
 public:
  uint32_t number(const std::string& name) {
    const auto place = std::ranges::find(names, name);
    if (place != names.end()) return static_cast<uint32_t>(place - names.begin());
    names.push_back(name);
    return static_cast<uint32_t>(names.size() - 1);
  }
  std::vector<std::string> names;
};

// Writes the program of a rank.
class Replay {
 public:
  Replay(Names& groups, Names& labels) : groups_(groups), labels_(labels) {}

  void compute(double seconds, const char* label) {
    last_compute_ = add({.label = labels_.number(label), .seconds = seconds, .after = needs_});
    needs_.clear();
  }

  void play(const RecordedEvent& event) {
    if (event.kind == RecordedEvent::Kind::kCompute) return compute(event.seconds, "compute");
    if (event.kind == RecordedEvent::Kind::kCall) return add_call(event);
    // A wait for a call of a step that is left out has ended.
    const auto call = calls_.find({event.group, event.number});
    if (call != calls_.end()) needs_.push_back(call->second);
  }

  Program take() {
    if (!needs_.empty()) compute(0, "end");
    return std::move(program_);
  }

 private:
  void add_call(const RecordedEvent& event) {
    const uint32_t group = groups_.number(event.group);
    Operation operation{.kind = OperationKind::kCall,
                        .stream = static_cast<uint8_t>(group + 1),
                        .axis = static_cast<uint8_t>(group),
                        .call = event.call,
                        .peer = event.root,
                        .label = labels_.number(call_name(event.call)),
                        .bytes = event.bytes,
                        .after = needs_};
    if (last_compute_) operation.after.push_back(*last_compute_);
    calls_[{event.group, event.number}] = add(std::move(operation));
  }

  uint32_t add(Operation operation) {
    program_.operations.push_back(std::move(operation));
    return static_cast<uint32_t>(program_.operations.size() - 1);
  }

  Names& groups_;
  Names& labels_;
  Program program_;
  std::map<std::pair<std::string, uint64_t>, uint32_t> calls_;  // The last one of each number.
  std::vector<uint32_t> needs_;  // What the next operation waits for.
  std::optional<uint32_t> last_compute_;
};

Program program_of(const RecordedRank& rank, size_t first, Names& groups, Names& labels) {
  Replay replay(groups, labels);
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

RecordedRank parse_recorded(const std::string& text, const std::string& name) {
  return Parser(text, name).parse();
}

RecordedRank read_recorded(const std::string& path) {
  constexpr uint64_t kMostBytes = uint64_t{1} << 30;
  std::string text;
  if (const std::string defect = read_file(path, kMostBytes, text); !defect.empty()) {
    throw Error(BP_INVALID_ARGUMENT, path + ": " + defect);
  }
  return parse_recorded(text, path);
}

Schedule schedule_of(const std::vector<RecordedRank>& ranks, size_t first) {
  check_ranks(ranks);
  Schedule schedule;
  Names groups, labels;
  for (const RecordedRank& rank : ranks) {
    schedule.programs.push_back(program_of(rank, first, groups, labels));
  }
  std::vector<uint32_t> all, numbers;
  for (const RecordedRank& rank : ranks) all.push_back(rank.rank);
  schedule.streams = {"compute"};
  for (const std::string& name : groups.names) {
    if (schedule.streams.size() > 255) {
      throw Error(BP_INVALID_ARGUMENT, "the recording has more than 255 groups");
    }
    numbers.push_back(static_cast<uint32_t>(schedule.groups.size()));
    schedule.groups.push_back({all, {}});
    schedule.streams.push_back(name);
  }
  schedule.labels = labels.names;
  for (const RecordedRank& rank : ranks) {
    schedule.ranks.push_back({rank.rank, rank.rank, numbers});
  }
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
