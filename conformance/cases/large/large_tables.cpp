// Large calls of tables and lists, of order and attention, of optimizers, and of random numbers.
#include "conformance/cases/large/large_builder.hpp"
#include "conformance/cases/ops/op_oracles.hpp"

namespace bp::conformance {
namespace {

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

constexpr LargeOp kOps[] = {
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

}  // namespace

std::span<const LargeOp> large_table_ops() { return kOps; }

}  // namespace bp::conformance
