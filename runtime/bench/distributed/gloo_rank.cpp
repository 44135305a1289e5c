// One rank of Gloo alone, without Backplane, as distributed_rank measures: a line for each size.
// The ranks meet in a folder.
//
// usage: gloo_rank FOLDER BYTES...       with RANK and WORLD_SIZE in the environment
#include <gloo/allreduce.h>
#include <gloo/barrier.h>
#include <gloo/broadcast.h>
#include <gloo/math.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/file_store.h>
#include <gloo/transport/tcp/device.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

namespace {

using Clock = std::chrono::steady_clock;
using Context = std::shared_ptr<gloo::rendezvous::Context>;

constexpr double kGroupSeconds = 0.05;  // As in rank.cpp.
constexpr int kGroups = 7;
constexpr int kWarmUpCalls = 1000;
constexpr size_t kWarmUpElements = 1 << 18;

double seconds_of(const Context& context, std::vector<float>& data, int calls) {
  gloo::BarrierOptions barrier(context);
  gloo::barrier(barrier);
  const auto start = Clock::now();
  for (int i = 0; i < calls; ++i) {
    gloo::AllreduceOptions options(context);
    options.setOutput(data.data(), data.size());
    options.setReduceFunction(
        static_cast<void (*)(void*, const void*, const void*, size_t)>(&gloo::sum<float>));
    gloo::allreduce(options);
  }
  return std::chrono::duration<double>(Clock::now() - start).count() / calls;
}

int agreed(const Context& context, double once) {
  int calls = static_cast<int>(std::clamp(kGroupSeconds / once, 2.0, 2000.0));
  gloo::BroadcastOptions options(context);
  options.setOutput(&calls, 1);
  options.setRoot(0);
  gloo::broadcast(options);
  return calls;
}

}  // namespace

int main(int argc, char** argv) {
  const char *const rank_text = std::getenv("RANK"), *const size_text = std::getenv("WORLD_SIZE");
  if (argc < 3 || rank_text == nullptr || size_text == nullptr) {
    std::fprintf(stderr, "usage: gloo_rank FOLDER BYTES...; RANK and WORLD_SIZE must be set\n");
    return 2;
  }
  const int rank = std::atoi(rank_text);
  gloo::rendezvous::FileStore store(argv[1]);
  gloo::transport::tcp::attr attr;
  attr.hostname = "127.0.0.1";
  auto device = gloo::transport::tcp::CreateDevice(attr);
  const auto context = std::make_shared<gloo::rendezvous::Context>(rank, std::atoi(size_text));
  context->connectFullMesh(store, device);
  std::vector<float> warm(kWarmUpElements);
  static_cast<void>(seconds_of(context, warm, kWarmUpCalls));
  for (int i = 2; i < argc; ++i) {
    const long long bytes = std::atoll(argv[i]);
    std::vector<float> data(static_cast<size_t>(std::max(1LL, bytes / 4)));
    const int calls = agreed(context, seconds_of(context, data, 3));
    std::vector<double> samples;
    for (int k = 0; k < kGroups; ++k) samples.push_back(seconds_of(context, data, calls));
    std::ranges::sort(samples);
    if (rank == 0) std::printf("%lld %.9g\n", bytes, samples[samples.size() / 2]);
  }
  return 0;
}
