// The memory in which a copy to the host lands.
//
//   const Landing landing(dst, size_bytes, borrow, timeout_ns);
//   status = submit([to = landing.address(), kept = landing.kept(), ...] { ... });
//   if (status != BP_OK || borrow == BP_BORROW_UNTIL_COMPLETE) return status;
//   return landing.wait_for(*queue);
//
// Nothing may write the host's memory after BP_TIMEOUT. So a copy that may time out lands in memory
// of its own, which the work keeps, and the waiting thread copies from there.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "backplane/memory.h"
#include "backplane/shell/bytes.hpp"
#include "backplane/shell/entry.hpp"
#include "backplane/shell/queue.hpp"

namespace bp {

class Landing {
 public:
  Landing(void* dst, uint64_t size_bytes, bp_borrow borrow, uint64_t timeout_ns)
      : dst_(static_cast<std::byte*>(dst)), size_bytes_(size_bytes), timeout_ns_(timeout_ns) {
    if (borrow != BP_BORROW_DURING_CALL || timeout_ns == UINT64_MAX) return;
    staged_ = std::make_shared_for_overwrite<std::byte[]>(size_bytes);
  }

  std::byte* address() const { return staged_ == nullptr ? dst_ : staged_.get(); }

  // Returns what the work must keep. It is NULL if the copy lands in the host's memory.
  const std::shared_ptr<std::byte[]>& kept() const { return staged_; }

  // Waits for the copy, and returns the failure of its queue, if there is one. Throws StatusError
  // of BP_TIMEOUT.
  bp_status wait_for(Queue& queue) const {
    if (!queue.wait(timeout_ns_)) refuse_timeout("copy_to_host", timeout_ns_);
    const bp_status status = queue.admit();
    if (status == BP_OK && staged_ != nullptr) copy_bytes(dst_, staged_.get(), size_bytes_);
    return status;
  }

 private:
  std::byte* const dst_;
  const uint64_t size_bytes_, timeout_ns_;
  std::shared_ptr<std::byte[]> staged_;
};

}  // namespace bp
