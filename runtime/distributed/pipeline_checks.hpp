// What is checked before a pipeline is made, and before each of its steps. Each function returns a
// problem, or "".
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "backplane/runtime/distributed/pipeline.hpp"

namespace bp::distributed {

// Returns text like "f32 (4, 16)".
std::string describe_kind(bp_dtype dtype, IntList shape);

std::string problem_of_arguments(const std::vector<std::shared_ptr<nn::Module>>& stages,
                                 const PipelineParallel::Loss& loss, const ProcessGroup& group,
                                 const PipelineOptions& options);

std::string problem_of_batch(const Tensor& x, const Tensor& targets, int64_t micro_batch_count);

// Every rank calls the functions below, and gets the same sentence.

std::string difference_of_options(const PipelineOptions& options, const ProcessGroup& group);

// Returns what is wrong with a call on some rank, or how two ranks differ. `own` is the problem of
// this rank, or "".
std::string problem_of_call(const ProcessGroup& group, std::string own, int64_t rows,
                            bool has_backward);

}  // namespace bp::distributed
