// Probes of promises that no field can change: a kernel keeps NaN, does not compute the variance of
// a norm in one pass, and adds sums directly, so that an error stays where it arises.
//
// A result that is wrong here is wrong in the op's other cases too; the probe shows the reason.
#include <algorithm>
#include <cmath>

#include "conformance/cases/rules/declarations.hpp"

namespace bp::conformance {
namespace {

// Judges the row. Only a kernel that keeps the promise gets its data right.
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

// NaN stands in the body of vectors and in their tail, alone and beside another NaN.
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

constexpr double kFarMean = 1000;  // The mean of data whose deviation is near 1.

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

// ---- algo -------------------------------------------------------------------------------------

// Returns a number so large that another number is lost if it is added to it and the large one is
// subtracted again, as far as the dtype can hold it.
double huge_number(bp_dtype dtype) {
  const int most = dtype == BP_F64 ? 80 : 40;
  return std::ldexp(1.0, std::min(float_format(dtype)->max_exponent - 1, most));
}

// Returns the element in the middle of each axis: around it, some tile has results that do not
// depend on it.
size_t middle_of(const Shape& shape) {
  int64_t index = 0;
  for (const int64_t extent : shape) index = index * extent + extent / 2;
  return static_cast<size_t>(index);
}

HostTensor& first_numbers(CallData& data) {
  return *std::ranges::find_if(data.tensors(), [](const HostTensor& tensor) {
    return tensor.role != Role::kOutput && is_float(tensor.dtype);
  });
}

// Returns how many results do not depend on the element in the middle.
size_t count_independent(const OpCase& row, const CallData& huge, uint64_t seed) {
  OpCase plain = row;
  plain.derive = nullptr;
  const CallData small(plain, seed);
  const std::vector<Expected> with = row.reference(huge, Numerics{});
  const std::vector<Expected> without = plain.reference(small, Numerics{});
  size_t count = 0;
  for (size_t k = 0; k < with.size(); ++k) {
    for (size_t i = 0; i < with[k].value.size(); ++i) {
      count += with[k].value[i] == without[k].value[i];
    }
  }
  return count;
}

// Fast algorithms (Strassen, Winograd, Fourier, running sums) add the huge element to the results
// of a whole tile and subtract it again. The bounds on the other results show the error that
// remains.
void probe_algo(Context& t, const OpCase& row) {
  const size_t beside = count_independent(row, CallData(row, t.seed()), t.seed());
  if (beside == 0) t.not_supported("every result depends on every element");
  t.metric("independent_results", static_cast<double>(beside));
  probe_implied(t, row, "algo", "direct", "fast (winograd, fft, strassen or running sums)");
}

void add_algo_probe(Probings& probes, const Group& group) {
  const OpCase* base = nullptr;  // The row with most elements, because it has most tiles.
  const auto size = [](const OpCase& row) {
    int64_t elements = 0;
    for (const TensorArgument& argument : row.tensors) elements += element_count(argument.shape);
    return elements;
  };
  for (const OpCase* row : group) {
    if (!is_plain(*row) || row->derive) continue;
    if (base == nullptr || size(*row) > size(*base)) base = row;
  }
  if (base == nullptr) return;
  OpCase row = *base;
  for (TensorArgument& argument : row.tensors) {
    if (holds_numbers(argument)) argument.fill = kRandom;
  }
  row.is_exact = false;
  row.is_smoke = row.is_smoke && row.dtype != "f64";  // The oracle of f64 takes half a second.
  row.derive = [](CallData& data) {
    HostTensor& x = first_numbers(data);
    x.data[middle_of(x.shape)] = huge_number(x.dtype);
  };
  probes.push_back({"algo", std::move(row), probe_algo});
}

// Returns whether the op subtracts a mean. Then a constant that is added to all elements of x
// changes nothing.
bool has_mean(const OpCase& row) {
  return std::ranges::any_of(op_info(row.op).members,
                             [](const FrameMember& member) { return member.name == "mean"; });
}

}  // namespace

void add_implied_probes(Probings& probes, const Group& group) {
  const OpCase* base = widest(group);
  if (base == nullptr || base->derive || !std::ranges::any_of(base->tensors, holds_numbers)) return;
  if (has_class(*base, {"E0", "R3"})) add_nan_probe(probes, *base);
  if (has_class(*base, {"R1"})) add_algo_probe(probes, group);
  const bool is_wide = base->dtype == "f32" || base->dtype == "f64";
  if (has_class(*base, {"R5"}) && has_mean(*base) && is_wide) add_var_probe(probes, *base);
}

}  // namespace bp::conformance
