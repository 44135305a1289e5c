#include <algorithm>
#include <map>

#include "runtime/simulate/schedule.hpp"

namespace bp::simulate {
namespace {

// Sorts intervals, and joins those that touch.
std::vector<Interval> united(std::vector<Interval> intervals) {
  std::ranges::sort(intervals, {}, &Interval::begin);
  std::vector<Interval> result;
  for (const Interval& each : intervals) {
    if (!result.empty() && each.begin <= result.back().end) {
      result.back().end = std::max(result.back().end, each.end);
    } else {
      result.push_back(each);
    }
  }
  return result;
}

double length_of(const std::vector<Interval>& intervals) {
  double sum = 0;
  for (const Interval& each : intervals) sum += each.end - each.begin;
  return sum;
}

// The length of what lies in both. Each is united.
double length_of_both(const std::vector<Interval>& a, const std::vector<Interval>& b) {
  double sum = 0;
  for (size_t i = 0, j = 0; i < a.size() && j < b.size();) {
    sum += std::max(std::min(a[i].end, b[j].end) - std::max(a[i].begin, b[j].begin), 0.0);
    if (a[i].end < b[j].end) {
      ++i;
    } else {
      ++j;
    }
  }
  return sum;
}

}  // namespace

std::string name_of(const Schedule& schedule, const Operation& operation) {
  std::string name = schedule.labels.at(operation.label);
  if (operation.micro_batch == kNone) return name;
  return name + " of micro-batch " + std::to_string(operation.micro_batch) + " at stage " +
         std::to_string(operation.stage);
}

double hidden_share(const Schedule& schedule, const Timeline& timeline,
                    const std::vector<uint8_t>& axes) {
  double all = 0, hidden = 0;
  for (size_t r = 0; r < schedule.ranks.size(); ++r) {
    const Program& program = schedule.programs[schedule.ranks[r].program];
    std::vector<Interval> computing, calling;
    for (size_t i = 0; i < program.operations.size(); ++i) {
      const Operation& operation = program.operations[i];
      if (operation.kind == OperationKind::kCompute) {
        computing.push_back(timeline.ranks[r][i]);
      } else if (std::ranges::find(axes, operation.axis) != axes.end()) {
        calling.push_back(timeline.ranks[r][i]);
      }
    }
    calling = united(std::move(calling));
    all += length_of(calling);
    hidden += length_of_both(united(std::move(computing)), calling);
  }
  return all > 0 ? hidden / all : 1;
}

std::vector<RankTimes> times_of(const Schedule& schedule, const Timeline& timeline) {
  std::vector<RankTimes> times;
  for (size_t r = 0; r < schedule.ranks.size(); ++r) {
    const Program& program = schedule.programs[schedule.ranks[r].program];
    std::vector<Interval> computing, calling;
    for (size_t i = 0; i < program.operations.size(); ++i) {
      const bool computes = program.operations[i].kind == OperationKind::kCompute;
      (computes ? computing : calling).push_back(timeline.ranks[r][i]);
    }
    computing = united(std::move(computing));
    calling = united(std::move(calling));
    RankTimes each{.compute_s = length_of(computing), .communication_s = length_of(calling)};
    each.exposed_s = each.communication_s - length_of_both(computing, calling);
    each.idle_s = std::max(timeline.step_seconds - each.compute_s - each.exposed_s, 0.0);
    times.push_back(each);
  }
  return times;
}

std::vector<CallSum> calls_of(const Schedule& schedule, const Timeline& timeline) {
  std::map<std::string, CallSum> sums;
  for (size_t r = 0; r < schedule.ranks.size(); ++r) {
    const Program& program = schedule.programs[schedule.ranks[r].program];
    for (size_t i = 0; i < program.operations.size(); ++i) {
      const Operation& operation = program.operations[i];
      if (operation.kind == OperationKind::kCompute || timeline.ranks[r][i].end < 0) continue;
      const bool receives = operation.kind == OperationKind::kReceive;
      CallSum& sum = sums[receives ? "receive" : call_name(operation.call)];
      sum.count += 1;
      sum.bytes += operation.bytes;
    }
  }
  std::vector<CallSum> calls;
  for (auto& [kind, sum] : sums) calls.push_back({kind, sum.count, sum.bytes});
  return calls;
}

}  // namespace bp::simulate
