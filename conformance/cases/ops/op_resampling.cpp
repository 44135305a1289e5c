// Cases of interpolate and its gradient. Cases of layouts follow by rule.
#include "conformance/cases/ops/op_families.hpp"
#include "conformance/cases/ops/op_oracles.hpp"
#include "conformance/reference/resampling.hpp"

namespace bp::conformance {
namespace {

using reference::Interpolation;

struct Row {
  Shape x, output_size;
  bool has_all_rules = false;  // Every mode, coordinates and rounding, in place of some.
};

const std::vector<Row>& all_rows() {
  static const std::vector<Row> rows = {
      {{1, 1, 4}, {8}, true},
      {{2, 3, 17}, {5}, true},
      {{1, 2, 5}, {1}, true},  // align_corners and pytorch_half_pixel read the first element.
      {{1, 2, 9}, {9}},
      {{1, 1, 1}, {4}},
      {{1, 1, 3}, {7}, true},
      {{2, 3, 4, 5}, {8, 10}},
      {{1, 17, 7, 9}, {4, 3}, true},
      {{1, 2, 3, 4}, {5, 1}},
      {{1, 2, 3, 33}, {2, 70}},
      {{1, 1, 2, 300}, {3, 67}},
      {{1, 2, 2, 3, 4}, {3, 5, 2}, true},
      {{2, 1, 3, 1, 2}, {1, 2, 5}},
      {{0, 2, 4, 4}, {2, 2}},
      {{1, 0, 4, 4}, {2, 2}},
      {{1, 2, 4, 0}, {3, 0}},
  };
  return rows;
}

const std::vector<Interpolation>& all_rules() {
  static const std::vector<Interpolation> rules = [] {
    std::vector<Interpolation> made;
    for (const int64_t coordinates :
         {BP_INTERPOLATE_COORDINATES_HALF_PIXEL, BP_INTERPOLATE_COORDINATES_ASYMMETRIC,
          BP_INTERPOLATE_COORDINATES_ALIGN_CORNERS,
          BP_INTERPOLATE_COORDINATES_PYTORCH_HALF_PIXEL}) {
      for (const int64_t rounding :
           {BP_INTERPOLATE_ROUNDING_FLOOR, BP_INTERPOLATE_ROUNDING_CEIL,
            BP_INTERPOLATE_ROUNDING_HALF_DOWN, BP_INTERPOLATE_ROUNDING_HALF_UP}) {
        made.push_back({BP_INTERPOLATE_MODE_NEAREST, coordinates, rounding});
      }
      made.push_back({BP_INTERPOLATE_MODE_LINEAR, coordinates, BP_INTERPOLATE_ROUNDING_FLOOR});
    }
    return made;
  }();
  return rules;
}

// Returns whether the rules are one of three that every row has.
bool is_usual(const Interpolation& rules) {
  if (rules.mode == BP_INTERPOLATE_MODE_LINEAR) {
    return rules.coordinates == BP_INTERPOLATE_COORDINATES_HALF_PIXEL ||
           rules.coordinates == BP_INTERPOLATE_COORDINATES_ALIGN_CORNERS;
  }
  return rules.coordinates == BP_INTERPOLATE_COORDINATES_ASYMMETRIC &&
         rules.rounding == BP_INTERPOLATE_ROUNDING_FLOOR;
}

std::string text_of(const Interpolation& rules) {
  static const char* const coordinates[] = {"", "_half_pixel", "_asymmetric", "_align_corners",
                                            "_pytorch"};
  static const char* const rounding[] = {"", "_floor", "_ceil", "_half_down", "_half_up"};
  const std::string text = coordinates[rules.coordinates];
  if (rules.mode == BP_INTERPOLATE_MODE_LINEAR) return "_linear" + text;
  return "_nearest" + text + rounding[rules.rounding];
}

Interpolation rules_of(const CallData& data) {
  return {data.integer("mode"), data.integer("coordinates"), data.integer("rounding")};
}

// `run` takes an array and gives the result. Kernels add the terms in any order, so the bound is
// that of their absolute values: no sum of some of them is larger.
template <typename Run>
std::vector<Expected> judged_terms(const CallData& data, std::string_view name, const Run& run) {
  const auto values = [&]<typename N>(N) { return std::vector{run(data.array<N>(name))}; };
  const auto sizes = [&]<typename N>(N) { return std::vector{run(absolute(data.array<N>(name)))}; };
  const bp_dtype dtype = data.tensor(name).dtype;
  Known known = steps(dtype, values);
  known.propagated = steps(dtype, sizes).propagated;
  return judged(data, std::move(known));
}

std::vector<Expected> expected_forward(const CallData& data, const Numerics&) {
  return judged_terms(data, "x", [&](const auto& x) {
    return reference::interpolate(rules_of(data), x, data.list("output_size"));
  });
}

std::vector<Expected> expected_backward(const CallData& data, const Numerics&) {
  return judged_terms(data, "grad_y", [&](const auto& grad_y) {
    return reference::interpolate_backward(rules_of(data), grad_y, data.list("input_size"));
  });
}

struct Setting {
  bp_dtype dtype;
  std::string fill;
  Fill data;
  bool is_exact = false;
};

OpCase start(uint32_t op, const Row& row, const Interpolation& rules, const Setting& setting) {
  const std::string detail =
      shape_text(row.x) + "_to" + shape_text(row.output_size) + text_of(rules);
  OpCase made = make_case(op, setting.dtype, setting.fill, detail, "dense");
  made.set("mode", rules.mode).set("coordinates", rules.coordinates);
  made.set("rounding", rules.rounding);
  made.is_exact = setting.is_exact;
  made.is_smoke = is_smoke_dtype(setting.dtype) && is_usual(rules);
  made.varies = false;  // Many outputs may read one element, and elements may have no reader.
  return made;
}

void add_forward(OpCases& cases, const Row& row, const Interpolation& rules,
                 const Setting& setting) {
  Shape y(row.x.begin(), row.x.begin() + 2);
  y.insert(y.end(), row.output_size.begin(), row.output_size.end());
  OpCase made = start(BP_OP_INTERPOLATE, row, rules, setting);
  made.input("x", setting.dtype, row.x, setting.data).output("y", setting.dtype, y);
  made.set("output_size", row.output_size).reference = expected_forward;
  cases.push_back(std::move(made));
}

void add_backward(OpCases& cases, const Row& row, const Interpolation& rules,
                  const Setting& setting) {
  Shape y(row.x.begin(), row.x.begin() + 2);
  y.insert(y.end(), row.output_size.begin(), row.output_size.end());
  OpCase made = start(BP_OP_INTERPOLATE_BACKWARD, row, rules, setting);
  made.input("grad_y", setting.dtype, y, setting.data);
  made.output("grad_x", setting.dtype, row.x);
  made.set("input_size", Shape(row.x.begin() + 2, row.x.end())).reference = expected_backward;
  cases.push_back(std::move(made));
}

// Every axis is twice as long. The weights are quarters, so nothing is rounded.
void add_exact(OpCases& cases, bp_dtype dtype) {
  const Setting setting{dtype, "exact_dense", kExactDense, true};
  const Interpolation linear{BP_INTERPOLATE_MODE_LINEAR, BP_INTERPOLATE_COORDINATES_HALF_PIXEL,
                             BP_INTERPOLATE_ROUNDING_FLOOR};
  for (const Row& row : {Row{{1, 2, 7}, {14}}, Row{{2, 3, 4, 5}, {8, 10}}}) {
    add_forward(cases, row, linear, setting);
  }
}

}  // namespace

void add_resampling(OpCases& cases) {
  for (const bp_dtype dtype : kFloats) {
    for (const Row& row : all_rows()) {
      for (const Interpolation& rules : all_rules()) {
        if (!row.has_all_rules && !is_usual(rules)) continue;
        add_forward(cases, row, rules, {dtype, "random", kRandom});
        add_backward(cases, row, rules, {dtype, "random", kRandom});
        // Elements that are chosen keep their values, whatever they are.
        if (rules.mode == BP_INTERPOLATE_MODE_LINEAR || !is_usual(rules)) continue;
        add_forward(cases, row, rules, {dtype, "special", kSpecial});
      }
    }
    add_exact(cases, dtype);
  }
}

}  // namespace bp::conformance
