#include "runtime/bench/peers/backplane/suite.hpp"

namespace bp::bench {
namespace {

void add_sums(Suite& s) {
  s.add("sum bf16 4096x1024, axis 1", 2.0 * kMany, kMany,
        [] { return [x = input(kSquare, 0, BP_BF16)] { return sum(x, {1}); }; });
  s.add("mean f16 4096x1024, axis 0", 2.0 * kMany, kMany,
        [] { return [x = input(kSquare, 0, BP_F16)] { return mean(x, {0}); }; });
  s.add("sum f32 1000003x3, axis 1", 16.0 * kOdd, 3.0 * kOdd, [] {
    return [x = input({kOdd, 3})] { return sum(x, {1}); };
  });
  s.add("sum f32 8x64x56x56, axes 0, 2 and 3", 4.0 * 8 * 64 * 56 * 56, 8.0 * 64 * 56 * 56, [] {
    return [x = input({8, 64, 56, 56})] { return sum(x, {0, 2, 3}); };
  });
  s.add("sum i64 1000003", 8.0 * kOdd, kOdd,
        [] { return [x = indices({kOdd}, 1000)] { return sum(x); }; });
}

void add_other_reductions(Suite& s) {
  s.add("prod f32 4096x1024, axis 1", 4.0 * kMany, kMany,
        [] { return [x = near_one(kSquare)] { return prod(x, {1}); }; });
  s.add("any bool 4096x1024, axis 1", kMany, 0,
        [] { return [x = lt(input(kSquare), -0.499)] { return any(x, {1}); }; });
  s.add("count_nonzero f32 4194304", 4.0 * kMany, kMany,
        [] { return [x = relu(input({kMany}))] { return count_nonzero(x); }; });
  s.add("amax bf16 4096x1024, axis 1", 2.0 * kMany, kMany,
        [] { return [x = input(kSquare, 0, BP_BF16)] { return amax(x, {1}); }; });
  s.add("amin f32 4194304", 4.0 * kMany, kMany,
        [] { return [x = input({kMany})] { return amin(x); }; });
  s.add("argmin f32 4096x1024, axis 0", 4.0 * kMany, kMany,
        [] { return [x = input(kSquare)] { return argmin(x, 0); }; });
  for (const int64_t axis : {0, 1}) {
    const std::string where = " f32 4096x1024, axis " + std::to_string(axis);
    s.add("var" + where, 4.0 * kMany, 3.0 * kMany,
          [axis] { return [x = input(kSquare), axis] { return var(x, {axis}); }; });
    s.add("norm" + where, 4.0 * kMany, 2.0 * kMany,
          [axis] { return [x = input(kSquare), axis] { return norm(x, {axis}); }; });
  }
}

void add_scans(Suite& s) {
  for (const int64_t axis : {0, 1}) {
    s.add("cumsum f32 4096x1024, axis " + std::to_string(axis), 8.0 * kMany, kMany,
          [axis] { return [x = input(kSquare), axis] { return cumsum(x, axis); }; });
  }
  s.add("cumsum f32 1000003", 8.0 * kOdd, kOdd,
        [] { return [x = input({kOdd})] { return cumsum(x, 0); }; });
  s.add("cumsum i64 1000003", 16.0 * kOdd, kOdd,
        [] { return [x = indices({kOdd}, 1000)] { return cumsum(x, 0); }; });
  s.add("cumsum bf16 4096x1024, axis 1", 4.0 * kMany, kMany,
        [] { return [x = input(kSquare, 0, BP_BF16)] { return cumsum(x, 1); }; });
  s.add("cumprod f32 4096x1024, axis 1", 8.0 * kMany, kMany,
        [] { return [x = near_one(kSquare)] { return cumprod(x, 1); }; });
  s.add("logcumsumexp f32 4096x1024, axis 1", 8.0 * kMany, 4.0 * kMany,
        [] { return [x = input(kSquare)] { return logcumsumexp(x, 1); }; });
  s.add("cummax f32 4096x1024, axis 1", 16.0 * kMany, kMany, [] {
    return [x = input(kSquare)] {
      Tensor places;
      return cummax(x, 1, &places);
    };
  });
}

void add_orders(Suite& s) {
  s.add("sort i64 1000003", 24.0 * kOdd, 20.0 * kOdd, [] {
    return [x = indices({kOdd}, kOdd)] {
      Tensor places;
      return sort(x, 0, false, &places);
    };
  });
  s.add("sort f32 64x32000, descending", 16.0 * 64 * 32000, 15.0 * 64 * 32000, [] {
    return [x = input({64, 32000})] {
      Tensor places;
      return sort(x, 1, true, &places);
    };
  });
  s.add("topk f32 1x128256, 50", 4.0 * 128256, 2.0 * 128256, [] {
    return [x = input({1, 128256})] {
      Tensor places;
      return topk(x, 50, 1, true, &places);
    };
  });
}

}  // namespace

void add_reductions(Suite& s) {
  constexpr double kElements = kMany;
  s.add("sum f32 16777216", 4.0 * (1 << 24), 1 << 24,
        [] { return [x = input({1 << 24})] { return sum(x); }; });
  for (const int64_t axis : {0, 1}) {
    s.add("sum f32 4096x1024, axis " + std::to_string(axis), 4 * kElements, kElements, [axis] {
      return [x = input({4096, 1024}), axis] { return sum(x, {axis}); };
    });
  }
  s.add("mean f32 64x128x512, axis 1", 4 * kElements, kElements, [] {
    return [x = input({64, 128, 512})] { return mean(x, {1}); };
  });
  s.add("sum f32 4096x1024 transposed, axis 1", 4 * kElements, kElements, [] {
    return [x = input({1024, 4096}).transpose()] { return sum(x, {1}); };
  });
  s.add("amax f32 4096x1024, axis 0", 4 * kElements, kElements, [] {
    return [x = input({4096, 1024})] { return amax(x, {0}); };
  });
  for (const int64_t axis : {0, 1}) {
    const std::string name = "logsumexp f32 4096x1024, axis " + std::to_string(axis);
    s.add(name, 4 * kElements, 4 * kElements, [axis] {
      return [x = input({4096, 1024}), axis] { return logsumexp(x, {axis}); };
    });
  }
  s.add("argmax f32 4096x1024, axis 1", 4 * kElements, kElements, [] {
    return [x = input({4096, 1024})] { return argmax(x, 1); };
  });
  s.add("sort f32 1000x1000", 16e6, 16e6, [] {
    return [x = input({1000, 1000})] {
      Tensor places;
      return sort(x, 1, false, &places);
    };
  });
  s.add("sort f32 1000003", 16.0 * 1000003, 16.0 * 1000003, [] {
    return [x = input({1000003})] {
      Tensor places;
      return sort(x, 0, false, &places);
    };
  });
  s.add("topk f32 4096x1024, 10", 4 * kElements, 8 * kElements, [] {
    return [x = input({4096, 1024})] {
      Tensor places;
      return topk(x, 10, 1, true, &places);
    };
  });
  add_sums(s);
  add_other_reductions(s);
  add_scans(s);
  add_orders(s);
}

}  // namespace bp::bench
