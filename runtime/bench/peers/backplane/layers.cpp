// The layers of models that are no family of their own: experts, recurrent cells and codes.
#include "runtime/bench/peers/backplane/suite.hpp"

namespace bp::bench {
namespace {

void add_experts(Suite& s) {
  constexpr int64_t kTokens = 4096, kWidth = 1024;
  s.add("moe_route f32 4096x64, 8", 4.0 * kTokens * 64 + 12.0 * kTokens * 8, 6.0 * kTokens * 64,
        [] {
          return [x = input({kTokens, 64})] {
            Tensor experts;
            return moe_route(x, 8, {}, Scoring::kSoftmax, false, 0, &experts);
          };
        });
  s.add("moe_permute bf16 4096x1024, 2 of 8", 2.0 * 3 * kTokens * kWidth, 0, [] {
    return [x = input({kTokens, kWidth}, 0, BP_BF16), e = indices({kTokens, 2}, 8)] {
      return moe_permute(x, e, 8);
    };
  });
  s.add("moe_unpermute f32 4096x1024, 2", 4.0 * 3 * kTokens * kWidth, 3.0 * kTokens * kWidth, [] {
    return [x = input({2 * kTokens, kWidth}), places = indices({kTokens, 2}, 2 * kTokens),
            w = input({kTokens, 2}, 1)] { return moe_unpermute(x, places, w); };
  });
}

void add_cells(Suite& s) {
  constexpr int64_t kRows = 64, kWidth = 512;
  const double weight = 2.0 * kWidth * kWidth;
  const Shape state = {kRows, kWidth};
  s.add("lstm_cell f32 64x512", 4 * (4 * weight + 5 * size_of(state)), 2 * 4 * weight * kRows, [=] {
    return [x = input(state), h = input(state, 1), c = input(state, 2),
            w = input({4 * kWidth, kWidth}, 3), r = input({4 * kWidth, kWidth}, 4),
            b = input({4 * kWidth}, 5)] {
      Tensor next;
      return lstm_cell(x, h, c, w, r, b, &next);
    };
  });
  s.add("gru_cell f32 64x512", 4 * (3 * weight + 3 * size_of(state)), 2 * 3 * weight * kRows, [=] {
    return [x = input(state), h = input(state, 1), w = input({3 * kWidth, kWidth}, 3),
            r = input({3 * kWidth, kWidth}, 4), b = input({3 * kWidth}, 5),
            rb = input({3 * kWidth}, 6)] { return gru_cell(x, h, w, r, b, rb); };
  });
}

void add_codes(Suite& s) {
  constexpr double kStep = kLargestInput / 127;
  s.add("quantize f32 to i8 4096x1024, per row", 5.0 * kMany, 2.0 * kMany, [] {
    return [x = input(kSquare), scale = full({4096, 1}, kStep, BP_F32)] {
      return quantize(x, scale, BP_I8);
    };
  });
  s.add("dequantize i8 to f32 4096x1024, per row", 5.0 * kMany, kMany, [] {
    const Tensor scale = full({4096, 1}, kStep, BP_F32);
    return [x = quantize(input(kSquare), scale, BP_I8), scale] { return dequantize(x, scale); };
  });
  s.add("fake_quantize f32 4096x1024", 8.0 * kMany, 4.0 * kMany, [] {
    return [x = input(kSquare), scale = scalar(0.01, BP_F32).expand(kSquare)] {
      return fake_quantize(x, scale);
    };
  });
  s.add("fake_quantize f32 4096x1024, per row", 8.0 * kMany, 4.0 * kMany, [] {
    return [x = input(kSquare), scale = full({4096, 1}, 0.01, BP_F32).expand(kSquare)] {
      return fake_quantize(x, scale);
    };
  });
}

}  // namespace

void add_layers(Suite& s) {
  add_experts(s);
  add_cells(s);
  add_codes(s);
}

}  // namespace bp::bench
