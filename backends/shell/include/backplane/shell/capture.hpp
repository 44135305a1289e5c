// Captures for backends without graphs of their own. Work that is submitted to a capturing stream
// is kept as Work objects; a replay submits them again.
//
// The backend's streams and events do not change. Side tables in this class say which streams
// capture and which events were recorded in a capture. While no capture is open, a submission costs
// one relaxed load. The order of a capture is the order of its calls. This order respects every
// edge that events made, so a replay may run on one stream. The class follows edges only to tell
// whether each stream was joined again.
//
// A backend puts CaptureFront (capture_front.hpp) in front of its tables, lets its launches ask
// is_capturing(), and registers graphs() as its table.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "backplane/graph.h"
#include "backplane/shell/boundary.hpp"
#include "backplane/shell/buffers.hpp"
#include "backplane/shell/hooks.hpp"
#include "backplane/shell/work.hpp"

namespace bp {

// The state of an event, which the backend gives.
struct EventState {
  bool is_known = false;  // It is an event of this backend.
  bool is_host_signalled = false;
  bool was_recorded = false;
};

struct Graph;
struct GraphInstance;

// What captures need of a backend. The functions take handles that may be NULL or foreign.
struct CaptureBackend {
  const bp_host* host;
  Hooks* hooks;
  bp_allocator_ops memory;  // With its self, and without CaptureFront.
  bp_stream_ops streams;
  bp_event_ops events;
  bp_device_ops devices;

  // Returns an address that is the same for all handles of one queue, or NULL if the handle is not
  // of this backend.
  const void* (*queue_of)(bp_stream* stream);
  bp_device* (*device_of)(void* self, bp_stream* stream);
  EventState (*state_of)(bp_event* event);

  // Gives the size of a buffer. Returns false if the buffer is not of this backend.
  bool (*size_of)(bp_buffer* buffer, uint64_t& out_size_bytes);

  // Returns the address of the first byte of a buffer, or 0 if the buffer is not of this backend.
  uint64_t (*address_of)(bp_buffer* buffer);

  // Makes the work that was submitted to `stream` end in a failure.
  void (*fail)(bp_stream* stream, bp_status status, const std::string& text);

  // Optional; submits all work of `instance` at once, or none of it. If it is NULL, each piece of
  // work is submitted by itself.
  bp_status (*replay)(void* self, GraphInstance& instance, bp_stream* stream) = nullptr;
};

class Captures {
 public:
  explicit Captures(const CaptureBackend& backend);
  Captures(const Captures&) = delete;
  ~Captures();

  const CaptureBackend& backend() const { return backend_; }
  bp_graph_ops graphs();

  bool is_capturing(bp_stream* stream) const {
    return backend_.hooks->is_capture_open() && has_seat(stream);
  }
  // Throws StatusError of BP_UNSUPPORTED if a call of a process group, whose texts begin with
  // `name`, is for a stream that captures: a graph would not have it.
  void refuse_collective(bp_stream* stream, const std::string& name) const;

  // Returns whether the latest record of `event` was captured.
  bool is_captured(bp_event* event) const {
    return mark_count_.load(std::memory_order_relaxed) != 0 && has_mark(event);
  }

  // Refuses a call that is not legal on a capturing stream, such as refuse("stream.query").
  // refuse_captured() refuses a call that is not legal on a captured event.
  bp_status refuse(const char* call) const;
  bp_status refuse_captured(const char* call) const;

  // Returns BP_OK, or refuses the call if the stream has failed.
  bp_status admit(bp_stream* stream, const char* call) const;

  // Keeps a launch in the capture. `check` does everything that a launch does except submit, and
  // returns whether the launch would be accepted. What keeps the launch also keeps `pin`.
  template <typename Check>
  bp_status launch(const bp_kernel& kernel, const bp_launch& launch, const void* args,
                   Check&& check, std::shared_ptr<const void> pin = nullptr) {
    if ((kernel.flags & BP_KERNEL_CAPTURABLE) == 0) return refuse_kernel(kernel);
    const bp_status status = check();
    if (status != BP_OK) return status;
    Work work = Work::launch(*backend_.host, kernel, launch, args);
    work.pin = std::move(pin);
    return keep(launch.stream, std::move(work));
  }

  // These functions replace the entries of the tables for a capturing stream or a captured event.
  // `call` is the name of the entry that copies.
  bp_status copy(const char* call, Work::Kind kind, bp_stream* stream, const bp_buffer_ref* dst,
                 const bp_buffer_ref* src);
  bp_status fill(bp_stream* stream, const bp_buffer_ref* dst, const void* pattern,
                 uint64_t pattern_size_bytes);
  bp_status record(bp_event* event, bp_stream* stream);
  bp_status wait_event(bp_stream* stream, bp_event* event);
  void forget(bp_event* event);

  // Ends the captures on a device that was reset. Its graphs and their instances are lost by then,
  // because they are of an earlier generation.
  void lose(bp_device* device);

  // The entries of bp_graph_ops.
  bp_status begin(bp_stream* stream, const bp_capture_desc* desc);
  bp_status info(bp_stream* stream, bp_capture_info* out_info);
  bp_status end(bp_stream* stream, bp_graph** out_graph);
  bp_status instantiate(bp_graph* graph, bp_graph_instance** out_instance);
  bp_status bind(bp_graph_instance* instance, uint64_t slot, const bp_buffer_ref* range);
  bp_status update(bp_graph_instance* instance, bp_graph* graph);
  bp_status replay(bp_graph_instance* instance, bp_stream* stream);
  bp_status destroy(bp_graph* graph);
  bp_status destroy(bp_graph_instance* instance);
  bp_status dump(bp_graph* graph, uint64_t capacity, char* text, uint64_t* out_size);

 private:
  // A vector clock. Its element at a stream's place is the number of steps of that stream that a
  // step or an event comes after.
  using Clock = std::vector<uint64_t>;

  struct Capture {
    uint64_t id = 0;
    const void* origin = nullptr;
    bp_device* device = nullptr;
    uint64_t generation = 0;  // That of the device.
    std::vector<bp_buffer_ref> slots;
    std::vector<Work> works;
    std::vector<Clock> clocks;  // One for each stream, the origin first.
  };
  struct Seat {
    std::shared_ptr<Capture> capture;
    size_t place = 0;
  };
  struct Mark {
    std::weak_ptr<Capture> capture;
    Clock clock;
    bp_device* device;
  };

  bool has_seat(bp_stream* stream) const;
  bool has_mark(bp_event* event) const;
  Seat* find_seat(bp_stream* stream);
  bp_status refuse_kernel(const bp_kernel& kernel) const;
  bp_status fail(bp_status status, const std::string& text) const {
    return backend_.host->set_error(backend_.host->self, status, text.c_str());
  }
  bp_status keep(bp_stream* stream, Work work);
  bp_status wait_in_capture(bp_stream* stream, bp_status before, const Mark& mark);
  bp_status join(bp_stream* stream, bp_status before, const std::shared_ptr<Capture>& capture);
  uint64_t next_id();
  void check_range(const bp_buffer_ref* range, const std::string& what) const;
  ByteRange bytes_of(const bp_buffer_ref& range) const;
  std::vector<bp_buffer_ref> read_slots(const bp_capture_desc& desc) const;
  bp_status check_before_launch(const GraphInstance& instance) const;
  bool has_ended(const GraphInstance& instance) const;
  bp_status submit_works(const GraphInstance& instance, bp_stream* stream,
                         bool& out_has_begun) const;
  Graph& checked(bp_graph* graph, const char* call) const;
  GraphInstance& checked(bp_graph_instance* instance, const char* call) const;
  // Returns what checked() returns, and throws StatusError if a reset of the device has lost it.
  template <typename Handle>
  auto& living(Handle* handle, const char* call) const;

  const CaptureBackend backend_;
  std::atomic<uint32_t> mark_count_ = 0;
  // It guards the members below. Code that holds it throws its failures and gives the host no text,
  // because the host may call the backend again.
  mutable std::mutex mutex_;
  uint64_t last_id_ = 0;
  std::unordered_map<const void*, Seat> seats_;  // The key is the queue.
  std::unordered_map<bp_event*, Mark> marks_;
  std::unordered_set<Graph*> graphs_;
  std::unordered_set<GraphInstance*> instances_;
};

}  // namespace bp
