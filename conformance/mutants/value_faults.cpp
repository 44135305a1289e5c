// Faults of values: a good launch whose outputs are changed behind it, through the host.
//
// Each change is certainly wrong (conformance/faults/severity.hpp). An element that would be
// changed by less is left alone.
#include <algorithm>
#include <cmath>
#include <limits>

#include "conformance/faults/severity.hpp"
#include "conformance/mutants/kernel_fault.hpp"
#include "registry/tensors/floats.hpp"
#include "registry/tensors/strides.hpp"

namespace bp::faults {
namespace {

using mutants::Values;

// What a kind of fault makes of one element.
struct Wrong {
  std::optional<double> value;   // For floats.
  std::optional<uint64_t> bits;  // For integers, and for elements that come from elsewhere.
};

Wrong wrong_integer(std::string_view kind, bp_dtype dtype, uint64_t bits) {
  if (dtype == BP_BOOL) {
    if (kind == "small") return {.bits = bits ^ 1};
    if (kind == "zero") return {.bits = 0};
    return {};
  }
  if (kind == "small") return {.bits = bits + 1};
  if (kind == "double") return {.bits = bits * 2};
  if (kind == "zero") return {.bits = 0};
  return {};
}

Wrong wrong_number(const FaultyLaunch& launch, bp_dtype dtype, double right, double scale) {
  const std::string_view kind = launch.fault().kind;
  const double infinity = std::numeric_limits<double>::infinity();
  const bp_numerics* declared = launch.call.wrapped.kernel.numerics;
  if (kind == "lost_nan") return std::isnan(right) ? Wrong{.value = 0} : Wrong{};
  if (kind == "lost_inf") {
    const bool may_saturate = declared != nullptr && declared->overflow != BP_OVERFLOW_IEEE;
    if (!std::isinf(right) || may_saturate) return {};
    return {.value = std::copysign(largest_number(dtype), right)};
  }
  if (!std::isfinite(right)) return {};
  if (kind == "flush") {
    const bool may_flush = declared != nullptr && declared->flush != 0;
    const bool is_subnormal = right != 0 && std::fabs(right) < smallest_normal(dtype);
    return is_subnormal && !may_flush ? Wrong{.value = std::copysign(0.0, right)} : Wrong{};
  }
  if (kind == "small") return {.value = just_beyond(launch, dtype, right, scale)};
  if (kind == "tenth") return {.value = right * 1.1};
  if (kind == "double") return {.value = right * 2};
  if (kind == "sign") return {.value = -right};
  if (kind == "zero") return {.value = 0};
  if (kind == "nan") return {.value = std::numeric_limits<double>::quiet_NaN()};
  if (kind == "inf") return {.value = infinity};
  return {};
}

// The elements of an output before and after a good launch.
struct Results {
  const bp_tensor& tensor;
  Values& values;
  const Values* before;  // NULL unless the fault asks.
  const std::vector<double>& last;
  double scale;
};

Wrong wrong_element(const FaultyLaunch& launch, const Results& r, size_t i) {
  const std::string_view kind = launch.fault().kind;
  const bool is_float = tensors::is_plain_float(r.tensor.dtype);
  if (kind == "neighbour") return {.bits = r.values.bits((i + 1) % r.values.size())};
  if (kind == "unwritten") return {.bits = r.before->bits(i)};
  if (kind == "stale") {
    if (r.last.empty()) return {};
    const double value = r.last[i % r.last.size()];
    return {.value = value};
  }
  if (kind == "toward_zero") {
    const bool is_normal = std::fabs(r.values[i]) > smallest_normal(r.tensor.dtype);
    if (i % 2 == 1 || !is_normal || !std::isfinite(r.values[i])) return {};
    return {.bits = r.values.bits(i) - 1};
  }
  if (!is_float) return wrong_integer(kind, r.tensor.dtype, r.values.bits(i));
  return wrong_number(launch, r.tensor.dtype, r.values[i], r.scale);
}

// Returns the number that `bits` mean, if they come from an element that was read.
double value_of(const FaultyLaunch& launch, const Results& r, size_t i) {
  return launch.fault().kind == "unwritten" ? (*r.before)[i] : r.values[(i + 1) % r.values.size()];
}

// Changes one element. Returns false if the change would not be certainly wrong.
bool change(const FaultyLaunch& launch, const Results& r, size_t i) {
  const Wrong wrong = wrong_element(launch, r, i);
  if (!wrong.value && !wrong.bits) return false;
  const bp_dtype dtype = r.tensor.dtype;
  const bool is_float = tensors::is_plain_float(dtype);
  const std::string_view kind = launch.fault().kind;
  const bool is_read = kind == "neighbour" || kind == "unwritten";
  const bool is_certain = kind == "toward_zero" || kind == "flush" || (!is_float && wrong.bits);
  if (!is_certain) {
    const double value = is_read ? value_of(launch, r, i) : *wrong.value;
    if (!is_beyond(launch, dtype, r.values[i], value, r.scale)) return false;
  }
  if (wrong.value) {
    r.values.set(i, *wrong.value);
    return true;
  }
  const size_t item_bits = 8 * static_cast<size_t>(mutants::item_size_bytes(dtype));
  const uint64_t mask = item_bits == 64 ? UINT64_MAX : (uint64_t{1} << item_bits) - 1;
  if ((*wrong.bits & mask) == r.values.bits(i)) return false;
  r.values.set_bits(i, *wrong.bits & mask);
  return true;
}

// Returns the output that the fault changes, or NULL.
const bp_tensor* changed_output(const FaultyLaunch& launch) {
  std::vector<const bp_tensor*> outputs = plain_outputs(launch);
  const bp_dtype dtype = dtype_of(launch.fault().dtype);
  std::vector<const bp_tensor*> wanted;
  std::ranges::copy_if(outputs, std::back_inserter(wanted),
                       [&](const bp_tensor* t) { return t->dtype == dtype; });
  if (!wanted.empty()) outputs = std::move(wanted);
  return outputs.empty() ? nullptr : outputs[mixed(launch.fault().number, 3) % outputs.size()];
}

std::vector<double> replaced_last(const FaultyLaunch& launch, const Values& values) {
  std::vector<double> now;
  for (size_t i = 0; i < values.size(); ++i) now.push_back(values[i]);
  const std::lock_guard lock(launch.state.mutex);
  std::swap(now, launch.state.last);
  return now;
}

}  // namespace

std::vector<const bp_tensor*> plain_outputs(const FaultyLaunch& launch) {
  std::vector<const bp_tensor*> outputs;
  for (const Argument& argument : launch.tensors) {
    const bp_tensor& t = *argument.tensor;
    const bool is_plain = tensors::is_plain_float(t.dtype) || t.dtype == BP_BOOL ||
                          t.dtype == BP_U8 || t.dtype == BP_I8 || t.dtype == BP_I16 ||
                          t.dtype == BP_I32 || t.dtype == BP_I64;
    if (argument.member->is_output() && is_plain && t.layout == nullptr && t.buffer != nullptr &&
        tensors::has_elements(t)) {
      outputs.push_back(&t);
    }
  }
  return outputs;
}

double largest_of(const Values& values) {
  double largest = 0;
  for (size_t i = 0; i < values.size(); ++i) {
    if (std::isfinite(values[i])) largest = std::max(largest, std::fabs(values[i]));
  }
  return largest;
}

double just_beyond(const FaultyLaunch& launch, bp_dtype dtype, double right, double scale) {
  return right +
         std::copysign(
             1.5 * largest_honest_error(launch.state.op->error_class, dtype, right, scale), right);
}

bool is_beyond(const FaultyLaunch& launch, bp_dtype dtype, double right, double wrong,
               double scale) {
  if (!tensors::is_plain_float(dtype)) return right != wrong;
  if (std::isnan(right) || std::isnan(wrong)) return std::isnan(right) != std::isnan(wrong);
  if (std::isinf(right) || std::isinf(wrong)) return right != wrong;
  return std::fabs(right - wrong) >
         largest_honest_error(launch.state.op->error_class, dtype, right, scale);
}

bp_status launch_with_wrong_values(const FaultyLaunch& launch) {
  const bp_tensor* output = changed_output(launch);
  if (output == nullptr) return launch.call.run(launch.args);
  std::optional<Values> before;
  if (launch.fault().kind == "unwritten") before.emplace(launch.call, *output);
  const bp_status status = launch.call.run(launch.args);
  if (status != BP_OK) return status;
  Values values(launch.call, *output);
  if (values.status() != BP_OK || (before && before->status() != BP_OK)) return status;
  const bool is_stale = launch.fault().kind == "stale";
  const std::vector<double> last = is_stale ? replaced_last(launch, values) : std::vector<double>();
  const Results results{*output, values, before ? &*before : nullptr, last, largest_of(values)};
  bool has_changed = false;
  for (size_t i = 0; i < values.size(); ++i) {
    if (!is_at_place(launch.fault().place, launch.fault().number, *output, i, values.size())) {
      continue;
    }
    has_changed |= change(launch, results, i);
  }
  if (!has_changed) return status;
  launch.note_change();
  return values.write();
}

}  // namespace bp::faults
