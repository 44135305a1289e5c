// A recorded step: what one rank did, as lines of JSON. 11_train_gpt_distributed --record-schedule
// writes such a file for each rank.
//
//   {"event":"start","rank":0,"ranks":2}
//   {"event":"step","between":0.0004}
//   {"event":"compute","seconds":0.0123}
//   {"event":"call","group":"world","number":7,"call":"all_reduce","bytes":1048576}
//   {"event":"compute","seconds":0.004}
//   {"event":"wait","group":"world","number":7}
//   {"event":"end","seconds":0.0171}
//
// "compute" is what the rank did before the next event. "call" submits a call, with bytes as in
// plans.hpp and "root" for kinds that have one. "wait" waits for the call of this number. Calls of
// one submission have one number. Each group has a stream, and all ranks. A file may have several
// steps, each from "step" to "end", which tells how long the step took. "between" is the time from
// the end of the step before.
//
// Errors: throw bp::Error, which names the file, the line, and what is wrong there.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/simulate/schedule.hpp"

namespace bp::simulate {

struct RecordedEvent {
  enum class Kind : uint8_t { kCompute, kCall, kWait } kind = Kind::kCompute;
  double seconds = 0;
  std::string group;
  uint64_t number = 0;
  CallKind call = CallKind::kAllReduce;
  double bytes = 0;
  uint32_t root = 0;
};

struct RecordedStep {
  std::vector<RecordedEvent> events;
  double between_s = 0;  // From the end of the step before.
  double seconds = 0;    // From "step" to "end", as the rank measured it.
};

struct RecordedRank {
  uint32_t rank = 0, ranks = 1;
  std::vector<RecordedStep> steps;
};

// `name` stands for the text in errors.
RecordedRank parse_recorded(const std::string& text, const std::string& name);
RecordedRank read_recorded(const std::string& path);

// Makes the schedule of all ranks from step `first` (from 0) to the last one. All ranks begin step
// `first` at the same time, and compute between later ones. Every rank of the job must be there,
// with as many steps as the others.
Schedule schedule_of(const std::vector<RecordedRank>& ranks, size_t first);

// Returns how long these steps took, with what was between them: the mean over the ranks.
double measured_seconds(const std::vector<RecordedRank>& ranks, size_t first);

}  // namespace bp::simulate
