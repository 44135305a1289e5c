#include "conformance/cases/engine/op_frame.hpp"

#include <algorithm>
#include <cstring>
#include <stdexcept>

namespace bp::conformance {
namespace {

std::vector<OpInfo> read_ops() {
  std::vector<OpInfo> ops;
#define BP_OP(id, name, since, profile, kind, numerics)     \
  ops.push_back({id,                                        \
                 #name,                                     \
                 #profile,                                  \
                 std::string_view(#kind) == "decomposable", \
                 #numerics,                                 \
                 sizeof(bp_##name##_args),                  \
                 {}});
#define BP_ARG(op, member, kind, dtype) \
  ops.back().members.push_back({#member, #kind, #dtype, offsetof(bp_##op##_args, member)});
#include "backplane/ops.def"
#undef BP_OP
#undef BP_ARG
  return ops;
}

}  // namespace

const FrameMember& OpInfo::member(std::string_view member_name) const {
  const auto found = std::ranges::find(members, member_name, &FrameMember::name);
  if (found != members.end()) return *found;
  throw std::invalid_argument(std::string(name) + " has no argument '" + std::string(member_name) +
                              "'");
}

const std::vector<OpInfo>& all_ops() {
  static const std::vector<OpInfo> ops = read_ops();
  return ops;
}

const OpInfo& op_info(uint32_t op) {
  static const std::vector<const OpInfo*> by_id = [] {
    std::vector<const OpInfo*> table;
    for (const OpInfo& info : all_ops()) {
      if (info.id >= table.size()) table.resize(info.id + 1);
      table[info.id] = &info;
    }
    return table;
  }();
  if (op < by_id.size() && by_id[op] != nullptr) return *by_id[op];
  throw std::out_of_range("no op " + std::to_string(op));
}

Frame::Frame(uint32_t op) : info_(&op_info(op)), words_((info_->frame_size_bytes + 7) / 8) {
  write(0, static_cast<uint32_t>(info_->frame_size_bytes));
}

template <typename T>
void Frame::write(size_t offset, const T& value) {
  std::memcpy(reinterpret_cast<std::byte*>(words_.data()) + offset, &value, sizeof(T));
}

// A list is its count, followed by the pointer that ops.def names.
void Frame::write_list(const FrameMember& member, const void* values, uint64_t count) {
  write(member.offset - sizeof(uint64_t), count);
  write(member.offset, values);
}

void Frame::set_tensor(std::string_view name, const bp_tensor* tensor) {
  write(info_->member(name).offset, tensor);
}

void Frame::add_tensor(std::string_view name, const bp_tensor* tensor) {
  auto list = std::ranges::find(lists_, name, &TensorList::name);
  if (list == lists_.end()) list = lists_.insert(list, {info_->member(name).name, {}});
  list->tensors.push_back(tensor);
  for (const TensorList& each : lists_) {
    write_list(info_->member(each.name), each.tensors.data(), each.tensors.size());
  }
}

// A member with an inline value is the pointer, followed by the scalar.
void Frame::set_scalar(std::string_view name, const bp_scalar& scalar) {
  const FrameMember& member = info_->member(name);
  if (!member.has_scalar()) throw std::invalid_argument(std::string(name) + " takes no scalar");
  write(member.offset, static_cast<const bp_tensor*>(nullptr));
  write(member.offset + sizeof(void*), scalar);
}

void Frame::set_integer(std::string_view name, int64_t value) {
  const FrameMember& member = info_->member(name);
  if (member.kind == "i64") {
    write(member.offset, value);
  } else {
    write(member.offset, static_cast<int32_t>(value));
  }
}

void Frame::set_number(std::string_view name, double value) {
  write(info_->member(name).offset, value);
}

void Frame::set_list(std::string_view name, const std::vector<int64_t>& values) {
  set_list(name, values.data(), values.size());
}

void Frame::set_list(std::string_view name, const int64_t* values, uint64_t count) {
  write_list(info_->member(name), values, count);
}

std::vector<uint64_t> Frame::fitted(uint32_t size_bytes) const {
  std::vector<uint64_t> words((std::max<size_t>(size_bytes, info_->frame_size_bytes) + 7) / 8);
  std::memcpy(words.data(), words_.data(), info_->frame_size_bytes);
  std::memcpy(words.data(), &size_bytes, sizeof(size_bytes));
  return words;
}

}  // namespace bp::conformance
