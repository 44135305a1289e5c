// Rows with the data that the class of an op needs, for every op.
#include <algorithm>
#include <cmath>
#include <set>
#include <string>

#include "conformance/cases/rules/rules.hpp"

namespace bp::conformance {
namespace {

bool has_float_data(const OpCase& row) { return std::ranges::any_of(row.tensors, holds_numbers); }

OpCase refilled(const OpCase& base, const char* fill) {
  OpCase row = base;
  row.fill = fill;
  row.is_exact = false;
  row.varies = false;
  return row;
}

// A tensor that stands for one number, such as a step size, keeps its data.
OpCase filled_with(const OpCase& base, const char* name, const Fill& fill) {
  OpCase row = refilled(base, name);
  for (TensorArgument& argument : row.tensors) {
    const bool is_one = op_info(row.op).member(argument.name).kind == "scalar_tensor";
    if (holds_numbers(argument) && !is_one) argument.fill = fill;
  }
  return row;
}

size_t count_data(const OpCase& row) {
  return static_cast<size_t>(std::ranges::count_if(row.tensors, holds_numbers));
}

// Gives every tensor of an element-wise call its elements in rows of `width`.
void reshape(OpCase& row, Shape shape) {
  row.detail = shape_text(shape);
  for (TensorArgument& argument : row.tensors) argument.shape = shape;
}

// Adds every combination of special values, in the body of vectors and in their tail.
void add_special(RowList& rows, const OpCase& base) {
  const size_t inputs = count_data(base);
  if (inputs == 0 || inputs > 3) return;
  OpCase row = refilled(base, "special");
  size_t specials = 0, position = 0;
  for (TensorArgument& argument : row.tensors) {
    if (!holds_numbers(argument)) continue;
    specials = special_values(argument.dtype).size();
    argument.fill = {FillKind::kSpecialNth, static_cast<double>(position++), 0};
  }
  const double count = std::pow(static_cast<double>(specials), static_cast<double>(inputs));
  reshape(row, {static_cast<int64_t>(count)});
  rows.add(row);
  // Strides of 2 test kernels that treat non-contiguous tensors in another way.
  for (TensorArgument& argument : row.tensors) argument.layout = Layout::kStepped;
  row.layout = "stepped_all";
  rows.add(row);
  // One special value at a time stands at the end of a row, behind the whole vectors.
  for (TensorArgument& argument : row.tensors) argument.layout = Layout::kDense;
  row.layout = "dense";
  const auto extent = static_cast<int64_t>(specials);
  reshape(row, {3, extent});
  rows.add(std::move(row));
}

// Returns exponents with which products of two values, summed a few hundred times, stay in range.
Fill range_of_products(bp_dtype dtype) {
  if (dtype == BP_F16) return {FillKind::kLogUniform, -6, 4};
  const double exponent = dtype == BP_F64 ? 100 : 30;
  return {FillKind::kLogUniform, -exponent, exponent};
}

// Returns all magnitudes of an argument, including those that overflow or underflow.
Fill range_of_arguments(const OpCase& row, bp_dtype dtype) {
  const FloatFormat& format = *float_format(dtype);
  double low = format.min_exponent, high = format.max_exponent;
  if (has_class(row, {"E2"})) low = std::max(low, -40.0), high = std::min(high, 20.0);
  if (dtype == BP_F64) low = std::max(low, -500.0), high = std::min(high, 500.0);
  return {FillKind::kLogUniform, low, high};
}

void add_range(RowList& rows, const OpCase& base) {
  OpCase row = refilled(base, "range");
  if (is_elementwise(row)) reshape(row, {3, 257});
  for (TensorArgument& argument : row.tensors) {
    if (!holds_numbers(argument)) continue;
    argument.fill = is_elementwise(base) ? range_of_arguments(base, argument.dtype)
                                         : range_of_products(argument.dtype);
  }
  rows.add(std::move(row));
}

// Returns whether windows may lie partly outside of the tensor that they read. Those of a gradient
// for an input do, because it is a convolution padded by the window.
bool has_padding(const OpCase& row) {
  if (row.op == BP_OP_CONVOLUTION_BACKWARD_INPUT || row.op == BP_OP_CONVOLUTION_TRANSPOSE) {
    return true;
  }
  return std::ranges::any_of(row.attributes, [](const Attribute& attribute) {
    const auto* list = std::get_if<Shape>(&attribute.value);
    return attribute.name == "padding" && list != nullptr &&
           std::ranges::any_of(*list, [](int64_t extent) { return extent != 0; });
  });
}

// Returns `rows`, and rows without padding where there are such. Where there is padding, a NaN too
// many is right.
std::vector<const OpCase*> with_unpadded(const Group& group, std::vector<const OpCase*> rows) {
  Group unpadded;
  for (const OpCase* row : group) {
    if (!has_padding(*row)) unpadded.push_back(row);
  }
  for (const OpCase* row : rows_by_rank(unpadded, 3)) {
    if (std::ranges::find(rows, row) == rows.end()) rows.push_back(row);
  }
  return rows;
}

// Adds NaN, infinities, zeros and subnormals among other numbers. Padding can add a zero or
// nothing, so NaN is also right if a factor is infinite. NaN is right too if factors are rounded to
// TF32 or less, because a subnormal factor then becomes zero. If a term of a bound is infinite,
// such as that of a key without weight in attention, any number is right.
void add_nonfinite(RowList& rows, const OpCase& base) {
  OpCase row = filled_with(base, "nonfinite", kSparse);
  const bool has_products = has_class(row, {"R1"}), is_padded = has_products && has_padding(row);
  row.reference = [exact = row.reference, has_products, is_padded](const CallData& data,
                                                                   const Numerics& numerics) {
    const bool may_be_nan = is_padded || (has_products && numerics.product != 0);
    std::vector<Expected> all = exact(data, numerics);
    for (Expected& expected : all) {
      for (double& bound : expected.bound) bound = std::isnan(bound) ? HUGE_VAL : bound;
      if (!may_be_nan) continue;
      expected.also_right = [right = expected.also_right](int64_t element, DoubleDouble y) {
        return isnan(y) || (right && right(element, y));
      };
    }
    return all;
  };
  rows.add(std::move(row));
}

// One factor has odd integers that need all bits of the dtype, and the other has 1 and -1. Every
// product and every sum is then exact, unless an input or the accumulator is narrower than
// declared.
void add_exact_wide(RowList& rows, const OpCase& base) {
  OpCase row = base;
  row.fill = "exact_wide";
  int64_t most = 0;
  for (const TensorArgument& argument : row.tensors) {
    most = std::max(most, element_count(argument.shape));
  }
  const double bits = most <= 2048 ? 13 : 12;
  size_t position = 0;
  for (TensorArgument& argument : row.tensors) {
    if (!holds_numbers(argument)) continue;
    if (argument.fill.kind != FillKind::kExactDense) return;
    const size_t place = position++;
    if (place == 0) argument.fill = {FillKind::kExactWide, 0, bits};
    if (place == 1) argument.fill = kSign;
  }
  if (position > 0) rows.add(std::move(row));
}

// ---- All values of 16 bits --------------------------------------------------------------------
// //

// Returns whether a call has one dense tensor of floats of 16 bits. Every other number is one of
// the call.
bool has_one_number_of_16_bits(const OpCase& row) {
  const bool is_dense = row.layout == "dense" || row.layout.ends_with("_dense");
  if (!is_dense || row.derive || row.fails_on_device || count_data(row) != 1) return false;
  return std::ranges::all_of(row.tensors, [](const TensorArgument& argument) {
    const bool has_size = !holds_numbers(argument) || element_size(argument.dtype) == 2;
    return has_size && argument.layout == Layout::kDense && argument.alias.empty() &&
           element_count(argument.shape) > 0;
  });
}

// Returns whether an integer of this dtype holds a float without its fraction.
bool fits_integer(bp_dtype dtype, double value) {
  const double top =
      std::exp2(static_cast<double>(dtype_bits(dtype)) - (is_unsigned(dtype) ? 0 : 1));
  return value >= (is_unsigned(dtype) ? 0 : -top) && value < top;
}

// A float that an integer does not hold is undefined, so any result is right there.
void allow_undefined(OpCase& row) {
  row.reference = [exact = row.reference](const CallData& data, const Numerics& numerics) {
    std::vector<Expected> all = exact(data, numerics);
    size_t output = 0;
    for (const HostTensor& tensor : data.tensors()) {
      if (tensor.role == Role::kInput) continue;
      Expected& expected = all.at(output++);
      if (is_float(tensor.dtype) || is_coded(tensor.dtype) || tensor.dtype == BP_BOOL) continue;
      std::vector<bool> is_open;
      for (DoubleDouble& value : expected.value) {
        is_open.push_back(!fits_integer(tensor.dtype, value.hi));
        if (is_open.back()) value = DoubleDouble(0);
      }
      expected.also_right = [is_open = std::move(is_open)](int64_t i, DoubleDouble) {
        return static_cast<bool>(is_open[static_cast<size_t>(i)]);
      };
    }
    return all;
  };
}

// Adds all bits of a float of 16 bits, for each function of it that the rows of a group have: their
// attributes and inline numbers choose it.
void add_all_bits(RowList& rows, const Group& group) {
  std::set<std::string> seen;
  for (const OpCase* base : group) {
    if (!has_one_number_of_16_bits(*base)) continue;
    if (!seen.insert(attributes_key(*base) + base->layout).second) continue;
    if (!is_elementwise(*base)) continue;
    OpCase row = refilled(*base, "all_bits");
    const std::string shape = shape_text(row.tensors.front().shape);
    const std::string rest = row.detail.starts_with(shape) ? row.detail.substr(shape.size()) : "";
    for (TensorArgument& argument : row.tensors) {
      if (holds_numbers(argument)) argument.fill = kAllBits;
    }
    reshape(row, {1 << 16});
    row.detail += rest;
    row.is_smoke = false;
    allow_undefined(row);
    rows.add(std::move(row));
  }
}

void add_elementwise(RowList& rows, const OpCase& base) {
  add_special(rows, base);
  if (!has_class(base, {"X"})) add_range(rows, base);
}

}  // namespace

void add_fill_rows(RowList& rows, const Group& group) {
  add_all_bits(rows, group);
  const OpCase* base = widest(group);
  if (base == nullptr || !has_float_data(*base)) return;
  if (is_elementwise(*base) && !base->derive) return add_elementwise(rows, *base);
  for (const OpCase* row : group) {
    if (is_plain(*row) && row->is_exact && has_class(*row, {"R1"})) add_exact_wide(rows, *row);
  }
  for (const OpCase* row : with_unpadded(group, rows_by_rank(group, 3))) {
    add_nonfinite(rows, *row);
    if (!has_class(*row, {"R1"})) continue;
    rows.add(filled_with(*row, "positive", kPositive));
    add_range(rows, *row);
  }
}

}  // namespace bp::conformance
