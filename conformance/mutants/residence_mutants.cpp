// Mutants of compilers: descriptions of devices, executables that leave the device, and memory that
// tensors of a program share. The numbers are those of the kill table.
#include <cstring>
#include <vector>

#include "conformance/mutants/bent_compiler.hpp"
#include "conformance/mutants/mutant.hpp"

namespace bp::mutants {
namespace {

// ---- 64, 65: descriptions of devices ------------------------------------------------------------

// The device that was described last, and its description.
struct Described {
  bp_device* device = nullptr;
  std::vector<unsigned char> bytes;
};

bp_status describe_and_remember(void* self, bp_device* device, uint64_t capacity, void* out_data,
                                uint64_t* out_size_bytes) {
  Runtime& r = runtime_of(self);
  const bp_compiler_ops& good = r.good.compiler;
  const bp_status status = good.describe(good.self, device, capacity, out_data, out_size_bytes);
  if (status != BP_OK || capacity < *out_size_bytes) return status;
  const std::lock_guard lock(r.mutex);
  const auto* const bytes = static_cast<const unsigned char*>(out_data);
  r.state_as<Described>() = {device, {bytes, bytes + *out_size_bytes}};
  return BP_OK;
}

Described described(Runtime& r) {
  const std::lock_guard lock(r.mutex);
  return r.state_as<Described>();
}

// Compiles for the device, whatever the target is.
bp_status compile_here(void* self, bp_device* device, const bp_compile_desc* desc,
                       bp_executable** out_executable) {
  Runtime& r = runtime_of(self);
  const bool has_target =
      desc != nullptr && desc->struct_size >= sizeof(bp_compile_desc) && desc->target != nullptr;
  return compile_changed(r, has_target ? described(r).device : device, desc, out_executable,
                         [](bp_compile_desc& changed) {
                           changed.target = nullptr;
                           changed.target_size_bytes = 0;
                         });
}

// Takes a description that was damaged for the one that was written.
bp_status compile_for_any_target(void* self, bp_device* device, const bp_compile_desc* desc,
                                 bp_executable** out_executable) {
  Runtime& r = runtime_of(self);
  const bp_compiler_ops& good = r.good.compiler;
  const bp_status status = good.compile(good.self, device, desc, out_executable);
  if (status != BP_INCOMPATIBLE) return status;
  const Described written = described(r);
  return compile_changed(r, device, desc, out_executable, [&](bp_compile_desc& changed) {
    changed.target = written.bytes.data();
    changed.target_size_bytes = written.bytes.size();
  });
}

void bend_here(Runtime& r) {
  static_cast<void>(r.state_as<Described>());
  r.bent.compiler.describe = describe_and_remember;
  r.bent.compiler.compile = compile_here;
}

void bend_damaged(Runtime& r) {
  static_cast<void>(r.state_as<Described>());
  r.bent.compiler.describe = describe_and_remember;
  r.bent.compiler.compile = compile_for_any_target;
}

// ---- 66, 67: executables that leave the device --------------------------------------------------

bp_status load_nothing(void*, bp_executable*, const bp_program*) { return BP_OK; }

void bend_load(Runtime& r) { r.bent.compiler.load = load_nothing; }

// Says that an executable was unloaded which a capture or a graph still uses.
bp_status unload_captured(void* self, bp_executable* executable) {
  const bp_compiler_ops& good = runtime_of(self).good.compiler;
  const bp_status status = good.unload(good.self, executable);
  return status == BP_UNSUPPORTED ? bp_status{BP_OK} : status;
}

void bend_unload(Runtime& r) { r.bent.compiler.unload = unload_captured; }

// ---- 68: outputs in the memory of inputs --------------------------------------------------------

// Takes tensors that share memory without an alias, and does nothing then.
bp_status launch_shared(const bp_kernel* self, const bp_launch* launch, const void* args) {
  const bp_kernel* const good = lent_kernel(self).good;
  const bp_status status = good->launch(good, launch, args);
  return status == BP_INVALID_ARGUMENT ? bp_status{BP_OK} : status;
}

bool is_in_place(const bp_program_args& frame) {
  const bp_tensor& last = frame.tensors[frame.tensor_count - 1];
  return frame.tensor_count > 1 && frame.tensors[0].buffer == last.buffer &&
         frame.tensors[0].byte_offset == last.byte_offset;
}

// Computes with what the output has overwritten, if it has the memory of an input.
bp_status launch_overwritten(const bp_kernel* self, const bp_launch* launch, const void* args) {
  const bp_kernel* const good = lent_kernel(self).good;
  const bp_status status = good->launch(good, launch, args);
  if (status != BP_OK || !is_in_place(*static_cast<const bp_program_args*>(args))) return status;
  return good->launch(good, launch, args);
}

bp_status lend_shared(void* self, bp_executable* executable, const bp_kernel** out_kernel) {
  return lend_kernel(runtime_of(self), executable, out_kernel,
                     [](bp_kernel& kernel) { kernel.launch = launch_shared; });
}

bp_status lend_overwritten(void* self, bp_executable* executable, const bp_kernel** out_kernel) {
  return lend_kernel(runtime_of(self), executable, out_kernel,
                     [](bp_kernel& kernel) { kernel.launch = launch_overwritten; });
}

void bend_sharing(Runtime& r) {
  static_cast<void>(r.state_as<LentKernels>());
  bp_compiler_ops& bent = r.bent.compiler;
  bent.executable_kernel = r.strength == "overwritten" ? lend_overwritten : lend_shared;
  bent.release = forget_and_release;
}

// ---- 69: layouts that are taken for strides -----------------------------------------------------

bp_status compile_rows(void* self, bp_device* device, const bp_compile_desc* desc,
                       bp_executable** out_executable) {
  std::vector<bp_program_value> values;
  bp_program program{};
  return compile_changed(runtime_of(self), device, desc, out_executable,
                         [&](bp_compile_desc& changed) {
                           const auto* const theirs = static_cast<const bp_program*>(changed.data);
                           if (theirs == nullptr || theirs->struct_size < sizeof(bp_program))
                             return;
                           program = *theirs;
                           program.struct_size = sizeof(program);
                           values.assign(theirs->values, theirs->values + theirs->value_count);
                           for (bp_program_value& value : values) value.layout = nullptr;
                           program.values = values.data();
                           changed.data = &program;
                         });
}

// Reads and writes the bytes of a layout as rows.
bp_status launch_rows(const bp_kernel* self, const bp_launch* launch, const void* args) {
  const bp_kernel* const good = lent_kernel(self).good;
  bp_program_args frame = *static_cast<const bp_program_args*>(args);
  std::vector<bp_tensor> tensors(frame.tensors, frame.tensors + frame.tensor_count);
  std::vector<std::vector<int64_t>> strides;
  for (bp_tensor& tensor : tensors) {
    if (tensor.layout == nullptr) continue;
    std::vector<int64_t>& own = strides.emplace_back(tensor.ndim, 1);
    for (uint32_t i = tensor.ndim; i-- > 1;) own[i - 1] = own[i] * tensor.shape[i];
    tensor.layout = nullptr;
    tensor.strides = own.data();
  }
  frame.tensors = tensors.data();
  return good->launch(good, launch, &frame);
}

bp_status lend_rows(void* self, bp_executable* executable, const bp_kernel** out_kernel) {
  return lend_kernel(runtime_of(self), executable, out_kernel,
                     [](bp_kernel& kernel) { kernel.launch = launch_rows; });
}

void bend_layouts(Runtime& r) {
  static_cast<void>(r.state_as<LentKernels>());
  r.bent.compiler.compile = compile_rows;
  r.bent.compiler.executable_kernel = lend_rows;
  r.bent.compiler.release = forget_and_release;
}

constexpr RuntimeMutant kTable[] = {
    {.id = "64", .bend = bend_here, .has_compiler = true},
    {.id = "65", .bend = bend_damaged, .has_compiler = true},
    {.id = "66", .bend = bend_load, .has_compiler = true},
    {.id = "67", .bend = bend_unload, .has_compiler = true, .has_graphs = true},
    {.id = "68", .bend = bend_sharing, .has_compiler = true},
    {.id = "69", .bend = bend_layouts, .has_layouts = true, .has_compiler = true},
};

}  // namespace

std::span<const RuntimeMutant> residence_mutants() { return kTable; }

}  // namespace bp::mutants
