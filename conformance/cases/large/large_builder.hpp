// What the lists of large calls are written in.
//
// For each op there is a small call, and the extents to which the axes grow on which its results do
// not depend. Axes that a kernel adds over or searches are as long in the period as in the call.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "conformance/cases/large/large_rows.hpp"

namespace bp::conformance {

inline constexpr int64_t kRows =
    66'067;  // More than 65,535 blocks of a launch, and not whole blocks.
inline constexpr int64_t kAbove16 = (int64_t{1} << 16) + 29;
inline constexpr int64_t kAbove20 = (int64_t{1} << 20) + 13;
inline constexpr int64_t kAbove24 = (int64_t{1} << 24) + 7;

// Makes the calls of an op and a dtype.
class Builder {
 public:
  Builder(const OpCase& model, bp_dtype dtype, std::vector<LargeCall>& calls)
      : model_(model), dtype_(dtype), calls_(calls) {}

  uint32_t op() const { return model_.op; }
  bp_dtype dtype() const { return dtype_; }

  // Begins a call.
  Builder& start(const std::string& what, Tier tier) {
    calls_.push_back(start_large(model_, what, tier));
    return *this;
  }
  Builder& in(std::string_view name, const Shape& period, const Shape& large, Fill fill = kRandom,
              bp_dtype dtype = 0) {
    const bool is_random = fill.kind == FillKind::kUniform && !is_float(dtype_);
    call().period.input(name, dtype == 0 ? dtype_ : dtype, period, is_random ? kExactDense : fill);
    call().growths.push_back({large});
    return *this;
  }
  // Indices below `end` that the large call spreads over the places below `large_end` with the same
  // data.
  Builder& indices(std::string_view name, const Shape& period, const Shape& large, int64_t end,
                   int64_t large_end) {
    call().period.input(name, BP_I64, period, index_fill(end));
    call().growths.push_back({large, large_end == end ? 0 : end, large_end});
    return *this;
  }
  Builder& out(std::string_view name, const Shape& period, const Shape& large, bp_dtype dtype = 0) {
    call().period.output(name, dtype == 0 ? dtype_ : dtype, period);
    call().growths.push_back({large});
    return *this;
  }
  Builder& inout(std::string_view name, const Shape& period, const Shape& large,
                 Fill fill = kRandom) {
    call().period.inout(name, dtype_, period, fill);
    call().growths.push_back({large});
    return *this;
  }
  // The inputs of the model that follow from others do not follow in this call.
  Builder& derive_nothing() {
    call().period.derive = nullptr;
    return *this;
  }
  // Sets an attribute, or replaces that of the model.
  template <typename T>
  Builder& set(std::string_view name, T value) {
    std::erase_if(call().period.attributes, [&](const Attribute& a) { return a.name == name; });
    call().period.set(name, std::move(value));
    return *this;
  }

 private:
  LargeCall& call() { return calls_.back(); }

  const OpCase& model_;
  bp_dtype dtype_;
  std::vector<LargeCall>& calls_;
};

// A matrix of which the rows repeat, or which is not repeated.
struct Plane {
  const char* name;
  Shape period, large;
  Tier tier;
};

// Lines along the last axis: many short ones, some long ones, and one that no block holds.
inline const Plane kLines[] = {
    {"rows", {7, 17}, {kRows, 17}, Tier::kSmoke},
    {"long_rows", {3, 8209}, {131, 8209}, Tier::kQuick},
    {"row", {1, kAbove16}, {1, kAbove16}, Tier::kQuick},
    {"many_rows", {7, 17}, {kAbove20, 17}, Tier::kFull},
    {"longest_row", {1, kAbove20}, {1, kAbove20}, Tier::kFull},
};

// An op, and what adds its large calls.
struct LargeOp {
  uint32_t op;
  void (*add)(Builder&);
};

// Return the ops whose results depend on whole lines, on matrices or images, and on tables or
// lists.
std::span<const LargeOp> large_line_ops();
std::span<const LargeOp> large_product_ops();
std::span<const LargeOp> large_table_ops();

}  // namespace bp::conformance
