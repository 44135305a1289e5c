#include "conformance/shrink/candidates.hpp"

#include <algorithm>
#include <cmath>
#include <set>

#include "conformance/cases/engine/host_call.hpp"
#include "conformance/json_file.hpp"
#include "conformance/shrink/changed_case.hpp"

namespace bp::conformance {
namespace {

using ReferenceFunction = std::vector<Expected>(const CallData&, const Numerics&);

class Candidates {
 public:
  explicit Candidates(const OpCase& current) : current_(current) {}

  std::vector<OpCase> all() && {
    add_constants();
    add_layouts();
    if (follows_shapes(current_)) {
      add_tied_extents();
      add_single_extents();
      add_lower_ranks();
      add_attributes();
    }
    add_fills();
    return std::move(found_);
  }

 private:
  void add(OpCase candidate) {
    for (TensorArgument& argument : candidate.tensors) follow_alias(candidate, argument);
    limit_indices(candidate);
    const std::string text = json_text(describe_call(candidate));
    if (!seen_.insert(text).second || text == current_text_) return;
    const bool has_place = std::ranges::none_of(candidate.tensors, [](const TensorArgument& a) {
      return is_index(a) && a.fill.high < 1 && element_count(a.shape) > 0;
    });
    if (has_place && HostCall(candidate).is_legal()) found_.push_back(std::move(candidate));
  }

  // Makes a tensor that lies in the memory of another one equal to that tensor, as the engine sees
  // it.
  static void follow_alias(const OpCase& call, TensorArgument& argument) {
    if (argument.alias.empty()) return;
    const auto original = std::ranges::find(call.tensors, argument.alias, &TensorArgument::name);
    argument.shape = original->shape;
    argument.layout = original->layout;
  }

  // Limits indices to the extents, which may have become smaller.
  void limit_indices(OpCase& changed) const {
    double limit = HUGE_VAL;
    for (size_t i = 0; i < changed.tensors.size(); ++i) {
      const Shape &shape = changed.tensors[i].shape, &before = current_.tensors[i].shape;
      if (shape.size() != before.size()) continue;
      for (size_t axis = 0; axis < shape.size(); ++axis) {
        if (shape[axis] < before[axis]) limit = std::min(limit, static_cast<double>(shape[axis]));
      }
    }
    for (TensorArgument& argument : changed.tensors) {
      if (!is_index(argument)) continue;
      argument.fill.high = std::min(argument.fill.high, limit);
      argument.fill.low = std::min(argument.fill.low, argument.fill.high - 1);
    }
  }

  void add_layouts() {
    OpCase dense = current_;
    for (TensorArgument& argument : dense.tensors) argument.layout = Layout::kDense;
    add(dense);
    for (size_t i = 0; i < current_.tensors.size(); ++i) {
      OpCase one = current_;
      one.tensors[i].layout = Layout::kDense;
      add(std::move(one));
    }
  }

  // Returns the smaller extents to try, the smallest first.
  static std::vector<int64_t> below(int64_t extent) {
    std::vector<int64_t> values;
    for (const int64_t value :
         {int64_t{1}, int64_t{2}, extent / 4, extent / 2, extent - extent / 4, extent - 1}) {
      const bool is_new = values.empty() || value > values.back();
      if (value >= 1 && value < extent && is_new) values.push_back(value);
    }
    return values;
  }

  // Equal extents are usually the same extent, so all of them change together: once with the
  // attributes that have this value, and once without.
  void add_tied_extents() {
    std::set<int64_t, std::greater<>> extents;
    for (const TensorArgument& argument : current_.tensors) {
      extents.insert(argument.shape.begin(), argument.shape.end());
    }
    for (const int64_t extent : extents) {
      for (const int64_t value : below(extent)) {
        for (const bool with_attributes : {true, false}) add_tied(extent, value, with_attributes);
      }
    }
  }

  void add_tied(int64_t extent, int64_t value, bool with_attributes) {
    OpCase changed = current_;
    for (TensorArgument& argument : changed.tensors) {
      std::ranges::replace(argument.shape, extent, value);
    }
    for (Attribute& attribute : changed.attributes) {
      if (!with_attributes) break;
      if (auto* list = std::get_if<Shape>(&attribute.value)) {
        std::ranges::replace(*list, extent, value);
      } else if (auto* integer = std::get_if<int64_t>(&attribute.value); integer != nullptr) {
        if (*integer == extent) *integer = value;
      }
    }
    add(changed);
    infer_outputs(changed);
    add(std::move(changed));
  }

  // Changes one axis of one input, if the op allows that.
  void add_single_extents() {
    for (size_t i = 0; i < current_.tensors.size(); ++i) {
      const TensorArgument& argument = current_.tensors[i];
      if (argument.role != Role::kInput) continue;
      for (size_t axis = 0; axis < argument.shape.size(); ++axis) {
        for (const int64_t value : below(argument.shape[axis])) {
          OpCase changed = current_;
          changed.tensors[i].shape[axis] = value;
          infer_outputs(changed);
          add(std::move(changed));
        }
      }
    }
  }

  static bool is_index(const TensorArgument& argument) {
    return argument.role != Role::kOutput && argument.fill.kind == FillKind::kIndex;
  }

  // Removes the first axis of extent 1 from the tensors with the most axes.
  void add_lower_ranks() {
    size_t rank = 0;
    for (const TensorArgument& argument : current_.tensors) {
      rank = std::max(rank, argument.shape.size());
    }
    if (rank == 0) return;
    for (size_t axis = 0; axis < rank; ++axis) {
      OpCase changed = current_;
      bool is_one = true;
      for (TensorArgument& argument : changed.tensors) {
        if (argument.shape.size() != rank) continue;
        is_one = is_one && argument.shape[axis] == 1;
        argument.shape.erase(argument.shape.begin() + static_cast<std::ptrdiff_t>(axis));
      }
      if (is_one) add(std::move(changed));
    }
  }

  template <typename T>
  void add_value(size_t attribute, T value) {
    OpCase changed = current_;
    changed.attributes[attribute].value = std::move(value);
    add(changed);
    infer_outputs(changed);
    add(std::move(changed));
  }

  void add_attributes() {
    for (size_t i = 0; i < current_.attributes.size(); ++i) {
      const auto& value = current_.attributes[i].value;
      if (const auto* integer = std::get_if<int64_t>(&value)) {
        for (const int64_t plain : {int64_t{0}, int64_t{1}}) {
          if (plain < *integer || *integer < 0) add_value(i, plain);
        }
      } else if (const auto* number = std::get_if<double>(&value)) {
        for (const double plain : {0.0, 1.0}) {
          if (*number != 0 && *number != plain) add_value(i, plain);
        }
      } else if (const auto* list = std::get_if<Shape>(&value)) {
        add_plain_list(i, *list);
      }
    }
  }

  void add_plain_list(size_t attribute, const Shape& list) {
    for (const int64_t plain : {int64_t{0}, int64_t{1}}) {
      if (std::ranges::any_of(list, [&](int64_t entry) { return entry > plain; })) {
        Shape all = list;
        for (int64_t& entry : all) entry = std::min(entry, plain);
        add_value(attribute, std::move(all));
      }
    }
  }

  // Returns how plain the data are: one number, one element, its place, a small number, anything.
  static int plainness(const Fill& fill) {
    if (is_constant(fill)) return -1;
    if (fill.kind == FillKind::kOneHot) return 0;
    if (fill.kind == FillKind::kCoord) return 1;
    return fill.kind == FillKind::kExactDense ? 2 : 3;
  }

  static bool is_constant(const Fill& fill) {
    const bool is_nan = std::isnan(fill.low) && std::isnan(fill.high);
    return fill.kind == FillKind::kUniform && (is_nan || fill.low == fill.high);
  }

  // Returns the numbers of which one may be enough to fail: the special ones, where there are any.
  static std::vector<double> constants_of(const TensorArgument& argument) {
    using enum FillKind;
    const FillKind kind = argument.fill.kind;
    const bool is_special = kind == kSpecial || kind == kSpecialSlow || kind == kSpecialNth ||
                            kind == kSparse || kind == kAllBits;
    if (!is_special) return {1, 2, 0.5};
    std::vector<double> values;
    for (const DoubleDouble& value : special_values(argument.dtype)) values.push_back(value.hi);
    return values;
  }

  // A value that fails in every element fails in the smallest call too.
  void add_constants() {
    for (size_t i = 0; i < current_.tensors.size(); ++i) {
      const TensorArgument& argument = current_.tensors[i];
      if (!is_data(argument) || is_constant(argument.fill)) continue;
      for (const double value : constants_of(argument)) {
        OpCase changed = current_;
        changed.tensors[i].fill = {FillKind::kUniform, value, value};
        changed.is_exact = false;
        add(std::move(changed));
      }
    }
  }

  static bool is_data(const TensorArgument& argument) {
    return argument.role != Role::kOutput && is_float(argument.dtype) && !is_index(argument) &&
           argument.alias.empty();
  }

  void add_fills() {
    for (const Fill& plain : {kOneHot, kCoord, kExactNarrow}) {
      OpCase all = current_;
      for (size_t i = 0; i < current_.tensors.size(); ++i) {
        const TensorArgument& argument = current_.tensors[i];
        if (!is_data(argument) || plainness(argument.fill) <= plainness(plain)) continue;
        all.tensors[i].fill = plain;
        OpCase one = current_;
        one.tensors[i].fill = plain;
        one.is_exact = false;
        single_.push_back(std::move(one));
      }
      all.is_exact = false;
      add(std::move(all));
    }
    for (OpCase& one : single_) add(std::move(one));
  }

  const OpCase& current_;
  std::string current_text_ = json_text(describe_call(current_));
  std::set<std::string> seen_;
  std::vector<OpCase> found_, single_;
};

}  // namespace

bool follows_call(const OpCase& op_case) {
  return op_case.reference.target<ReferenceFunction*>() != nullptr;
}

bool follows_shapes(const OpCase& op_case) { return follows_call(op_case) && !op_case.derive; }

std::vector<OpCase> simpler_calls(const OpCase& current) { return Candidates(current).all(); }

}  // namespace bp::conformance
