// Copies and fills.
#include <array>
#include <cstring>
#include <memory>

#include "backends/cpu/device.hpp"
#include "backends/cpu/memory.hpp"
#include "backends/cpu/profiler.hpp"
#include "backends/cpu/stream.hpp"
#include "backplane/shell/bytes.hpp"
#include "backplane/shell/landing.hpp"

namespace bp::cpu {

bp_status MemoryTraits::copy(const Instance& i, Stream& s, const Range& dst, const Range& src,
                             const char* call) {
  auto* const to = static_cast<std::byte*>(map(dst));
  const auto* const from = static_cast<std::byte*>(map(src));
  return submit_work(i, s, {BP_ACTIVITY_COPY, call, 2 * dst.size_bytes}, {to, dst.size_bytes},
                     [to, from, size_bytes = dst.size_bytes] {
                       if (to != from) copy_bytes(to, from, size_bytes);
                     });
}

bp_status MemoryTraits::copy_from_host(const Instance& i, Stream& s, const Range& dst,
                                       const void* src, bp_borrow borrow) {
  auto* const to = static_cast<std::byte*>(map(dst));
  const uint64_t size_bytes = dst.size_bytes;
  const WorkName work{BP_ACTIVITY_COPY, "copy_from_host", 2 * size_bytes};
  auto copy = [=] { copy_bytes(to, src, size_bytes); };
  if (borrow == BP_BORROW_UNTIL_COMPLETE) return submit_work(i, s, work, {to, size_bytes}, copy);
  if (!is_watched(i, s) && s.queue->try_run_here(copy)) return BP_OK;
  // The work runs later, on another thread: stage, so that the caller may go on.
  const std::shared_ptr<std::byte[]> staged(new std::byte[size_bytes]);
  copy_bytes(staged.get(), src, size_bytes);
  return submit_work(i, s, work, {to, size_bytes},
                     [=] { copy_bytes(to, staged.get(), size_bytes); });
}

bp_status MemoryTraits::copy_to_host(const Instance& i, Stream& s, void* dst, const Range& src,
                                     bp_borrow borrow, uint64_t timeout_ns) {
  Queue& q = *s.queue;
  const void* const from = map(src);
  const uint64_t size_bytes = src.size_bytes;
  const Landing landing(dst, size_bytes, borrow, timeout_ns);
  std::byte* const to = landing.address();
  const bp_status status = submit_work(
      i, s, {BP_ACTIVITY_COPY, "copy_to_host", 2 * size_bytes}, {to, size_bytes},
      [to, kept = landing.kept(), from, size_bytes] { copy_bytes(to, from, size_bytes); });
  if (status != BP_OK || borrow == BP_BORROW_UNTIL_COMPLETE) return status;
  return landing.wait_for(q);
}

bp_status MemoryTraits::fill(const Instance& i, Stream& s, const Range& dst,
                             const std::byte* pattern, uint64_t pattern_size_bytes) {
  auto* const to = static_cast<std::byte*>(map(dst));
  const uint64_t size_bytes = dst.size_bytes;
  std::array<std::byte, kMaxPatternBytes> kept{};
  std::memcpy(kept.data(), pattern, pattern_size_bytes);
  return submit_work(i, s, {BP_ACTIVITY_FILL, "fill", size_bytes}, {to, size_bytes},
                     [=] { fill_bytes(to, size_bytes, kept.data(), pattern_size_bytes); });
}

}  // namespace bp::cpu
