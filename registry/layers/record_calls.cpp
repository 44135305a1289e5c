// Records the calls of streams, events, devices and launches.
#include <cstddef>
#include <string>

#include "backplane/host.h"
#include "registry/boundary/fail.hpp"
#include "registry/calls/call.hpp"
#include "registry/calls/qualifiers.hpp"
#include "registry/calls/runtime_ops.hpp"
#include "registry/layers/footprint.hpp"
#include "registry/layers/record.hpp"
#include "registry/layers/record_frame.hpp"
#include "registry/layers/record_op.hpp"
#include "registry/layers/words.hpp"

namespace bp::layers {
namespace {

// Returns why a frame cannot be written, or "" if it can.
std::string frame_defect(const core::OpRow* row, const void* args) {
  if (row == nullptr) return "it runs a program, and no op of this build";
  if (args == nullptr || core::frame_size(args) < row->first_size_bytes()) {
    return "its frame is shorter than in the first release";
  }
  // A newer kernel may serve what a newer caller gives, and this build has no names for it.
  const auto* const bytes = static_cast<const std::byte*>(args);
  for (uint32_t i = row->frame_size_bytes; i < core::frame_size(args); ++i) {
    if (bytes[i] == std::byte{0}) continue;
    return "byte " + std::to_string(i) + " of its frame is not zero, and this host is too old to " +
           "know it";
  }
  for (const FrameTensor& each : frame_tensors(*row, args)) {
    if (each.tensor != nullptr && each.tensor->layout != nullptr) {
      return each.name + " has a layout of the backend's own";
    }
    if (each.tensor != nullptr && core::is_qualified(*each.tensor)) {
      return each.name + " has flags, or a link that must be understood";
    }
  }
  return "";
}

}  // namespace

// ---- Streams ------------------------------------------------------------------------------------

bp_status RecordLayer::create_stream(const bp_stream_ops& next, bp_device* device,
                                     const bp_stream_desc* desc, bp_stream** out_stream) {
  const bp_status status = next.create(next.self, device, desc, out_stream);
  write("stream.create", status, [&](Json& line) {
    line["device"] = number_of(device);
    RecordedStream& stream = streams_.add(*out_stream);
    stream.device = device;
    line["stream"] = stream.number;
    line["flags"] = desc == nullptr ? 0 : desc->flags;
    line["priority"] = desc == nullptr ? 0 : desc->priority;
  });
  return status;
}

// Every call lends the same stream, so only the first is written.
bp_status RecordLayer::lend_stream(const bp_stream_ops& next, bp_device* device,
                                   bp_stream** out_stream) {
  const bp_status status = next.default_stream(next.self, device, out_stream);
  if (status != BP_OK) return status;
  {
    const std::lock_guard lock(mutex_);
    if (streams_.find(*out_stream) != nullptr) return status;
  }
  write("stream.default_stream", status, [&](Json& line) {
    line["device"] = number_of(device);
    RecordedStream* facts = streams_.find(*out_stream);
    if (facts == nullptr) facts = &streams_.add(*out_stream);
    facts->device = device;
    facts->is_lent = true;
    line["stream"] = number_of(*out_stream);
  });
  return status;
}

bp_status RecordLayer::destroy_stream(const bp_stream_ops& next, bp_stream* stream) {
  RecordedStream was;
  {
    const std::lock_guard lock(mutex_);
    if (const RecordedStream* facts = streams_.find(stream)) was = *facts;
    static_cast<void>(streams_.take(stream));
    if (captures_.erase(stream) != 0) capture_count_.fetch_sub(1);
  }
  const bp_status status = next.destroy(next.self, stream);
  if (was.number == 0) return status;
  write("stream.destroy", status, [&](Json& line) { line["stream"] = was.number; });
  return status;
}

bp_status RecordLayer::synchronize_stream(const bp_stream_ops& next, bp_stream* stream,
                                          uint64_t timeout_ns) {
  const bp_status status = next.synchronize(next.self, stream, timeout_ns);
  if (status == BP_TIMEOUT) return status;  // A wait that ran out has no effect.
  write("stream.synchronize", status, [&](Json& line) { line["stream"] = number_of(stream); });
  return status;
}

// Writes a query only if it reports that the work has ended: the program then goes on as after a
// wait.
bp_status RecordLayer::query_stream(const bp_stream_ops& next, bp_stream* stream,
                                    uint32_t* out_done) {
  const bp_status status = next.query(next.self, stream, out_done);
  if (status != BP_OK || *out_done == 0) return status;
  write("stream.query", status, [&](Json& line) { line["stream"] = number_of(stream); });
  return status;
}

bp_status RecordLayer::flush_stream(const bp_stream_ops& next, bp_stream* stream) {
  const bp_status status = next.flush(next.self, stream);
  write("stream.flush", status, [&](Json& line) { line["stream"] = number_of(stream); });
  return status;
}

bp_status RecordLayer::clear_failure(const bp_stream_ops& next, bp_stream* stream) {
  const bp_status status = next.clear_failure(next.self, stream);
  write("stream.clear_failure", status, [&](Json& line) { line["stream"] = number_of(stream); });
  return status;
}

bp_status RecordLayer::wait_event(const bp_stream_ops& next, bp_stream* stream, bp_event* event) {
  const bool is_capturing = is_captured(stream);
  const bp_status status = next.wait_event(next.self, stream, event);
  if (status == BP_OK && is_capturing) {
    return write_unrecorded("stream.wait_event", kCaptured), status;
  }
  write("stream.wait_event", status, [&](Json& line) {
    line["stream"] = number_of(stream);
    line["event"] = number_of(event);
  });
  return status;
}

// The recording has the place of a callback in the stream, but not what it does to memory of the
// host.
bp_status RecordLayer::add_callback(const bp_stream_ops& next, bp_stream* stream,
                                    bp_stream_callback_fn* callback, void* user_data) {
  const bp_status status = next.add_callback(next.self, stream, callback, user_data);
  write("stream.add_callback", status, [&](Json& line) { line["stream"] = number_of(stream); });
  return status;
}

// ---- Events -------------------------------------------------------------------------------------

bp_status RecordLayer::create_event(const bp_event_ops& next, bp_device* device,
                                    const bp_event_desc* desc, bp_event** out_event) {
  const bp_status status = next.create(next.self, device, desc, out_event);
  write("event.create", status, [&](Json& line) {
    line["device"] = number_of(device);
    line["event"] = events_.add(*out_event).number;
    line["flags"] = desc == nullptr ? 0 : desc->flags;
  });
  return status;
}

bp_status RecordLayer::destroy_event(const bp_event_ops& next, bp_event* event) {
  uint64_t number = 0;
  {
    const std::lock_guard lock(mutex_);
    number = events_.take(event);
  }
  const bp_status status = next.destroy(next.self, event);
  if (number == 0) return status;
  write("event.destroy", status, [&](Json& line) { line["event"] = number; });
  return status;
}

bp_status RecordLayer::record_event(const bp_event_ops& next, bp_event* event, bp_stream* stream) {
  const bool is_capturing = is_captured(stream);
  const bp_status status = next.record(next.self, event, stream);
  if (status == BP_OK && is_capturing) return write_unrecorded("event.record", kCaptured), status;
  write("event.record", status, [&](Json& line) {
    line["event"] = number_of(event);
    line["stream"] = number_of(stream);
  });
  return status;
}

bp_status RecordLayer::query_event(const bp_event_ops& next, bp_event* event, uint32_t* out_done) {
  const bp_status status = next.query(next.self, event, out_done);
  if (status != BP_OK || *out_done == 0) return status;
  write("event.query", status, [&](Json& line) { line["event"] = number_of(event); });
  return status;
}

bp_status RecordLayer::synchronize_event(const bp_event_ops& next, bp_event* event,
                                         uint64_t timeout_ns) {
  const bp_status status = next.synchronize(next.self, event, timeout_ns);
  if (status == BP_TIMEOUT) return status;
  write("event.synchronize", status, [&](Json& line) { line["event"] = number_of(event); });
  return status;
}

bp_status RecordLayer::signal_event(const bp_event_ops& next, bp_event* event, bp_status status) {
  write("event.signal", BP_OK, [&](Json& line) {
    line["event"] = number_of(event);
    line["signaled"] = status;
  });
  const bp_status result = next.signal(next.self, event, status);
  if (result != BP_OK) {
    write_unrecorded("event.signal",
                     "it failed (" + status_words(result) + ") after its line was written");
  }
  return result;
}

// ---- Devices ------------------------------------------------------------------------------------

bp_status RecordLayer::synchronize_device(const bp_device_ops& next, bp_device* device,
                                          uint64_t timeout_ns) {
  const bp_status status = next.synchronize(next.self, device, timeout_ns);
  if (status == BP_TIMEOUT) return status;
  write("device.synchronize", status, [&](Json& line) { line["device"] = number_of(device); });
  return status;
}

// A reset loses the handles of its device, except its default stream. The layer does not know the
// device of every handle, so handles of other devices lose their numbers too.
bp_status RecordLayer::reset_device(const bp_device_ops& next, bp_device* device) {
  const bp_status status = next.reset(next.self, device);
  if (status != BP_OK) return status;
  {
    const std::lock_guard lock(mutex_);
    buffers_.clear();
    streams_.keep_if([](const RecordedStream& facts) { return facts.is_lent; });
    events_.clear();
    semaphores_.clear();
  }
  write_unrecorded("device.reset", "");
  return status;
}

// ---- Launches -----------------------------------------------------------------------------------

bp_status RecordLayer::launch(const WrappedKernel& kernel, const bp_launch* launch,
                              const void* args) {
  const core::OpRow* row = core::find_op(core::op_of(kernel.kernel));
  const std::string defect = frame_defect(row, args);
  if (defect.empty()) {
    for (const FrameTensor& each : frame_tensors(*row, args)) {
      if (each.tensor != nullptr) write_host_bytes(each.tensor->buffer);
    }
  }
  const bool is_capturing = launch != nullptr && is_captured(launch->stream);
  const bp_status status = kernel.next->launch(kernel.next, launch, args);
  // Nothing was submitted, and the host tries another kernel.
  if (status == BP_UNSUPPORTED) return status;
  if (status == BP_OK && (!defect.empty() || is_capturing)) {
    write_unrecorded("kernel.launch", op_words(core::op_of(kernel.kernel)) + ": " +
                                          (defect.empty() ? std::string(kCaptured) : defect));
    return status;
  }
  Json outputs;
  if (status == BP_OK && wants_outputs_ != 0) outputs = read_outputs(*launch, row->op, args);
  if (status == BP_OK && core::is_runtime_op(*row)) describe(*row);
  write("kernel.launch", status, [&](Json& line) {
    fill_launch(line, kernel.kernel, *launch, args);
    if (!outputs.is_null()) line["outputs"] = std::move(outputs);
  });
  return status;
}

// Writes the description of an op in front of its first launch.
void RecordLayer::describe(const core::OpRow& row) {
  std::call_once(header_, [&] { write_header(); });
  const std::lock_guard lock(mutex_);
  if (!described_.insert(&row).second) return;
  append({{"call", "op.describe"}, {"op", row.name}, {"description", op_json(row)}});
}

void RecordLayer::fill_launch(Json& line, const bp_kernel& kernel, const bp_launch& launch,
                              const void* args) {
  const core::OpRow* row = core::find_op(core::op_of(kernel));
  line["launch"] = ++launch_count_;
  line["op"] = row->name;
  line["kernel"] = kernel.name == nullptr ? "" : kernel.name;
  line["device"] = number_of(launch.device);
  line["stream"] = number_of(launch.stream);
  line["flags"] = launch.flags & ~uint32_t{BP_LAUNCH_DEVICE_CURRENT};
  const bp_buffer_ref& workspace = launch.workspace;
  if (workspace.size_bytes != 0 && buffers_.number(workspace.buffer) != 0) {
    line["workspace"] = range(workspace);
  }
  line["args"] = frame_json(*row, args, [&](const bp_buffer* buffer) {
    const uint64_t number = buffers_.number(buffer);
    if (number == 0) throw Unknown{"a tensor lies in memory that the recording does not know"};
    return number;
  });
  for (const FrameTensor& each : frame_tensors(*row, args)) {
    if (each.is_written && each.tensor != nullptr) note_written(each.tensor->buffer);
  }
}

// Returns the bytes that the written tensors cover, gaps included, one behind the other.
Json RecordLayer::read_outputs(const bp_launch& launch, uint32_t op, const void* args) {
  Json outputs = Json::object();
  const bp_allocator_ops* memory = directory_.allocator(launch.device);
  for (const FrameTensor& each : frame_tensors(*core::find_op(op), args)) {
    if (!each.is_written || each.tensor == nullptr || memory == nullptr) continue;
    const Footprint where = footprint_of(*each.tensor);
    if (where.is_empty()) continue;
    std::vector<unsigned char> bytes(where.end - where.begin);
    const bp_buffer_ref range{where.buffer, where.begin, bytes.size()};
    const bp_status status = memory->copy_to_host(memory->self, launch.stream, bytes.data(), &range,
                                                  BP_BORROW_DURING_CALL, UINT64_MAX);
    if (status != BP_OK) {
      write_unrecorded("kernel.launch", "the output " + each.name + " could not be read");
      continue;
    }
    outputs[each.name] = {{"byte_offset", where.begin},
                          {"payload", recording_.store(bytes.data(), bytes.size())}};
  }
  return outputs;
}

}  // namespace bp::layers
