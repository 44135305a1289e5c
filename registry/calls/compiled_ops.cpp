#include "registry/calls/compiled_ops.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstring>
#include <iterator>
#include <string>
#include <utility>

#include "backplane/layout.h"
#include "registry/boundary/error_slot.hpp"
#include "registry/boundary/fail.hpp"
#include "registry/boundary/guard.hpp"
#include "registry/boundary/plugin_text.hpp"
#include "registry/calls/claims.hpp"
#include "registry/calls/frame_words.hpp"
#include "registry/calls/one_node.hpp"
#include "registry/calls/runtime_op.hpp"
#include "registry/calls/runtime_ops.hpp"

namespace bp::core {
namespace {

// Returns the flags with which a program is compiled for launches with `flags`. Every program is
// deterministic, so launches with and without that flag share one program.
bp_launch_flags program_flags(bp_launch_flags flags) {
  return (flags | BP_LAUNCH_DETERMINISTIC) & ~bp_launch_flags{BP_LAUNCH_DEVICE_CURRENT};
}

// A frame in which a tensor without memory stands for each inline scalar.
class LaunchedFrame {
 public:
  LaunchedFrame(const OpRow& row, const bp_kernel& kernel, const void* args) : args_(args) {
    for (uint32_t i = 0; i < row.tensor_count; ++i) {
      const TensorArgument& argument = row.tensors[i];
      if (!has_inline_scalar(argument, args)) continue;
      if (args_ == args) std::memcpy(copy_, args, row.frame_size_bytes);
      args_ = copy_;
      views_[i] = scalar_view(row, argument, kernel, args);
      const bp_tensor* const view = &views_[i];
      // NOLINTNEXTLINE(bugprone-sizeof-expression): the pointer itself is written.
      std::memcpy(copy_ + argument.offset, &view, sizeof(view));
    }
  }
  LaunchedFrame(const LaunchedFrame&) = delete;

  const void* args() const { return args_; }

 private:
  const void* args_;
  alignas(8) std::byte copy_[kMaxFrameBytes];
  bp_tensor views_[kMaxTensors];
};

// Appends what the description of a layout says beside the dtype and shape of the tensor. A later
// layout may get the address of one that ended, so an address does not name a layout.
void add_layout_words(const bp_tensor* tensor, std::vector<uint64_t>& words) {
  if (tensor == nullptr || tensor->layout == nullptr) return;
  const bp_layout_desc& desc = *tensor->layout->desc;
  words.insert(words.end(), {desc.kind, desc.scale_dtype});
  words.insert(words.end(), desc.block_shape, desc.block_shape + desc.ndim);
  for (const char* c = desc.format_name; c != nullptr && *c != '\0'; ++c) {
    words.push_back(static_cast<unsigned char>(*c));
  }
}

bool lacks_description(const bp_tensor* tensor) {
  return tensor != nullptr && tensor->layout != nullptr && tensor->layout->desc == nullptr;
}

// Programs say which described layouts they take when they are compiled.
constexpr bp_layout_claim kTiled{.struct_size = sizeof(bp_layout_claim),
                                 .struct_type = BP_STRUCT_LAYOUT_CLAIM,
                                 .arguments = ~uint64_t{0},
                                 .kind = BP_LAYOUT_KIND_TILED};
constexpr bp_layout_claim kQuantized{.struct_size = sizeof(bp_layout_claim),
                                     .struct_type = BP_STRUCT_LAYOUT_CLAIM,
                                     .arguments = ~uint64_t{0},
                                     .kind = BP_LAYOUT_KIND_QUANTIZED};
constexpr const bp_layout_claim* kLayoutClaims[] = {&kTiled, &kQuantized};

// Says which tensors of the op are those of its program, which a refusal counts.
std::string in_program(const OpRow& row, const void* args, const std::vector<uint32_t>& order) {
  const std::vector<std::string> names = names_of_tensors(row, args);
  std::string text;
  for (size_t i = 0; i < order.size(); ++i) {
    text += (i == 0 ? "" : ", ") + ("tensor " + names[order[i]]) + " as " + std::to_string(i);
  }
  return std::string(row.name) + " as a program with " + text + ": ";
}

}  // namespace

struct CompiledOps::Program {
  Program() = default;
  Program(const Program&) = delete;
  ~Program() {
    if (executable != nullptr) static_cast<void>(compiler->release(compiler->self, executable));
  }

  const bp_compiler_ops* compiler = nullptr;
  bp_executable* executable = nullptr;
  const bp_kernel* kernel = nullptr;
  std::vector<uint32_t> order;  // The index of the op's tensor at each place of the frame.
  bp_reason reason = nullptr;   // Tells why there is no executable.
  bp_status status = BP_OK;     // The status of compile(), with its text.
  std::string text;
};

CompiledOps::CompiledOps(const bp_compiler_ops& compiler, bp_device* device)
    : compiler_(compiler), device_(device), launch_counts_(op_rows().size() + kMaxRuntimeOps) {
  for (const OpRow& row : op_rows()) ops_.push_back({this, &row});
  for (const Op& op : ops_) kernels_.push_back(make_kernel(op));
}

const bp_kernel* CompiledOps::kernel(const OpRow& row) {
  return is_runtime_op(row) ? runtime_kernels(row).front() : &kernels_[row.index];
}

// A description that extends an earlier one has a row of its own, and so a kernel of its own.
const std::vector<const bp_kernel*>& CompiledOps::runtime_kernels(const OpRow& row) {
  const std::lock_guard lock(mutex_);
  RuntimeKernel& made = runtime_kernels_[&row];
  if (made.list.empty()) {
    made.op = {this, &row};
    made.kernel = make_kernel(made.op);
    made.list.push_back(&made.kernel);
  }
  return made.list;
}

bp_kernel CompiledOps::make_kernel(const Op& op) const {
  const bool is_runtime = is_runtime_op(*op.row);
  bp_kernel kernel{};
  kernel.struct_size = sizeof(kernel);
  kernel.struct_type = BP_STRUCT_KERNEL;
  kernel.state = const_cast<Op*>(&op);
  kernel.name = "program";
  kernel.op = is_runtime ? 0 : op.row->op;
  kernel.op_name = is_runtime ? op.row->name : nullptr;
  kernel.spec_revision = is_runtime ? runtime_op(*op.row).revision : BP_OPS_REVISION;
  kernel.args_size_bytes = op.row->frame_size_bytes;
  kernel.flags = BP_KERNEL_CAPTURABLE | BP_KERNEL_DETERMINISTIC | BP_KERNEL_IN_PLACE |
                 BP_KERNEL_TAKES_ACC_OPERAND;
  kernel.layouts = BP_LAYOUT_ANY;
  kernel.layout_claims = kLayoutClaims;
  kernel.layout_claim_count = std::size(kLayoutClaims);
  kernel.supports = supports;
  kernel.workspace_size = workspace_size;
  kernel.launch = launch;
  return kernel;
}

std::shared_ptr<const CompiledOps::Program> CompiledOps::compile(
    const OpRow& row, bp_launch_flags flags, const void* args,
    const std::vector<const bp_tensor*>& tensors) const {
  auto program = std::make_shared<Program>();
  program->compiler = &compiler_;
  const OneNode node(row, args, tensors);
  const bp_compile_desc desc = node.desc(flags);
  uint32_t partition = BP_NO_PARTITION;
  uint64_t partition_count = 0;
  program->status = compiler_.query(compiler_.self, device_, &desc, 1, &partition, &program->reason,
                                    &partition_count);
  if (program->status == BP_OK && partition == BP_NO_PARTITION && program->reason == nullptr) {
    program->reason = "query() puts it into no partition, and gives no reason";
  }
  if (program->status == BP_OK && program->reason != nullptr) return program;
  if (program->status == BP_OK) {
    program->status = compiler_.compile(compiler_.self, device_, &desc, &program->executable);
  }
  if (program->status == BP_OK) {
    program->status =
        compiler_.executable_kernel(compiler_.self, program->executable, &program->kernel);
  }
  if (program->status == BP_OK) {
    const std::string defect = lent_kernel_defect(program->kernel);
    if (!defect.empty()) program->status = fail(BP_INTERNAL, "executable_kernel: " + defect);
  }
  program->order = node.order();
  if (program->status != BP_OK) {
    program->text = take_error();
    program->reason = "the compiler refuses it";
  }
  return program;
}

CompiledOps::Key CompiledOps::key_of(const OpRow& row, bp_launch_flags flags, const void* args,
                                     const std::vector<const bp_tensor*>& tensors) {
  Key key{row.op, program_flags(flags)};
  const std::vector<uint64_t> words = frame_words(row, args, {});
  key.insert(key.end(), words.begin(), words.end());
  const std::vector<uint32_t> originals = originals_of(tensors);
  key.insert(key.end(), originals.begin(), originals.end());
  for (const bp_tensor* tensor : tensors) add_layout_words(tensor, key);
  return key;
}

std::shared_ptr<const CompiledOps::Program> CompiledOps::find_known(const Key& key) {
  const std::lock_guard lock(mutex_);
  const auto found = programs_.find(key);
  return found == programs_.end() ? nullptr : found->second;
}

std::shared_ptr<const CompiledOps::Program> CompiledOps::find(const OpRow& row,
                                                              bp_launch_flags flags,
                                                              const void* args) {
  const std::vector<const bp_tensor*> tensors = tensors_of(row, args);
  if (std::ranges::any_of(tensors, lacks_description)) {
    auto refused = std::make_shared<Program>();
    refused->reason = "a tensor has a layout without a description, and programs describe layouts";
    return refused;
  }
  Key key = key_of(row, flags, args, tensors);
  if (std::shared_ptr<const Program> known = find_known(key)) return known;
  std::shared_ptr<const Program> program = compile(row, program_flags(flags), args, tensors);
  if (program->status != BP_OK && program->status != BP_UNSUPPORTED) return program;
  std::map<Key, std::shared_ptr<const Program>> ended;  // It is destroyed after the unlock.
  const std::lock_guard lock(mutex_);
  if (programs_.size() >= kMaxPrograms) ended.swap(programs_);
  return programs_.emplace(std::move(key), std::move(program)).first->second;
}

void CompiledOps::forget_programs() {
  std::map<Key, std::shared_ptr<const Program>> ended;  // It is destroyed after the unlock.
  const std::lock_guard lock(mutex_);
  ended.swap(programs_);
}

bp_reason CompiledOps::supports(const bp_kernel* self, bp_device*, bp_launch_flags flags,
                                const void* args) {
  const Op& op = op_of(self);
  bp_reason reason = kOutOfHostMemory;
  static_cast<void>(guarded([&] {
    reason = op.owner->find(*op.row, flags, LaunchedFrame(*op.row, *self, args).args())->reason;
    return bp_status{BP_OK};
  }));
  return reason;
}

bp_status CompiledOps::workspace_size(const bp_kernel* self, bp_device* device,
                                      bp_launch_flags flags, const void* args,
                                      uint64_t* out_required_bytes, uint64_t* out_preferred_bytes) {
  const Op& op = op_of(self);
  return guarded([&]() -> bp_status {
    uint64_t required = 0, preferred = 0;
    const std::shared_ptr<const Program> program = op.owner->find(*op.row, flags, args);
    if (program->kernel != nullptr && program->kernel->workspace_size != nullptr) {
      bp_program_args frame{};
      frame.struct_size = sizeof(frame);
      const bp_status status = program->kernel->workspace_size(program->kernel, device, flags,
                                                               &frame, &required, &preferred);
      if (status != BP_OK) return status;
    }
    if (out_required_bytes != nullptr) *out_required_bytes = required;
    if (out_preferred_bytes != nullptr) *out_preferred_bytes = preferred;
    return BP_OK;
  });
}

bp_status CompiledOps::launch(const bp_kernel* self, const bp_launch* launch, const void* args) {
  const Op& op = op_of(self);
  return guarded([&]() -> bp_status {
    if (launch == nullptr || args == nullptr) return is_null("launch or args");
    if ((launch->flags & ~kKnownLaunchFlags) != 0) {
      return unknown_flags(*op.row, launch->flags);
    }
    const std::shared_ptr<const Program> program = op.owner->find(*op.row, launch->flags, args);
    if (program->kernel == nullptr) {
      const bp_status status = program->status == BP_OK ? BP_UNSUPPORTED : program->status;
      return fail(status,
                  std::string(op.row->name) + ": " +
                      (program->text.empty() ? clean_text(program->reason, LineBreaks::kIndent)
                                             : program->text));
    }
    const std::vector<const bp_tensor*> tensors = tensors_of(*op.row, args);
    std::vector<bp_tensor> arguments;
    for (const uint32_t index : program->order) {
      arguments.push_back(*tensors[index]);
      arguments.back().next = nullptr;  // Hints about one op say nothing to a program.
    }
    bp_program_args frame{};
    frame.struct_size = sizeof(frame);
    frame.tensors = arguments.data();
    frame.tensor_count = arguments.size();
    const bp_status status = program->kernel->launch(program->kernel, launch, &frame);
    if (status == BP_OK) {
      op.owner->launch_counts_[op.row->index].fetch_add(1, std::memory_order_relaxed);
    }
    if (status != BP_OK && status != BP_STREAM_FAILED) {
      return fail(status, in_program(*op.row, args, program->order) + take_error());
    }
    if (status != BP_OK || !op.owner->keep_) return status;
    return op.owner->keep_(launch->stream, program);
  });
}

}  // namespace bp::core
