// A program at the numbers that its extents have in some launches: the kernel and the frame of each
// node, and the places of temporaries in the workspace.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "backplane/layout.h"
#include "backplane/memory.h"
#include "backplane/shell/aliases.hpp"
#include "backplane/shell/program.hpp"
#include "backplane/stream.h"

namespace bp {

class Captures;

// What a device does not compile.
struct CompilerLimits {
  bp_reason refusal_of_ranges = nullptr;  // NULL, or why it takes no ranges, a static string.
  uint64_t chip_memory_bytes = 0;         // The temporaries have to fit into it; 0: no limit.
};

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
  CompilerLimits limits;
  Layouts* layouts = nullptr;  // NULL: the device has none.
  bp_layout_ops layout_table{};
  // Whether the kernels need a device to say what they support and how much workspace they need. If
  // they need none, programs are compiled for devices that are described.
  bool kernels_need_device = true;
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
  const char* call = "compile";  // The entry that runs. The texts of failures begin with it.

  // Begins a step. Throws StatusError of BP_ABORTED if the host stops the compilation.
  void begin_step() const;
};

// Returns the kernel that a node of a program without extents gets. Throws StatusError of
// BP_UNSUPPORTED, whose text begins with `call`, if no kernel takes it.
const bp_kernel& kernel_for_node(const CompilerBackend& backend, bp_device* device,
                                 bp_launch_flags flags, const Program& program, size_t index,
                                 const std::string& call);

// Where the temporaries of a program lie in the workspace.
struct Placement {
  std::vector<uint64_t> offsets;  // One for each value.
  uint64_t size_bytes = 0;
};

// Gives each temporary the first gap between the temporaries that live at the same time. Value i
// takes sizes_bytes[i].
Placement place_temporaries(const Program& program, std::span<const uint64_t> sizes_bytes);

// Returns the sizes of the values of a program that names no extents.
std::vector<uint64_t> sizes_of_values(const Program& program);

// Rounds up to the alignment of workspace, which all places in it have.
uint64_t rounded_for_workspace(uint64_t size_bytes);

class Resolved {
 public:
  struct Node {
    const bp_kernel* kernel = nullptr;
    OwnedFrame frame;              // Byte offsets count from the beginning of the value.
    uint64_t workspace_bytes = 0;  // What its launch needs.
    bp_plan* plan = nullptr;       // The executable owns it.
  };
  // The frames of all nodes. One launch at a time uses them.
  using Frames = std::vector<OwnedFrame>;

  // Chooses the kernels of `program`, which is that of a launch with `numbers`. The temporaries lie
  // as in `most` if they need more than this otherwise. Throws StatusError of BP_UNSUPPORTED if no
  // kernel takes a node.
  Resolved(const CompilerBackend& backend, bp_device* device, const CompileRequest& request,
           Program program, ExtentNumbers numbers, const Placement& most);

  const Program& program() const { return program_; }
  const ExtentNumbers& numbers() const { return numbers_; }
  std::vector<Node>& nodes() { return nodes_; }
  const std::vector<Node>& nodes() const { return nodes_; }
  bp_kernel_flags kernel_flags() const;  // Those that the kernels of all nodes have.

  // What a launch does for alias i of the program, and where the workspace has room for a copy of
  // the input, which begins at its lowest byte.
  const AliasUse& use_of_alias(size_t i) const { return aliases_[i].use; }
  uint64_t offset_of_copy(size_t alias) const {
    return placement_.size_bytes + aliases_[alias].offset;
  }

  uint64_t offset_of(uint32_t temporary) const { return placement_.offsets[temporary]; }
  // Where the workspace of the nodes begins.
  uint64_t scratch_offset() const { return placement_.size_bytes + copies_bytes_; }
  uint64_t workspace_bytes() const;

  std::unique_ptr<Frames> take_frames();
  void give_frames(std::unique_ptr<Frames> frames);

 private:
  struct Alias {
    AliasUse use;
    uint64_t offset = 0, size_bytes = 0;  // No bytes: the input is never copied.
  };

  void choose(const CompilerBackend& backend, bp_device* device, const CompileRequest& request,
              size_t index);
  void place_copies(bool has_ranges);

  const Program program_;
  const ExtentNumbers numbers_;
  std::vector<Node> nodes_;
  Placement placement_;
  std::vector<Alias> aliases_;
  uint64_t copies_bytes_ = 0;
  std::mutex mutex_;  // It guards the frames that no launch uses.
  std::vector<std::unique_ptr<Frames>> idle_;
};

}  // namespace bp
