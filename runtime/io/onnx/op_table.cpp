#include "runtime/io/onnx/op_table.hpp"

#include <string_view>

namespace bp::onnx {
namespace {

constexpr std::span<const OpRow> (*kFamilies[])() = {
    activation_ops, arithmetic_ops,    attention_ops, cast_ops,   control_ops,  convolution_ops,
    detection_ops,  gather_ops,        language_ops,  logic_ops,  loss_ops,     matrix_ops,
    movement_ops,   normalization_ops, optimizer_ops, pad_ops,    pooling_ops,  quantization_ops,
    random_ops,     recurrent_ops,     reduction_ops, resize_ops, sampling_ops, selection_ops,
    shape_ops,      signal_ops,        text_ops,      unary_ops,
};

// Operators that are left out on purpose.
struct LeftOut {
  std::string_view op;
  const char* reason;
};
constexpr const char* kSequence = "sequences of tensors are not supported";
constexpr const char* kOptional = "optional values are not supported";
constexpr const char* kStrings = "strings are not supported";
constexpr LeftOut kLeftOut[] = {
    {"SequenceAt", kSequence},         {"SequenceConstruct", kSequence},
    {"SequenceEmpty", kSequence},      {"SequenceErase", kSequence},
    {"SequenceInsert", kSequence},     {"SequenceLength", kSequence},
    {"SequenceMap", kSequence},        {"SplitToSequence", kSequence},
    {"ConcatFromSequence", kSequence}, {"Optional", kOptional},
    {"OptionalGetElement", kOptional}, {"OptionalHasElement", kOptional},
    {"StringNormalizer", kStrings},    {"StringConcat", kStrings},
    {"StringSplit", kStrings},         {"RegexFullMatch", kStrings},
};

bool has_word(std::string_view words, std::string_view word) {
  while (!words.empty()) {
    const size_t end = words.find(' ');
    if (words.substr(0, end) == word) return true;
    if (end == std::string_view::npos) break;
    words.remove_prefix(end + 1);
  }
  return false;
}

}  // namespace

const OpRow* find_op(const std::string& domain, const std::string& op, int64_t opset) {
  const OpRow* best = nullptr;
  for (const auto family : kFamilies) {
    for (const OpRow& row : family()) {
      if (op != row.op || domain != row.domain || row.since > opset) continue;
      if (best == nullptr || row.since > best->since) best = &row;
    }
  }
  return best;
}

std::string why_missing(const std::string& domain, const std::string& op, int64_t opset) {
  for (const LeftOut& left_out : kLeftOut) {
    if (op == left_out.op && domain.empty()) return left_out.reason;
  }
  if (const OpRow* const later = find_op(domain, op, INT64_MAX)) {
    return "the operator is there from opset " + std::to_string(later->since) + " on, not in " +
           std::to_string(opset);
  }
  return "there is no such operator in the importer";
}

std::string attributes_defect(const OpRow& row, const Node& node) {
  for (const Attribute& attribute : node.attributes) {
    // Before opset 6 this was a hint about memory, which has no meaning.
    if (attribute.name == "consumed_inputs") continue;
    if (!has_word(row.attributes, attribute.name)) {
      return "the attribute '" + attribute.name + "' is not supported";
    }
  }
  return "";
}

}  // namespace bp::onnx
