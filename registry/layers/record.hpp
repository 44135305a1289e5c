// record: writes what a program did on a backend as a stream of commands that can be run again.
//
// One lock orders the lines. A call that makes something is written after it has returned. A call
// that ends something gives up its number before it runs, since another thread may get the handle
// at once. Signals are written before the call, because what they release may be written meanwhile.
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "registry/calls/op_rows.hpp"
#include "registry/layers/at_exit.hpp"
#include "registry/layers/directory.hpp"
#include "registry/layers/record_numbers.hpp"
#include "registry/layers/recording.hpp"
#include "registry/layers/slots.hpp"

namespace bp::layers {

// The reason for which a call on a stream that is capturing is written as unrecorded.
inline constexpr const char* kCaptured = "it is submitted to a capture";

class RecordLayer final : public Layer {
 public:
  using Layer::Layer;

  bp_status check() override;
  bp_status begin(const bp_backend& next) override;
  void on_table(AnyTable table) override;
  bool on_kernel(WrappedKernel& kernel) override;
  bp_status shut_down(const bp_backend& next, uint64_t timeout_ns) override;

  // Handles the slots that are not recorded.
  template <Slot kSlot, typename Next, typename... Args>
  bp_status around(Next next, Args... args) {
    if constexpr (kSlot == Slot::graph_begin_capture) return begin_capture(next, first(args...));
    if constexpr (kSlot == Slot::graph_end_capture) return end_capture(next, first(args...));
    const bp_status status = next();
    if (status == BP_OK && !is_silent(kSlot)) write_unrecorded(slot_name(kSlot), "");
    return status;
  }

  // ---- Memory, in record_memory.cpp ----
  bp_status allocate(const bp_allocator_ops& next, bp_device* device, const bp_allocate_desc* desc,
                     bp_buffer** out_buffer);
  bp_status deallocate(const bp_allocator_ops& next, bp_buffer* buffer, bp_stream* stream);
  bp_status map(const bp_allocator_ops& next, const bp_buffer_ref* range, void** out_pointer);
  bp_status unmap(const bp_allocator_ops& next, bp_buffer* buffer, void* pointer);
  bp_status flush(const bp_allocator_ops& next, const bp_buffer_ref* range);
  bp_status invalidate(const bp_allocator_ops& next, const bp_buffer_ref* range);
  bp_status copy(const bp_allocator_ops& next, bp_stream* stream, const bp_buffer_ref* dst,
                 const bp_buffer_ref* src);
  bp_status copy_peer(const bp_allocator_ops& next, bp_stream* stream, const bp_buffer_ref* dst,
                      const bp_buffer_ref* src);
  bp_status copy_from_host(const bp_allocator_ops& next, bp_stream* stream,
                           const bp_buffer_ref* dst, const void* src, bp_borrow borrow);
  bp_status copy_to_host(const bp_allocator_ops& next, bp_stream* stream, void* dst,
                         const bp_buffer_ref* src, bp_borrow borrow, uint64_t timeout_ns);
  bp_status fill(const bp_allocator_ops& next, bp_stream* stream, const bp_buffer_ref* dst,
                 const void* pattern, uint64_t pattern_size_bytes);
  bp_status register_host(const bp_allocator_ops& next, bp_device* device, void* memory,
                          uint64_t size_bytes, bp_buffer** out_buffer);
  bp_status unregister_host(const bp_allocator_ops& next, bp_buffer* buffer);

  // ---- Streams and events, in record_calls.cpp ----
  bp_status create_stream(const bp_stream_ops& next, bp_device* device, const bp_stream_desc* desc,
                          bp_stream** out_stream);
  bp_status lend_stream(const bp_stream_ops& next, bp_device* device, bp_stream** out_stream);
  bp_status destroy_stream(const bp_stream_ops& next, bp_stream* stream);
  bp_status synchronize_stream(const bp_stream_ops& next, bp_stream* stream, uint64_t timeout_ns);
  bp_status query_stream(const bp_stream_ops& next, bp_stream* stream, uint32_t* out_done);
  bp_status flush_stream(const bp_stream_ops& next, bp_stream* stream);
  bp_status clear_failure(const bp_stream_ops& next, bp_stream* stream);
  bp_status wait_event(const bp_stream_ops& next, bp_stream* stream, bp_event* event);
  bp_status add_callback(const bp_stream_ops& next, bp_stream* stream,
                         bp_stream_callback_fn* callback, void* user_data);
  bp_status create_event(const bp_event_ops& next, bp_device* device, const bp_event_desc* desc,
                         bp_event** out_event);
  bp_status destroy_event(const bp_event_ops& next, bp_event* event);
  bp_status record_event(const bp_event_ops& next, bp_event* event, bp_stream* stream);
  bp_status query_event(const bp_event_ops& next, bp_event* event, uint32_t* out_done);
  bp_status synchronize_event(const bp_event_ops& next, bp_event* event, uint64_t timeout_ns);
  bp_status signal_event(const bp_event_ops& next, bp_event* event, bp_status status);

  // ---- Semaphores, in record_semaphores.cpp ----
  bp_status create_semaphore(const bp_semaphore_ops& next, bp_device* device,
                             const bp_semaphore_desc* desc, bp_semaphore** out_semaphore);
  bp_status destroy_semaphore(const bp_semaphore_ops& next, bp_semaphore* semaphore);
  bp_status query_semaphore(const bp_semaphore_ops& next, bp_semaphore* semaphore,
                            uint64_t* out_value);
  bp_status signal_semaphore(const bp_semaphore_ops& next, bp_semaphore* semaphore, uint64_t value);
  bp_status synchronize_semaphore(const bp_semaphore_ops& next, bp_semaphore* semaphore,
                                  uint64_t value, uint64_t timeout_ns);
  bp_status submit_signal(const bp_semaphore_ops& next, bp_stream* stream, bp_semaphore* semaphore,
                          uint64_t value);
  bp_status submit_wait(const bp_semaphore_ops& next, bp_stream* stream, bp_semaphore* semaphore,
                        uint64_t value);
  bp_status clear_semaphore(const bp_semaphore_ops& next, bp_semaphore* semaphore);

  // ---- Devices and kernels, in record_calls.cpp ----
  bp_status synchronize_device(const bp_device_ops& next, bp_device* device, uint64_t timeout_ns);
  bp_status reset_device(const bp_device_ops& next, bp_device* device);
  bp_status launch(const WrappedKernel& kernel, const bp_launch* launch, const void* args);

 private:
  // A copy to the host whose bytes come later.
  struct PendingRead;

  // ---- Which slots of a table are recorded ----
  void record_slots(bp_device_ops& t);
  void record_slots(bp_allocator_ops& t);
  void record_slots(bp_stream_ops& t);
  void record_slots(bp_event_ops& t);
  void record_slots(bp_semaphore_ops& t);
  template <typename Table>
  void record_slots(Table& /*none*/) {}
  template <typename Entry>
  void note_unrecorded(Slot slot, Entry surrounded, Entry entry);
  template <typename Table>
  void note_unrecorded(const Table& surrounded, const Table& table);

  // Returns whether the calls of a slot change nothing that a replay needs.
  static bool is_silent(Slot slot);

  // ---- Lines ----
  // Runs `make` under the lock and writes the line that it returns. `make` throws Unknown if a
  // handle has no number; then the call is written as unrecorded.
  struct Unknown {
    const char* what;
  };
  void write(std::string_view call, bp_status status, const std::function<void(Json&)>& make);
  void write_unrecorded(std::string_view call, const std::string& why);
  void write_header();
  void append(const Json& line);  // The caller holds the lock.

  // ---- Numbers, under the lock ----
  uint64_t number_of(bp_device* device);
  uint64_t number_of(bp_stream* stream);
  uint64_t number_of(bp_event* event);
  uint64_t number_of(bp_semaphore* semaphore);
  Json range(const bp_buffer_ref& range);
  void note_stream(Json& line, bp_stream* stream);
  void note_written(bp_buffer* buffer);

  // ---- Memory that the host touches without calls ----
  void write_host_bytes(bp_buffer* buffer);
  void add_view(bp_buffer* buffer, const void* bytes, uint64_t byte_offset, uint64_t size_bytes);
  void write_device_bytes(bp_buffer* buffer);

  // ---- Captures: what is submitted in one does not run ----
  template <typename First, typename... Rest>
  static First first(First value, Rest... /*rest*/) {
    return value;
  }
  bp_status begin_capture(const std::function<bp_status()>& next, bp_stream* stream);
  bp_status end_capture(const std::function<bp_status()>& next, bp_stream* stream);
  bool is_captured(bp_stream* stream);

  bp_status read_later(const bp_allocator_ops& next, bp_stream* stream, const bp_buffer_ref& src,
                       uint64_t read);
  static void take_read(void* pending, bp_status status);
  void describe(const core::OpRow& row);
  void fill_launch(Json& line, const bp_kernel& kernel, const bp_launch& launch, const void* args);
  Json read_outputs(const bp_launch& launch, uint32_t op, const void* args);
  std::string folder_name() const;
  void write_end();

  uint64_t wants_outputs_ = 0;
  Directory directory_;
  const bp_device_ops* devices_ = nullptr;
  std::string backend_version_;
  std::set<std::string> not_recorded_;  // Names of slots, written before the first call.
  Recording recording_;
  std::once_flag header_;
  std::atomic<uint64_t> capture_count_ = 0, unrecorded_count_ = 0, pending_count_ = 0;

  std::mutex mutex_;
  // Guarded by mutex_.
  uint64_t line_count_ = 0, launch_count_ = 0, read_count_ = 0;
  std::vector<bp_device*> known_devices_;
  Numbers<bp_buffer, RecordedBuffer> buffers_;
  Numbers<bp_stream, RecordedStream> streams_;
  Numbers<bp_event, RecordedEvent> events_;
  Numbers<bp_semaphore, RecordedSemaphore> semaphores_;
  std::set<bp_stream*> captures_;  // The streams that began one.
  std::set<const core::OpRow*> described_;
  bool is_ended_ = false;

  std::optional<AtExit> at_exit_;  // The last member, so that it ends first.
};

}  // namespace bp::layers
