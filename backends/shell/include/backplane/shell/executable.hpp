// A compiled program. Each node has the kernel that was chosen for it, and perhaps a plan; each
// value has a place in memory. A launch of the program launches its nodes in their order.
#pragma once

#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "backplane/memory.h"
#include "backplane/shell/program.hpp"
#include "backplane/shell/shared_constants.hpp"

namespace bp {

class Captures;

// What executables need of a backend.
struct CompilerBackend {
  const bp_host* host;
  const char* identity;  // Names the build, which refuses programs of another identity.
  bp_allocator_ops memory;
  bp_stream_ops streams;
  bp_event_ops events;
  bp_device_ops devices;
  std::vector<const bp_kernel*> kernels;  // In the order in which they are tried.
  Captures* captures;
  void* self;
  bool (*is_device)(void* self, bp_device* device);
};

// What the host asks for, besides the program.
struct CompileRequest {
  CompileRequest() = default;

  // Reads what words() returned from words[position] on, and moves `position` behind it. Throws
  // StatusError of BP_INCOMPATIBLE if the words end early.
  CompileRequest(const std::vector<uint64_t>& words, size_t& position);
  std::vector<uint64_t> words() const { return {flags, makes_plans}; }

  bp_launch_flags flags = 0;
  bool makes_plans = true;                   // The option "plans".
  bp_should_stop_fn* should_stop = nullptr;  // Not NULL only during the constructor.
  void* user_data = nullptr;

  // Begins a step. Throws StatusError of BP_ABORTED if the host stops the compilation.
  void begin_step() const;
};

// Returns the kernel that a node gets. Throws StatusError of BP_UNSUPPORTED, whose text begins with
// `call`, if no kernel takes it.
const bp_kernel& kernel_for_node(const CompilerBackend& backend, bp_device* device,
                                 bp_launch_flags flags, const Program& program, size_t index,
                                 const std::string& call);

class Executable {
 public:
  // Compiles `program`. Throws StatusError of BP_UNSUPPORTED if no kernel takes one of its nodes.
  // `shared` and `backend` outlive it.
  Executable(const CompilerBackend& backend, SharedConstants& shared, bp_device* device,
             const CompileRequest& request, Program program);
  Executable(const Executable&) = delete;
  ~Executable();

  const bp_kernel& kernel() const { return kernel_; }
  const Program& program() const { return program_; }
  const CompileRequest& request() const { return request_; }
  bp_device* device() const { return device_; }

  // Returns whether a reset of the device has lost the executable.
  bool is_lost() const;
  uint64_t constant_bytes() const { return constant_bytes_; }
  uint64_t shared_constant_bytes() const;
  uint64_t workspace_bytes() const { return workspace_bytes_; }

 private:
  struct Node {
    const bp_kernel* kernel = nullptr;
    OwnedFrame frame;              // Byte offsets count from the beginning of the value.
    uint64_t workspace_bytes = 0;  // What its launch needs.
    bp_plan* plan = nullptr;
    bp_buffer* packed = nullptr;
  };
  // The frames of all nodes. One launch at a time uses them.
  using Frames = std::vector<OwnedFrame>;

  void choose(size_t index);
  void place_temporaries();
  void upload_constants();
  void place_constant(size_t value, bp_stream* stream);
  void check_lent(const bp_buffer_ref& range, size_t value) const;
  void share_constant(size_t value, bp_stream* stream);
  void copy_constant(const bp_buffer_ref& to, const void* data, bp_stream* stream) const;
  void prepare(size_t index, bp_stream* stream);
  void pack(Node& node, const void* args, bp_stream* stream);
  void make_kernel();
  bp_buffer* allocate(uint64_t size_bytes);
  void free(bp_buffer* buffer, bp_stream* stream) const;
  bool has_memory() const { return constant_bytes_ != 0 || !held_.empty(); }
  void mark_use(bp_stream* stream);
  void release();

  bp_buffer_ref place_of(uint32_t value, const bp_program_args& args,
                         const bp_buffer_ref& workspace) const;
  void check_args(const bp_program_args& args) const;
  bp_status launch(const bp_launch& launch, const bp_program_args& args, bool only_checks);
  bp_status run(const bp_launch& launch, const bp_program_args& args, Frames& frames) const;
  std::unique_ptr<Frames> take_frames();

  const CompilerBackend& backend_;
  SharedConstants& shared_;
  bp_device* const device_;
  const uint64_t generation_;  // That of the device.
  CompileRequest request_;
  Program program_;
  bp_kernel kernel_{};
  std::vector<Node> nodes_;
  std::vector<uint64_t> offsets_;      // For each temporary, in the workspace.
  std::vector<bp_buffer_ref> places_;  // For each constant.
  std::vector<uint32_t> argument_of_;  // For each value, its index in bp_program_args.
  uint32_t argument_count_ = 0;
  uint64_t scratch_offset_ = 0;  // Where the nodes' workspace begins, behind the temporaries.
  uint64_t workspace_bytes_ = 0, constant_bytes_ = 0;
  bp_buffer* constants_ = nullptr;                     // Those that are neither shared nor lent.
  std::vector<std::shared_ptr<SharedConstant>> held_;  // Those with a key.

  // A stream whose work uses the constants, and an event that was recorded behind the latest use.
  struct Use {
    bp_stream* stream;
    OwnedEvent event;
  };

  std::mutex mutex_;  // It guards the members below.
  std::vector<std::unique_ptr<Frames>> idle_;
  std::vector<Use> uses_;
};

}  // namespace bp
