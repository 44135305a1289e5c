// Copies and fills.
#include <cstring>

#include "backends/cuda/memory.hpp"
#include "backends/cuda/staging.hpp"

namespace bp::cuda {
namespace {

bp_status copy_to_peer(Lane& lane, const Range& dst, const Range& src) {
  Device &to_device = *dst.buffer.device, &from_device = *src.buffer.device;
  to_device.enable_peer(from_device);
  from_device.enable_peer(to_device);
  return lane.submit([&lane, to = begin_of(dst), from = begin_of(src), size = dst.size_bytes,
                      to_ordinal = to_device.ordinal(), from_ordinal = from_device.ordinal()] {
    if (size == 0 || to == from) return;
    const Driver& driver = lane.device().driver();
    check(driver,
          driver.cudaMemcpyPeerAsync(to, to_ordinal, from, from_ordinal, size, lane.native()),
          "copy_peer");
  });
}

}  // namespace

bp_status MemoryTraits::copy(const Instance&, Stream& s, const Range& dst, const Range& src,
                             const char* call) {
  Lane& lane = *s.lane;
  if (dst.buffer.device->ordinal() != src.buffer.device->ordinal()) {
    return copy_to_peer(lane, dst, src);
  }
  return lane.submit([&lane, call, to = begin_of(dst), from = begin_of(src),
                      size = dst.size_bytes] {
    if (size == 0 || to == from) return;
    const Driver& driver = lane.device().driver();
    check(driver, driver.cudaMemcpyAsync(to, from, size, cudaMemcpyDefault, lane.native()), call);
  });
}

bp_status MemoryTraits::copy_from_host(const Instance&, Stream& s, const Range& dst,
                                       const void* src, bp_borrow borrow) {
  return copy_in(*s.lane, begin_of(dst), src, dst.size_bytes, borrow);
}

bp_status MemoryTraits::copy_to_host(const Instance&, Stream& s, void* dst, const Range& src,
                                     bp_borrow borrow, uint64_t timeout_ns) {
  return copy_out(*s.lane, dst, begin_of(src), src.size_bytes, borrow, timeout_ns);
}

// CUDA copies between any two devices, if need be through the host.
void MemoryTraits::check_peers(const Instance&, const Buffer&, const Buffer&) {}

bool MemoryTraits::can_access(const Instance& i, Device& device, Device& peer) {
  if (device.ordinal() == peer.ordinal()) return true;
  int can = 0;
  check(i.driver, i.driver.cudaDeviceCanAccessPeer(&can, device.ordinal(), peer.ordinal()),
        "cudaDeviceCanAccessPeer");
  return can != 0;
}

bp_status MemoryTraits::fill(const Instance&, Stream& s, const Range& dst, const std::byte* pattern,
                             uint64_t pattern_size_bytes) {
  Lane& lane = *s.lane;
  Pattern kept{};
  std::memcpy(kept.bytes, pattern, pattern_size_bytes);
  kept.size_bytes = static_cast<uint32_t>(pattern_size_bytes);
  return lane.submit([&lane, kept, to = begin_of(dst), size = dst.size_bytes] {
    fill_pattern(lane.device().driver(), lane.native(), to, size, kept);
  });
}

}  // namespace bp::cuda
