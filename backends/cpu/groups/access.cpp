#include "backends/cpu/groups/access.hpp"

#include "backends/cpu/device.hpp"
#include "backends/cpu/memory.hpp"
#include "backends/cpu/stream.hpp"
#include "backplane/shell/capture.hpp"

namespace bp::cpu {
namespace {

// The host sees all memory, so nothing must be opened.
class HostMemory final : public GroupMemory {
 public:
  explicit HostMemory(std::byte* address) : address_(address) {}
  std::byte* open() override { return address_; }
  void close() override {}

 private:
  std::byte* const address_;
};

}  // namespace

void GroupAccess::check_device(bp_device* device, const char* call) {
  static_cast<void>(device_of(instance_, device, call));
}

std::shared_ptr<Queue> GroupAccess::queue(bp_stream* stream, bp_device* device, const char* call) {
  const Stream& s = stream_of(stream, call);
  check_same_device(s.device, &device_of(instance_, device, call), call, "stream");
  instance_.captures->refuse_collective(stream, std::string(call) + ": ");
  return s.queue;
}

std::shared_ptr<GroupMemory> GroupAccess::memory(const bp_buffer_ref& range, bp_device* device,
                                                 bool is_written, const char* call,
                                                 const char* what) {
  const auto checked =
      checked_range<Buffer>(&range, call, what, is_written ? BP_ACCESS_READ_WRITE : BP_ACCESS_READ);
  check_same_device(checked.buffer.device, &device_of(instance_, device, call), call, what);
  return std::make_shared<HostMemory>(checked.buffer.address + checked.byte_offset);
}

}  // namespace bp::cpu
