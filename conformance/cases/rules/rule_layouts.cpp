// Rows with other layouts, shared memory and other shapes, for every op.
#include <algorithm>
#include <array>
#include <cmath>

#include "conformance/cases/rules/rules.hpp"

namespace bp::conformance {
namespace {

using enum Layout;

// The number of layouts is prime, so that their combinations form an orthogonal array (Bose 1938).
constexpr std::array kLayouts = {kDense,          kTransposed,    kPermuted,    kSliced,
                                 kStepped,        kNegative,      kReversed,    kOffset,
                                 kBroadcastFirst, kBroadcastLast, kBroadcastAll};
constexpr size_t kPrime = kLayouts.size();

// Returns column `column` of row (i, j) of the array, which has kPrime^2 rows. Two columns below
// kPrime + 1 have every pair of values once. Column kPrime is i itself.
size_t entry(size_t i, size_t j, size_t column) {
  if (column % (kPrime + 1) == kPrime) return i;
  return (i * (column % (kPrime + 1)) + j) % kPrime;
}

// Returns the layout that replaces `layout` for an argument that cannot have it.
Layout possible(Layout layout, const TensorArgument& argument, bool is_derived) {
  const bool may_broadcast = argument.role == Role::kInput && !is_derived;
  if (layout == kBroadcastFirst && !may_broadcast) layout = kSliced;
  if (layout == kBroadcastLast && !may_broadcast) layout = kStepped;
  if (layout == kBroadcastAll && !may_broadcast) layout = kTransposed;
  const size_t rank = argument.shape.size();
  if (rank == 0 && layout != kOffset) return kDense;
  if (rank == 1 && (layout == kSliced || layout == kPermuted || layout == kTransposed)) {
    return kDense;
  }
  if (rank == 1 && layout == kReversed) return kNegative;
  if (rank == 1 && is_broadcast(layout)) return kBroadcastAll;
  return rank == 2 && layout == kPermuted ? kTransposed : layout;
}

// Returns a text such as "sliced_a_negative_y". It does not name dense tensors, nor the tensors if
// all have the same layout.
std::string layouts_text(const OpCase& row) {
  std::string text;
  bool are_equal = row.tensors.size() > 1;
  for (const TensorArgument& argument : row.tensors) {
    are_equal = are_equal && argument.layout == row.tensors.front().layout;
  }
  if (are_equal) {
    const std::string name = layout_text(row.tensors.front().layout);
    return name == "dense" ? name : name + "_all";
  }
  size_t number = 0;
  for (const TensorArgument& argument : row.tensors) {
    ++number;
    if (argument.layout == kDense) continue;
    text += (text.empty() ? "" : "_") + std::string(layout_text(argument.layout)) + "_" +
            std::string(argument.name);
    if (op_info(row.op).member(argument.name).is_list()) text += std::to_string(number);
  }
  return text.empty() ? "dense" : text;
}

// Returns the row of the array as a call.
OpCase laid_out(const OpCase& base, const std::vector<bool>& derived, size_t i, size_t j) {
  OpCase row = base;
  for (size_t k = 0; k < row.tensors.size(); ++k) {
    TensorArgument& argument = row.tensors[k];
    argument.layout = possible(kLayouts[entry(i, j, k)], argument, derived[k]);
    row.varies = row.varies && !is_broadcast(argument.layout);
  }
  row.layout = layouts_text(row);
  return row;
}

bool is_main_dtype(const OpCase& row) {
  return std::ranges::all_of(row.tensors, [](const TensorArgument& argument) {
    return !is_float(argument.dtype) || argument.dtype == BP_F32;
  });
}

// Returns whether the row's dtype meets every pair: f32, or i64 if the op has no floats.
bool is_thorough(const OpCase& row) {
  if (!is_main_dtype(row)) return false;
  return row.dtype == "f32" || row.dtype == "i64";
}

// Returns whether two inputs may be one tensor, which means that their data are made alike.
bool may_be_one(const TensorArgument& a, const TensorArgument& b) {
  return a.role == Role::kInput && b.role == Role::kInput && a.dtype == b.dtype &&
         a.shape == b.shape && a.fill.kind == b.fill.kind;
}

}  // namespace

void add_layout_rows(RowList& rows, const Group& group) {
  const std::vector<const OpCase*> bases = rows_by_rank(group, 4);
  if (bases.empty()) return;
  std::vector<std::vector<bool>> derived;
  for (const OpCase* base : bases) derived.push_back(derived_tensors(*base));
  const bool is_every_pair = is_thorough(*bases.front());
  for (size_t i = 0; i < (is_every_pair ? kPrime : 1); ++i) {
    for (size_t j = 0; j < kPrime; ++j) {
      // If not every pair is tested, the row (3j + 1, j) still gives each tensor each layout.
      const size_t first = is_every_pair ? i : (3 * j + 1) % kPrime;
      const size_t which = entry(first, j, bases.size() + 6) % bases.size();
      OpCase row = laid_out(*bases[which], derived[which], first, j);
      row.is_smoke = row.is_smoke && i == 1;
      rows.add_unchecked(std::move(row));  // No output shares elements, so the row is as legal as
                                           // its base.
    }
  }
}

void add_alias_rows(RowList& rows, const Group& group) {
  const OpCase* base = widest(group);
  if (base == nullptr) return;
  const std::vector<bool> derived = derived_tensors(*base);
  for (size_t i = 1; i < base->tensors.size(); ++i) {
    for (size_t k = 0; k < i; ++k) {
      const TensorArgument &later = base->tensors[i], &earlier = base->tensors[k];
      const bool is_pair = later.role == Role::kOutput && earlier.role == Role::kInput;
      const bool is_twice = may_be_one(earlier, later) && !derived[i] && !derived[k];
      if (later.name == earlier.name || !(is_pair || is_twice)) continue;
      if (later.dtype != earlier.dtype || later.shape != earlier.shape) continue;
      for (const Layout layout : {kDense, kSliced, kTransposed, kReversed}) {
        OpCase row = *base;
        row.tensors[i].layout = row.tensors[k].layout = possible(layout, row.tensors[i], true);
        row.tensors[i].alias = row.tensors[k].name;
        row.layout = (is_pair ? "inplace_" : "twice_") + std::string(earlier.name) + "_" +
                     (is_pair ? "" : std::string(later.name) + "_") +
                     layout_text(row.tensors[i].layout);
        row.varies = false;  // x - x is constant.
        rows.add(std::move(row));
      }
    }
  }
}

bool is_same_fill(const Fill& a, const Fill& b) {
  return a.kind == b.kind && a.low == b.low && a.high == b.high;
}

// Returns whether the group has a row like `base` whose tensors have this shape.
bool has_shape(const Group& group, const OpCase& base, const Shape& shape) {
  return std::ranges::any_of(group, [&](const OpCase* row) {
    if (row->layout != "dense" || row->fill != base.fill || row->derive) return false;
    return attributes_key(*row) == attributes_key(base) &&
           std::ranges::equal(
               row->tensors, base.tensors, [&](const TensorArgument& a, const TensorArgument& b) {
                 return a.shape == shape && is_same_fill(a.fill, b.fill) && a.alias == b.alias;
               });
  });
}

void add_shape_rows(RowList& rows, const Group& group) {
  const OpCase* base = widest(group);
  if (base == nullptr || !is_elementwise(*base) || base->derive) return;
  const std::vector<Shape> shapes = {{},
                                     {0},
                                     {1},
                                     {2},
                                     {3},
                                     {4},
                                     {5},
                                     {7},
                                     {8},
                                     {9},
                                     {15},
                                     {16},
                                     {17},
                                     {31},
                                     {32},
                                     {33},
                                     {63},
                                     {64},
                                     {65},
                                     {127},
                                     {257},
                                     {3, 5},
                                     {3, 0},
                                     {0, 4},
                                     {2, 3, 4},
                                     {2, 0, 3},
                                     {2, 3, 2, 3},
                                     {2, 1, 3, 1, 2},
                                     {1, 2, 1, 2, 1, 3},
                                     {2, 1, 2, 1, 2, 1, 2},
                                     {1, 2, 1, 2, 1, 2, 1, 5}};
  for (const Shape& shape : shapes) {
    if (has_shape(group, *base, shape)) continue;
    OpCase row = *base;
    for (TensorArgument& argument : row.tensors) argument.shape = shape;
    row.fill = "tail";
    row.detail = shape_text(shape);
    row.varies = row.varies && element_count(shape) > 64;
    row.is_smoke = row.is_smoke && is_main_dtype(row);
    rows.add(std::move(row));
  }
}

void add_index_rows(RowList& rows, const Group& group) {
  const OpCase* base = widest(group);
  for (const OpCase* given : group) {
    if (given->dtype != "f32" || !(given == base || given->fails_on_device)) continue;
    OpCase row = *given;
    row.detail += "_i32";
    const CallData data(row, 1);
    bool has_index = false, fits = true;
    for (size_t i = 0; i < row.tensors.size(); ++i) {
      TensorArgument& argument = row.tensors[i];
      if (!is_index(row, argument) || argument.dtype != BP_I64) continue;
      argument.dtype = BP_I32;
      has_index = true;
      fits = fits && std::ranges::all_of(data.tensors()[i].data, [](const DoubleDouble& value) {
               return std::abs(value.hi) <= INT32_MAX;
             });
    }
    if (has_index && fits) rows.add(std::move(row));
  }
}

}  // namespace bp::conformance
