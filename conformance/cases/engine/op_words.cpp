#include "conformance/cases/engine/op_words.hpp"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <exception>
#include <limits>

#include "conformance/cases/engine/enum_words.hpp"
#include "conformance/cases/engine/op_facts.hpp"
#include "conformance/numerics/narrow_format.hpp"
#include "registry/boundary/number_text.hpp"

namespace bp::conformance {
namespace {

constexpr size_t kShownInputs = 6;     // Of each tensor.
constexpr int64_t kMaxWork = 1 << 16;  // Elements of all tensors, for one question to the oracle.
constexpr int kMaxQuestions = 300;

std::string list_text(const Shape& values) {
  std::string text = "[";
  for (const int64_t value : values) {
    text += (text.size() == 1 ? "" : ", ") + std::to_string(value);
  }
  return text + "]";
}

std::string scalar_text(const bp_scalar& scalar) {
  const DoubleDouble value = scalar_value(scalar);
  return scalar.dtype == BP_F64 ? short_text(value.hi, 9) : element_text(scalar.dtype, value);
}

// Returns the word of the spec for a value of an enumeration, else the number.
std::string integer_text(uint32_t op, const FrameMember& member, int64_t value) {
  if (member.kind == "dtype") return dtype_text(static_cast<bp_dtype>(value));
  const auto* const found = std::ranges::find_if(kEnumWords, [&](const EnumWord& word) {
    return word.op == op && word.member == member.name && word.value == value;
  });
  return found != std::end(kEnumWords) ? std::string(found->word) : std::to_string(value);
}

std::string attribute_text(uint32_t op, const Attribute& attribute) {
  std::string text = std::string(attribute.name) + " = ";
  if (const auto* integer = std::get_if<int64_t>(&attribute.value)) {
    return text + integer_text(op, op_info(op).member(attribute.name), *integer);
  }
  if (const auto* number = std::get_if<double>(&attribute.value)) {
    return text + short_text(*number, 9);
  }
  if (const auto* list = std::get_if<Shape>(&attribute.value)) return text + list_text(*list);
  return text + scalar_text(std::get<bp_scalar>(attribute.value));
}

std::string argument_text(const TensorArgument& argument) {
  std::string text = std::string(argument.name) + " " + dtype_text(argument.dtype) + " " +
                     list_text(argument.shape);
  if (argument.layout != Layout::kDense) text += std::string(" ") + layout_text(argument.layout);
  if (!argument.alias.empty()) text += " in the memory of " + std::string(argument.alias);
  return text;
}

// Finds the numbers on which one exact result depends, by changing others and asking the oracle.
class Dependence {
 public:
  Dependence(const OpCase& op_case, const CallData& data, const Numerics& numerics, size_t output,
             int64_t index)
      : case_(op_case), data_(data), numerics_(numerics), output_(output), index_(index) {
    value_ = ask();
  }

  // Appends the elements of [first, last) of a tensor on which the result depends, in order, until
  // `most` are found or there have been too many questions.
  void find(size_t tensor, size_t first, size_t last, size_t most, std::vector<size_t>& found) {
    if (first == last || found.size() >= most || ++questions_ > kMaxQuestions) return;
    if (!matters(tensor, first, last)) return;
    if (last - first == 1) {
      found.push_back(first);
      return;
    }
    const size_t middle = first + (last - first) / 2;
    find(tensor, first, middle, most, found);
    find(tensor, middle, last, most, found);
  }

 private:
  DoubleDouble ask() const {
    return case_.expected(data_, numerics_).at(output_).value.at(static_cast<size_t>(index_));
  }

  static DoubleDouble other(bp_dtype dtype, DoubleDouble value) {
    if (is_float(dtype)) {
      return isnan(value) ? DoubleDouble(0.0)
                          : DoubleDouble(std::numeric_limits<double>::quiet_NaN());
    }
    return value == DoubleDouble(0.0) ? DoubleDouble(1.0) : DoubleDouble(0.0);
  }

  bool matters(size_t tensor, size_t first, size_t last) {
    HostTensor& changed = data_.tensors()[tensor];
    const std::vector<DoubleDouble> before(
        changed.data.begin() + static_cast<std::ptrdiff_t>(first),
        changed.data.begin() + static_cast<std::ptrdiff_t>(last));
    for (size_t i = first; i < last; ++i) {
      changed.data[i] = other(changed.dtype, changed.data[i]);
    }
    const DoubleDouble now = ask();
    std::ranges::copy(before, changed.data.begin() + static_cast<std::ptrdiff_t>(first));
    const bool is_same = isnan(now) ? isnan(value_) : now == value_;
    return !is_same || std::signbit(now.hi) != std::signbit(value_.hi);
  }

  const OpCase& case_;
  CallData data_;
  const Numerics& numerics_;
  size_t output_;
  int64_t index_;
  DoubleDouble value_;
  int questions_ = 0;
};

std::string elements_text(const HostTensor& tensor, const std::vector<size_t>& elements) {
  std::string text;
  for (size_t i = 0; i < elements.size() && i < kShownInputs; ++i) {
    text += (i == 0 ? "" : ", ") + std::string(tensor.name);
    if (!tensor.shape.empty()) {
      text += place_text(static_cast<int64_t>(elements[i]), tensor.shape);
    }
    text += " = " + element_text(tensor.dtype, tensor.data[elements[i]]);
  }
  return elements.size() > kShownInputs ? text + " and others" : text;
}

int64_t work_of(const OpCase& op_case) {
  int64_t work = 0;
  for (const TensorArgument& argument : op_case.tensors) work += element_count(argument.shape);
  return work;
}

}  // namespace

std::string element_text(bp_dtype dtype, DoubleDouble value) {
  if (!is_float(dtype) && narrow_format(dtype) == nullptr) return std::to_string(to_int64(value));
  return short_text(value.hi, dtype == BP_F64 ? 17 : 9);
}

std::string bits_text(bp_dtype dtype, uint64_t bits) {
  char text[24];
  std::snprintf(text, sizeof(text), "0x%0*llx", static_cast<int>(element_size(dtype)) * 2,
                static_cast<unsigned long long>(bits));
  return text;
}

std::string bits_of(bp_dtype dtype, DoubleDouble value) {
  std::byte bytes[8] = {};
  store_element(dtype, value, bytes);
  return bits_text(dtype, element_bits_at(dtype, bytes));
}

std::string place_text(int64_t index, const Shape& shape) {
  return list_text(coordinates(index, shape));
}

std::string call_text(const OpCase& op_case) {
  std::string inputs, outputs;
  for (const TensorArgument& argument : op_case.tensors) {
    std::string& side = argument.role == Role::kOutput ? outputs : inputs;
    side += (side.empty() ? "" : ", ") + argument_text(argument);
    if (argument.role == Role::kInOut) {
      outputs += (outputs.empty() ? "" : ", ") + std::string(argument.name);
    }
  }
  for (const Attribute& attribute : op_case.attributes) {
    inputs += (inputs.empty() ? "" : ", ") + attribute_text(op_case.op, attribute);
  }
  return std::string(op_info(op_case.op).name) + "(" + inputs + ") -> " + outputs;
}

std::string inputs_text(const OpCase& op_case, const CallData& data, const Numerics& numerics,
                        size_t output, int64_t index) {
  if (work_of(op_case) > kMaxWork) return "";
  std::string text;
  try {
    Dependence dependence(op_case, data, numerics, output, index);
    for (size_t i = 0; i < data.tensors().size(); ++i) {
      const HostTensor& tensor = data.tensors()[i];
      // Other indices could lie outside of a tensor, where the oracle must not look.
      const bool is_asked = tensor.role != Role::kOutput &&
                            !is_index(op_case, op_case.tensors[i]) &&
                            op_case.tensors[i].fill.kind != FillKind::kIndex;
      std::vector<size_t> found;
      if (is_asked) dependence.find(i, 0, tensor.data.size(), kShownInputs + 1, found);
      if (!found.empty()) text += (text.empty() ? "" : "; ") + elements_text(tensor, found);
    }
  } catch (const std::exception&) {
    return "";  // The oracle does not take the changed data.
  }
  return text;
}

}  // namespace bp::conformance
