#include "registry/calls/compiled_ops.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstring>
#include <deque>
#include <iterator>
#include <numeric>
#include <string>
#include <utility>

#include "backplane/layout.h"
#include "registry/boundary/error_slot.hpp"
#include "registry/boundary/fail.hpp"
#include "registry/boundary/guard.hpp"
#include "registry/boundary/plugin_text.hpp"
#include "registry/calls/claims.hpp"
#include "registry/calls/frame_words.hpp"

namespace bp::core {
namespace {

// Returns the tensors of a frame in its order, with the tensors of a list one after the other. An
// absent tensor is NULL.
std::vector<const bp_tensor*> tensors_of(const OpRow& row, const void* args) {
  std::vector<const bp_tensor*> tensors;
  for (uint32_t i = 0; i < row.tensor_count; ++i) {
    const TensorArgument& argument = row.tensors[i];
    if (!argument.is_list()) {
      tensors.push_back(tensor_at(args, argument));
      continue;
    }
    const TensorList list = list_at(args, argument);
    tensors.insert(tensors.end(), list.items, list.items + list.count);
  }
  return tensors;
}

bool is_written(Kind kind) {
  return kind == Kind::out || kind == Kind::out_opt || kind == Kind::out_list ||
         kind == Kind::inout || kind == Kind::inout_list;
}

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

// Returns whether the two are one tensor, as in a call in place.
bool is_same(const bp_tensor& a, const bp_tensor& b) {
  return a.buffer != nullptr && a.buffer == b.buffer && a.byte_offset == b.byte_offset &&
         a.dtype == b.dtype && a.ndim == b.ndim && a.layout == b.layout &&
         std::equal(a.shape, a.shape + a.ndim, b.shape) &&
         (a.layout != nullptr || std::equal(a.strides, a.strides + a.ndim, b.strides));
}

// Returns, for each tensor, the index of the first tensor that is the same. This is its own index
// if no earlier tensor is the same. Only tensors that begin at the same byte are compared, so that
// lists of thousands of tensors stay cheap.
std::vector<uint32_t> originals_of(const std::vector<const bp_tensor*>& tensors) {
  std::vector<uint32_t> originals(tensors.size());
  std::iota(originals.begin(), originals.end(), 0u);
  std::map<std::pair<const bp_buffer*, uint64_t>, std::vector<uint32_t>> by_place;
  for (uint32_t i = 0; i < tensors.size(); ++i) {
    if (tensors[i] == nullptr || tensors[i]->buffer == nullptr) continue;
    std::vector<uint32_t>& distinct = by_place[{tensors[i]->buffer, tensors[i]->byte_offset}];
    const auto found = std::ranges::find_if(
        distinct, [&](uint32_t earlier) { return is_same(*tensors[i], *tensors[earlier]); });
    if (found != distinct.end()) {
      originals[i] = *found;
    } else {
      distinct.push_back(i);
    }
  }
  return originals;
}

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

// A program of one node, and the data that it points to.
class OneNode {
 public:
  OneNode(const OpRow& row, const void* args, const std::vector<const bp_tensor*>& tensors)
      : frame_(row.frame_size_bytes / sizeof(uint64_t) + 1) {
    std::memcpy(frame_.data(), args, row.frame_size_bytes);
    const auto size_bytes = static_cast<uint32_t>(row.frame_size_bytes);
    std::memcpy(frame_.data(), &size_bytes, sizeof(size_bytes));
    add_values(row, args, tensors);
    put_views(row, args, tensors);
    node_ = {.struct_size = sizeof(node_),
             .struct_type = BP_STRUCT_PROGRAM_NODE,
             .next = nullptr,
             .args = frame_.data(),
             .values = value_of_.data(),
             .value_count = value_of_.size(),
             .op = row.op,
             .reserved = 0};
    program_ = {.struct_size = sizeof(program_),
                .struct_type = BP_STRUCT_PROGRAM,
                .next = nullptr,
                .values = values_.data(),
                .value_count = values_.size(),
                .value_stride_bytes = sizeof(bp_program_value),
                .nodes = &node_,
                .node_count = 1,
                .node_stride_bytes = sizeof(bp_program_node)};
  }
  OneNode(const OneNode&) = delete;

  bp_compile_desc desc(bp_launch_flags flags) const {
    return {.struct_size = sizeof(bp_compile_desc),
            .struct_type = BP_STRUCT_COMPILE_DESC,
            .next = nullptr,
            .format = "backplane.graph",
            .data = &program_,
            .size_bytes = sizeof(program_),
            .flags = flags,
            .reserved = 0};
  }

  // Returns, for each tensor of the program's frame, the inputs first, its place among the tensors
  // of the op.
  std::vector<uint32_t> order() const {
    std::vector<uint32_t> order;
    for (const bp_value_role role : {BP_VALUE_INPUT, BP_VALUE_OUTPUT}) {
      for (uint32_t value = 0; value < values_.size(); ++value) {
        if (values_[value].role == role) order.push_back(tensor_of_[value]);
      }
    }
    return order;
  }

 private:
  void add_values(const OpRow& row, const void* args,
                  const std::vector<const bp_tensor*>& tensors) {
    const std::vector<uint32_t> originals = originals_of(tensors);
    uint32_t k = 0;
    for (uint32_t i = 0; i < row.tensor_count; ++i) {
      const TensorArgument& argument = row.tensors[i];
      const uint64_t count = argument.is_list() ? list_at(args, argument).count : 1;
      for (uint64_t n = 0; n < count; ++n, ++k) {
        value_of_.push_back(add_value(tensors, originals, k, is_written(argument.kind)));
      }
    }
  }

  uint32_t add_value(const std::vector<const bp_tensor*>& tensors,
                     const std::vector<uint32_t>& originals, uint32_t k, bool written) {
    if (tensors[k] == nullptr) return BP_NO_VALUE;
    const bp_value_role role = written ? BP_VALUE_OUTPUT : BP_VALUE_INPUT;
    if (originals[k] != k) {
      const uint32_t value = value_of_[originals[k]];
      values_[value].role = std::max(values_[value].role, role);
      return value;
    }
    const bp_tensor& t = *tensors[k];
    values_.push_back({.struct_size = sizeof(bp_program_value),
                       .struct_type = BP_STRUCT_PROGRAM_VALUE,
                       .next = nullptr,
                       .shape = t.shape,
                       .strides = t.layout == nullptr ? t.strides : nullptr,
                       .data = nullptr,
                       .dtype = t.dtype,
                       .ndim = t.ndim,
                       .role = role,
                       .reserved = 0,
                       .layout = t.layout == nullptr ? nullptr : t.layout->desc});
    tensor_of_.push_back(k);
    return static_cast<uint32_t>(values_.size() - 1);
  }

  // Replaces the tensors of the frame by tensors without buffers, in the layouts of their values.
  void put_views(const OpRow& row, const void* args, const std::vector<const bp_tensor*>& tensors) {
    for (const bp_tensor* tensor : tensors) {
      bp_tensor& view = views_.emplace_back(tensor == nullptr ? bp_tensor{} : *tensor);
      view.buffer = nullptr;
      view.byte_offset = 0;
      view.layout = nullptr;
      view.next = nullptr;  // A program keeps no links.
      pointers_.push_back(tensor == nullptr ? nullptr : &view);
    }
    auto* const bytes = reinterpret_cast<std::byte*>(frame_.data());
    const bp_tensor* const* next = pointers_.data();
    for (uint32_t i = 0; i < row.tensor_count; ++i) {
      const TensorArgument& argument = row.tensors[i];
      if (argument.is_list()) {
        std::memcpy(bytes + argument.offset, &next, sizeof(const bp_tensor* const*));
        next += list_at(args, argument).count;
      } else {
        std::memcpy(bytes + argument.offset, next++, sizeof(const bp_tensor*));
      }
    }
  }

  std::vector<uint64_t> frame_;
  std::vector<bp_program_value> values_;
  std::vector<uint32_t> tensor_of_;  // The index of a tensor for each value.
  std::vector<uint32_t> value_of_;   // The index of a value for each tensor.
  std::deque<bp_tensor> views_;
  std::vector<const bp_tensor*> pointers_;
  bp_program_node node_{};
  bp_program program_{};
};

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
    : compiler_(compiler), device_(device), launch_counts_(op_rows().size()) {
  for (const OpRow& row : op_rows()) ops_.push_back({this, &row});
  for (const Op& op : ops_) kernels_.push_back(make_kernel(op));
}

bp_kernel CompiledOps::make_kernel(const Op& op) const {
  bp_kernel kernel{};
  kernel.struct_size = sizeof(kernel);
  kernel.struct_type = BP_STRUCT_KERNEL;
  kernel.state = const_cast<Op*>(&op);
  kernel.name = "program";
  kernel.op = op.row->op;
  kernel.spec_revision = BP_OPS_REVISION;
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
    if (status != BP_OK || !op.owner->keep_) return status;
    return op.owner->keep_(launch->stream, program);
  });
}

}  // namespace bp::core
