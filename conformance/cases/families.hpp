// How a family of cases for a table of the ABI lists its own.
#pragma once

#include <initializer_list>
#include <string>
#include <vector>

#include "conformance/case.hpp"

namespace bp::conformance {

// A row of a family's table: the sentence about behaviour, the tags it proves, the function.
struct ApiCase {
  const char* sentence;
  std::vector<std::string> tags;
  void (*run)(Context&);
};

// Adds "<header>.<sentence>" for each row, at tier smoke.
void add_api_cases(std::vector<Case>& cases, const char* header,
                   std::initializer_list<ApiCase> rows);

// The part of the abi family that boundary.def makes.
void add_abi_size_cases(std::vector<Case>& cases);

}  // namespace bp::conformance
