#include "runtime/bench/peers/backplane/suite.hpp"

namespace bp::bench {
namespace {

// An attention of `heads` query heads over `key_heads` heads of keys.
struct Heads {
  int64_t batch, heads, key_heads, queries, keys, width;
};

void add_heads(Suite& s, const std::string& name, const Heads& h, bp_dtype dtype, Causal causal) {
  const Shape q_shape = {h.batch, h.heads, h.queries, h.width};
  const Shape k_shape = {h.batch, h.key_heads, h.keys, h.width};
  const double pairs = static_cast<double>(h.batch * h.heads * h.queries * h.keys);
  const double flops = 4 * pairs * static_cast<double>(h.width);
  s.add("attention " + dtype_text(dtype) + " " + name,
        width_of(dtype) * 2 * (size_of(q_shape) + size_of(k_shape)),
        causal == Causal::kNone ? flops : flops / 2, [=] {
          const double scale = 1 / std::sqrt(static_cast<double>(h.width));
          return [=, q = input(q_shape, 0, dtype), k = input(k_shape, 1, dtype),
                  v = input(k_shape, 2, dtype)] { return sdpa(q, k, v, scale, {}, {}, causal); };
        });
}

void add_more_attention(Suite& s) {
  const Heads grouped = {1, 32, 8, 512, 512, 128};
  add_heads(s, "32 over 8 heads x512x128, causal", grouped, BP_F32, Causal::kTopLeft);
  add_heads(s, "32 over 8 heads x512x128, causal", grouped, BP_BF16, Causal::kTopLeft);
  add_heads(s, "8x12x197x64", {8, 12, 12, 197, 197, 64}, BP_F32, Causal::kNone);
  add_heads(s, "32x1x128 over 4096 keys", {1, 32, 32, 1, 4096, 128}, BP_F32, Causal::kNone);
  const Heads decode = {1, 32, 8, 1, 4096, 128};
  add_heads(s, "32x1x128 over 4096 keys of 8 heads", decode, BP_F32, Causal::kNone);
  add_heads(s, "32x1x128 over 4096 keys of 8 heads", decode, BP_BF16, Causal::kNone);
  const Shape shape = {1, 8, 512, 64}, scores = {1, 8, 512, 512};
  s.add("attention f32 8x512x64, mask of bool", 16 * size_of(shape) + 512 * 512,
        4 * 64 * size_of(scores), [=] {
          return [q = input(shape), k = input(shape, 1), v = input(shape, 2),
                  mask = lt(input({512, 512}, 3), 1).expand(scores)] {
            return sdpa(q, k, v, 0.125, mask);
          };
        });
  s.add_backward("attention backward bf16 8x1024x64, causal", 16.0 * 8 * 1024 * 64,
                 5.0 * 8 * 1024 * 1024 * 64, [] {
                   const Shape long_shape = {1, 8, 1024, 64};
                   const Tensor q = leaf(long_shape, 0, BP_BF16), k = leaf(long_shape, 1, BP_BF16),
                                v = leaf(long_shape, 2, BP_BF16);
                   return Recorded{{q, k, v}, sdpa(q, k, v, 0.125, {}, {}, Causal::kTopLeft)};
                 });
}

void add_more_rope(Suite& s) {
  const Shape x_shape = {8, 12, 512, 64}, angles = {8, 12, 512, 32};
  const double n = size_of(x_shape);
  s.add("rope bf16 8x12x512x64", 4 * n, 3 * n, [=] {
    return [x = input(x_shape, 0, BP_BF16), c = input({512, 32}, 1).expand(angles),
            t = input({512, 32}, 2).expand(angles)] { return rope(x, c, t); };
  });
  s.add("rope bf16 1x32x1x128", 4.0 * 32 * 128, 3.0 * 32 * 128, [] {
    const Shape one = {1, 32, 1, 64};
    return [x = input({1, 32, 1, 128}, 0, BP_BF16), c = input({1, 64}, 1).expand(one),
            t = input({1, 64}, 2).expand(one)] { return rope(x, c, t); };
  });
  s.add("rope backward f32 8x12x512x64", 8 * n, 3 * n, [=] {
    return [g = input(x_shape), c = input({512, 32}, 1).expand(angles),
            t = input({512, 32}, 2).expand(angles)] { return rope_backward(g, c, t); };
  });
}

}  // namespace

void add_attention(Suite& s) {
  const Shape shape = {1, 8, 1024, 64};
  const double full = 4.0 * 8 * 1024 * 1024 * 64, bytes = 16.0 * 8 * 1024 * 64;
  const auto forward = [=](Causal causal, bp_dtype dtype) {
    return [=] {
      return [=, q = input(shape, 0, dtype), k = input(shape, 1, dtype),
              v = input(shape, 2, dtype)] { return sdpa(q, k, v, 0.125, {}, {}, causal); };
    };
  };
  s.add("attention f32 8x1024x64, causal", bytes, full / 2, forward(Causal::kTopLeft, BP_F32));
  s.add("attention f32 8x1024x64", bytes, full, forward(Causal::kNone, BP_F32));
  s.add("attention bf16 8x1024x64, causal", bytes / 2, full / 2,
        forward(Causal::kTopLeft, BP_BF16));
  s.add("attention backward f32 8x1024x64, causal", 2 * bytes, full / 2 * 2.5, [=] {
    const Tensor q = input(shape, 0), k = input(shape, 1), v = input(shape, 2);
    Tensor lse;
    const Tensor y = sdpa(q, k, v, 0.125, {}, {}, Causal::kTopLeft, &lse);
    return [=, g = input(shape, 3)] {
      Tensor grad_k, grad_v;
      return sdpa_backward(g, q, k, v, y, lse, 0.125, {}, {}, Causal::kTopLeft, &grad_k, &grad_v);
    };
  });
  s.add("rope f32 8x12x512x64", 8.0 * 8 * 12 * 512 * 64, 3.0 * 8 * 12 * 512 * 64, [] {
    const Shape x = {8, 12, 512, 64}, angles = {8, 12, 512, 32};
    return [x = input(x), c = input({512, 32}, 1).expand(angles),
            t = input({512, 32}, 2).expand(angles)] { return rope(x, c, t); };
  });
  add_more_attention(s);
  add_more_rope(s);
}

}  // namespace bp::bench
