// The operators that the importer knows, by domain, name and version.
#pragma once

#include <span>
#include <string>

#include "runtime/io/onnx/call.hpp"

namespace bp::onnx {

// How one version of an operator is run.
struct OpRow {
  const char* op;
  int64_t since;  // The first opset that this row is for. It ends where the next row begins.
  Values (*run)(const Call& call);
  const char* attributes;  // The names that it reads, separated by spaces.
  OnnxRoute route = OnnxRoute::kComposed;
  const char* domain = "";
};

// Returns the newest row at or below `opset`, or NULL if there is none.
const OpRow* find_op(const std::string& domain, const std::string& op, int64_t opset);

// Says in one sentence why find_op() gives NULL.
std::string why_missing(const std::string& domain, const std::string& op, int64_t opset);

// Says which attribute of `node` the row does not read, or "".
std::string attributes_defect(const OpRow& row, const Node& node);

// Each family of operators has a file ops_<family>.cpp.
std::span<const OpRow> activation_ops();
std::span<const OpRow> arithmetic_ops();
std::span<const OpRow> attention_ops();
std::span<const OpRow> cast_ops();
std::span<const OpRow> control_ops();
std::span<const OpRow> convolution_ops();
std::span<const OpRow> detection_ops();
std::span<const OpRow> gather_ops();
std::span<const OpRow> language_ops();
std::span<const OpRow> logic_ops();
std::span<const OpRow> loss_ops();
std::span<const OpRow> matrix_ops();
std::span<const OpRow> movement_ops();
std::span<const OpRow> normalization_ops();
std::span<const OpRow> optimizer_ops();
std::span<const OpRow> pad_ops();
std::span<const OpRow> pooling_ops();
std::span<const OpRow> quantization_ops();
std::span<const OpRow> random_ops();
std::span<const OpRow> recurrent_ops();
std::span<const OpRow> reduction_ops();
std::span<const OpRow> resize_ops();
std::span<const OpRow> sampling_ops();
std::span<const OpRow> selection_ops();
std::span<const OpRow> shape_ops();
std::span<const OpRow> signal_ops();
std::span<const OpRow> text_ops();
std::span<const OpRow> unary_ops();

}  // namespace bp::onnx
