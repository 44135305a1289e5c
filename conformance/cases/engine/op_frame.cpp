#include "conformance/cases/engine/op_frame.hpp"

#include <algorithm>
#include <cstring>
#include <map>
#include <mutex>
#include <stdexcept>

#include "backplane/host.h"

namespace bp::conformance {
namespace {

constexpr uint32_t kFirstRuntimeOp = 1u << 16;  // Numbers from here on are handed out at run time.

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
#define BP_MAY_BE_ABSENT(op, member) \
  std::ranges::find(ops.back().members, #member, &FrameMember::name)->may_be_absent = true;
#include "backplane/ops.def"
#undef BP_OP
#undef BP_ARG
  return ops;
}

// The kinds as in ops.def, in the order of bp_argument_kind.
constexpr const char* kKinds[] = {
    "tensor", "tensor_opt", "tensor_list", "out",           "out_opt",    "out_list",
    "inout",  "inout_list", "operand",     "scalar_tensor", "i32",        "i64",
    "u64",    "f64",        "i64_list",    "dtype",         "enumeration"};

OpInfo read_op(const bp_op_desc& desc) {
  OpInfo info{desc.op,
              desc.name,
              "",
              desc.decomposition != nullptr,
              desc.numerics == nullptr ? "" : desc.numerics,
              desc.frame_size_bytes,
              {}};
  for (uint64_t i = 0; i < desc.argument_count; ++i) {
    const bp_op_argument& a = desc.arguments[i];
    info.members.push_back({a.name, kKinds[a.kind - 1],
                            a.dtype_rule == nullptr ? "none" : a.dtype_rule, a.offset_bytes});
  }
  return info;
}

// Returns an op that was described at run time. Its description is never freed, and a longer one
// is another.
const OpInfo& runtime_op_info(uint32_t op) {
  static std::mutex mutex;
  static std::map<const bp_op_desc*, OpInfo> infos;
  const bp_op_desc* desc = nullptr;
  if (bp_op_describe(op, &desc) != BP_OK) throw std::out_of_range(bp_error_text());
  const std::lock_guard lock(mutex);
  const auto found = infos.find(desc);
  return found != infos.end() ? found->second : infos.emplace(desc, read_op(*desc)).first->second;
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
  if (op >= kFirstRuntimeOp) return runtime_op_info(op);
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
