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

#include "runtime/bench/peers/inputs.hpp"

namespace bp::bench {
namespace {

using Clock = std::chrono::steady_clock;
using Op = std::function<Tensor()>;

// The time of a group of calls that are waited for together.
constexpr double kGroupSeconds = 4e-3;

struct DeviceCase {
  std::string name;
  double bytes = 0, flops = 0;
  std::function<Op()> setup;
};

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

struct Dtype {
  const char* name;
  bp_dtype dtype;
  double size_bytes;
};
constexpr Dtype kF32 = {"f32", BP_F32, 4}, kBf16 = {"bf16", BP_BF16, 2}, kF16 = {"f16", BP_F16, 2};

void add_memory_bound(std::vector<DeviceCase>& cases) {
  constexpr int64_t kBig = 1 << 26, kRows = 16384, kCols = 4096;
  cases.push_back({"copy f32 67108864", 8.0 * kBig, 0,
                   [] { return [x = input({kBig})] { return x.clone(); }; }});
  for (const Dtype& t : {kF32, kBf16}) {
    const std::string name = t.name;
    cases.push_back({"add " + name + " 67108864", 3 * t.size_bytes * kBig, kBig, [t] {
                       return [a = input({kBig}, 0, t.dtype), b = input({kBig}, 1, t.dtype)] {
                         return add(a, b);
                       };
                     }});
    const double both = 2 * t.size_bytes * kRows * kCols;
    cases.push_back({"softmax " + name + " 16384x4096", both, 5.0 * kRows * kCols, [t] {
                       return [x = input({kRows, kCols}, 0, t.dtype)] { return softmax(x, 1); };
                     }});
    cases.push_back({"layer_norm " + name + " 16384x4096", both, 8.0 * kRows * kCols, [t] {
                       return
                           [x = input({kRows, kCols}, 0, t.dtype),
                            gamma = input({kCols}, 1, t.dtype), beta = input({kCols}, 2, t.dtype)] {
                             return layer_norm(x, gamma, beta, 1, 1e-5);
                           };
                     }});
  }
}

void add_product(std::vector<DeviceCase>& cases, const std::string& name, const Dtype& t,
                 int64_t n) {
  const double size = static_cast<double>(n);
  cases.push_back({"matmul " + name + " " + std::to_string(n) + "^3",
                   3 * t.size_bytes * size * size, 2 * size * size * size, [t, n] {
                     return [a = input({n, n}, 0, t.dtype), b = input({n, n}, 1, t.dtype)] {
                       return matmul(a, b);
                     };
                   }});
}

void add_compute_bound(std::vector<DeviceCase>& cases) {
  add_product(cases, "f32", kF32, 4096);
  add_product(cases, "tf32", kF32, 4096);
  add_product(cases, "bf16", kBf16, 8192);
  add_product(cases, "f16", kF16, 8192);
  for (const Dtype& t : {kF32, kBf16}) {
    const double elements = 2.0 * 32 * 64 * 56 * 56 + 64.0 * 64 * 9;
    cases.push_back({std::string("convolution ") + t.name + " 32x64x56x56, 64 of 3x3",
                     t.size_bytes * elements, 2.0 * 32 * 64 * 56 * 56 * 64 * 9, [t] {
                       return [x = input({32, 64, 56, 56}, 0, t.dtype),
                               w = input({64, 64, 3, 3}, 1, t.dtype)] {
                         return convolution(x, w, {}, {1}, {1}, {1}, 1);
                       };
                     }});
  }
}

std::vector<DeviceCase> device_cases() {
  std::vector<DeviceCase> cases;
  add_memory_bound(cases);
  add_compute_bound(cases);
  cases.push_back({"eager add f32 64", 12.0 * 64, 64,
                   [] { return [a = input({64}, 0), b = input({64}, 1)] { return add(a, b); }; }});
  return cases;
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
