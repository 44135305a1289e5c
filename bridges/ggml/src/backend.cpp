// A stream of a device as a backend of ggml: graphs, asynchronous copies, events.
#include <exception>
#include <new>

#include "backplane/transfers.h"
#include "log.h"
#include "lower.h"

namespace bpg {
namespace {

struct Backend {
  Backend(Device& the_device, bp_stream* the_stream)
      : device(the_device), stream(the_stream), emitter(the_device, the_stream) {}

  Device& device;
  bp_stream* stream;
  Emitter emitter;
};

Backend& backend_of(ggml_backend_t backend) { return *static_cast<Backend*>(backend->context); }

const char* name_of(ggml_backend_t backend) { return backend_of(backend).device.name.c_str(); }

void free_backend(ggml_backend_t backend) {
  Backend* const held = &backend_of(backend);
  Device& device = held->device;
  bp_stream* const stream = held->stream;
  delete held;
  device.remove_stream(stream);
  device.target->streams->destroy(device.target->streams->self, stream);
  delete backend;
}

// Says what failed first on the stream, and lets later work run again.
void end_failure(Backend& backend, const char* when) {
  const bp_stream_ops* const streams = backend.device.target->streams;
  const bp_status status = streams->status(streams->self, backend.stream);
  if (status == BP_OK) return;
  log_error(failure_text(status, backend.device.name + " " + when));
  streams->clear_failure(streams->self, backend.stream);
}

template <typename Fn>
bool try_to(Backend& backend, const char* what, const Fn& fn) {
  try {
    fn();
    return true;
  } catch (const std::exception& failure) {
    log_error(backend.device.name + " " + what + ": " + failure.what());
    end_failure(backend, "has failed before");
    return false;
  }
}

void set_tensor_async(ggml_backend_t backend, ggml_tensor* tensor, const void* data, size_t offset,
                      size_t size) {
  Backend& held = backend_of(backend);
  try_to(held, "did not write a tensor", [&] {
    uint64_t begin = 0;
    bp_block* const block = block_of(tensor, &begin);
    check(bp_block_upload(block, begin + offset, data, size, held.stream, nullptr, nullptr),
          "block_upload");
  });
}

void get_tensor_async(ggml_backend_t backend, const ggml_tensor* tensor, void* data, size_t offset,
                      size_t size) {
  Backend& held = backend_of(backend);
  try_to(held, "did not read a tensor", [&] {
    uint64_t begin = 0;
    bp_block* const block = block_of(tensor, &begin);
    check(bp_block_download(block, begin + offset, data, size, held.stream, nullptr, nullptr),
          "block_download");
  });
}

void synchronize(ggml_backend_t backend) {
  Backend& held = backend_of(backend);
  const bp_stream_ops* const streams = held.device.target->streams;
  const bp_status status = streams->synchronize(streams->self, held.stream, UINT64_MAX);
  if (status != BP_OK) end_failure(held, "failed in a graph");
}

// The copy of one device runs behind the work of the source, and the destination waits for it.
bool cpy_tensor_async(ggml_backend_t from, ggml_backend_t to, const ggml_tensor* src,
                      ggml_tensor* dst) {
  if (from->iface.free != free_backend || to->iface.free != free_backend) return false;
  Backend &source = backend_of(from), &target = backend_of(to);
  if (&source.device != &target.device || ggml_nbytes(src) != ggml_nbytes(dst)) return false;
  try {
    const bp_target* const device = source.device.target;
    const bp_buffer_ref read = place_of(src), written = place_of(dst);
    check(device->allocator->copy(device->allocator->self, source.stream, &written, &read),
          "allocator.copy");
    if (source.stream == target.stream) return true;
    bp_event* event = nullptr;
    check(device->events->create(device->events->self, device->device, nullptr, &event),
          "event.create");
    bp_status status = device->events->record(device->events->self, event, source.stream);
    if (status == BP_OK) {
      status = device->streams->wait_event(device->streams->self, target.stream, event);
    }
    device->events->destroy(device->events->self, event);
    check(status, "stream.wait_event");
    return true;
  } catch (const Failure&) {
    return false;  // ggml then copies through the host, and that copy reports what is wrong.
  }
}

ggml_status status_of(bp_status status) {
  return status == BP_OUT_OF_MEMORY ? GGML_STATUS_ALLOC_FAILED : GGML_STATUS_FAILED;
}

std::string text_of(const ggml_tensor* node) {
  return std::string(ggml_op_desc(node)) + " (" + node->name + ")";
}

ggml_status compute(ggml_backend_t backend, ggml_cgraph* graph) {
  Backend& held = backend_of(backend);
  const int count = ggml_graph_n_nodes(graph);
  ggml_status result = GGML_STATUS_SUCCESS;
  for (int i = 0; i < count && result == GGML_STATUS_SUCCESS; ++i) {
    const ggml_tensor* const node = ggml_graph_node(graph, i);
    // llama.cpp also lists the branches of a selection that it has not chosen. Their inputs have no
    // values.
    if ((node->flags & GGML_TENSOR_FLAG_COMPUTE) == 0) continue;
    try {
      lower(held.emitter, node);
    } catch (const Refusal& refusal) {
      log_error(held.device.name + " does not compute " + text_of(node) + ": " + refusal.what());
      result = GGML_STATUS_FAILED;
    } catch (const Failure& failure) {
      log_error(held.device.name + " did not compute " + text_of(node) + ": " + failure.what());
      result = status_of(failure.status);
    } catch (const std::bad_alloc&) {
      log_error(held.device.name + " did not compute " + text_of(node) + ": no host memory");
      result = GGML_STATUS_ALLOC_FAILED;
    }
    held.emitter.end_node();
  }
  held.emitter.end_graph();
  const bp_stream_ops* const streams = held.device.target->streams;
  streams->flush(streams->self, held.stream);
  if (result != GGML_STATUS_SUCCESS) end_failure(held, "has failed before");
  return result;
}

bp_event* event_of(ggml_backend_event_t event) { return static_cast<bp_event*>(event->context); }

void event_record(ggml_backend_t backend, ggml_backend_event_t event) {
  Backend& held = backend_of(backend);
  try_to(held, "did not record an event", [&] {
    const bp_event_ops* const events = held.device.target->events;
    check(events->record(events->self, event_of(event), held.stream), "event.record");
  });
}

void event_wait(ggml_backend_t backend, ggml_backend_event_t event) {
  Backend& held = backend_of(backend);
  try_to(held, "did not wait for an event", [&] {
    const bp_stream_ops* const streams = held.device.target->streams;
    check(streams->wait_event(streams->self, held.stream, event_of(event)), "stream.wait_event");
  });
}

ggml_guid kGuid = {0xb4, 0xc1, 0x5e, 0x02, 0x7a, 0x90, 0x4d, 0x3b,
                   0x8f, 0x66, 0x21, 0xd8, 0xe3, 0x05, 0x9c, 0x47};

constexpr ggml_backend_i kBackendFunctions = {
    .get_name = name_of,
    .free = free_backend,
    .set_tensor_async = set_tensor_async,
    .get_tensor_async = get_tensor_async,
    .set_tensor_2d_async = nullptr,
    .get_tensor_2d_async = nullptr,
    .cpy_tensor_async = cpy_tensor_async,
    .synchronize = synchronize,
    .graph_plan_create = nullptr,
    .graph_plan_free = nullptr,
    .graph_plan_update = nullptr,
    .graph_plan_compute = nullptr,
    .graph_compute = compute,
    .event_record = event_record,
    .event_wait = event_wait,
    .graph_optimize = nullptr,
};

}  // namespace

ggml_backend_t new_backend(Device& device) {
  const bp_stream_ops* const streams = device.target->streams;
  bp_stream* stream = nullptr;
  const bp_status status = streams->create(streams->self, device.target->device, nullptr, &stream);
  if (status != BP_OK) {
    log_error(failure_text(status, device.name + " has no stream for a backend"));
    return nullptr;
  }
  device.add_stream(stream);
  return new ggml_backend{&kGuid, kBackendFunctions, &device.ggml, new Backend(device, stream)};
}

}  // namespace bpg
