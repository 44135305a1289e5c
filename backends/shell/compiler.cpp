#include "backplane/shell/compiler.hpp"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <string>
#include <string_view>
#include <utility>

#include "backplane/shell/boundary.hpp"
#include "backplane/shell/first_size.hpp"
#include "backplane/shell/partitions.hpp"
#include "backplane/shell/relayout.hpp"

namespace bp {
namespace {

constexpr const char* kFormats[] = {"backplane.graph"};

constexpr bp_launch_flags kKnownFlags =
    BP_LAUNCH_DETERMINISTIC | BP_LAUNCH_STRICT_F32 | BP_LAUNCH_DEVICE_CURRENT;

// Puts an option of the host into `request`. `name` begins the text of a failure.
void take_option(const bp_option& option, const std::string& name, CompileRequest& request) {
  const auto invalid = [&](const std::string& text) {
    throw StatusError(BP_INVALID_ARGUMENT, name + text);
  };
  if (option.key == nullptr || option.value == nullptr) invalid(" has no key or no value");
  const std::string_view key = option.key, value = option.value;
  if (key != "plans") {
    throw StatusError(BP_NOT_FOUND, name + ": the compiler has no option \"" + std::string(key) +
                                        "\"; allowed are: plans");
  }
  if (value != "yes" && value != "no") {
    invalid(": plans is \"" + std::string(value) + "\"; allowed are: yes, no");
  }
  request.makes_plans = value == "yes";
}

CompileRequest request_of(const bp_compile_desc& desc, const char* call) {
  CompileRequest request;
  request.flags = desc.flags;
  if (desc.option_count != 0 && desc.options == nullptr) {
    throw StatusError(BP_INVALID_ARGUMENT, std::string(call) + ": options is NULL");
  }
  for (uint64_t i = 0; i < desc.option_count; ++i) {
    take_option(desc.options[i], std::string(call) + ": options[" + std::to_string(i) + "]",
                request);
  }
  return request;
}

[[noreturn]] void invalid(const std::string& text) { throw StatusError(BP_INVALID_ARGUMENT, text); }

// Makes the layouts that the device has. Nodes with the others get a reason.
void lay_out_known(Program& program, Layouts* layouts) {
  for (size_t i = 0; i < program.values.size(); ++i) {
    try {
      program.lay_out_value(i, layouts, "query");
    } catch (const StatusError& e) {
      if (e.status() != BP_UNSUPPORTED) throw;
    }
  }
  program.lay_out_nodes();
}

void check_room(uint64_t capacity, const void* out_data, const uint64_t* out_size_bytes,
                const char* call) {
  if (out_size_bytes != nullptr && (capacity == 0 || out_data != nullptr)) return;
  invalid(std::string(call) +
          ": out_size_bytes is NULL, or out_data is NULL and capacity is not 0");
}

void give_bytes(const std::vector<uint64_t>& words, uint64_t capacity, void* out_data,
                uint64_t* out_size_bytes) {
  *out_size_bytes = words.size() * sizeof(uint64_t);
  if (capacity != 0) std::memcpy(out_data, words.data(), std::min(capacity, *out_size_bytes));
}

Compiler& compiler(void* self) { return *static_cast<Compiler*>(self); }

}  // namespace

Compiler::~Compiler() {
  for (Executable* executable : executables_) delete executable;
}

void Compiler::check_device(bp_device* device, const char* call) const {
  if (backend_.is_device(backend_.self, device)) return;
  invalid(std::string(call) + ": device is NULL or not one of this backend");
}

Executable& Compiler::checked(bp_executable* executable, const char* call) const {
  auto* const ours = reinterpret_cast<Executable*>(executable);
  const std::lock_guard lock(mutex_);
  if (!executables_.contains(ours)) {
    invalid(std::string(call) + ": executable is NULL or not one of this backend");
  }
  return *ours;
}

Executable& Compiler::living(bp_executable* executable, const char* call) const {
  Executable& ours = checked(executable, call);
  if (!ours.is_lost()) return ours;
  throw StatusError(BP_DEVICE_LOST,
                    std::string(call) + ": the executable was made before its device was reset");
}

bp_executable* Compiler::add(std::unique_ptr<Executable> executable) {
  const std::lock_guard lock(mutex_);
  executables_.insert(executable.get());
  return reinterpret_cast<bp_executable*>(executable.release());
}

bp_status Compiler::formats(bp_device* device, uint64_t* out_count,
                            const char* const** out_names) const {
  check_device(device, "formats");
  if (out_count == nullptr || out_names == nullptr) {
    invalid("formats: out_count or out_names is NULL");
  }
  *out_count = std::size(kFormats);
  *out_names = kFormats;
  return BP_OK;
}

bp_compile_desc Compiler::read(const bp_compile_desc* desc, const char* call) const {
  if (desc == nullptr) invalid(std::string(call) + ": desc is NULL");
  const auto ours = read_desc(desc, kFirstSize<bp_compile_desc>, BP_STRUCT_COMPILE_DESC, call);
  if (ours.format == nullptr || std::string_view(ours.format) != kFormats[0]) {
    throw StatusError(BP_UNSUPPORTED, std::string(call) + ": format is " +
                                          (ours.format == nullptr ? "NULL" : ours.format) +
                                          ", and " + kFormats[0] + " is allowed");
  }
  if ((ours.flags & ~kKnownFlags) != 0 || ours.reserved != 0) {
    throw StatusError(BP_UNSUPPORTED, std::string(call) + ": flags are " +
                                          std::to_string(ours.flags) + " and reserved is " +
                                          std::to_string(ours.reserved) +
                                          "; flags may have the bits of " +
                                          std::to_string(kKnownFlags) + ", and reserved must be 0");
  }
  return ours;
}

CompileTarget Compiler::target_of(bp_device* device, const bp_compile_desc& desc,
                                  const char* call) const {
  if (desc.target == nullptr) {
    check_device(device, call);
    if (desc.target_size_bytes == 0) return target_of_device(backend_, device);
    invalid(std::string(call) + ": target is NULL, and target_size_bytes is " +
            std::to_string(desc.target_size_bytes));
  }
  if (backend_.kernels_need_device) {
    throw StatusError(BP_UNSUPPORTED,
                      std::string(call) + ": target is given, and describe() is not offered");
  }
  return target_of_bytes(backend_, desc.target, desc.target_size_bytes, call);
}

bp_status Compiler::query(bp_device* device, const bp_compile_desc* desc, uint64_t capacity,
                          uint32_t* out_partitions, bp_reason* out_reasons,
                          uint64_t* out_partition_count) const {
  const bp_compile_desc ours = read(desc, "query");
  const CompileTarget on = target_of(device, ours, "query");
  static_cast<void>(request_of(ours, "query"));
  Program program(static_cast<const bp_program*>(ours.data), backend_.host);
  const size_t count = program.nodes.size();
  if (out_partitions == nullptr || out_reasons == nullptr || out_partition_count == nullptr) {
    invalid("query: out_partitions, out_reasons or out_partition_count is NULL");
  }
  if (capacity < count) {
    invalid("query: capacity is " + std::to_string(capacity) + ", and the program has " +
            std::to_string(count) + " nodes");
  }
  lay_out_known(program, on.layouts);
  const std::vector<Program> points = points_of(program);
  std::vector<bool> is_taken(count);
  for (size_t i = 0; i < count; ++i) {
    out_reasons[i] = refusal_of(on, ours.flags, program, points, i);
    is_taken[i] = out_reasons[i] == nullptr;
  }
  const Partitions partitions = partition_nodes(program, is_taken);
  std::ranges::copy(partitions.of_node, out_partitions);
  *out_partition_count = partitions.count;
  return BP_OK;
}

// Returns why no executable has the node, or NULL. `points` are the program at some extents.
bp_reason Compiler::refusal_of(const CompileTarget& target, bp_launch_flags flags,
                               const Program& program, std::span<const Program> points,
                               size_t node) const {
  const auto lacks_layout = [&](uint32_t value) {
    return value != BP_NO_VALUE && program.values[value].layout_words &&
           program.values[value].layout == nullptr;
  };
  if (std::ranges::any_of(program.nodes[node].values, lacks_layout)) {
    return "the device does not have the layout of a value of the node";
  }
  const bool has_refusal = target.limits.refusal_of_ranges != nullptr;
  if (has_refusal && program.names_extents(node)) return target.limits.refusal_of_ranges;
  std::string reason = choose_for_node(backend_, target.device, flags, points, node).reason;
  if (reason.empty()) return nullptr;
  const std::lock_guard lock(mutex_);
  return reasons_.insert(std::move(reason)).first->c_str();
}

Program Compiler::laid_out(const CompileTarget& target, bp_launch_flags flags, Program program,
                           const std::string& call) const {
  program.lay_out(target.layouts, call);
  return with_copies(backend_, target.device, flags, std::move(program), call);
}

bp_status Compiler::compile(bp_device* device, const bp_compile_desc* desc,
                            bp_executable** out_executable) {
  const bp_compile_desc ours = read(desc, "compile");
  const CompileTarget on = target_of(device, ours, "compile");
  if (out_executable == nullptr) invalid("compile: out_executable is NULL");
  CompileRequest request = request_of(ours, "compile");
  request.should_stop = ours.should_stop;
  request.user_data = ours.user_data;
  request.begin_step();
  *out_executable = add(std::make_unique<Executable>(
      backend_, shared_, on, request,
      laid_out(on, request.flags, Program(static_cast<const bp_program*>(ours.data), backend_.host),
               "compile")));
  return BP_OK;
}

bp_status Compiler::info(bp_executable* executable, bp_executable_info* out_info) const {
  const Executable& e = living(executable, "executable_info");
  check_offer(out_info, kFirstSize<bp_executable_info>, "executable_info: out_info");
  out_info->constant_bytes = e.constant_bytes();
  out_info->workspace_bytes = e.workspace_bytes();
  out_info->shared_constant_bytes = e.shared_constant_bytes();
  out_info->code_bytes = 0;
  out_info->is_loaded = e.is_loaded() ? 1 : 0;
  out_info->reserved = 0;
  return BP_OK;
}

bp_status Compiler::fingerprint(bp_device* device, const bp_compile_desc* desc,
                                uint64_t* out_words) const {
  const bp_compile_desc ours = read(desc, "fingerprint");
  const CompileTarget on = target_of(device, ours, "fingerprint");
  if (out_words == nullptr) invalid("fingerprint: out_words is NULL");
  const CompileRequest request = request_of(ours, "fingerprint");
  Program program(static_cast<const bp_program*>(ours.data), backend_.host);
  Fingerprint fingerprint;
  fingerprint.add(on.names.build);
  fingerprint.add(on.names.device);
  fingerprint.add(request.words());
  std::vector<uint64_t> words;
  program.write_to(words, "fingerprint");
  fingerprint.add(words);
  // A device that is alike may have other kernels, such as for another kind of processor.
  const Program with_all = laid_out(on, request.flags, std::move(program), "fingerprint");
  const Program preferred = with_all.at(with_all.extents.preferred());
  for (size_t i = 0; i < preferred.nodes.size(); ++i) {
    const bp_kernel& kernel =
        kernel_for_node(backend_, on.device, request.flags, preferred, i, "fingerprint");
    fingerprint.add(std::string_view(kernel.name));
  }
  std::ranges::copy(fingerprint.value(), out_words);
  return BP_OK;
}

bp_status Compiler::serialize(bp_executable* executable, uint64_t capacity, void* out_data,
                              uint64_t* out_size_bytes) const {
  const Executable& e = living(executable, "serialize");
  check_room(capacity, out_data, out_size_bytes, "serialize");
  std::vector<uint64_t> rest = e.request().words();
  e.program().write_to(rest, "serialize");
  const std::vector<uint64_t> words = bytes_with_head(e.target().names, rest);
  give_bytes(words, capacity, out_data, out_size_bytes);
  return BP_OK;
}

bp_status Compiler::deserialize(bp_device* device, const void* data, uint64_t size_bytes,
                                const bp_program* constants, bp_executable** out_executable) {
  check_device(device, "deserialize");
  if (data == nullptr || out_executable == nullptr) {
    invalid("deserialize: data or out_executable is NULL");
  }
  const CompileTarget on = target_of_device(backend_, device);
  const std::vector<uint64_t> words = bytes_without_head(on.names, data, size_bytes, "deserialize");
  size_t position = 0;
  CompileRequest request(words, position);
  request.call = "deserialize";
  Program program(words, position, backend_.host);
  program.give_constants(constants, request.call);
  *out_executable = add(
      std::make_unique<Executable>(backend_, shared_, on, request,
                                   laid_out(on, request.flags, std::move(program), "deserialize")));
  return BP_OK;
}

bp_status Compiler::validate(bp_device* device, const void* data, uint64_t size_bytes) const {
  check_device(device, "validate");
  if (data == nullptr) invalid("validate: data is NULL");
  static_cast<void>(
      bytes_without_head(target_of_device(backend_, device).names, data, size_bytes, "validate"));
  return BP_OK;
}

bp_status Compiler::describe(bp_device* device, uint64_t capacity, void* out_data,
                             uint64_t* out_size_bytes) const {
  check_device(device, "describe");
  check_room(capacity, out_data, out_size_bytes, "describe");
  const CompileTarget target = target_of_device(backend_, device);
  give_bytes(description_of(backend_, target), capacity, out_data, out_size_bytes);
  return BP_OK;
}

bp_status Compiler::load(bp_executable* executable, const bp_program* constants) const {
  living(executable, "load").load(constants);
  return BP_OK;
}

bp_status Compiler::unload(bp_executable* executable) const {
  living(executable, "unload").unload();
  return BP_OK;
}

bp_status Compiler::release(bp_executable* executable) {
  if (executable == nullptr) return BP_OK;
  const std::unique_ptr<Executable> owned(&checked(executable, "release"));
  const std::lock_guard lock(mutex_);
  executables_.erase(owned.get());
  return BP_OK;
}

bp_compiler_ops Compiler::table() {
  bp_compiler_ops ops{};
  ops.struct_size = sizeof(ops);
  ops.struct_type = BP_STRUCT_COMPILER_OPS;
  ops.self = this;
  ops.formats = [](void* self, bp_device* device, uint64_t* out_count,
                   const char* const** out_names) {
    const Compiler& c = compiler(self);
    return guarded(*c.backend_.host, [&] { return c.formats(device, out_count, out_names); });
  };
  ops.query = [](void* self, bp_device* device, const bp_compile_desc* desc, uint64_t capacity,
                 uint32_t* out_partitions, bp_reason* out_reasons, uint64_t* out_partition_count) {
    const Compiler& c = compiler(self);
    return guarded(*c.backend_.host, [&] {
      return c.query(device, desc, capacity, out_partitions, out_reasons, out_partition_count);
    });
  };
  ops.fingerprint = [](void* self, bp_device* device, const bp_compile_desc* desc,
                       uint64_t* out_words) {
    const Compiler& c = compiler(self);
    return guarded(*c.backend_.host, [&] { return c.fingerprint(device, desc, out_words); });
  };
  ops.compile = [](void* self, bp_device* device, const bp_compile_desc* desc,
                   bp_executable** out_executable) {
    Compiler& c = compiler(self);
    return guarded(*c.backend_.host, [&] { return c.compile(device, desc, out_executable); });
  };
  ops.executable_kernel = [](void* self, bp_executable* executable, const bp_kernel** out_kernel) {
    const Compiler& c = compiler(self);
    return guarded(*c.backend_.host, [&] {
      const Executable& e = c.living(executable, "executable_kernel");
      if (out_kernel == nullptr) invalid("executable_kernel: out_kernel is NULL");
      e.check_here("executable_kernel");
      *out_kernel = &e.kernel();
      return bp_status{BP_OK};
    });
  };
  ops.executable_info = [](void* self, bp_executable* executable, bp_executable_info* out_info) {
    const Compiler& c = compiler(self);
    return guarded(*c.backend_.host, [&] { return c.info(executable, out_info); });
  };
  ops.serialize = [](void* self, bp_executable* executable, uint64_t capacity, void* out_data,
                     uint64_t* out_size_bytes) {
    const Compiler& c = compiler(self);
    return guarded(*c.backend_.host,
                   [&] { return c.serialize(executable, capacity, out_data, out_size_bytes); });
  };
  ops.deserialize = [](void* self, bp_device* device, const void* data, uint64_t size_bytes,
                       const bp_program* constants, bp_executable** out_executable) {
    Compiler& c = compiler(self);
    return guarded(*c.backend_.host, [&] {
      return c.deserialize(device, data, size_bytes, constants, out_executable);
    });
  };
  ops.validate = [](void* self, bp_device* device, const void* data, uint64_t size_bytes) {
    const Compiler& c = compiler(self);
    return guarded(*c.backend_.host, [&] { return c.validate(device, data, size_bytes); });
  };
  ops.release = [](void* self, bp_executable* executable) {
    Compiler& c = compiler(self);
    return guarded(*c.backend_.host, [&] { return c.release(executable); });
  };
  ops.load = [](void* self, bp_executable* executable, const bp_program* constants) {
    const Compiler& c = compiler(self);
    return guarded(*c.backend_.host, [&] { return c.load(executable, constants); });
  };
  ops.unload = [](void* self, bp_executable* executable) {
    const Compiler& c = compiler(self);
    return guarded(*c.backend_.host, [&] { return c.unload(executable); });
  };
  if (backend_.kernels_need_device) return ops;
  ops.describe = [](void* self, bp_device* device, uint64_t capacity, void* out_data,
                    uint64_t* out_size_bytes) {
    const Compiler& c = compiler(self);
    return guarded(*c.backend_.host,
                   [&] { return c.describe(device, capacity, out_data, out_size_bytes); });
  };
  return ops;
}

}  // namespace bp
