// Runs one node as a model of its own, for tests.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "runtime/io/onnx/test_model.hpp"
#include "runtime/test_device.hpp"

namespace bp::onnx {

using Floats = std::vector<float>;
using Ints = std::vector<int64_t>;
using Attributes = std::vector<::onnx::AttributeProto>;

inline Tensor floats(const Floats& values, IntList shape) {
  return from_host(values, shape, test_device());
}
inline Tensor ints(const Ints& values, IntList shape) {
  return from_host(values, shape, test_device());
}

// Runs one node. Its inputs are i0, i1, ...; an empty tensor is an input that is not given.
inline std::vector<Tensor> run_node(int64_t opset, const std::string& op,
                                    const std::vector<Tensor>& inputs,
                                    const Attributes& attributes = {}, size_t output_count = 1) {
  TestModel model(opset);
  Names input_names, output_names;
  TensorMap given;
  for (size_t i = 0; i < inputs.size(); ++i) {
    input_names.push_back(inputs[i] ? "i" + std::to_string(i) : "");
    if (!inputs[i]) continue;
    model.graph().input(input_names.back(), 0);
    given[input_names.back()] = inputs[i];
  }
  for (size_t i = 0; i < output_count; ++i) {
    output_names.push_back("o" + std::to_string(i));
    model.graph().output(output_names.back(), 0);
  }
  model.graph().node(op, input_names, output_names, attributes);
  const TensorMap outputs = model.parse(test_device()).run(given);
  std::vector<Tensor> results;
  for (const std::string& name : output_names) results.push_back(outputs.at(name));
  return results;
}

inline Floats values(const Tensor& tensor) { return tensor.to(BP_F32).to_vector<float>(); }

inline void expect_near(const Tensor& given, const Floats& expected) {
  const Floats found = values(given);
  ASSERT_EQ(found.size(), expected.size());
  for (size_t i = 0; i < found.size(); ++i) EXPECT_NEAR(found[i], expected[i], 1e-5) << i;
}

}  // namespace bp::onnx
