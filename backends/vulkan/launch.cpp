// Turns launches into commands. Addresses are checked here, because an address out of range ends
// the process on some drivers and corrupts memory on others.
#include <algorithm>
#include <cstring>

#include "backends/vulkan/backend.hpp"
#include "backends/vulkan/kernel_env.hpp"
#include "backplane/shell/frame.hpp"
#include "backplane/shell/shape.hpp"

namespace bp::vulkan {
namespace {

Buffer& local_buffer(bp_buffer* handle, const Card& card, const char* what) {
  Buffer& b = buffer_of(handle, "launch", what);
  if (&b.device->card() != &card) refuse_two_devices("launch", what);
  return b;
}

// What failure_address() gives.
struct CheckReport {
  uint32_t is_set, reserved;
  int64_t value;
  uint64_t place;  // The address of the value.
};
constexpr uint64_t kCheckBytes = sizeof(CheckReport);

// The alignment that is_aligned() tests.
constexpr uint64_t kVectorBytes = 16;

// The address of all tensors in prepare(), which reads and writes nothing.
constexpr uint64_t kPreparedAddress = uint64_t{1} << 20;

}  // namespace

Range Launch::range(const bp_tensor& t) const {
  if (element_count(t) == 0 || prepared_ != nullptr) return {};
  Buffer& b = local_buffer(t.buffer, card_, "tensor");
  const Extent extent = extent_in_buffer(t, b.size_bytes, "launch: a tensor");
  return {&b, static_cast<uint64_t>(extent.begin),
          static_cast<uint64_t>(extent.end - extent.begin)};
}

bool Launch::is_aligned(const bp_tensor& t) const {
  if (device_address(t) % kVectorBytes != 0) return false;
  const Range r = range(t);
  return r.buffer == nullptr || !binds() ||
         r.buffer->offset_in_buffer(r.offset_bytes) % limits().storage_alignment_bytes == 0;
}

bool Launch::can_bind(const bp_tensor& t) const {
  const Extent extent = extent_of(t);
  return binds() && extent.begin == 0 && extent.end > 0 &&
         static_cast<uint64_t>(extent.end) <= limits().max_storage_bytes;
}

uint64_t Launch::device_address(const bp_tensor& t) const {
  if (prepared_ != nullptr) {
    if (element_count(t) == 0) return 0;
    if (t.buffer == workspace_ref().buffer) return kPreparedAddress + t.byte_offset;
    return kPreparedAddress + (is_aligned_ ? 0 : static_cast<uint64_t>(dtype_size_bytes(t.dtype)));
  }
  const Range checked = range(t);
  return checked.buffer == nullptr ? 0 : checked.buffer->address() + t.byte_offset;
}

// Returns the workspace. In prepare() it has a buffer that no tensor has.
bp_buffer_ref Launch::workspace_ref() const {
  if (prepared_ == nullptr) return launch_.workspace;
  return {reinterpret_cast<bp_buffer*>(prepared_), 0, prepared_->workspace_size_bytes};
}

Range Launch::workspace() const {
  const bp_buffer_ref& range = launch_.workspace;
  if (range.buffer == nullptr || prepared_ != nullptr) return {};
  Buffer& b = local_buffer(range.buffer, card_, "workspace");
  if (!is_inside(range, b.size_bytes)) refuse_range(range, b.size_bytes, "launch: workspace");
  return {&b, range.byte_offset, range.size_bytes};
}

uint64_t Launch::workspace_address() const {
  if (prepared_ != nullptr) return kPreparedAddress;
  const Range checked = workspace();
  return checked.buffer == nullptr ? 0 : checked.buffer->address() + checked.offset_bytes;
}

uint64_t Launch::failure_address(FailureText text) {
  if (prepared_ != nullptr) return kPreparedAddress;
  const Slice slice = stream_->lane->engine().readbacks.take(kCheckBytes, kernel_.name);
  std::memset(slice.pointer, 0, kCheckBytes);
  slice.memory->flush(slice.byte_offset, kCheckBytes);
  checks_.push_back({slice, std::move(text)});
  return slice.address();
}

// Completes `checked` with the reports of the shaders, once they have run.
void Launch::watch(Recording& recording, std::vector<Check> checks,
                   std::shared_ptr<Point> checked) {
  for (const Check& check : checks) recording.retain(check.slice.memory);
  recording.on_end([checks = std::move(checks), checked = std::move(checked)] {
    Outcome outcome;
    for (const Check& check : checks) {
      check.slice.memory->invalidate(check.slice.byte_offset, kCheckBytes);
      CheckReport report;
      std::memcpy(&report, check.slice.pointer, sizeof(report));
      if (report.is_set == 0 || outcome.status != BP_OK) continue;
      outcome = {.status = BP_DATA_FAILURE,
                 .text = check.text(report.value, report.place),
                 .lets_queued_work_run = true};
    }
    checked->complete(std::move(outcome));
  });
}

void Launch::add_ranges(std::span<const Range> ranges, bool is_written) {
  for (const Range& range : ranges) {
    if (range.buffer == nullptr || range.size_bytes == 0) continue;
    const uint64_t begin = range.buffer->address() + range.offset_bytes;
    commands_.ranges.push_back({begin, begin + range.size_bytes, is_written});
  }
}

// Returns the variant of the shader that reads its record in the best way for this device.
const Module& Launch::module_of(const Dispatch& dispatch) const {
  const Module* const bound = dispatch.module->with_bound_record;
  return bound != nullptr && binds() ? *bound : *dispatch.module;
}

// Returns the pipeline. A plan has every pipeline that its launches need. If a launch with a plan
// compiles a pipeline, that is a bug of this backend, and a line of the log says so.
VkPipeline Launch::pipeline_of(const Dispatch& dispatch) {
  bool is_new = false;
  const VkPipeline pipeline =
      stream_->lane->engine().pipelines.get(module_of(dispatch), dispatch.constants, &is_new);
  if (is_new && launch_.plan != nullptr) {
    card_.log(BP_LOG_ERROR, std::string(kernel_.name) + ": a launch with a plan compiled " +
                                dispatch.module->name + ", which prepare() had to do");
  }
  return pipeline;
}

void Launch::prepare(const Dispatch& dispatch) {
  const VkPipeline pipeline =
      card_.engine()->pipelines.get(module_of(dispatch), dispatch.constants, nullptr);
  std::vector<VkPipeline>& known = prepared_->pipelines;
  if (std::ranges::find(known, pipeline) != known.end()) return;
  known.push_back(pipeline);
  if (!is_aligned_) return;
  std::string& algorithm = prepared_->algorithm;
  algorithm += (algorithm.empty() ? "" : ", ") + std::string(dispatch.module->name);
}

void Launch::add_bound(std::span<const Range> ranges) {
  for (const Range& range : ranges) {
    const Buffer& b = *range.buffer;
    const uint64_t offset = b.offset_in_buffer(range.offset_bytes);
    const uint64_t surplus = offset % limits().storage_alignment_bytes;
    commands_.bound.push_back({b.memory->buffer(), offset - surplus,
                               std::min(range.size_bytes + surplus, limits().max_storage_bytes)});
  }
}

bp_status Launch::dispatch(const Dispatch& dispatch) {
  for (int axis = 0; axis < 3; ++axis) {
    if (dispatch.groups[axis] <= max_groups(axis)) continue;
    bp::refuse(BP_INTERNAL, std::string(kernel_.name) + ": " +
                                std::to_string(dispatch.groups[axis]) + " groups along axis " +
                                std::to_string(axis) + "; the device has at most " +
                                std::to_string(max_groups(axis)));
  }
  const bool is_nothing =
      std::ranges::any_of(dispatch.groups, [](uint32_t count) { return count == 0; });
  if (is_nothing) return BP_OK;
  if (prepared_ != nullptr) {
    prepare(dispatch);
    return BP_OK;
  }
  Engine& engine = stream_->lane->engine();
  Command command{};
  command.pipeline = pipeline_of(dispatch);
  std::ranges::copy(dispatch.groups, command.groups);
  if (only_checks_) return BP_OK;
  if (!dispatch.arguments.empty()) {
    const Slice record = engine.uploads.take(dispatch.arguments.size(), kernel_.name);
    std::memcpy(record.pointer, dispatch.arguments.data(), dispatch.arguments.size());
    const uint64_t address = record.address();
    std::memcpy(command.push.data(), &address, sizeof(address));
    if (&module_of(dispatch) != dispatch.module) {
      command.bound_record = {record.memory->buffer(), record.offset_in_buffer(),
                              dispatch.arguments.size()};
    }
    std::vector<std::shared_ptr<Memory>>& records = commands_.records;
    if (records.empty() || records.back() != record.memory) records.push_back(record.memory);
  }
  std::ranges::copy(dispatch.pushed, command.push.begin() + kPushBytes);
  command.push_size_bytes = kPushBytes + static_cast<uint32_t>(dispatch.pushed.size());
  command.first_bound = static_cast<uint32_t>(commands_.bound.size());
  add_bound(dispatch.bound);
  command.bound_count = static_cast<uint32_t>(dispatch.bound.size());
  command.first_range = static_cast<uint32_t>(commands_.ranges.size());
  add_ranges(dispatch.reads, false);
  add_ranges(dispatch.writes, true);
  command.range_count = static_cast<uint32_t>(commands_.ranges.size()) - command.first_range;
  commands_.list.push_back(command);
  return BP_OK;
}

void Launch::record_command(VkCommandBuffer to, Engine& engine, const Commands& commands,
                            const Command& command) {
  const DeviceFunctions& vk = engine.context->vk;
  const VkPipelineLayout layout = engine.pipelines.layout();
  vk.CmdBindPipeline(to, VK_PIPELINE_BIND_POINT_COMPUTE, command.pipeline);
  // A binding that the shader names must not be empty, even if it is not read.
  VkWriteDescriptorSet writes[kMostBound + 1]{};
  uint32_t count = 0;
  const auto bind = [&](uint32_t binding, VkDescriptorType type,
                        const VkDescriptorBufferInfo& bytes) {
    writes[count++] = {.sType = VK_STRUCTURE_TYPE_WRITE_DESCRIPTOR_SET,
                       .dstBinding = binding,
                       .descriptorCount = 1,
                       .descriptorType = type,
                       .pBufferInfo = &bytes};
  };
  for (uint32_t k = 0; k < kMostBound && command.bound_count > 0; ++k) {
    bind(k, VK_DESCRIPTOR_TYPE_STORAGE_BUFFER,
         commands.bound[command.first_bound + std::min(k, command.bound_count - 1)]);
  }
  if (command.bound_record.buffer != nullptr) {
    bind(kRecordBinding, VK_DESCRIPTOR_TYPE_UNIFORM_BUFFER, command.bound_record);
  }
  if (count > 0) {
    vk.CmdPushDescriptorSetKHR(to, VK_PIPELINE_BIND_POINT_COMPUTE, layout, 0, count, writes);
  }
  vk.CmdPushConstants(to, layout, VK_SHADER_STAGE_COMPUTE_BIT, 0, command.push_size_bytes,
                      command.push.data());
  vk.CmdDispatch(to, command.groups[0], command.groups[1], command.groups[2]);
}

// Validation sees bound ranges without shadow dispatches too. A barrier keeps the shadows from
// being reported as a hazard.
void Launch::separate(VkCommandBuffer to, const Engine& engine) {
  const VkMemoryBarrier barrier{
      .sType = VK_STRUCTURE_TYPE_MEMORY_BARRIER,
      .srcAccessMask = VK_ACCESS_SHADER_READ_BIT | VK_ACCESS_SHADER_WRITE_BIT,
      .dstAccessMask = VK_ACCESS_SHADER_READ_BIT | VK_ACCESS_SHADER_WRITE_BIT};
  engine.context->vk.CmdPipelineBarrier(to, VK_PIPELINE_STAGE_COMPUTE_SHADER_BIT,
                                        VK_PIPELINE_STAGE_COMPUTE_SHADER_BIT, 0, 1, &barrier, 0,
                                        nullptr, 0, nullptr);
}

void Launch::record(Recording& recording, Lane& lane, const Commands& commands) {
  Engine& engine = lane.engine();
  for (const Command& command : commands.list) {
    const auto touched =
        std::span(commands.ranges).subspan(command.first_range, command.range_count);
    recording.order(touched);
    if (engine.shadows != nullptr) {
      engine.shadows->show(recording, lane.card(), touched);
      if (command.bound_count > 0) separate(recording.commands(), engine);
    }
    record_command(recording.commands(), engine, commands, command);
  }
  for (const std::shared_ptr<Memory>& memory : commands.records) recording.retain(memory);
}

// Submits the launch. Work behind a launch with checks waits on the host until the outcome of the
// checks is known. So an event that is recorded there carries this outcome, and a later failure
// does not replace it.
bp_status Launch::submit() {
  if (only_checks_) return BP_OK;
  if (commands_.list.empty()) return stream_->queue->admit();
  const TestFault fault = stream_->lane->faults().take(*stream_->queue);
  const auto checked = checks_.empty() ? nullptr : std::make_shared<Point>(false);
  const bp_status status =
      stream_->queue->submit([lane = stream_->lane, fault, commands = std::move(commands_),
                              checks = std::move(checks_), checked]() mutable {
        auto body = [&](Recording& recording) {
          record(recording, *lane, commands);
          if (checked != nullptr) watch(recording, std::move(checks), checked);
        };
        lane->run(fault, commands.ranges, body);
        if (checked != nullptr) lane->recorder().flush();
      });
  if (status != BP_OK || checked == nullptr) return status;
  return stream_->queue->wait_for(checked);
}

std::optional<Env> Env::find(const bp_kernel& kernel, bp_device* device) {
  const Device* const known = Cards<Instance, Device>::find(instance(kernel.state), device);
  return known == nullptr ? std::nullopt : std::optional(Env(*known));
}

bp_status run_launch(const bp_kernel* kernel, const bp_launch* launch, const void* args,
                     LaunchBody body) {
  const Instance& i = instance(kernel->state);
  const auto make = [&] {
    return Launch(i, *kernel, *launch, stream_of(launch->stream, "launch"));
  };
  return with_launch(i, *kernel, launch, args, make, [&](Launch& context) {
    const bp_status status = body(*kernel, args, context);
    return status == BP_OK ? context.submit() : status;
  });
}

}  // namespace bp::vulkan
