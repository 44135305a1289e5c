// Calls that are recorded for gradients. The description has the gradient as formulas, which
// backplane/_autograd.py runs; the graph and the engine are the runtime's.
#include <bit>
#include <cstring>

#include "backplane/runtime/autograd.hpp"
#include "frame.hpp"
#include "gradient.hpp"

namespace bp::python {

namespace {

// Names a description for backplane/_autograd.py. It never changes, and lives until the process
// ends.
nb::int_ key_of(const bp_op_desc& desc) { return nb::int_(reinterpret_cast<uintptr_t>(&desc)); }

// A function of backplane/_autograd.py, which lives until the process ends.
nb::handle function_of(const char* name) {
  return nb::object(nb::module_::import_("backplane._autograd").attr(name)).release();
}

}  // namespace

const Op::Gradient& Op::gradient() const {
  if (gradient_) return *gradient_;
  const nb::object saved = function_of("saved_outputs")(desc.name, key_of(desc));
  Gradient made{!saved.is_none(), 0};
  for (size_t i = 0; made.exists && i < arguments.size(); ++i) {
    const bool is_saved =
        PySequence_Contains(saved.ptr(), nb::str(arguments[i].name.c_str()).ptr());
    if (arguments[i].is_output && is_saved) made.saved_outputs |= uint64_t{1} << i;
  }
  gradient_ = made;
  return *gradient_;
}

const Op::Recipe& Op::recipe(uint64_t required) const {
  for (const Recipe& known : recipes_) {
    if (known.required == required) return known;
  }
  nb::list names;
  for (size_t i = 0; i < arguments.size(); ++i) {
    if (((required >> i) & 1) != 0) names.append(arguments[i].name);
  }
  const nb::object made = function_of("recipe")(desc.name, key_of(desc), names);
  const auto mask = [&](const char* list) {
    const nb::object listed = made.attr(list);
    uint64_t bits = 0;
    for (size_t i = 0; i < arguments.size(); ++i) {
      if (nb::cast<bool>(listed.attr("__contains__")(arguments[i].name))) bits |= uint64_t{1} << i;
    }
    return bits;
  };
  recipes_.push_back({made, required, mask("wanted"), mask("kept"), mask("facts"),
                      mask("versioned"), mask("differentiable"), mask("later"),
                      nb::cast<bool>(made.attr("needs_shapes"))});
  return recipes_.back();
}

uint64_t Frame::required_inputs() const {
  uint64_t required = 0;
  for (uint32_t i = 0; i < op_.arguments.size(); ++i) {
    const bool is_input = op_.arguments[i].is_tensor && !op_.arguments[i].is_output;
    if (is_input && tensors_[i] && tensors_[i].requires_grad()) required |= uint64_t{1} << i;
  }
  for (const List& list : lists_) {
    for (const Tensor& tensor : list.tensors) {
      if (tensor.requires_grad()) required |= uint64_t{1} << list.index;
    }
  }
  return required;
}

bool Frame::is_recorded() const {
  if (!is_grad_enabled() || required_inputs() == 0) return false;
  return written_ != 0 || op_.gradient().exists;
}

void Frame::check_unrecorded() const {
  throw Error(BP_INVALID_ARGUMENT, std::string(op_.desc.name) +
                                       ": a tensor requires a gradient, and writes in place are "
                                       "not recorded; put them under backplane.no_grad()");
}

nb::object Frame::attribute_of(uint32_t index) const {
  const Argument& a = op_.arguments[index];
  switch (a.kind) {
    case BP_ARGUMENT_I32:
      return nb::int_(at<int32_t>(a.offset));
    case BP_ARGUMENT_I64:
      return nb::int_(at<int64_t>(a.offset));
    case BP_ARGUMENT_U64:
      return nb::int_(at<uint64_t>(a.offset));
    case BP_ARGUMENT_F64:
      return nb::float_(at<double>(a.offset));
    case BP_ARGUMENT_DTYPE:
      return nb::borrow(dtype_object(at<bp_dtype>(a.offset)));
    case BP_ARGUMENT_ENUM: {
      const uint32_t value = at<uint32_t>(a.offset) - a.desc->first_value;
      return nb::str(value < a.desc->value_count ? a.desc->value_names[value] : "");
    }
    default: {
      nb::list result;
      if (const List* list = find_list(index)) {
        for (const int64_t number : list->ints) result.append(number);
      }
      return result;
    }
  }
}

nb::object Frame::value_of(uint32_t index, bool is_fact) const {
  const Argument& a = op_.arguments[index];
  if (!a.is_tensor) return attribute_of(index);
  const auto object_of = [&](const Tensor& tensor) {
    return is_fact ? nb::cast(Facts(tensor)) : tensor_object(tensor);
  };
  if (a.is_list) {
    nb::list result;
    if (const List* list = find_list(index)) {
      for (const Tensor& tensor : list->tensors) result.append(object_of(tensor));
    }
    return result;
  }
  if (tensors_[index]) return object_of(tensors_[index]);
  if (!a.has_scalar) return nb::none();
  const bp_scalar& scalar = at<bp_scalar>(a.offset + sizeof(void*));
  if (scalar.dtype == BP_F64) return nb::float_(std::bit_cast<double>(scalar.bits));
  if (scalar.dtype == BP_U64) return nb::int_(scalar.bits);
  if (scalar.dtype == BP_BOOL) return nb::bool_(scalar.bits != 0);
  return scalar.dtype == 0 ? nb::object(nb::none())
                           : nb::object(nb::int_(static_cast<int64_t>(scalar.bits)));
}

nb::dict Frame::kept_values(const Op::Recipe& recipe) const {
  nb::dict values;
  for (uint32_t i = 0; i < op_.arguments.size(); ++i) {
    const uint64_t bit = uint64_t{1} << i;
    const Argument& a = op_.arguments[i];
    if ((recipe.kept & bit) != 0) values[a.name.c_str()] = value_of(i, (recipe.facts & bit) != 0);
    if (recipe.needs_shapes && (recipe.differentiable & bit) != 0 && tensors_[i]) {
      values[(a.name + ".facts").c_str()] = nb::cast(Facts(tensors_[i]));
    }
  }
  return values;
}

nb::tuple Frame::versions(const Op::Recipe& recipe) const {
  nb::list result;
  for (const nb::handle name : recipe.object.attr("versioned")) {
    const std::string text = nb::cast<std::string>(name);
    for (uint32_t i = 0; i < op_.arguments.size(); ++i) {
      if (op_.arguments[i].name != text) continue;
      uint64_t version = tensors_[i] ? tensors_[i].version() : 0;
      if (const List* list = find_list(i)) {
        for (const Tensor& tensor : list->tensors) version += tensor.version();
      }
      result.append(version);
    }
  }
  return nb::tuple(result);
}

// Returns None if no input is of a list, and adds the inputs that require a gradient to `inputs`.
nb::object Frame::places(const Op::Recipe& recipe, std::vector<Tensor>& inputs) const {
  nb::list result;
  bool has_list = false;
  for (uint32_t i = 0; i < op_.arguments.size(); ++i) {
    if (((recipe.wanted >> i) & 1) == 0) continue;
    const Argument& a = op_.arguments[i];
    if (!a.is_list) {
      inputs.push_back(tensors_[i]);
      result.append(nb::make_tuple(a.name, nb::none()));
      continue;
    }
    has_list = true;
    const List& list = *find_list(i);
    for (size_t item = 0; item < list.tensors.size(); ++item) {
      if (!list.tensors[item].requires_grad()) continue;
      inputs.push_back(list.tensors[item]);
      result.append(nb::make_tuple(a.name, item));
    }
  }
  return has_list ? nb::object(result) : nb::object(nb::none());
}

// Puts tensors that are part of the graph in place of the outputs.
void Frame::record() {
  const Op::Recipe& recipe = op_.recipe(required_inputs());
  if (recipe.wanted == 0) return;
  if (recipe.later != 0) {
    nb::dict given;
    for (uint32_t i = 0; i < op_.arguments.size(); ++i) {
      if (((recipe.later >> i) & 1) != 0) given[op_.arguments[i].name.c_str()] = value_of(i);
    }
    function_of("check_later")(op_.desc.name, given);
  }
  std::vector<Tensor> inputs;
  const nb::object at = places(recipe, inputs);
  const nb::dict values = kept_values(recipe);
  const nb::tuple numbers = versions(recipe);
  for (uint32_t i = 0; i < op_.arguments.size(); ++i) {
    if (((recipe.differentiable >> i) & 1) == 0 || !tensors_[i]) continue;
    tensors_[i] =
        record_call(op_.desc.name, inputs, tensors_[i],
                    nb::make_tuple(recipe.object, values, numbers, at, op_.arguments[i].name));
  }
}

}  // namespace bp::python
