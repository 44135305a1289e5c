// Runs ONNX's tests: folders with a model.onnx, and folders test_data_set_* of inputs and expected
// outputs.
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "backplane/runtime/onnx.hpp"

namespace bp::onnx {

enum class Outcome {
  kPassed,
  kPassedInShape,  // The model draws random numbers, so that only dtypes and shapes are compared.
  kUnsupported,
  kFailed,
};

struct TestResult {
  std::string name;  // The name of the folder.
  Outcome outcome = Outcome::kFailed;
  std::string reason;  // Empty if the test passed.
};

// The tolerances of ONNX's own tests: |given - expected| <= absolute + relative * |expected|.
// Integers and bools must be equal.
struct Tolerances {
  double relative = 1e-3, absolute = 1e-7;
};

TestResult run_test_folder(const std::filesystem::path& folder, Device device,
                           const Tolerances& tolerances);

// Returns the folders that have a model.onnx: `folder` itself, or those in it, by name.
std::vector<std::filesystem::path> find_tests(const std::filesystem::path& folder);

// Says how `given` differs from `expected`, or "".
std::string difference(const Tensor& given, const Tensor& expected, const Tolerances& tolerances);

// Returns what is the same in the reasons of many tests: the operator, and why it failed.
std::string group_of(const std::string& reason);

// The tests that need not pass, by name, and why. A line of the file is "NAME: REASON"; a line that
// begins with # is a comment. Throws Error.
std::map<std::string, std::string> read_expectation(const std::string& path);

}  // namespace bp::onnx
