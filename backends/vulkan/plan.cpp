// Plans compile pipelines in prepare(), so that a launch with a plan never compiles.
//
// Drivers may delay most of the compilation to the first dispatch: lavapipe makes machine code
// there, which takes 16 to 470 ms. So prepare() also submits dispatches without workgroups, and
// waits for them.
#include <array>
#include <cstddef>
#include <memory>
#include <string>

#include "backends/vulkan/backend.hpp"
#include "backends/vulkan/kernel_env.hpp"
#include "backplane/shell/first_size.hpp"

namespace bp::vulkan {
namespace {

Plan* plan_of(const bp_plan* plan) { return reinterpret_cast<Plan*>(const_cast<bp_plan*>(plan)); }

// Binds `bytes` at every binding that a shader may name, because no binding may be empty even if
// the shader does not run.
void bind_everywhere(const Engine& engine, VkCommandBuffer to, const Slice& bytes) {
  const VkDescriptorBufferInfo buffer{bytes.memory->buffer(), bytes.offset_in_buffer(),
                                      bytes.size_bytes};
  VkWriteDescriptorSet writes[kMostBound + 1]{};
  for (uint32_t k = 0; k <= kMostBound; ++k) {
    writes[k] = {.sType = VK_STRUCTURE_TYPE_WRITE_DESCRIPTOR_SET,
                 .dstBinding = k,
                 .descriptorCount = 1,
                 .descriptorType = k == kRecordBinding ? VK_DESCRIPTOR_TYPE_UNIFORM_BUFFER
                                                       : VK_DESCRIPTOR_TYPE_STORAGE_BUFFER,
                 .pBufferInfo = &buffer};
  }
  engine.context->vk.CmdPushDescriptorSetKHR(to, VK_PIPELINE_BIND_POINT_COMPUTE,
                                             engine.pipelines.layout(), 0, kMostBound + 1, writes);
}

// The largest record of a kernel has fewer bytes.
constexpr uint64_t kNothingBytes = 4096;

void dispatch_nothing(Engine& engine, const std::vector<VkPipeline>& pipelines) {
  if (pipelines.empty()) return;
  const DeviceFunctions& vk = engine.context->vk;
  const Slice nothing = engine.uploads.take(kNothingBytes, "prepare");
  const Ticket ticket = engine.recorder.record([&](Recording& recording) {
    const VkCommandBuffer to = recording.commands();
    const std::array<std::byte, kMostPushBytes> no_arguments{};
    for (const VkPipeline pipeline : pipelines) {
      vk.CmdBindPipeline(to, VK_PIPELINE_BIND_POINT_COMPUTE, pipeline);
      if (engine.context->physical.has_push_descriptors) bind_everywhere(engine, to, nothing);
      vk.CmdPushConstants(to, engine.pipelines.layout(), VK_SHADER_STAGE_COMPUTE_BIT, 0,
                          kMostPushBytes, no_arguments.data());
      vk.CmdDispatch(to, 0, 0, 0);
    }
  });
  engine.recorder.wait(ticket, UINT64_MAX);
}

}  // namespace

void check_plan(const bp_kernel& kernel, const bp_plan* plan) {
  if (plan != nullptr && plan_of(plan)->kernel == &kernel) return;
  refuse(BP_INVALID_ARGUMENT,
         std::string(kernel.name) + ": the plan is NULL or not one of this kernel");
}

bp_status prepare_plan(const bp_kernel* kernel, bp_device* device, const bp_prepare_desc* desc,
                       const void* args, bp_plan** out_plan, LaunchBody body) {
  const Instance& i = instance(kernel->state);
  return guarded(*i.host, [&]() -> bp_status {
    require(args, "prepare: args");
    require(out_plan, "prepare: out_plan");
    const bp_prepare_desc ours =
        read_desc(desc, kFirstSize<bp_prepare_desc>, BP_STRUCT_PREPARE_DESC, "prepare");
    Device& d = device_of(i, device, "prepare");
    auto plan = std::make_unique<Plan>();
    plan->kernel = kernel;
    if (kernel->workspace_size != nullptr) {
      const bp_status status = kernel->workspace_size(
          kernel, device, args, &plan->workspace_required_bytes, &plan->workspace_preferred_bytes);
      if (status != BP_OK) return status;
    }
    const bp_launch launch{.device = device, .flags = ours.flags};
    for (const bool is_aligned : {true, false}) {
      Launch preparation(i, launch, d, *plan, is_aligned);
      const bp_status status = body(*kernel, args, preparation);
      if (status != BP_OK) return status;
    }
    dispatch_nothing(*d.card().engine(), plan->pipelines);
    *out_plan = reinterpret_cast<bp_plan*>(plan.release());
    return BP_OK;
  });
}

bp_status write_plan_info(const bp_kernel* kernel, const bp_plan* plan, bp_plan_info* out_info) {
  return entry<Instance>(kernel->state, [&](const Instance&) -> bp_status {
    check_plan(*kernel, plan);
    check_offer(out_info, kFirstSize<bp_plan_info>, "plan_info: out_info");
    const Plan& ours = *plan_of(plan);
    out_info->packed_size_bytes = 0;
    out_info->workspace_required_bytes = ours.workspace_required_bytes;
    out_info->workspace_preferred_bytes = ours.workspace_preferred_bytes;
    out_info->algorithm = ours.algorithm.c_str();
    return BP_OK;
  });
}

bp_status refuse_packing(const bp_kernel* kernel, const bp_launch*, const void*,
                         const bp_buffer_ref*) {
  return entry<Instance>(kernel->state, [&](const Instance&) -> bp_status {
    refuse(BP_INVALID_ARGUMENT, std::string(kernel->name) + ": the plan has nothing to pack");
  });
}

bp_status release_plan(const bp_kernel*, bp_plan* plan) {
  delete plan_of(plan);
  return BP_OK;
}

}  // namespace bp::vulkan
