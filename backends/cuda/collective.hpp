// Process groups on NCCL: a rank is a device, and ranks live in any number of processes.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "backends/cuda/backend.hpp"
#include "backends/cuda/nccl_world.hpp"
#include "backplane/collective.h"

namespace bp::cuda {

// One rank of a group: the handle.
struct Group {
  static constexpr uint32_t kMagic = 0x434E6363;

  uint32_t magic = kMagic;
  std::shared_ptr<NcclWorld> world;
  NcclMember* member = nullptr;
};

// The groups of one instance: the `self` of the table. NCCL is opened by the first create().
class Collectives {
 public:
  explicit Collectives(Instance& instance) : instance_(instance) {}
  Collectives(const Collectives&) = delete;
  ~Collectives();

  Instance& instance() const { return instance_; }
  NcclWatch& watch() { return *watch_; }
  bp_process_group_ops table();

  // 8 bytes of a device, whose context is current, for calls that move nothing. One for all groups:
  // freeing it would wait for whatever the device runs. Throws CudaError.
  void* scratch(Device& device);

 private:
  Instance& instance_;
  std::unique_ptr<NcclWatch> watch_ = std::make_unique<NcclWatch>();
  std::mutex mutex_;  // Guards `scratch_`.
  std::map<Device*, void*> scratch_;
};

}  // namespace bp::cuda
