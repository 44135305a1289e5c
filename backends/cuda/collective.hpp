// Process groups on NCCL. A rank is a device, and ranks live in any number of processes.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "backends/cuda/backend.hpp"
#include "backends/cuda/nccl_world.hpp"
#include "backplane/collective.h"

namespace bp::cuda {

// One rank of a group. A bp_process_group* points to it.
struct Group {
  static constexpr uint32_t kMagic = 0x434E6363;

  uint32_t magic = kMagic;
  std::shared_ptr<NcclWorld> world;
  NcclMember* member = nullptr;
};

inline uint32_t rank_of(const Group& group) { return group.member->rank; }

// The groups of one instance. It is the `self` of their table. The first create() opens NCCL.
class Collectives {
 public:
  explicit Collectives(Instance& instance) : instance_(instance) {}
  Collectives(const Collectives&) = delete;
  ~Collectives();

  Instance& instance() const { return instance_; }
  NcclWatch& watch() { return *watch_; }
  bp_process_group_ops table();

  // Returns 8 bytes of a device, for calls that move nothing. The context of the device is current.
  // All groups share them, because freeing them would wait for the device. Throws CudaError.
  void* scratch(Device& device);

 private:
  Instance& instance_;
  std::unique_ptr<NcclWatch> watch_ = std::make_unique<NcclWatch>();
  std::mutex mutex_;  // It guards `scratch_`.
  std::map<Device*, void*> scratch_;
};

}  // namespace bp::cuda
