#include <cstddef>
#include <cstring>
#include <string>

#include "backplane/shell/frame.hpp"
#include "backplane/shell/workspace.hpp"
#include "kernels/kernels.hpp"

namespace acme_opencl {
namespace {

template <typename T>
T value_at(const void* args, size_t offset) {
  T value;
  // NOLINTNEXTLINE(bugprone-sizeof-expression): T may be a pointer.
  std::memcpy(&value, static_cast<const std::byte*>(args) + offset, sizeof(value));
  return value;
}

}  // namespace

Launch::Launch(const Instance& instance, const bp_kernel& kernel, const bp_launch& launch,
               const void* args)
    : Env(*stream_of(launch.stream, "launch").device),
      instance_(instance),
      launch_(launch),
      stream_(stream_of(launch.stream, "launch")) {
  for (const bp::FrameMember& member : bp::frame_members(kernel.op)) {
    if (!member.is_argument()) continue;
    if (!member.is_list()) {
      add_tensor(value_at<const bp_tensor*>(args, member.offset), member.name, member.is_written());
      continue;
    }
    const auto count = value_at<uint64_t>(args, member.offset - sizeof(uint64_t));
    const auto* const list = value_at<const bp_tensor* const*>(args, member.offset);
    for (uint64_t k = 0; k < count; ++k) add_tensor(list[k], member.name, member.is_written());
  }
  add_workspace(launch.workspace);
}

void Launch::add_tensor(const bp_tensor* t, const char* name, bool is_written) {
  if (t == nullptr || bp::element_count(*t) == 0) return;
  const std::string what = std::string("argument ") + name;
  if (t->layout != nullptr) {
    bp::refuse(BP_UNSUPPORTED, "launch: " + what + " has a layout of its own; strides are allowed");
  }
  const Buffer& b = bp::live_buffer_of<Buffer>(t->buffer, "launch", what.c_str());
  if (!MemoryTraits::is_local(stream_, b)) bp::refuse_two_devices("launch", what);
  const bp::Extent extent = bp::extent_in_buffer(*t, b.size_bytes, ("launch: " + what).c_str());
  uses_.push_back({{b.memory(), static_cast<uint64_t>(extent.begin)},
                   static_cast<uint64_t>(extent.end - extent.begin),
                   is_written});
}

void Launch::add_workspace(const bp_buffer_ref& workspace) {
  if (workspace.buffer == nullptr) return;
  const Range range =
      bp::checked_range<Buffer>(&workspace, "launch", "workspace", BP_ACCESS_READ_WRITE);
  if (!MemoryTraits::is_local(stream_, range.buffer)) {
    bp::refuse_two_devices("launch", "workspace");
  }
  // A result is the last use, so that it is the one that an ordered corruption changes.
  uses_.insert(uses_.begin(), use_of(range, true));
}

Place Launch::place(const bp_tensor& t) {
  if (t.buffer == nullptr) return {};
  const Buffer& b = bp::live_buffer_of<Buffer>(t.buffer, "launch", "an argument");
  return {b.memory(), t.byte_offset};
}

Place Launch::workspace() const {
  if (launch_.workspace.buffer == nullptr) return {};
  const Buffer& b = bp::live_buffer_of<Buffer>(launch_.workspace.buffer, "launch", "workspace");
  return {b.memory(), launch_.workspace.byte_offset};
}

}  // namespace acme_opencl
