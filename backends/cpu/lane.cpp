#include "backends/cpu/lane.hpp"

#include <utility>

#include "backends/cpu/backend.hpp"
#include "backends/cpu/memory.hpp"
#include "backends/cpu/stream.hpp"
#include "backplane/shell/frame.hpp"

namespace bp::cpu {
namespace {

// Returns the bytes of the last output of a launch that has elements and no layout. Returns no
// bytes if there is no such output.
std::span<std::byte> last_output(const bp_kernel& kernel, const void* args) {
  const OwnedFrame frame(kernel.op, args, kernel.args_size_bytes);
  for (size_t k = frame.tensors().size(); k-- > 0;) {
    const bp_tensor* const t = frame.tensors()[k];
    if (!frame.arguments()[k].is_written || t == nullptr || t->layout != nullptr) continue;
    const Buffer* const b = buffer(t->buffer);
    if (b == nullptr) continue;
    const Extent extent = extent_in_buffer(*t, b->size_bytes, "launch: the last output");
    if (extent.begin == extent.end) continue;
    return {b->address + extent.begin, b->address + extent.end};
  }
  return {};
}

}  // namespace

bp_status submit_with_fault(const Stream& stream, const TestFault& fault,
                            std::span<std::byte> written, std::function<void()> task) {
  if (fault.kind == 0) return stream.queue->submit(std::move(task));
  return stream.queue->submit([fault, written, task = std::move(task)] {
    if (fault.kind == BP_TEST_FAULT_SUBMISSION) throw_test_fault(fault);
    task();
    if (fault.kind == BP_TEST_FAULT_CORRUPTION && !written.empty()) {
      written[written.size() / 2] ^= std::byte{0x55};
    }
    if (fault.kind == BP_TEST_FAULT_DATA) throw_test_fault(fault);
  });
}

bp_status submit_watched(const Instance& i, const bp_kernel& kernel, const bp_launch& launch,
                         const void* args, std::function<void()> task) {
  const Stream& stream = stream_of(launch.stream, "launch");
  const TestFault fault = stream.lane->faults().take(*stream.queue);
  std::span<std::byte> written;
  if (fault.kind == BP_TEST_FAULT_CORRUPTION) written = last_output(kernel, args);
  if (i.hooks.is_recording()) task = recorded(i, kernel, launch, std::move(task));
  return submit_with_fault(stream, fault, written, std::move(task));
}

}  // namespace bp::cpu
