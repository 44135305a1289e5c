#include "registry/dispatch/prepared.hpp"

#include <algorithm>
#include <atomic>
#include <string>
#include <vector>

#include "registry/boundary/error_slot.hpp"
#include "registry/boundary/fail.hpp"
#include "registry/boundary/guard.hpp"
#include "registry/boundary/out_struct.hpp"
#include "registry/boundary/plugin_text.hpp"
#include "registry/boundary/prefix.hpp"
#include "registry/calls/claims.hpp"
#include "registry/calls/frame_words.hpp"
#include "registry/calls/own_layouts.hpp"
#include "registry/dispatch/laying_out.hpp"
#include "registry/dispatch/realigning.hpp"
#include "registry/dispatch/reasons.hpp"
#include "registry/dispatch/selection.hpp"
#include "registry/dispatch/submit.hpp"
#include "registry/state/program_refusal.hpp"

namespace bp::core {
namespace {

// The size of the struct in the first release. It stays the same when members are added.
constexpr uint32_t kFirstInfo = offsetof(bp_prepared_info, algorithm) + sizeof(void*);

}  // namespace

struct Prepared {
  // The owner of the handle and the captured graphs that launch the call hold it.
  std::shared_ptr<Prepared> of_handle;
  Target* target = nullptr;  // It is NULL after the unload.
  const OpRow* row = nullptr;
  Key key;
  const bp_kernel* kernel = nullptr;
  bp_kernel_sources source = 0;
  Reason* reason = nullptr;  // Why the kernel serves the call, where has_reason() holds.
  bool needs_scalar_tensors = false;
  bp_launch_flags flags = 0;
  std::vector<uint32_t> constant_args;  // Numbers of tensors of the frame, in order.
  std::vector<uint64_t> words;          // The words of the frame.
  // The layouts of the frame's tensors. Layouts are compared by address, so they are retained: the
  // address of a retained layout cannot become the address of another one.
  std::vector<const bp_layout*> layouts;
  bp_plan* plan = nullptr;
  bp_plan_info info{};
  std::string algorithm;  // The plan's algorithm, or why there is no plan.
  BlockHandle packed;
  std::atomic<bool> is_lost = false;         // If true, a reset of the device has ended the plan.
  std::atomic<bp_stream*> stream = nullptr;  // The stream of the packing. NULL once it has ended.

  Launch launch(bp_stream* on) const {
    return {*target,
            on,
            flags,
            *row,
            *kernel,
            source,
            plan,
            info.workspace_required_bytes,
            std::max(info.workspace_required_bytes, info.workspace_preferred_bytes)};
  }

  Prepared() = default;
  Prepared(const Prepared&) = delete;
  ~Prepared() {
    if (target == nullptr) return;
    {
      const std::lock_guard lock(target->prepared_mutex);
      std::erase(target->prepared, this);
    }
    end();
  }

  void end() {
    if (plan != nullptr && !is_lost) static_cast<void>(kernel->plan_release(kernel, plan));
    plan = nullptr;
    packed.reset();
    for (const bp_layout* layout : layouts) {
      static_cast<void>(target->layouts->release(target->layouts->self, layout));
    }
    layouts.clear();
    target = nullptr;
  }
};

namespace {

Prepared& impl(bp_prepared* prepared) { return *reinterpret_cast<Prepared*>(prepared); }
const Prepared& impl(const bp_prepared* prepared) {
  return *reinterpret_cast<const Prepared*>(prepared);
}

// Returns the frame without members that only a newer build knows, or NULL if such a member is
// given.
const void* frame_of_this_build(const OpRow& row, const void* args, std::byte* storage) {
  if (frame_size(args) < row.frame_size_bytes) return lengthened_frame(row, args, storage);
  if (frame_size(args) > kMaxStructBytes) {
    frame_too_long(row, args);
    return nullptr;
  }
  uint32_t offset = 0;
  const void* frame = fit_frame(row, args, row.frame_size_bytes, storage, &offset);
  if (frame == nullptr) {
    fail(BP_INCOMPATIBLE, std::string(row.name) + ": byte " + std::to_string(offset) +
                              " of the frame is not zero, and this host does not know it");
  }
  return frame;
}

bp_status check_frame(const Prepared& p, const void* args) {
  const FrameDifference difference = differing_member(*p.row, args, p.constant_args, p.words);
  if (difference.name == nullptr) return BP_OK;
  const char* allowed = difference.is_constant ? "a constant argument must keep its place"
                        : difference.is_tensor ? "dtype, shape and strides must stay the same"
                                               : "attributes must stay the same";
  return fail(BP_INVALID_ARGUMENT, std::string(p.row->name) + ": " + difference.name +
                                       " differs from the prepared frame; " + allowed);
}

// Checks that the argument may be constant. `first` is the number of its first tensor.
bp_status check_constant(const Prepared& p, const TensorArgument& argument, const void* args,
                         uint32_t first) {
  const bool is_list = argument.is_list();
  const bp_tensor* const one = is_list ? nullptr : tensor_at(args, argument);
  const TensorList list = is_list ? list_at(args, argument) : TensorList{1, &one};
  for (const uint32_t number : p.constant_args) {
    if (number < first || number - first >= list.count) continue;
    const std::string subject = std::string(p.row->name) + ": " + argument.name;
    if (argument.is_output() || argument.kind == Kind::inout || argument.kind == Kind::inout_list) {
      return fail(BP_INVALID_ARGUMENT, subject + " is written, so it cannot be constant");
    }
    const bp_tensor* const tensor = list.items[number - first];
    if (tensor != nullptr && tensor->buffer == nullptr) {
      const std::string place = is_list ? "[" + std::to_string(number - first) + "]" : "";
      return fail(BP_INVALID_ARGUMENT, subject + place + " is constant, but has no buffer");
    }
  }
  return BP_OK;
}

bp_status check_constants(const Prepared& p, const void* args) {
  uint32_t count = 0;
  for (uint32_t i = 0; i < p.row->tensor_count; ++i) {
    const TensorArgument& argument = p.row->tensors[i];
    const bp_status status = check_constant(p, argument, args, count);
    if (status != BP_OK) return status;
    count += argument.is_list() ? static_cast<uint32_t>(list_at(args, argument).count) : 1;
  }
  const auto twice = std::ranges::adjacent_find(p.constant_args);
  if (twice != p.constant_args.end()) {
    return fail(BP_INVALID_ARGUMENT, std::string(p.row->name) + ": constant_args has the number " +
                                         std::to_string(*twice) + " twice; give it once");
  }
  if (p.constant_args.empty() || p.constant_args.back() < count) return BP_OK;
  return fail(BP_INVALID_ARGUMENT, std::string(p.row->name) + ": constant_args has the number " +
                                       std::to_string(p.constant_args.back()) +
                                       "; the frame has the tensors 0 to " +
                                       std::to_string(count - 1));
}

bp_status pack(Prepared& p, const void* frame) {
  bp_block* block = nullptr;
  bp_status status = p.target->cache->allocate(p.stream, p.info.packed_size_bytes, &block);
  if (status != BP_OK) return status;
  p.packed.reset(block);
  const Launch l = p.launch(p.stream);
  BlockHandle workspace;
  status = take_workspace(l, l.required_bytes, l.preferred_bytes, workspace);
  if (status != BP_OK) return status;
  const bp_launch launch = l.with(range_of(workspace));
  const bp_buffer_ref packed{block->ref.buffer, block->ref.byte_offset, p.info.packed_size_bytes};
  return p.kernel->plan_pack(p.kernel, &launch, frame, &packed);
}

// Makes a plan, or writes into `algorithm` why there is no plan.
bp_status make_plan(Prepared& p, const void* frame) {
  if (p.source != BP_KERNEL_NATIVE || !has_plans(*p.kernel)) {
    p.algorithm = std::string(p.kernel->name) + " makes no plans";
    return BP_OK;
  }
  if (p.needs_scalar_tensors) {
    p.algorithm = "an inline scalar becomes a tensor in each launch";
    return BP_OK;
  }
  if (needs_layouts(*p.row, *p.kernel, p.key)) {
    p.algorithm = laying_out_text(*p.row, *p.kernel, p.key) + " for each launch";
    return BP_OK;
  }
  if (p.key.is_qualified()) {
    p.algorithm = "a tensor has flags, or a link that must be understood";
    return BP_OK;
  }
  const bp_prepare_desc desc{.struct_size = sizeof(desc),
                             .struct_type = BP_STRUCT_PREPARE_DESC,
                             .next = nullptr,
                             .flags = p.flags,
                             .reserved = 0,
                             .constant_args = p.constant_args.data(),
                             .constant_arg_count = p.constant_args.size()};
  bp_status status = p.kernel->prepare(p.kernel, p.target->device, &desc, frame, &p.plan);
  if (classify(*p.target, status) == BP_UNSUPPORTED) {
    p.plan = nullptr;
    p.algorithm = take_error();
    return BP_OK;
  }
  if (status != BP_OK) return status;
  p.info.struct_size = sizeof(p.info);
  p.info.struct_type = BP_STRUCT_PLAN_INFO;
  status = p.kernel->plan_info(p.kernel, p.plan, &p.info);
  if (status != BP_OK) return status;
  if (p.info.algorithm != nullptr) p.algorithm = clean_name(p.info.algorithm);
  return p.info.packed_size_bytes == 0 ? BP_OK : pack(p, frame);
}

// Returns whether the call becomes a program of one op, and compiles it. The device has no kernel
// of the op then.
bool compiles(Prepared& p, const Reading& r) {
  if (p.target->compiled == nullptr || !p.target->kernels.of(*r.row).empty()) return false;
  const bp_kernel* const kernel = p.target->compiled->kernel(*r.row);
  if (!claims_refusal(*r.row, *kernel, r.key).empty()) return false;
  if (!accepts(*p.target, *r.row, *kernel, r.key, r.frame)) return false;
  p.kernel = kernel;
  p.source = BP_KERNEL_NATIVE;
  p.needs_scalar_tensors = needs_scalar_tensors(*r.row, *kernel, r.key);
  return true;
}

bp_status choose_kernel(Prepared& p, const Reading& r) {
  if (compiles(p, r)) return BP_OK;
  const bp_kernel_sources sources = allowed_sources(*p.target);
  for (const Candidate& candidate : choose(*p.target, *r.row, r.key, r.frame)->candidates) {
    if (!is_taken(*p.target, *r.row, candidate, sources, r.key, r.frame)) continue;
    p.kernel = candidate.kernel;
    p.source = candidate.source;
    p.needs_scalar_tensors = candidate.needs_scalar_tensors;
    return BP_OK;
  }
  return nothing_left(*p.target, r, false);
}

bp_status retain_layout(Prepared& p, const bp_tensor* tensor) {
  if (tensor == nullptr || tensor->layout == nullptr) return BP_OK;
  const bp_layout_ops& layouts = *p.target->layouts;
  p.layouts.reserve(p.layouts.size() + 1);
  const bp_status status = layouts.retain(layouts.self, tensor->layout);
  if (status == BP_OK) p.layouts.push_back(tensor->layout);
  return status;
}

bp_status retain_layouts(Prepared& p, const void* args) {
  if (!has_own_layouts(*p.row, p.key)) return BP_OK;
  for (uint32_t i = 0; i < p.row->tensor_count; ++i) {
    const TensorArgument& argument = p.row->tensors[i];
    const bp_tensor* const one = argument.is_list() ? nullptr : tensor_at(args, argument);
    const TensorList list = argument.is_list() ? list_at(args, argument) : TensorList{1, &one};
    for (uint64_t k = 0; k < list.count; ++k) {
      const bp_status status = retain_layout(p, list.items[k]);
      if (status != BP_OK) return status;
    }
  }
  return BP_OK;
}

bp_status prepare(Prepared& p, const Reading& r) {
  p.row = r.row;
  p.key = r.key;
  alignas(8) std::byte own_storage[kMaxFrameBytes];
  const void* own_frame = frame_of_this_build(*p.row, r.frame, own_storage);
  if (own_frame == nullptr) return BP_INCOMPATIBLE;
  bp_status status = check_constants(p, own_frame);
  if (status == BP_OK) status = choose_kernel(p, r);
  if (status == BP_OK) status = retain_layouts(p, own_frame);
  if (status != BP_OK) return status;
  if (has_reason(*p.kernel, p.source)) {
    p.reason = &reason_of(*p.target, r, *p.kernel, p.source);
  }
  p.words = frame_words(*p.row, own_frame, p.constant_args);
  alignas(8) std::byte storage[kMaxFrameBytes];
  uint32_t offset = 0;
  // The frame fits: that was checked when the kernel was chosen.
  const void* frame = fit_frame(*p.row, r.frame, p.kernel->args_size_bytes, storage, &offset);
  return make_plan(p, frame);
}

// Checks a call whose buffers may differ from the prepared ones. Alignment and what is in place may
// then differ too, so the kernel has to claim the call.
bp_status check_call(const Prepared& p, const void* frame) {
  Key key;
  bool has_null = false;
  // This call comes first, because it checks the pointers that the code below follows.
  bp_status status = read_call(*p.row, p.flags, frame, key, &has_null);
  if (status == BP_OK) status = check_frame(p, frame);
  if (status == BP_OK && has_null) status = check_buffers(*p.row, frame);
  if (status != BP_OK) return status;
  if (key.is_qualified() != p.key.is_qualified()) {
    return fail(BP_INVALID_ARGUMENT,
                std::string(p.row->name) +
                    ": only one of this frame and the prepared one has flags of tensors or links "
                    "that must be understood; prepare the call anew with them");
  }
  const bool is_prepared = key == p.key && !key.is_qualified();
  if (is_prepared || p.source != BP_KERNEL_NATIVE) return BP_OK;
  std::string refusal = offset_refusal(*p.target, *p.row, key);
  if (refusal.empty()) refusal = claims_refusal(*p.row, *p.kernel, key);
  if (refusal.empty()) refusal = call_refusal(*p.target, *p.row, *p.kernel, key, frame);
  if (refusal.empty()) return BP_OK;
  return fail(BP_INVALID_ARGUMENT, std::string(p.row->name) + ": the prepared kernel " +
                                       p.kernel->name + " does not take these buffers: " + refusal +
                                       "; prepare the call anew with them");
}

bp_status launch(Prepared& p, bp_stream* stream, const void* args) {
  Target& target = *p.target;
  alignas(8) std::byte storage[kMaxFrameBytes];
  const void* frame = frame_of_this_build(*p.row, args, storage);
  if (frame == nullptr) return BP_INCOMPATIBLE;
  bp_status status = check_call(p, frame);
  if (status != BP_OK) return status;
  if (stream == nullptr) stream = target.default_stream;
  std::shared_ptr<services::CaptureParts> program;
  status = find_program(target, stream, program);
  if (status != BP_OK) return status;
  if (program != nullptr) return program->recorder()->launch(*p.row, p.flags, frame);
  if (p.packed != nullptr && stream != p.stream) {
    status = services::Cache::record_stream(p.packed.get(), stream);
    if (status != BP_OK) return status;
  }
  status = submit(p.launch(stream), p.needs_scalar_tensors, frame);
  if (status != BP_OK) return status;
  count(target, *p.row, p.source);
  if (p.reason != nullptr) count_call(*p.reason);
  const services::Captures& captures = target.caches->captures();
  if (!captures.any()) [[likely]] {
    return BP_OK;
  }
  return captures.keep(stream, p.of_handle, p.packed.get());
}

}  // namespace

void forget_stream(Target& target, bp_stream* stream) {
  const std::lock_guard lock(target.prepared_mutex);
  for (Prepared* prepared : target.prepared) {
    if (prepared->stream == stream) prepared->stream = nullptr;
  }
}

void lose_prepared(Target& target) {
  const std::lock_guard lock(target.prepared_mutex);
  for (Prepared* prepared : target.prepared) prepared->is_lost = true;
}

void leave_prepared(Target& target) {
  for (Prepared* prepared : target.prepared) {
    prepared->plan = nullptr;
    prepared->layouts.clear();
    prepared->target = nullptr;
  }
  target.prepared.clear();
}

void end_prepared(Target& target) {
  std::vector<Prepared*> ending;
  {
    const std::lock_guard lock(target.prepared_mutex);
    ending.swap(target.prepared);
  }
  for (Prepared* prepared : ending) prepared->end();
}

}  // namespace bp::core

// NOLINTNEXTLINE(google-build-using-namespace): the functions below are the namespace's C API.
using namespace bp::core;
using bp::backend_unloaded;
using bp::fail;
using bp::is_null;

// NOLINTNEXTLINE(readability-function-size): host.h has these arguments.
bp_status bp_op_prepare(const bp_target* target, bp_stream* stream, bp_launch_flags flags,
                        uint32_t op, const void* args, const uint32_t* constant_args,
                        uint64_t constant_arg_count, bp_prepared** out_prepared) {
  return guarded([&]() -> bp_status {
    if (out_prepared == nullptr) return is_null("out_prepared");
    if (constant_arg_count != 0 && constant_args == nullptr) return is_null("constant_args");
    Reading r;
    if (const bp_status status = read(target, flags, op, args, r); status != BP_OK) return status;
    const auto p = std::make_shared<Prepared>();
    p->target = &bp::core::impl(target);
    p->stream = stream == nullptr ? p->target->default_stream : stream;
    p->flags = flags;
    p->constant_args.assign(constant_args, constant_args + constant_arg_count);
    std::ranges::sort(p->constant_args);
    if (const bp_status status = prepare(*p, r); status != BP_OK) {
      const std::string words = take_error();
      p->end();
      return fail(status, words);
    }
    const std::lock_guard lock(p->target->prepared_mutex);
    p->target->prepared.push_back(p.get());
    p->of_handle = p;
    *out_prepared = reinterpret_cast<bp_prepared*>(p.get());
    return BP_OK;
  });
}

bp_status bp_prepared_launch(bp_prepared* prepared, bp_stream* stream, const void* args) {
  return guarded([&]() -> bp_status {
    if (prepared == nullptr) return is_null("prepared");
    if (args == nullptr) return is_null("args");
    Prepared& p = impl(prepared);
    if (p.target == nullptr) return backend_unloaded("prepared");
    if (p.is_lost) {
      return fail(BP_DEVICE_LOST, std::string(p.row->name) +
                                      ": the call was prepared before its device was reset; "
                                      "prepare it anew");
    }
    return launch(p, stream, args);
  });
}

bp_status bp_prepared_get_info(const bp_prepared* prepared, bp_prepared_info* out_info) {
  if (prepared == nullptr) return is_null("prepared");
  const Prepared& p = impl(prepared);
  if (p.target == nullptr) return backend_unloaded("prepared");
  bp_prepared_info info{};
  info.kernel = p.kernel;
  info.source = p.source;
  info.has_plan = p.plan != nullptr ? 1 : 0;
  info.packed_size_bytes = p.info.packed_size_bytes;
  info.workspace_required_bytes = p.info.workspace_required_bytes;
  info.workspace_preferred_bytes = p.info.workspace_preferred_bytes;
  info.algorithm = p.algorithm.c_str();
  return write_out(info, out_info, kFirstInfo, "out_info");
}

bp_status bp_prepared_release(bp_prepared* prepared) {
  if (prepared == nullptr) return BP_OK;
  return guarded([&] {
    const std::shared_ptr<Prepared> owned = std::move(impl(prepared).of_handle);
    return bp_status{BP_OK};
  });
}
