// validate: checks each call against the contract. A call that breaks a rule is refused with the
// rule's tag, and does not reach the backend. A call that is legal and racy is a line in the log.
#pragma once

#include <algorithm>
#include <atomic>
#include <deque>
#include <memory>
#include <mutex>
#include <vector>

#include "registry/boundary/fail.hpp"
#include "registry/layers/captures.hpp"
#include "registry/layers/handles.hpp"
#include "registry/layers/hazards.hpp"
#include "registry/layers/list.hpp"
#include "registry/layers/replays.hpp"
#include "registry/layers/slots.hpp"
#include "registry/layers/worlds.hpp"

namespace bp::layers {

// The rest of a call with any arguments. It lives as long as the object that it was made from.
class Continue {
 public:
  template <typename Next>
  explicit Continue(const Next& next)
      : next_(&next), go_([](const void* self) { return (*static_cast<const Next*>(self))(); }) {}

  bp_status operator()() const { return go_(next_); }

 private:
  const void* next_;
  bp_status (*go_)(const void* self);
};

// A slot as a type, by which overloads are chosen.
template <Slot kSlot>
struct At {};

class ValidateLayer final : public Layer {
 public:
  using Layer::Layer;

  bp_status check() override;
  void on_table(AnyTable table) override;
  bool on_kernel(WrappedKernel& kernel) override;

  template <Slot kSlot, typename Next, typename... Args>
  bp_status around(Next next, Args... args) {
    {
      std::unique_lock lock(mutex_);
      std::string defect;
      ((defect.empty() ? static_cast<void>(defect = defect_of(args)) : void()), ...);
      if (!defect.empty()) return illegal(lock, kSlot, defect);
    }
    if constexpr (kSlot == Slot::memory_copy_from_host) return stage(next, args...);
    if constexpr (kSlot == Slot::stream_add_callback || kSlot == Slot::event_on_complete) {
      return call_back(next, args...);
    }
    if constexpr (kSlot == Slot::stream_synchronize || kSlot == Slot::event_synchronize) {
      return wait(next, args...);
    }
    if constexpr (has_rules(kSlot)) {
      return call(At<kSlot>(), Continue(next), args...);
    } else {
      return next();
    }
  }

  bp_status workspace_size(const WrappedKernel& kernel, bp_device* device, bp_launch_flags flags,
                           const void* args, uint64_t* out_required_bytes,
                           uint64_t* out_preferred_bytes);
  bp_status launch(const WrappedKernel& kernel, const bp_launch* launch, const void* args);
  bp_status plan_pack(const WrappedKernel& kernel, const bp_launch* launch, const void* args,
                      const bp_buffer_ref* packed);
  bp_status prepare(const WrappedKernel& kernel, bp_device* device, const bp_prepare_desc* desc,
                    const void* args, bp_plan** out_plan);
  bp_status plan_release(const WrappedKernel& kernel, bp_plan* plan);

 private:
  // The slots that have an overload of call().
  static constexpr Slot kRuled[] = {
      Slot::device_enumerate,
      Slot::device_properties,
      Slot::device_synchronize,
      Slot::device_reset,
      Slot::memory_allocate,
      Slot::memory_deallocate,
      Slot::memory_map,
      Slot::memory_unmap,
      Slot::memory_copy,
      Slot::memory_copy_from_host,
      Slot::memory_copy_to_host,
      Slot::memory_copy_peer,
      Slot::memory_fill,
      Slot::memory_wrap_address,
      Slot::memory_register_host,
      Slot::memory_unregister_host,
      Slot::memory_import_buffer,
      Slot::virtual_memory_reserve,
      Slot::virtual_memory_release,
      Slot::stream_create,
      Slot::stream_default_stream,
      Slot::stream_destroy,
      Slot::stream_query,
      Slot::stream_wait_event,
      Slot::stream_wrap_native,
      Slot::event_create,
      Slot::event_import_event,
      Slot::event_destroy,
      Slot::event_record,
      Slot::event_query,
      Slot::event_elapsed_ns,
      Slot::event_signal,
      Slot::semaphore_create,
      Slot::semaphore_import_semaphore,
      Slot::semaphore_destroy,
      Slot::semaphore_query,
      Slot::semaphore_signal,
      Slot::semaphore_synchronize,
      Slot::semaphore_submit_signal,
      Slot::semaphore_submit_wait,
      Slot::layout_convert,
      Slot::graph_begin_capture,
      Slot::graph_end_capture,
      Slot::graph_instantiate,
      Slot::graph_bind,
      Slot::graph_update,
      Slot::graph_launch,
      Slot::graph_destroy,
      Slot::graph_destroy_instance,
      Slot::collective_create,
      Slot::collective_destroy,
      Slot::collective_submit,
      Slot::collective_split,
      Slot::collective_shrink,
      Slot::profiler_stop,
  };
  static constexpr bool has_rules(Slot slot) {
    return std::ranges::find(kRuled, slot) != std::end(kRuled);
  }

  // Lends memory of the layer in place of memory that is borrowed during the call, and poisons it
  // afterwards.
  template <typename Next>
  bp_status stage(Next next, bp_stream* stream, const bp_buffer_ref* dst, const void* src,
                  bp_borrow borrow) {
    constexpr Slot kSlot = Slot::memory_copy_from_host;
    const bool is_staged = stages_ && borrow == BP_BORROW_DURING_CALL && dst != nullptr &&
                           src != nullptr && dst->size_bytes != 0;
    if (!is_staged) return call(At<kSlot>(), Continue(next), stream, dst, src, borrow);
    const auto* bytes = static_cast<const unsigned char*>(src);
    std::vector<unsigned char> staging(bytes, bytes + dst->size_bytes);
    std::get<2>(next.args) = staging.data();
    const bp_status status = call(At<kSlot>(), Continue(next), stream, dst, src, borrow);
    poison(std::move(staging));
    return status;
  }

  // BP_TIMEOUT can mean that the wait ran out, or that the work failed with it and has ended. The
  // table that the call goes to tells which it is.
  template <typename Next, typename Handle>
  bp_status wait(Next next, Handle* handle, uint64_t /*timeout_ns*/) {
    const bp_status status = next();
    if (status == BP_TIMEOUT) {
      const auto& table = next.behind.next;
      uint32_t is_done = 0;
      const bool is_told = table.query != nullptr && handle != nullptr &&
                           table.query(table.self, handle, &is_done) == BP_OK;
      if (!is_told || is_done == 0) return status;
    }
    // The work has ended also if the call returns its failure.
    return ended(handle, status);
  }
  bp_status ended(bp_stream* stream, bp_status status);
  bp_status ended(bp_event* event, bp_status status);

  // When the callback runs, the host knows that the work in front of the callback has ended.
  // `source` is the stream or the event of the callback.
  template <typename Next, typename Source>
  bp_status call_back(Next next, Source* source, bp_stream_callback_fn* callback, void* user_data) {
    if (callback == nullptr) return next();
    auto between = std::make_unique<Callback>(Callback{this, callback, user_data});
    std::get<1>(next.args) = run_callback;
    std::get<2>(next.args) = between.get();
    {
      const std::lock_guard lock(mutex_);
      set_mark(between->mark(), source);
    }
    const bp_status status = next();
    if (status == BP_OK) {
      static_cast<void>(between.release());  // It ends with its call, which may be over already.
    } else {
      const std::lock_guard lock(mutex_);
      hazards_.remove_event(between->mark());
    }
    return status;
  }

  void set_mark(bp_event* mark, bp_stream* stream) { hazards_.record_event(mark, stream); }
  void set_mark(bp_event* mark, bp_event* event) { hazards_.copy_event(mark, event); }

  // ---- Devices ----
  bp_status call(At<Slot::device_enumerate>, Continue next, uint64_t capacity,
                 bp_device** out_devices, uint64_t* out_device_count);
  bp_status call(At<Slot::device_properties>, Continue next, bp_device* device,
                 const bp_device_properties** out_properties);
  bp_status call(At<Slot::device_synchronize>, Continue next, bp_device* device,
                 uint64_t timeout_ns);
  bp_status call(At<Slot::device_reset>, Continue next, bp_device* device);

  // ---- Memory ----
  bp_status call(At<Slot::memory_allocate>, Continue next, bp_device* device,
                 const bp_allocate_desc* desc, bp_buffer** out_buffer);
  bp_status call(At<Slot::memory_deallocate>, Continue next, bp_buffer* buffer, bp_stream* stream);
  bp_status call(At<Slot::memory_map>, Continue next, const bp_buffer_ref* range,
                 void** out_pointer);
  bp_status call(At<Slot::memory_unmap>, Continue next, bp_buffer* buffer, void* pointer);
  bp_status call(At<Slot::memory_copy>, Continue next, bp_stream* stream, const bp_buffer_ref* dst,
                 const bp_buffer_ref* src);
  bp_status call(At<Slot::memory_copy_from_host>, Continue next, bp_stream* stream,
                 const bp_buffer_ref* dst, const void* src, bp_borrow borrow);
  bp_status call(At<Slot::memory_copy_to_host>, Continue next, bp_stream* stream, void* dst,
                 const bp_buffer_ref* src, bp_borrow borrow, uint64_t timeout_ns);
  bp_status call(At<Slot::memory_copy_peer>, Continue next, bp_stream* stream,
                 const bp_buffer_ref* dst, const bp_buffer_ref* src);
  bp_status call(At<Slot::memory_fill>, Continue next, bp_stream* stream, const bp_buffer_ref* dst,
                 const void* pattern, uint64_t pattern_size_bytes);
  bp_status call(At<Slot::memory_wrap_address>, Continue next, bp_device* device, uint64_t address,
                 uint64_t size_bytes, bp_buffer** out_buffer);
  bp_status call(At<Slot::memory_register_host>, Continue next, bp_device* device, void* memory,
                 uint64_t size_bytes, bp_buffer** out_buffer);
  bp_status call(At<Slot::memory_unregister_host>, Continue next, bp_buffer* buffer);
  bp_status call(At<Slot::memory_import_buffer>, Continue next, bp_device* device,
                 const bp_external_handle* handle, bp_buffer** out_buffer);
  bp_status call(At<Slot::virtual_memory_reserve>, Continue next, bp_device* device,
                 uint64_t size_bytes, bp_buffer** out_range);
  bp_status call(At<Slot::virtual_memory_release>, Continue next, bp_buffer* range);

  // ---- Streams and events ----
  bp_status call(At<Slot::stream_create>, Continue next, bp_device* device,
                 const bp_stream_desc* desc, bp_stream** out_stream);
  bp_status call(At<Slot::stream_default_stream>, Continue next, bp_device* device,
                 bp_stream** out_stream);
  bp_status call(At<Slot::stream_wrap_native>, Continue next, bp_device* device, void* native,
                 bp_stream** out_stream);
  bp_status call(At<Slot::stream_destroy>, Continue next, bp_stream* stream);
  bp_status call(At<Slot::stream_query>, Continue next, bp_stream* stream, uint32_t* out_done);
  bp_status call(At<Slot::stream_wait_event>, Continue next, bp_stream* stream, bp_event* event);
  bp_status call(At<Slot::event_create>, Continue next, bp_device* device,
                 const bp_event_desc* desc, bp_event** out_event);
  bp_status call(At<Slot::event_import_event>, Continue next, bp_device* device,
                 const bp_external_handle* handle, bp_event** out_event);
  bp_status call(At<Slot::event_destroy>, Continue next, bp_event* event);
  bp_status call(At<Slot::event_record>, Continue next, bp_event* event, bp_stream* stream);
  bp_status call(At<Slot::event_query>, Continue next, bp_event* event, uint32_t* out_done);
  bp_status call(At<Slot::event_elapsed_ns>, Continue next, bp_event* start, bp_event* end,
                 int64_t* out_elapsed_ns);
  bp_status call(At<Slot::event_signal>, Continue next, bp_event* event, bp_status status);

  // ---- Semaphores ----
  bp_status call(At<Slot::semaphore_create>, Continue next, bp_device* device,
                 const bp_semaphore_desc* desc, bp_semaphore** out_semaphore);
  bp_status call(At<Slot::semaphore_import_semaphore>, Continue next, bp_device* device,
                 const bp_external_handle* handle, bp_semaphore** out_semaphore);
  bp_status call(At<Slot::semaphore_destroy>, Continue next, bp_semaphore* semaphore);
  bp_status call(At<Slot::semaphore_query>, Continue next, bp_semaphore* semaphore, uint64_t* v);
  bp_status call(At<Slot::semaphore_signal>, Continue next, bp_semaphore* semaphore, uint64_t v);
  bp_status call(At<Slot::semaphore_synchronize>, Continue next, bp_semaphore* semaphore,
                 uint64_t value, uint64_t timeout_ns);
  bp_status call(At<Slot::semaphore_submit_signal>, Continue next, bp_stream* stream,
                 bp_semaphore* semaphore, uint64_t value);
  bp_status call(At<Slot::semaphore_submit_wait>, Continue next, bp_stream* stream,
                 bp_semaphore* semaphore, uint64_t value);

  // ---- Graphs ----
  bp_status call(At<Slot::graph_begin_capture>, Continue next, bp_stream* stream,
                 const bp_capture_desc* desc);
  bp_status call(At<Slot::graph_end_capture>, Continue next, bp_stream* stream,
                 bp_graph** out_graph);
  bp_status call(At<Slot::graph_instantiate>, Continue next, bp_graph* graph,
                 bp_graph_instance** out_instance);
  bp_status call(At<Slot::graph_bind>, Continue next, bp_graph_instance* instance, uint64_t slot,
                 const bp_buffer_ref* range);
  bp_status call(At<Slot::graph_update>, Continue next, bp_graph_instance* instance,
                 bp_graph* graph);
  bp_status call(At<Slot::graph_launch>, Continue next, bp_graph_instance* instance,
                 bp_stream* stream);
  bp_status call(At<Slot::graph_destroy>, Continue next, bp_graph* graph);
  bp_status call(At<Slot::graph_destroy_instance>, Continue next, bp_graph_instance* instance);

  // ---- Process groups, layouts, profilers ----
  bp_status call(At<Slot::collective_create>, Continue next, const bp_process_group_desc* desc,
                 bp_process_group** out_groups);
  bp_status call(At<Slot::collective_destroy>, Continue next, bp_process_group* group);
  bp_status call(At<Slot::collective_submit>, Continue next, uint64_t call_count,
                 const bp_collective_call* calls, uint64_t call_stride_bytes);
  bp_status call(At<Slot::collective_split>, Continue next, uint32_t local_count,
                 bp_process_group* const* groups, const uint32_t* colors, const uint32_t* keys,
                 uint64_t timeout_ns, bp_process_group** out_groups);
  bp_status call(At<Slot::collective_shrink>, Continue next, uint32_t local_count,
                 bp_process_group* const* groups, uint32_t gone_count, const uint32_t* gone_ranks,
                 uint64_t timeout_ns, bp_process_group** out_groups);
  bp_status call(At<Slot::layout_convert>, Continue next, bp_stream* stream, const bp_tensor* dst,
                 const bp_tensor* src);
  bp_status call(At<Slot::profiler_stop>, Continue next, bp_device* device, uint64_t timeout_ns);

  // ---- Arguments. Each function returns what is wrong, or "". The caller holds mutex_. ----
  // NULL gives "", because the backend decides about it.
  std::string defect_of(bp_device* device) const;
  std::string defect_of(bp_buffer* buffer);
  std::string defect_of(bp_stream* stream);
  std::string defect_of(bp_event* event);
  std::string defect_of(bp_semaphore* semaphore);
  std::string defect_of(bp_graph* graph);
  std::string defect_of(bp_graph_instance* instance);
  std::string defect_of(bp_process_group* group);
  std::string defect_of(const bp_buffer_ref* range);
  template <typename T>
  std::string defect_of(const T& /*other*/) {
    return "";
  }
  std::string defect_of_handle(HandleKind kind, const void* handle);
  std::string wrong_device(bp_stream* stream, bp_buffer* buffer);
  std::string launch_defect(const bp_launch& launch);
  // Returns what is wrong with those tensors of the frame of `op` whose numbers are in `numbers`;
  // NULL stands for all. Adds what they touch to `accesses`.
  std::string frame_defect(uint32_t op, const void* args, bp_device* device,
                           const std::vector<uint32_t>* numbers, std::vector<Access>& accesses);
  // Returns what is wrong with a tensor of the frame of a program.
  std::string program_defect(const void* args, bp_device* device);
  std::string tensor_argument_defect(const std::string& name, const bp_tensor* tensor,
                                     bp_device* device, bool is_read, bool is_written,
                                     std::vector<Access>& accesses);
  std::string collective_defect(const bp_collective_call& call);

  // Stands between a stream and the callback of a host.
  struct Callback {
    ValidateLayer* layer;
    bp_stream_callback_fn* callback;
    void* user_data;

    // Returns a mark like an event that was recorded where the callback was added.
    bp_event* mark() { return reinterpret_cast<bp_event*>(this); }
  };
  static void run_callback(void* self, bp_status status);

  // ---- Reports ----
  // Unlocks `lock`, reports the call, and returns the refusal.
  bp_status illegal(std::unique_lock<std::mutex>& lock, Slot slot, const std::string& defect);
  bp_status racy(Slot slot, const char* tag, const Work& work, const std::vector<Hazard>& hazards,
                 bp_stream* stream);

  // The work that a call submits to one stream.
  struct Piece {
    bp_stream* stream;
    std::vector<Access> accesses;
    // The stream whose capture the piece belongs to. A captured piece does not run.
    bp_stream* captured_by = nullptr;
    uint64_t epoch = 0;
  };
  // Returns what orders the piece: the other work of its capture, or all work that runs. Returns
  // NULL if its capture has ended meanwhile.
  Hazards* order_of(const Piece& piece);
  // Submits work that touches bytes, and reports its hazards. The hazards of captured work are
  // those within the capture; replays find the work that runs beside it.
  bp_status submit(Slot slot, bp_stream* stream, const std::vector<Access>& accesses,
                   const std::string& what, Continue next);
  bp_status submit(Slot slot, std::vector<Piece> pieces, const std::string& what, Continue next);

  // Adds groups that a split() or shrink() made of others. Each has the device of the group that it
  // was made of.
  void add_derived(uint32_t count, bp_process_group* const* from, bp_process_group* const* groups);
  bp_status made_buffer(bp_status status, bp_device* device, uint64_t size_bytes,
                        bp_buffer** out_buffer);
  // Returns whether the host may touch memory of this allocation at any time.
  bool is_concurrent(bp_device* device, const bp_allocate_desc& desc) const;
  bp_status made_stream(bp_status status, bp_device* device, bp_stream** out_stream, bool is_lent);
  void end_handle(HandleKind kind, const void* handle, Slot slot);
  // Ends the handle before the call, so that its address can come again. If the call fails, the
  // handle stays alive.
  bp_status end_through(HandleKind kind, const void* handle, Slot slot, Continue next);
  // Poisons host memory that a backend borrowed during a call and may not read any more.
  void poison(std::vector<unsigned char> staging);

  bool fails_races_ = false, takes_foreign_ = false, stages_ = true;
  std::mutex mutex_;
  // Guarded by mutex_.
  Handles handles_;
  Hazards hazards_;
  // Streams that wait for a host signal.
  std::map<bp_event*, std::vector<bp_stream*>> signal_waiters_;
  Captures captures_;
  Replays replays_;
  Worlds worlds_;
  std::map<bp_device*, std::vector<bp_heap_flags>> heaps_;
  std::deque<std::vector<unsigned char>> poisoned_;
  uint64_t poisoned_bytes_ = 0;
  uint64_t work_count_ = 0;
};

}  // namespace bp::layers
