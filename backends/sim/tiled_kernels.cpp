// Kernels that take tiles, and inputs in the blocks of files. Such a kernel copies tiles to strides
// in the workspace, or decodes blocks to strides there, runs a kernel that takes strides, and
// copies the results back. With option layouts=only every kernel is one that takes tiles alone.
//
//   tiles -> copy -> the kernel -> copy -> tiles        each a piece of work on the stream
#include <algorithm>
#include <array>
#include <deque>
#include <string>
#include <vector>

#include "backends/host_kernels/list.hpp"
#include "backends/sim/backend.hpp"
#include "backends/sim/layout.hpp"
#include "backends/sim/memory.hpp"
#include "backplane/shell/args_size.hpp"
#include "backplane/shell/frame.hpp"
#include "backplane/shell/layout_front.hpp"
#include "backplane/shell/shape.hpp"
#include "backplane/shell/workspace.hpp"

namespace bp::sim {
namespace {

uint64_t round_up(uint64_t size_bytes, uint64_t multiple) {
  return (size_bytes + multiple - 1) / multiple * multiple;
}

// Returns the kernel by strides that `kernel` calls.
const bp_kernel& plain_kernel(const Instance& i, const bp_kernel& kernel) {
  return *i.plain_kernels[static_cast<size_t>(&kernel - i.kernels.data())];
}

// Returns whether a tensor of the frame has a layout. The op has no lists.
bool has_layouts(uint32_t op, const void* args) {
  return std::ranges::any_of(frame_members(op), [&](const FrameMember& member) {
    if (!member.is_tensor()) return false;
    const auto* const tensor = *reinterpret_cast<const bp_tensor* const*>(
        static_cast<const std::byte*>(args) + member.offset);
    return tensor != nullptr && tensor->layout != nullptr;
  });
}

// A frame with tiled tensors, and the same frame by strides, whose tensors are copies in the
// workspace.
class TiledCall {
 public:
  // Throws StatusError of BP_UNSUPPORTED if the kernel does not take a layout of the frame, or
  // strides.
  TiledCall(const Instance& i, const bp_kernel& kernel, const void* args)
      : instance_(i),
        kernel_(kernel),
        plain_(plain_kernel(i, kernel)),
        theirs_(kernel.op, args, kernel.args_size_bytes),
        ours_(theirs_.clone()) {
    for (size_t index = 0; index < theirs_.tensors().size(); ++index) {
      const bp_tensor* const tensor = theirs_.tensors()[index];
      if (tensor == nullptr) continue;
      if (tensor->layout == nullptr) {
        check_strides(index);
        continue;
      }
      check(index, *tensor);
      replace(index, *ours_.tensors()[index]);
    }
  }

  const void* args() const { return ours_.data(); }
  const bp_kernel& plain() const { return plain_; }

  // Returns the bytes of the kernel's own workspace plus those of the copies behind it.
  uint64_t workspace_size_bytes(bp_device* device, bp_launch_flags flags) {
    uint64_t required = 0, preferred = 0;
    if (plain_.workspace_size != nullptr) {
      const bp_status status =
          plain_.workspace_size(&kernel_, device, flags, args(), &required, &preferred);
      if (status != BP_OK) throw StatusError(status, op_text() + ": workspace_size failed");
    }
    plain_bytes_ = std::max(required, preferred);
    uint64_t end = round_up(plain_bytes_, kWorkspaceAlignmentBytes);
    for (Copy& copy : copies_) {
      copy.begin = end;
      end += round_up(size_bytes_of(copy) + alignment_bytes() - 1, kWorkspaceAlignmentBytes);
    }
    return end;
  }

  bp_status launch(const bp_launch& launch, bool only_checks) {
    check_launch(launch);
    if (only_checks) return BP_OK;
    Stream& stream = stream_of(launch.stream, "launch");
    for (const Copy& copy : copies_) place(*ours_.tensors()[copy.index], copy, launch.workspace);
    const std::vector<Pair> pairs = pairs_of(stream);
    for (const Pair& pair : pairs) {
      if (pair.is_read) submit_copy(stream, launch, pair, true);
    }
    bp_launch inner = launch;
    inner.workspace.size_bytes = plain_bytes_;
    if (plain_bytes_ == 0) inner.workspace = {};
    const bp_status status = plain_.launch(&kernel_, &inner, args());
    if (status != BP_OK) return status;
    for (const Pair& pair : pairs) {
      if (pair.is_written) submit_copy(stream, launch, pair, false);
    }
    return BP_OK;
  }

 private:
  struct Copy {
    size_t index;                    // The tensor's index in the frame.
    std::vector<int64_t> strides{};  // The copy's strides.
    uint64_t begin = 0;              // Its place in the workspace, not yet aligned.
  };

  // The two places of the elements of one tensor.
  struct Pair {
    Extents extents;
    Use tiled, plain;
    Side tiled_side, plain_side;
    bool is_read, is_written;
  };

  std::string op_text() const { return op_name(kernel_.op); }

  // Returns the alignment of the copies. They are tensors for the kernel, so the alignment rule of
  // the heaps holds.
  uint64_t alignment_bytes() const {
    return std::max(kWorkspaceAlignmentBytes, instance_.options.offset_alignment_bytes);
  }

  uint64_t size_bytes_of(const Copy& copy) const {
    const bp_tensor& tensor = *theirs_.tensors()[copy.index];
    // A size that is counted in bits would reach the limit of 64 bits earlier.
    const int64_t whole_bytes = dtype_size_bytes(tensor.dtype);
    if (whole_bytes != 0) {
      return static_cast<uint64_t>(dense_size_bytes(tensor.ndim, tensor.shape, whole_bytes));
    }
    const int64_t item_bits = dtype_size_bits(tensor.dtype);
    return static_cast<uint64_t>(dense_size_bytes(tensor.ndim, tensor.shape, item_bits) + 7) / 8;
  }

  void check_strides(size_t index) const {
    if (!takes_tiles_alone(instance_)) return;
    refuse(BP_UNSUPPORTED, op_text() + ": argument " + theirs_.arguments()[index].name +
                               " lies by strides, and the kernel takes tiles alone; convert it");
  }

  void check(size_t index, const bp_tensor& tensor) const {
    const FrameArgument& argument = theirs_.arguments()[index];
    const std::string what = op_text() + ": argument " + argument.name;
    const bool is_in_blocks = tensor.layout->kind == BP_LAYOUT_KIND_QUANTIZED;
    const uint32_t taken = is_in_blocks ? block_arguments(instance_, kernel_.op)
                                        : tiled_arguments(instance_, kernel_.op);
    if ((taken >> argument.index & 1) == 0) {
      const char* const name = tensor.layout->name;
      refuse(BP_UNSUPPORTED, what + " has layout \"" + (name == nullptr ? "" : name) +
                                 "\", which the kernel does not take there; allowed: " +
                                 (takes_tiles_alone(instance_) ? "tiles" : "strides"));
    }
    static_cast<void>(instance_.layouts->form_of(tensor, what));
  }

  void replace(size_t index, bp_tensor& tensor) {
    Copy& copy = copies_.emplace_back(Copy{index});
    copy.strides.resize(tensor.ndim);
    set_contiguous_strides(tensor.ndim, tensor.shape, copy.strides.data());
    tensor.layout = nullptr;
    tensor.strides = copy.strides.data();
    tensor.byte_offset = 0;
    // supports() of the plain kernel is called before the copies have addresses.
  }

  void place(bp_tensor& tensor, const Copy& copy, const bp_buffer_ref& workspace) const {
    tensor.buffer = workspace.buffer;
    tensor.byte_offset = round_up(workspace.byte_offset + copy.begin, alignment_bytes());
  }

  void check_launch(const bp_launch& launch) {
    if (launch.plan != nullptr) {
      refuse(BP_INVALID_ARGUMENT, op_text() + ": plans are for arguments by strides");
    }
    if ((launch.flags & ~kKnownLaunchFlags) != 0) {
      refuse(BP_UNSUPPORTED, op_text() + ": a launch flag is not known");
    }
    const bp_reason reason = plain_.supports == nullptr
                                 ? nullptr
                                 : plain_.supports(&kernel_, launch.device, launch.flags, args());
    if (reason != nullptr) refuse(BP_UNSUPPORTED, op_text() + ": " + reason);
    check_workspace(launch.workspace, workspace_size_bytes(launch.device, launch.flags),
                    op_name(kernel_.op));
  }

  std::vector<Pair> pairs_of(const Stream& stream) const {
    std::vector<Pair> pairs;
    for (const Copy& copy : copies_) {
      const bp_tensor &tiled = *theirs_.tensors()[copy.index],
                      &plain = *ours_.tensors()[copy.index];
      if (element_count(tiled) == 0) continue;
      const FrameArgument& argument = theirs_.arguments()[copy.index];
      const Access access = argument.is_written ? Access::kWrite : Access::kRead;
      Pair pair{.extents = extents_of(tiled),
                .tiled = use_of_tensor(tiled, access, stream, "launch", argument.name),
                .plain = use_of_tensor(plain, Access::kWrite, stream, "launch", "workspace"),
                .is_read = argument.is_read,
                .is_written = argument.is_written};
      const LayoutForm form = instance_.layouts->form_of(tiled, op_text());
      pair.tiled_side = side_of(instance_, tiled, form, pair.tiled);
      pair.plain_side = side_of(instance_, plain, std::nullopt, pair.plain);
      pairs.push_back(std::move(pair));
    }
    return pairs;
  }

  void submit_copy(Stream& stream, const bp_launch& launch, const Pair& pair, bool is_in) const {
    const Side &dst = is_in ? pair.plain_side : pair.tiled_side,
               &src = is_in ? pair.tiled_side : pair.plain_side;
    const WorkName name{BP_ACTIVITY_KERNEL, is_in ? "tiles.read" : "tiles.write",
                        pair.tiled.size_bytes + pair.plain.size_bytes, launch.correlation_id};
    const bp_status status =
        submit_work(stream, name, {pair.plain, pair.tiled},
                    [extents = pair.extents, dst, src] { run_conversion(extents, dst, src); });
    // The kernel may have failed already, because of bad data. Its launch was submitted even so.
    if (status == BP_OK || (!is_in && status == BP_STREAM_FAILED)) return;
    throw StatusError(status, op_text() + ": the stream has failed");
  }

  const Instance& instance_;
  const bp_kernel& kernel_;
  const bp_kernel& plain_;
  const OwnedFrame theirs_;
  OwnedFrame ours_;
  std::deque<Copy> copies_;  // A deque never moves the shapes that tensors point to.
  uint64_t plain_bytes_ = 0;
};

// ---- Claims -------------------------------------------------------------------------------------

constexpr int64_t kTileShape[2] = {kPreferredTiles.extent, kPreferredTiles.extent},
                  kOnlyTileShape[2] = {kOnlyTiles.extent, kOnlyTiles.extent};

constexpr bp_layout_claim only_tiles(bp_layout_claim_flags flags) {
  return {.struct_size = sizeof(bp_layout_claim),
          .struct_type = BP_STRUCT_LAYOUT_CLAIM,
          .arguments = UINT64_MAX,
          .block_shape = kOnlyTileShape,
          .block_ndim = 2,
          .kind = BP_LAYOUT_KIND_TILED,
          .flags = flags};
}

// The claims of every kernel of a device that takes tiles alone, and of its copies for programs.
constexpr bp_layout_claim kOnlyClaim = only_tiles(BP_LAYOUT_CLAIM_REQUIRED),
                          kCopiedTiles = only_tiles(0),
                          kCopiedBlocks{.struct_size = sizeof(bp_layout_claim),
                                        .struct_type = BP_STRUCT_LAYOUT_CLAIM,
                                        .arguments = 0b1,  // x
                                        .kind = BP_LAYOUT_KIND_QUANTIZED};
constexpr const bp_layout_claim *kOnlyClaims[] = {&kOnlyClaim},
                                *kCopyClaims[] = {&kCopiedTiles, &kCopiedBlocks};

// The claims of the kernels of one op on a device whose kernels take strides too.
struct Claims {
  Claims(const Instance& instance, uint32_t its_op) : op(its_op) {
    tiles.arguments = tiled_arguments(instance, op);
    blocks.arguments = block_arguments(instance, op);
  }
  Claims(const Claims&) = delete;

  const uint32_t op;
  bp_layout_claim tiles{.struct_size = sizeof(bp_layout_claim),
                        .struct_type = BP_STRUCT_LAYOUT_CLAIM,
                        .block_shape = kTileShape,
                        .block_ndim = 2,
                        .kind = BP_LAYOUT_KIND_TILED};
  bp_layout_claim blocks{.struct_size = sizeof(bp_layout_claim),
                         .struct_type = BP_STRUCT_LAYOUT_CLAIM,
                         .kind = BP_LAYOUT_KIND_QUANTIZED};
  const bp_layout_claim* pointers[2] = {&tiles, &blocks};
};

const Claims& claims_of(const Instance& i, uint32_t op) {
  static const Claims claims[] = {Claims(i, BP_OP_COPY), Claims(i, BP_OP_ADD),
                                  Claims(i, BP_OP_MATMUL), Claims(i, BP_OP_LINEAR)};
  return *std::ranges::find(claims, op, &Claims::op);
}

struct TiledTraits {
  using Instance = sim::Instance;

  static const bp_kernel& plain_kernel(const bp_kernel& self) {
    return sim::plain_kernel(instance(self.state), self);
  }

  static bool has_layouts(const bp_kernel& self, const void* args) {
    return takes_tiles_alone(instance(self.state)) || sim::has_layouts(self.op, args);
  }

  static bp_status launch(const bp_kernel& self, const bp_launch& launch, const void* args) {
    const Instance& i = instance(self.state);
    return guarded(*i.host, [&]() -> bp_status {
      const auto run = [&](bool only_checks) {
        return TiledCall(i, self, args).launch(launch, only_checks);
      };
      if (!i.hooks.is_capture_open()) return run(false);
      return launch_in_capture(*i.captures, self, launch, args, run);
    });
  }

  static uint64_t workspace_size_bytes(const bp_kernel& self, bp_device* device,
                                       bp_launch_flags flags, const void* args) {
    return TiledCall(instance(self.state), self, args).workspace_size_bytes(device, flags);
  }

  static bp_reason supports(const bp_kernel& self, bp_device* device, bp_launch_flags flags,
                            const void* args) {
    const TiledCall call(instance(self.state), self, args);
    const bp_kernel& plain = call.plain();
    return plain.supports == nullptr ? nullptr : plain.supports(&self, device, flags, call.args());
  }
};

bp_reason copies_between_layouts(const bp_kernel*, bp_device*, bp_launch_flags, const void* args) {
  const auto& a = *static_cast<const bp_copy_args*>(args);
  const bool is_alike = a.x->dtype == a.y->dtype && std::equal(a.x->shape, a.x->shape + a.x->ndim,
                                                               a.y->shape, a.y->shape + a.y->ndim);
  return is_alike ? nullptr : "x and y of different dtypes or shapes are not converted";
}

}  // namespace

bp_kernel copy_between_layouts(const Instance& i) {
  bp_kernel kernel = i.layouts->conversion_kernel;
  kernel.spec_revision = kSpecRevision;
  kernel.flags |= BP_KERNEL_DETERMINISTIC;
  kernel.layouts = BP_LAYOUT_ANY;
  kernel.layout_claims = kCopyClaims;
  kernel.layout_claim_count = std::size(kCopyClaims);
  kernel.supports = copies_between_layouts;
  return kernel;
}

void put_tiles(const Instance& i, bp_kernel& kernel) {
  LayoutKernel<TiledTraits>::put(kernel, takes_tiles_alone(i));
  if (takes_tiles_alone(i)) {
    kernel.layout_claims = kOnlyClaims;
    kernel.layout_claim_count = std::size(kOnlyClaims);
    // Plans are for strides.
    kernel.prepare = nullptr;
    kernel.plan_info = nullptr;
    kernel.plan_pack = nullptr;
    kernel.plan_release = nullptr;
    return;
  }
  const Claims& claims = claims_of(i, kernel.op);
  kernel.layout_claims = claims.pointers;
  kernel.layout_claim_count = std::size(claims.pointers);
}

}  // namespace bp::sim
