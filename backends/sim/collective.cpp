#include "backends/sim/collective.hpp"

#include "backends/sim/backend.hpp"
#include "backends/sim/device.hpp"
#include "backends/sim/memory.hpp"
#include "backends/sim/stream.hpp"
#include "backplane/shell/group_checks.hpp"

namespace bp::sim {
namespace {

class OpenedUse final : public GroupMemory {
 public:
  explicit OpenedUse(Use use) : use_(std::move(use)) {}

  std::byte* open() override {
    use_.open();
    return use_.address();
  }
  void close() override { use_.close(); }

 private:
  const Use use_;
};

}  // namespace

void GroupAccess::check_device(bp_device* device, const char* call) {
  static_cast<void>(device_of(instance_, device, call));
}

uint64_t GroupAccess::generation(bp_device* device) {
  return Cards<Instance, Device>::any_device_of(instance_, device, "generation").generation();
}

std::shared_ptr<Queue> GroupAccess::queue(bp_stream* stream, bp_device* device, const char* call) {
  const Stream& s = stream_of(stream, call);
  check_same_device(s.device, &device_of(instance_, device, call), call, "stream");
  return s.queue;
}

std::shared_ptr<GroupMemory> GroupAccess::memory(const bp_buffer_ref& range, bp_device* device,
                                                 bool is_written, const char* call,
                                                 const char* what) {
  const Buffer& buffer = buffer_of(range.buffer, call, what);
  check_same_device(buffer.device, &device_of(instance_, device, call), call, what);
  return std::make_shared<OpenedUse>(
      use_of(range, is_written ? Access::kWrite : Access::kRead, call, what));
}

}  // namespace bp::sim
