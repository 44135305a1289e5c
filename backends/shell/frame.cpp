#include "backplane/shell/frame.hpp"

#include <algorithm>
#include <cstring>
#include <string>
#include <string_view>

#include "backplane/layout.h"
#include "backplane/ops.h"
#include "backplane/shell/boundary.hpp"
#include "backplane/shell/op_ids.hpp"
#include "backplane/shell/shape.hpp"

namespace bp {
namespace {

struct OpName {
  uint32_t op;
  const char* name;
  uint32_t frame_size_bytes;
};

constexpr OpName kNames[] = {
    {0, "program", sizeof(bp_program_args)},
#define BP_OP(id, name, since, profile, core_or_decomposable, numerics) \
  {id, #name, sizeof(bp_##name##_args)},
#define BP_ARG(op, member, kind, dtype_rule)
#include "backplane/ops.def"
#undef BP_OP
#undef BP_ARG
};

constexpr FrameMember kMembers[] = {
#define BP_OP(id, name, since, profile, core_or_decomposable, numerics)
#define BP_ARG(op, member, kind, dtype_rule) \
  {kOp_##op, offsetof(bp_##op##_args, member), #member, #kind, #dtype_rule},
#include "backplane/ops.def"
#undef BP_OP
#undef BP_ARG
};

// The sets of dtypes that a rule may name.
constexpr std::string_view kDtypeSets[] = {
#define BP_OP(id, name, since, profile, core_or_decomposable, numerics)
#define BP_ARG(op, member, kind, dtype_rule)
#define BP_DTYPE_SET(name, moves, ...) #name,
#include "backplane/ops.def"
#undef BP_OP
#undef BP_ARG
};

bool is_free(std::string_view rule) {
  return rule.starts_with("set(") || std::ranges::find(kDtypeSets, rule) != std::end(kDtypeSets);
}

// The kinds as in ops.def, in the order of bp_argument_kind.
constexpr const char* kKinds[] = {
    "tensor", "tensor_opt", "tensor_list", "out",           "out_opt",    "out_list",
    "inout",  "inout_list", "operand",     "scalar_tensor", "i32",        "i64",
    "u64",    "f64",        "i64_list",    "dtype",         "enumeration"};

// Returns a + b * c * d, or the largest or smallest number if this overflows. c and d are at least
// 0.
int64_t saturated(int64_t a, int64_t b, int64_t c, int64_t d) {
  int64_t product = 0, sum = 0;
  if (!__builtin_mul_overflow(c, d, &product) && !__builtin_mul_overflow(b, product, &product) &&
      !__builtin_add_overflow(a, product, &sum)) {
    return sum;
  }
  return b < 0 ? INT64_MIN : INT64_MAX;
}

}  // namespace

std::span<const FrameMember> frame_members() { return kMembers; }

std::span<const FrameMember> frame_members(uint32_t op) {
  const auto* const first = std::ranges::find(kMembers, op, &FrameMember::op);
  return {first, std::find_if(first, std::end(kMembers),
                              [&](const FrameMember& member) { return member.op != op; })};
}

std::vector<FrameMember> frame_members(const bp_op_desc& desc) {
  std::vector<FrameMember> members;
  for (uint64_t i = 0; i < desc.argument_count; ++i) {
    const auto& a = *reinterpret_cast<const bp_op_argument*>(
        reinterpret_cast<const std::byte*>(desc.arguments) + i * desc.argument_stride_bytes);
    const std::string_view rule = a.dtype_rule == nullptr ? "none" : a.dtype_rule;
    // Claims do not list a set of one dtype.
    const bool is_fixed = a.dtype_count == 0 && is_free(rule);
    members.push_back({0, a.offset_bytes, a.name, kKinds[a.kind - 1], is_fixed ? "none" : rule});
  }
  return members;
}

const bp_op_desc& described_op(const bp_host& host, uint32_t op) {
  const bp_op_desc* desc = nullptr;
  const bp_status status = host.op_describe(host.self, op, &desc);
  if (status == BP_OK) return *desc;
  throw StatusError(status, "nobody who is loaded describes op " + std::to_string(op) +
                                "; load the backend that describes it");
}

const bp_op_desc& described_op(const bp_host& host, const char* name) {
  uint32_t op = 0;
  const bp_status status = host.op_find(host.self, name, &op);
  if (status == BP_OK) return described_op(host, op);
  throw StatusError(status, "nobody who is loaded describes the op " + std::string(name));
}

const bp_tensor* tensor_argument(uint32_t op, const void* args, uint32_t argument,
                                 const char* call) {
  uint32_t count = 0;
  for (const FrameMember& member : frame_members(op)) {
    if (!member.is_argument() || count++ != argument) continue;
    if (member.is_list()) return nullptr;
    return *reinterpret_cast<const bp_tensor* const*>(static_cast<const std::byte*>(args) +
                                                      member.offset);
  }
  throw StatusError(BP_INVALID_ARGUMENT, std::string(call) + ": argument is " +
                                             std::to_string(argument) + ", " + op_name(op) +
                                             " has " + std::to_string(count) + " tensor arguments");
}

bool FrameMember::is_tensor() const {
  constexpr std::string_view kTensors[] = {"tensor", "tensor_opt", "out",          "out_opt",
                                           "inout",  "operand",    "scalar_tensor"};
  return std::ranges::find(kTensors, kind) != std::end(kTensors);
}

const char* op_name(uint32_t op) {
  const auto* const row = std::ranges::find(kNames, op, &OpName::op);
  return row == std::end(kNames) ? nullptr : row->name;
}

uint32_t frame_size_bytes(uint32_t op) {
  const auto* const row = std::ranges::find(kNames, op, &OpName::op);
  return row == std::end(kNames) ? 0 : row->frame_size_bytes;
}

OwnedFrame::OwnedFrame(uint32_t op, const void* args, uint32_t size_bytes, bool fills_strides)
    : op_(op),
      size_bytes_(size_bytes),
      fills_strides_(fills_strides),
      words_((size_bytes + 7) / 8) {
  if (op_name(op) == nullptr) {
    throw StatusError(BP_UNSUPPORTED, "op " + std::to_string(op) + " is not known to this build");
  }
  std::memcpy(words_.data(), args, size_bytes);
  if (op == 0) {
    own_program();
    return;
  }
  own_members(frame_members(op));
}

OwnedFrame::OwnedFrame(const bp_op_desc& desc, const void* args, uint32_t size_bytes,
                       bool fills_strides)
    : op_(desc.op),
      size_bytes_(size_bytes),
      fills_strides_(fills_strides),
      desc_(&desc),
      words_((size_bytes + 7) / 8) {
  std::memcpy(words_.data(), args, size_bytes);
  own_members(frame_members(desc));
}

OwnedFrame OwnedFrame::copy_of(const void* args, uint32_t size_bytes) const {
  return desc_ == nullptr ? OwnedFrame(op_, args, size_bytes)
                          : OwnedFrame(*desc_, args, size_bytes);
}

std::vector<FrameMember> OwnedFrame::members() const {
  if (desc_ != nullptr) return frame_members(*desc_);
  const std::span<const FrameMember> known = frame_members(op_);
  return {known.begin(), known.end()};
}

bool OwnedFrame::is_op_of(const bp_kernel& kernel) const {
  if (desc_ == nullptr) return kernel.op == op_;
  return kernel.op == 0 && kernel.op_name != nullptr &&
         std::strcmp(kernel.op_name, desc_->name) == 0;
}

void OwnedFrame::invalid(const std::string& text) const {
  throw StatusError(BP_INVALID_ARGUMENT, std::string(name()) + ": " + text);
}

void OwnedFrame::own_members(std::span<const FrameMember> members) {
  uint32_t index = 0;
  for (const FrameMember& member : members) {
    // A member that an older frame lacks was not copied.
    if (member.offset + sizeof(void*) > size_bytes_) continue;
    own_member(member, index);
    if (member.is_argument()) ++index;
  }
}

OwnedFrame OwnedFrame::fitted(uint32_t size_bytes) const {
  std::vector<uint64_t> words((std::max(size_bytes, size_bytes_) + 7) / 8);
  std::memcpy(words.data(), words_.data(), size_bytes_);
  const auto* const bytes = reinterpret_cast<const std::byte*>(words.data());
  for (uint32_t i = size_bytes; i < size_bytes_; ++i) {
    if (bytes[i] == std::byte{0}) continue;
    throw StatusError(BP_INCOMPATIBLE,
                      std::string(name()) + ": byte " + std::to_string(i) +
                          " of the frame is not zero, and the kernel does not know it");
  }
  std::memcpy(words.data(), &size_bytes, sizeof(size_bytes));
  return copy_of(words.data(), size_bytes);
}

bp_tensor* OwnedFrame::own(const bp_tensor* theirs) {
  if (theirs == nullptr) invalid("a tensor of a list is NULL");
  bp_tensor& ours = storage_.emplace_back(*theirs);
  if (ours.ndim > BP_MAX_RANK) {
    invalid("the ndim of a tensor is " + std::to_string(ours.ndim) + "; at most " +
            std::to_string(BP_MAX_RANK) + " is allowed");
  }
  const auto names_extent = [](int64_t entry) { return entry < 0; };
  const bool is_fixed =
      ours.shape != nullptr && std::none_of(ours.shape, ours.shape + ours.ndim, names_extent);
  const bool needs_strides = ours.layout == nullptr && is_fixed && !fills_strides_;
  if (ours.ndim != 0 && (ours.shape == nullptr || (needs_strides && ours.strides == nullptr))) {
    invalid("shape or strides of a tensor are NULL");
  }
  // A copy outlives the links, which are lent to the call.
  if (const bp_status status = bp_links_read(ours.next, nullptr, 0); status != BP_OK) {
    throw StatusError(BP_UNSUPPORTED, std::string(name()) +
                                          ": a tensor has a link that must be understood, or too "
                                          "many links, and a capture or program keeps no links");
  }
  ours.next = nullptr;
  if (ours.ndim == 0) return &ours;
  if (ours.shape != nullptr) {
    ours.shape = numbers_.emplace_back(ours.shape, ours.shape + ours.ndim).data();
  }
  if (ours.strides != nullptr) {
    ours.strides = numbers_.emplace_back(ours.strides, ours.strides + ours.ndim).data();
  } else if (fills_strides_ && is_fixed) {
    ours.strides =
        numbers_.emplace_back(row_major_strides({ours.shape, ours.shape + ours.ndim})).data();
  }
  return &ours;
}

void OwnedFrame::own_program() {
  const auto args = read<bp_program_args>(0);
  std::vector<bp_tensor>& array = arrays_.emplace_back();
  for (uint64_t i = 0; i < args.tensor_count; ++i) array.push_back(*own(&args.tensors[i]));
  for (bp_tensor& tensor : array) tensors_.push_back(&tensor);
  write(offsetof(bp_program_args, tensors), static_cast<const bp_tensor*>(array.data()));
}

void OwnedFrame::own_member(const FrameMember& member, uint32_t index) {
  const size_t offset = member.offset;
  if (member.is_tensor()) {
    const auto* const theirs = read<const bp_tensor*>(offset);
    bp_tensor* const ours = theirs == nullptr ? nullptr : own(theirs);
    add_argument(ours, member, index, true);
    write(offset, ours);
    return;
  }
  if (!member.is_list()) return;
  const auto count = read<uint64_t>(offset - sizeof(uint64_t));
  if (member.is_numbers()) return own_numbers(offset, count);
  const auto* const theirs = read<const bp_tensor* const*>(offset);
  if (theirs == nullptr && count != 0) {
    invalid(std::string(member.name) + " is NULL, and its count is " + std::to_string(count));
  }
  std::vector<bp_tensor*>& list = lists_.emplace_back();
  for (uint64_t i = 0; i < count; ++i) {
    list.push_back(own(theirs[i]));
    add_argument(list.back(), member, index, i == 0);
  }
  write(offset, list.data());
}

void OwnedFrame::own_numbers(size_t offset, uint64_t count) {
  const auto* const theirs = read<const int64_t*>(offset);
  if (theirs != nullptr) write(offset, numbers_.emplace_back(theirs, theirs + count).data());
}

void OwnedFrame::add_argument(bp_tensor* tensor, const FrameMember& member, uint32_t index,
                              bool is_first) {
  size_t x = tensors_.size();
  for (size_t i = 0; i < tensors_.size() && member.kind == "operand"; ++i) {
    if (member.dtype_rule == "like(" + std::string(arguments_[i].name) + ")") x = i;
  }
  tensors_.push_back(tensor);
  arguments_.push_back({.name = member.name,
                        .is_read = member.is_read(),
                        .is_written = member.is_written(),
                        .has_scalar = member.kind == "operand" || member.kind == "scalar_tensor",
                        .has_free_dtype = is_free(member.dtype_rule),
                        .is_first = is_first,
                        .index = index,
                        .x = x});
}

Extent extent_of(const bp_tensor& tensor) {
  if (tensor.layout != nullptr) {
    return {
        0, static_cast<int64_t>(std::min<uint64_t>(tensor.layout->physical_size_bytes, INT64_MAX))};
  }
  Extent extent;
  const int64_t whole_bytes = dtype_size_bytes(tensor.dtype);
  // Packed elements count bits here, and bytes in the end.
  const int64_t size_bytes = whole_bytes == 0 ? dtype_size_bits(tensor.dtype) : whole_bytes;
  extent.end = size_bytes;
  for (uint32_t axis = 0; axis < tensor.ndim; ++axis) {
    if (tensor.shape[axis] == 0) return {};
    const int64_t stride = tensor.strides[axis];
    int64_t& end = stride < 0 ? extent.begin : extent.end;
    end = saturated(end, stride, tensor.shape[axis] - 1, size_bytes);
  }
  if (whole_bytes == 0)
    return {extent.begin / 8 - (extent.begin % 8 != 0), extent.end / 8 + (extent.end % 8 != 0)};
  return extent;
}

Extent extent_in_buffer(const bp_tensor& tensor, uint64_t buffer_bytes, const char* subject) {
  Extent extent = extent_of(tensor);
  const auto offset = static_cast<int64_t>(std::min<uint64_t>(tensor.byte_offset, INT64_MAX));
  extent.begin += offset;  // It was 0 or less.
  if (__builtin_add_overflow(extent.end, offset, &extent.end)) extent.end = INT64_MAX;
  if (extent.begin >= 0 && static_cast<uint64_t>(extent.end) <= buffer_bytes) return extent;
  throw StatusError(BP_INVALID_ARGUMENT, std::string(subject) + ": its elements are bytes " +
                                             std::to_string(extent.begin) + " to " +
                                             std::to_string(extent.end) + " of a buffer of " +
                                             std::to_string(buffer_bytes));
}

}  // namespace bp
