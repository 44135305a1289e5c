// What the cases of the ABI tables share: handles that end with the case, and ways to hold work
// back.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "conformance/case.hpp"

namespace bp::conformance {

constexpr uint64_t kTimeoutNs = 10'000'000'000;  // For what must come to an end.
constexpr uint64_t kMomentNs = 20'000'000;       // For what must not, yet.

// Destroys a handle through the table of the target it came from.
struct StreamEnd {
  const bp_stream_ops* ops;
  void operator()(bp_stream* stream) const { static_cast<void>(ops->destroy(ops->self, stream)); }
};
struct EventEnd {
  const bp_event_ops* ops;
  void operator()(bp_event* event) const { static_cast<void>(ops->destroy(ops->self, event)); }
};
struct BufferEnd {
  const bp_allocator_ops* ops;
  void operator()(bp_buffer* buffer) const {
    static_cast<void>(ops->free(ops->self, buffer, nullptr));
  }
};
using OwnedStream = std::unique_ptr<bp_stream, StreamEnd>;
using OwnedEvent = std::unique_ptr<bp_event, EventEnd>;
using OwnedBuffer = std::unique_ptr<bp_buffer, BufferEnd>;

// Ends the case where an optional call is not offered, and where it fails otherwise. To a backend
// that is older than `since_minor`, what came with it is unknown.
void require_offered(Context& t, bp_status status, const char* what, uint32_t since_minor = 0);

// Each ends the case if the backend does not give one. An event that is host-signalled, and one
// with timing, end it as NotSupported where the backend refuses them with BP_UNSUPPORTED.
OwnedStream make_stream(Context& t);
OwnedEvent make_event(Context& t, bp_event_flags flags = 0);
OwnedBuffer make_buffer(Context& t, uint64_t size_bytes);

bp_buffer_ref range(const OwnedBuffer& buffer, uint64_t byte_offset, uint64_t size_bytes);

// Copies through `stream` and waits; ends the case on failure.
void write(Context& t, bp_stream* stream, const bp_buffer_ref& to,
           const std::vector<uint8_t>& bytes);
std::vector<uint8_t> read(Context& t, bp_stream* stream, const bp_buffer_ref& from);

// Waits until the work of `stream` has ended; ends the case if it failed or takes too long.
void finish(Context& t, bp_stream* stream, const char* what = "synchronize");

// `count` bytes that depend on the seed of the case and on `salt`.
std::vector<uint8_t> random_bytes(Context& t, uint64_t count, uint64_t salt = 0);

// Holds streams back: what is submitted to them after hold() starts when the gate opens. Opens at
// the latest when it is destroyed, so that no case leaves a stream waiting.
class Gate {
 public:
  explicit Gate(Context& t);
  ~Gate();
  Gate(const Gate&) = delete;

  void hold(bp_stream* stream);
  void open(bp_status status = BP_OK);

 private:
  Context& context_;
  OwnedEvent event_;
  bool is_open_ = false;
};

// A new stream that has failed with `failure`, which it got from a host-signalled event.
OwnedStream make_failed_stream(Context& t, bp_status failure);

}  // namespace bp::conformance
