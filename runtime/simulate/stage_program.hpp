// The program of one pipeline rank in a step.
#pragma once

#include <string>
#include <vector>

#include "backplane/runtime/distributed/pipeline_schedule.hpp"
#include "runtime/simulate/model.hpp"
#include "runtime/simulate/schedule.hpp"

namespace bp::simulate {

// The groups of a rank. Calls of different axes may run in any order.
constexpr uint8_t kTensorAxis = 0, kGatherAxis = 1, kReduceAxis = 2, kForwardAxis = 3,
                  kBackwardAxis = 4, kAxisCount = 5;

std::vector<std::string> stream_names();

// Appends the texts that it uses to `labels`.
Program make_stage_program(const Job& job, const Layout& layout,
                           const distributed::PipelineSchedule& pipeline, uint32_t pipe,
                           std::vector<std::string>& labels);

}  // namespace bp::simulate
