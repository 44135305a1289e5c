// Reads the goldens of ops_spec/goldens, for the tests of oracles.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include "conformance/numerics/double_double.hpp"
#include "registry/boundary/number_text.hpp"

namespace bp::conformance {

// Returns the numbers of each line of a file, by the name of the op.
inline std::map<std::string, std::vector<std::vector<double>>> read_goldens(const char* path) {
  std::map<std::string, std::vector<std::vector<double>>> found;
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with('#')) continue;
    std::istringstream words(line);
    std::string op, word;
    words >> op;
    std::vector<double>& numbers = found[op].emplace_back();
    while (words >> word) numbers.push_back(parse_double(word).value());
  }
  return found;
}

inline std::string name_of(uint32_t op) {
#define BP_OP(id, name, since, profile, form, numerics) \
  if (op == (id)) return #name;
#define BP_ARG(op, member, kind, dtype)
#include "backplane/ops.def"
#undef BP_OP
#undef BP_ARG
  return "";
}

// Returns whether `y` equals a golden, within `allowed`.
inline bool is_golden(DoubleDouble y, DoubleDouble golden, double allowed) {
  if (isnan(y) || isnan(golden)) return isnan(y) && isnan(golden);
  if (!std::isfinite(golden.hi)) return y.hi == golden.hi;
  return std::fabs((y - golden).hi) <= allowed;
}

}  // namespace bp::conformance
