// Large calls of the ops whose results depend on whole lines, matrices or tables.
//
// For each op there is a small call, and the extents to which the axes grow on which its results do
// not depend. Axes that a kernel adds over or searches are as long in the period as in the call.
#include "conformance/cases/large/large_rows.hpp"

#include <algorithm>
#include <iterator>
#include <set>

#include "conformance/cases/ops/op_oracles.hpp"
#include "conformance/reference/reductions.hpp"

namespace bp::conformance {
namespace {

constexpr int64_t kRows = 66'067;  // More than 65,535 blocks of a launch, and not whole blocks.
constexpr int64_t kAbove16 = (int64_t{1} << 16) + 29;
constexpr int64_t kAbove20 = (int64_t{1} << 20) + 13;
constexpr int64_t kAbove24 = (int64_t{1} << 24) + 7;

// Makes the calls of an op and a dtype.
class Builder {
 public:
  Builder(const OpCase& model, bp_dtype dtype, std::vector<LargeCall>& calls)
      : model_(model), dtype_(dtype), calls_(calls) {}

  uint32_t op() const { return model_.op; }
  bp_dtype dtype() const { return dtype_; }

  // Begins a call. Only f32 has calls at tier smoke: other dtypes have them at tier quick.
  Builder& start(const std::string& what, Tier tier) {
    const Tier own = dtype_ == BP_F32 || tier == Tier::kFull ? tier : Tier::kQuick;
    calls_.push_back(start_large(model_, what, own));
    return *this;
  }
  Builder& in(std::string_view name, const Shape& period, const Shape& large, Fill fill = kRandom,
              bp_dtype dtype = 0) {
    const bool is_random = fill.kind == FillKind::kUniform && !is_float(dtype_);
    call().period.input(name, dtype == 0 ? dtype_ : dtype, period, is_random ? kExactDense : fill);
    call().growths.push_back({large});
    return *this;
  }
  // Indices below `end` that the large call spreads over the places below `large_end` with the same
  // data.
  Builder& indices(std::string_view name, const Shape& period, const Shape& large, int64_t end,
                   int64_t large_end) {
    call().period.input(name, BP_I64, period, index_fill(end));
    call().growths.push_back({large, large_end == end ? 0 : end, large_end});
    return *this;
  }
  Builder& out(std::string_view name, const Shape& period, const Shape& large, bp_dtype dtype = 0) {
    call().period.output(name, dtype == 0 ? dtype_ : dtype, period);
    call().growths.push_back({large});
    return *this;
  }
  Builder& inout(std::string_view name, const Shape& period, const Shape& large,
                 Fill fill = kRandom) {
    call().period.inout(name, dtype_, period, fill);
    call().growths.push_back({large});
    return *this;
  }
  // The inputs of the model that follow from others do not follow in this call.
  Builder& derive_nothing() {
    call().period.derive = nullptr;
    return *this;
  }
  // Sets an attribute, or replaces that of the model.
  template <typename T>
  Builder& set(std::string_view name, T value) {
    std::erase_if(call().period.attributes, [&](const Attribute& a) { return a.name == name; });
    call().period.set(name, std::move(value));
    return *this;
  }

 private:
  LargeCall& call() { return calls_.back(); }

  const OpCase& model_;
  bp_dtype dtype_;
  std::vector<LargeCall>& calls_;
};

// A matrix of which the rows repeat, or which is not repeated.
struct Plane {
  const char* name;
  Shape period, large;
  Tier tier;
};

// Lines along the last axis: many short ones, some long ones, and one that no block holds.
const Plane kLines[] = {
    {"rows", {7, 17}, {kRows, 17}, Tier::kSmoke},
    {"long_rows", {3, 8209}, {131, 8209}, Tier::kQuick},
    {"row", {1, kAbove16}, {1, kAbove16}, Tier::kQuick},
    {"many_rows", {7, 17}, {kAbove20, 17}, Tier::kFull},
    {"longest_row", {1, kAbove20}, {1, kAbove20}, Tier::kFull},
};

void add_reduction(Builder& b) {
  const auto add = [&](const Plane& plane, int64_t axis, Fill fill) {
    const auto kept = static_cast<size_t>(1 - axis);
    const bool gives_index = b.op() == BP_OP_ARGMAX;
    const bool gives_i64 = gives_index || (b.op() == BP_OP_SUM && !is_float(b.dtype()));
    b.start(plane.name, plane.tier).in("x", plane.period, plane.large, fill);
    b.out("y", {plane.period[kept]}, {plane.large[kept]}, gives_i64 ? BP_I64 : 0);
    if (gives_index) b.set("axis", axis);
    if (!gives_index) b.set("axes", Shape{axis});
    b.set("keepdims", int64_t{0});
  };
  for (const Plane& plane : kLines) add(plane, 1, kRandom);
  add({"columns", {17, 1031}, {17, kRows}, Tier::kSmoke}, 0, kRandom);
  add({"long_columns", {8209, 3}, {8209, 131}, Tier::kQuick}, 0, kRandom);
  add({"column", {kAbove16, 3}, {kAbove16, 3}, Tier::kQuick}, 0, kRandom);
}

void add_softmax(Builder& b) {
  for (const Plane& plane : kLines) {
    b.start(plane.name, plane.tier).in("x", plane.period, plane.large, {FillKind::kUniform, -4, 4});
    b.out("y", plane.period, plane.large).set("axis", int64_t{1});
  }
  b.start("columns", Tier::kQuick).in("x", {17, 1031}, {17, kRows}, {FillKind::kUniform, -4, 4});
  b.out("y", {17, 1031}, {17, kRows}).set("axis", int64_t{0});
}

void add_softmax_backward(Builder& b) {
  for (const Plane& plane : kLines) {
    b.start(plane.name, plane.tier).in("grad_y", plane.period, plane.large);
    b.in("y", plane.period, plane.large, {FillKind::kUniform, -4, 4});
    b.out("grad_x", plane.period, plane.large).set("axis", int64_t{1});
  }
}

bool has_mean(const Builder& b) {
  return b.op() == BP_OP_LAYER_NORM || b.op() == BP_OP_LAYER_NORM_BACKWARD;
}

void add_norm(Builder& b) {
  for (const Plane& plane : kLines) {
    const Shape width = {plane.period[1]}, rows = {plane.period[0]}, large = {plane.large[0]};
    b.start(plane.name, plane.tier).in("x", plane.period, plane.large).in("gamma", width, width);
    if (has_mean(b)) b.in("beta", width, width);
    b.out("y", plane.period, plane.large);
    if (has_mean(b)) b.out("mean", rows, large, accumulator_of(b.dtype()));
    b.out("rstd", rows, large, accumulator_of(b.dtype()));
    b.set("normalized_ndim", int64_t{1}).set("eps", 1e-5);
  }
}

// The gradients of the weights are sums over all rows, and do not repeat.
void add_norm_backward(Builder& b) {
  for (const Plane& plane : kLines) {
    const Shape width = {plane.period[1]}, rows = {plane.period[0]}, large = {plane.large[0]};
    b.start(plane.name, plane.tier).in("grad_y", plane.period, plane.large);
    b.in("x", plane.period, plane.large).in("gamma", width, width);
    if (has_mean(b)) b.in("mean", rows, large, {}, accumulator_of(b.dtype()));
    b.in("rstd", rows, large, {}, accumulator_of(b.dtype()));
    b.out("grad_x", plane.period, plane.large);
    b.set("normalized_ndim", int64_t{1}).set("eps", 1e-5);
  }
}

void add_cross_entropy(Builder& b) {
  const bool is_backward = b.op() == BP_OP_CROSS_ENTROPY_BACKWARD;
  for (const Plane& plane : kLines) {
    const Shape rows = {plane.period[0]}, large = {plane.large[0]};
    b.start(plane.name, plane.tier);
    if (is_backward) b.in("grad_y", rows, large);
    b.in("x", plane.period, plane.large, {FillKind::kUniform, -4, 4});
    b.indices("target", rows, large, plane.period[1], plane.period[1]);
    if (is_backward) b.in("lse", rows, large, {}, accumulator_of(b.dtype()));
    b.out(is_backward ? "grad_x" : "y", is_backward ? plane.period : rows,
          is_backward ? plane.large : large);
    b.set("ignore_index", int64_t{-100}).set("label_smoothing", 0.1);
    b.set("reduction", int64_t{BP_CROSS_ENTROPY_REDUCTION_NONE});
  }
}

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

void set_pool(Builder& b, const Pools& p) {
  const bool is_max = b.op() == BP_OP_MAX_POOL;
  const bool is_average = b.op() == BP_OP_AVG_POOL || b.op() == BP_OP_AVG_POOL_BACKWARD;
  if (b.op() == BP_OP_MAX_POOL_BACKWARD || b.op() == BP_OP_AVG_POOL_BACKWARD) {
    b.set("input_size", Shape{p.size, p.size});
  }
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

// ---- Tables and lists ------------------------------------------------------------------------ //

// A table of rows, of which `count` are named.
struct Table {
  const char* name;
  int64_t rows, large_rows, width, count, large_count;
  Tier tier;
};

const Table kTables[] = {
    {"table", 67, kRows, 9, 1031, 5011, Tier::kSmoke},
    {"many_indices", 67, 6701, 3, 1031, kRows, Tier::kQuick},
    {"large_table", 67, kAbove20, 3, 1031, 70'001, Tier::kQuick},
    {"largest_table", 67, kAbove24, 3, 1031, kAbove20, Tier::kFull},
};

void add_embedding(Builder& b) {
  for (const Table& t : kTables) {
    b.start(t.name, t.tier).in("weight", {t.rows, t.width}, {t.large_rows, t.width}, kCoord);
    b.indices("indices", {t.count}, {t.large_count}, t.rows, t.large_rows);
    b.out("y", {t.count, t.width}, {t.large_count, t.width});
  }
}

void add_embedding_backward(Builder& b) {
  for (const bool is_wide : {true, false}) {
    const int64_t count = is_wide ? 33 : kAbove16, width = is_wide ? 1031 : 3;
    const int64_t large = is_wide ? kRows : 3;
    b.start(is_wide ? "width" : "many_indices", is_wide ? Tier::kSmoke : Tier::kQuick);
    b.in("grad_y", {count, width}, {count, large}).indices("indices", {count}, {count}, 7, 7);
    b.out("grad_weight", {7, width}, {7, large}).set("num_embeddings", int64_t{7});
  }
}

void add_index_select(Builder& b) {
  for (const Table& t : kTables) {
    b.start(t.name, t.tier).in("x", {t.rows, t.width}, {t.large_rows, t.width}, kCoord);
    b.indices("indices", {t.count}, {t.large_count}, t.rows, t.large_rows);
    b.out("y", {t.count, t.width}, {t.large_count, t.width}).set("axis", int64_t{0});
  }
}

void add_gather(Builder& b) {
  for (const Table& t : kTables) {
    b.start(t.name, t.tier).in("x", {t.rows, t.width}, {t.large_rows, t.width}, kCoord);
    b.indices("indices", {t.count, t.width}, {t.large_count, t.width}, t.rows, t.large_rows);
    b.out("y", {t.count, t.width}, {t.large_count, t.width}).set("axis", int64_t{0});
  }
}

void add_scatter(Builder& b) {
  const auto add = [&](const char* name, Tier tier, const Shape& x, const Shape& large_x,
                       const Shape& src, const Shape& large_src, int64_t axis) {
    const int64_t end = x[static_cast<size_t>(axis)];
    b.start(name, tier).in("x", x, large_x, kExactDense);
    b.indices("indices", src, large_src, end, end).in("src", src, large_src, kExactDense);
    b.out("y", x, large_x).set("axis", axis);
    if (b.op() != BP_OP_SCATTER_REDUCE) return;
    b.set("reduction", int64_t{BP_SCATTER_REDUCE_REDUCTION_SUM});
  };
  add("columns", Tier::kSmoke, {5, 1031}, {5, kRows}, {9, 1031}, {9, kRows}, 0);
  add("rows", Tier::kQuick, {1031, 5}, {kRows, 5}, {1031, 9}, {kRows, 9}, 1);
  add("long_row", Tier::kQuick, {1, kAbove16}, {1, kAbove16}, {1, 7001}, {1, 7001}, 1);
}

// A list of 60 tensors, and tensors with many elements.
void add_cat(Builder& b) {
  const auto add = [&](const char* name, Tier tier, int count, const Shape& x, const Shape& large,
                       int64_t axis) {
    b.start(name, tier);
    Shape y = x, large_y = large;
    for (int i = 0; i < count; ++i) b.in("xs", x, large, kCoord);
    y[static_cast<size_t>(axis)] *= count;
    large_y[static_cast<size_t>(axis)] *= count;
    b.out("y", y, large_y).set("axis", axis);
  };
  add("list60", Tier::kSmoke, 60, {1, 257}, {1, 5003}, 0);
  add("list60_last", Tier::kQuick, 60, {67, 3}, {6701, 3}, 1);
  add("large", Tier::kQuick, 3, {1, 1031}, {1, 350'003}, 0);
  add("largest", Tier::kFull, 3, {1, 1031}, {1, kAbove24}, 0);
}

// The first axis of a result counts, and does not repeat: the whole line is the period.
void add_arange(Builder& b) {
  b.start("count", Tier::kSmoke).out("y", {kAbove16}, {kAbove16});
  b.set("start", integer_scalar(5)).set("step", integer_scalar(3));
  if (is_float(b.dtype())) b.set("start", float_scalar(5)).set("step", float_scalar(0.25));
  b.start("long_count", Tier::kQuick).out("y", {kAbove20}, {kAbove20});
  b.set("start", integer_scalar(-7)).set("step", integer_scalar(3));
  if (is_float(b.dtype())) b.set("start", float_scalar(-7)).set("step", float_scalar(0.25));
}

// ---- Order ----------------------------------------------------------------------------------- //

void add_order(Builder& b) {
  const bool is_sort = b.op() == BP_OP_SORT;
  for (const Plane& plane : kLines) {
    const auto chosen = [&](Shape shape) {
      if (!is_sort) shape[1] = 5;
      return shape;
    };
    b.start(plane.name, plane.tier).in("x", plane.period, plane.large);
    b.out("y", chosen(plane.period), chosen(plane.large));
    b.out("indices", chosen(plane.period), chosen(plane.large), BP_I64);
    b.set("axis", int64_t{1}).set(is_sort ? "is_descending" : "is_largest", int64_t{1});
    if (!is_sort) b.set("k", int64_t{5});
  }
}

// ---- Attention ------------------------------------------------------------------------------- //

// Queries repeat if none is masked by its place. Heads repeat together.
void add_sdpa(Builder& b) {
  struct Size {
    const char* name;
    int64_t heads, large_heads, queries, large_queries, keys, width;
    Tier tier;
  };
  const Size sizes[] = {
      {"keys", 1, 3, 3, 67, 1031, 33, Tier::kSmoke},
      {"queries", 1, 1, 7, 16'411, 33, 17, Tier::kQuick},
      {"heads", 31, 1031, 3, 3, 9, 5, Tier::kQuick},
      {"large", 1, 17, 3, 1031, 4099, 65, Tier::kFull},
  };
  for (const Size& s : sizes) {
    b.start(s.name, s.tier);
    b.in("q", {1, s.heads, s.queries, s.width}, {1, s.large_heads, s.large_queries, s.width});
    b.in("k", {1, s.heads, s.keys, s.width}, {1, s.large_heads, s.keys, s.width});
    b.in("v", {1, s.heads, s.keys, s.width}, {1, s.large_heads, s.keys, s.width});
    b.out("y", {1, s.heads, s.queries, s.width}, {1, s.large_heads, s.large_queries, s.width});
    b.out("lse", {1, s.heads, s.queries}, {1, s.large_heads, s.large_queries},
          accumulator_of(b.dtype()));
    b.set("scale", 0.25).set("causal", int64_t{0});
  }
}

// Heads repeat, and the gradients of their keys with them.
void add_sdpa_backward(Builder& b) {
  struct Size {
    const char* name;
    int64_t heads, large_heads, queries, keys, width;
    Tier tier;
  };
  const Size sizes[] = {
      {"heads", 5, 131, 9, 17, 5, Tier::kSmoke},
      {"many_heads", 5, 4099, 9, 17, 5, Tier::kQuick},
      {"keys", 1, 3, 17, 1031, 9, Tier::kQuick},
  };
  for (const Size& s : sizes) {
    const Shape q = {1, s.heads, s.queries, s.width}, k = {1, s.heads, s.keys, s.width};
    Shape large_q = q, large_k = k;
    large_q[1] = large_k[1] = s.large_heads;
    b.start(s.name, s.tier).in("grad_y", q, large_q).in("q", q, large_q);
    b.in("k", k, large_k).in("v", k, large_k).in("y", q, large_q, {});
    b.in("lse", {1, s.heads, s.queries}, {1, s.large_heads, s.queries}, {},
         accumulator_of(b.dtype()));
    b.out("grad_q", q, large_q).out("grad_k", k, large_k).out("grad_v", k, large_k);
    b.set("scale", 0.25).set("causal", int64_t{0});
  }
}

void add_rope(Builder& b) {
  const bool is_backward = b.op() == BP_OP_ROPE_BACKWARD;
  const bp_dtype angle = accumulator_of(b.dtype());
  const Plane planes[] = {
      {"rows", {31, 18}, {kRows, 18}, Tier::kSmoke},
      {"long_rows", {3, 8210}, {131, 8210}, Tier::kQuick},
  };
  for (const Plane& plane : planes) {
    const Shape angles = {plane.period[0], plane.period[1] / 2};
    const Shape large = {plane.large[0], plane.large[1] / 2};
    b.start(plane.name, plane.tier).in(is_backward ? "grad_y" : "x", plane.period, plane.large);
    b.in("cos", angles, large, kRandom, angle).in("sin", angles, large, kRandom, angle);
    b.out(is_backward ? "grad_x" : "y", plane.period, plane.large);
  }
}

// ---- Lists of parameters --------------------------------------------------------------------- //

constexpr int kParameters = 60;

// Parameters of different sizes, so that a kernel that walks a list meets each kind of end.
template <typename Add>
void for_each_parameter(Add add) {
  for (int64_t i = 0; i < kParameters; ++i) {
    const Shape period = {67};
    add(period, Shape{i % 7 == 0 ? 20'011 + i : 67 + 130 * i});
  }
}

void add_sgd(Builder& b) {
  b.start("list60", Tier::kSmoke);
  for_each_parameter([&](const Shape& p, const Shape& n) { b.inout("params", p, n); });
  for_each_parameter([&](const Shape& p, const Shape& n) { b.inout("momentum_buffers", p, n); });
  for_each_parameter([&](const Shape& p, const Shape& n) { b.in("grads", p, n); });
  b.set("lr", float_scalar(0.1)).set("step", integer_scalar(3)).set("momentum", 0.9);
  b.set("dampening", 0.0).set("weight_decay", 0.01).set("nesterov", int64_t{0});
}

void add_adamw(Builder& b) {
  b.start("list60", Tier::kSmoke);
  for_each_parameter([&](const Shape& p, const Shape& n) { b.inout("params", p, n); });
  for_each_parameter([&](const Shape& p, const Shape& n) { b.inout("exp_avg", p, n); });
  for_each_parameter(
      [&](const Shape& p, const Shape& n) { b.inout("exp_avg_sq", p, n, kPositive); });
  for_each_parameter([&](const Shape& p, const Shape& n) { b.in("grads", p, n); });
  b.set("lr", float_scalar(0.01)).set("step", integer_scalar(3)).set("weight_decay", 0.01);
}

// ---- Random numbers -------------------------------------------------------------------------- //

// An element follows from its number, so nothing repeats, and the oracle makes them all.
void add_random(Builder& b) {
  const bool is_forward = b.op() == BP_OP_DROPOUT;
  const bool is_dropout = is_forward || b.op() == BP_OP_DROPOUT_BACKWARD;
  // The oracle of normal needs 50 microseconds for a number.
  const bool is_slow = b.op() == BP_OP_NORMAL;
  for (const int64_t n : {kAbove16, kAbove20}) {
    const Tier tier = n == kAbove16 ? Tier::kSmoke : Tier::kQuick;
    const Tier later = n == kAbove16 ? Tier::kQuick : Tier::kFull;
    b.start(n == kAbove16 ? "elements" : "many_elements", is_slow ? later : tier);
    if (is_dropout) b.in(is_forward ? "x" : "grad_y", {n}, {n}).set("p", 0.25);
    b.out(is_dropout && !is_forward ? "grad_x" : "y", {n}, {n});
    b.set("seed", unsigned_scalar(42)).set("offset", unsigned_scalar(7));
  }
}

struct LargeOp {
  uint32_t op;
  void (*add)(Builder&);
};

constexpr LargeOp kOps[] = {
    {BP_OP_ARGMAX, add_reduction},
    {BP_OP_SOFTMAX, add_softmax},
    {BP_OP_LOG_SOFTMAX, add_softmax},
    {BP_OP_SOFTMAX_BACKWARD, add_softmax_backward},
    {BP_OP_LOG_SOFTMAX_BACKWARD, add_softmax_backward},
    {BP_OP_LAYER_NORM, add_norm},
    {BP_OP_RMS_NORM, add_norm},
    {BP_OP_LAYER_NORM_BACKWARD, add_norm_backward},
    {BP_OP_RMS_NORM_BACKWARD, add_norm_backward},
    {BP_OP_CROSS_ENTROPY, add_cross_entropy},
    {BP_OP_CROSS_ENTROPY_BACKWARD, add_cross_entropy},
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
    {BP_OP_EMBEDDING, add_embedding},
    {BP_OP_EMBEDDING_BACKWARD, add_embedding_backward},
    {BP_OP_INDEX_SELECT, add_index_select},
    {BP_OP_GATHER, add_gather},
    {BP_OP_SCATTER, add_scatter},
    {BP_OP_SCATTER_REDUCE, add_scatter},
    {BP_OP_CAT, add_cat},
    {BP_OP_ARANGE, add_arange},
    {BP_OP_SORT, add_order},
    {BP_OP_TOPK, add_order},
    {BP_OP_SDPA, add_sdpa},
    {BP_OP_SDPA_BACKWARD, add_sdpa_backward},
    {BP_OP_ROPE, add_rope},
    {BP_OP_ROPE_BACKWARD, add_rope},
    {BP_OP_SGD_STEP, add_sgd},
    {BP_OP_ADAMW_STEP, add_adamw},
    {BP_OP_RANDOM_BITS, add_random},
    {BP_OP_UNIFORM, add_random},
    {BP_OP_NORMAL, add_random},
    {BP_OP_DROPOUT, add_random},
    {BP_OP_DROPOUT_BACKWARD, add_random},
};

std::vector<LargeOp> large_ops() {
  std::vector<LargeOp> ops;
  for (const reductions::Row& row : reductions::kRows) ops.push_back({row.op, add_reduction});
  ops.insert(ops.end(), std::begin(kOps), std::end(kOps));
  return ops;
}

// Returns the first dense row of the op and the dtype that is a right call and needs no later part
// of the spec. Its oracle, derived inputs and further attributes are those of the large calls.
const OpCase* model_of(const OpCases& rows, uint32_t op, bp_dtype dtype) {
  const auto found = std::ranges::find_if(rows, [&](const OpCase& row) {
    return row.op == op && row.dtype == dtype_text(dtype) && row.layout == "dense" &&
           !row.fails_on_device && row.optional_part.empty();
  });
  return found == rows.end() ? nullptr : &*found;
}

constexpr bp_dtype kDtypes[] = {BP_F32, BP_F16, BP_BF16, BP_I32};

}  // namespace

LargeCall start_large(const OpCase& model, const std::string& detail, Tier tier) {
  LargeCall call{model, {}, tier};
  call.period.fill = "large";
  call.period.detail = detail;
  call.period.tensors.clear();
  call.period.is_exact = false;
  return call;
}

std::vector<LargeCall> large_calls(const OpCases& rows) {
  std::vector<LargeCall> calls;
  add_large_elements(rows, calls);
  for (const LargeOp& op : large_ops()) {
    for (const bp_dtype dtype : kDtypes) {
      const OpCase* const model = model_of(rows, op.op, dtype);
      if (model == nullptr) continue;
      Builder builder(*model, dtype, calls);
      op.add(builder);
    }
  }
  return calls;
}

}  // namespace bp::conformance
