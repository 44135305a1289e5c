// The frames of nodes in programs whose launches decide extents.
#include <algorithm>
#include <string>

#include "backplane/shell/boundary.hpp"
#include "backplane/shell/frame.hpp"
#include "backplane/shell/program_extents.hpp"
#include "backplane/shell/shape.hpp"

namespace bp {
namespace {

[[noreturn]] void refuse(const std::string& text) { throw StatusError(BP_INVALID_ARGUMENT, text); }

bool is_integer(const FrameMember& member) {
  return member.kind == "i32" || member.kind == "i64" || member.kind == "u64" ||
         member.is_numbers();
}

}  // namespace

bool OwnedFrame::names_extents() const {
  return std::ranges::any_of(tensors_, [](const bp_tensor* tensor) {
    return tensor != nullptr && std::any_of(tensor->shape, tensor->shape + tensor->ndim,
                                            [](int64_t entry) { return entry < 0; });
  });
}

OwnedFrame OwnedFrame::at(std::span<const int64_t> numbers) const {
  const ExtentNumbers all(numbers.begin(), numbers.end());
  OwnedFrame frame = clone();
  for (bp_tensor* const tensor : frame.tensors_) {
    if (tensor == nullptr || tensor->ndim == 0) continue;
    std::vector<int64_t>& shape = frame.numbers_.emplace_back();
    for (uint32_t axis = 0; axis < tensor->ndim; ++axis) {
      shape.push_back(number_of(tensor->shape[axis], all));
    }
    tensor->shape = shape.data();
    if (tensor->strides == nullptr) {
      tensor->strides = frame.numbers_.emplace_back(row_major_strides(shape)).data();
    }
  }
  return frame;
}

// Returns the member with an integer attribute at `offset`, if there is one.
std::optional<FrameMember> OwnedFrame::integer_at(uint32_t offset) const {
  const std::vector<FrameMember> all = members();
  const auto found = std::ranges::find(all, size_t{offset}, &FrameMember::offset);
  const bool is_there = found != all.end() && is_integer(*found) &&
                        found->offset + (found->kind == "i32" ? 4 : 8) <= size_bytes_;
  return is_there ? std::optional(*found) : std::nullopt;
}

void OwnedFrame::check_binding(const bp_extent_binding& binding, const std::string& subject) const {
  const std::optional<FrameMember> member = integer_at(binding.member_offset);
  if (!member) {
    refuse(subject + "no integer attribute of " + name() + " is at byte " +
           std::to_string(binding.member_offset));
  }
  uint64_t count = 1;
  if (member->is_numbers()) {
    const bool is_given = read<const int64_t*>(member->offset) != nullptr;
    count = is_given ? read<uint64_t>(member->offset - sizeof(uint64_t)) : 0;
  }
  if (binding.element < count) return;
  refuse(subject + member->name + " has " + std::to_string(count) + " elements, and element is " +
         std::to_string(binding.element));
}

void OwnedFrame::bind(const bp_extent_binding& binding, int64_t number,
                      const std::string& subject) {
  const FrameMember member = *integer_at(binding.member_offset);
  if (member.is_numbers()) {
    const auto* const old = read<const int64_t*>(member.offset);
    const auto count = read<uint64_t>(member.offset - sizeof(uint64_t));
    std::vector<int64_t>& list = numbers_.emplace_back(old, old + count);
    list[binding.element] = number;
    write(member.offset, static_cast<const int64_t*>(list.data()));
  } else if (member.kind != "i32") {
    write(member.offset, number);
  } else if (number <= INT32_MAX) {
    write(member.offset, static_cast<int32_t>(number));
  } else {
    refuse(subject + member.name + " holds at most " + std::to_string(INT32_MAX) + ", and extent " +
           std::to_string(binding.extent) + " is " + std::to_string(number));
  }
}

}  // namespace bp
