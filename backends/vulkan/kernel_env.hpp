// Everything that the kernels of this backend know of it: addresses, the limits of the device,
// dispatches, and how work fails.
//
// A shader gets one push constant, the 8-byte address of its argument record, which it reads
// through buffer_reference. If the host's processors run shaders, the record is bound as a uniform
// buffer. A kernel may also push a few words, and bind storage buffers, which is faster on such
// devices. All dispatches of a launch are submitted, in order, when the launch returns BP_OK. A
// dispatch sees what earlier ones wrote if its ranges say so.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "backends/vulkan/backend.hpp"
#include "backends/vulkan/memory.hpp"
#include "backends/vulkan/modules.hpp"
#include "backends/vulkan/stream.hpp"
#include "backplane/kernel.h"
#include "backplane/shell/boundary.hpp"
#include "backplane/shell/plan.hpp"

namespace bp::vulkan {

// A range of bytes in a buffer.
struct Range {
  Buffer* buffer = nullptr;
  uint64_t offset_bytes = 0, size_bytes = 0;
};

// One vkCmdDispatch. All members except the module are borrowed during the call.
struct Dispatch {
  const Module* module = nullptr;
  std::span<const uint32_t> constants;   // Specialisation constants 0 to n - 1.
  std::span<const std::byte> arguments;  // The record whose address the shader gets.
  std::span<const std::byte> pushed;     // Pushed behind that address: at most 24 bytes.
  std::span<const Range> bound;          // Storage buffers 0, 1, ... of set 0, at most 4:
                                         // from the aligned place before their begin.
  uint32_t groups[3] = {1, 1, 1};        // If one of them is 0, nothing runs.
  std::span<const Range> reads, writes;  // What it accesses, for hazards.
};

// What a kernel may ask about its device, also when nothing is launched.
class Env {
 public:
  explicit Env(const Device& device) : device_(device) {}

  // Runs body(const Env&) for a function of `kernel`, and turns exceptions into a status.
  template <typename Body>
  static bp_status with(const bp_kernel& kernel, bp_device* device, Body&& body) {
    const Instance& i = instance(kernel.state);
    return guarded(*i.host, [&] { return body(Env(device_of(i, device, kernel.name))); });
  }

  // Returns the Env of a device, for a function of `kernel`; empty if the device is not of this
  // backend.
  static std::optional<Env> find(const bp_kernel& kernel, bp_device* device);

  const Instance& owner() const { return device_.owner(); }
  Card& card() const { return device_.card(); }
  const Physical& limits() const { return device_.physical(); }
  uint32_t max_groups(int axis) const { return limits().max_groups[axis]; }
  uint32_t subgroup_size() const { return limits().subgroup_size; }

  // Returns whether the shaders run on the host's processors, where other variants are fast.
  bool is_processor() const { return limits().type == VK_PHYSICAL_DEVICE_TYPE_CPU; }

  // Returns whether tensors are bound as storage buffers if they can be. On lavapipe a load of 16
  // bytes from a storage buffer costs as much as a load of 8 bytes by address; a load of a word
  // costs half of it.
  bool binds() const { return is_processor() && limits().has_push_descriptors; }

 private:
  const Device& device_;
};

// The pipelines that the launches of a frame need, as prepare() learns them.
struct Preparation {
  uint64_t workspace_size_bytes = 0;
  std::vector<VkPipeline> pipelines;
  std::string algorithm;  // The modules, in the order in which they run.
};

// One launch: what a kernel has besides the arguments of its op.
//
// prepare() runs the same code to learn which pipelines a frame needs; the tensors need no buffers
// for that. It runs the code twice: as if every tensor began at a multiple of 256 bytes, and as if
// every tensor had only the alignment of its element. A kernel that chooses a pipeline by alignment
// must ask for all tensors of the dispatch together, so that there is no third case.
class Launch : public Env {
 public:
  Launch(const Instance& instance, const bp_kernel& kernel, const bp_launch& launch, Stream& stream)
      : Env(*stream.device),
        instance_(instance),
        kernel_(kernel),
        launch_(launch),
        card_(stream.device->card()),
        stream_(&stream) {}

  // Makes the launch for prepare(), which adds what dispatches would need to `preparation`.
  // `launch` has only the flags.
  Launch(const bp_kernel& kernel, const bp_launch& launch, const Env& env, Preparation& preparation,
         bool is_aligned)
      : Env(env),
        instance_(instance(kernel.state)),
        kernel_(kernel),
        launch_(launch),
        card_(env.card()),
        prepared_(&preparation),
        is_aligned_(is_aligned) {}

  // If `only_checks` is true, the launch submits nothing and only says whether it would be
  // accepted.
  void set_only_checks(bool only_checks) { only_checks_ = only_checks; }

  bp_launch_flags flags() const { return launch_.flags; }

  // Returns the plan that prepare() made for this frame, or NULL.
  bp_plan* plan() const { return launch_.plan; }

  // Returns the device address of the first element, or 0 for a tensor without elements. Throws
  // StatusError if the tensor leaves its buffer, or is not on the device of the stream.
  uint64_t device_address(const bp_tensor& t) const;

  // Returns the bytes that the elements of `t` span.
  Range range(const bp_tensor& t) const;

  // Returns whether vectors of 16 bytes can be loaded from the begin of the tensor, by address or
  // bound.
  bool is_aligned(const bp_tensor& t) const;

  // Returns whether the tensor can be bound if it is aligned. Its range then begins with its first
  // element.
  bool can_bind(const bp_tensor& t) const;

  // Returns the device address of the scratch memory that workspace_size() asked for, a multiple of
  // 256 bytes.
  uint64_t workspace_address() const;
  Range workspace() const;
  bp_buffer_ref workspace_ref() const;

  // Returns the address of 24 bytes to which shaders report bad data, such as an index out of
  // range. A shader calls fail_with() of failure.glsl with the value and the address where it lies.
  // If it did so when the launch has ended, the stream fails with the text.
  using FailureText = std::function<std::string(int64_t value, uint64_t place)>;
  uint64_t failure_address(FailureText text);

  // Appends a dispatch. Throws StatusError. Returns BP_OK.
  bp_status dispatch(const Dispatch& dispatch);

  // Refuses the launch: returns `status`, with the text in the thread's error slot. No part of the
  // launch is submitted. In prepare() it throws StatusError.
  bp_status refuse(bp_status status, const std::string& text) const {
    if (prepared_ != nullptr) bp::refuse(status, text);
    return instance_.fail(status, text);
  }

  // Submits what was dispatched. The kernel's adapter calls it.
  bp_status submit();

 private:
  struct Command {
    VkPipeline pipeline;
    uint32_t groups[3];
    uint32_t first_range, range_count;
    uint32_t first_bound, bound_count;
    VkDescriptorBufferInfo bound_record;  // Without a buffer if not bound.
    uint32_t push_size_bytes;             // Of the arguments' address and what follows it:
    std::array<std::byte, kMostPushBytes> push;
  };

  // One address that failure_address() gave.
  struct Check {
    Slice slice;
    FailureText text;
  };
  // The commands that a launch submits.
  struct Commands {
    std::vector<Command> list;
    std::vector<AddressRange> ranges;
    std::vector<VkDescriptorBufferInfo> bound;
    std::vector<std::shared_ptr<Memory>> records;  // The memory of the arguments.
  };

  const Module& module_of(const Dispatch& dispatch) const;
  static void record(Recording& recording, Lane& lane, const Commands& commands);
  static void record_command(VkCommandBuffer to, Engine& engine, const Commands& commands,
                             const Command& command);
  static void separate(VkCommandBuffer to, const Engine& engine);
  static void watch(Recording& recording, std::vector<Check> checks,
                    std::shared_ptr<Point> checked);

  void add_ranges(std::span<const Range> ranges, bool is_written);
  void add_bound(std::span<const Range> ranges);
  void prepare(const Dispatch& dispatch);
  VkPipeline pipeline_of(const Dispatch& dispatch);

  const Instance& instance_;
  const bp_kernel& kernel_;
  const bp_launch& launch_;
  Card& card_;
  Stream* const stream_ = nullptr;         // NULL in prepare().
  Preparation* const prepared_ = nullptr;  // NULL except in prepare().
  const bool is_aligned_ = true;
  bool only_checks_ = false;
  Commands commands_;
  std::vector<Check> checks_;
};

// The body of a launch, which reads the frame and dispatches.
using LaunchBody = bp_status (*)(const bp_kernel& kernel, const void* args, Launch& launch);

// Runs `body` for a launch that the host made.
bp_status run_launch(const bp_kernel* kernel, const bp_launch* launch, const void* args,
                     LaunchBody body);

// How kernels are launched, for plan.hpp of the shell.
struct Launcher : LauncherOf<Instance, Env, Launch> {
  template <auto kBody>
  static bp_status run(const bp_kernel* kernel, const bp_launch* launch, const void* args) {
    return run_launch(kernel, launch, args, kBody);
  }
};

// The plan of a frame. prepare() compiles the pipelines of the frame into the cache in which
// launches look for them, so a launch does the same with a plan as without one.
class Plan {
 public:
  // Compiles what body(Launch&), a launch of the frame, dispatches. Throws StatusError.
  Plan(const PlanRequest& request, const Env& env, uint64_t workspace_size_bytes,
       const std::function<bp_status(Launch&)>& body);

  uint64_t workspace_size_bytes() const { return workspace_size_bytes_; }
  const char* algorithm() const { return algorithm_.c_str(); }

 private:
  uint64_t workspace_size_bytes_;
  std::string algorithm_;
};

}  // namespace bp::vulkan
