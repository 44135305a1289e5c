// Cases of scale_and_check_finite, foreach_scale and grad_norm, and the lists of tensors that they
// share with the optimizer steps.
#include "conformance/cases/ops/op_lists.hpp"

#include "conformance/cases/ops/op_families.hpp"
#include "conformance/reference/optimizer.hpp"

namespace bp::conformance {

using enum Layout;

const std::vector<TensorList>& tensor_lists() {
  static const std::vector<TensorList> all = {
      {{{1}}},
      {{{17}}},
      {{{67}, {5, 7}}},
      {{{}, {2, 3, 4}, {0}, {1031}}},
      {{{5, 7}}, kTransposed},
      {{{5, 7}, {17}}, kSliced},
      {{{17}}, kStepped},
      {{{17}}, kOffset},
      {{{2, 1, 2, 1, 2, 1, 2, 3}, {}}, kOffset},
      {{{4, 9}}, kNegative},
  };
  return all;
}

std::string detail_of(const TensorList& list, const std::string& settings) {
  std::string text;
  for (const Shape& shape : list.shapes) text += (text.empty() ? "" : "_") + shape_text(shape);
  return text + "_" + settings;
}

void add_tensors(OpCase& made, bp_dtype dtype, const TensorList& list, std::string_view name,
                 Role role, const Fill& fill) {
  for (const Shape& shape : list.shapes) {
    made.tensors.push_back({name, role, dtype, shape, list.lies, fill, ""});
  }
}

void add_with_rates(OpCases& cases, const OpCase& row) {
  for (const bp_dtype rate : {BP_F64, BP_F32}) {
    cases.push_back(with_scalars_as_tensors(row, rate));
    if (rate == BP_F32) cases.back().optional_part = "rates in f32";
  }
}

namespace {

// ---- scale_and_check_finite and foreach_scale ------------------------------------------------ //

// scale_and_check_finite checks the products as memory holds them, rounded to the dtype.
std::vector<Expected> expected_scaled(const CallData& data, const Numerics& numerics) {
  const double scale = data.value("scale").hi;
  const bool rounds_scale = round_to(BP_F32, scale) != scale;  // A kernel may compute in f32.
  Known known;
  bool is_found = false;
  for (size_t i = 0; i < data.list_size("xs"); ++i) {
    const HostTensor& x = data.tensor("xs", i);
    Expected& each = known.outputs.emplace_back();
    std::vector<double>& carried = known.carried.emplace_back();
    for (const DoubleDouble& value : x.data) {
      const DoubleDouble scaled = value * DoubleDouble(scale);
      const double slack = rounds_scale && x.dtype != BP_F64 ? 2 * numerics.unit : 0;
      each.value.push_back(scaled);
      carried.push_back(slack == 0 ? 0 : std::fabs(scaled.hi) * slack);
      const bool is_finite = std::isfinite(value.hi) && std::isfinite(round_to(x.dtype, scaled));
      is_found = is_found || !is_finite;
    }
  }
  if (!data.has("found")) return judged(data, std::move(known));
  Expected& found = known.outputs.emplace_back();
  found.value.push_back(is_found ? DoubleDouble(1) : data.tensor("found").data.at(0));
  known.carried.emplace_back();
  return judged(data, std::move(known));
}

struct ScaleRow {
  const char* name;
  Fill data;
  double scale;
  bool was_found = false;
};

const std::vector<ScaleRow>& scale_rows() {
  static const std::vector<ScaleRow> rows = {
      {"random", kRandom, 0.25},
      {"found", kRandom, 3, true},  // `found` must stay as it was.
      {"third", kRandom, 1.0 / 3},
      {"special", kSpecial, 1},
      {"sparse", kSparse, -0.75},
      {"overflow", {FillKind::kUniform, 1, 2}, 0x1p1023},
      {"infinite", kPositive, HUGE_VAL},
      {"last", kRandom, 0x1p-3},  // Only one element is not finite.
      {"early", kRandom, 0x1p-3},
  };
  return rows;
}

void spoil_one(CallData& data, bool is_last) {
  for (size_t i = data.list_size("xs"); i-- > 0;) {
    std::vector<DoubleDouble>& values = data.tensor("xs", i).data;
    if (values.empty()) continue;
    (is_last ? values.back() : values.front()) = DoubleDouble(is_last ? HUGE_VAL : std::nan(""));
    return;
  }
}

void add_scale(OpCases& cases, uint32_t op, bp_dtype dtype) {
  const bool is_checked = op == BP_OP_SCALE_AND_CHECK_FINITE;
  for (const ScaleRow& row : scale_rows()) {
    const std::string_view name = row.name;
    const bool is_for_check = name == "found" || name == "last" || name == "early";
    if (is_for_check && !is_checked) continue;
    for (const TensorList& list : tensor_lists()) {
      OpCase made =
          make_case(op, dtype, row.name, detail_of(list, "scaled"), layout_text(list.lies));
      add_tensors(made, dtype, list, "xs", Role::kInOut, row.data);
      const double start = row.was_found ? 1 : 0;
      if (is_checked) made.inout("found", BP_F32, {}, {FillKind::kUniform, start, start});
      made.set("scale", float_scalar(row.scale)).reference = expected_scaled;
      if (name == "last") made.derive = [](CallData& data) { spoil_one(data, true); };
      if (name == "early") made.derive = [](CallData& data) { spoil_one(data, false); };
      made.is_smoke = is_smoke_dtype(dtype);
      made.varies = false;
      if (name == "random") add_with_rates(cases, made);
      cases.push_back(std::move(made));
    }
  }
  // Large numbers overflow in the dtype, but not in the type that they are computed in.
  OpCase made = make_case(op, dtype, "limit", "17_scaled", "dense");
  made.inout("xs", dtype, {17}, kRandom);
  if (is_checked) made.inout("found", BP_F32, {}, {FillKind::kUniform, 0, 0});
  made.derive = [](CallData& data) {
    data.tensor("xs").data[11] = float_format(data.tensor("xs").dtype)->largest();
  };
  made.set("scale", float_scalar(1.5)).reference = expected_scaled;
  made.varies = false;
  cases.push_back(std::move(made));
}

// ---- grad_norm ------------------------------------------------------------------------------- //

// The norm is computed in f64 whatever the dtypes are.
std::vector<Expected> expected_grad_norm(const CallData& data, const Numerics&) {
  return judged_steps(data, BP_F64, [&]<typename N>(N) {
    std::vector<N> elements;
    for (size_t i = 0; i < data.list_size("xs"); ++i) {
      const Array<N> x = data.array<N>("xs", i);
      elements.insert(elements.end(), x.data.begin(), x.data.end());
    }
    Array<N> y((Shape()));
    y[0] = reference::euclidean_norm(std::span<const N>(elements));
    return std::vector{y};
  });
}

void add_grad_norm(OpCases& cases, bp_dtype dtype, bp_dtype result) {
  struct NormRow {
    const char* name;
    Fill data;
  };
  // The squares of large and of small numbers do not fit into f32.
  const double top = dtype == BP_F16 ? 3e4 : 1e30;
  const NormRow rows[] = {{"random", kRandom},
                          {"large", {FillKind::kUniform, top / 2, top}},
                          {"small", {FillKind::kUniform, 0.5 / top, 1 / top}},
                          {"zero", {FillKind::kUniform, 0, 0}},
                          {"infinite", kRandom},
                          {"special", kSpecial}};
  for (const NormRow& row : rows) {
    const std::string_view name = row.name;
    for (const TensorList& list : tensor_lists()) {
      OpCase made = make_case(BP_OP_GRAD_NORM, dtype, row.name, detail_of(list, dtype_text(result)),
                              layout_text(list.lies));
      add_tensors(made, dtype, list, "xs", Role::kInput, row.data);
      made.output("y", result, {}).reference = expected_grad_norm;
      if (name == "infinite") {
        made.derive = [](CallData& data) { data.tensor("xs").data[0] = -HUGE_VAL; };
      }
      made.is_smoke = is_smoke_dtype(dtype) && (name == "random" || name == "large");
      made.varies = false;
      cases.push_back(std::move(made));
    }
  }
}

}  // namespace

void add_lists(OpCases& cases) {
  for (const bp_dtype dtype : kFloats) {
    add_scale(cases, BP_OP_SCALE_AND_CHECK_FINITE, dtype);
    add_scale(cases, BP_OP_FOREACH_SCALE, dtype);
    for (const bp_dtype result : {BP_F32, BP_F64}) add_grad_norm(cases, dtype, result);
  }
}

}  // namespace bp::conformance
