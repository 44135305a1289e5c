// Attributes: numbers, axes, lists, names and dtypes.
#include <algorithm>
#include <cstring>
#include <string_view>

#include "frame.hpp"

namespace bp::python {

void Frame::read_attribute(uint32_t index, PyObject* value) {
  const Argument& a = op_.arguments[index];
  const bool is_absent = value == nullptr || value == Py_None;
  if (a.kind == BP_ARGUMENT_I64_LIST) return read_ints(index, is_absent ? nullptr : value);
  if (value == Py_None && a.desc->default_text != nullptr && !a.is_optional) {
    raise(PyExc_TypeError, place(op_, a) + " is None; leave it out for its default");
  }
  if (is_absent) return read_default(a);
  switch (a.kind) {
    case BP_ARGUMENT_I32:
      return read_i32(index, value);
    case BP_ARGUMENT_I64:
      at<int64_t>(a.offset) = read_integer(index, value);
      return;
    case BP_ARGUMENT_U64:
      return read_u64(index, value);
    case BP_ARGUMENT_F64:
      return read_f64(index, value);
    case BP_ARGUMENT_DTYPE:
      at<bp_dtype>(a.offset) = to_dtype(value, place(op_, a).c_str());
      return;
    case BP_ARGUMENT_ENUM:
      return read_enum(index, value);
    default:
      throw Error(BP_UNSUPPORTED, place(op_, a) +
                                      " has a kind that this binding does not know; "
                                      "install a newer one");
  }
}

void Frame::read_default(const Argument& a) {
  const uint64_t bits = a.desc->default_value.bits;
  const bool is_narrow =
      a.kind == BP_ARGUMENT_I32 || a.kind == BP_ARGUMENT_ENUM || a.kind == BP_ARGUMENT_DTYPE;
  if (is_narrow) {
    at<uint32_t>(a.offset) = static_cast<uint32_t>(bits);
  } else {
    at<uint64_t>(a.offset) = bits;
  }
}

void Frame::read_i32(uint32_t index, PyObject* value) {
  const Argument& a = op_.arguments[index];
  const int64_t number = read_integer(index, value);
  if (number != static_cast<int32_t>(number)) {
    raise(PyExc_OverflowError,
          place(op_, a) + " is " + std::to_string(number) + "; allowed: integers of 32 bits");
  }
  at<int32_t>(a.offset) = static_cast<int32_t>(number);
}

void Frame::read_u64(uint32_t index, PyObject* value) {
  const Argument& a = op_.arguments[index];
  const bp_scalar number = to_scalar(value, place(op_, a).c_str()).get();
  const bool is_below = number.dtype == BP_I64 && static_cast<int64_t>(number.bits) < 0;
  if (number.dtype == BP_F64 || is_below) {
    raise(PyExc_TypeError, place(op_, a) + " is no integer from 0 on");
  }
  at<uint64_t>(a.offset) = number.bits;
}

void Frame::read_f64(uint32_t index, PyObject* value) {
  const Argument& a = op_.arguments[index];
  const double number = PyFloat_AsDouble(value);
  if (number == -1 && PyErr_Occurred() != nullptr) {
    PyErr_Clear();
    raise(PyExc_TypeError, place(op_, a) + " is " + type_text(value) + "; allowed: a float");
  }
  at<double>(a.offset) = number;
}

void Frame::read_enum(uint32_t index, PyObject* value) {
  const Argument& a = op_.arguments[index];
  std::string allowed;
  const char* const given = PyUnicode_Check(value) ? PyUnicode_AsUTF8(value) : nullptr;
  for (uint32_t i = 0; i < a.desc->value_count; ++i) {
    if (given != nullptr && std::strcmp(a.desc->value_names[i], given) == 0) {
      at<uint32_t>(a.offset) = a.desc->first_value + i;
      return;
    }
    allowed += (i == 0 ? "'" : ", '") + std::string(a.desc->value_names[i]) + "'";
  }
  raise(given == nullptr ? PyExc_TypeError : PyExc_ValueError,
        place(op_, a) + " is " +
            (given == nullptr ? type_text(value) : "'" + std::string(given) + "'") +
            "; allowed: " + allowed);
}

// ---- Integers -----------------------------------------------------------------------------------

int64_t Frame::rank_for(const Argument& argument) const {
  const auto index = static_cast<uint32_t>(argument.axis_of);
  if (tensors_[index]) return tensors_[index].ndim();
  const List* list = find_list(index);
  return list == nullptr || list->tensors.empty() ? 0 : list->tensors[0].ndim();
}

int64_t Frame::resolve_axis(const Argument& argument, int64_t axis) const {
  if (argument.axis_of < 0) return axis;
  const int64_t rank = std::max<int64_t>(rank_for(argument), argument.has_axis_0 ? 1 : 0);
  if (axis < -rank || axis >= rank) {
    throw Error(BP_INVALID_ARGUMENT,
                place(op_, argument) + " is " + std::to_string(axis) + "; allowed: " +
                    (rank == 0 ? "none, the tensor has no axes"
                               : std::to_string(-rank) + " <= " + argument.name + " < " +
                                     std::to_string(rank)));
  }
  return axis < 0 ? axis + rank : axis;
}

int64_t Frame::read_integer(uint32_t index, PyObject* value) const {
  const Argument& a = op_.arguments[index];
  if (PyIndex_Check(value) == 0) {
    raise(PyExc_TypeError, place(op_, a) + " is " + type_text(value) + "; allowed: an integer");
  }
  return resolve_axis(a, to_ints(value, place(op_, a).c_str())[0]);
}

RuleFacts Frame::facts() const {
  const auto index_of = [this](std::string_view name) {
    const auto found = std::find_if(op_.arguments.begin(), op_.arguments.end(),
                                    [&](const Argument& a) { return a.name == name; });
    return static_cast<uint32_t>(found - op_.arguments.begin());
  };
  return {[this, index_of](std::string_view name) -> std::optional<int64_t> {
            const uint32_t index = index_of(name);
            if (index >= op_.arguments.size()) return std::nullopt;
            if (tensors_[index]) return tensors_[index].ndim();
            const List* list = find_list(index);
            if (list == nullptr || list->tensors.empty()) return std::nullopt;
            return list->tensors[0].ndim();
          },
          [this, index_of](std::string_view name) -> std::optional<int64_t> {
            const List* list = find_list(index_of(name));
            if (list == nullptr) return std::nullopt;
            return static_cast<int64_t>(std::max(list->tensors.size(), list->ints.size()));
          }};
}

// What a list is that the caller left out: all axes, another list of the call, or a number.
std::vector<int64_t> Frame::default_ints(const Argument& a) const {
  std::vector<int64_t> ints;
  if (a.axis_of >= 0) {
    for (int64_t axis = 0; axis < rank_for(a); ++axis) ints.push_back(axis);
    return ints;
  }
  if (a.desc->default_text == nullptr) return ints;
  const std::string_view text = a.desc->default_text;
  for (const List& list : lists_) {
    if (op_.arguments[list.index].name == text) return list.ints;
  }
  if (const auto number = evaluate(text, facts())) return {*number};
  throw Error(BP_UNSUPPORTED, place(op_, a) + " has the default " + std::string(text) +
                                  ", which this binding cannot evaluate; give a list");
}

// A list that is shorter by a whole factor than its rule says is repeated.
void Frame::read_ints(uint32_t index, PyObject* value) {
  const Argument& a = op_.arguments[index];
  List list{index, {}, {}, {}};
  list.ints = value == nullptr ? default_ints(a) : to_ints(value, place(op_, a).c_str());
  for (int64_t& axis : list.ints) axis = resolve_axis(a, axis);
  const auto length = static_cast<int64_t>(list.ints.size());
  const char* const rule = a.desc->count_rule;
  const int64_t count = rule == nullptr ? length : evaluate(rule, facts()).value_or(length);
  if (length > 0 && count % length == 0 && count <= int64_t{2} * BP_MAX_RANK) {
    for (int64_t i = length; i < count; ++i) {
      list.ints.push_back(list.ints[static_cast<size_t>(i - length)]);
    }
  }
  lists_.push_back(std::move(list));
  at<uint64_t>(a.offset - sizeof(uint64_t)) = lists_.back().ints.size();
  at<const int64_t*>(a.offset) = lists_.back().ints.data();
}

}  // namespace bp::python
