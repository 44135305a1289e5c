// Mutants of compilers. The numbers are those of the kill table.
#include <vector>

#include "backplane/ops.h"
#include "conformance/mutants/bent_compiler.hpp"
#include "conformance/mutants/mutant.hpp"
#include "conformance/mutants/runtime.hpp"

namespace bp::mutants {
namespace {

// ---- 50: compilations that ignore what was asked for --------------------------------------------

bp_status compile_without_options(void* self, bp_device* device, const bp_compile_desc* desc,
                                  bp_executable** out_executable) {
  return compile_changed(runtime_of(self), device, desc, out_executable,
                         [](bp_compile_desc& d) { d.option_count = 0; });
}

bp_status compile_to_the_end(void* self, bp_device* device, const bp_compile_desc* desc,
                             bp_executable** out_executable) {
  return compile_changed(runtime_of(self), device, desc, out_executable,
                         [](bp_compile_desc& d) { d.should_stop = nullptr; });
}

void bend_requests(Runtime& r) {
  r.bent.compiler.compile = r.strength == "stop" ? compile_to_the_end : compile_without_options;
}

// ---- 51: fingerprints and checks that see too little --------------------------------------------

bp_status fingerprint_of_counts(void* self, bp_device* device, const bp_compile_desc* desc,
                                uint64_t* out_words) {
  const bp_compiler_ops& good = runtime_of(self).good.compiler;
  const bp_status status = good.fingerprint(good.self, device, desc, out_words);
  if (status != BP_OK) return status;
  const auto& program = *static_cast<const bp_program*>(desc->data);
  out_words[0] = program.node_count;
  out_words[1] = program.value_count;
  return BP_OK;
}

// Another process would give another fingerprint too.
bp_status fingerprint_of_address(void* self, bp_device* device, const bp_compile_desc* desc,
                                 uint64_t* out_words) {
  const bp_compiler_ops& good = runtime_of(self).good.compiler;
  const bp_status status = good.fingerprint(good.self, device, desc, out_words);
  if (status == BP_OK) {
    out_words[0] ^= reinterpret_cast<uintptr_t>(static_cast<const bp_program*>(desc->data)->nodes);
  }
  return status;
}

bp_status validate_anything(void* self, bp_device* device, const void* data, uint64_t size_bytes) {
  const bp_compiler_ops& good = runtime_of(self).good.compiler;
  const bp_status status = good.validate(good.self, device, data, size_bytes);
  return status == BP_INCOMPATIBLE ? bp_status{BP_OK} : status;
}

void bend_names(Runtime& r) {
  bp_compiler_ops& bent = r.bent.compiler;
  if (r.strength == "validate") {
    bent.validate = validate_anything;
  } else if (r.strength == "address") {
    bent.fingerprint = fingerprint_of_address;
  } else {
    bent.fingerprint = fingerprint_of_counts;
  }
}

// ---- 52: constants whose keys name nothing ------------------------------------------------------

bp_status compile_without_keys(void* self, bp_device* device, const bp_compile_desc* desc,
                               bp_executable** out_executable) {
  std::vector<bp_program_value> values;
  bp_program program{};
  return compile_changed(
      runtime_of(self), device, desc, out_executable, [&](bp_compile_desc& changed) {
        const auto* const theirs = static_cast<const bp_program*>(changed.data);
        if (theirs == nullptr || theirs->struct_size < sizeof(bp_program)) return;
        if (theirs->values == nullptr || theirs->value_stride_bytes != sizeof(bp_program_value)) {
          return;
        }
        program = *theirs;
        program.struct_size = sizeof(program);
        values.assign(theirs->values, theirs->values + theirs->value_count);
        for (bp_program_value& value : values) value.key = nullptr;
        program.values = values.data();
        changed.data = &program;
      });
}

void bend_constants(Runtime& r) { r.bent.compiler.compile = compile_without_keys; }

// ---- 53: launches that are taken for the first one ----------------------------------------------

bp_status workspace_of_first(const bp_kernel* self, bp_device* device, bp_launch_flags flags,
                             const void* args, uint64_t* out_required, uint64_t* out_preferred) {
  LentKernel& first = lent_kernel(self);
  if (!first.required_bytes) {
    uint64_t required = 0, preferred = 0;
    const bp_status status =
        first.good->workspace_size(first.good, device, flags, args, &required, &preferred);
    if (status != BP_OK) return status;
    first.required_bytes = required;
  }
  *out_required = *out_preferred = *first.required_bytes;
  return BP_OK;
}

bp_status lend_kernel_of_first(void* self, bp_executable* executable,
                               const bp_kernel** out_kernel) {
  return lend_kernel(runtime_of(self), executable, out_kernel, [](bp_kernel& kernel) {
    if (kernel.workspace_size != nullptr) kernel.workspace_size = workspace_of_first;
  });
}

bp_status compile_without_bindings(void* self, bp_device* device, const bp_compile_desc* desc,
                                   bp_executable** out_executable) {
  std::vector<bp_program_node> nodes;
  bp_program program{};
  return compile_changed(
      runtime_of(self), device, desc, out_executable, [&](bp_compile_desc& changed) {
        const auto* const theirs = static_cast<const bp_program*>(changed.data);
        if (theirs == nullptr || theirs->struct_size < sizeof(bp_program)) return;
        if (theirs->nodes == nullptr || theirs->node_stride_bytes != sizeof(bp_program_node)) {
          return;
        }
        program = *theirs;
        program.struct_size = sizeof(program);
        nodes.assign(theirs->nodes, theirs->nodes + theirs->node_count);
        for (bp_program_node& node : nodes) node.binding_count = 0;
        program.nodes = nodes.data();
        changed.data = &program;
      });
}

void bend_ranges(Runtime& r) {
  bp_compiler_ops& bent = r.bent.compiler;
  if (r.strength == "bindings") {
    bent.compile = compile_without_bindings;
  } else {
    static_cast<void>(r.state_as<LentKernels>());
    bent.executable_kernel = lend_kernel_of_first;
    bent.release = forget_and_release;
  }
}

// ---- 56: memory that is not where the host thinks ----------------------------------------------

bp_status unload_nothing(void*, bp_executable*) { return BP_OK; }

// Programs without their layouts, and with their aliases unsaid.
bp_status compile_by_strides(void* self, bp_device* device, const bp_compile_desc* desc,
                             bp_executable** out_executable) {
  std::vector<bp_program_value> values;
  bp_program program{};
  Runtime& r = runtime_of(self);
  return compile_changed(r, device, desc, out_executable, [&](bp_compile_desc& changed) {
    const auto* const theirs = static_cast<const bp_program*>(changed.data);
    if (theirs == nullptr || theirs->struct_size < sizeof(bp_program)) return;
    if (theirs->values == nullptr || theirs->value_stride_bytes != sizeof(bp_program_value)) return;
    program = *theirs;
    program.struct_size = sizeof(program);
    if (r.strength == "alias") {
      program.alias_count = 0;
    } else {
      values.assign(theirs->values, theirs->values + theirs->value_count);
      for (bp_program_value& value : values) value.layout = nullptr;
      program.values = values.data();
    }
    changed.data = &program;
  });
}

void bend_memory(Runtime& r) {
  if (r.strength == "layout" || r.strength == "alias") {
    r.bent.compiler.compile = compile_by_strides;
  } else {
    r.bent.compiler.unload = unload_nothing;
  }
}

// ---- 62: ops that nobody describes --------------------------------------------------------------

// Takes an op that nobody describes for one that no kernel takes.
bp_status query_unknown(void* self, bp_device* device, const bp_compile_desc* desc,
                        uint64_t capacity, uint32_t* out_partitions, bp_reason* out_reasons,
                        uint64_t* out_partition_count) {
  const bp_compiler_ops& good = runtime_of(self).good.compiler;
  const bp_status status = good.query(good.self, device, desc, capacity, out_partitions,
                                      out_reasons, out_partition_count);
  if (status != BP_NOT_FOUND || capacity != 1) return status;
  out_partitions[0] = BP_NO_PARTITION;
  out_reasons[0] = "no kernel takes the op";
  *out_partition_count = 0;
  return BP_OK;
}

void bend_unknown_ops(Runtime& r) { r.bent.compiler.query = query_unknown; }

// ---- 78: a cache of programs by their shapes ----------------------------------------------------

// Compiles each gelu with the approximation of the first one.
bp_status compile_first_gelu(void* self, bp_device* device, const bp_compile_desc* desc,
                             bp_executable** out_executable) {
  Runtime& r = runtime_of(self);
  const bp_compiler_ops& good = r.good.compiler;
  const auto* program = desc == nullptr ? nullptr : static_cast<const bp_program*>(desc->data);
  const bool is_gelu = program != nullptr && program->node_count == 1 &&
                       program->nodes != nullptr && program->nodes->op == BP_OP_GELU;
  if (!is_gelu) return good.compile(good.self, device, desc, out_executable);
  bp_gelu_args frame = *static_cast<const bp_gelu_args*>(program->nodes->args);
  {
    const std::lock_guard lock(r.mutex);
    auto& first = r.state_as<std::optional<uint32_t>>();
    if (!first) first = frame.approximation;
    frame.approximation = *first;
  }
  bp_program_node node = *program->nodes;
  node.args = &frame;
  bp_program changed = *program;
  changed.nodes = &node;
  return compile_changed(r, device, desc, out_executable,
                         [&](bp_compile_desc& d) { d.data = &changed; });
}

void bend_cache(Runtime& r) { r.bent.compiler.compile = compile_first_gelu; }

constexpr RuntimeMutant kTable[] = {
    {.id = "50", .bend = bend_requests, .has_compiler = true},
    {.id = "51", .bend = bend_names, .has_compiler = true},
    {.id = "52", .bend = bend_constants, .has_compiler = true},
    {.id = "53", .bend = bend_ranges, .has_compiler = true},
    {.id = "56", .bend = bend_memory, .has_layouts = true, .has_compiler = true},
    {.id = "62", .bend = bend_unknown_ops, .has_compiler = true},
    {.id = "78", .bend = bend_cache, .has_compiler = true},
};

}  // namespace

std::span<const RuntimeMutant> compiler_mutants() { return kTable; }

}  // namespace bp::mutants
