// The inputs of the cases as tensors of the runtime.
#pragma once

#include <cmath>
#include <string>
#include <vector>

#include "backplane/runtime/runtime.hpp"
#include "runtime/bench/peers/worker.hpp"

namespace bp::bench {

using Shape = std::vector<int64_t>;
inline int64_t count(const Shape& shape) {
  int64_t result = 1;
  for (const int64_t extent : shape) result *= extent;
  return result;
}

inline double size_of(const Shape& shape) { return static_cast<double>(count(shape)); }

// Returns text like "4096x1024".
inline std::string text_of(const Shape& shape) {
  std::string text;
  for (const int64_t extent : shape) text += (text.empty() ? "" : "x") + std::to_string(extent);
  return text;
}

inline Tensor input(const Shape& shape, int64_t s = 0, bp_dtype dtype = BP_F32) {
  std::vector<float> values(static_cast<size_t>(count(shape)));
  for (size_t i = 0; i < values.size(); ++i) values[i] = input_value(static_cast<int64_t>(i), s);
  return from_host(values, shape).to(dtype);
}

inline Tensor indices(const Shape& shape, int64_t n, int64_t s = 0) {
  std::vector<int64_t> values(static_cast<size_t>(count(shape)));
  for (size_t i = 0; i < values.size(); ++i) values[i] = index_value(static_cast<int64_t>(i), s, n);
  return from_host(values, shape);
}

inline double mean_abs(const Tensor& result) {
  const std::vector<double> values = result.to(BP_F64).to_vector<double>();
  double sum = 0;
  for (const double value : values) sum += std::abs(value);
  return sum / static_cast<double>(values.size());
}

}  // namespace bp::bench
