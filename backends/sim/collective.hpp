// Process groups of simulated devices: all ranks live in this process. With the option `network` a
// call takes the time that its data needs to cross a simulated network.
#pragma once

#include "backends/sim/backend.hpp"
#include "backends/sim/wire.hpp"
#include "backplane/shell/local_group.hpp"

namespace bp::sim {

// What groups need of this backend.
class GroupAccess final : public GroupBackend {
 public:
  explicit GroupAccess(const Instance& instance);

  void check_device(bp_device* device, const char* call) override;
  uint64_t generation(bp_device* device) override;
  std::shared_ptr<Queue> queue(bp_stream* stream, bp_device* device, const char* call) override;
  std::shared_ptr<GroupMemory> memory(const bp_buffer_ref& range, bp_device* device,
                                      bool is_written, const char* call, const char* what) override;
  bool deliver(std::span<const RankCall* const> calls, std::span<bp_device* const> devices,
               const std::function<void()>& arrived) override;

 private:
  const Instance& instance_;
  std::unique_ptr<Wire> wire_;  // NULL without the option `network`.
};

// The groups of one instance.
struct Collectives {
  explicit Collectives(const Instance& instance)
      : access(instance), groups(*instance.host, access) {}

  GroupAccess access;  // Its wire ends after the groups, and before the executors.
  LocalGroups groups;
};

}  // namespace bp::sim
