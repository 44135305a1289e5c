#include "conformance/cases/rules/spec_bends.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "backplane/host.h"

namespace bp::conformance {
namespace {

constexpr bp_dtype kLastDtype = BP_U2;
constexpr int64_t kFar = int64_t{1} << 48;  // A tensor with this extent has elements that cannot be
                                            // counted.
constexpr int64_t kTooMany = int64_t{1} << 59;  // The number of elements of one tensor.

// Scalars of every kind, and invalid ones.
const std::pair<bp_scalar, const char*> kScalars[] = {{float_scalar(0.5), "the number 0.5"},
                                                      {integer_scalar(-1), "the number -1"},
                                                      {unsigned_scalar(3), "the unsigned 3"},
                                                      {bp_scalar{BP_BOOL, 0, 1}, "true"},
                                                      {bp_scalar{BP_BOOL, 0, 2}, "a bool of 2"},
                                                      {bp_scalar{BP_F32, 0, 0}, "an f32"},
                                                      {bp_scalar{BP_I64, 0, 1, 1}, "1 with 1 i"},
                                                      {bp_scalar{BP_C128, 0, 0, 0}, "a complex 0"},
                                                      {bp_scalar{}, "nothing"}};

class Bender {
 public:
  Bender(const OpCase& row, const std::function<void(Bend)>& visit) : row_(row), visit_(visit) {
    row_.reference = nullptr;  // No case here computes a result, and copies of the row are many.
    row_.derive = nullptr;
  }

  void bend_all() {
    for (size_t i = 0; i < row_.tensors.size(); ++i) {
      bend_extents(i);
      bend_rank(i);
      bend_dtype(i);
      bend_list(i);
    }
    bend_like_extents();
    bend_like_ranks();
    bend_like_dtypes();
    for (size_t i = 0; i < row_.attributes.size(); ++i) bend_attribute(i);
    for (const FrameMember& member : op_info(row_.op).members) {
      if (member.has_scalar() && find(member.name) == row_.tensors.size()) bend_scalar(member.name);
    }
  }

 private:
  bool is_output(size_t tensor) const { return row_.tensors[tensor].role == Role::kOutput; }

  size_t find(std::string_view name) const {
    const auto found = std::ranges::find(row_.tensors, name, &TensorArgument::name);
    return static_cast<size_t>(found - row_.tensors.begin());
  }

  std::string name_of(size_t tensor) const {
    std::string name(row_.tensors[tensor].name);
    size_t position = 0;
    for (size_t i = 0; i < tensor; ++i) position += row_.tensors[i].name == name ? 1 : 0;
    const bool is_list = op_info(row_.op).member(name).is_list();
    return is_list ? name + "[" + std::to_string(position) + "]" : name;
  }

  // Calls change(row) on a copy.
  template <typename Change>
  void bend(std::string what, Change change, bool is_of_output = false) {
    Bend result{std::move(what), row_, is_of_output};
    change(result.row);
    visit_(std::move(result));
  }

  void reshape(size_t tensor, const Shape& shape) {
    if (shape == row_.tensors[tensor].shape || shape.size() > BP_MAX_RANK) return;
    bend(
        name_of(tensor) + " of shape " + shape_text(shape),
        [&](OpCase& row) { row.tensors[tensor].shape = shape; }, is_output(tensor));
  }

  void bend_extents(size_t tensor) {
    const Shape& own = row_.tensors[tensor].shape;
    for (size_t axis = 0; axis < own.size(); ++axis) {
      for (const int64_t extent : {own[axis] + 1, own[axis] - 1, int64_t{0}, int64_t{1}}) {
        Shape shape = own;
        shape[axis] = extent;
        if (extent >= 0) reshape(tensor, shape);
      }
    }
    Shape shape = own;
    if (shape.empty()) shape.push_back(1);
    shape[0] =
        kTooMany / std::max<int64_t>(element_count(shape) / std::max<int64_t>(shape[0], 1), 1);
    reshape(tensor, shape);
  }

  void bend_rank(size_t tensor) {
    const Shape& own = row_.tensors[tensor].shape;
    for (const int64_t extent : {1, 2}) {
      Shape longer = own;
      longer.push_back(extent);
      reshape(tensor, longer);
    }
    reshape(tensor, {});
    reshape(tensor, Shape(BP_MAX_RANK, 1));
    if (own.empty()) return;
    reshape(tensor, Shape(own.begin() + 1, own.end()));
    reshape(tensor, Shape(own.begin(), own.end() - 1));
  }

  void bend_dtype(size_t tensor) {
    for (bp_dtype dtype = 1; dtype <= kLastDtype; ++dtype) {
      if (bp_dtype_name(dtype) == nullptr || dtype == row_.tensors[tensor].dtype) continue;
      bend(
          name_of(tensor) + " of dtype " + bp_dtype_name(dtype),
          [&](OpCase& row) { row.tensors[tensor].dtype = dtype; }, is_output(tensor));
    }
  }

  // Makes the list one tensor shorter and one longer, leaves out a single tensor, or puts a number
  // in its place.
  void bend_list(size_t tensor) {
    const std::string_view name = row_.tensors[tensor].name;
    const std::string_view kind = op_info(row_.op).member(name).kind;
    if (kind.ends_with("_opt") || kind.ends_with("_list")) {
      bend("without " + name_of(tensor), [&](OpCase& row) {
        row.tensors.erase(row.tensors.begin() + static_cast<std::ptrdiff_t>(tensor));
      });
    }
    if (op_info(row_.op).member(name).has_scalar()) {
      for (const auto& [scalar, text] : kScalars) {
        bend(std::string(name) + " as " + text, [&, &value = scalar](OpCase& row) {
          row.tensors.erase(row.tensors.begin() + static_cast<std::ptrdiff_t>(tensor));
          row.set(name, value);
        });
      }
    }
    if (kind.ends_with("_list")) {
      bend("one more like " + name_of(tensor), [&](OpCase& row) {
        row.tensors.insert(row.tensors.begin() + static_cast<std::ptrdiff_t>(tensor),
                           row_.tensors[tensor]);
      });
    }
  }

  // Changes all inputs that have one extent at one place, counted from the first axis or from the
  // last.
  void bend_like_extents() {
    std::set<std::pair<int, int64_t>> seen;
    for (const TensorArgument& like : row_.tensors) {
      const int rank = static_cast<int>(like.shape.size());
      for (int axis = -rank; axis < rank; ++axis) {
        const int64_t extent = *extent_at(like.shape, axis);
        if (!seen.insert({axis, extent}).second) continue;
        for (const int64_t other : {extent + 1, extent + extent, int64_t{0}, kFar}) {
          bend("axis " + std::to_string(axis) + " of " + std::to_string(other) + " for " +
                   std::to_string(extent),
               [&](OpCase& row) { replace(row, axis, extent, other); });
        }
      }
    }
  }

  static const int64_t* extent_at(const Shape& shape, int axis) {
    if (axis < 0) axis += static_cast<int>(shape.size());
    const auto index = static_cast<size_t>(axis);
    return axis >= 0 && index < shape.size() ? &shape[index] : nullptr;
  }

  static void replace(OpCase& row, int axis, int64_t extent, int64_t other) {
    for (TensorArgument& argument : row.tensors) {
      const int64_t* own = extent_at(argument.shape, axis);
      if (own == nullptr || *own != extent || argument.role == Role::kOutput) continue;
      argument.shape[static_cast<size_t>(own - argument.shape.data())] = other;
    }
  }

  // Gives all inputs of one rank one axis more, or one axis less.
  void bend_like_ranks() {
    std::set<size_t> seen;
    for (const TensorArgument& like : row_.tensors) {
      const size_t rank = like.shape.size();
      if (like.role == Role::kOutput || !seen.insert(rank).second) continue;
      const auto each = [rank](OpCase& row, auto change) {
        for (TensorArgument& argument : row.tensors) {
          const bool is_like = argument.role != Role::kOutput && argument.shape.size() == rank;
          if (is_like) change(argument.shape);
        }
      };
      const std::string all = "all inputs of rank " + std::to_string(rank);
      if (rank < BP_MAX_RANK) {
        bend(all + " with an axis in front",
             [&](OpCase& row) { each(row, [](Shape& shape) { shape.insert(shape.begin(), 1); }); });
      }
      if (rank == 0) continue;
      bend(all + " without the first axis",
           [&](OpCase& row) { each(row, [](Shape& shape) { shape.erase(shape.begin()); }); });
      bend(all + " without the last axis",
           [&](OpCase& row) { each(row, [](Shape& shape) { shape.pop_back(); }); });
    }
  }

  void bend_like_dtypes() {
    std::set<bp_dtype> seen;
    for (const TensorArgument& like : row_.tensors) {
      if (!seen.insert(like.dtype).second) continue;
      for (bp_dtype dtype = 1; dtype <= kLastDtype; ++dtype) {
        if (bp_dtype_name(dtype) == nullptr || dtype == like.dtype) continue;
        bend(std::string(bp_dtype_name(dtype)) + " for each " + dtype_text(like.dtype),
             [&](OpCase& row) {
               for (TensorArgument& argument : row.tensors) {
                 if (argument.dtype == like.dtype) argument.dtype = dtype;
               }
             });
      }
    }
  }

  void bend_value(size_t attribute) {
    for (const auto& [scalar, text] : kScalars) set(attribute, scalar, text);
  }

  template <typename T>
  void set(size_t attribute, const T& value, const std::string& text) {
    bend(std::string(row_.attributes[attribute].name) + " of " + text,
         [&](OpCase& row) { row.attributes[attribute].value = value; });
  }

  void bend_attribute(size_t attribute) {
    const auto& value = row_.attributes[attribute].value;
    if (const auto* own = std::get_if<int64_t>(&value)) {
      for (const int64_t next : {*own + 1, *own - 1, int64_t{-1}, int64_t{0}, int64_t{1},
                                 int64_t{2}, int64_t{8}, int64_t{99}, int64_t{INT32_MAX}}) {
        set(attribute, next, std::to_string(next));
      }
    } else if (std::holds_alternative<double>(value)) {
      const double nan = std::numeric_limits<double>::quiet_NaN();
      for (const double next : {-HUGE_VAL, -1.0, -0.0, 0.5, 1.0, 1.5, HUGE_VAL, nan}) {
        set(attribute, next, std::to_string(next));
      }
    } else if (const auto* list = std::get_if<Shape>(&value)) {
      bend_values(attribute, *list);
    } else {
      bend_value(attribute);
    }
  }

  void bend_values(size_t attribute, const Shape& own) {
    Shape longer = own;
    longer.push_back(own.empty() ? 1 : own.back());
    set(attribute, longer, "(" + shape_text(longer) + ")");
    if (own.empty()) return;
    set(attribute, Shape(own.begin(), own.end() - 1), "one value less");
    set(attribute, Shape(), "no value");
    for (size_t i = 0; i < own.size(); ++i) {
      for (const int64_t next : {own[i] + 1, own[i] - 1, int64_t{-1}, int64_t{0}, int64_t{8},
                                 int64_t{1000}, own.front()}) {
        Shape values = own;
        values[i] = next;
        set(attribute, values, "(" + shape_text(values) + ")");
      }
    }
  }

  void bend_scalar(std::string_view name) {
    for (const bp_dtype dtype : {BP_F64, BP_I64, BP_U64, BP_F32, BP_I32, BP_BOOL}) {
      for (const Shape& shape :
           {Shape{}, Shape{1}, Shape{1, 1}, Shape{0}, Shape{2}, Shape{kTooMany}}) {
        bend(std::string(name) + " as a tensor of " + dtype_text(dtype) + " " + shape_text(shape),
             [&](OpCase& row) { row.input(name, dtype, shape, Fill{}); });
      }
    }
  }

  OpCase row_;
  const std::function<void(Bend)>& visit_;
};

}  // namespace

void for_each_bend(const OpCase& row, const std::function<void(Bend)>& visit) {
  Bender(row, visit).bend_all();
}

}  // namespace bp::conformance
