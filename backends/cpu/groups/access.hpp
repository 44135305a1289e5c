// How process groups reach the streams and the memory of this backend.
#pragma once

#include "backends/cpu/backend.hpp"
#include "backplane/shell/rank_call.hpp"

namespace bp::cpu {

class GroupAccess final : public GroupBackend {
 public:
  explicit GroupAccess(const Instance& instance) : instance_(instance) {}

  void check_device(bp_device* device, const char* call) override;
  std::shared_ptr<Queue> queue(bp_stream* stream, bp_device* device, const char* call) override;
  std::shared_ptr<GroupMemory> memory(const bp_buffer_ref& range, bp_device* device,
                                      bool is_written, const char* call, const char* what) override;

 private:
  const Instance& instance_;
};

}  // namespace bp::cpu
