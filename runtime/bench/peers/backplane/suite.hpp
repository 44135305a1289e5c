// What the families of cases share: a list to which each family adds its cases.
#pragma once

#include <array>
#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "runtime/bench/peers/inputs.hpp"

namespace bp::bench {

using Op = std::function<Tensor()>;

// A result with the graph that made it, and the leaves whose gradients are wanted.
struct Recorded {
  std::vector<Tensor> leaves;
  Tensor y;
};

class Suite {
 public:
  // Adds a case. `setup` makes the inputs and returns the op over them.
  void add(std::string name, double bytes, double flops, std::function<Op()> setup);

  // Adds a gradient through the graph. `setup` runs with recording on. The gradient of y is
  // input 7, or 1 if y has no axes, and the gradient of the first leaf is compared.
  void add_backward(std::string name, double bytes, double flops, std::function<Recorded()> setup);

  // Adds an update in place. Its result depends on how often it ran, so it is not compared.
  void add_update(std::string name, double bytes, double flops,
                  std::function<std::function<void()>()> setup);

  std::vector<Case> take() { return std::move(cases_); }

 private:
  std::vector<Case> cases_;
};

// Each adds the cases of one family.
void add_elementwise(Suite& s);
void add_movement(Suite& s);
void add_reductions(Suite& s);
void add_norms(Suite& s);
void add_losses(Suite& s);
void add_products(Suite& s);
void add_convolutions(Suite& s);
void add_pooling(Suite& s);
void add_attention(Suite& s);
void add_layers(Suite& s);
void add_training(Suite& s);

// Adds the cases whose weight is constant and was prepared.
void add_prepared_cases(std::vector<Case>& cases);

// Adds the cases whose weight is quantised.
void add_quantized_cases(std::vector<Case>& cases);

// The extents of the rows that most families have.
constexpr int64_t kMany = 1 << 22, kOdd = 1000003;
inline const Shape kSquare = {4096, 1024};

inline double width_of(bp_dtype dtype) { return static_cast<double>(bp_dtype_bits(dtype)) / 8; }

// Numbers from 0.5 to 2.5.
inline Tensor positive(const Shape& shape, int64_t s = 0, bp_dtype dtype = BP_F32) {
  return add(input(shape, s), 1).to(dtype);
}

// Numbers from 0.995 to 1.015, whose products stay near 1.
inline Tensor near_one(const Shape& shape) { return add(mul(input(shape), 0.01), 1); }

inline Tensor leaf(const Shape& shape, int64_t s = 0, bp_dtype dtype = BP_F32) {
  Tensor made = input(shape, s, dtype);
  made.set_requires_grad();
  return made;
}

}  // namespace bp::bench
