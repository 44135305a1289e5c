#include "runtime/bench/peers/backplane/suite.hpp"

namespace bp::bench {
namespace {

void add_product(Suite& s, const std::string& name, const Shape& a, const Shape& b,
                 bp_dtype dtype = BP_F32, bool is_transposed = false) {
  const double width = static_cast<double>(bp_dtype_bits(dtype)) / 8;
  const int64_t n = b.back();
  const int64_t rows = count(a) / a.back();
  const auto y = static_cast<double>(rows * n);
  const double bytes = width * (static_cast<double>(count(a) + count(b)) + y);
  s.add(name, bytes, 2 * y * static_cast<double>(a.back()), [=] {
    const Tensor left = input(a, 0, dtype);
    if (is_transposed) {
      return Op([left, right = input({n, a.back()}, 1, dtype).transpose()] {
        return matmul(left, right);
      });
    }
    return Op([left, right = input(b, 1, dtype)] { return matmul(left, right); });
  });
}

void add_narrow_products(Suite& s) {
  for (const bp_dtype dtype : {BP_BF16, BP_F16}) {
    for (const int64_t rows : {1, 8}) {
      add_product(s, "matmul " + dtype_text(dtype) + " " + std::to_string(rows) + "x4096x4096",
                  {rows, 4096}, {4096, 4096}, dtype);
    }
  }
  add_product(s, "matmul f64 1x2048x2048", {1, 2048}, {2048, 2048}, BP_F64);
  add_product(s, "matmul f32 4096x16x4096", {4096, 16}, {16, 4096});
  add_product(s, "matmul f32 16x65536x16", {16, 65536}, {65536, 16});
  add_product(s, "matmul f32 100003x3x3", {100003, 3}, {3, 3});
  add_product(s, "matmul bf16 1023x1025x1021", {1023, 1025}, {1025, 1021}, BP_BF16);
  add_product(s, "matmul bf16 1x4096x4096, b transposed", {1, 4096}, {4096, 4096}, BP_BF16, true);
}

void add_batched_products(Suite& s) {
  add_product(s, "matmul f32 512 of 32x32x32", {512, 32, 32}, {512, 32, 32});
  add_product(s, "matmul f32 4096 of 4x4x4", {4096, 4, 4}, {4096, 4, 4});
  add_product(s, "matmul bf16 64 of 128x64x128", {64, 128, 64}, {64, 64, 128}, BP_BF16);
  const double y = 32.0 * 512 * 512;
  s.add("matmul f32 32 of 512x64x512, b transposed", 4 * (2 * 32 * 512 * 64 + y), 2 * y * 64, [] {
    return [a = input({32, 512, 64}), b = input({32, 512, 64}, 1).transpose()] {
      return matmul(a, b);
    };
  });
}

void add_fused_products(Suite& s) {
  const double square = 1024.0 * 1024;
  s.add("matmul f32 1024^3 + addend", 16 * square, 2 * square * 1024, [] {
    return [a = input({1024, 1024}), b = input({1024, 1024}, 1), c = input({1024, 1024}, 2)] {
      return matmul(a, b, 0, c, 1, 1);
    };
  });
  s.add("matmul i8 1024^3 into i32", 6 * square, 2 * square * 1024, [] {
    return [a = indices({1024, 1024}, 100).to(BP_I8), b = indices({1024, 1024}, 90, 1).to(BP_I8)] {
      return matmul(a, b, BP_I32);
    };
  });
  s.add("linear bf16 128x4096x4096", 2 * (256.0 * 4096 + 16 * square), 256 * 16 * square, [] {
    return [x = input({128, 4096}, 0, BP_BF16), w = input({4096, 4096}, 1, BP_BF16),
            b = input({4096}, 2, BP_BF16)] { return linear(x, w, b); };
  });
  s.add_backward(
      "linear backward f32 1024x256x1024", 4 * (3 * square / 4 + 2 * square), 2 * 2 * square * 256,
      [] {
        const Tensor x = leaf({1024, 256}), w = leaf({1024, 256}, 1), b = leaf({1024}, 2);
        return Recorded{{x, w, b}, linear(x, w, b)};
      });
}

// The groups have different numbers of rows, as experts have tokens.
void add_grouped_products(Suite& s) {
  for (const bp_dtype dtype : {BP_F32, BP_BF16}) {
    const double elements = 1024.0 * 512 * 2 + 8.0 * 512 * 512;
    s.add("grouped_matmul " + dtype_text(dtype) + " 8 groups of 1024x512x512",
          width_of(dtype) * elements, 2.0 * 1024 * 512 * 512, [dtype] {
            const std::vector<int64_t> offsets = {0, 16, 320, 384, 400, 656, 784, 960, 1024};
            return [a = input({1024, 512}, 0, dtype), b = input({8, 512, 512}, 1, dtype),
                    o = from_host(offsets, {9})] { return grouped_matmul(a, b, o); };
          });
  }
}

}  // namespace

void add_products(Suite& s) {
  add_product(s, "matmul f32 1024^3", {1024, 1024}, {1024, 1024});
  add_product(s, "matmul f32 1024^3, b transposed", {1024, 1024}, {1024, 1024}, BP_F32, true);
  s.add("matmul f32 256x1024x1024, a transposed", 4 * (2 * 256 * 1024 + 1024 * 1024),
        2.0 * 256 * 1024 * 1024, [] {
          return [left = input({1024, 256}).transpose(), right = input({1024, 1024}, 1)] {
            return matmul(left, right);
          };
        });
  add_product(s, "matmul f32 1023x1025x1021", {1023, 1025}, {1025, 1021});
  add_product(s, "matmul f32 128^3", {128, 128}, {128, 128});
  add_product(s, "matmul f32 8x4096x4096", {8, 4096}, {4096, 4096});
  add_product(s, "matmul f32 4096x4096x1", {4096, 4096}, {4096, 1});
  add_product(s, "matmul f32 1x4096x4096", {1, 4096}, {4096, 4096});
  add_product(s, "matmul bf16 4096x4096x1", {4096, 4096}, {4096, 1}, BP_BF16);
  add_product(s, "matmul f32 64 of 128x64x128", {64, 128, 64}, {64, 64, 128});
  add_product(s, "matmul bf16 1024^3", {1024, 1024}, {1024, 1024}, BP_BF16);
  add_product(s, "matmul f16 1024^3", {1024, 1024}, {1024, 1024}, BP_F16);
  add_product(s, "matmul f64 512^3", {512, 512}, {512, 512}, BP_F64);
  const double y = 1024.0 * 1024;
  s.add("linear gelu f32 1024x256x1024", 4 * (1024 * 256 * 2 + y), 2 * y * 256, [] {
    return [x = input({1024, 256}), w = input({1024, 256}, 1), b = input({1024}, 2)] {
      return linear(x, w, b, Activation::kGelu);
    };
  });
  add_narrow_products(s);
  add_batched_products(s);
  add_fused_products(s);
  add_grouped_products(s);
}

}  // namespace bp::bench
