#include "registry/layers/validate.hpp"

#include <cstring>

#include "registry/layers/words.hpp"

namespace bp::layers {
namespace {

constexpr unsigned char kPoison = 0xDB;
// Poisoned memory is kept up to this size, so that a late reader finds the poison.
constexpr uint64_t kMostPoisonedBytes = 64 << 20;

Site caller() {
  constexpr int kLayerFrames = 3;
  return Site::here(kLayerFrames);
}

}  // namespace

bp_status ValidateLayer::check() {
  const std::string& races = options().text("races");
  if (!races.empty() && races != "log" && races != "fail") {
    return fail(BP_INVALID_ARGUMENT,
                "layer option validate.races is '" + races + "', allowed are log and fail");
  }
  fails_races_ = races == "fail";
  uint64_t foreign = 0, stage = 1;
  bp_status status = options().number("validate", "foreign", 1, foreign);
  if (status == BP_OK) status = options().number("validate", "stage", 1, stage);
  takes_foreign_ = foreign != 0;
  stages_ = stage != 0;
  return status;
}

void ValidateLayer::on_table(AnyTable table) {
  std::visit(
      [&](auto* wrapped) {
        for (bp_device* device : wrapped->devices) handles_.add_device(device);
        surround_all<ValidateLayer>(*wrapped);
      },
      table);
}

bool ValidateLayer::on_kernel(WrappedKernel& kernel) {
  replace<&ValidateLayer::workspace_size>(kernel.kernel.workspace_size);
  replace<&ValidateLayer::launch>(kernel.kernel.launch);
  replace<&ValidateLayer::prepare>(kernel.kernel.prepare);
  replace<&ValidateLayer::plan_pack>(kernel.kernel.plan_pack);
  replace<&ValidateLayer::plan_release>(kernel.kernel.plan_release);
  return true;
}

// ---- Arguments ----------------------------------------------------------------------------------

std::string ValidateLayer::defect_of(bp_device* device) const {
  if (device == nullptr || handles_.has_device(device)) return "";
  return "[DEVICE-5] device " + words(device) + " is not of this backend";
}

std::string ValidateLayer::defect_of_handle(HandleKind kind, const void* handle) {
  if (handle == nullptr || handles_.find(kind, handle) != nullptr) return "";
  if (handles_.is_lost(kind, handle)) return "";  // The backend says BP_DEVICE_LOST.
  const std::string defect = handles_.defect(kind, handle);
  return takes_foreign_ && defect.ends_with("of this backend") ? "" : defect;
}

std::string ValidateLayer::defect_of(bp_buffer* buffer) {
  return defect_of_handle(HandleKind::buffer, buffer);
}

std::string ValidateLayer::defect_of(bp_stream* stream) {
  return defect_of_handle(HandleKind::stream, stream);
}

std::string ValidateLayer::defect_of(bp_event* event) {
  return defect_of_handle(HandleKind::event, event);
}

std::string ValidateLayer::defect_of(bp_semaphore* semaphore) {
  return defect_of_handle(HandleKind::semaphore, semaphore);
}

std::string ValidateLayer::defect_of(bp_graph* graph) {
  return defect_of_handle(HandleKind::graph, graph);
}

std::string ValidateLayer::defect_of(bp_graph_instance* instance) {
  return defect_of_handle(HandleKind::instance, instance);
}

std::string ValidateLayer::defect_of(bp_process_group* group) {
  return defect_of_handle(HandleKind::group, group);
}

std::string ValidateLayer::defect_of(const bp_buffer_ref* range) {
  if (range == nullptr || range->buffer == nullptr) return "";
  if (std::string defect = defect_of(range->buffer); !defect.empty()) return defect;
  const Handle* buffer = handles_.find(HandleKind::buffer, range->buffer);
  if (buffer == nullptr || buffer->size_bytes == UINT64_MAX) return "";
  if (range->byte_offset <= buffer->size_bytes &&
      range->size_bytes <= buffer->size_bytes - range->byte_offset) {
    return "";
  }
  return "[MEMORY-1] " + std::to_string(range->size_bytes) + " bytes from byte " +
         std::to_string(range->byte_offset) + " on leave buffer " + words(range->buffer) + " of " +
         std::to_string(buffer->size_bytes);
}

std::string ValidateLayer::wrong_device(bp_stream* stream, bp_buffer* buffer) {
  const Handle* s = handles_.find(HandleKind::stream, stream);
  const Handle* b = handles_.find(HandleKind::buffer, buffer);
  if (s == nullptr || b == nullptr || s->device == nullptr || s->device == b->device) return "";
  return "[MEMORY-1] buffer " + words(buffer) + " is of another device than stream " +
         words(stream);
}

// ---- What comes of it ---------------------------------------------------------------------------

bp_status ValidateLayer::illegal(std::unique_lock<std::mutex>& lock, Slot slot,
                                 const std::string& defect) {
  lock.unlock();  // The host's log may call the backend again.
  // The tag stays in front: "[MEMORY-5] memory.deallocate: buffer 0x55 was ended before".
  const size_t end = defect.find(']');
  const std::string text =
      defect.substr(0, end + 2) + std::string(slot_name(slot)) + ":" + defect.substr(end + 1);
  count_report();
  log(BP_LOG_INFO, text + "; called from " + caller().words());
  return fail(BP_INVALID_ARGUMENT, text);
}

bp_status ValidateLayer::racy(Slot slot, const char* tag, const Work& work,
                              const std::vector<Hazard>& hazards, bp_stream* stream) {
  for (const Hazard& hazard : hazards) {
    const char* kind = hazard.later_writes && hazard.earlier_writes ? "write after write"
                       : hazard.later_writes                        ? "write after read"
                                                                    : "read after write";
    const std::string text =
        std::string("[") + tag + "] " + std::string(slot_name(slot)) + ": " + kind +
        " without an order: " + work.what +
        (stream == nullptr ? "" : " on stream " + words(stream)) + " touches " +
        words(bp_buffer_ref{hazard.where.buffer, hazard.where.begin,
                            hazard.where.end - hazard.where.begin}) +
        ", as " + hazard.earlier.what + " on stream " + words(hazard.earlier_stream) +
        " does; nothing makes it wait; called from " + caller().words();
    if (fails_races_) {
      count_report();
      return fail(BP_INVALID_ARGUMENT, text);
    }
    report(text);
  }
  return BP_OK;
}

Hazards* ValidateLayer::order_of(const Piece& piece) {
  return piece.captured_by == nullptr ? &hazards_ : replays_.hazards(piece.captured_by);
}

bp_status ValidateLayer::submit(Slot slot, bp_stream* stream, const std::vector<Access>& accesses,
                                const std::string& what, Continue next) {
  return submit(slot, {Piece{stream, accesses}}, what, next);
}

bp_status ValidateLayer::submit(Slot slot, std::vector<Piece> pieces, const std::string& what,
                                Continue next) {
  bp_status status = BP_OK;
  for (Piece& piece : pieces) {
    std::vector<Hazard> hazards;
    Work work{what, 0};
    {
      const std::lock_guard lock(mutex_);
      work.number = ++work_count_;
      piece.captured_by = captures_.origin(piece.stream);
      if (Hazards* order = order_of(piece)) {
        hazards = order->submit(piece.stream, piece.accesses, work, &piece.epoch);
      }
    }
    if (status == BP_OK) status = racy(slot, "STREAM-3", work, hazards, piece.stream);
  }
  if (status == BP_OK) status = next();
  const std::lock_guard lock(mutex_);
  for (const Piece& piece : pieces) {
    if (status != BP_OK) {
      if (Hazards* order = order_of(piece)) {
        order->retract(piece.stream, piece.epoch, piece.accesses);
      }
    } else if (piece.captured_by != nullptr) {
      replays_.add(piece.captured_by, piece.accesses);
    }
  }
  return status;
}

void ValidateLayer::end_handle(HandleKind kind, const void* handle, Slot slot) {
  if (handle != nullptr) handles_.end(kind, handle, slot_name(slot).data(), caller());
}

bp_status ValidateLayer::end_through(HandleKind kind, const void* handle, Slot slot,
                                     Continue next) {
  if (handle == nullptr) return next();
  Handle before;
  bool was_known = false;
  {
    const std::lock_guard lock(mutex_);
    const Handle* known = handles_.find(kind, handle);
    was_known = known != nullptr;
    if (was_known) before = *known;
    end_handle(kind, handle, slot);
  }
  const bp_status status = next();
  if (status == BP_OK || !was_known) return status;
  const std::lock_guard lock(mutex_);
  handles_.add(kind, handle, before);
  return status;
}

void ValidateLayer::run_callback(void* self, bp_status status) {
  const std::unique_ptr<Callback> own(static_cast<Callback*>(self));
  {
    const std::lock_guard lock(own->layer->mutex_);
    own->layer->hazards_.host_waits_for_event(own->mark());
    own->layer->hazards_.remove_event(own->mark());
  }
  own->callback(own->user_data, status);
}

void ValidateLayer::poison(std::vector<unsigned char> staging) {
  std::memset(staging.data(), kPoison, staging.size());
  const std::lock_guard lock(mutex_);
  poisoned_bytes_ += staging.size();
  poisoned_.push_back(std::move(staging));
  while (poisoned_bytes_ > kMostPoisonedBytes) {
    poisoned_bytes_ -= poisoned_.front().size();
    poisoned_.pop_front();
  }
}

namespace {

constexpr OptionInfo kValidateOptions[] = {
    {"races", "log: a line for each hazard; fail: the call that makes it fails; default log"},
    {"foreign", "1: takes handles of other instances of the library; default 0"},
    {"stage", "0: passes host memory on as it is, without poison behind the call; default 1"}};

}  // namespace

constinit const LayerInfo kValidateLayer{"validate", "checks each call against the contract",
                                         kValidateOptions, make_layer<ValidateLayer>};

}  // namespace bp::layers
