#include "runtime/bench/peers/backplane/suite.hpp"

namespace bp::bench {
namespace {

void add_casts(Suite& s) {
  const std::pair<bp_dtype, bp_dtype> rows[] = {
      {BP_F32, BP_F16}, {BP_BF16, BP_F32}, {BP_F16, BP_F32}, {BP_F32, BP_I32}, {BP_F32, BP_F64}};
  for (const auto& [from, to] : rows) {
    s.add("cast " + dtype_text(from) + " to " + dtype_text(to) + " 4194304",
          (width_of(from) + width_of(to)) * kMany, 0, [x_dtype = from, y_dtype = to] {
            return [x = input({kMany}, 0, x_dtype), y_dtype] { return copy(x, y_dtype); };
          });
  }
  s.add("cast i64 to f32 1000003", 12.0 * kOdd, 0,
        [] { return [x = indices({kOdd}, 1000)] { return copy(x, BP_F32); }; });
  s.add("cast u8 to f32 4194304", 5.0 * kMany, 0,
        [] { return [x = indices({kMany}, 256).to(BP_U8)] { return copy(x, BP_F32); }; });
}

void add_shifts(Suite& s) {
  s.add("pad f32 32x64x56x56, 1 on each side", 4.0 * 32 * 64 * (56 * 56 + 58 * 58), 0, [] {
    return [x = input({32, 64, 56, 56})] { return pad(pad(x, 0, 2, 1, 1), 0, 3, 1, 1); };
  });
  s.add("pad f32 4096x1000, 12 on each side", 4.0 * 4096 * 2024, 0, [] {
    return [x = input({4096, 1000})] { return pad(x, 0, 1, 12, 12); };
  });
  s.add("pad f32 16x64x2048, reflected 3", 4.0 * 16 * 64 * 4102, 0, [] {
    return [x = input({16, 64, 2048})] { return pad(x, 0, 2, 3, 3, PadMode::kReflect); };
  });
  s.add("flip f32 4096x1024, axis 1", 8.0 * kMany, 0,
        [] { return [x = input(kSquare)] { return flip(x, 1); }; });
  s.add("flip f32 4096x1024, axis 0", 8.0 * kMany, 0,
        [] { return [x = input(kSquare)] { return flip(x, 0); }; });
  s.add("roll f32 4096x1024 by 333, axis 1", 8.0 * kMany, 0,
        [] { return [x = input(kSquare)] { return roll(x, 333, 1); }; });
  s.add("tile f32 1024x512 8 times, axis 1", 4.0 * 9 * 1024 * 512, 0, [] {
    return [x = input({1024, 512})] { return tile(x, 8, 1); };
  });
  s.add("tril f32 16x512x512", 8.0 * 16 * 512 * 512, 0, [] {
    return [x = input({16, 512, 512})] { return tril(x); };
  });
  s.add("copy f32 4096x1 expanded to 4096x1024", 4.0 * kMany, 0, [] {
    return [x = input({4096, 1}).expand(kSquare)] { return x.clone(); };
  });
  s.add("cat bf16 2 of 2048x513, axis 1", 8.0 * 2048 * 513, 0, [] {
    return [xs = std::vector{input({2048, 513}, 0, BP_BF16), input({2048, 513}, 1, BP_BF16)}] {
      return cat(xs, 1);
    };
  });
  s.add("masked_fill f32 4x12x512x512, mask 512x512", 8.0 * 48 * 512 * 512, 0, [] {
    const Shape scores = {4, 12, 512, 512};
    return [x = input(scores), mask = lt(input({512, 512}, 1), 0).expand(scores)] {
      return masked_fill(x, mask, -1e4);
    };
  });
}

void add_scatters(Suite& s) {
  s.add("scatter f32 4096x1024, axis 1", 20.0 * kMany, 0, [] {
    return [x = input(kSquare), i = indices(kSquare, 1024), v = input(kSquare, 1)] {
      return scatter(x, i, v, 1);
    };
  });
  const double few = 4096.0 * 64, many = 65536.0 * 64;
  s.add("scatter_reduce sum f32 65536x64 into 4096x64, axis 0", 8 * few + 4 * many, many, [] {
    return
        [x = input({4096, 64}), v = input({65536, 64}, 1),
         i = indices({65536, 1}, 4096).expand({65536, 64})] { return scatter_reduce(x, i, v, 0); };
  });
  s.add("index_add f32 65536x64 into 4096x64", 8 * few + 4 * many, many, [] {
    return [x = input({4096, 64}), v = input({65536, 64}, 1), i = indices({65536}, 4096)] {
      return index_add(x, i, v, 0);
    };
  });
  s.add("index_put f32 4096x1024, 1024 rows", 8.0 * kMany + 4.0 * 1024 * 1024, 0, [] {
    return [x = input(kSquare), v = input({1024, 1024}, 1), i = indices({1024}, 4096)] {
      return index_put(x, i, v);
    };
  });
  s.add("index_put f32 4096x64, 65536 rows added", 8 * few + 4 * many, many, [] {
    return [x = input({4096, 64}), v = input({65536, 64}, 1), i = indices({65536}, 4096)] {
      return index_put(x, i, v, 1, true);
    };
  });
  s.add("kv_cache_append bf16 64x8x128 into 8x1024x8x128", 4.0 * 64 * 8 * 128, 0, [] {
    return [cache = input({8, 1024, 8, 128}, 0, BP_BF16), x = input({64, 8, 128}, 1, BP_BF16),
            slots = indices({64}, 8192)] {
      kv_cache_append_out(cache, cache, x, slots);
      return cache;
    };
  });
  s.add("one_hot i64 8192 of 1000", 8.0 * 8192 * 1001, 0,
        [] { return [i = indices({8192}, 1000)] { return one_hot(i, 1000); }; });
}

// The results of the first two have as many rows as are used, which the host must know.
void add_searches(Suite& s) {
  s.add("masked_select f32 4194304, a quarter", 6.0 * kMany, 0, [] {
    return [x = input({kMany}), mask = lt(input({kMany}, 1), 0)] {
      Tensor used;
      const Tensor y = masked_select(x, mask, &used);
      return y.narrow(0, 0, used.item<int64_t>());
    };
  });
  s.add("nonzero bool 1024x1024, a quarter", 5.0 * (1 << 20), 0, [] {
    return [x = lt(input({1024, 1024}), 0)] {
      Tensor used;
      const Tensor y = nonzero(x, &used);
      return y.narrow(0, 0, used.item<int64_t>());
    };
  });
  s.add("searchsorted f32 1000003 in 4096", 12.0 * kOdd + 4 * 4096, 12.0 * kOdd, [] {
    return [in = sort(input({4096}, 1), 0), x = input({kOdd})] { return searchsorted(in, x); };
  });
}

}  // namespace

void add_movement(Suite& s) {
  constexpr double kElements = kMany;
  s.add("copy f32 transposed 4096x1024", 8 * kElements, 0, [] {
    return [x = input({4096, 1024}).transpose()] { return x.clone(); };
  });
  s.add("copy bf16 transposed 4096x1024", 4 * kElements, 0, [] {
    return [x = input({4096, 1024}, 0, BP_BF16).transpose()] { return x.clone(); };
  });
  s.add("copy f32 8x512x12x64 to heads", 8.0 * 8 * 512 * 12 * 64, 0, [] {
    return [x = input({8, 512, 12, 64}).permute({0, 2, 1, 3})] { return x.clone(); };
  });
  s.add("copy f32 every second column", 8.0 * 2048 * 1024, 0, [] {
    return [x = input({2048, 2048}).slice(1, 0, 2048, 2)] { return x.clone(); };
  });
  s.add("cast f32 to bf16 4194304", 6 * kElements, 0,
        [] { return [x = input({1 << 22})] { return copy(x, BP_BF16); }; });
  s.add("cat f32 8 of 1024x128, axis 1", 8.0 * (1 << 20), 0, [] {
    std::vector<Tensor> xs;
    for (int64_t i = 0; i < 8; ++i) xs.push_back(input({1024, 128}, i));
    return [xs] { return cat(xs, 1); };
  });
  s.add("cat f32 4 of 1000x333, axis 0", 8.0 * 4 * 333000, 0, [] {
    std::vector<Tensor> xs;
    for (int64_t i = 0; i < 4; ++i) xs.push_back(input({1000, 333}, i));
    return [xs] { return cat(xs, 0); };
  });
  s.add("gather f32 4096x1024, axis 1", 16 * kElements, 0, [] {
    return [x = input({4096, 1024}), i = indices({4096, 1024}, 1024)] { return gather(x, i, 1); };
  });
  s.add("index_select f32 4096x1024, 2048 rows", 8.0 * 2048 * 1024, 0, [] {
    return [x = input({4096, 1024}), i = indices({2048}, 4096)] { return index_select(x, i, 0); };
  });
  s.add("embedding f32 32000x512, 8192", 8.0 * 8192 * 512, 0, [] {
    return [w = input({32000, 512}), i = indices({8192}, 32000)] { return embedding(w, i); };
  });
  s.add("embedding backward f32 8000x512, 8192", 4.0 * (8192 + 8000) * 512, 8192.0 * 512, [] {
    return [g = input({8192, 512}), i = indices({8192}, 8000)] {
      return embedding_backward(g, i, 8000);
    };
  });
  s.add("where f32 4096x1024", 13 * kElements, 0, [] {
    return [a = input({4096, 1024}), b = input({4096, 1024}, 1),
            c = lt(input({4096, 1024}, 2), 0)] { return where(c, a, b); };
  });
  add_casts(s);
  add_shifts(s);
  add_scatters(s);
  add_searches(s);
}

}  // namespace bp::bench
