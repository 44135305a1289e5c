// The rules of launches, plans and conversions, and what they touch.
#include <algorithm>

#include "registry/calls/call.hpp"
#include "registry/calls/runtime_ops.hpp"
#include "registry/layers/record_frame.hpp"
#include "registry/layers/validate.hpp"
#include "registry/layers/words.hpp"

namespace bp::layers {

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
      if (device != nullptr && buffer->device != device) {
        return named("[KERNEL-7] its buffer is of another device");
      }
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

namespace {

// Returns NULL if the frame is none that can be read.
const core::OpRow* row_of_frame(uint32_t op, const void* args) {
  const core::OpRow* const row = core::find_op(op);
  const bool is_frame =
      row != nullptr && args != nullptr && core::frame_size(args) >= row->first_size_bytes();
  return is_frame ? row : nullptr;
}

// Returns the numbers of the tensors of a frame that have a buffer.
std::vector<uint32_t> tensors_with_buffers(uint32_t op, const void* args) {
  std::vector<uint32_t> numbers;
  const core::OpRow* const row = row_of_frame(op, args);
  if (row == nullptr) return numbers;
  for (const FrameTensor& each : frame_tensors(*row, args)) {
    const bool has_buffer = each.tensor != nullptr && each.tensor->buffer != nullptr;
    if (has_buffer) numbers.push_back(each.number);
  }
  return numbers;
}

}  // namespace

std::string ValidateLayer::frame_defect(uint32_t op, const void* args, bp_device* device,
                                        const std::vector<uint32_t>* numbers,
                                        std::vector<Access>& accesses) {
  const core::OpRow* row = row_of_frame(op, args);
  if (row == nullptr) return "";
  std::string defect;
  for (const FrameTensor& each : frame_tensors(*row, args)) {
    if (numbers != nullptr && std::ranges::find(*numbers, each.number) == numbers->end()) continue;
    defect = tensor_argument_defect(each.name, each.tensor, device, each.is_read, each.is_written,
                                    accesses);
    if (!defect.empty()) break;
  }
  return defect;
}

// The frame does not say what the program reads and writes, so only the handles are looked at.
std::string ValidateLayer::program_defect(const void* args, bp_device* device) {
  const auto* const frame = static_cast<const bp_program_args*>(args);
  if (frame == nullptr || frame->struct_size < sizeof(*frame) || frame->tensors == nullptr) {
    return "";
  }
  std::vector<Access> accesses;
  std::string defect;
  for (uint64_t i = 0; i < frame->tensor_count && defect.empty(); ++i) {
    if (frame->tensors[i].buffer == nullptr) continue;
    defect = tensor_argument_defect(std::to_string(i), &frame->tensors[i], device, false, false,
                                    accesses);
  }
  return defect;
}

std::string ValidateLayer::launch_defect(const bp_launch& launch) {
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
  return defect;
}

// A host may ask before it allocates. Where it gives a buffer, a kernel may follow the handle.
bp_status ValidateLayer::workspace_size(const WrappedKernel& kernel, bp_device* device,
                                        bp_launch_flags flags, const void* args,
                                        uint64_t* out_required_bytes,
                                        uint64_t* out_preferred_bytes) {
  {
    std::unique_lock lock(mutex_);
    std::vector<Access> accesses;
    const uint32_t op = core::op_of(kernel.kernel);
    const std::vector<uint32_t> numbers = tensors_with_buffers(op, args);
    const std::string defect = frame_defect(op, args, device, &numbers, accesses);
    if (!defect.empty()) return illegal(lock, Slot::kernel_workspace_size, defect);
  }
  return kernel.next->workspace_size(kernel.next, device, flags, args, out_required_bytes,
                                     out_preferred_bytes);
}

bp_status ValidateLayer::launch(const WrappedKernel& kernel, const bp_launch* launch,
                                const void* args) {
  const auto next = [&] { return kernel.next->launch(kernel.next, launch, args); };
  if (launch == nullptr) return next();
  std::vector<Access> accesses;
  {
    std::unique_lock lock(mutex_);
    std::string defect = launch_defect(*launch);
    if (defect.empty()) {
      const uint32_t op = core::op_of(kernel.kernel);
      defect = op == 0 ? program_defect(args, launch->device)
                       : frame_defect(op, args, launch->device, nullptr, accesses);
    }
    if (!defect.empty()) return illegal(lock, Slot::kernel_launch, defect);
    if (launch->workspace.buffer != nullptr) {
      accesses.push_back({footprint_of(launch->workspace), true});
    }
    const Handle* plan = handles_.find(HandleKind::plan, launch->plan);
    if (plan != nullptr && plan->packed.buffer != nullptr) {
      accesses.push_back({footprint_of(plan->packed), false});
    }
  }
  return submit(Slot::kernel_launch, launch->stream, accesses,
                std::string("kernel ") + kernel.kernel.name, Continue(next));
}

// ---- Plans --------------------------------------------------------------------------------------

// Reads the arguments that the plan takes as constant. The others need no memory.
bp_status ValidateLayer::plan_pack(const WrappedKernel& kernel, const bp_launch* launch,
                                   const void* args, const bp_buffer_ref* packed) {
  const auto next = [&] { return kernel.next->plan_pack(kernel.next, launch, args, packed); };
  if (launch == nullptr || packed == nullptr) return next();
  std::vector<Access> accesses;
  {
    std::unique_lock lock(mutex_);
    std::string defect = launch_defect(*launch);
    if (defect.empty()) defect = defect_of(packed);
    const Handle* plan = handles_.find(HandleKind::plan, launch->plan);
    if (defect.empty() && plan != nullptr) {
      defect = frame_defect(core::op_of(kernel.kernel), args, launch->device, &plan->constants,
                            accesses);
    }
    if (!defect.empty()) return illegal(lock, Slot::kernel_plan_pack, defect);
    for (Access& access : accesses) access.writes = false;
    for (const bp_buffer_ref& written : {*packed, launch->workspace}) {
      if (written.buffer != nullptr) accesses.push_back({footprint_of(written), true});
    }
  }
  const bp_status status = submit(Slot::kernel_plan_pack, launch->stream, accesses,
                                  std::string("packing for ") + kernel.kernel.name, Continue(next));
  if (status != BP_OK) return status;
  const std::lock_guard lock(mutex_);
  if (Handle* plan = handles_.find(HandleKind::plan, launch->plan)) plan->packed = *packed;
  return status;
}

bp_status ValidateLayer::prepare(const WrappedKernel& kernel, bp_device* device,
                                 const bp_prepare_desc* desc, const void* args,
                                 bp_plan** out_plan) {
  const bp_status status = kernel.next->prepare(kernel.next, device, desc, args, out_plan);
  if (status != BP_OK) return status;
  const std::lock_guard lock(mutex_);
  Handle plan{.device = device};
  if (desc != nullptr && desc->constant_args != nullptr) {
    plan.constants.assign(desc->constant_args, desc->constant_args + desc->constant_arg_count);
  }
  handles_.add(HandleKind::plan, *out_plan, std::move(plan));
  return status;
}

bp_status ValidateLayer::plan_release(const WrappedKernel& kernel, bp_plan* plan) {
  {
    std::unique_lock lock(mutex_);
    const std::string defect = defect_of_handle(HandleKind::plan, plan);
    if (!defect.empty()) return illegal(lock, Slot::kernel_plan_release, defect);
    end_handle(HandleKind::plan, plan, Slot::kernel_plan_release);
  }
  return kernel.next->plan_release(kernel.next, plan);
}

// ---- Layouts ------------------------------------------------------------------------------------

bp_status ValidateLayer::call(At<Slot::layout_convert>, Continue next, bp_stream* stream,
                              const bp_tensor* dst, const bp_tensor* src) {
  if (dst == nullptr || src == nullptr) return next();
  std::vector<Access> accesses;
  {
    std::unique_lock lock(mutex_);
    const Handle* on = handles_.find(HandleKind::stream, stream);
    bp_device* const device = on == nullptr ? nullptr : on->device;
    std::string defect = tensor_argument_defect("dst", dst, device, false, true, accesses);
    if (defect.empty()) {
      defect = tensor_argument_defect("src", src, device, true, false, accesses);
    }
    if (!defect.empty()) return illegal(lock, Slot::layout_convert, defect);
  }
  return submit(Slot::layout_convert, stream, accesses, "conversion", next);
}

}  // namespace bp::layers
