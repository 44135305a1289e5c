// Ranks that are processes, with a relay between the members of their group. Their store is past
// the relay.
#pragma once

#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <filesystem>
#include <functional>
#include <iterator>
#include <memory>
#include <optional>
#include <thread>
#include <vector>

#include "backplane/runtime/distributed/process_group.hpp"
#include "backplane/runtime/runtime.hpp"
#include "runtime/distributed/test_processes.hpp"
#include "runtime/distributed/test_relay.hpp"

namespace bp::distributed {

inline constexpr Duration kStoreLimit = std::chrono::seconds(60);
inline constexpr Duration kLocalLimit = std::chrono::seconds(20);
inline constexpr int kHasNoGroups = 77;
inline constexpr unsigned kHangSeconds = 120;  // A rank that takes longer hangs.

// Returns the device of the test, or none if it has no groups.
inline std::optional<Device> load_device() {
  bp_registry* registry = nullptr;  // Never destroyed.
  const bp_registry_desc desc{.struct_size = sizeof(desc),
                              .struct_type = BP_STRUCT_REGISTRY_DESC,
                              .next = nullptr,
                              .flags = BP_REGISTRY_COMPILE_OPS};
  check(bp_registry_create(&desc, &registry), "registry.create");
  check(bp_registry_load(registry, BACKPLANE_TEST_PLUGIN, 0, nullptr, nullptr), "registry.load");
  const bp_target* const target = bp_registry_target(registry, 0);
  if (bp_target_has_table(target, BP_STRUCT_PROCESS_GROUP_OPS) == 0) return std::nullopt;
  return Device(*target);
}

// What the process holds.
struct Held {
  int64_t descriptors = 0, threads = 0;

  static int64_t entries_of(const char* folder) {
    return std::distance(std::filesystem::directory_iterator(folder), {});
  }
  static Held now() { return {entries_of("/proc/self/fd"), entries_of("/proc/self/task")}; }
  bool operator==(const Held&) const = default;

  // Returns what the process holds when that has not changed for a moment.
  static Held settled() {
    Held before = now();
    for (int quiet = 0; quiet < 5;) {
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
      const Held after = now();
      quiet = after == before ? quiet + 1 : 0;
      before = after;
    }
    return before;
  }
};

// Threads end a moment after what they did.
inline void expect_no_more_than(const Held& before) {
  const Deadline end = deadline_after(kLocalLimit);
  Held after = Held::now();
  while (after.descriptors > before.descriptors || after.threads > before.threads) {
    if (std::chrono::steady_clock::now() > end) break;
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    after = Held::now();
  }
  EXPECT_LE(after.descriptors, before.descriptors) << "descriptors are left";
  EXPECT_LE(after.threads, before.threads) << "threads are left";
}

// Everything that a backend makes once is made here, such as threads for calls and for large
// tensors. Each of the calls that run together holds a thread. A test has at most eight at a time,
// but on a busy machine threads whose call has just ended count as busy, and others start.
inline void use_once(const Device device) {
  constexpr size_t kCallsTogether = 16;
  const std::vector<Device> devices(kCallsTogether, device);
  const std::vector<ProcessGroup> groups =
      ProcessGroup::make_local(devices, {.timeout = kLocalLimit});
  full({int64_t{1} << 20}, 1, BP_F32).to_vector<float>();
  std::vector<Work> works;
  works.reserve(groups.size());
  for (const ProcessGroup& group : groups) {
    works.push_back(group.all_reduce(full({1000}, 1, BP_F32)));
  }
  for (const Work& work : works) work.wait();
}

using RankBody =
    std::function<void(Device device, uint32_t rank, const std::shared_ptr<Store>& store)>;

inline int run_rank(const Relay& relay, uint32_t rank, uint32_t count, uint16_t port,
                    const RankBody& body) {
  alarm(kHangSeconds);
  const std::optional<Device> device = load_device();
  if (!device) return kHasNoGroups;
  const DeviceGuard guard(*device);
  use_once(*device);
  const Held before = Held::settled();
  {
    const auto store = std::make_shared<TcpStore>("127.0.0.1", port, rank == 0, count, kStoreLimit);
    relay.join(rank);
    body(*device, rank, store);
    store->barrier("end", rank, count, kStoreLimit);
  }
  expect_no_more_than(before);
  return testing::Test::HasFailure() ? 1 : 0;
}

// Runs `body` on each rank. Returns false if the device has no groups.
inline bool run_ranks_over(const Relay& relay, uint32_t count, const RankBody& body) {
  const ReservedPort port{"127.0.0.1"};
  const std::vector<int> codes = run_processes(
      count, [&](uint32_t rank) { return run_rank(relay, rank, count, port.number(), body); });
  if (codes == std::vector<int>(count, kHasNoGroups)) return false;
  EXPECT_EQ(codes, std::vector<int>(count, 0)) << "128 + " << SIGALRM << " is a rank that hangs";
  EXPECT_GE(relay.connections(), 1u) << "the relay was between ranks";
  return true;
}

}  // namespace bp::distributed
