// Large calls of the ops whose results depend only on the elements at their own place. The data of
// a row of one axis are a period of them.
#include <algorithm>
#include <iterator>
#include <set>

#include "conformance/cases/large/large_rows.hpp"
#include "conformance/reference/elementwise.hpp"

namespace bp::conformance {
namespace {

constexpr int64_t kPeriod = 1031;
constexpr int64_t kAbove16 = (int64_t{1} << 16) + 29;
constexpr int64_t kAbove20 = (int64_t{1} << 20) + 13;
constexpr int64_t kAbove24 = (int64_t{1} << 24) + 7;
constexpr int64_t kAbove31 = (int64_t{1} << 31) + 11;

// Returns the dtype of the tensor with the widest elements.
bp_dtype widest_dtype(const OpCase& row) {
  return std::ranges::max_element(row.tensors, {},
                                  [](const TensorArgument& t) { return dtype_bits(t.dtype); })
      ->dtype;
}

bool is_of_elements(uint32_t op) {
  constexpr uint32_t kOthers[] = {BP_OP_COPY, BP_OP_FILL, BP_OP_WHERE, BP_OP_GELU,
                                  BP_OP_GELU_BACKWARD};
  return std::ranges::find(kOthers, op) != std::end(kOthers) ||
         std::ranges::find(elementwise::kRows, op, &elementwise::Row::op) !=
             std::end(elementwise::kRows);
}

// Returns whether the row is dense and plain, and has one axis that can be a period.
bool is_period(const OpCase& row) {
  constexpr std::string_view kFills[] = {"random", "exact_dense", "coord", "repeat", "three"};
  if (row.layout != "dense" || row.fails_on_device || row.tensors.empty()) return false;
  if (std::ranges::find(kFills, row.fill) == std::end(kFills)) return false;
  return std::ranges::all_of(row.tensors, [&](const TensorArgument& tensor) {
    return tensor.shape == row.tensors[0].shape && tensor.shape.size() == 1 &&
           tensor.shape[0] >= 67 && !is_packed(tensor.dtype) && tensor.alias.empty();
  });
}

LargeCall grown(const OpCase& row, const Shape& period, const Shape& large, Tier tier,
                Layout layout = Layout::kDense) {
  LargeCall call{row, {}, tier};
  call.period.fill = "large";
  call.period.layout = layout_text(layout);
  // The detail of the row begins with its shape, and attributes may follow.
  const std::string own = shape_text(row.tensors[0].shape);
  call.period.detail = shape_text(large) + row.detail.substr(own.size());
  for (TensorArgument& tensor : call.period.tensors) {
    tensor.shape = period;
    tensor.layout = layout;
    call.growths.push_back({large});
  }
  return call;
}

// Two axes, of which one has more extents than a launch of 65,535 blocks has.
void add_planes(const OpCase& row, std::vector<LargeCall>& calls) {
  const Shape tall{70'001, 3}, broad{3, 70'001};
  calls.push_back(grown(row, {1031, 3}, tall, Tier::kQuick, Layout::kTransposed));
  calls.push_back(grown(row, {3, 1031}, broad, Tier::kQuick, Layout::kTransposed));
  calls.push_back(grown(row, {1031, 3}, tall, Tier::kQuick, Layout::kSliced));
}

// Elements of one and two bytes, whose numbers and bytes need more than 31 bits.
void add_huge(const OpCase& row, std::vector<LargeCall>& calls) {
  const uint64_t bits = dtype_bits(widest_dtype(row));
  const bool is_moved = row.op == BP_OP_COPY;
  if (row.tensors.size() > 2 || (bits > 16 && !is_moved)) return;
  const int64_t count = bits <= 16 ? kAbove31 : kAbove31 / 2;
  calls.push_back(grown(row, {kPeriod}, {count}, Tier::kFull));
}

}  // namespace

void add_large_elements(const OpCases& rows, std::vector<LargeCall>& calls) {
  std::set<std::string> seen;
  std::set<uint32_t> has_planes;
  for (const OpCase& row : rows) {
    if (!is_of_elements(row.op) || !is_period(row)) continue;
    const bool is_f32 = row.dtype == "f32" && widest_dtype(row) == BP_F32;
    LargeCall call = grown(row, {kPeriod}, {kAbove20}, is_f32 ? Tier::kSmoke : Tier::kQuick);
    if (!seen.insert(call.period.id()).second) continue;
    calls.push_back(std::move(call));
    if (!is_f32) {
      calls.push_back(grown(row, {kPeriod}, {kAbove16}, Tier::kSmoke));
      calls.back().period.fill = "medium";
    }
    calls.push_back(grown(row, {kPeriod}, {kAbove24}, Tier::kFull));
    add_huge(row, calls);
    if (is_f32 && has_planes.insert(row.op).second) add_planes(row, calls);
  }
}

}  // namespace bp::conformance
