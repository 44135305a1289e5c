#include "conformance/cases/ops/op_attention_rows.hpp"

namespace bp::conformance::attention {
namespace {

const std::vector<Row>& plain_rows() {
  using enum Mask;
  static const std::vector<Row> rows = {
      {1, 1, 1, 1, 1, 1, 1},
      {1, 1, 1, 1, 17, 8, 8},
      {2, 2, 2, 5, 5, 4, 4},
      {2, 2, 2, 5, 5, 4, 4, kBottomRight},
      {1, 2, 1, 7, 9, 16, 16},
      {2, 6, 2, 3, 5, 8, 8, kNoDiagonal, kNone, false, false},
      {2, 6, 2, 3, 5, 8, 8, kBottomRight, kRandom, true},
      {1, 1, 1, 17, 33, 17, 9},
      {1, 1, 1, 17, 33, 9, 17, kBottomRight},
      {1, 2, 2, 33, 65, 16, 24, kNoDiagonal, kRandom},
      {1, 2, 2, 33, 65, 16, 24, kNoDiagonal, kNone, true, false},
      {1, 1, 1, 67, 129, 32, 32, kBottomRight},
      {1, 1, 1, 130, 70, 16, 16, kBottomRight},  // The first queries come before every key.
      {1, 2, 1, 6, 3, 8, 8, kBottomRight, kNone, false, false},
      {1, 1, 1, 1, 300, 16, 16, kBottomRight},
      {1, 2, 1, 19, 83, 64, 64, kBottomRight},  // Widths of networks, for kernels of such widths.
      {1, 1, 1, 5, 70, 80, 80},
      {1, 1, 1, 130, 150, 128, 128, kBottomRight},
      // Several tiles of rows or of keys, and tiles with rows of two heads, also in gradients.
      {1, 4, 2, 70, 40, 32, 32, kBottomRight},
      {2, 2, 1, 150, 20, 48, 48},
      {1, 1, 1, 19, 150, 128, 128, kBottomRight},
      {1, 8, 1, 1, 700, 64, 64},  // Few rows and many keys.
      {1, 2, 1, 3, 600, 32, 32, kBottomRight},
      {2, 3, 1, 5, 7, 8, 5, kNoDiagonal, kRandomBlind, true},
      {2, 2, 1, 9, 5, 7, 3, kBottomRight, kRandomBlind, true, false},
      {1, 1, 1, 5, 7, 8, 8, kNoDiagonal, kNone, false, true, 1.5},
      {1, 1, 1, 5, 7, 8, 8, kNoDiagonal, kNone, false, true, -0.5},
      {1, 1, 1, 9, 5, 8, 8, kNoDiagonal, kNone, true, true, 0, true},
      {2, 4, 2, 9, 5, 7, 3, kNoDiagonal, kRandom, true, true, 0, true},
      {1, 2, 2, 9, 7, 8, 8, kBottomRight, kNone, true, true, 0, true},
      {1, 1, 1, 17, 150, 16, 8, kNoDiagonal, kNone, true, true, 0, true},
      {1, 1, 1, 0, 5, 4, 4},
      {1, 1, 1, 5, 0, 4, 4},
      {0, 2, 1, 5, 3, 4, 4},
      {1, 0, 1, 5, 3, 4, 4},
      {1, 1, 1, 5, 3, 0, 4, kNoDiagonal, kNone, false, true, 1},
      {1, 1, 1, 5, 3, 4, 0},
  };
  return rows;
}

// Diagonals, windows, soft caps, sinks and dropout, alone and together.
std::vector<Row> later_rows() {
  using enum Mask;
  const Row wide{2, 4, 2, 5, 9, 8, 6}, tall{1, 2, 1, 9, 5, 8, 8},
      long_one{1, 2, 1, 70, 150, 16, 16};
  const Row high{1, 2, 2, 150, 70, 16, 8};
  std::vector<Row> rows;
  const auto add = [&rows](Row row, const auto& change) {
    change(row);
    rows.push_back(row);
  };
  for (const Row& row : {long_one, high}) {  // Ranges that begin and end within tiles.
    add(row, [](Row& r) { r.causal = kTopLeft, r.window_left = 66, r.window_right = 1; });
    add(row, [](Row& r) { r.causal = kBottomRight, r.window_left = 3, r.has_sinks = true; });
    add(row, [](Row& r) { r.window_left = 2, r.window_right = 3, r.mask = kRandom; });
    add(row, [](Row& r) { r.causal = kTopLeft, r.softcap = 0.5, r.dropout_p = 0.4; });
  }
  for (const Row& row : {wide, tall}) {
    add(row, [](Row& r) { r.causal = kTopLeft; });
    for (const auto causal : {kNoDiagonal, kBottomRight, kTopLeft}) {
      add(row, [&](Row& r) { r.causal = causal, r.window_left = 3; });
    }
    add(row, [](Row& r) { r.window_right = 2; });
    add(row, [](Row& r) { r.softcap = 0.5; });
    add(row, [](Row& r) { r.has_sinks = true; });
    add(row, [](Row& r) { r.dropout_p = 0.4; });
    add(row, [](Row& r) { r.window_left = 1; });  // The key on the diagonal alone.
    add(row, [](Row& r) { r.causal = kTopLeft, r.window_left = 1, r.window_right = 1; });
    add(row, [](Row& r) { r.window_left = 100, r.window_right = 100; });
    add(row, [](Row& r) { r.window_left = r.window_right = INT64_MAX; });
    add(row, [](Row& r) { r.causal = kTopLeft, r.window_left = INT64_MAX; });
    add(row, [](Row& r) { r.softcap = 2, r.has_bias = true, r.mask = kRandom; });
    add(row, [](Row& r) { r.softcap = 1.5, r.scale = -2; });
    add(row, [](Row& r) { r.softcap = 1e30; });
    add(row, [](Row& r) { r.has_sinks = true, r.mask = kRandomBlind; });
    add(row, [](Row& r) { r.has_sinks = r.has_bias = r.has_blocked_keys = true; });
    add(row, [](Row& r) { r.has_sinks = true, r.causal = kBottomRight, r.has_lse = false; });
    add(row, [](Row& r) { r.dropout_p = 1; });
    add(row, [](Row& r) { r.dropout_p = 0.25, r.causal = kBottomRight, r.mask = kRandomBlind; });
    add(row, [](Row& r) {
      r.causal = kTopLeft, r.window_left = 4, r.softcap = 2, r.has_sinks = r.has_bias = true;
    });
    add(row, [](Row& r) {
      r.causal = kBottomRight, r.window_left = 3, r.softcap = 1, r.has_sinks = r.has_bias = true;
      r.dropout_p = 0.2, r.mask = kRandom;
    });
  }
  for (const auto causal : {kNoDiagonal, kBottomRight, kTopLeft}) {
    add({1, 2, 1, 36, 80, 64, 64}, [&](Row& r) {
      r.causal = causal, r.window_left = 30, r.window_right = causal == kNoDiagonal ? 20 : 0;
    });
  }
  add({1, 2, 1, 3, 0, 4, 4}, [](Row& r) { r.has_sinks = true; });
  add({1, 1, 1, 1, 300, 16, 16}, [](Row& r) { r.causal = kBottomRight, r.window_left = 20; });
  return rows;
}

}  // namespace

bool has_later_terms(const Row& row) {
  return row.causal == kTopLeft || row.window_left != 0 || row.window_right != 0 ||
         row.softcap != 0 || row.has_sinks || row.dropout_p != 0;
}

const std::vector<Row>& all_rows() {
  static const std::vector<Row> rows = [] {
    std::vector<Row> all = plain_rows();
    const std::vector<Row> later = later_rows();
    all.insert(all.end(), later.begin(), later.end());
    return all;
  }();
  return rows;
}

std::string detail_of(const Row& row) {
  const auto number = [](const char* name, int64_t value) { return name + std::to_string(value); };
  std::string text = number("b", row.batch) + number("h", row.heads) + number("g", row.key_heads) +
                     number("q", row.queries) + number("k", row.keys) + number("d", row.width) +
                     number("v", row.value_width);
  constexpr const char* kMasks[] = {"", "_mask", "_blindmask", "_onekey"};
  constexpr const char* kDiagonals[] = {"", "_causal", "_topleft"};
  text += kDiagonals[static_cast<int>(row.causal)];
  text += kMasks[static_cast<int>(row.mask)];
  text += std::string(row.has_bias ? "_bias" : "") + (row.has_blocked_keys ? "_blocked" : "");
  text += row.has_lse ? "" : "_nolse";
  if (row.scale != 0) text += row.scale < 0 ? "_negative" : "_scaled";
  if (row.window_left != 0) text += number("_left", row.window_left);
  if (row.window_right != 0) text += number("_right", row.window_right);
  if (row.softcap != 0) text += row.softcap > 1e9 ? "_highcap" : "_softcap";
  if (row.has_sinks) text += "_sinks";
  if (row.dropout_p != 0) text += row.dropout_p < 1 ? "_dropout" : "_dropall";
  return text;
}

}  // namespace bp::conformance::attention
