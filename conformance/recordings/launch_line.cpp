#include "conformance/recordings/launch_line.hpp"

#include <algorithm>
#include <limits>

#include "backplane/host.h"
#include "conformance/json_file.hpp"
#include "conformance/usage_error.hpp"
#include "registry/tensors/strides.hpp"

namespace bp::conformance {
namespace {

using nlohmann::json;

Role role_of(std::string_view kind) {
  if (kind.starts_with("inout")) return Role::kInOut;
  return kind.starts_with("out") ? Role::kOutput : Role::kInput;
}

bp_dtype read_dtype(const json& text) {
  const bp_dtype dtype = text.is_string() ? bp_dtype_from_name(text.get<std::string>().c_str()) : 0;
  if (dtype == 0) throw UsageError("has the dtype " + json_text(text) + ", which is not known");
  return dtype;
}

// Returns whether 64 bits hold the number of elements, and the number of bits from the lowest to
// the highest element.
bool is_countable(const RecordedTensor& tensor) {
  const auto bits = static_cast<int64_t>(bp_dtype_bits(tensor.dtype));
  const bool is_empty = std::ranges::count(tensor.shape, 0) != 0;
  int64_t count = bits, low = 0, high = bits + 7;
  for (size_t axis = 0; axis < tensor.shape.size(); ++axis) {
    const int64_t extent = tensor.shape[axis];
    if (__builtin_mul_overflow(count, std::max<int64_t>(extent, 1), &count)) return false;
    int64_t reach = 0;
    if (is_empty) continue;
    if (__builtin_mul_overflow(extent - 1, tensor.strides[axis], &reach)) return false;
    if (__builtin_mul_overflow(reach, bits, &reach)) return false;
    int64_t& side = reach < 0 ? low : high;
    if (__builtin_add_overflow(side, reach, &side)) return false;
  }
  return true;
}

RecordedTensor read_tensor(const FrameMember& member, const json& value) {
  RecordedTensor tensor{member.name, role_of(member.kind), read_dtype(value.at("dtype")), {}, {}};
  value.at("shape").get_to(tensor.shape);
  value.at("strides").get_to(tensor.strides);
  if (tensor.shape.size() != tensor.strides.size() || tensor.shape.size() > BP_MAX_RANK) {
    throw UsageError("has " + std::to_string(tensor.shape.size()) + " extents and " +
                     std::to_string(tensor.strides.size()) + " strides; up to " +
                     std::to_string(BP_MAX_RANK) + " of each are allowed, and equally many");
  }
  for (const int64_t extent : tensor.shape) {
    if (extent < 0) {
      throw UsageError("has the extent " + std::to_string(extent) + "; allowed: 0 and above");
    }
  }
  if (!is_countable(tensor)) throw UsageError("has more bytes than 64 bits can count");
  if (!value.contains("buffer")) return tensor;
  value.at("buffer").get_to(tensor.buffer);
  value.at("byte_offset").get_to(tensor.byte_offset);
  return tensor;
}

double read_number(const json& value) {
  if (value.is_number()) return value.get<double>();
  const std::string text = value.get<std::string>();
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  if (text == "inf") return kInfinity;
  if (text == "-inf") return -kInfinity;
  if (text == "nan") return std::numeric_limits<double>::quiet_NaN();
  throw UsageError("is '" + text + "'; allowed: a number, or the text inf, -inf or nan");
}

bool is_tensor_kind(std::string_view kind) {
  return kind.starts_with("tensor") || kind.starts_with("out") || kind.starts_with("inout");
}

void read_member(const FrameMember& member, const json& value, RecordedLaunch& launch) {
  if (value.is_array() && is_tensor_kind(member.kind)) {
    for (const json& item : value) launch.tensors.push_back(read_tensor(member, item));
  } else if (value.is_object() && value.contains("scalar")) {
    const bp_scalar scalar{read_dtype(value.at("scalar")), 0, value.at("bits").get<uint64_t>(),
                           value.value("imaginary_bits", uint64_t{0})};
    launch.attributes.push_back({member.name, scalar});
  } else if (member.has_scalar() || is_tensor_kind(member.kind)) {
    launch.tensors.push_back(read_tensor(member, value));
  } else if (member.kind == "i64_list") {
    launch.attributes.push_back({member.name, value.get<Shape>()});
  } else if (member.kind == "f64") {
    launch.attributes.push_back({member.name, read_number(value)});
  } else if (member.kind == "dtype") {
    launch.attributes.push_back({member.name, int64_t{read_dtype(value)}});
  } else {
    launch.attributes.push_back({member.name, value.get<int64_t>()});
  }
}

}  // namespace

std::string RecordedLaunch::op_name() const { return bp_op_name(op); }

std::string RecordedLaunch::words() const {
  return "launch " + std::to_string(number) + " (" + op_name() + ")";
}

RecordedLaunch read_launch(const json& line) {
  RecordedLaunch launch;
  launch.op = bp_op_from_name(line.at("op").get<std::string>().c_str());
  line.at("launch").get_to(launch.number);
  line.at("kernel").get_to(launch.kernel);
  line.at("flags").get_to(launch.flags);
  const OpInfo& info = op_info(launch.op);
  const json& args = line.at("args");
  size_t known = 0;
  for (const FrameMember& member : info.members) {
    const auto value = args.find(std::string(member.name));
    if (value == args.end()) continue;
    ++known;
    const std::string where = launch.words() + ": '" + std::string(member.name) + "' ";
    try {
      read_member(member, *value, launch);
    } catch (const UsageError& e) {
      throw UsageError(where + e.what());
    } catch (const json::exception& e) {
      throw UsageError(where + "cannot be read: " + e.what());
    }
  }
  if (known == args.size()) return launch;
  for (const auto& [name, value] : args.items()) {
    bool is_member = false;
    for (const FrameMember& member : info.members) is_member = is_member || member.name == name;
    if (!is_member) throw UsageError(launch.words() + " has no argument '" + name + "'");
  }
  return launch;
}

ByteSpan span_of(const RecordedTensor& tensor) {
  const tensors::Reach reach = tensors::reach_of(static_cast<uint32_t>(tensor.shape.size()),
                                                 tensor.shape.data(), tensor.strides.data());
  if (reach.span() == 0) return {};
  const auto bits = static_cast<int64_t>(bp_dtype_bits(tensor.dtype));
  return {tensor.byte_offset - static_cast<uint64_t>((7 - reach.lowest * bits) / 8),
          tensor.byte_offset + static_cast<uint64_t>(((reach.highest + 1) * bits + 7) / 8)};
}

}  // namespace bp::conformance
