// What a kernel promises without a field to declare otherwise: NaN is kept, and the variance of a
// norm is not computed in one pass.
//
// A result that is wrong here is wrong in cases of the op as well; the probe says why.
#include <algorithm>
#include <cmath>

#include "conformance/cases/declarations.hpp"

namespace bp::conformance {
namespace {

// Judges the row, whose data only a kernel of the implied kind gets right.
void probe_implied(Context& t, const OpCase& row, const char* field, const char* implied,
                   const char* other) {
  const CallData data(row, t.seed());
  const Observation seen = observe_native(t, row, data);
  const Verdict verdict = judge(row, data, seen);
  if (verdict.is_right()) return report_true(t, implied, implied);
  report_false(t, field, implied, other, verdict.message);
}

// ---- nan --------------------------------------------------------------------------------------

void probe_nan(Context& t, const OpCase& row) { probe_implied(t, row, "nan", "ieee", "none"); }

// NaN in the body of vectors and in their tail, alone and beside another.
void add_nan_probe(Probings& probes, const OpCase& base) {
  OpCase row = base;
  row.derive = [](CallData& data) {
    size_t shift = 0;
    for (HostTensor& tensor : data.tensors()) {
      if (tensor.role == Role::kOutput || !is_float(tensor.dtype)) continue;
      for (size_t i = 0; i < tensor.data.size(); ++i) {
        if ((i + shift) % 5 == 2) tensor.data[i] = std::nan("");
      }
      shift += 2;
    }
  };
  probes.push_back({"nan", std::move(row), probe_nan});
}

// ---- var --------------------------------------------------------------------------------------

constexpr double kFarMean = 1000;  // Of data with a deviation near 1.

void probe_var(Context& t, const OpCase& row) {
  probe_implied(t, row, "var", "two passes", "one pass");
}

void add_var_probe(Probings& probes, const OpCase& base) {
  OpCase row = base;
  for (TensorArgument& argument : row.tensors) {
    if (holds_numbers(argument)) argument.fill = kRandom;
  }
  row.is_exact = false;
  row.derive = [](CallData& data) {
    HostTensor& x = data.tensors().front();
    for (DoubleDouble& element : x.data) {
      element = round_to(x.dtype, kFarMean + std::sqrt(3.0) * element.hi);
    }
  };
  probes.push_back({"var", std::move(row), probe_var});
}

// The op subtracts a mean: what is added to all elements of x changes nothing.
bool has_mean(const OpCase& row) {
  return std::ranges::any_of(op_info(row.op).members,
                             [](const FrameMember& member) { return member.name == "mean"; });
}

}  // namespace

void add_implied_probes(Probings& probes, const Group& group) {
  const OpCase* base = widest(group);
  if (base == nullptr || base->derive || !std::ranges::any_of(base->tensors, holds_numbers)) return;
  if (has_class(*base, {"E0", "R3"})) add_nan_probe(probes, *base);
  const bool is_wide = base->dtype == "f32" || base->dtype == "f64";
  if (has_class(*base, {"R5"}) && has_mean(*base) && is_wide) add_var_probe(probes, *base);
}

}  // namespace bp::conformance
