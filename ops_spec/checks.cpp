#include "ops_spec/checks.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstring>
#include <string>
#include <string_view>

#include "ops_spec/frame.hpp"

namespace bp::ops {
namespace {

std::string to_text(int64_t value) { return std::to_string(value); }

std::string to_text(double value) {
  std::array<char, 32> digits;
  const auto end = std::to_chars(digits.data(), digits.data() + digits.size(), value).ptr;
  return std::string(digits.data(), end);
}

// Returns text like "(2, 3)".
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

// Returns text like "2 tensors of shapes (2, 3), (2, 4)". For many tensors it has the first few
// shapes.
std::string shapes_text(const Tensors& tensors) {
  constexpr uint64_t kMost = 8;
  std::string text = std::to_string(tensors.count) + (tensors.count == 1 ? " tensor" : " tensors");
  for (uint64_t i = 0; i < std::min(tensors.count, kMost); ++i) {
    text += (i == 0 ? " of shapes " : ", ") + to_text(dims::shape(*tensors[i]));
  }
  return tensors.count > kMost ? text + ", ..." : text;
}

// Returns text like "x is (2, 3)", "stride is (1)" or "groups is 2".
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
  if (tensors.is_list) return name + " has " + shapes_text(tensors);
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

// Turns "none, relu" into "1 (none), 2 (relu)".
std::string numbered(std::string_view values, int first) {
  std::string text;
  for (int number = first; !values.empty(); ++number) {
    const std::string_view value = values.substr(0, values.find(','));
    text +=
        (number == first ? "" : ", ") + std::to_string(number) + " (" + std::string(value) + ")";
    values.remove_prefix(std::min(value.size() + 2, values.size()));
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
    if (tensor->shape == nullptr) return name + " has no shape; allowed: one entry per axis";
    if (tensor->strides == nullptr) return name + " has no strides; allowed: one entry per axis";
    const dims::View shape = dims::shape(*tensor);
    const bool is_negative =
        std::any_of(shape.begin(), shape.end(), [](int64_t n) { return n < 0; });
    return name + " has shape " + to_text(shape) + "; allowed: " +
           (is_negative ? "extents of at least 0"
                        : "at most 2^58 elements, where an extent of 0 counts as 1");
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
    if (given.dtype != BP_C128 && given.imaginary_bits != 0) {
      return head(row, index) + " is a number with imaginary_bits of " +
             std::to_string(given.imaginary_bits) + "; allowed: 0, unless it is a c128";
    }
    if (given.dtype == BP_BOOL) {
      return head(row, index) + " is a bool of value " + std::to_string(given.bits) +
             "; allowed: 0 or 1";
    }
    const std::string allowed = std::string("; allowed: a tensor, or a number of ") +
                                (is_integer(target)   ? "bool, i64 or u64"
                                 : is_complex(target) ? "bool, i64, u64, f64 or c128"
                                                      : "bool, i64, u64 or f64") +
                                ", for " + dtype_text(target);
    if (given.dtype == 0) return head(row, index) + " is NULL, without a number" + allowed;
    return head(row, index) + " is a number of " + dtype_text(given.dtype) + allowed;
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
    return head(row, index, item) + " has shape " + to_text(given) +
           "; allowed: " + to_text(allowed) + ", which is " + expression;
  });
}

bp_status no_shape(const Row& row, uint32_t index, int64_t item, const void* frame,
                   const char* expression, uint32_t names) {
  return refuse([&] {
    const Tensors given = tensors_of(row.arguments[index], frame);
    const bp_tensor& tensor = *given[item == kNoItem ? 0 : static_cast<uint64_t>(item)];
    return head(row, index, item) + " has shape " + to_text(dims::shape(tensor)) +
           "; allowed: " + expression + ", which does not exist where " +
           values_text(row, frame, names);
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
           "; allowed: " + numbered(row.arguments[index].values, row.arguments[index].first);
  });
}

bp_status bad_duplicate(const Row& row, uint32_t index, dims::View given) {
  return refuse(
      [&] { return head(row, index) + " is " + to_text(given) + "; allowed: no value twice"; });
}

bp_status bad_output(const Row& row, uint32_t index, const void* frame, const char* expression,
                     uint32_t names) {
  return refuse([&] {
    const std::string_view text = expression;
    const bool has_windows = text.find("window(") != std::string_view::npos;
    const bool is_covered = text.find("covered(") != std::string_view::npos;
    const bool is_joined = text.find("concatenated(") != std::string_view::npos;
    return head(row, index) + " has no shape where " + values_text(row, frame, names) +
           "; allowed: " +
           (has_windows  ? "windows that fit into the padded extents"
            : is_covered ? "at least one window, and padding within what the windows cover"
            : is_joined
                ? "at least one tensor, and extents that differ along the axis alone"
                : "at most " + std::to_string(BP_MAX_RANK) + " axes, and at most 2^58 elements") +
           ", in " + expression;
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

}  // namespace bp::ops
