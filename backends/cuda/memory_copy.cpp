// Copies and fills.
#include <cstring>

#include "backends/cuda/memory.hpp"
#include "backends/cuda/staging.hpp"
#include "backplane/shell/bytes.hpp"

namespace bp::cuda {
namespace {

// Returns a range in memory of the lane's device. Throws StatusError for any other range.
Range local_range(const Lane& lane, const bp_buffer_ref* range, const char* call,
                  const char* name) {
  const Range checked = checked_range(range, call, name);
  if (checked.buffer.device->ordinal() != lane.device().ordinal()) {
    refuse(BP_INVALID_ARGUMENT, std::string(call) + ": " + name + " and stream are of two devices");
  }
  return checked;
}

void check_copy(const Range& dst, const Range& src, const char* call) {
  if (dst.size_bytes != src.size_bytes) {
    refuse(BP_INVALID_ARGUMENT, std::string(call) + ": dst has " + std::to_string(dst.size_bytes) +
                                    " bytes, and src has " + std::to_string(src.size_bytes));
  }
  // The addresses are compared, because one buffer may be wrapped around a part of the other.
  if (dst.address != src.address && dst.address < src.address + src.size_bytes &&
      src.address < dst.address + dst.size_bytes) {
    refuse(BP_INVALID_ARGUMENT, std::string(call) + ": dst and src overlap and are not the same");
  }
}

}  // namespace

bp_status memory_copy(void* self, bp_stream* stream, const bp_buffer_ref* dst,
                      const bp_buffer_ref* src) {
  return entry(self, [&](const Instance&) -> bp_status {
    Lane& lane = lane_of(stream, "copy");
    const Range to = local_range(lane, dst, "copy", "dst");
    const Range from = local_range(lane, src, "copy", "src");
    check_copy(to, from, "copy");
    return lane.submit([&lane, to = to.begin(), from = from.begin(), size = to.size_bytes] {
      if (size == 0 || to == from) return;
      const Driver& driver = lane.device().driver();
      check(driver, driver.cudaMemcpyAsync(to, from, size, cudaMemcpyDefault, lane.native()),
            "copy");
    });
  });
}

bp_status memory_copy_from_host(void* self, bp_stream* stream, const bp_buffer_ref* dst,
                                const void* src, bp_borrow borrow) {
  return entry(self, [&](const Instance&) -> bp_status {
    Lane& lane = lane_of(stream, "copy_from_host");
    const Range to = local_range(lane, dst, "copy_from_host", "dst");
    check_host_pointer(src, to.size_bytes, borrow, "copy_from_host", "src");
    return copy_in(lane, to.begin(), src, to.size_bytes, borrow);
  });
}

bp_status memory_copy_to_host(void* self, bp_stream* stream, void* dst, const bp_buffer_ref* src,
                              bp_borrow borrow) {
  return entry(self, [&](const Instance&) -> bp_status {
    Lane& lane = lane_of(stream, "copy_to_host");
    const Range from = local_range(lane, src, "copy_to_host", "src");
    check_host_pointer(dst, from.size_bytes, borrow, "copy_to_host", "dst");
    return copy_out(lane, dst, from.begin(), from.size_bytes, borrow);
  });
}

bp_status memory_copy_peer(void* self, bp_stream* stream, const bp_buffer_ref* dst,
                           const bp_buffer_ref* src) {
  return entry(self, [&](const Instance&) -> bp_status {
    Lane& lane = lane_of(stream, "copy_peer");
    const Range to = checked_range(dst, "copy_peer", "dst");
    const Range from = checked_range(src, "copy_peer", "src");
    Device &to_device = *to.buffer.device, &from_device = *from.buffer.device;
    const int ordinal = lane.device().ordinal();
    if (ordinal != to_device.ordinal() && ordinal != from_device.ordinal()) {
      refuse(BP_INVALID_ARGUMENT, "copy_peer: stream is of neither device");
    }
    check_copy(to, from, "copy_peer");
    to_device.enable_peer(from_device);
    from_device.enable_peer(to_device);
    return lane.submit([&lane, to = to.begin(), from = from.begin(), size = to.size_bytes,
                        to_ordinal = to_device.ordinal(), from_ordinal = from_device.ordinal()] {
      if (size == 0 || to == from) return;
      const Driver& driver = lane.device().driver();
      check(driver,
            driver.cudaMemcpyPeerAsync(to, to_ordinal, from, from_ordinal, size, lane.native()),
            "copy_peer");
    });
  });
}

bp_status memory_can_access_peer(void* self, bp_device* device_handle, bp_device* peer_handle,
                                 uint32_t* out_can) {
  return entry(self, [&](const Instance& i) -> bp_status {
    Device& device = device_of(i, device_handle, "can_access_peer");
    Device& peer = device_of(i, peer_handle, "can_access_peer", "peer");
    require(out_can, "can_access_peer: out_can");
    int can = device.ordinal() == peer.ordinal() ? 1 : 0;
    if (can == 0) {
      check(i.driver, i.driver.cudaDeviceCanAccessPeer(&can, device.ordinal(), peer.ordinal()),
            "cudaDeviceCanAccessPeer");
    }
    *out_can = can != 0 ? 1 : 0;
    return BP_OK;
  });
}

bp_status memory_fill(void* self, bp_stream* stream, const bp_buffer_ref* dst, const void* pattern,
                      uint64_t pattern_size_bytes) {
  return entry(self, [&](const Instance&) -> bp_status {
    Lane& lane = lane_of(stream, "fill");
    const Range to = local_range(lane, dst, "fill", "dst");
    check_pattern(pattern, pattern_size_bytes, to.size_bytes);
    Pattern kept{};
    std::memcpy(kept.bytes, pattern, pattern_size_bytes);
    kept.size_bytes = static_cast<uint32_t>(pattern_size_bytes);
    return lane.submit([&lane, kept, to = to.begin(), size = to.size_bytes] {
      fill_pattern(lane.device().driver(), lane.native(), to, size, kept);
    });
  });
}

}  // namespace bp::cuda
