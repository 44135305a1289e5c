// Runs an op on the first device of class host. The tensors are copied to that device, and the
// outputs are copied back.
//
// Every tensor is copied as the range of bytes that its elements span, so strides stay as they are.
// An output with gaps between its elements is copied in first, because the bytes in the gaps must
// not change. An output that aliases an input gets memory of its own on the host, so in-place ops
// are right as well. The call waits for both devices.
//
// The work runs on a stream of the host device that no other call uses at the same time. So a
// failure of that stream, such as an index out of range, belongs to this call. It becomes the
// failure of the caller's stream, as with a kernel of the device, and also if a later step on the
// host was refused because of it. The failure of the host's stream is then cleared for the next
// call.
#include "registry/dispatch/host_fallback.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <deque>
#include <string>
#include <vector>

#include "registry/boundary/error_slot.hpp"
#include "registry/boundary/fail.hpp"
#include "registry/boundary/guard.hpp"
#include "registry/calls/op_rows.hpp"
#include "registry/services/caching_allocator.hpp"
#include "registry/services/capturing.hpp"
#include "registry/services/service_kernels.hpp"
#include "registry/state/state.hpp"
#include "registry/tensors/strides.hpp"

namespace bp::core {
namespace {

// The elements of a tensor as a range of its buffer.
struct Span {
  uint64_t begin_byte = 0;  // The place in the buffer.
  uint64_t size_bytes = 0;  // It is 0 for a tensor without elements.
  // The place of the first element in the span. It is not 0 with negative strides.
  uint64_t origin_byte = 0;
  bool has_gaps = false;
};

Span span_of(const bp_tensor& t) {
  const uint32_t bits = bp_dtype_bits(t.dtype);
  const tensors::Reach reach = tensors::reach_of(t);
  if (reach.span() == 0) return {};
  // Element (0, ..., 0) begins at a whole byte; the elements before and behind it may end within
  // one, whose other bits are then kept as those of a gap are.
  const uint64_t origin = tensors::packed_bytes(static_cast<uint64_t>(-reach.lowest), bits);
  const uint64_t behind = tensors::packed_bytes(static_cast<uint64_t>(reach.highest + 1), bits);
  const auto count = static_cast<uint64_t>(tensors::element_count(t));
  return {.begin_byte = t.byte_offset - origin,
          .size_bytes = origin + behind,
          .origin_byte = origin,
          .has_gaps = (origin + behind) * 8 != count * bits};
}

// A tensor of the device and its copy on the host.
struct Copy {
  const bp_tensor* original;
  Span span;
  services::BlockHandle block;
  bp_tensor tensor;
  bool is_written;
  std::vector<std::byte> staging;  // It holds the bytes on their way between the devices.

  bp_buffer_ref there() const { return {original->buffer, span.begin_byte, span.size_bytes}; }
  bp_buffer_ref here() const {
    return {block->ref.buffer, block->ref.byte_offset, span.size_bytes};
  }
};

// A stream of the host device that only this object uses until the end of the scope.
class HostStream {
 public:
  explicit HostStream(Target& host) : host_(host) {}
  HostStream(const HostStream&) = delete;

  bp_status take() {
    {
      const std::lock_guard lock(host_.fallback_mutex);
      if (!host_.fallback_streams.empty()) {
        stream_ = host_.fallback_streams.back();
        host_.fallback_streams.pop_back();
        return BP_OK;
      }
      host_.fallback_streams.reserve(host_.fallback_stream_count + 1);  // No later step throws.
      ++host_.fallback_stream_count;
    }
    const bp_stream_ops& streams = host_.own_tables.streams;
    const bp_status status = streams.create(streams.self, host_.device, nullptr, &stream_);
    if (status == BP_OK) return BP_OK;
    const std::lock_guard lock(host_.fallback_mutex);
    --host_.fallback_stream_count;
    return status;
  }

  // Waits for the work. If it has failed, returns its failure and clears it on the stream.
  bp_status settle() {
    const bp_stream_ops& streams = host_.own_tables.streams;
    const bp_status status = streams.synchronize(streams.self, stream_, UINT64_MAX);
    if (status == BP_OK) return BP_OK;
    const std::string words = take_error();
    is_usable_ = streams.clear_failure(streams.self, stream_) == BP_OK;
    return fail(classify(host_, status), words);
  }

  ~HostStream() {
    if (stream_ == nullptr) return;
    {
      const std::lock_guard lock(host_.fallback_mutex);
      if (is_usable_) {
        host_.fallback_streams.push_back(stream_);  // take() has made room.
        return;
      }
      --host_.fallback_stream_count;
    }
    const bp_stream_ops& streams = host_.own_tables.streams;
    static_cast<void>(streams.destroy(streams.self, stream_));
  }

  bp_stream* get() const { return stream_; }

 private:
  Target& host_;
  bp_stream* stream_ = nullptr;
  bool is_usable_ = true;
};

class Run {
 public:
  Run(const bp_target& target, const bp_target& host, const OpRow& row, bp_stream* stream)
      : target_(target), host_(host), row_(row), stream_(stream), host_stream_(impl(&host)) {}

  bp_status operator()(bp_launch_flags flags, const void* args) {
    bp_status status = admit();
    if (status == BP_OK) status = host_stream_.take();
    if (status != BP_OK) return status;
    status = submit(flags & ~bp_launch_flags{BP_LAUNCH_DEVICE_CURRENT}, args);
    std::string words = status == BP_OK ? "" : take_error();
    // This waits after a refusal too, because work that was submitted earlier uses memory of this
    // object.
    const bp_status settled = host_stream_.settle();
    if (is_refused_by_caller_) return fail(status, words);
    status = classify(impl(&host_), status);
    const bool is_asynchronous = status == BP_OK || status == BP_STREAM_FAILED;
    if (settled != BP_OK && is_asynchronous) return fail_stream(settled, take_error());
    return status == BP_OK ? take_back() : fail(status, words);
  }

 private:
  // Refuses the call if the caller's stream has failed or captures, also if there is nothing to
  // copy.
  bp_status admit() const {
    if (services::is_capturing(target_, stream_)) {
      return fail(BP_INVALID_ARGUMENT,
                  std::string(row_.name) + ": the stream captures, and " + target_.name +
                      " has no kernel for this call that a capture takes; the call would run on " +
                      host_.name +
                      "; a capture records no work of another device, so submit this call before "
                      "or after the capture");
    }
    const bp_stream_ops& streams = *target_.streams;
    const bp_status failure = streams.status(streams.self, stream_);
    if (failure == BP_OK || classify(impl(&target_), failure) == BP_DEVICE_LOST) return failure;
    return fail(BP_STREAM_FAILED,
                std::string(row_.name) + ": the stream has failed: " + take_error());
  }

  // Does everything but the copy back to the device. Afterwards the staging memory has the outputs.
  bp_status submit(bp_launch_flags flags, const void* args) {
    alignas(16) std::array<std::byte, kMaxFrameBytes> frame;
    std::memcpy(frame.data(), args, row_.frame_size_bytes);
    for (uint32_t i = 0; i < row_.tensor_count; ++i) {
      const bp_status status = bring(row_.tensors[i], frame.data());
      if (status != BP_OK) return status;
    }
    bp_status status = bp_op_launch(&host_, host_stream_.get(), flags, row_.op, frame.data());
    for (Copy& copy : copies_) {
      if (status != BP_OK) break;
      if (!copy.is_written || copy.span.size_bytes == 0) continue;
      const bp_buffer_ref here = copy.here();
      const bp_allocator_ops& memory = *host_.allocator;
      status = memory.copy_to_host(memory.self, host_stream_.get(), copy.staging.data(), &here,
                                   BP_BORROW_UNTIL_COMPLETE, UINT64_MAX);
    }
    return status;
  }

  // Copies what the argument needs, and puts the copies into the frame.
  bp_status bring(const TensorArgument& argument, std::byte* frame) {
    const bool is_written = argument.is_output() || argument.kind == Kind::out_list ||
                            argument.kind == Kind::inout || argument.kind == Kind::inout_list;
    const bool is_read = !argument.is_output() && argument.kind != Kind::out_list;
    std::byte* member = frame + argument.offset;
    if (!argument.is_list()) {
      const bp_tensor*& tensor = *reinterpret_cast<const bp_tensor**>(member);
      return tensor == nullptr ? bp_status{BP_OK} : bring_one(tensor, is_read, is_written);
    }
    const uint64_t count = *reinterpret_cast<const uint64_t*>(member - sizeof(uint64_t));
    const bp_tensor* const*& list = *reinterpret_cast<const bp_tensor* const**>(member);
    std::vector<const bp_tensor*>& copies = lists_.emplace_back(list, list + count);
    for (const bp_tensor*& tensor : copies) {
      const bp_status status = bring_one(tensor, is_read, is_written);
      if (status != BP_OK) return status;
    }
    list = copies.data();
    return BP_OK;
  }

  bp_status bring_one(const bp_tensor*& tensor, bool is_read, bool is_written) {
    Copy& copy = copies_.emplace_back();
    copy.original = tensor;
    copy.span = span_of(*tensor);
    copy.tensor = *tensor;
    copy.tensor.next = nullptr;  // The links are hints for the device.
    copy.is_written = is_written;
    bp_block* block = nullptr;
    bp_status status = bp_block_allocate(&host_, host_stream_.get(), copy.span.size_bytes, &block);
    if (status != BP_OK) return status;
    copy.block.reset(block);
    copy.tensor.buffer = block->ref.buffer;
    copy.tensor.byte_offset = block->ref.byte_offset + copy.span.origin_byte;
    tensor = &copy.tensor;
    if (copy.span.size_bytes == 0) return BP_OK;
    copy.staging.resize(copy.span.size_bytes);
    const bool copies_in = is_read || copy.span.has_gaps;
    return copies_in ? move_in(copy) : bp_status{BP_OK};
  }

  bp_status move_in(Copy& copy) {
    const bp_buffer_ref there = copy.there(), here = copy.here();
    const bp_allocator_ops& from = *target_.allocator;
    const bp_allocator_ops& to = *host_.allocator;
    const bp_status status = from.copy_to_host(from.self, stream_, copy.staging.data(), &there,
                                               BP_BORROW_DURING_CALL, UINT64_MAX);
    is_refused_by_caller_ = status != BP_OK;
    if (status != BP_OK) return status;
    return to.copy_from_host(to.self, host_stream_.get(), &here, copy.staging.data(),
                             BP_BORROW_UNTIL_COMPLETE);
  }

  bp_status take_back() {
    const bp_allocator_ops& memory = *target_.allocator;
    for (const Copy& copy : copies_) {
      if (!copy.is_written || copy.span.size_bytes == 0) continue;
      const bp_buffer_ref there = copy.there();
      const bp_status status = memory.copy_from_host(memory.self, stream_, &there,
                                                     copy.staging.data(), BP_BORROW_DURING_CALL);
      if (status != BP_OK) return status;
    }
    return BP_OK;
  }

  // Makes `status` the failure of the caller's stream, so that no later work runs on outputs that
  // were never written. If the device has no events for that, the call itself fails. The text is
  // remembered first, because another thread may clear the failure as soon as the stream has it.
  bp_status fail_stream(bp_status status, const std::string& why) {
    const std::string words = std::string(row_.name) + " on " + host_.name + ": " + why;
    const bp_event_ops& events = *target_.events;
    const bp_event_desc desc{.struct_size = sizeof(desc),
                             .struct_type = BP_STRUCT_EVENT_DESC,
                             .next = nullptr,
                             .flags = BP_EVENT_HOST_SIGNAL,
                             .reserved = 0};
    bp_event* event = nullptr;
    if (events.create(events.self, target_.device, &desc, &event) != BP_OK) {
      return fail(status, words);
    }
    StreamFailures& failures = impl(&target_).stream_failures;
    const bool is_new = failures.remember(stream_, status, words);
    const bp_stream_ops& streams = *target_.streams;
    bp_status told = events.signal(events.self, event, status);
    if (told == BP_OK) told = streams.wait_event(streams.self, stream_, event);
    const std::string refusal = told == BP_OK ? "" : take_error();
    static_cast<void>(events.destroy(events.self, event));
    if (told == BP_OK) return BP_OK;
    if (is_new) failures.forget(stream_);
    const bool has_failed = told == BP_STREAM_FAILED || told == BP_DEVICE_LOST;
    return has_failed ? fail(told, refusal) : fail(status, words);
  }

  const bp_target& target_;
  const bp_target& host_;
  const OpRow& row_;
  bp_stream* stream_;
  HostStream host_stream_;
  bool is_refused_by_caller_ = false;  // The device or the stream of the caller refused a copy.
  // A deque does not move the copies that the frame points to. It is destroyed before the stream.
  std::deque<Copy> copies_;
  std::deque<std::vector<const bp_tensor*>> lists_;
};

bp_status launch(const bp_kernel* self, const bp_launch* launch, const void* args) {
  const auto& row = *static_cast<const OpRow*>(self->state);
  const auto* target = static_cast<const bp_target*>(launch->next);
  const bp_target* host = target == nullptr ? nullptr : host_target(target->registry);
  if (host == nullptr) {
    return fail(BP_UNSUPPORTED, std::string(row.name) +
                                    ": no device of class host is loaded for the fallback; load a "
                                    "backend that has one, such as a CPU backend");
  }
  if (host == target) {
    return fail(BP_UNSUPPORTED, std::string(row.name) + ": " + target->name +
                                    " is the host device itself and has no kernel for this call");
  }
  return guarded([&] { return Run(*target, *host, row, launch->stream)(launch->flags, args); });
}

}  // namespace

const bp_kernel* host_fallback(const OpRow& row) {
  static services::ServiceKernels kernels("host_fallback", launch,
                                          BP_KERNEL_IN_PLACE | BP_KERNEL_TAKES_SCALAR);
  return kernels.of(row);
}

}  // namespace bp::core
