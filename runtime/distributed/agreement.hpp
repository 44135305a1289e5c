// Whether all ranks have the same model and the same settings. If they do not, all of them learn
// the same sentence.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "backplane/runtime/distributed/process_group.hpp"
#include "backplane/runtime/nn.hpp"

namespace bp::distributed {

using Named = std::vector<std::pair<std::string, Tensor>>;

// Returns each parameter once, under its first name, also if several layers share it.
Named parameters_of(const nn::Module& module);

// Returns a line for each parameter.
std::string describe(const Named& parameters);

// Returns text like "rank 1 of 4 of the group 'world'".
std::string describe(const ProcessGroup& group);

// Every rank calls the functions below, and waits for the others.

// Returns the numbers that the ranks give, by rank.
std::vector<int64_t> gather_numbers(const ProcessGroup& group, int64_t own);

// Returns the text that rank `root` gives.
std::string broadcast_text(const ProcessGroup& group, const std::string& own, uint32_t root);

// Returns the problem of the lowest rank that has one. "" stands for none.
std::string first_problem(const ProcessGroup& group, const std::string& own);

// Returns "" if the lines of all ranks are those of rank 0, else the first difference of the lowest
// rank. `line` says what a line is, such as "parameter".
std::string first_difference(const ProcessGroup& group, const std::string& line,
                             const std::string& own);

// Returns the texts of all ranks.
std::vector<std::string> gather_texts(const ProcessGroup& group, const std::string& own);

// Returns the largest of the numbers that the ranks give.
int64_t largest_of(const ProcessGroup& group, int64_t own);

// Copies the values of the parameters from rank `root` to the others.
void broadcast_parameters(const ProcessGroup& group, const Named& parameters, uint32_t root = 0);

}  // namespace bp::distributed
