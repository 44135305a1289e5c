// What the kernels of this backend share, and the list of them.
//
// A kernel file has a launch function, which reads the frame and submits commands, and a row for
// each kernel. To add a kernel, write such a file, name the row in kernels.def, and name the file
// in CMakeLists.txt.
#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "backend.hpp"
#include "backplane/ops.h"
#include "backplane/shell/plan.hpp"
#include "backplane/shell/shape.hpp"
#include "memory.hpp"

namespace acme_opencl {

// What a kernel knows of its backend, also when nothing is launched.
class Env {
 public:
  explicit Env(const Device& device) : device_(&device) {}

  // Runs body(const Env&) for a function of `kernel`, and turns exceptions into a status.
  template <typename Body>
  static bp_status with(const bp_kernel& kernel, bp_device* device, Body&& body) {
    const Instance& i = instance(kernel.state);
    return bp::guarded(*i.host,
                       [&] { return body(Env(MemoryTraits::device_of(i, device, kernel.name))); });
  }

  // Returns the Env of a device, for a supports() that reads it; empty if the device is none of the
  // backend.
  static std::optional<Env> find(const bp_kernel& kernel, bp_device* device) {
    const Device* const known = MemoryTraits::find(instance(kernel.state), device);
    return known == nullptr ? std::nullopt : std::optional(Env(*known));
  }

  const Device& device() const { return *device_; }

 private:
  const Device* device_;
};

// One launch: what a kernel has besides the arguments of its op.
class Launch : public Env {
 public:
  // Checks all tensors of the frame. Throws StatusError if a buffer is not of the stream's device,
  // or if an element lies outside its buffer.
  Launch(const Instance& instance, const bp_kernel& kernel, const bp_launch& launch,
         const void* args);

  // If `only_checks` is true, the launch submits nothing and only says whether it would be
  // accepted.
  void set_only_checks(bool only_checks) { only_checks_ = only_checks; }

  bp_launch_flags flags() const { return launch_.flags; }
  bp_plan* plan() const { return launch_.plan; }

  // Returns the place of the first element. It is empty for a tensor without elements.
  static Place place(const bp_tensor& t);

  // Returns the scratch memory that the kernel's workspace_size() asked for.
  Place workspace() const;

  // Submits body(CommandQueue&), which may run after this function and the launch have returned. It
  // holds what it needs by value.
  template <typename Body>
  bp_status submit(Body body) {
    if (only_checks_) return BP_OK;
    return stream_.queue->submit_work(std::move(uses_), std::move(body));
  }

  // Refuses the launch: returns `status`, with the text in the thread's error slot.
  bp_status refuse(bp_status status, const std::string& text) const {
    return instance_.fail(status, text);
  }

 private:
  void add_tensor(const bp_tensor* t, const char* name, bool is_written);
  void add_workspace(const bp_buffer_ref& workspace);

  const Instance& instance_;
  const bp_launch& launch_;
  Stream& stream_;
  std::vector<Use> uses_;
  bool only_checks_ = false;
};

// How kernels are launched, for plan.hpp of the shell.
struct Launcher : bp::LauncherOf<Instance, Env, Launch> {
  template <auto kBody>
  static bp_status run(const bp_kernel* kernel, const bp_launch* launch, const void* args) {
    const Instance& i = instance(kernel->state);
    return bp::with_launch(
        i, *kernel, launch, args, [&] { return Launch(i, *kernel, *launch, args); },
        [&](Launch& context) { return kBody(*kernel, args, context); });
  }
};

// Adapts typed functions to a row of the C table, which bp::kernel_row() has begun.
//   LaunchOp   bp_status(const Args&, Launch&): reads the frame, and submits the work.
//   Supports   bp_reason(const Args&): what the claims cannot say; NULL, or the reason.
//   Workspace  uint64_t(const Args&, const Env&): bytes of scratch memory.
//   Planned    The class of the kernel's plans (plan.hpp).
template <typename Args, bp_status (*LaunchOp)(const Args&, Launch&), auto Supports = nullptr,
          auto Workspace = nullptr, typename Planned = void>
constexpr bp_kernel make_kernel(bp_kernel row) {
  return bp::planned_kernel<Launcher, Args, LaunchOp, Supports, Workspace, Planned>(row);
}

std::span<const bp_kernel* const> all_kernels();

// ---- What kernels give to OpenCL ----------------------------------------------------------------

// Places of elements in up to four tensors. A program has the same struct (source.cpp).
struct Grid {
  int32_t ndim = 0, reserved = 0;
  int64_t count = 1;  // Of the elements.
  int64_t shape[BP_MAX_RANK] = {};
  int64_t strides[4][BP_MAX_RANK] = {};
  int64_t offset[4] = {};  // Of the first elements, in elements.
};

// Returns the grid of tensors of one shape, with their offsets. A tensor may be NULL.
Grid grid_of(std::initializer_list<const bp_tensor*> tensors);

// Returns a grid without axes, and adds an axis to one. Axes that lie behind each other in all
// tensors become one.
Grid grid_at(std::initializer_list<const bp_tensor*> tensors);
void add_axis(Grid& grid, int64_t extent, const int64_t (&strides)[4]);

// Returns the definitions that every program begins with, and those of the dtypes of tensors:
// NAME_T, the type in memory; NAME_A, the type of values; NAME_LOAD(p, i); NAME_STORE(p, i, v).
std::string prelude(std::initializer_list<std::pair<const char*, bp_dtype>> dtypes);

// The dtypes of kernels that compute in f32.
constexpr bp_dtype kFloats[] = {BP_F32, BP_F16, BP_BF16};
// One row for each of kFloats, in which several free arguments have it.
template <size_t kWidth>
constexpr std::array<bp_dtype, 3 * kWidth> same_floats() {
  std::array<bp_dtype, 3 * kWidth> rows{};
  for (size_t k = 0; k < rows.size(); ++k) rows[k] = kFloats[k / kWidth];
  return rows;
}
inline constexpr auto kFloatPairs = same_floats<2>();
inline constexpr auto kFloatTriples = same_floats<3>();
// Each of kFloats with indices of i64 and of i32.
inline constexpr auto kFloatsWithIndices = bp::with_indices(kFloats);

#define ACME_KERNEL(name) extern const bp_kernel name;
#include "kernels/kernels.def"
#undef ACME_KERNEL

}  // namespace acme_opencl
