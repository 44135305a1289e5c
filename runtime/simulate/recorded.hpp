// A recorded step: what one rank did, as lines of JSON. 11_train_gpt_distributed --record-schedule
// writes such a file for each rank.
//
//   {"event":"start","rank":0,"ranks":4}
//   {"event":"group","group":"world.pipe","ranks":[0,2]}
//   {"event":"step","between":0.0004}
//   {"event":"compute","seconds":0.0123}
//   {"event":"call","group":"world","number":7,"call":"all_reduce","bytes":1048576}
//   {"event":"call","group":"world.pipe","number":1,"call":"send","bytes":4096,"peer":2}
//   {"event":"compute","seconds":0.004}
//   {"event":"wait","group":"world","number":7}
//   {"event":"end","seconds":0.0171}
//
// "group" tells which ranks a group has, for the lines below it. A group without such a line has
// all ranks of the job. Ranks have their numbers in the job, here and in "root" and "peer".
//
// "compute" is what the rank did before the next event. "call" submits a call, with bytes as in
// plans.hpp, with "root" for kinds that have one, and with "peer" for "send" and "receive". Calls
// of one submission have one number, and follow each other in the file. "behind" of a call names a
// group whose latest submission must end before the call starts. "wait" waits for the submission of
// this number. A file may have several steps, each from "step" to "end", which tells how long the
// step took. "between" is the time from the end of the step before.
//
// Each group has a stream of its own: a submission starts when the one before it on this group has
// ended. In a submission, sends and receives run beside each other, but for those with the same
// peer in the same direction. Calls have no tags: the k-th send from a rank to another one in a
// group meets the k-th receive there, and the k-th collective call of a rank meets those of the
// other ranks. Groups are the same if they have the same name and the same ranks.
//
// Errors: throw bp::Error, which names the file, the line, and what is wrong there.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "runtime/simulate/schedule.hpp"

namespace bp::simulate {

struct RecordedGroup {
  std::string name;
  std::vector<uint32_t> ranks;  // Ascending.
  bool operator==(const RecordedGroup&) const = default;
};

struct RecordedEvent {
  enum class Kind : uint8_t { kCompute, kCall, kSend, kReceive, kWait } kind = Kind::kCompute;
  double seconds = 0;
  uint32_t group = 0;  // In RecordedRank::groups.
  uint64_t number = 0;
  CallKind call = CallKind::kAllReduce;
  double bytes = 0;
  uint32_t peer = 0;  // Of sends and receives: the other rank. Of other calls: the root.
  std::optional<uint32_t> behind;  // In RecordedRank::groups: a call behind its latest submission.
  size_t line = 0;                 // In the file.
};

struct RecordedStep {
  std::vector<RecordedEvent> events;
  double between_s = 0;  // From the end of the step before.
  double seconds = 0;    // From "step" to "end", as the rank measured it.
};

struct RecordedRank {
  std::string name;  // Of the file, for errors.
  uint32_t rank = 0, ranks = 1;
  std::vector<RecordedGroup> groups;
  std::vector<RecordedStep> steps;
};

// `name` stands for the text in errors.
RecordedRank parse_recorded(const std::string& text, const std::string& name);
RecordedRank read_recorded(const std::string& path);

// Makes the schedule of all ranks from step `first` (from 0) to the last one. All ranks begin step
// `first` at the same time, and compute between later ones. Every rank of the job must be there,
// with as many steps as the others. Each send must have its receive in these steps, and each call
// the calls of the other ranks.
Schedule schedule_of(const std::vector<RecordedRank>& ranks, size_t first);

// Returns how long these steps took, with what was between them: the mean over the ranks.
double measured_seconds(const std::vector<RecordedRank>& ranks, size_t first);

}  // namespace bp::simulate
