#include "conformance/cases/fixtures.hpp"

#include <random>

namespace bp::conformance {

void require_offered(Context& t, bp_status status, const char* what, uint32_t since_minor) {
  const bp_plugin& plugin = *t.target().plugin;
  const bool is_older = plugin.abi_major == 0 && plugin.abi_minor < since_minor;
  if (status == BP_INVALID_ARGUMENT && is_older) {
    t.not_supported("the backend is of ABI " + std::to_string(plugin.abi_major) + "." +
                    std::to_string(plugin.abi_minor) + ": " + bp_error_text());
  }
  if (status == BP_UNSUPPORTED) t.not_supported(bp_error_text());
  t.require_ok(status, what);
}

OwnedStream make_stream(Context& t) {
  const bp_stream_ops& ops = *t.target().streams;
  bp_stream* stream = nullptr;
  t.require_ok(ops.create(ops.self, t.target().device, nullptr, &stream), "stream.create");
  return OwnedStream(stream, {&ops});
}

OwnedEvent make_event(Context& t, bp_event_flags flags) {
  const bp_event_ops& ops = *t.target().events;
  const bp_event_desc desc{
      .struct_size = sizeof(bp_event_desc), .struct_type = BP_STRUCT_EVENT_DESC, .flags = flags};
  bp_event* event = nullptr;
  const bp_status status = ops.create(ops.self, t.target().device, &desc, &event);
  if (flags == 0) {
    t.require_ok(status, "event.create");
  } else {
    require_offered(t, status, "event.create", (flags & BP_EVENT_EXPORTABLE) != 0 ? 2 : 0);
  }
  return OwnedEvent(event, {&ops});
}

OwnedBuffer make_buffer(Context& t, uint64_t size_bytes) {
  const bp_allocator_ops& ops = *t.target().allocator;
  const bp_allocate_desc desc{.struct_size = sizeof(bp_allocate_desc),
                              .struct_type = BP_STRUCT_ALLOCATE_DESC,
                              .size_bytes = size_bytes};
  bp_buffer* buffer = nullptr;
  t.require_ok(ops.allocate(ops.self, t.target().device, &desc, &buffer), "memory.allocate");
  return OwnedBuffer(buffer, {&ops});
}

bp_buffer_ref range(const OwnedBuffer& buffer, uint64_t byte_offset, uint64_t size_bytes) {
  return {buffer.get(), byte_offset, size_bytes};
}

void write(Context& t, bp_stream* stream, const bp_buffer_ref& to,
           const std::vector<uint8_t>& bytes) {
  const bp_allocator_ops& ops = *t.target().allocator;
  t.require_ok(ops.copy_from_host(ops.self, stream, &to, bytes.data(), BP_BORROW_DURING_CALL),
               "memory.copy_from_host");
  finish(t, stream);
}

std::vector<uint8_t> read(Context& t, bp_stream* stream, const bp_buffer_ref& from) {
  const bp_allocator_ops& ops = *t.target().allocator;
  std::vector<uint8_t> bytes(from.size_bytes);
  t.require_ok(ops.copy_to_host(ops.self, stream, bytes.data(), &from, BP_BORROW_DURING_CALL),
               "memory.copy_to_host");
  return bytes;
}

void finish(Context& t, bp_stream* stream, const char* what) {
  const bp_stream_ops& ops = *t.target().streams;
  t.require_ok(ops.synchronize(ops.self, stream, kTimeoutNs), what);
}

std::vector<uint8_t> random_bytes(Context& t, uint64_t count, uint64_t salt) {
  std::mt19937_64 random(t.seed() ^ (salt * 0x9E3779B97F4A7C15u));
  std::vector<uint8_t> bytes(count);
  for (uint8_t& byte : bytes) byte = static_cast<uint8_t>(random() >> 56);
  return bytes;
}

Gate::Gate(Context& t) : context_(t), event_(make_event(t, BP_EVENT_HOST_SIGNAL)) {}

Gate::~Gate() {
  if (is_open_) return;
  const bp_event_ops& ops = *context_.target().events;
  static_cast<void>(ops.signal(ops.self, event_.get(), BP_OK));
}

void Gate::hold(bp_stream* stream) {
  const bp_stream_ops& ops = *context_.target().streams;
  context_.require_ok(ops.wait_event(ops.self, stream, event_.get()), "wait_event");
}

void Gate::open(bp_status status) {
  const bp_event_ops& ops = *context_.target().events;
  is_open_ = true;
  context_.require_ok(ops.signal(ops.self, event_.get(), status), "event.signal");
}

OwnedStream make_failed_stream(Context& t, bp_status failure) {
  OwnedStream stream = make_stream(t);
  Gate gate(t);
  gate.hold(stream.get());
  gate.open(failure);
  const bp_stream_ops& ops = *t.target().streams;
  t.expect_refused(ops.synchronize(ops.self, stream.get(), kTimeoutNs), failure,
                   "synchronize behind a failed event");
  return stream;
}

}  // namespace bp::conformance
