#include "backends/cuda/fake/tour.hpp"

#include <algorithm>

#include "backends/cuda/fake/cuda.hpp"

namespace bp::cuda::fake {
namespace {

constexpr uint64_t kSize = 4096;
constexpr uint64_t kLargeSize = uint64_t{3} << 20;  // It needs more than one staging block.
constexpr uint64_t kTimeoutNs = 20'000'000'000;

}  // namespace

bool Tour::took(bp_status status, const char* entry) {
  if (status != BP_OK) refusals_.push_back({entry, status, b_.text});
  return status == BP_OK;
}

bp_buffer* Tour::allocate(uint64_t size_bytes, uint64_t heap_mask, bp_memory_usage usage,
                          bp_stream* stream) {
  const bp_allocate_desc desc{.struct_size = sizeof(desc),
                              .struct_type = BP_STRUCT_ALLOCATE_DESC,
                              .size_bytes = size_bytes,
                              .stream = stream,
                              .heap_mask = heap_mask,
                              .usage = usage};
  bp_buffer* buffer = nullptr;
  if (took(b_.allocator->allocate(b_.allocator->self, b_.device, &desc, &buffer), "allocate")) {
    buffers_.push_back(buffer);
  }
  return buffer;
}

std::vector<char>& Tour::host_bytes(uint64_t size_bytes, char value) {
  return host_.emplace_back(size_bytes, value);
}

void Tour::synchronize(bp_stream* stream) {
  took(b_.streams->synchronize(b_.streams->self, stream, kTimeoutNs), "stream.synchronize");
}

void Tour::visit_device() {
  const bp_device_ops& d = *b_.devices;
  const bp_device_properties* properties = nullptr;
  uint64_t free_bytes = 0, total_bytes = 0;
  took(d.properties(d.self, b_.device, &properties), "device.properties");
  took(d.memory_info(d.self, b_.device, 0, &free_bytes, &total_bytes), "device.memory_info");
  took(d.synchronize(d.self, b_.device, kTimeoutNs), "device.synchronize");
  bp_device *previous = nullptr, *ours = nullptr;
  uint32_t is_initialized = 0;
  took(b_.guard->is_initialized(b_.guard->self, b_.device, &is_initialized), "is_initialized");
  if (took(b_.guard->exchange(b_.guard->self, b_.device, &previous), "exchange")) {
    if (took(b_.guard->exchange(b_.guard->self, previous, &ours), "exchange")) {
      is_right_ = is_right_ && ours == b_.device;
    }
  }
}

void Tour::visit_memory() {
  const bp_allocator_ops& m = *b_.allocator;
  here_ = allocate(kSize, 0, 0, nullptr);
  there_ = allocate(kSize, 0, 0, nullptr);
  if (bp_buffer* const pinned = allocate(kSize, 2, 0, nullptr); pinned != nullptr) {
    const bp_buffer_ref whole{pinned, 0, kSize};
    void* pointer = nullptr;
    if (took(m.map(m.self, &whole, &pointer), "map"))
      took(m.unmap(m.self, pinned, pointer), "unmap");
    took(m.deallocate(m.self, pinned, first_),
         "deallocate");  // It is freed in the order of the stream.
    std::erase(buffers_, pinned);
  }
  if (bp_buffer* const ordered = allocate(kSize, 0, BP_MEMORY_STREAM_ORDERED, first_);
      ordered != nullptr) {
    took(m.deallocate(m.self, ordered, first_), "deallocate");
    std::erase(buffers_, ordered);
  }
  took(m.register_host(m.self, b_.device, host_bytes(kSize, 'r').data(), kSize, &registered_),
       "register_host");
}

void Tour::visit_copies() {
  if (here_ == nullptr || there_ == nullptr) return;
  const bp_allocator_ops& m = *b_.allocator;
  const bp_buffer_ref here{here_, 0, kSize}, there{there_, 0, kSize};
  std::vector<char>&written = host_bytes(kSize, 'a'), &read = host_bytes(kSize, 'x');
  took(m.copy_from_host(m.self, first_, &here, written.data(), BP_BORROW_DURING_CALL),
       "copy_from_host");
  took(m.copy(m.self, first_, &there, &here), "copy");
  took(m.copy_to_host(m.self, first_, read.data(), &there, BP_BORROW_UNTIL_COMPLETE, UINT64_MAX),
       "copy_to_host");
  synchronize(first_);
  if (refusals_.empty()) is_right_ = is_right_ && read == written;
  const char pattern[] = {'b', 'c', 'd', 'e'};
  took(m.fill(m.self, first_, &there, pattern, 1), "fill");
  took(m.fill(m.self, first_, &there, pattern, 4), "fill");
  took(m.copy_to_host(m.self, first_, read.data(), &there, BP_BORROW_DURING_CALL, UINT64_MAX),
       "copy_to_host");
  if (refusals_.empty()) is_right_ = is_right_ && read[0] == 'b' && read[kSize - 1] == 'e';
  if (bp_buffer* const large = allocate(kLargeSize, 0, 0, nullptr); large != nullptr) {
    const bp_buffer_ref whole{large, 0, kLargeSize};
    took(m.copy_from_host(m.self, first_, &whole, host_bytes(kLargeSize, 'f').data(),
                          BP_BORROW_UNTIL_COMPLETE),
         "copy_from_host");
    synchronize(first_);
  }
}

void Tour::visit_events() {
  const bp_event_ops& e = *b_.events;
  bp_event* timed[2] = {};
  for (bp_event*& event : timed) {
    const bp_event_desc desc{
        .struct_size = sizeof(desc), .struct_type = BP_STRUCT_EVENT_DESC, .flags = BP_EVENT_TIMING};
    if (took(e.create(e.self, b_.device, &desc, &event), "event.create")) events_.push_back(event);
  }
  if (timed[0] == nullptr || timed[1] == nullptr) return;
  bool are_recorded = true;
  for (bp_event* event : timed) {
    are_recorded = took(e.record(e.self, event, first_), "event.record") && are_recorded;
  }
  took(b_.streams->wait_event(b_.streams->self, second_, timed[1]), "stream.wait_event");
  uint32_t done = 0;
  took(e.query(e.self, timed[0], &done), "event.query");
  took(e.synchronize(e.self, timed[0], UINT64_MAX), "event.synchronize");
  took(e.synchronize(e.self, timed[1], kTimeoutNs), "event.synchronize");
  int64_t elapsed_ns = 0;
  if (are_recorded && refusals_.empty()) {
    took(e.elapsed_ns(e.self, timed[0], timed[1], &elapsed_ns), "event.elapsed_ns");
  }
  uint32_t is_capturing = 0;
  took(b_.streams->is_capturing(b_.streams->self, first_, &is_capturing), "is_capturing");
  took(b_.streams->query(b_.streams->self, first_, &done), "stream.query");
  took(b_.streams->synchronize(b_.streams->self, second_, UINT64_MAX), "stream.synchronize");
}

// Submits work that waits for a signal of the host, and a callback after it.
void Tour::visit_held_stream() {
  if (here_ == nullptr) return;
  const bp_event_ops& e = *b_.events;
  const bp_event_desc desc{.struct_size = sizeof(desc),
                           .struct_type = BP_STRUCT_EVENT_DESC,
                           .flags = BP_EVENT_HOST_SIGNAL};
  bp_event* signal = nullptr;
  if (!took(e.create(e.self, b_.device, &desc, &signal), "event.create")) return;
  events_.push_back(signal);
  took(b_.streams->wait_event(b_.streams->self, second_, signal), "stream.wait_event");
  const bp_buffer_ref here{here_, 0, kSize};
  took(b_.allocator->copy_from_host(b_.allocator->self, second_, &here,
                                    host_bytes(kSize, 'w').data(), BP_BORROW_DURING_CALL),
       "copy_from_host");
  std::atomic<int> calls = 0;
  const bool is_added =
      took(b_.streams->add_callback(
               b_.streams->self, second_,
               [](void* count, bp_status) { ++*static_cast<std::atomic<int>*>(count); }, &calls),
           "add_callback");
  took(e.signal(e.self, signal, BP_OK), "signal");
  synchronize(second_);
  for (int i = 0; i < 2000 && is_added && calls == 0; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  is_right_ = is_right_ && calls == (is_added ? 1 : 0);
}

// Lets one stream wait for a value that work of another one signals.
void Tour::visit_semaphore() {
  if (here_ == nullptr) return;
  const bp_semaphore_ops& s = *b_.semaphores;
  if (!took(s.create(s.self, b_.device, nullptr, &semaphore_), "semaphore.create")) return;
  took(s.submit_wait(s.self, second_, semaphore_, 1), "submit_wait");
  const bp_buffer_ref here{here_, 0, kSize};
  took(b_.allocator->copy_from_host(b_.allocator->self, second_, &here,
                                    host_bytes(kSize, 's').data(), BP_BORROW_DURING_CALL),
       "copy_from_host");
  // If the stream cannot signal, the host does, and the second stream ends.
  if (!took(s.submit_signal(s.self, first_, semaphore_, 1), "submit_signal")) {
    took(s.signal(s.self, semaphore_, 1), "semaphore.signal");
  }
  synchronize(second_);
  // The second stream may have failed, and not have waited.
  took(s.synchronize(s.self, semaphore_, 1, kTimeoutNs), "semaphore.synchronize");
  uint64_t value = 0;
  if (took(s.query(s.self, semaphore_, &value), "semaphore.query")) {
    is_right_ = is_right_ && value == 1;
  }
}

void Tour::visit_graph() {
  if (here_ == nullptr || there_ == nullptr) return;
  const bp_graph_ops& g = *b_.graphs;
  const bp_allocator_ops& m = *b_.allocator;
  const bp_buffer_ref here{here_, 0, kSize}, there{there_, 0, kSize};
  const bp_capture_desc desc{.struct_size = sizeof(desc),
                             .struct_type = BP_STRUCT_CAPTURE_DESC,
                             .slots = &there,
                             .slot_count = 1};
  if (!took(g.begin_capture(g.self, first_, &desc), "begin_capture")) return;
  took(m.copy(m.self, first_, &there, &here), "copy");
  took(m.fill(m.self, first_, &here, "gh", 2), "fill");
  if (!took(g.end_capture(g.self, first_, &graph_), "end_capture")) return;
  if (!took(g.instantiate(g.self, graph_, &instance_), "instantiate")) return;
  took(g.launch(g.self, instance_, first_), "graph.launch");
  if (bp_buffer* const other = allocate(kSize, 0, 0, nullptr); other != nullptr) {
    const bp_buffer_ref range{other, 0, kSize};
    took(g.bind(g.self, instance_, 0, &range), "bind");
    took(g.launch(g.self, instance_, first_), "graph.launch");
    const std::vector<char>& read = host_bytes(kSize, 'x');
    took(m.copy_to_host(m.self, first_, host_.back().data(), &range, BP_BORROW_DURING_CALL,
                        UINT64_MAX),
         "copy_to_host");
    if (refusals_.empty()) is_right_ = is_right_ && read[0] == 'g' && read[1] == 'h';
  }
  synchronize(first_);
}

void Tour::visit_peer() {
  if (here_ == nullptr || b_.all_devices.size() < 2) return;
  const bp_allocator_ops& m = *b_.allocator;
  bp_peer_info info{.struct_size = sizeof(info), .struct_type = BP_STRUCT_PEER_INFO};
  took(m.peer_info(m.self, b_.device, b_.all_devices[1], &info), "peer_info");
  const bp_allocate_desc desc{
      .struct_size = sizeof(desc), .struct_type = BP_STRUCT_ALLOCATE_DESC, .size_bytes = kSize};
  bp_buffer* far_away = nullptr;
  if (!took(m.allocate(m.self, b_.all_devices[1], &desc, &far_away), "allocate")) return;
  buffers_.push_back(far_away);
  const bp_buffer_ref far_range{far_away, 0, kSize}, here{here_, 0, kSize};
  took(m.copy_peer(m.self, first_, &far_range, &here), "copy_peer");
  synchronize(first_);
}

bool Tour::run() {
  const bp_stream_ops& s = *b_.streams;
  if (!took(s.create(s.self, b_.device, nullptr, &first_), "stream.create")) return is_right_;
  if (!took(s.create(s.self, b_.device, nullptr, &second_), "stream.create")) return is_right_;
  visit_device();
  visit_memory();
  visit_copies();
  visit_events();
  visit_held_stream();
  visit_semaphore();
  visit_graph();
  visit_peer();
  took(s.status(s.self, first_), "stream.status");
  return is_right_;
}

void Tour::end() {
  const auto ended = [&](bp_status status, const char* entry) {
    if (status != BP_OK) refused_ends_.push_back({entry, status, b_.text});
  };
  if (b_.backend == nullptr) return;
  finish();
  const bp_graph_ops& g = *b_.graphs;
  ended(g.destroy_instance(g.self, std::exchange(instance_, nullptr)), "destroy_instance");
  ended(g.destroy(g.self, std::exchange(graph_, nullptr)), "graph.destroy");
  ended(b_.semaphores->destroy(b_.semaphores->self, std::exchange(semaphore_, nullptr)),
        "semaphore.destroy");
  for (bp_event* event : events_)
    ended(b_.events->destroy(b_.events->self, event), "event.destroy");
  for (bp_stream* stream : {first_, second_}) {
    ended(b_.streams->destroy(b_.streams->self, stream), "stream.destroy");
  }
  const bp_allocator_ops& m = *b_.allocator;
  if (registered_ != nullptr) ended(m.unregister_host(m.self, registered_), "unregister_host");
  for (bp_buffer* buffer : buffers_) ended(m.deallocate(m.self, buffer, nullptr), "deallocate");
  events_.clear();
  buffers_.clear();
  first_ = second_ = nullptr;
  registered_ = nullptr;
}

}  // namespace bp::cuda::fake
