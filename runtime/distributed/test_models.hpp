// Small models for tests of training on several ranks, and their gradients.
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "backplane/runtime/runtime.hpp"

namespace bp::distributed {

// Returns numbers with many bits that depend on `seed` alone.
inline std::vector<float> numbers(int64_t count, uint32_t seed) {
  std::vector<float> values;
  uint32_t state = seed * 2654435761u + 1;
  for (int64_t i = 0; i < count; ++i) {
    state = state * 1664525u + 1013904223u;
    values.push_back(static_cast<float>(state >> 8) / 16777216.0f - 0.5f);
  }
  return values;
}

inline Tensor input(int64_t rows, int64_t columns, uint32_t seed) {
  return from_host(numbers(rows * columns, seed), {rows, columns});
}

// Gives all parameters values that depend on `seed` alone.
inline void set_values(const nn::Module& module, uint32_t seed) {
  for (const auto& [name, tensor] : module.named_parameters()) {
    const auto values = numbers(tensor.numel(), seed++);
    tensor.detach().copy_from_host(values.data(), values.size() * sizeof(float));
  }
}

inline std::shared_ptr<nn::Sequential> small_model() {
  return std::make_shared<nn::Sequential>(std::vector<std::shared_ptr<nn::Module>>{
      std::make_shared<nn::Linear>(7, 16), std::make_shared<nn::Gelu>(),
      std::make_shared<nn::Linear>(16, 16), std::make_shared<nn::Gelu>(),
      std::make_shared<nn::Linear>(16, 3)});
}

inline std::string thrown_by(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.what();
  }
  return "(nothing was thrown)";
}

inline Tensor loss_of(const Tensor& y) { return bp::mean(y * y); }

// The bits of all gradients, by parameter.
using Bits = std::vector<std::vector<float>>;

inline Bits gradients_of(const nn::Module& module) {
  Bits bits;
  for (const Tensor& tensor : module.parameters()) {
    bits.push_back(tensor.grad() ? tensor.grad().to_vector<float>() : std::vector<float>{});
  }
  return bits;
}

inline void expect_equal_bits(const Bits& got, const Bits& want) {
  ASSERT_EQ(got.size(), want.size());
  for (size_t i = 0; i < got.size(); ++i) {
    ASSERT_EQ(got[i].size(), want[i].size()) << "parameter " << i;
    EXPECT_EQ(std::memcmp(got[i].data(), want[i].data(), got[i].size() * sizeof(float)), 0)
        << "parameter " << i;
  }
}

}  // namespace bp::distributed
