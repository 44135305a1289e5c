// A backend for the unit tests of captures and graphs. It only writes down its calls.
#pragma once

#include <gtest/gtest.h>

#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "backplane/ops.h"
#include "backplane/shell/capture_front.hpp"
#include "backplane/shell/graph.hpp"

namespace bp {

using Lines = std::vector<std::string>;

// The objects behind the backend's handles.
struct FakeDevice {};

struct FakeStream {
  operator bp_stream*() { return reinterpret_cast<bp_stream*>(this); }

  static constexpr uint32_t kMagic = 1;
  uint32_t magic = kMagic;
  std::string name;
  FakeDevice* device = nullptr;
  const FakeStream* queue = this;  // A second handle has the first stream here.
  bp_status failure = BP_OK;
};

struct FakeEvent {
  operator bp_event*() { return reinterpret_cast<bp_event*>(this); }
  const FakeEvent* latest() const { return was_recorded ? this : nullptr; }

  static constexpr uint32_t kMagic = 2;
  uint32_t magic = kMagic;
  std::string name;
  bp_event_flags flags = 0;
  bool was_recorded = false;
};

struct FakeBuffer {
  operator bp_buffer*() { return reinterpret_cast<bp_buffer*>(this); }

  static constexpr uint32_t kMagic = 3;
  uint32_t magic = kMagic;
  std::string name;
  uint64_t address = 0;
  uint64_t size_bytes = 4096;
};

// The instance of the backend.
struct FakeInstance {
  explicit FakeInstance(const bp_host& its_host);

  bp_status refuse(bp_status status, const char* reason) const {
    return host->set_error(host->self, status, reason);
  }

  // Writes down a call, unless its stream has failed or the test wants a refusal.
  bp_status submit(bp_stream* stream, const std::string& call);

  const bp_host* host;
  Hooks hooks;
  bp_allocator_ops allocator{};
  bp_stream_ops streams{};
  bp_event_ops events{};
  bp_device_ops devices{};
  bp_graph_ops graphs{};
  uint64_t generation = 0;
  std::unique_ptr<Captures> captures;

  std::mutex mutex;  // It guards `lines`.
  Lines lines;
  int calls_until_refusal = -1;       // If negative, no call is refused.
  bool fails_with_refusal = false;    // The refused call also fails its stream.
  bp_status kernel_status = BP_OK;    // The status of launches.
  std::deque<FakeEvent> made_events;  // create() made them.
  int live_event_count = 0;

 private:
  void fill_streams();
  void fill_events();
  void fill_allocator();
};

inline FakeInstance& fake(void* self) { return *static_cast<FakeInstance*>(self); }
inline FakeStream& fake(bp_stream* handle) { return *reinterpret_cast<FakeStream*>(handle); }
inline FakeEvent& fake(bp_event* handle) { return *reinterpret_cast<FakeEvent*>(handle); }

// Returns a text such as "x+16".
inline std::string place_text(bp_buffer* buffer, uint64_t byte_offset) {
  if (buffer == nullptr) return "none";
  return reinterpret_cast<FakeBuffer*>(buffer)->name + "+" + std::to_string(byte_offset);
}

struct FakeTraits {
  using Instance = FakeInstance;

  static const void* queue_of(bp_stream* handle) {
    const FakeStream* const s = object_of<FakeStream>(handle);
    return s == nullptr ? nullptr : s->queue;
  }
  static bp_device* device_of_stream(void*, bp_stream* handle) {
    return reinterpret_cast<bp_device*>(fake(handle).device);
  }
  static FakeEvent* event_of(bp_event* handle) { return object_of<FakeEvent>(handle); }
  static FakeBuffer* buffer_of(bp_buffer* handle) { return object_of<FakeBuffer>(handle); }
  static uint64_t address_of(const FakeBuffer& buffer) { return buffer.address; }
  static void fail(bp_stream* handle, bp_status status, const std::string&) {
    fake(handle).failure = status;
  }
};

inline FakeInstance::FakeInstance(const bp_host& its_host) : host(&its_host) {
  fill_streams();
  fill_events();
  fill_allocator();
  devices.self = this;
  devices.generation = [](void* self, bp_device*, uint64_t* out) -> bp_status {
    *out = fake(self).generation;
    return BP_OK;
  };
  offer_captures<FakeTraits>(*this);
}

inline bp_status FakeInstance::submit(bp_stream* stream, const std::string& call) {
  FakeStream& s = fake(stream);
  if (s.failure != BP_OK) return refuse(s.failure, "the stream has failed");
  const std::lock_guard lock(mutex);
  if (calls_until_refusal >= 0 && calls_until_refusal-- == 0) {
    if (fails_with_refusal) s.failure = BP_ABORTED;
    return refuse(BP_OUT_OF_MEMORY, "no memory for the call");
  }
  lines.push_back(s.name + ": " + call);
  return BP_OK;
}

inline void FakeInstance::fill_streams() {
  streams.self = this;
  streams.status = [](void* self, bp_stream* s) -> bp_status {
    const bp_status failure = fake(s).failure;
    return failure == BP_OK ? failure : fake(self).refuse(failure, "the stream has failed");
  };
  streams.destroy = [](void* self, bp_stream* s) { return fake(self).submit(s, "destroy"); };
  streams.query = [](void* self, bp_stream* s, uint32_t*) { return fake(self).submit(s, "query"); };
  streams.clear_failure = [](void* self, bp_stream* s) { return fake(self).submit(s, "clear"); };
  streams.flush = [](void* self, bp_stream* s) { return fake(self).submit(s, "flush"); };
  streams.synchronize = [](void* self, bp_stream* s, uint64_t) {
    return fake(self).submit(s, "synchronize");
  };
  streams.add_callback = [](void* self, bp_stream* s, bp_stream_callback_fn*, void*) {
    return fake(self).submit(s, "add_callback");
  };
  streams.wait_event = [](void* self, bp_stream* s, bp_event* e) {
    return fake(self).submit(s, "wait " + fake(e).name);
  };
}

inline void FakeInstance::fill_events() {
  events.self = this;
  events.create = [](void* self, bp_device*, const bp_event_desc*, bp_event** out_event) {
    FakeEvent& made = fake(self).made_events.emplace_back();
    made.name = "last";
    ++fake(self).live_event_count;
    *out_event = made;
    return bp_status{BP_OK};
  };
  events.destroy = [](void* self, bp_event*) {
    --fake(self).live_event_count;
    return bp_status{BP_OK};
  };
  events.record = [](void* self, bp_event* e, bp_stream* s) {
    const std::lock_guard lock(fake(self).mutex);
    fake(e).was_recorded = true;
    fake(self).lines.push_back(fake(s).name + ": record " + fake(e).name);
    return bp_status{BP_OK};  // The call works also on a stream that has failed.
  };
  events.query = [](void*, bp_event*, uint32_t*) { return bp_status{BP_OK}; };
  events.synchronize = [](void*, bp_event*, uint64_t) { return bp_status{BP_OK}; };
  events.elapsed_ns = [](void*, bp_event*, bp_event*, int64_t*) { return bp_status{BP_OK}; };
}

inline void FakeInstance::fill_allocator() {
  allocator.self = this;
  allocator.copy = [](void* self, bp_stream* s, const bp_buffer_ref* dst,
                      const bp_buffer_ref* src) {
    return fake(self).submit(s, "copy " + std::to_string(dst->size_bytes) + " " +
                                    place_text(src->buffer, src->byte_offset) + " -> " +
                                    place_text(dst->buffer, dst->byte_offset));
  };
  allocator.fill = [](void* self, bp_stream* s, const bp_buffer_ref* dst, const void* pattern,
                      uint64_t) {
    const int byte = *static_cast<const uint8_t*>(pattern);
    return fake(self).submit(s, "fill " + std::to_string(dst->size_bytes) + " " +
                                    place_text(dst->buffer, dst->byte_offset) + " with " +
                                    std::to_string(byte));
  };
  allocator.copy_from_host = [](void* self, bp_stream* s, const bp_buffer_ref*, const void*,
                                bp_borrow) { return fake(self).submit(s, "copy_from_host"); };
  allocator.copy_to_host = [](void* self, bp_stream* s, void*, const bp_buffer_ref*, bp_borrow,
                              uint64_t) { return fake(self).submit(s, "copy_to_host"); };
  allocator.allocate = [](void* self, bp_device*, const bp_allocate_desc* desc, bp_buffer**) {
    return fake(self).submit(desc->stream, "allocate");
  };
  allocator.deallocate = [](void* self, bp_buffer*, bp_stream* s) {
    return fake(self).submit(s, "deallocate");
  };
}

// The launch function of a kernel. It writes down where its tensors and its workspace lie.
inline bp_status launch_fake(const bp_kernel* kernel, const bp_launch* launch, const void* args) {
  FakeInstance& i = fake(kernel->state);
  const auto body = [&](bool only_checks) -> bp_status {
    if (i.kernel_status != BP_OK) return i.refuse(i.kernel_status, "the kernel says no");
    if (only_checks) return BP_OK;
    const bp_tensor& x = *static_cast<const bp_neg_args*>(args)->x;
    const bp_tensor& y = *static_cast<const bp_neg_args*>(args)->y;
    const bp_buffer_ref& workspace = launch->workspace;
    return i.submit(launch->stream, std::string(kernel->name) + " " + std::to_string(x.shape[0]) +
                                        " " + place_text(x.buffer, x.byte_offset) + " -> " +
                                        place_text(y.buffer, y.byte_offset) + " in " +
                                        place_text(workspace.buffer, workspace.byte_offset));
  };
  if (!i.hooks.is_capture_open()) return body(false);
  return guarded(*i.host,
                 [&] { return launch_in_capture(*i.captures, *kernel, *launch, args, body); });
}

class CaptureTest : public testing::Test {
 protected:
  CaptureTest() {
    for (bp_kernel* kernel : {&neg, &other, &eager}) {
      kernel->state = &backend;
      kernel->op = BP_OP_NEG;
      kernel->args_size_bytes = sizeof(bp_neg_args);
      kernel->flags = kernel == &eager ? 0 : BP_KERNEL_CAPTURABLE;
      kernel->launch = launch_fake;
    }
    neg.name = "neg";
    other.name = "other";
    eager.name = "eager";
  }

  // The host keeps the error text of the test's thread.
  bp_host make_host() {
    bp_host made{};
    made.self = this;
    made.set_error = [](void* self, bp_status status, const char* reason) {
      auto& test = *static_cast<CaptureTest*>(self);
      test.text = reason;
      if (test.on_error) std::exchange(test.on_error, nullptr)();
      return status;
    };
    return made;
  }

  // Returns the calls that the backend got since the last take().
  Lines take() { return std::exchange(backend.lines, {}); }

  bp_status begin(bp_stream* stream, const std::vector<bp_buffer_ref>& slots = {}) {
    const bp_capture_desc desc{.struct_size = sizeof(desc),
                               .struct_type = BP_STRUCT_CAPTURE_DESC,
                               .next = nullptr,
                               .slots = slots.data(),
                               .slot_count = slots.size()};
    return graphs.begin_capture(graphs.self, stream, &desc);
  }
  bp_capture_info info(bp_stream* stream) {
    bp_capture_info info{};
    info.struct_size = sizeof(info);
    info.struct_type = BP_STRUCT_CAPTURE_INFO;
    EXPECT_EQ(graphs.capture_info(graphs.self, stream, &info), BP_OK) << text;
    return info;
  }
  bp_graph* end(bp_stream* stream) {
    bp_graph* graph = nullptr;
    EXPECT_EQ(graphs.end_capture(graphs.self, stream, &graph), BP_OK) << text;
    return graph;
  }
  bp_status abandon(bp_stream* stream) { return graphs.end_capture(graphs.self, stream, nullptr); }
  bp_graph_instance* instantiate(bp_graph* graph) {
    bp_graph_instance* instance = nullptr;
    EXPECT_EQ(graphs.instantiate(graphs.self, graph, &instance), BP_OK) << text;
    return instance;
  }
  bp_status replay(bp_graph_instance* instance, bp_stream* stream) {
    return graphs.launch(graphs.self, instance, stream);
  }

  bp_status fill(bp_stream* stream, const bp_buffer_ref& range, uint8_t value = 1) {
    return backend.allocator.fill(&backend, stream, &range, &value, 1);
  }
  bp_status copy(bp_stream* stream, const bp_buffer_ref& src, const bp_buffer_ref& dst) {
    return backend.allocator.copy(&backend, stream, &dst, &src);
  }
  // Launches a kernel on f32 tensors that lie in the ranges.
  bp_status launch(const bp_kernel& kernel, bp_stream* stream, const bp_buffer_ref& in,
                   const bp_buffer_ref& out, const bp_buffer_ref& workspace = {}) {
    const auto extent = static_cast<int64_t>(in.size_bytes / sizeof(float));
    const int64_t stride = 1;
    const auto tensor_of = [&](const bp_buffer_ref& range) {
      bp_tensor tensor{};
      tensor.buffer = range.buffer;
      tensor.byte_offset = range.byte_offset;
      tensor.shape = &extent;
      tensor.strides = &stride;
      tensor.ndim = 1;
      tensor.dtype = BP_F32;
      return tensor;
    };
    const bp_tensor from = tensor_of(in), to = tensor_of(out);
    const bp_neg_args args{.struct_size = sizeof(args), .flags = 0, .x = &from, .y = &to};
    bp_launch call{};
    call.stream = stream;
    call.workspace = workspace;
    return kernel.launch(&kernel, &call, &args);
  }
  bp_status record(bp_event* event, bp_stream* stream) {
    return backend.events.record(&backend, event, stream);
  }
  bp_status wait(bp_stream* stream, bp_event* event) {
    return backend.streams.wait_event(&backend, stream, event);
  }

  std::string text;
  std::function<void()> on_error;  // It runs once, when the host gets a failure.
  const bp_host host = make_host();
  FakeInstance backend{host};
  const bp_graph_ops& graphs = backend.graphs;
  bp_kernel neg{}, other{}, eager{};  // `eager` is not capturable.
  FakeDevice card, other_card;
  FakeStream s{.name = "s", .device = &card}, t{.name = "t", .device = &card};
  FakeStream u{.name = "u", .device = &card}, far{.name = "far", .device = &other_card};
  FakeEvent e{.name = "e"}, f{.name = "f"};
  FakeBuffer x{.name = "x", .address = 0x10000}, y{.name = "y", .address = 0x20000};
  FakeBuffer z{.name = "z", .address = 0x30000};
};

}  // namespace bp
