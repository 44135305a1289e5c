#include "registry/layers/record_frame.hpp"

#include <cmath>
#include <cstring>

#include "backplane/host.h"
#include "registry/calls/frame_words.hpp"

namespace bp::layers {
namespace {

using core::FrameMember;
using core::Kind;
using NumberOf = std::function<uint64_t(const bp_buffer*)>;

template <typename T>
T value_at(const void* args, uint32_t offset) {
  T value;
  // NOLINTNEXTLINE(bugprone-sizeof-expression): T may be a pointer.
  std::memcpy(&value, core::member(args, offset), sizeof(value));
  return value;
}

Json dtype_json(bp_dtype dtype) {
  const char* name = bp_dtype_name(dtype);
  return name == nullptr ? Json(dtype) : Json(name);
}

Json tensor_json(const bp_tensor* t, const NumberOf& number_of) {
  if (t == nullptr) return nullptr;
  Json json = {{"dtype", dtype_json(t->dtype)},
               {"shape", std::vector<int64_t>(t->shape, t->shape + t->ndim)},
               {"strides", std::vector<int64_t>(t->strides, t->strides + t->ndim)}};
  if (t->buffer != nullptr) {
    json["buffer"] = number_of(t->buffer);
    json["byte_offset"] = t->byte_offset;
  }
  return json;
}

// JSON has no numbers that are not finite.
Json number_json(double value) {
  if (std::isfinite(value)) return value;
  return std::isnan(value) ? "nan" : value < 0 ? "-inf" : "inf";
}

Json list_json(const void* args, uint32_t offset, const NumberOf& number_of) {
  const auto count = value_at<uint64_t>(args, offset - 8);
  const auto* const items = value_at<const bp_tensor* const*>(args, offset);
  Json json = Json::array();
  for (uint64_t i = 0; i < count; ++i) json.push_back(tensor_json(items[i], number_of));
  return json;
}

Json operand_json(const void* args, uint32_t offset, const NumberOf& number_of) {
  const auto* const tensor = value_at<const bp_tensor*>(args, offset);
  if (tensor != nullptr) return tensor_json(tensor, number_of);
  const auto scalar = value_at<bp_scalar>(args, offset + sizeof(void*));
  if (scalar.dtype == 0) return nullptr;
  Json json = {{"scalar", dtype_json(scalar.dtype)}, {"bits", scalar.bits}};
  if (scalar.dtype == BP_C128) json["imaginary_bits"] = scalar.imaginary_bits;
  return json;
}

Json member_json(const FrameMember& m, const void* args, const NumberOf& number_of) {
  switch (m.kind) {
    case Kind::tensor_list:
    case Kind::out_list:
    case Kind::inout_list:
      return list_json(args, m.offset, number_of);
    case Kind::operand:
    case Kind::scalar_tensor:
      return operand_json(args, m.offset, number_of);
    case Kind::i64_list: {
      const auto* const values = value_at<const int64_t*>(args, m.offset);
      return std::vector<int64_t>(values, values + value_at<uint64_t>(args, m.offset - 8));
    }
    case Kind::dtype:
      return dtype_json(value_at<bp_dtype>(args, m.offset));
    case Kind::i32:
    case Kind::enumeration:
      return value_at<int32_t>(args, m.offset);
    case Kind::i64:
      return value_at<int64_t>(args, m.offset);
    case Kind::u64:
      return value_at<uint64_t>(args, m.offset);
    case Kind::f64:
      return number_json(value_at<double>(args, m.offset));
    default:
      return tensor_json(value_at<const bp_tensor*>(args, m.offset), number_of);
  }
}

// Returns whether a member that a later revision appended is absent, which is zero. A replay of an
// older build does not know its name.
bool is_absent(const core::OpRow& row, const FrameMember& m, const Json& value) {
  if (core::first_byte(m) < row.first_size_bytes()) return false;
  if (value.is_number_float()) return value == 0.0 && !std::signbit(value.get<double>());
  return value.is_array() ? value.empty() : value.is_number() && value == 0;
}

}  // namespace

std::vector<FrameTensor> frame_tensors(const core::OpRow& row, const void* args) {
  std::vector<FrameTensor> tensors;
  uint32_t number = 0;
  for (uint32_t i = 0; i < row.tensor_count; ++i) {
    const core::TensorArgument& a = row.tensors[i];
    if (!core::has_member(args, a.offset)) break;
    const bool is_changed = a.kind == Kind::inout || a.kind == Kind::inout_list;
    const bool is_written = a.is_output() || a.kind == Kind::out_list || is_changed;
    const bool is_read = !is_written || is_changed;
    if (!a.is_list()) {
      const bp_tensor* tensor = core::tensor_at(args, a);
      if (tensor != nullptr) tensors.push_back({a.name, tensor, is_written, is_read, i, number});
      ++number;
      continue;
    }
    const core::TensorList list = core::list_at(args, a);
    for (uint64_t n = 0; list.items != nullptr && n < list.count; ++n) {
      tensors.push_back({std::string(a.name) + "[" + std::to_string(n) + "]", list.items[n],
                         is_written, is_read, i, number++});
    }
  }
  return tensors;
}

Json frame_json(const core::OpRow& row, const void* args, const NumberOf& number_of) {
  Json json = Json::object();
  for (const FrameMember& m : core::frame_members(row)) {
    if (!core::has_member(args, m.offset)) break;
    Json value = member_json(m, args, number_of);
    if (!value.is_null() && !is_absent(row, m, value)) json[m.name] = std::move(value);
  }
  return json;
}

}  // namespace bp::layers
