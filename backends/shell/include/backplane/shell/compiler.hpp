// The compiler of backends that have kernels. It chooses one kernel for each node of a program of
// format "backplane.graph"; the compiled program runs these kernels.
//
// It has one option: "plans" is "yes", or "no" for executables whose kernels run without plans.
// These compile faster and pack no constants.
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <set>
#include <span>
#include <string>
#include <unordered_set>
#include <utility>
#include <vector>

#include "backplane/shell/executable.hpp"
#include "backplane/shell/layout.hpp"
#include "backplane/shell/program_bytes.hpp"

namespace bp {

class Compiler {
 public:
  explicit Compiler(CompilerBackend backend) : backend_(std::move(backend)) {}
  Compiler(const Compiler&) = delete;
  ~Compiler();

  bp_compiler_ops table();

 private:
  bp_status formats(bp_device* device, uint64_t* out_count, const char* const** out_names) const;
  bp_status query(bp_device* device, const bp_compile_desc* desc, uint64_t capacity,
                  uint32_t* out_partitions, bp_reason* out_reasons,
                  uint64_t* out_partition_count) const;
  bp_reason refusal_of(const CompileTarget& target, bp_launch_flags flags, const Program& program,
                       std::span<const Program> points, size_t node) const;
  Program laid_out(const CompileTarget& target, bp_launch_flags flags, Program program,
                   const std::string& call) const;
  bp_status fingerprint(bp_device* device, const bp_compile_desc* desc, uint64_t* out_words) const;
  bp_status compile(bp_device* device, const bp_compile_desc* desc, bp_executable** out_executable);
  bp_status info(bp_executable* executable, bp_executable_info* out_info) const;
  bp_status serialize(bp_executable* executable, uint64_t capacity, void* out_data,
                      uint64_t* out_size_bytes) const;
  bp_status deserialize(bp_device* device, const void* data, uint64_t size_bytes,
                        const bp_program* constants, bp_executable** out_executable);
  bp_status validate(bp_device* device, const void* data, uint64_t size_bytes) const;
  bp_status release(bp_executable* executable);

  bp_status describe(bp_device* device, uint64_t capacity, void* out_data,
                     uint64_t* out_size_bytes) const;
  bp_status load(bp_executable* executable, const bp_program* constants) const;
  bp_status unload(bp_executable* executable) const;

  void check_device(bp_device* device, const char* call) const;
  bp_compile_desc read(const bp_compile_desc* desc, const char* call) const;
  // Returns what a checked desc is for.
  CompileTarget target_of(bp_device* device, const bp_compile_desc& desc, const char* call) const;
  Executable& checked(bp_executable* executable, const char* call) const;
  // Returns the same, and throws StatusError if a reset of the device has lost the executable.
  Executable& living(bp_executable* executable, const char* call) const;
  bp_executable* add(std::unique_ptr<Executable> executable);
  const CompilerBackend backend_;
  SharedConstants shared_;
  mutable std::mutex mutex_;  // It guards the members below.
  std::unordered_set<Executable*> executables_;
  // The reasons of query(), which live as long as the instance. There are as many as members and
  // values of enumerations that a kernel may not know.
  mutable std::set<std::string, std::less<>> reasons_;
};

// Makes the compiler of an instance whose tables, kernels and captures are complete, and fills its
// table. `Traits` has the type Instance, whose members they are, and device_count() and device_at()
// as in device_ops.hpp. `identity` names the backend and the way it compiles programs. A backend
// refuses a serialised program that has another identity. Programs run `kernels`, which live as
// long as the instance. `layouts` are those of the device, or NULL, and the table of the layouts is
// complete. `kernels_need_device` is as in CompilerBackend.
template <typename Traits>
void offer_compiler(typename Traits::Instance& i, std::vector<const bp_kernel*> kernels,
                    const char* identity, const CompilerLimits& limits = {},
                    Layouts* layouts = nullptr, bool kernels_need_device = true) {
  using Instance = typename Traits::Instance;
  CompilerBackend backend{.host = i.host,
                          .identity = identity,
                          .memory = i.allocator,
                          .streams = i.streams,
                          .events = i.events,
                          .devices = i.devices,
                          .kernels = std::move(kernels),
                          .captures = i.captures.get(),
                          .self = &i,
                          .is_device =
                              [](void* self, bp_device* handle) {
                                const Instance& its = *static_cast<Instance*>(self);
                                for (uint64_t k = 0; k < Traits::device_count(its); ++k) {
                                  if (Traits::device_at(its, k) == handle) return true;
                                }
                                return false;
                              },
                          .limits = limits,
                          .layouts = layouts,
                          .layout_table = i.layout_table,
                          .kernels_need_device = kernels_need_device};
  i.compiler = std::make_unique<Compiler>(std::move(backend));
  i.compilation = i.compiler->table();
}

// Does the same for programs that run the kernels of the instance.
template <typename Traits>
void offer_compiler(typename Traits::Instance& i, const char* identity,
                    const CompilerLimits& limits = {}, Layouts* layouts = nullptr,
                    bool kernels_need_device = true) {
  std::vector<const bp_kernel*> kernels;
  for (const bp_kernel& kernel : i.kernels) kernels.push_back(&kernel);
  offer_compiler<Traits>(i, std::move(kernels), identity, limits, layouts, kernels_need_device);
}

}  // namespace bp
