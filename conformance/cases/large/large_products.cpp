// Large calls of products, convolutions and pools.
#include "conformance/cases/large/large_builder.hpp"
#include "conformance/cases/ops/op_oracles.hpp"

namespace bp::conformance {
namespace {

// ---- Products -------------------------------------------------------------------------------- //

// A product of (m, k) and (k, n): `m` and `n` are the rows and columns of the period.
struct Product {
  const char* name;
  int64_t k, m, large_m, n, large_n;
  Tier tier;
};

const Product kProducts[] = {
    {"k1031", 1031, 7, 67, 11, 71, Tier::kSmoke},
    {"k2053", 2053, 5, 193, 7, 267, Tier::kQuick},
    {"k4099_narrow", 4099, 3, 3, 5, 5, Tier::kQuick},
    {"k16411_row", 16411, 1, 1, 7, 77, Tier::kQuick},
    {"tall", 5, 1031, kRows, 3, 3, Tier::kSmoke},
    {"broad", 5, 3, 3, 1031, kRows, Tier::kQuick},
    {"large", 1031, 5, 4099, 7, 4111, Tier::kFull},
    {"tallest", 3, 1031, kAbove24, 3, 3, Tier::kFull},
};

void add_matmul(Builder& b) {
  for (const Product& p : kProducts) {
    b.start(p.name, p.tier).in("a", {p.m, p.k}, {p.large_m, p.k});
    b.in("b", {p.k, p.n}, {p.k, p.large_n}).out("y", {p.m, p.n}, {p.large_m, p.large_n});
  }
  b.start("batches", Tier::kQuick).in("a", {1031, 2, 3}, {kRows, 2, 3});
  b.in("b", {1031, 3, 5}, {kRows, 3, 5}).out("y", {1031, 2, 5}, {kRows, 2, 5});
}

void add_linear(Builder& b) {
  for (const Product& p : kProducts) {
    b.start(p.name, p.tier).in("x", {p.m, p.k}, {p.large_m, p.k});
    b.in("weight", {p.n, p.k}, {p.large_n, p.k}).in("bias", {p.n}, {p.large_n});
    b.out("y", {p.m, p.n}, {p.large_m, p.large_n});
    b.set("activation", int64_t{BP_LINEAR_ACTIVATION_NONE});
  }
}

// ---- Convolutions ---------------------------------------------------------------------------- //

// Images repeat along their number, and the outputs along theirs; gradients for the input repeat
// along the channels of the input.
struct Images {
  const char* name;
  int64_t n, large_n, c, large_c, o, large_o, height, width;
  Tier tier;
};

void set_window(Builder& b) {
  b.set("stride", Shape{1, 1}).set("padding", Shape{1, 1, 1, 1}).set("dilation", Shape{1, 1});
  b.set("groups", int64_t{1});
}

void add_convolution(Builder& b) {
  const Images all[] = {
      {"channels", 1, 3, 67, 67, 5, 71, 7, 9, Tier::kSmoke},
      {"more_channels", 1, 2, 261, 261, 3, 131, 5, 5, Tier::kQuick},
      {"plane", 1, 1, 1, 1, 3, 3, 257, 263, Tier::kQuick},
      {"images", 31, 16'411, 1, 1, 3, 5, 3, 3, Tier::kQuick},
      {"large", 1, 67, 131, 131, 3, 257, 31, 33, Tier::kFull},
  };
  for (const Images& i : all) {
    b.start(i.name, i.tier);
    b.in("x", {i.n, i.c, i.height, i.width}, {i.large_n, i.c, i.height, i.width});
    b.in("weight", {i.o, i.c, 3, 3}, {i.large_o, i.c, 3, 3}).in("bias", {i.o}, {i.large_o});
    b.out("y", {i.n, i.o, i.height, i.width}, {i.large_n, i.large_o, i.height, i.width});
    set_window(b);
  }
}

void add_convolution_backward_input(Builder& b) {
  const Images all[] = {
      {"channels", 1, 3, 5, 71, 67, 67, 7, 9, Tier::kSmoke},
      {"plane", 1, 1, 3, 3, 1, 1, 257, 263, Tier::kQuick},
      {"large", 1, 67, 3, 257, 131, 131, 31, 33, Tier::kFull},
  };
  for (const Images& i : all) {
    b.start(i.name, i.tier);
    b.in("grad_y", {i.n, i.o, i.height, i.width}, {i.large_n, i.o, i.height, i.width});
    b.in("weight", {i.o, i.c, 3, 3}, {i.o, i.large_c, 3, 3});
    b.out("grad_x", {i.n, i.c, i.height, i.width}, {i.large_n, i.large_c, i.height, i.width});
    b.set("input_size", Shape{i.height, i.width});
    set_window(b);
  }
}

void add_convolution_backward_weight(Builder& b) {
  const Images all[] = {
      {"channels", 3, 3, 3, 67, 5, 71, 7, 9, Tier::kSmoke},
      {"images", 67, 67, 3, 33, 3, 35, 9, 9, Tier::kQuick},
      {"large", 257, 257, 3, 131, 3, 133, 17, 17, Tier::kFull},
  };
  for (const Images& i : all) {
    b.start(i.name, i.tier);
    b.in("grad_y", {i.n, i.o, i.height, i.width}, {i.n, i.large_o, i.height, i.width});
    b.in("x", {i.n, i.c, i.height, i.width}, {i.n, i.large_c, i.height, i.width});
    b.out("grad_weight", {i.o, i.c, 3, 3}, {i.large_o, i.large_c, 3, 3});
    b.set("kernel_size", Shape{3, 3});
    set_window(b);
  }
}

void add_convolution_backward_bias(Builder& b) {
  b.start("channels", Tier::kSmoke).in("grad_y", {3, 31, 17, 17}, {3, 1031, 17, 17});
  b.out("grad_bias", {31}, {1031});
  b.start("plane", Tier::kQuick).in("grad_y", {1, 3, 263, 257}, {1, 3, 263, 257});
  b.out("grad_bias", {3}, {3});
}

// ---- Pools ----------------------------------------------------------------------------------- //

struct Pools {
  const char* name;
  Shape images, large_images;  // Their numbers and channels.
  int64_t size, pooled;
  Tier tier;
};

// Windows of three elements, at every second element.
const Pools kPools[] = {
    {"images", {31, 3}, {kRows / 3, 3}, 5, 2, Tier::kSmoke},
    {"planes", {1, 3}, {5, 3}, 259, 129, Tier::kQuick},
    {"channels", {1, 1031}, {1, kRows}, 3, 1, Tier::kQuick},
};

Shape image(const Shape& images, int64_t size) { return {images[0], images[1], size, size}; }

// Sets what an op without windows of its own has: the extents, and how it interpolates.
void set_sampling(Builder& b, const Pools& p) {
  const bool is_pool = b.op() == BP_OP_ADAPTIVE_AVG_POOL;
  const bool is_interpolation = b.op() == BP_OP_INTERPOLATE || b.op() == BP_OP_INTERPOLATE_BACKWARD;
  if (is_pool || b.op() == BP_OP_INTERPOLATE) b.set("output_size", Shape{p.pooled, p.pooled});
  if (!is_interpolation) return;
  b.set("mode", int64_t{BP_INTERPOLATE_MODE_LINEAR});
  b.set("coordinates", int64_t{BP_INTERPOLATE_COORDINATES_HALF_PIXEL});
  b.set("rounding", int64_t{BP_INTERPOLATE_ROUNDING_FLOOR});
}

void set_pool(Builder& b, const Pools& p) {
  const bool is_max = b.op() == BP_OP_MAX_POOL;
  const bool is_average = b.op() == BP_OP_AVG_POOL || b.op() == BP_OP_AVG_POOL_BACKWARD;
  if (op_info(b.op()).name.ends_with("_backward")) b.set("input_size", Shape{p.size, p.size});
  set_sampling(b, p);
  if (!is_max && !is_average) return;
  b.set("kernel_size", Shape{3, 3}).set("stride", Shape{2, 2}).set("padding", Shape{0, 0, 0, 0});
  if (is_max) b.set("dilation", Shape{1, 1});
  if (is_average) b.set("counts_padding", int64_t{1});
}

void add_pool(Builder& b) {
  for (const Pools& p : kPools) {
    const Shape y = image(p.images, p.pooled), large_y = image(p.large_images, p.pooled);
    b.start(p.name, p.tier);
    b.in("x", image(p.images, p.size), image(p.large_images, p.size)).out("y", y, large_y);
    if (b.op() == BP_OP_MAX_POOL) b.out("indices", y, large_y, BP_I64);
    set_pool(b, p);
  }
}

void add_pool_backward(Builder& b) {
  for (const Pools& p : kPools) {
    const Shape y = image(p.images, p.pooled), large_y = image(p.large_images, p.pooled);
    b.start(p.name, p.tier).in("grad_y", y, large_y);
    if (b.op() == BP_OP_MAX_POOL_BACKWARD) {
      b.derive_nothing();
      b.indices("indices", y, large_y, p.size * p.size, p.size * p.size);
    }
    b.out("grad_x", image(p.images, p.size), image(p.large_images, p.size));
    set_pool(b, p);
  }
}

constexpr LargeOp kOps[] = {
    {BP_OP_MATMUL, add_matmul},
    {BP_OP_LINEAR, add_linear},
    {BP_OP_CONVOLUTION, add_convolution},
    {BP_OP_CONVOLUTION_BACKWARD_INPUT, add_convolution_backward_input},
    {BP_OP_CONVOLUTION_BACKWARD_WEIGHT, add_convolution_backward_weight},
    {BP_OP_CONVOLUTION_BACKWARD_BIAS, add_convolution_backward_bias},
    {BP_OP_MAX_POOL, add_pool},
    {BP_OP_AVG_POOL, add_pool},
    {BP_OP_MAX_POOL_BACKWARD, add_pool_backward},
    {BP_OP_AVG_POOL_BACKWARD, add_pool_backward},
    {BP_OP_ADAPTIVE_AVG_POOL, add_pool},
    {BP_OP_ADAPTIVE_AVG_POOL_BACKWARD, add_pool_backward},
    {BP_OP_INTERPOLATE, add_pool},
    {BP_OP_INTERPOLATE_BACKWARD, add_pool_backward},
};

}  // namespace

std::span<const LargeOp> large_product_ops() { return kOps; }

}  // namespace bp::conformance
