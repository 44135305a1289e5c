// Copies and fills, between buffers and to and from the host.
#include <array>
#include <cstring>

#include "backends/sim/backend.hpp"
#include "backends/sim/memory.hpp"
#include "backplane/shell/bytes.hpp"
#include "backplane/shell/landing.hpp"

namespace bp::sim {

bp_status MemoryTraits::copy(const Instance&, Stream& s, const Range& dst, const Range& src,
                             const char* call) {
  const Use writes = use_of(dst, Access::kWrite), reads = use_of(src, Access::kRead);
  const uint64_t size_bytes = dst.size_bytes;
  return submit_work(s, {BP_ACTIVITY_COPY, call, 2 * size_bytes}, {reads, writes},
                     [to = writes.address(), from = reads.address(), size_bytes] {
                       if (to != from) copy_bytes(to, from, size_bytes);
                     });
}

bp_status MemoryTraits::copy_from_host(const Instance&, Stream& s, const Range& dst,
                                       const void* src, bp_borrow borrow) {
  const Use use = use_of(dst, Access::kWrite);
  const uint64_t size_bytes = dst.size_bytes;
  const WorkName name{BP_ACTIVITY_COPY, "copy_from_host", 2 * size_bytes};
  if (borrow == BP_BORROW_UNTIL_COMPLETE) {
    return submit_work(s, name, {use}, [address = use.address(), src, size_bytes] {
      copy_bytes(address, src, size_bytes);
    });
  }
  // The caller may overwrite its bytes as soon as this function returns.
  const std::shared_ptr<std::byte[]> staged(new std::byte[size_bytes]);
  copy_bytes(staged.get(), src, size_bytes);
  return submit_work(s, name, {use}, [address = use.address(), staged, size_bytes] {
    copy_bytes(address, staged.get(), size_bytes);
  });
}

bp_status MemoryTraits::copy_to_host(const Instance&, Stream& s, void* dst, const Range& src,
                                     bp_borrow borrow, uint64_t timeout_ns) {
  const Use use = use_of(src, Access::kRead);
  const uint64_t size_bytes = src.size_bytes;
  const std::shared_ptr<Queue> queue = s.queue;
  const Landing landing(dst, size_bytes, borrow, timeout_ns);
  const bp_status status =
      submit_work(s, {BP_ACTIVITY_COPY, "copy_to_host", 2 * size_bytes}, {use},
                  [to = landing.address(), kept = landing.kept(), address = use.address(),
                   size_bytes] { copy_bytes(to, address, size_bytes); });
  if (status != BP_OK || borrow == BP_BORROW_UNTIL_COMPLETE) return status;
  return landing.wait_for(*queue);
}

void MemoryTraits::check_peers(const Instance& i, const Buffer&, const Buffer&) {
  if (i.options.has_peers) return;
  refuse(BP_UNSUPPORTED, "copy_peer: option peer is no: devices reach their own memory alone");
}

bool MemoryTraits::can_access(const Instance& i, const Device&, const Device&) {
  return i.options.has_peers;
}

bp_status MemoryTraits::fill(const Instance&, Stream& s, const Range& dst, const std::byte* pattern,
                             uint64_t pattern_size_bytes) {
  std::array<std::byte, kMaxPatternBytes> kept{};
  std::memcpy(kept.data(), pattern, pattern_size_bytes);
  const Use use = use_of(dst, Access::kWrite);
  return submit_work(
      s, {BP_ACTIVITY_FILL, "fill", dst.size_bytes}, {use},
      [address = use.address(), kept, pattern_size_bytes, size_bytes = dst.size_bytes] {
        fill_bytes(address, size_bytes, kept.data(), pattern_size_bytes);
      });
}

}  // namespace bp::sim
