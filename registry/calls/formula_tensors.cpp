// Parses the tensors of formulas: names, views, and calls of ops.
#include <algorithm>
#include <cstring>
#include <iterator>
#include <span>
#include <utility>

#include "backplane/host.h"
#include "registry/calls/descriptions.hpp"
#include "registry/calls/formula_scope.hpp"
#include "registry/calls/op_rows.hpp"
#include "registry/calls/runtime_ops.hpp"

namespace bp::core {

struct TensorParser::View {
  std::string_view name;
  FormulaTensor::Kind kind;
  std::vector<std::pair<std::string_view, RuleType>> parameters;
};

const TensorParser::View* TensorParser::find_view(std::string_view name) {
  static const View views[] = {
      {"reshape", FormulaTensor::Kind::reshape, {{"shape", RuleType::dims}}},
      {"expand", FormulaTensor::Kind::expand, {{"shape", RuleType::dims}}},
      {"permute", FormulaTensor::Kind::permute, {{"axes", RuleType::dims}}},
      {"transpose", FormulaTensor::Kind::transpose, {}},
      {"slice",
       FormulaTensor::Kind::slice,
       {{"axis", RuleType::number}, {"start", RuleType::number}, {"stop", RuleType::number}}},
  };
  const auto* const found = std::ranges::find(views, name, &View::name);
  return found == std::end(views) ? nullptr : found;
}

namespace {

// An operator of the headers may have scalars that a call leaves out, such as the seed of sdpa.
bool may_be_absent(const bp_op_argument& a, const bp_op_desc& op) {
  if (a.since > op.since || a.kind == BP_ARGUMENT_OPTIONAL_TENSOR) return true;
  const OpRow* const row = find_op(op.op);
  if (row == nullptr) return false;
  const std::span<const TensorArgument> tensors(row->tensors.data(), row->tensor_count);
  const auto own = std::ranges::find(tensors, std::string_view(a.name), &TensorArgument::name);
  return own != tensors.end() && own->may_be_absent;
}

std::span<const bp_op_argument> arguments_of(const bp_op_desc& op) {
  return {op.arguments, op.argument_count};
}

const bp_op_argument* find_argument(const bp_op_desc& op, std::string_view name) {
  for (const bp_op_argument& a : arguments_of(op)) {
    if (a.name == name) return &a;
  }
  return nullptr;
}

// Returns the type that an expression for an attribute has.
RuleType type_of_attribute(bp_argument_kind kind) {
  switch (kind) {
    case BP_ARGUMENT_F64:
      return RuleType::real;
    case BP_ARGUMENT_I64_LIST:
      return RuleType::dims;
    case BP_ARGUMENT_DTYPE:
      return RuleType::dtype;
    default:
      return RuleType::number;
  }
}

}  // namespace

const bp_op_desc* find_desc(const std::string& name) {
  const OpRow* const row = find_op(bp_op_from_name(name.c_str()));
  if (row == nullptr) return nullptr;
  return is_runtime_op(*row) ? &runtime_desc(*row) : &descriptions()[row->index];
}

// Returns the name of the op that the tokens name, or "", and goes behind it.
std::string TensorParser::take_op_name() {
  const size_t begin = tokens_.offset();
  std::string name(tokens_.current());
  if (!tokens_.is_word()) return "";
  tokens_.next();
  if (tokens_.current() == ".") {
    tokens_.next();
    name += "." + std::string(tokens_.current());
    tokens_.next();
  }
  if (tokens_.current() == "(") return name;
  tokens_.go_to(begin);
  return "";
}

// Returns the description of the op that formulas call `name`. The spec writes vendor_op for an
// op of the vendor (ops_spec/README.md).
const bp_op_desc* TensorParser::find_callee(const std::string& name) const {
  if (const bp_op_desc* const desc = find_desc(name)) return desc;
  const size_t vendor = scope_.subject.name.find('.') + 1;
  std::string own(scope_.subject.name.substr(0, vendor));
  if (!name.starts_with(own.substr(0, vendor - 1) + "_")) return nullptr;
  return find_desc(own + name.substr(vendor));
}

// Returns whether a tensor begins here, and not an expression.
bool TensorParser::is_tensor() {
  const size_t begin = tokens_.offset();
  while (tokens_.take("(")) {
  }
  const RuleArgument* const name = scope_.present();
  bool result = name != nullptr && is_tensor_kind(name->kind) && tokens_.ahead() != ".";
  if (name == nullptr) {
    const std::string op = take_op_name();
    const bool is_op = op.find('.') != op.npos || find_callee(op) != nullptr;
    result = !op.empty() && (find_view(op) != nullptr || is_op);
  }
  tokens_.go_to(begin);
  return result;
}

FormulaTensor TensorParser::tensor() {
  if (++nesting_ > kMaxNesting) tokens_.fail("the formula is nested too deeply");
  FormulaTensor value;
  if (tokens_.take("(")) {
    value = tensor();
    tokens_.expect(")");
  } else {
    value = plain_tensor();
  }
  if (tokens_.take("if")) {
    FormulaTensor choice;
    choice.kind = FormulaTensor::Kind::choice;
    const size_t begin = tokens_.offset();
    RuleParser(tokens_, scope_.names, choice.condition).either();
    scope_.finish(choice.condition, begin, RuleType::number);
    tokens_.expect("else");
    choice.inputs.push_back(std::move(value));
    choice.inputs.push_back(tensor());
    value = std::move(choice);
  }
  --nesting_;
  return value;
}

FormulaTensor TensorParser::plain_tensor() {
  if (const RuleArgument* const a = scope_.present()) return name(*a);
  const size_t begin = tokens_.offset();
  const std::string op = take_op_name();
  if (op.empty()) {
    tokens_.fail(tokens_.quoted() + " is no tensor; write ops by name, such as mul(a, b)");
  }
  if (const View* const found = find_view(op)) return view(*found);
  const bp_op_desc* const desc = find_callee(op);
  if (desc == nullptr) {
    tokens_.go_to(begin);
    tokens_.fail("there is no op or view '" + op + "'");
  }
  if (desc->op >= kFirstRuntimeOp) note_callee(*desc, begin);
  return call(*desc);
}

void TensorParser::note_callee(const bp_op_desc& desc, size_t begin) {
  const std::string vendor(scope_.subject.name.substr(0, scope_.subject.name.find('.') + 1));
  if (!std::string_view(desc.name).starts_with(vendor)) {
    tokens_.go_to(begin);
    tokens_.fail(std::string("'") + desc.name +
                 "' is of another vendor; allowed are ops of this vendor and of the spec");
  }
  if (std::ranges::count(scope_.formula.called_ops, desc.op) != 0) return;
  scope_.formula.called_ops.push_back(desc.op);
}

FormulaTensor TensorParser::name(const RuleArgument& a) {
  if (!is_tensor_kind(a.kind) || has_scalar_kind(a.kind)) {
    tokens_.fail(tokens_.quoted() + (has_scalar_kind(a.kind)
                                         ? " may be an inline scalar, and no scalar fits here"
                                         : " is no tensor"));
  }
  if (std::ranges::count(scope_.unset, a.name) != 0) {
    tokens_.fail(tokens_.quoted() + " has no value yet");
  }
  if (is_list_kind(a.kind)) return of_list(a);
  tokens_.next();
  FormulaTensor tensor;
  tensor.offset = a.offset;
  return tensor;
}

// Parses "xs[0]", or "xs" in a line that runs for each tensor of a list.
FormulaTensor TensorParser::of_list(const RuleArgument& a) {
  const std::string quoted = tokens_.quoted();
  FormulaTensor tensor;
  tensor.offset = a.offset;
  if (tokens_.ahead() == "[") {
    tokens_.next();
    tokens_.next();
    tensor.kind = FormulaTensor::Kind::item;
    scope_.expression(tensor.index, RuleType::number);
    tokens_.expect("]");
    return tensor;
  }
  if (!scope_.is_for_list) {
    tokens_.fail(quoted + " is a list of tensors; write " + std::string(a.name) +
                 "[0] for one of them");
  }
  tokens_.next();
  tensor.kind = FormulaTensor::Kind::present;
  return tensor;
}

// ---- Views and calls ----

bool TensorParser::take_keyword(std::string_view name) {
  if (tokens_.current() != name || tokens_.ahead() != "=") return false;
  tokens_.next();
  tokens_.next();
  return true;
}

FormulaTensor TensorParser::view(const View& view) {
  tokens_.expect("(");
  FormulaTensor made;
  made.kind = view.kind;
  made.inputs.push_back(tensor());
  for (const auto& [name, type] : view.parameters) {
    if (!tokens_.take(",")) {
      tokens_.fail(std::string(view.name) + " needs " + std::string(name) + " in front of " +
                   tokens_.quoted());
    }
    take_keyword(name);
    scope_.expression(made.parameters.emplace_back(), type);
  }
  tokens_.take(",");
  tokens_.expect(")");
  return made;
}

FormulaTensor TensorParser::call(const bp_op_desc& op) {
  FormulaTensor made;
  made.kind = FormulaTensor::Kind::call;
  made.call.desc = &op;
  made.call.frame_size_bytes = op.frame_size_bytes;
  find_output(made.call);
  const size_t begin = tokens_.offset();
  tokens_.expect("(");
  size_t place = 0;  // Of the next argument without a keyword.
  bool has_keywords = false;
  while (tokens_.current() != ")") {
    if (tokens_.is_word() && tokens_.ahead() == "=") {
      has_keywords = true;
      keyword(made);
    } else if (has_keywords) {
      tokens_.fail(tokens_.quoted() + " stands behind a keyword, and has none");
    } else {
      bind(made, next_input(op, place));
    }
    if (!tokens_.take(",")) break;
  }
  tokens_.expect(")");
  check_complete(made.call, begin);
  return made;
}

void TensorParser::find_output(FormulaCall& call) const {
  for (const bp_op_argument& a : arguments_of(*call.desc)) {
    const bool is_optional = a.kind == BP_ARGUMENT_OPTIONAL_OUT;
    if (is_output_kind(a.kind) && call.output == nullptr) {
      call.output = &a;
    } else if (is_written_kind(a.kind) && !is_optional) {
      tokens_.fail(std::string(call.desc->name) + " also writes " + a.name +
                   ", and a formula calls ops that write one tensor");
    }
  }
  if (call.output == nullptr) tokens_.fail(std::string(call.desc->name) + " has no output");
}

// Returns the next argument that may be given without a keyword.
const bp_op_argument& TensorParser::next_input(const bp_op_desc& op, size_t& place) const {
  for (; place < op.argument_count; ++place) {
    const bp_op_argument& a = op.arguments[place];
    if (is_tensor_kind(a.kind) && !is_written_kind(a.kind)) return op.arguments[place++];
  }
  tokens_.fail(std::string(op.name) + " takes no further tensor " + tokens_.quoted());
}

void TensorParser::keyword(FormulaTensor& made) {
  const bp_op_desc& op = *made.call.desc;
  const std::string name(tokens_.current());
  const bp_op_argument* const a = find_argument(op, name);
  const bool is_choice = a == nullptr && (name == "dtype" || name == "shape");
  if (!is_choice && (a == nullptr || is_written_kind(a->kind))) {
    tokens_.fail(std::string(op.name) + " takes no " + tokens_.quoted());
  }
  Rule& chosen = name == "dtype" ? made.call.dtype : made.call.shape;
  const bool is_given = is_choice
                            ? chosen.is_given()
                            : std::ranges::count(made.call.inputs, a, &FormulaInput::argument) != 0;
  if (is_given) tokens_.fail(tokens_.quoted() + " is given twice");
  tokens_.next();
  tokens_.next();
  if (!is_choice) return bind(made, *a);
  scope_.expression(chosen, name == "dtype" ? RuleType::dtype : RuleType::dims);
}

void TensorParser::bind(FormulaTensor& made, const bp_op_argument& a) {
  FormulaInput input{.argument = &a};
  const RuleArgument* const own = scope_.present();
  const bool is_plain = own != nullptr && tokens_.ahead() != ".";
  if (is_tensor_kind(a.kind) && is_list_kind(a.kind)) {
    bind_list(made, input);
  } else if (a.kind == BP_ARGUMENT_ENUM) {
    enumeration(input, a);
  } else if (!is_tensor_kind(a.kind)) {
    scope_.expression(input.value, type_of_attribute(a.kind));
    input.source = FormulaInput::Source::value;
  } else if (is_plain && has_scalar_kind(own->kind) && own->kind == a.kind) {
    input.source = FormulaInput::Source::operand;
    input.offset = own->offset;
    tokens_.next();
  } else if (has_scalar_kind(a.kind) && !is_tensor()) {
    scope_.expression(input.value, RuleType::real);
    input.source = FormulaInput::Source::value;
  } else {
    input.index = static_cast<uint32_t>(made.inputs.size());
    made.inputs.push_back(tensor());
  }
  made.call.inputs.push_back(std::move(input));
}

// Parses the name of a list, or "[a, b]".
void TensorParser::bind_list(FormulaTensor& made, FormulaInput& input) {
  const RuleArgument* const own = scope_.present();
  if (own != nullptr && is_tensor_kind(own->kind) && is_list_kind(own->kind)) {
    if (std::ranges::count(scope_.unset, own->name) != 0) {
      tokens_.fail(tokens_.quoted() + " has no value yet");
    }
    input.source = FormulaInput::Source::list;
    input.offset = own->offset;
    return tokens_.next();
  }
  if (!tokens_.take("[")) {
    tokens_.fail(std::string(input.argument->name) + " is a list of tensors; write [" +
                 std::string(tokens_.current()) + "], or name a list");
  }
  input.source = FormulaInput::Source::tensors;
  input.index = static_cast<uint32_t>(made.inputs.size());
  while (tokens_.current() != "]") {
    made.inputs.push_back(tensor());
    ++input.count;
    if (!tokens_.take(",")) break;
  }
  tokens_.expect("]");
}

// Parses a value of the called op's enumeration, or an enumeration of this op, which is passed
// on.
void TensorParser::enumeration(FormulaInput& input, const bp_op_argument& a) {
  input.source = FormulaInput::Source::value;
  const RuleArgument* const own = scope_.present();
  if (own != nullptr && own->kind == BP_ARGUMENT_ENUM) {
    return scope_.expression(input.value, RuleType::number);
  }
  std::string names;
  for (uint32_t i = 0; i < a.value_count; ++i) {
    if (tokens_.current() == a.value_names[i]) {
      input.value = Rule::of_number(a.first_value + i);
      return tokens_.next();
    }
    names += (i == 0 ? "" : ", ") + std::string(a.value_names[i]);
  }
  tokens_.fail(std::string(a.name) + " is one of " + names + ", not " + tokens_.quoted());
}

void TensorParser::check_complete(const FormulaCall& call, size_t begin) {
  const bp_op_argument& output = *call.output;
  const std::string name = call.desc->name;
  const bool is_given =
      output.shape_rule != nullptr && std::strcmp(output.shape_rule, "given") == 0;
  tokens_.go_to(begin);
  if (call.shape.is_given() != is_given) {
    tokens_.fail(name + (is_given ? " needs shape=" : " takes no shape="));
  }
  if (call.dtype.is_given() && output.dtype_count < 2) {
    tokens_.fail("the dtype of " + name + " cannot be chosen");
  }
  if (!call.dtype.is_given() && output.dtype_count > 1 && output.default_dtype == nullptr) {
    tokens_.fail(name + " needs dtype=");
  }
  for (const bp_op_argument& a : arguments_of(*call.desc)) {
    if (is_written_kind(a.kind) || may_be_absent(a, *call.desc)) continue;
    if (std::ranges::count(call.inputs, &a, &FormulaInput::argument) != 0) continue;
    tokens_.fail(name + " needs " + a.name);
  }
  skip_brackets();
}

// Goes behind the closing bracket of the one that is next.
void TensorParser::skip_brackets() {
  int depth = 0;
  do {
    depth += tokens_.current() == "(" ? 1 : tokens_.current() == ")" ? -1 : 0;
    tokens_.next();
  } while (depth > 0);
}

}  // namespace bp::core
