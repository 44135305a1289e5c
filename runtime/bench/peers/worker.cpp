// One peer of the comparison. peers.py talks to this process, a line at a time:
//
//   list            NAME<tab>BYTES<tab>FLOPS for each case, then an empty line
//   ceilings N      memory bandwidth and peak on N threads: BYTES_PER_S<tab>FLOPS_PER_S
//   prepare NAME    ok, or error<tab>TEXT
//   check           the mean of the absolute values of the result
//   run MS          runs the prepared case for MS milliseconds: median seconds of a call
//
// usage: peers_worker backplane|onednn|ggml|ggml-repacked
#include "runtime/bench/peers/worker.hpp"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <iostream>
#include <optional>
#include <sstream>

namespace bp::bench {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// Returns the median time of a call. Short calls are timed in groups, so that the cost of reading
// the clock does not count.
double median_seconds(const Ready& ready, double budget_seconds) {
  const auto begin = Clock::now();
  ready.run();
  const double once = seconds_since(begin);
  const int group = static_cast<int>(std::clamp(1e-4 / std::max(once, 1e-9), 1.0, 1e5));
  std::vector<double> samples;
  do {
    const auto start = Clock::now();
    for (int i = 0; i < group; ++i) ready.run();
    samples.push_back(seconds_since(start) / group);
  } while (seconds_since(begin) < budget_seconds || samples.size() < 3);
  const auto middle = samples.begin() + static_cast<std::ptrdiff_t>(samples.size() / 2);
  std::nth_element(samples.begin(), middle, samples.end());
  return *middle;
}

class Worker {
 public:
  explicit Worker(std::vector<Case> cases) : cases_(std::move(cases)) {}

  void answer(const std::string& line) {
    std::istringstream words(line);
    std::string verb, argument;
    words >> verb;
    std::getline(words >> std::ws, argument);
    if (verb == "list") return list();
    if (verb == "ceilings") {
      const int threads = std::stoi(argument);
      std::printf("%.6g\t%.6g\n", memory_bandwidth(threads), peak_flops(threads));
    } else if (verb == "prepare") {
      prepare(argument);
    } else if (verb == "check") {
      std::printf("%.9g\n", ready_.mean_abs());
    } else if (verb == "run") {
      std::printf("%.9g\n", median_seconds(ready_, std::stod(argument) * 1e-3));
    } else {
      std::printf("error\tunknown verb '%s'\n", verb.c_str());
    }
  }

 private:
  void list() const {
    for (const Case& c : cases_) std::printf("%s\t%.9g\t%.9g\n", c.name.c_str(), c.bytes, c.flops);
    std::printf("\n");
  }

  void prepare(const std::string& name) {
    const auto found =
        std::find_if(cases_.begin(), cases_.end(), [&](const Case& c) { return c.name == name; });
    if (found == cases_.end()) {
      std::printf("error\tno case '%s'\n", name.c_str());
      return;
    }
    ready_ = {};
    ready_ = found->prepare();
    for (int i = 0; i < 2; ++i) ready_.run();
    std::printf("ok\n");
  }

  std::vector<Case> cases_;
  Ready ready_;
};

// Returns the cases of an engine, or nothing if there is no such engine in this build.
std::optional<std::vector<Case>> cases_of(const std::string& engine) {
  if (engine == "backplane") return backplane_cases();
  if (engine == "onednn") return onednn_cases();
#ifdef BACKPLANE_BENCH_GGML
  if (engine == "ggml") return ggml_cases(false);
  if (engine == "ggml-repacked") return ggml_cases(true);
#endif
  return std::nullopt;
}

}  // namespace
}  // namespace bp::bench

int main(int argc, char** argv) {
  const std::string engine = argc == 2 ? argv[1] : "";
  try {
    auto cases = bp::bench::cases_of(engine);
    if (!cases) {
      std::fprintf(stderr,
                   "usage: peers_worker backplane|onednn|ggml|ggml-repacked; peers.py starts it. "
                   "The build has ggml if 'runtime/bench/setup ggml' ran before it.\n");
      return 2;
    }
    bp::bench::Worker worker(std::move(*cases));
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
    std::fprintf(stderr, "peers_worker: %s\n", e.what());
    return 1;
  }
  return 0;
}
