#include "op.h"

#include <cstring>
#include <map>
#include <memory>
#include <mutex>

#include "devices.h"

namespace bpt {
namespace {

const bp_op_argument& argument_of(const bp_op_desc& desc, uint64_t index) {
  const auto* first = reinterpret_cast<const unsigned char*>(desc.arguments);
  return *reinterpret_cast<const bp_op_argument*>(first + index * desc.argument_stride_bytes);
}

template <typename T>
void put(std::vector<unsigned char>& frame, uint32_t offset, T value) {
  std::memcpy(frame.data() + offset, &value, sizeof(value));
}

double number_of(const bp_scalar& scalar) {
  int64_t integer;
  double real;
  std::memcpy(&integer, &scalar.bits, sizeof(integer));
  std::memcpy(&real, &scalar.bits, sizeof(real));
  return scalar.dtype == BP_F64 ? real : static_cast<double>(integer);
}

void put_default(std::vector<unsigned char>& frame, const bp_op_argument& argument) {
  const bp_scalar& value = argument.default_value;
  if (argument.kind == BP_ARGUMENT_ENUM) {
    const uint32_t first = argument.first_value;
    put<uint32_t>(frame, argument.offset_bytes,
                  value.dtype == 0 ? first : static_cast<uint32_t>(number_of(value)));
    return;
  }
  if (value.dtype == 0) return;
  switch (argument.kind) {
    case BP_ARGUMENT_I32:
      return put(frame, argument.offset_bytes, static_cast<int32_t>(number_of(value)));
    case BP_ARGUMENT_I64:
    case BP_ARGUMENT_U64:
      return put(frame, argument.offset_bytes, value.bits);
    case BP_ARGUMENT_F64:
      return put(frame, argument.offset_bytes, number_of(value));
    case BP_ARGUMENT_OPERAND:
    case BP_ARGUMENT_SCALAR_TENSOR:
      return put(frame, argument.offset_bytes + sizeof(void*), value);
    default:
      return;
  }
}

std::unique_ptr<Op> read(const std::string& name) {
  auto op = std::make_unique<Op>();
  op->number = bp_op_from_name(name.c_str());
  if (op->number == 0 || bp_op_describe(op->number, &op->description) != BP_OK) {
    throw Unsupported{"the library has no op " + name};
  }
  const bp_op_desc& desc = *op->description;
  if (desc.frame_size_bytes > kMaxFrameSize) {
    throw Unsupported{"the frame of the op " + name + " is too large"};
  }
  op->frame.resize(desc.frame_size_bytes);
  put<uint32_t>(op->frame, 0, desc.frame_size_bytes);
  for (uint64_t i = 0; i < desc.argument_count; ++i) {
    const bp_op_argument& argument = argument_of(desc, i);
    op->arguments.push_back({argument.name, argument.kind, argument.offset_bytes, &argument});
    if (op->first_out < 0 && argument.kind == BP_ARGUMENT_OUT) op->first_out = static_cast<int>(i);
    put_default(op->frame, argument);
  }
  return op;
}

}  // namespace

int Op::find(std::string_view name) const {
  for (size_t i = 0; i < arguments.size(); ++i) {
    if (arguments[i].name == name) return static_cast<int>(i);
  }
  return -1;
}

int Op::at(std::string_view name) const {
  const int index = find(name);
  if (index < 0) {
    throw Unsupported{"the op " + std::string(description->name) + " has no argument " +
                      std::string(name)};
  }
  return index;
}

const Op& op_named(std::string_view name) {
  static std::mutex mutex;
  static auto* ops = new std::map<std::string, std::unique_ptr<Op>, std::less<>>;
  const std::lock_guard lock(mutex);
  const auto found = ops->find(name);
  if (found != ops->end()) return *found->second;
  std::string text(name);
  auto op = read(text);
  return *ops->emplace(std::move(text), std::move(op)).first->second;
}

}  // namespace bpt
