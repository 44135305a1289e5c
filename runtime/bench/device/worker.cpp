// The side of Backplane in the comparison on an accelerator. compare.py talks to this process, a
// line at a time, as peers/worker.cpp describes; "name" gives the name of the device.
//
// A figure is the time of one call when many calls are submitted one behind the other and waited
// for together. For large calls this is the time on the device, for tiny calls the cost of
// submitting.
//
// usage: device_worker PLUGIN DEVICE [KEY=VALUE]...
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <iostream>
#include <sstream>

#include "runtime/bench/device/device_cases.hpp"

namespace bp::bench {
namespace {

using Clock = std::chrono::steady_clock;

// The time of a group of calls that are waited for together.
constexpr double kGroupSeconds = 4e-3;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

class Worker {
 public:
  explicit Worker(Device device) : device_(device), guard_(device), cases_(device_cases()) {}

  void answer(const std::string& line) {
    std::istringstream words(line);
    std::string verb, argument;
    words >> verb;
    std::getline(words >> std::ws, argument);
    if (verb == "list") {
      for (const DeviceCase& c : cases_) {
        std::printf("%s\t%.9g\t%.9g\n", c.name.c_str(), c.bytes, c.flops);
      }
      std::printf("\n");
    } else if (verb == "name") {
      std::printf("%s\n", device_.name());
    } else if (verb == "prepare") {
      prepare(argument);
    } else if (verb == "check") {
      std::printf("%.9g\n", mean(abs(result_.to(BP_F64))).to_vector<double>()[0]);
    } else if (verb == "run") {
      std::printf("%.9g\n", median_seconds(std::stod(argument) * 1e-3));
    } else {
      std::printf("error\tunknown verb '%s'\n", verb.c_str());
    }
  }

 private:
  void prepare(const std::string& name) {
    const auto found = std::find_if(cases_.begin(), cases_.end(),
                                    [&](const DeviceCase& c) { return c.name == name; });
    if (found == cases_.end()) {
      std::printf("error\tno case '%s'\n", name.c_str());
      return;
    }
    op_ = nullptr;
    result_ = {};
    op_ = found->setup();
    seconds_of(3);
    std::printf("ok\n");
  }

  double seconds_of(int calls) {
    const NoGradGuard no_grad;
    device_.synchronize();
    const auto start = Clock::now();
    for (int i = 0; i < calls; ++i) result_ = op_();
    device_.synchronize();
    return seconds_since(start) / calls;
  }

  double median_seconds(double budget_seconds) {
    const auto begin = Clock::now();
    const double once = std::max(seconds_of(8), 1e-7);
    const int group = static_cast<int>(std::clamp(kGroupSeconds / once, 1.0, 2e4));
    std::vector<double> samples;
    do {
      samples.push_back(seconds_of(group));
    } while (seconds_since(begin) < budget_seconds || samples.size() < 3);
    const auto middle = samples.begin() + static_cast<std::ptrdiff_t>(samples.size() / 2);
    std::nth_element(samples.begin(), middle, samples.end());
    return *middle;
  }

  const Device device_;
  const DeviceGuard guard_;
  const std::vector<DeviceCase> cases_;
  Op op_;
  Tensor result_;
};

Device load(int argc, char** argv) {
  std::vector<std::string> keys, values;
  std::vector<bp_option> options;
  for (int i = 3; i < argc; ++i) {
    const std::string text = argv[i];
    const size_t at = std::min(text.find('='), text.size());
    keys.push_back(text.substr(0, at));
    values.push_back(at < text.size() ? text.substr(at + 1) : "");
  }
  for (size_t i = 0; i < keys.size(); ++i) options.push_back({keys[i].c_str(), values[i].c_str()});
  const bp_plugin* plugin = nullptr;
  if (bp_registry_load(default_registry(), argv[1], options.size(), options.data(), &plugin) !=
      BP_OK) {
    throw std::runtime_error(bp_error_text());
  }
  return Device(argv[2]);
}

}  // namespace
}  // namespace bp::bench

int main(int argc, char** argv) {
  if (argc < 3) {
    std::fprintf(stderr, "usage: device_worker PLUGIN DEVICE [KEY=VALUE]...\n");
    return 2;
  }
  try {
    bp::bench::Worker worker(bp::bench::load(argc, argv));
    std::string line;
    while (std::getline(std::cin, line)) {
      try {
        worker.answer(line);
      } catch (const std::exception& e) {
        const std::string text = e.what();
        std::printf("error\t%s\n", text.substr(0, text.find('\n')).c_str());
      }
      std::fflush(stdout);
    }
  } catch (const std::exception& e) {
    std::fprintf(stderr, "device_worker: %s\n", e.what());
    return 1;
  }
  return 0;
}
