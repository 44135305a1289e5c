#include "runtime/simulate/recorded.hpp"

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <numeric>
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
    rank_.name = name_;
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
    if (kind == "group") return take_group(event);
    if (kind == "step" || kind == "end") {
      if (is_in_step_ == (kind == "step")) refuse("\"step\" and \"end\" do not come in turn");
      is_in_step_ = !is_in_step_;
      if (is_in_step_) {
        rank_.steps.push_back({.events = {}, .between_s = amount(event, "between")});
      } else {
        rank_.steps.back().seconds = amount(event, "seconds");
      }
      return;
    }
    if (!is_in_step_) refuse("the event \"" + kind + "\" is outside of a step");
    rank_.steps.back().events.push_back(read(event, kind));
  }

  void take_start(const Json& event) {
    if (has_start_) refuse("the file has a second event \"start\"");
    rank_.rank = whole<uint32_t>(event, "rank");
    rank_.ranks = whole<uint32_t>(event, "ranks");
    has_start_ = true;
    if (rank_.rank >= rank_.ranks) {
      refuse("rank is " + std::to_string(rank_.rank) + ", of " + std::to_string(rank_.ranks) +
             " ranks; allowed: below");
    }
  }

  // The line counts for the events below it.
  void take_group(const Json& event) {
    if (!has_start_) refuse("the event \"group\" is before \"start\"");
    RecordedGroup group{.name = event.at("group").get<std::string>(), .ranks = {}};
    const Json& ranks = event.at("ranks");
    if (!ranks.is_array()) refuse("ranks is " + ranks.dump() + "; allowed: a list of ranks");
    for (const Json& rank : ranks) {
      if (!rank.is_number_unsigned() || rank.get<uint64_t>() >= rank_.ranks) {
        refuse("ranks has " + rank.dump() + "; allowed: integers from 0 to " +
               std::to_string(rank_.ranks - 1));
      }
      group.ranks.push_back(rank.get<uint32_t>());
    }
    std::ranges::sort(group.ranks);
    if (std::ranges::adjacent_find(group.ranks) != group.ranks.end()) {
      refuse("ranks is " + ranks.dump() + "; allowed: each rank once");
    }
    if (!has(group, rank_.rank)) {
      refuse("ranks is " + ranks.dump() + ", and the file is that of rank " +
             std::to_string(rank_.rank) + "; allowed: groups that have it");
    }
    const std::string name = group.name;
    groups_[name] = number_of(std::move(group));
  }

  static bool has(const RecordedGroup& group, uint32_t rank) {
    return std::ranges::binary_search(group.ranks, rank);
  }

  uint32_t number_of(RecordedGroup group) {
    const auto place = std::ranges::find(rank_.groups, group);
    const auto number = static_cast<uint32_t>(place - rank_.groups.begin());
    if (place == rank_.groups.end()) rank_.groups.push_back(std::move(group));
    return number;
  }

  // A group without a line has all ranks.
  uint32_t group_of(const std::string& name) {
    const auto [place, is_new] = groups_.try_emplace(name, 0);
    if (is_new) {
      RecordedGroup group{.name = name, .ranks = std::vector<uint32_t>(rank_.ranks)};
      std::iota(group.ranks.begin(), group.ranks.end(), 0U);
      place->second = number_of(std::move(group));
    }
    return place->second;
  }

  RecordedEvent read(const Json& event, const std::string& kind) {
    RecordedEvent read;
    read.line = number_;
    if (kind == "compute") {
      read.seconds = amount(event, "seconds");
      return read;
    }
    if (kind != "call" && kind != "wait") {
      refuse("event is \"" + kind + "\"; allowed: start, group, step, compute, call, wait, end");
    }
    read.group = group_of(event.at("group").get<std::string>());
    read.number = whole<uint64_t>(event, "number");
    read.kind = RecordedEvent::Kind::kWait;
    if (kind == "call") {
      if (event.contains("behind")) read.behind = group_of(event["behind"].get<std::string>());
      read_call(event, read);
    }
    return read;
  }

  void read_call(const Json& event, RecordedEvent& read) const {
    using enum RecordedEvent::Kind;
    const std::string name = event.at("call").get<std::string>();
    read.kind = name == "send" ? kSend : name == "receive" ? kReceive : kCall;
    try {
      read.call = read.kind == kReceive ? CallKind::kSend : call_kind(name);
    } catch (const NetworkError& e) {
      refuse(e.what() + std::string(", receive"));
    }
    read.bytes = amount(event, "bytes");
    const RecordedGroup& group = rank_.groups[read.group];
    if (read.kind == kCall) {
      read.peer = event.contains("root") ? member(event, "root", group) : group.ranks[0];
      return;
    }
    read.peer = member(event, "peer", group);
    if (read.peer == rank_.rank) {
      refuse("peer is " + std::to_string(read.peer) + ", the rank itself; allowed: another rank");
    }
  }

  uint32_t member(const Json& event, const char* key, const RecordedGroup& group) const {
    const auto rank = whole<uint32_t>(event, key);
    if (has(group, rank)) return rank;
    std::string allowed;
    for (const uint32_t each : group.ranks) {
      allowed += (allowed.empty() ? "" : ", ") + std::to_string(each);
    }
    refuse(std::string(key) + " is rank " + std::to_string(rank) + ", and the group '" +
           group.name + "' has the ranks " + allowed);
  }

  std::istringstream in_;
  const std::string name_;
  size_t number_ = 0;
  RecordedRank rank_;
  std::map<std::string, uint32_t> groups_;  // What a name stands for: a place in rank_.groups.
  bool has_start_ = false, is_in_step_ = false;
};

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

}  // namespace bp::simulate
