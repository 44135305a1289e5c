// A compiled program. Each node has the kernel that was chosen for it, and perhaps a plan; each
// value has a place in memory. A launch of the program launches its nodes in their order.
//
// What depends on extents is a Resolved. A program with ranges is resolved when it is compiled, at
// the ends of the ranges and at the preferred extents, and again by the first launch with other
// extents; the executable keeps those that were used last. Plans are made at the preferred extents,
// since a launch never compiles. Launches with other extents run their kernels without plans, but
// for nodes that name no extents.
#pragma once

#include <cstddef>
#include <deque>
#include <memory>
#include <mutex>
#include <shared_mutex>
#include <span>
#include <string>
#include <vector>

#include "backplane/memory.h"
#include "backplane/shell/compile_target.hpp"
#include "backplane/shell/program.hpp"
#include "backplane/shell/resolved.hpp"
#include "backplane/shell/shared_constants.hpp"

namespace bp {

// The size of the frame of a program in this revision. ops.h has no constant for it.
inline constexpr uint32_t kProgramArgsBytes =
    offsetof(bp_program_args, tensor_count) + sizeof(uint64_t);

class Executable {
 public:
  // Compiles `program`. Throws StatusError of BP_UNSUPPORTED if no kernel takes one of its nodes.
  // `shared` and `backend` outlive it.
  Executable(const CompilerBackend& backend, SharedConstants& shared, const CompileTarget& target,
             const CompileRequest& request, Program program);
  Executable(const Executable&) = delete;
  ~Executable();

  const bp_kernel& kernel() const { return kernel_; }
  const Program& program() const { return program_; }
  const CompileRequest& request() const { return request_; }
  const CompileTarget& target() const { return target_; }

  // Throws StatusError of BP_UNSUPPORTED, whose text begins with `call`, if the executable is for a
  // device that is described.
  void check_here(const std::string& call) const;

  // The entries of bp_compiler_ops. load() finds constants with keys in `constants`, which may be
  // NULL.
  void load(const bp_program* constants);
  void unload();
  bool is_loaded() const;

  // Returns whether a reset of the device has lost the executable.
  bool is_lost() const;
  uint64_t constant_bytes() const { return constant_bytes_; }
  uint64_t shared_constant_bytes() const;
  uint64_t workspace_bytes() const { return workspace_bytes_; }

 private:
  // What the executable keeps for a node: a plan over the constants among its arguments.
  struct NodePlan {
    const bp_kernel* kernel = nullptr;  // It made the plan.
    bp_plan* plan = nullptr;
    bp_buffer* packed = nullptr;
    uint64_t workspace_bytes = 0;
  };

  void resolve();
  void free_memory();
  void check_chip_memory() const;
  void upload_constants();
  void place_constant(size_t value, bp_stream* stream);
  void check_lent(const bp_buffer_ref& range, size_t value) const;
  void require(bp_status status, const char* what) const;

  // Puts the name of the entry that runs before a text.
  std::string named(const std::string& text) const {
    return std::string(request_.call) + ": " + text;
  }
  void share_constant(size_t value, bp_stream* stream);
  void copy_constant(const bp_buffer_ref& to, const void* data, bp_stream* stream) const;
  void write_constant(const ProgramValue& value, const bp_buffer_ref& to, const void* data,
                      bp_stream* stream);
  void prepare(size_t index, bp_stream* stream);
  void pack(size_t index, const void* args, bp_stream* stream);
  void adopt_plans(Resolved& resolved) const;
  void make_kernel();
  bp_buffer* allocate(uint64_t size_bytes);
  void free(bp_buffer* buffer, bp_stream* stream) const;
  bool has_memory() const { return constant_bytes_ != 0 || !held_.empty(); }
  void mark_use(bp_stream* stream);

  bp_buffer_ref place_of(uint32_t value, const Resolved& at, const bp_program_args& args,
                         const bp_buffer_ref& workspace) const;
  void check_head(const bp_program_args& args) const;
  void check_args(const bp_program_args& args, const Program& program) const;
  ExtentNumbers numbers_of(const bp_program_args& args) const;
  void check_numbers(const bp_program_args& args, const ExtentNumbers& numbers) const;
  std::shared_ptr<Resolved> resolved_for(const bp_program_args& args);
  std::shared_ptr<Resolved> find_resolved(const ExtentNumbers& numbers);
  std::shared_ptr<Resolved> make_resolved(const ExtentNumbers& numbers) const;
  uint64_t workspace_bytes_for(const bp_program_args* args);
  bp_status launch(const bp_launch& launch, const bp_program_args& args, bool only_checks);
  bp_status launch_in_capture(const bp_kernel& kernel, const bp_launch& launch, const void* args);
  std::vector<bool> shared_aliases(const bp_program_args& args, const Program& program) const;
  bp_status copy_inputs(const bp_launch& launch, const Resolved& at,
                        const std::vector<bool>& shared, std::vector<bp_buffer_ref>& places) const;
  bool is_idle(size_t node, const Resolved& at, const std::vector<bool>& shared) const;
  bp_status run(const bp_launch& launch, const bp_program_args& args, const Resolved& at,
                const std::vector<bool>& shared, Resolved::Frames& frames) const;

  const CompilerBackend& backend_;
  SharedConstants& shared_;
  const CompileTarget target_;
  bp_device* const device_;    // NULL: it is described.
  const uint64_t generation_;  // That of the device.
  CompileRequest request_;
  Program program_;
  bp_kernel kernel_{};
  Placement most_;                       // Places that are large enough for all extents.
  std::shared_ptr<Resolved> preferred_;  // At the preferred extents.
  std::vector<NodePlan> plans_;          // One for each node.
  std::vector<bp_buffer_ref> places_;    // For each constant.
  std::vector<uint32_t> argument_of_;    // For each value, its index in bp_program_args.
  uint32_t argument_count_ = 0;
  uint64_t workspace_bytes_ = 0, constant_bytes_ = 0;
  bp_buffer* constants_ = nullptr;                     // Those that are neither shared nor lent.
  std::vector<std::shared_ptr<SharedConstant>> held_;  // Those with a key.

  // A stream whose work uses the constants, and an event that was recorded behind the latest use.
  struct Use {
    bp_stream* stream;
    OwnedEvent event;
  };

  // A launch holds it as a reader, load() and unload() as writers. It guards what they make: the
  // constants, the plans and `preferred_`.
  mutable std::shared_mutex residence_;
  bool is_loaded_ = false;
  // Each launch that a capture or a graph keeps has a reference.
  const std::shared_ptr<const int> pin_ = std::make_shared<const int>(0);

  std::mutex mutex_;                              // It guards the members below.
  std::deque<std::shared_ptr<Resolved>> recent_;  // Those that were used last, the latest first.
  std::vector<Use> uses_;
};

}  // namespace bp
