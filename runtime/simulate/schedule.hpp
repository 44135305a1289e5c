// The schedule of a step, and its simulation.
//
// Ranks run programs. A program is a list of operations on streams. An operation starts when the
// one before it on its stream has ended, and when all operations that it names have. It computes
// for a stated time, or it is one side of a call: a collective call of a group, a send or a
// receive. The k-th call of a rank on a group meets the k-th calls of the other ranks of the group;
// the k-th send from a rank to another one meets the k-th receive there. A call begins when its
// last rank has come, and takes latency first and bandwidth then. Computing and calls do not slow
// each other.
//
// Ranks that do the same can be simulated by one of them: see Group::beside. This is exact if the
// network treats all of these ranks alike, and if none of them is a straggler.
//
// Two fidelities:
//   kCosts      A call is one transfer with the cost of costs.hpp, and shares links with other
//               calls: each is slowed down by the same factor. All its ranks end together.
//   kMessages   Each message of each call is a transfer. All ranks are simulated; Group::beside is
//               refused. It is for up to about a hundred ranks.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "simulation/costs.hpp"

namespace bp::simulate {

constexpr uint8_t kComputeStream = 0;
constexpr uint32_t kNone = UINT32_MAX;

enum class OperationKind : uint8_t { kCompute, kCall, kSend, kReceive };

struct Operation {
  OperationKind kind = OperationKind::kCompute;
  uint8_t stream = kComputeStream;
  uint8_t axis = 0;  // Of calls: which of the rank's groups.
  CallKind call = CallKind::kAllReduce;
  uint32_t peer = 0;   // Of sends and receives: the member of the group. Of calls: the root.
  uint32_t label = 0;  // In Schedule::labels.
  uint32_t micro_batch = kNone, stage = kNone;  // Of pipelines, for names.
  double seconds = 0;                           // Of computing, on a rank without slowdown.
  double bytes = 0;                             // Of calls, sends and receives: see plans.hpp.
  std::vector<uint32_t> after;                  // Earlier operations of the program.
  uint64_t line = 0;                            // Of a recorded call: its line in the file.
};

struct Program {
  std::vector<Operation> operations;
};

struct SimulatedRank {
  uint32_t rank = 0;             // In the network.
  uint32_t program = 0;          // In Schedule::programs.
  std::vector<uint32_t> groups;  // In Schedule::groups: one for each axis.
};

struct Schedule {
  std::vector<std::string> streams;  // Names, for traces.
  std::vector<std::string> labels;
  std::vector<Program> programs;
  std::vector<Group> groups;
  std::vector<SimulatedRank> ranks;
};

// Returns a name like "forward mlp of micro-batch 3 at stage 1".
std::string name_of(const Schedule& schedule, const Operation& operation);

struct Interval {
  double begin = 0, end = 0;
};

struct Timeline {
  // Of each rank and operation. A call begins when its last rank has come.
  std::vector<std::vector<Interval>> ranks;
  double step_seconds = 0;  // The end of the last operation.
};

enum class Fidelity { kCosts, kMessages };

// Throws bp::Error if ranks do not agree about a call, or if ranks wait for ever; it then names a
// rank and its operation.
Timeline simulate(const Schedule& schedule, const Network& network,
                  Fidelity fidelity = Fidelity::kCosts);

// ---- What a rank did ---------------------------------------------------------------------------

// Shares of a step of one rank. Their sum is the step: step = compute + exposed + idle.
struct RankTimes {
  double compute_s = 0;        // An operation computes.
  double communication_s = 0;  // A call runs.
  double exposed_s = 0;        // A call runs, and no operation computes.
  double idle_s = 0;           // Neither: the rank waits for other ranks.
};

// Returns the times of each simulated rank.
std::vector<RankTimes> times_of(const Schedule& schedule, const Timeline& timeline);

// The calls of one kind.
struct CallSum {
  std::string kind;  // A send and its receive are two calls.
  double count = 0;
  double bytes = 0;  // As in plans.hpp.
};

// Returns the calls of all simulated ranks that the simulation has ended, by the name of the kind.
std::vector<CallSum> calls_of(const Schedule& schedule, const Timeline& timeline);

// Returns the share of the time of all calls on these axes that computing hides, over all simulated
// ranks: 0 to 1, and 1 if there are none.
double hidden_share(const Schedule& schedule, const Timeline& timeline,
                    const std::vector<uint8_t>& axes);

}  // namespace bp::simulate
