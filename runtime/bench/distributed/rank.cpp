// One rank of a measurement of all-reduce, which compare.py starts with a launcher. Rank 0 prints a
// line for each size: the bytes, and the seconds of one call as the median of several groups of
// calls. Each call is waited for before the next one, as the calls of the peers are.
//
// usage: distributed_rank DEVICE [TRANSPORT [TABLE [KEY=VALUE]...]] -- BYTES...
//   TRANSPORT and TABLE may be "", and KEY=VALUE is an option of the group.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <stdexcept>
#include <string>
#include <vector>

#include "backplane/runtime/distributed/launch.hpp"
#include "backplane/runtime/distributed/process_group.hpp"
#include "backplane/runtime/runtime.hpp"

namespace {

namespace bd = bp::distributed;
using Clock = std::chrono::steady_clock;

// A group of calls takes about this long, and there are so many groups.
constexpr double kGroupSeconds = 0.05;
constexpr int kGroups = 7;

// A process is slow in its first seconds, with any transport.
constexpr int kWarmUpCalls = 1000;
constexpr int64_t kWarmUpElements = 1 << 18;

double seconds_of(const bd::ProcessGroup& group, const bp::Tensor& tensor, int calls) {
  group.barrier();
  const auto start = Clock::now();
  for (int i = 0; i < calls; ++i) group.all_reduce(tensor).wait();
  return std::chrono::duration<double>(Clock::now() - start).count() / calls;
}

// All ranks make as many calls as rank 0 says.
int agreed(const bd::ProcessGroup& group, double once) {
  const auto calls = static_cast<int64_t>(std::clamp(kGroupSeconds / once, 2.0, 2000.0));
  const bp::Tensor number = bp::from_host(std::vector<int64_t>{calls}, {1}, group.device());
  group.broadcast(number, 0).wait();
  return static_cast<int>(number.to_vector<int64_t>()[0]);
}

double median_seconds(const bd::ProcessGroup& group, int64_t bytes) {
  const bp::Tensor tensor = bp::zeros({std::max<int64_t>(1, bytes / 4)}, BP_F32);
  const int calls = agreed(group, seconds_of(group, tensor, 3));
  std::vector<double> samples(kGroups);
  for (double& sample : samples) sample = seconds_of(group, tensor, calls);
  std::ranges::sort(samples);
  return samples[samples.size() / 2];
}

int run(const std::vector<std::string>& words) {
  const auto end = std::ranges::find(words, "--");
  if (end == words.begin() || end == words.end()) {
    std::fprintf(stderr,
                 "usage: distributed_rank DEVICE [TRANSPORT [TABLE [KEY=VALUE]...]] -- BYTES...\n");
    return 2;
  }
  const bd::Launch launch = bd::read_launch(std::getenv);
  const bp::Device device(words[0]);
  const bp::DeviceGuard guard(device);
  const auto store = std::make_shared<bd::TcpStore>(launch.master_host, launch.master_port,
                                                    launch.rank == 0, launch.world_size);
  const std::vector<std::string> chosen(words.begin() + 1, end);
  bd::GroupOptions options;
  if (!chosen.empty()) options.transport = chosen[0];
  if (chosen.size() > 1) options.table_name = chosen[1];
  for (size_t i = 2; i < chosen.size(); ++i) {
    const size_t equals = chosen[i].find('=');
    if (equals == std::string::npos) throw std::runtime_error(chosen[i] + " is no KEY=VALUE");
    options.options.emplace_back(chosen[i].substr(0, equals), chosen[i].substr(equals + 1));
  }
  const bd::ProcessGroup group(device, launch.rank, launch.world_size, store, options);
  static_cast<void>(seconds_of(group, bp::zeros({kWarmUpElements}, BP_F32), kWarmUpCalls));
  for (auto at = end + 1; at != words.end(); ++at) {
    const int64_t bytes = std::stoll(*at);
    const double seconds = median_seconds(group, bytes);
    if (launch.rank == 0) std::printf("%lld %.9g\n", static_cast<long long>(bytes), seconds);
  }
  group.barrier();
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run({argv + 1, argv + argc});
  } catch (const std::exception& e) {
    std::fprintf(stderr, "distributed_rank: %s\n", e.what());
    return 1;
  }
}
