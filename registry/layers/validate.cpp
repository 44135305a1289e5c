#include "registry/layers/validate.hpp"

#include <cstring>

#include "registry/call.hpp"
#include "registry/layers/words.hpp"

namespace bp::layers {
namespace {

constexpr unsigned char kPoison = 0xDB;
constexpr uint64_t kMostPoisonedBytes = 64 << 20;  // Kept, so that a late reader finds the poison.

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

bp_status ValidateLayer::illegal(Slot slot, const std::string& defect) {
  // The tag stays in front: "[MEMORY-5] memory.free: buffer 0x55 was ended before".
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

bp_status ValidateLayer::submit(Slot slot, bp_stream* stream, const std::vector<Access>& accesses,
                                const std::string& what, Continue next) {
  std::vector<Hazard> hazards;
  Work work{what, 0};
  uint64_t epoch = 0;
  {
    const std::lock_guard lock(mutex_);
    work.number = ++work_count_;
    hazards = hazards_.submit(stream, accesses, work, &epoch);
  }
  bp_status status = racy(slot, "STREAM-3", work, hazards, stream);
  if (status == BP_OK) status = next();
  if (status != BP_OK) {
    const std::lock_guard lock(mutex_);
    hazards_.retract(stream, epoch, accesses);
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

// ---- Kernels ------------------------------------------------------------------------------------

std::string ValidateLayer::tensor_argument_defect(const std::string& name, const bp_tensor* tensor,
                                                  bp_device* device, bool is_read, bool is_written,
                                                  std::vector<Access>& accesses) {
  if (tensor == nullptr) return "";
  const auto named = [&](const std::string& defect) {
    const size_t end = defect.find(']');
    return defect.substr(0, end + 2) + "tensor " + name + " (" + words(*tensor) +
           "):" + defect.substr(end + 1);
  };
  uint64_t size_bytes = UINT64_MAX;
  if (tensor->buffer != nullptr) {
    if (const std::string defect = defect_of(tensor->buffer); !defect.empty()) return named(defect);
    const Handle* buffer = handles_.find(HandleKind::buffer, tensor->buffer);
    if (buffer != nullptr) {
      size_bytes = buffer->size_bytes;
      if (buffer->device != device) return named("[KERNEL-7] its buffer is of another device");
    }
  }
  if (const std::string defect = tensor_defect(*tensor, size_bytes); !defect.empty()) {
    return named(defect);
  }
  const Footprint where = footprint_of(*tensor);
  if (is_read && !is_written) accesses.push_back({where, false});
  if (is_written) accesses.push_back({where, true});
  return "";
}

std::string ValidateLayer::launch_defect(const WrappedKernel& kernel, const bp_launch& launch,
                                         const void* args, std::vector<Access>& accesses) {
  std::string defect = defect_of(launch.device);
  if (defect.empty()) defect = defect_of(launch.stream);
  if (defect.empty()) defect = defect_of(&launch.workspace);
  if (defect.empty() && launch.plan != nullptr) {
    defect = defect_of_handle(HandleKind::plan, launch.plan);
  }
  const Handle* stream = handles_.find(HandleKind::stream, launch.stream);
  const bool has_device = stream != nullptr && stream->device != nullptr;
  if (defect.empty() && has_device && stream->device != launch.device) {
    defect = "[STREAM-2] stream " + words(launch.stream) + " is of another device";
  }
  if (!defect.empty()) return defect;
  if (launch.workspace.buffer != nullptr)
    accesses.push_back({footprint_of(launch.workspace), true});
  const core::OpRow* row = core::find_op(kernel.kernel.op);
  if (row == nullptr || args == nullptr || core::frame_size(args) < row->frame_size_bytes)
    return "";
  for (uint32_t i = 0; i < row->tensor_count && defect.empty(); ++i) {
    const core::TensorArgument& argument = row->tensors[i];
    using core::Kind;
    const bool is_inout = argument.kind == Kind::inout || argument.kind == Kind::inout_list;
    const bool writes = argument.is_output() || argument.kind == Kind::out_list || is_inout;
    if (!argument.is_list()) {
      defect = tensor_argument_defect(argument.name, core::tensor_at(args, argument), launch.device,
                                      !writes || is_inout, writes, accesses);
      continue;
    }
    const core::TensorList list = core::list_at(args, argument);
    for (uint64_t n = 0; list.items != nullptr && n < list.count && defect.empty(); ++n) {
      defect = tensor_argument_defect(std::string(argument.name) + "[" + std::to_string(n) + "]",
                                      list.items[n], launch.device, !writes || is_inout, writes,
                                      accesses);
    }
  }
  return defect;
}

bp_status ValidateLayer::launch(const WrappedKernel& kernel, const bp_launch* launch,
                                const void* args) {
  const auto next = [&] { return kernel.next->launch(kernel.next, launch, args); };
  if (launch == nullptr) return next();
  std::vector<Access> accesses;
  {
    const std::lock_guard lock(mutex_);
    const std::string defect = launch_defect(kernel, *launch, args, accesses);
    if (!defect.empty()) return illegal(Slot::kernel_launch, defect);
  }
  return submit(Slot::kernel_launch, launch->stream, accesses,
                std::string("kernel ") + kernel.kernel.name, Continue(next));
}

bp_status ValidateLayer::plan_pack(const WrappedKernel& kernel, const bp_launch* launch,
                                   const void* args, const bp_buffer_ref* packed) {
  const auto next = [&] { return kernel.next->plan_pack(kernel.next, launch, args, packed); };
  if (launch == nullptr || packed == nullptr) return next();
  std::vector<Access> accesses;
  {
    const std::lock_guard lock(mutex_);
    std::string defect = defect_of(packed);
    if (defect.empty()) {
      // Packing reads constant arguments, and outputs need no memory.
      defect = defect_of(launch->stream);
    }
    if (!defect.empty()) return illegal(Slot::kernel_plan_pack, defect);
    accesses.push_back({footprint_of(*packed), true});
  }
  return submit(Slot::kernel_plan_pack, launch->stream, accesses,
                std::string("packing for ") + kernel.kernel.name, Continue(next));
}

bp_status ValidateLayer::prepare(const WrappedKernel& kernel, bp_device* device,
                                 const bp_prepare_desc* desc, const void* args,
                                 bp_plan** out_plan) {
  const bp_status status = kernel.next->prepare(kernel.next, device, desc, args, out_plan);
  if (status != BP_OK) return status;
  const std::lock_guard lock(mutex_);
  handles_.add(HandleKind::plan, *out_plan, {.device = device});
  return status;
}

bp_status ValidateLayer::plan_release(const WrappedKernel& kernel, bp_plan* plan) {
  {
    const std::lock_guard lock(mutex_);
    const std::string defect = defect_of_handle(HandleKind::plan, plan);
    if (!defect.empty()) return illegal(Slot::kernel_plan_release, defect);
    end_handle(HandleKind::plan, plan, Slot::kernel_plan_release);
  }
  return kernel.next->plan_release(kernel.next, plan);
}

namespace {

constexpr OptionInfo kOptions[] = {
    {"races", "log: a line for each hazard; fail: the call that makes it fails; default log"},
    {"foreign", "1: takes handles of other instances of the library; default 0"},
    {"stage", "0: passes host memory on as it is, without poison behind the call; default 1"}};

}  // namespace

constinit const LayerInfo kValidateLayer{"validate", "checks each call against the contract",
                                         kOptions, make_layer<ValidateLayer>};

}  // namespace bp::layers
