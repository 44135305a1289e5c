#include "ops_spec/checks.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstring>
#include <new>
#include <string>
#include <vector>

#include "ops_spec/overlap.hpp"
#include "registry/fail.hpp"

namespace bp::ops {
namespace {

// Calls text() for the sentence. Out of memory loses the text, never the status.
template <typename Text>
bp_status refuse(const Text& text) noexcept {
  try {
    return fail(BP_INVALID_ARGUMENT, text());
  } catch (const std::bad_alloc&) {
    return BP_INVALID_ARGUMENT;
  }
}

std::string to_text(int64_t value) { return std::to_string(value); }

std::string to_text(double value) {
  std::array<char, 32> digits;
  const auto end = std::to_chars(digits.data(), digits.data() + digits.size(), value).ptr;
  return std::string(digits.data(), end);
}

// "(2, 3)"
std::string to_text(dims::View list) {
  std::string text = "(";
  for (const int64_t value : list) {
    if (text.size() > 1) text += ", ";
    text += std::to_string(value);
  }
  return text + ")";
}

std::string dtype_text(bp_dtype dtype) {
  const char* name = bp_dtype_name(dtype);
  return name != nullptr ? name : "the unknown dtype " + std::to_string(dtype);
}

std::string dtypes_text(uint32_t set) {
  std::string text;
  for (bp_dtype dtype = 1; dtype < 32; ++dtype) {
    if (is_in(dtype, set)) text += (text.empty() ? "" : ", ") + dtype_text(dtype);
  }
  return text;
}

// "softmax: axis", "sum: axes[1]"
std::string head(const Row& row, uint32_t index, int64_t item = kNoItem) {
  std::string text = std::string(row.name) + ": " + row.arguments[index].name;
  if (item != kNoItem) text += "[" + std::to_string(item) + "]";
  return text;
}

template <typename T>
T member(const void* frame, uint32_t offset) {
  T value;
  std::memcpy(&value, static_cast<const char*>(frame) + offset, sizeof(value));
  return value;
}

// The tensors that stand for an argument: one, those of a list, or none.
struct Tensors {
  const bp_tensor* single;
  const bp_tensor* const* items;
  uint64_t count;
  bool is_list;
  const bp_tensor* operator[](uint64_t i) const { return is_list ? items[i] : single; }
};

Tensors tensors_of(const Argument& argument, const void* frame) {
  switch (argument.kind) {
    case Kind::tensor_list:
    case Kind::out_list:
    case Kind::inout_list:
      return {nullptr, member<const bp_tensor* const*>(frame, argument.offset),
              member<uint64_t>(frame, argument.offset - 8u), true};
    case Kind::tensor:
    case Kind::tensor_opt:
    case Kind::out:
    case Kind::out_opt:
    case Kind::inout:
    case Kind::operand:
    case Kind::scalar_tensor: {
      const auto* single = member<const bp_tensor*>(frame, argument.offset);
      return {single, nullptr, single != nullptr ? 1u : 0u, false};
    }
    default:
      return {nullptr, nullptr, 0, false};
  }
}

bool is_output(Kind kind) {
  return kind == Kind::out || kind == Kind::out_opt || kind == Kind::out_list;
}

bool is_written(Kind kind) {
  return is_output(kind) || kind == Kind::inout || kind == Kind::inout_list;
}

// "x is (2, 3)", "stride is (1)", "groups is 2"
std::string value_text(const Argument& argument, const void* frame) {
  const std::string name = argument.name;
  switch (argument.kind) {
    case Kind::i32:
      return name + " is " + to_text(int64_t{member<int32_t>(frame, argument.offset)});
    case Kind::i64:
      return name + " is " + to_text(member<int64_t>(frame, argument.offset));
    case Kind::u64:
      return name + " is " + std::to_string(member<uint64_t>(frame, argument.offset));
    case Kind::f64:
      return name + " is " + to_text(member<double>(frame, argument.offset));
    case Kind::i64_list:
      return name + " is " +
             to_text(dims::list(member<const int64_t*>(frame, argument.offset),
                                member<uint64_t>(frame, argument.offset - 8u)));
    case Kind::dtype:
      return name + " is " + dtype_text(member<bp_dtype>(frame, argument.offset));
    case Kind::enumeration:
      return name + " is " + std::to_string(member<uint32_t>(frame, argument.offset));
    default:
      break;
  }
  const Tensors tensors = tensors_of(argument, frame);
  if (tensors.is_list) return name + " has " + std::to_string(tensors.count) + " tensors";
  return tensors.single == nullptr ? name + " is not given"
                                   : name + " is " + to_text(dims::shape(*tensors.single));
}

std::string values_text(const Row& row, const void* frame, uint32_t names) {
  std::string text;
  for (uint32_t i = 0; i < row.argument_count; ++i) {
    if ((names >> i & 1u) == 0 || is_output(row.arguments[i].kind)) continue;
    text += (text.empty() ? "" : ", ") + value_text(row.arguments[i], frame);
  }
  return text;
}

template <typename T>
bp_status bad_bound_of(const Row& row, uint32_t index, int64_t item, T given, const T* low,
                       const T* high, const char* less) {
  return refuse([&] {
    const std::string name = head(row, index, item);
    std::string text = name + " is " + to_text(given) + "; allowed: ";
    if (low != nullptr) text += to_text(*low) + " <= ";
    text += name.substr(std::strlen(row.name) + 2);
    if (high != nullptr) text += std::string(" ") + less + " " + to_text(*high);
    return text;
  });
}

}  // namespace

bp_status bad_tensor(const Row& row, uint32_t index, int64_t item, const bp_tensor* tensor) {
  return refuse([&] {
    const std::string name = head(row, index, item);
    if (tensor == nullptr) return name + " is NULL; allowed: a tensor";
    if (tensor->ndim > BP_MAX_RANK) {
      return name + " has " + std::to_string(tensor->ndim) + " axes; allowed: at most " +
             std::to_string(BP_MAX_RANK);
    }
    if (tensor->flags != 0) {
      return name + " has the flags " + std::to_string(tensor->flags) + "; allowed: 0";
    }
    if (tensor->shape == nullptr) return name + " has no shape; allowed: one entry per axis";
    if (tensor->strides == nullptr) return name + " has no strides; allowed: one entry per axis";
    return name + " has shape " + to_text(dims::shape(*tensor)) +
           "; allowed: extents of at least 0, and fewer than 2^58 elements";
  });
}

bp_status bad_dtype(const Row& row, uint32_t index, int64_t item, bp_dtype given,
                    uint32_t allowed) {
  return refuse([&] {
    const std::string name = head(row, index, item);
    return (given == 0 ? name + " has no dtype" : name + " is " + dtype_text(given)) +
           "; allowed: " + dtypes_text(allowed);
  });
}

bp_status bad_scalar(const Row& row, uint32_t index, const bp_scalar& given, bp_dtype target) {
  return refuse([&] {
    if (given.dtype == BP_BOOL) {
      return head(row, index) + " is a bool of value " + std::to_string(given.bits) +
             "; allowed: 0 or 1";
    }
    return head(row, index) + " is NULL, and the value beside it is " + dtype_text(given.dtype) +
           "; allowed: " + (is_integer(target) ? "bool, i64 or u64" : "bool, i64, u64 or f64") +
           " for " + dtype_text(target);
  });
}

bp_status bad_element_count(const Row& row, uint32_t index, const bp_tensor& given) {
  return refuse([&] {
    return head(row, index) + " has shape " + to_text(dims::shape(given)) +
           "; allowed: one element";
  });
}

bp_status bad_list(const Row& row, uint32_t index, uint64_t count) {
  return refuse([&] {
    return head(row, index) + " is NULL; allowed: " + std::to_string(count) +
           " entries, as its count says";
  });
}

bp_status bad_count(const Row& row, uint32_t index, uint64_t given, int64_t allowed,
                    const char* expression, bool may_be_empty) {
  return refuse([&] {
    return head(row, index) + " has " + std::to_string(given) +
           " entries; allowed: " + to_text(allowed) + ", which is " + expression +
           (may_be_empty ? ", or none" : "");
  });
}

bp_status bad_rank(const Row& row, uint32_t index, int64_t item, int64_t given, int64_t low,
                   int64_t high, const char* expression) {
  return refuse([&] {
    std::string text = head(row, index, item) + " has " + to_text(given) +
                       (given == 1 ? " axis; allowed: " : " axes; allowed: ") + to_text(low);
    if (low != high) text += " to " + to_text(high);
    if (expression != nullptr) text += std::string(", which is ") + expression;
    return text;
  });
}

bp_status bad_shape(const Row& row, uint32_t index, int64_t item, dims::View given,
                    dims::View allowed, const char* expression) {
  return refuse([&] {
    return head(row, index, item) + " has shape " + to_text(given) + "; allowed: " +
           (allowed.exists() ? to_text(allowed) + ", which is " + expression
                             : std::string(expression) + ", which does not exist here");
  });
}

bp_status bad_bound(const Row& row, uint32_t index, int64_t item, int64_t given, const int64_t* low,
                    const int64_t* high, const char* less) {
  return bad_bound_of(row, index, item, given, low, high, less);
}

bp_status bad_bound(const Row& row, uint32_t index, int64_t item, double given, const double* low,
                    const double* high, const char* less) {
  return bad_bound_of(row, index, item, given, low, high, less);
}

bp_status bad_enumeration(const Row& row, uint32_t index, uint32_t given) {
  return refuse([&] {
    return head(row, index) + " is " + std::to_string(given) +
           "; allowed, from 1: " + row.arguments[index].values;
  });
}

bp_status bad_duplicate(const Row& row, uint32_t index, dims::View given) {
  return refuse(
      [&] { return head(row, index) + " is " + to_text(given) + "; allowed: no value twice"; });
}

bp_status bad_output(const Row& row, uint32_t index, const void* frame, const char* expression,
                     uint32_t names) {
  return refuse([&] {
    return head(row, index) + " has the shape " + expression + ", which does not exist where " +
           values_text(row, frame, names);
  });
}

bp_status bad_rule(const Row& row, const void* frame, const char* rule, const char* says,
                   uint32_t names) {
  return refuse([&] {
    const std::string why = *says == '\0' ? "" : std::string(" (") + says + ")";
    return std::string(row.name) + ": " + values_text(row, frame, names) + "; allowed: " + rule +
           why;
  });
}

namespace {

// One tensor of a frame that memory is compared for.
struct Use {
  const bp_tensor* tensor;
  ByteRange range;
  uint32_t index;
  bool written;
};

bool may_share(const Row& row, const Use& a, const Use& b) {
  const auto allows = [&row](const Use& out, const Use& in) {
    return is_output(row.arguments[out.index].kind) && !in.written &&
           (row.arguments[out.index].aliases >> in.index & 1u) != 0;
  };
  return (allows(a, b) || allows(b, a)) && is_same_memory(*a.tensor, *b.tensor);
}

bp_status bad_overlap(const Row& row, const Use& a, const Use& b) {
  const Use& out = a.written ? a : b;
  const Use& other = a.written ? b : a;
  return refuse([&] {
    const bool may = (row.arguments[out.index].aliases >> other.index & 1u) != 0;
    return head(row, out.index) + " overlaps the memory of " + row.arguments[other.index].name +
           "; allowed: " + (may ? "all of it or none" : "memory of its own");
  });
}

// Sorted by where they begin, only neighbours can meet: lists of a thousand parameters stay cheap.
bp_status check_memory(const Row& row, std::vector<Use>& uses) {
  std::sort(uses.begin(), uses.end(), [](const Use& a, const Use& b) {
    const std::less<const bp_buffer*> before;
    if (a.tensor->buffer != b.tensor->buffer) return before(a.tensor->buffer, b.tensor->buffer);
    return a.range.begin < b.range.begin;
  });
  for (size_t i = 0; i < uses.size(); ++i) {
    for (size_t j = i + 1; j < uses.size(); ++j) {
      const Use& a = uses[i];
      const Use& b = uses[j];
      if (a.tensor->buffer != b.tensor->buffer || b.range.begin >= a.range.end) break;
      if (!a.written && !b.written) continue;
      if (overlap(*a.tensor, *b.tensor) && !may_share(row, a, b)) return bad_overlap(row, a, b);
    }
  }
  return BP_OK;
}

bp_status check_memory(const Row& row, const void* frame) try {
  std::vector<Use> uses;
  for (uint32_t i = 0; i < row.argument_count; ++i) {
    const bool written = is_written(row.arguments[i].kind);
    const Tensors tensors = tensors_of(row.arguments[i], frame);
    for (uint64_t item = 0; item < tensors.count; ++item) {
      const bp_tensor* tensor = tensors[item];
      if (written && overlaps_itself(*tensor)) {
        return refuse([&] {
          return head(row, i, tensors.is_list ? static_cast<int64_t>(item) : kNoItem) +
                 " overlaps itself; allowed: strides that give each element a place of its own";
        });
      }
      const ByteRange range = byte_range(*tensor);
      if (tensor->buffer == nullptr || range.begin == range.end) continue;
      uses.push_back({tensor, range, i, written});
    }
  }
  return check_memory(row, uses);
} catch (const std::bad_alloc&) {
  return fail(BP_OUT_OF_MEMORY, "bp_op_check: no memory to compare the tensors");
}

bp_status check_outputs(const Row& row, const void* frame, const bp_op_output* expected) {
  for (uint32_t i = 0, next = 0; i < row.argument_count; ++i) {
    const Kind kind = row.arguments[i].kind;
    if (kind != Kind::out && kind != Kind::out_opt) continue;
    const bp_op_output& output = expected[next++];
    const auto* tensor = member<const bp_tensor*>(frame, row.arguments[i].offset);
    if (tensor == nullptr && kind == Kind::out_opt) continue;
    if (!is_sound(tensor)) return bad_tensor(row, i, kNoItem, tensor);
    if (tensor->dtype != output.dtype) {
      return bad_dtype(row, i, kNoItem, tensor->dtype, 1u << output.dtype);
    }
    if (!(dims::shape(*tensor) == shape(output))) {
      return bad_shape(row, i, kNoItem, dims::shape(*tensor), shape(output),
                       "what follows from the arguments");
    }
  }
  return BP_OK;
}

// A frame of this build: `args` itself, or a copy of the frame of an older or newer build.
struct Frame {
  const Row* row = nullptr;
  const void* args = nullptr;
  alignas(8) std::array<unsigned char, kMaxFrameBytes> copy;
};

bp_status read_frame(uint32_t op, const void* args, Frame& frame) {
  frame.row = find_row(op);
  if (frame.row == nullptr) {
    return refuse([op] { return "there is no op " + std::to_string(op); });
  }
  if (args == nullptr) {
    return refuse([&frame] { return std::string(frame.row->name) + ": the frame is NULL"; });
  }
  frame.args = args;
  const uint32_t ours = frame.row->frame_bytes;
  if (member<uint32_t>(args, 0) != ours) {
    uint32_t offset = 0;
    if (bp_struct_read(args, ours, frame.copy.data(), ours, &offset) != BP_OK) {
      try {
        return fail(BP_INCOMPATIBLE, std::string(frame.row->name) + ": the frame has " +
                                         std::to_string(member<uint32_t>(args, 0)) +
                                         " bytes and differs from byte " + std::to_string(offset) +
                                         " on; allowed: " + std::to_string(ours) +
                                         ", and zeros behind them");
      } catch (const std::bad_alloc&) {
        return BP_INCOMPATIBLE;
      }
    }
    frame.args = frame.copy.data();
  }
  const auto flags = member<uint32_t>(args, 4);
  if (flags == 0) return BP_OK;
  return refuse([&] {
    return std::string(frame.row->name) + ": flags is " + std::to_string(flags) + "; allowed: 0";
  });
}

}  // namespace
}  // namespace bp::ops

bp_status bp_op_infer(uint32_t op, const void* args, uint32_t capacity, bp_op_output* out_outputs,
                      uint32_t* out_count) {
  bp::ops::Frame frame;
  bp_status status = bp::ops::read_frame(op, args, frame);
  if (status != BP_OK) return status;
  const bp::ops::Row& row = *frame.row;
  if (capacity < row.output_count) {
    return bp::ops::refuse([&] {
      return std::string(row.name) + ": capacity is " + std::to_string(capacity) +
             "; allowed: at least " + std::to_string(row.output_count);
    });
  }
  bp_op_output outputs[bp::ops::kMaxOutputs];
  status = row.infer(row, frame.args, outputs);
  if (status != BP_OK) return status;
  std::copy(outputs, outputs + row.output_count, out_outputs);
  *out_count = row.output_count;
  return BP_OK;
}

bp_status bp_op_check(uint32_t op, const void* args) {
  bp::ops::Frame frame;
  bp_status status = bp::ops::read_frame(op, args, frame);
  if (status != BP_OK) return status;
  bp_op_output outputs[bp::ops::kMaxOutputs];
  status = frame.row->infer(*frame.row, frame.args, outputs);
  if (status == BP_OK) status = bp::ops::check_outputs(*frame.row, frame.args, outputs);
  return status == BP_OK ? bp::ops::check_memory(*frame.row, frame.args) : status;
}
