// An exchange of short messages: each rank sends one to each other rank.
#pragma once

#include <gloo/context.h>
#include <gloo/transport/unbound_buffer.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

namespace bp::cpu {

// The messages of one rank. Functions throw StatusError.
class Exchange {
 public:
  // Begins to send the others their messages. `sent` has item_bytes for each rank. The context must
  // live as long as the exchange.
  Exchange(gloo::Context& context, uint64_t slot, std::vector<std::byte> sent, size_t item_bytes);
  Exchange(const Exchange&) = delete;

  // Waits for the messages of the others, and returns them by rank. The own one is zeros.
  const std::vector<std::byte>& receive();

  // Returns the messages of this rank.
  const std::vector<std::byte>& sent() const { return sent_; }

  // Waits until the messages of this rank have left.
  void finish();

 private:
  const std::vector<std::byte> sent_;
  std::vector<std::byte> received_;
  std::unique_ptr<gloo::transport::UnboundBuffer> from_;
  // Each rank has a buffer of its own. If two messages for one buffer come at once, Gloo gives the
  // same rank for both, and an error would name a rank that has sent its part.
  std::vector<std::unique_ptr<gloo::transport::UnboundBuffer>> to_;
  size_t come_ = 0;      // The messages that receive() has waited for.
  size_t to_leave_ = 0;  // The messages that finish() has to wait for.
};

// Runs an exchange. Returns what the others sent.
std::vector<std::byte> exchange(gloo::Context& context, uint64_t slot, std::vector<std::byte> sent,
                                size_t item_bytes);

}  // namespace bp::cpu
