// Cases of kv_cache_append and paged_attention. Cases of layouts follow by rule.
#include <algorithm>
#include <cmath>

#include "conformance/cases/ops/op_attention_bounds.hpp"
#include "conformance/cases/ops/op_families.hpp"
#include "conformance/cases/ops/op_oracles.hpp"
#include "conformance/reference/paged_attention.hpp"

namespace bp::conformance {
namespace {

using reference::PagedAttention;

// ---- kv_cache_append ------------------------------------------------------------------------- //

struct AppendRow {
  int64_t blocks, block_size, heads, width;
  Shape slots;

  Shape cache() const { return {blocks, block_size, heads, width}; }
  Shape x() const {
    Shape shape = slots;
    shape.insert(shape.end(), {heads, width});
    return shape;
  }
};

const std::vector<AppendRow>& append_rows() {
  static const std::vector<AppendRow> rows = {
      {1, 1, 1, 1, {1}},   {3, 4, 2, 5, {7}},    {2, 16, 3, 33, {5}}, {5, 3, 1, 64, {2, 4}},
      {4, 8, 4, 16, {40}}, {7, 1, 2, 3, {3, 1}}, {3, 4, 2, 5, {0}},   {0, 4, 2, 5, {0}},
      {3, 4, 0, 5, {6}},   {3, 4, 2, 0, {6}},    {2, 64, 8, 65, {3}},
  };
  return rows;
}

std::vector<Expected> expected_append(const CallData& data, const Numerics&) {
  const auto append = [&]<typename N>(N) {
    const Array<N> cache = data.array<N>("cache");
    const int64_t rows = cache.shape[0] * cache.shape[1];
    Array<int64_t> slots = data.indices("slots");
    for (int64_t& slot : slots.data) slot = std::min(slot, rows - 1);
    return judged_values(data,
                         {exactly(reference::kv_cache_append(cache, data.array<N>("x"), slots))});
  };
  const bp_dtype dtype = data.tensor("cache").dtype;
  return is_coded(dtype) ? append(double()) : with_number(dtype, append);
}

OpCase make_append(const AppendRow& row, bp_dtype dtype, bp_dtype index) {
  const std::string detail =
      shape_text(row.cache()) + "_s" + shape_text(row.slots) + (index == BP_I64 ? "" : "_i32");
  OpCase made = make_case(BP_OP_KV_CACHE_APPEND, dtype, "coord", detail, "dense");
  const double rows = static_cast<double>(row.blocks * row.block_size);
  made.input("cache", dtype, row.cache(), kCoord).input("x", dtype, row.x(), kExactDense);
  made.input("slots", index, row.slots, {FillKind::kIndex, -2, std::max(rows, -1.0)});
  made.output("y", dtype, row.cache()).reference = expected_append;
  made.is_smoke = is_moved_smoke_dtype(dtype);
  made.varies = false;
  made.optional_part = moved_part(dtype);
  return made;
}

void add_appends(OpCases& cases, bp_dtype dtype) {
  for (const AppendRow& row : append_rows()) {
    OpCase made = make_append(row, dtype, BP_I64);
    if (is_unsigned(dtype) || dtype == BP_BOOL || is_coded(dtype)) made.tensors[1].fill = kRepeat;
    cases.push_back(made);
    if (row.slots.size() != 1) continue;
    made.layout = "inplace_dense";
    made.tensors.back().alias = "cache";
    cases.push_back(std::move(made));
  }
}

// Negative slots stay as they are; others that are out of range act as the last one.
void add_append_bounds(OpCases& cases) {
  const AppendRow row{3, 4, 2, 5, {9}};
  for (const bp_dtype index : {BP_I64, BP_I32}) {
    for (const OutOfRange rule : {OutOfRange::kClamp, OutOfRange::kUndefined}) {
      cases.push_back(with_bounds(make_append(row, BP_F32, index), rule, "slots", 12));
    }
  }
  for (const int64_t wrong : {int64_t{12}, int64_t{1} << 40}) {
    OpCase made = make_append(row, BP_F32, BP_I64);
    made.fill = "out_of_range";
    made.detail += "_slot" + std::to_string(wrong);
    made.fails_on_device = true;
    made.derive = [wrong](CallData& data) {
      data.tensor("slots").data[3] = DoubleDouble::from_int64(wrong);
    };
    cases.push_back(std::move(made));
  }
}

// ---- paged_attention ------------------------------------------------------------------------- //

struct Sequence {
  int64_t queries, length;
};

struct Row {
  std::vector<Sequence> sequences;
  int64_t heads, key_heads, width, value_width, block_size, blocks;  // Blocks of the table.
  int64_t window_left = 0;
  double softcap = 0;
  int64_t before = 0, after = 0;  // Rows of q that are of no sequence.

  int64_t count() const { return static_cast<int64_t>(sequences.size()); }
  int64_t cache_blocks() const { return count() * blocks + 2; }
  int64_t tokens() const {
    int64_t total = before + after;
    for (const Sequence& each : sequences) total += each.queries;
    return total;
  }
};

const std::vector<Row>& all_rows() {
  static const std::vector<Row> rows = {
      {{{1, 1}}, 1, 1, 1, 1, 1, 1},
      {{{1, 17}}, 2, 2, 8, 8, 4, 5},
      {{{1, 5}, {1, 33}, {1, 12}}, 4, 2, 16, 16, 8, 5},         // Decoding.
      {{{5, 5}, {3, 9}, {1, 20}}, 4, 1, 16, 8, 4, 5},           // With a prefill.
      {{{7, 70}, {0, 9}, {2, 0}, {4, 2}}, 6, 3, 9, 17, 16, 5},  // Empty ones.
      {{{3, 19}, {1, 40}}, 4, 2, 16, 16, 8, 5, 6},              // A window.
      {{{3, 19}, {1, 40}}, 4, 2, 16, 16, 8, 5, 1, 0.5},
      {{{2, 11}, {6, 6}}, 2, 1, 8, 8, 3, 4, 0, 2, 2, 3},
      {{{1, 130}, {70, 150}}, 8, 2, 64, 64, 16, 10},  // Several tiles.
      {{{19, 83}}, 2, 1, 128, 128, 32, 3, 30},
      {{{1, 600}}, 8, 1, 64, 64, 1, 600},
      {{{1, 700}, {2, 300}, {1, 3}}, 2, 1, 16, 16, 16, 44, 400},  // Long ones, with a window.
      {{{4, 9}}, 2, 2, 5, 3, 16, 1, INT64_MAX},
      {{{0, 3}}, 2, 1, 4, 4, 2, 2},
      {{{2, 3}}, 0, 1, 4, 4, 2, 2},
      {{{2, 3}}, 2, 1, 4, 0, 2, 2},
  };
  return rows;
}

std::string detail_of(const Row& row) {
  std::string text = "s";
  for (const Sequence& each : row.sequences) {
    text += (text.size() > 1 ? "_" : "") + std::to_string(each.queries) + "of" +
            std::to_string(each.length);
  }
  text += "_h" + std::to_string(row.heads) + "g" + std::to_string(row.key_heads) + "d" +
          std::to_string(row.width) + "v" + std::to_string(row.value_width) + "_block" +
          std::to_string(row.block_size);
  if (row.window_left != 0) text += "_left" + std::to_string(row.window_left);
  if (row.softcap != 0) text += "_softcap";
  return text + (row.before + row.after != 0 ? "_padded" : "");
}

PagedAttention<double> indices_of(const CallData& data) {
  PagedAttention<double> p;
  const Shape& cache = data.tensor("k_cache").shape;
  const int64_t limit = data.tensor("block_table").shape[1] * cache[1];
  p.block_table = acting_indices(data, "block_table", cache[0]);
  p.lengths = acting_indices(data, "lengths", limit + 1);
  p.offsets = data.indices("offsets");
  return p;
}

template <typename N>
PagedAttention<N> paged_of(const CallData& data) {
  const PagedAttention<double> indices = indices_of(data);
  PagedAttention<N> p{data.array<N>("q"),  data.array<N>("k_cache"), data.array<N>("v_cache"),
                      indices.block_table, indices.lengths,          indices.offsets};
  p.scale = data.number("scale");
  p.window_left = data.integer("window_left");
  p.softcap = data.number("softcap");
  return p;
}

Bounds bounds_of(const CallData& data, const Numerics& numerics) {
  const bp_dtype dtype = data.tensor("q").dtype;
  const PagedAttention<double> p = paged_of<double>(data);
  std::vector<double> y(static_cast<size_t>(element_count(data.tensor("y").shape)));
  for (int64_t s = 0; s < p.sequences(); ++s) {
    p.store(s, attention::bounds_of(p.sequence(s), dtype, numerics)[0], y);
  }
  return {y};
}

std::vector<Expected> expected_paged(const CallData& data, const Numerics& numerics) {
  const auto run = [&]<typename N>(N) {
    return std::vector<Array<N>>{reference::paged_attention(paged_of<N>(data))};
  };
  Known known = steps(data.tensor("q").dtype, run);
  known.formula = [&](BoundRule rule) {
    return rule == BoundRule::kAttention ? bounds_of(data, numerics) : Bounds();
  };
  return judged(data, std::move(known));
}

void set_values(HostTensor& tensor, const std::vector<int64_t>& values) {
  tensor.data.clear();
  for (const int64_t value : values) tensor.data.push_back(DoubleDouble::from_int64(value));
}

// Writes offsets, lengths and a table whose blocks are in no order. Blocks that hold no key of
// their sequence are wrong, because nothing reads them.
void derive_indices(CallData& data, const Row& row) {
  std::vector<int64_t> offsets = {row.before}, lengths, table;
  constexpr int64_t kWrong = 1 << 30;
  for (int64_t s = 0; s < row.count(); ++s) {
    const Sequence& each = row.sequences[static_cast<size_t>(s)];
    offsets.push_back(offsets.back() + each.queries);
    lengths.push_back(each.length);
    for (int64_t b = 0; b < row.blocks; ++b) {
      const int64_t mixed = row.cache_blocks() - 1 - (b * row.count() + s);
      table.push_back(b * row.block_size < each.length ? mixed : b % 2 == 0 ? -kWrong : kWrong);
    }
  }
  set_values(data.tensor("offsets"), offsets);
  set_values(data.tensor("lengths"), lengths);
  set_values(data.tensor("block_table"), table);
}

// Makes all rows of the caches NaN that hold no key of a sequence.
void spoil_unseen_rows(CallData& data) {
  const PagedAttention<double> p = indices_of(data);
  const Shape& cache = data.tensor("k_cache").shape;
  std::vector<bool> is_seen(static_cast<size_t>(cache[0] * cache[1]));
  for (int64_t s = 0; s < p.sequences(); ++s) {
    for (int64_t key = 0; key < p.lengths[s]; ++key) {
      const int64_t block = p.block_table[s * p.block_table.shape[1] + key / cache[1]];
      is_seen[static_cast<size_t>(block * cache[1] + key % cache[1])] = true;
    }
  }
  for (const char* name : {"k_cache", "v_cache"}) {
    HostTensor& tensor = data.tensor(name);
    const size_t width = tensor.data.size() / is_seen.size();
    for (size_t i = 0; i < tensor.data.size(); ++i) {
      if (!is_seen[i / width]) tensor.data[i] = DoubleDouble(std::nan(""));
    }
  }
}

OpCase make_paged(const Row& row, bp_dtype dtype, bp_dtype index) {
  OpCase made = make_case(BP_OP_PAGED_ATTENTION, dtype, "random",
                          detail_of(row) + (index == BP_I64 ? "" : "_i32"), "dense");
  const auto cache = [&](int64_t width) {
    return Shape{row.cache_blocks(), row.block_size, row.key_heads, width};
  };
  const Fill any = index_fill(1);
  made.input("q", dtype, {row.tokens(), row.heads, row.width}, kRandom);
  made.input("k_cache", dtype, cache(row.width), kRandom);
  made.input("v_cache", dtype, cache(row.value_width), kRandom);
  made.input("block_table", index, {row.count(), row.blocks}, any);
  made.input("lengths", index, {row.count()}, any);
  made.input("offsets", index, {row.count() + 1}, any);
  made.output("y", dtype, {row.tokens(), row.heads, row.value_width}).reference = expected_paged;
  made.set("scale", 1 / std::sqrt(static_cast<double>(row.width)));
  made.set("window_left", row.window_left).set("softcap", row.softcap);
  made.derive = [row](CallData& data) { derive_indices(data, row); };
  made.is_smoke = is_smoke_dtype(dtype);
  made.varies = false;
  return made;
}

void add_paged(OpCases& cases, bp_dtype dtype) {
  for (const Row& row : all_rows()) {
    cases.push_back(make_paged(row, dtype, BP_I64));
    if (row.block_size != 4 && row.softcap == 0) continue;
    OpCase made = make_paged(row, dtype, BP_I32);
    made.fill = "nan_unseen";
    made.derive = [then = made.derive](CallData& data) {
      then(data);
      spoil_unseen_rows(data);
    };
    cases.push_back(std::move(made));
  }
}

// Lengths and blocks out of range.
void add_paged_bounds(OpCases& cases) {
  const Row row{{{1, 5}, {3, 12}, {1, 9}, {2, 11}}, 4, 2, 8, 8, 4, 3};
  for (const OutOfRange rule : {OutOfRange::kClamp, OutOfRange::kUndefined}) {
    for (const bp_dtype index : {BP_I64, BP_I32}) {
      cases.push_back(
          with_bounds(make_paged(row, BP_F32, index), rule, "block_table", row.cache_blocks()));
      cases.back().detail += "_blocks";
      cases.push_back(with_bounds(make_paged(row, BP_F32, index), rule, "lengths",
                                  row.blocks * row.block_size + 1));
      cases.back().detail += "_lengths";
    }
  }
  for (const char* name : {"block_table", "lengths"}) {
    for (const int64_t wrong : {int64_t{-1}, int64_t{14}, int64_t{1} << 40}) {
      OpCase made = make_paged(row, BP_F32, BP_I64);
      made.fill = "out_of_range";
      made.detail += "_" + std::string(name) + std::to_string(wrong);
      made.fails_on_device = true;
      made.derive = [then = made.derive, name, wrong](CallData& data) {
        then(data);
        data.tensor(name).data[3] = DoubleDouble::from_int64(wrong);
      };
      cases.push_back(std::move(made));
    }
  }
}

}  // namespace

void add_paged_attention(OpCases& cases) {
  for (const bp_dtype dtype : kMovedDtypes) add_appends(cases, dtype);
  for (const bp_dtype dtype : kRareMovedDtypes) add_appends(cases, dtype);
  add_append_bounds(cases);
  for (const bp_dtype dtype : kFloats) add_paged(cases, dtype);
  add_paged_bounds(cases);
}

}  // namespace bp::conformance
