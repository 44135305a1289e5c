#include "backends/cpu/shm/lanes.hpp"

#include <string>
#include <utility>

#include "backplane/shell/entry.hpp"

namespace bp::shm {

Lanes::Lanes(std::unique_ptr<Mapping> memory, uint32_t rank, uint32_t world_size)
    : memory_(std::move(memory)) {
  const uint64_t lane_bytes = Slots::memory_bytes(world_size);
  for (uint64_t i = 0; i < kLanes; ++i) {
    std::byte* const place = memory_->address() + kHeadBytes + i * lane_bytes;
    lanes_.push_back(std::make_unique<Lane>(place, rank, world_size));
  }
}

std::atomic_ref<uint64_t> Lanes::ended() const {
  return std::atomic_ref<uint64_t>(*reinterpret_cast<uint64_t*>(memory_->address()));
}

bool read_option(std::string_view value) {
  if (value != "0" && value != "1") {
    refuse(BP_INVALID_ARGUMENT, "create: option " + std::string(kOption) + " is \"" +
                                    std::string(value) + "\"; it must be 0 or 1");
  }
  return value == "1";
}

std::unique_ptr<Lanes> share_lanes(SegmentPlan plan) {
  plan.size_bytes = Lanes::memory_bytes(plan.world_size);
  std::unique_ptr<Mapping> memory = share(plan);
  if (memory == nullptr) return nullptr;
  return std::make_unique<Lanes>(std::move(memory), plan.rank, plan.world_size);
}

void log_absence(const bp_host& host, const char* table) {
  const std::string line = std::string("process groups \"") + table +
                           "\": the ranks of a group do not share memory, as on several machines, "
                           "so messages carry its collectives";
  static_cast<void>(host.log_line(host.self, BP_LOG_INFO, line.c_str()));
}

}  // namespace bp::shm
