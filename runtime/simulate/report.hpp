// What a simulated step took: a table, JSON, and a trace for viewers.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "runtime/simulate/model.hpp"
#include "runtime/simulate/schedule.hpp"

namespace bp::simulate {

// Means over the simulated ranks. step = compute + exposed + idle.
struct Report {
  uint32_t ranks = 0, simulated_ranks = 0;
  double step_s = 0;
  double compute_s = 0;              // A rank computes.
  double communication_s = 0;        // A call of a rank runs.
  double exposed_s = 0;              // A call runs, and the rank does not compute.
  double idle_s = 0;                 // The rank waits for other ranks.
  std::vector<CallSum> calls;        // Of a recorded step: the sums over the ranks.
  std::optional<double> measured_s;  // Of a recorded step: what it took.
  // Only for steps of a model:
  std::optional<double> data_efficiency;  // The step without data-parallel calls / the step.
  std::optional<double> data_overlap;     // The share of data-parallel calls that is hidden.
  std::optional<double> bubble_formula;   // (p - 1) / (v m + p - 1).
  std::optional<double> utilization;      // Operations of the model / those that devices could do.
  std::optional<MemoryUse> memory;        // Of the rank that needs most.

  // The share of communication that computing hides. 1 without communication.
  double overlap() const;
  // The share of the step in which a rank waits for other ranks.
  double bubble() const { return step_s > 0 ? idle_s / step_s : 0; }
};

Report report_of(const Schedule& schedule, const Timeline& timeline);

// Simulates a step of a model with kCosts, and with data_is_free as well for the efficiency. Fills
// `schedule` and `timeline` with the step if they are not null.
Report report_of_step(const Job& job, const Layout& layout, const Network& network,
                      Schedule* schedule = nullptr, Timeline* timeline = nullptr);

std::string table_of(const Report& report);
std::string json_of(const Report& report);

// Returns a trace in the JSON of Chrome's trace viewer, which Perfetto opens: a process for each
// simulated rank, and a thread for each stream.
std::string trace_of(const Schedule& schedule, const Timeline& timeline);

// Returns texts such as "12.3 ms" and "4.56 GB".
std::string seconds_text(double seconds);
std::string bytes_text(double bytes);

}  // namespace bp::simulate
