// A compiled program: for each node the kernel that was chosen for it, perhaps with a plan, and for
// each value its place. Launching it launches the nodes one behind the other.
#pragma once

#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "backplane/memory.h"
#include "backplane/shell/program.hpp"

namespace bp {

class Captures;

// What executables need of a backend.
struct CompilerBackend {
  const bp_host* host;
  const char* identity;  // Of the build: programs serialized by another are refused.
  bp_allocator_ops memory;
  bp_stream_ops streams;
  bp_event_ops events;
  std::vector<const bp_kernel*> kernels;  // In the order they are tried.
  Captures* captures;
  void* self;
  bool (*is_device)(void* self, bp_device* device);
};

class Executable {
 public:
  // Throws StatusError of BP_UNSUPPORTED for a node that no kernel takes.
  Executable(const CompilerBackend& backend, bp_device* device, bp_launch_flags flags,
             Program program);
  Executable(const Executable&) = delete;
  ~Executable();

  const bp_kernel& kernel() const { return kernel_; }
  const Program& program() const { return program_; }
  bp_launch_flags flags() const { return flags_; }
  bp_device* device() const { return device_; }
  uint64_t constant_bytes() const { return constant_bytes_; }
  uint64_t workspace_bytes() const { return workspace_bytes_; }

 private:
  struct Node {
    const bp_kernel* kernel = nullptr;
    OwnedFrame frame;              // Byte offsets count from the beginning of the value.
    uint64_t workspace_bytes = 0;  // Of its launch.
    bp_plan* plan = nullptr;
    bp_buffer* packed = nullptr;
  };
  // The frames of all nodes, for one launch at a time.
  using Frames = std::vector<OwnedFrame>;

  void choose(size_t index);
  void place_temporaries();
  void upload_constants();
  void prepare(size_t index, bp_stream* stream);
  void pack(Node& node, const void* args, bp_stream* stream);
  void make_kernel();
  bp_buffer* allocate(uint64_t size_bytes);
  bool has_memory() const { return constant_bytes_ != 0; }
  void mark_use(bp_stream* stream);
  void release();
  void free_memory(bp_stream* stream) const;

  bp_buffer_ref place_of(uint32_t value, const bp_program_args& args,
                         const bp_buffer_ref& workspace) const;
  void check_args(const bp_program_args& args) const;
  bp_status launch(const bp_launch& launch, const bp_program_args& args, bool only_checks);
  bp_status run(const bp_launch& launch, const bp_program_args& args, Frames& frames) const;
  std::unique_ptr<Frames> take_frames();

  const CompilerBackend& backend_;
  bp_device* const device_;
  const bp_launch_flags flags_;
  const Program program_;
  bp_kernel kernel_{};
  std::vector<Node> nodes_;
  std::vector<uint64_t> offsets_;      // Of each value: in the workspace, or among the constants.
  std::vector<uint32_t> argument_of_;  // Of each value: its place in bp_program_args.
  uint32_t argument_count_ = 0;
  uint64_t scratch_offset_ = 0;  // Of the workspace of the nodes, behind the temporaries.
  uint64_t workspace_bytes_ = 0, constant_bytes_ = 0;
  bp_buffer* constants_ = nullptr;

  // A stream that constants are used on, and an event behind its latest use.
  struct Use {
    bp_stream* stream;
    bp_event* event;
  };

  std::mutex mutex_;  // Guards what follows.
  std::vector<std::unique_ptr<Frames>> idle_;
  std::vector<Use> uses_;
};

}  // namespace bp
