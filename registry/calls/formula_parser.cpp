// Parses formulas line by line. A line ends where a line of the text ends outside of brackets.
#include <algorithm>
#include <cstring>
#include <iterator>
#include <memory>
#include <utility>

#include "backplane/host.h"
#include "registry/calls/descriptions.hpp"
#include "registry/calls/formula.hpp"
#include "registry/calls/rule_parser.hpp"
#include "registry/calls/runtime_ops.hpp"

namespace bp::core {
namespace {

using Kind = FormulaTensor::Kind;

constexpr size_t kMaxLines = 256;

struct View {
  std::string_view name;
  Kind kind;
  std::vector<std::pair<std::string_view, RuleType>> parameters;
};

const View* find_view(std::string_view name) {
  static const View views[] = {
      {"reshape", Kind::reshape, {{"shape", RuleType::dims}}},
      {"expand", Kind::expand, {{"shape", RuleType::dims}}},
      {"permute", Kind::permute, {{"axes", RuleType::dims}}},
      {"transpose", Kind::transpose, {}},
      {"slice",
       Kind::slice,
       {{"axis", RuleType::number}, {"start", RuleType::number}, {"stop", RuleType::number}}},
  };
  const auto* const found = std::ranges::find(views, name, &View::name);
  return found == std::end(views) ? nullptr : found;
}

bool is_output_kind(bp_argument_kind kind) {
  return kind == BP_ARGUMENT_OUT || kind == BP_ARGUMENT_OPTIONAL_OUT;
}
bool is_written_kind(bp_argument_kind kind) {
  return is_output_kind(kind) || kind == BP_ARGUMENT_OUT_LIST || kind == BP_ARGUMENT_INOUT ||
         kind == BP_ARGUMENT_INOUT_LIST;
}
bool has_scalar(bp_argument_kind kind) {
  return kind == BP_ARGUMENT_OPERAND || kind == BP_ARGUMENT_SCALAR_TENSOR;
}
bool may_be_absent(const bp_op_argument& a, const bp_op_desc& op) {
  return a.since > op.since || a.kind == BP_ARGUMENT_OPTIONAL_TENSOR;
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

const bp_op_desc* find_desc(const std::string& name) {
  const OpRow* const row = find_op(bp_op_from_name(name.c_str()));
  if (row == nullptr) return nullptr;
  return is_runtime_op(*row) ? &runtime_desc(*row) : &descriptions()[row->index];
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

class Parser {
 public:
  Parser(const FormulaSubject& subject, std::string_view text, Formula& formula)
      : subject_(subject), text_(text), formula_(formula), tokens_("") {
    formula_.revision = subject.revision;
    formula_.frame_size_bytes = subject.frame_size_bytes;
    formula_.run_size_bytes = end_ = (subject.frame_size_bytes + 7) / 8 * 8;
    for (const bp_op_argument& a : subject.arguments) {
      if (a.since > subject.revision) continue;
      scope_.push_back({.name = a.name,
                        .kind = a.kind,
                        .offset = a.offset_bytes,
                        .values = {a.value_names, a.value_count},
                        .first_value = a.first_value});
      if (is_tensor_kind(a.kind) && !is_written_kind(a.kind)) {
        formula_.inputs.push_back(a.offset_bytes);
      }
    }
  }

  // Makes `name` a tensor that lines read.
  void add_tensor(const std::string& name) { add_name(name, BP_ARGUMENT_TENSOR); }

  // Lines must give this output a value, and may not read it before.
  void add_output(const bp_op_argument& a) { unset_.push_back({a.name, &a}); }
  // Lines may give this name a value.
  void allow(const std::string& name) { allowed_.push_back(name); }

  // Returns what is wrong, or "".
  std::string parse() {
    try {
      parse_lines();
    } catch (const Fault& fault) {
      const size_t at = std::min(line_begin_ + fault.offset, text_.size());
      const auto line = std::count(text_.begin(), text_.begin() + at, '\n') + 1;
      return "line " + std::to_string(line) + ": " + fault.text;
    }
    if (unset_.empty()) return "";
    return std::string("no line gives ") + unset_[0].name + " a value";
  }

 private:
  struct Unset {
    std::string name;
    const bp_op_argument* argument;
  };

  // ---- Lines ----

  void parse_lines() {
    int depth = 0;
    for (size_t at = 0; at <= text_.size(); ++at) {
      const char c = at == text_.size() ? '\n' : text_[at];
      depth += c == '(' || c == '[' ? 1 : c == ')' || c == ']' ? -1 : 0;
      if (c != '\n' || (depth > 0 && at != text_.size())) continue;
      const std::string_view line = text_.substr(line_begin_, at - line_begin_);
      tokens_ = RuleTokens(line);
      if (!tokens_.is_end()) parse_line();
      line_begin_ = at + 1;
      depth = 0;
    }
  }

  void parse_line() {
    const std::string name(tokens_.current());
    if (formula_.lines.size() == kMaxLines) {
      tokens_.fail("there are more than " + std::to_string(kMaxLines) + " lines");
    }
    if (!tokens_.is_word() || tokens_.is_number()) tokens_.fail(tokens_.quoted() + " is no name");
    const auto output = std::ranges::find(unset_, name, &Unset::name);
    const bool is_allowed = std::ranges::count(allowed_, name) != 0;
    if (output == unset_.end() && !is_allowed) check_new(name);
    tokens_.next();
    tokens_.expect("=");
    FormulaLine line{.number = line_number(), .name = name};
    if (output != unset_.end() || is_allowed || is_tensor()) {
      line.tensor = tensor();
      line.kind = BP_ARGUMENT_TENSOR;
    } else {
      read_value(line);
    }
    if (!tokens_.is_end()) tokens_.fail(tokens_.quoted() + " is not expected");
    give_place(line, output);
    formula_.lines.push_back(std::move(line));
  }

  void give_place(FormulaLine& line, std::vector<Unset>::iterator output) {
    if (output == unset_.end()) {
      line.offset = add_name(line.name, line.kind);
      std::erase(allowed_, line.name);
      return;
    }
    line.kind = output->argument->kind;
    line.offset = output->argument->offset_bytes;
    line.may_alias = output->argument->may_alias != 0;
    unset_.erase(output);
  }

  void check_new(const std::string& name) const {
    constexpr std::string_view kReserved[] = {"if", "else", "and", "or"};
    const bool is_known = std::ranges::find(scope_, name, &RuleArgument::name) != scope_.end();
    if (is_known || std::ranges::count(kReserved, name) != 0) {
      tokens_.fail("'" + name + "' has a meaning already");
    }
  }

  uint32_t line_number() const {
    return static_cast<uint32_t>(
        std::count(text_.begin(), text_.begin() + line_begin_ + tokens_.offset(), '\n') + 1);
  }

  // Gives a name a place behind the frame.
  uint32_t add_name(const std::string& name, bp_argument_kind kind) {
    names_.push_back(std::make_unique<std::string>(name));
    if (is_list_kind(kind)) end_ += 8;
    scope_.push_back({.name = *names_.back(), .kind = kind, .offset = end_, .values = {}});
    end_ += 8;
    formula_.run_size_bytes = end_;
    return scope_.back().offset;
  }

  // ---- Expressions ----

  // Parses an expression into `rule`.
  void expression(Rule& rule, RuleType type) {
    const size_t begin = tokens_.offset();
    RuleParser(tokens_, scope_, rule).expression();
    finish(rule, begin, type);
  }

  void finish(Rule& rule, size_t begin, RuleType type) {
    std::string text(tokens_.text().substr(begin, tokens_.offset() - begin));
    std::ranges::replace(text, '\n', ' ');
    rule.set_text(text.substr(0, text.find_last_not_of(' ') + 1));
    const bool is_real = type == RuleType::real && rule.type() == RuleType::number;
    if (rule.type() == type || is_real) return;
    tokens_.go_to(begin);
    tokens_.fail(std::string("'") + rule.text() + "' is " + name_of(rule.type()) + ", not " +
                 name_of(type));
  }

  void read_value(FormulaLine& line) {
    const size_t begin = tokens_.offset();
    RuleParser(tokens_, scope_, line.value).expression();
    const RuleType type = line.value.type();
    finish(line.value, begin, type);
    if (type == RuleType::dtype) tokens_.fail("a line is a tensor, a number or a shape");
    line.kind = type == RuleType::dims   ? BP_ARGUMENT_I64_LIST
                : type == RuleType::real ? BP_ARGUMENT_F64
                                         : BP_ARGUMENT_I64;
  }

  // ---- Tensors ----

  const RuleArgument* named(std::string_view name) const {
    const auto found = std::ranges::find(scope_, name, &RuleArgument::name);
    return found == scope_.end() ? nullptr : &*found;
  }

  // Returns the name of the op that the tokens name, or "", and goes behind it.
  std::string take_op_name() {
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
  const bp_op_desc* find_callee(const std::string& name) const {
    if (const bp_op_desc* const desc = find_desc(name)) return desc;
    const size_t vendor = subject_.name.find('.') + 1;
    std::string own(subject_.name.substr(0, vendor));
    if (!name.starts_with(own.substr(0, vendor - 1) + "_")) return nullptr;
    return find_desc(own + name.substr(vendor));
  }

  // Returns whether a tensor begins here, and not an expression.
  bool is_tensor() {
    const size_t begin = tokens_.offset();
    while (tokens_.take("(")) {
    }
    const RuleArgument* const name = named(tokens_.current());
    bool result = name != nullptr && is_tensor_kind(name->kind) && tokens_.ahead() != ".";
    if (name == nullptr) {
      const std::string op = take_op_name();
      const bool is_op = op.find('.') != op.npos || find_callee(op) != nullptr;
      result = !op.empty() && (find_view(op) != nullptr || is_op);
    }
    tokens_.go_to(begin);
    return result;
  }

  FormulaTensor tensor() {
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
      choice.kind = Kind::choice;
      const size_t begin = tokens_.offset();
      RuleParser(tokens_, scope_, choice.condition).either();
      finish(choice.condition, begin, RuleType::number);
      tokens_.expect("else");
      choice.inputs.push_back(std::move(value));
      choice.inputs.push_back(tensor());
      value = std::move(choice);
    }
    --nesting_;
    return value;
  }

  FormulaTensor plain_tensor() {
    if (const RuleArgument* const a = named(tokens_.current())) return name(*a);
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
    if (desc->op >= kFirstRuntimeOp) check_vendor(*desc, begin);
    return call(*desc);
  }

  void check_vendor(const bp_op_desc& desc, size_t begin) {
    const std::string vendor(subject_.name.substr(0, subject_.name.find('.') + 1));
    if (!std::string_view(desc.name).starts_with(vendor)) {
      tokens_.go_to(begin);
      tokens_.fail(std::string("'") + desc.name +
                   "' is of another vendor; allowed are ops of this vendor and of the spec");
    }
    if (std::ranges::count(formula_.called_ops, desc.op) != 0) return;
    formula_.called_ops.push_back(desc.op);
  }

  FormulaTensor name(const RuleArgument& a) {
    const bool is_single = is_tensor_kind(a.kind) && !is_list_kind(a.kind);
    if (!is_single || has_scalar(a.kind)) {
      tokens_.fail(tokens_.quoted() + (has_scalar(a.kind)
                                           ? " may be an inline scalar, and no scalar fits here"
                                           : " is no tensor"));
    }
    if (std::ranges::find(unset_, a.name, &Unset::name) != unset_.end()) {
      tokens_.fail(tokens_.quoted() + " has no value yet");
    }
    tokens_.next();
    FormulaTensor tensor;
    tensor.offset = a.offset;
    return tensor;
  }

  // ---- Views and calls ----

  bool take_keyword(std::string_view name) {
    if (tokens_.current() != name || tokens_.ahead() != "=") return false;
    tokens_.next();
    tokens_.next();
    return true;
  }

  FormulaTensor view(const View& view) {
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
      expression(made.parameters.emplace_back(), type);
    }
    tokens_.take(",");
    tokens_.expect(")");
    return made;
  }

  FormulaTensor call(const bp_op_desc& op) {
    FormulaTensor made;
    made.kind = Kind::call;
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

  void find_output(FormulaCall& call) const {
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
  const bp_op_argument& next_input(const bp_op_desc& op, size_t& place) const {
    for (; place < op.argument_count; ++place) {
      const bp_op_argument& a = op.arguments[place];
      if (is_tensor_kind(a.kind) && !is_written_kind(a.kind)) return op.arguments[place++];
    }
    tokens_.fail(std::string(op.name) + " takes no further tensor " + tokens_.quoted());
  }

  void keyword(FormulaTensor& made) {
    const bp_op_desc& op = *made.call.desc;
    const std::string name(tokens_.current());
    const bp_op_argument* const a = find_argument(op, name);
    const bool is_choice = a == nullptr && (name == "dtype" || name == "shape");
    if (!is_choice && (a == nullptr || is_written_kind(a->kind))) {
      tokens_.fail(std::string(op.name) + " takes no " + tokens_.quoted());
    }
    Rule& chosen = name == "dtype" ? made.call.dtype : made.call.shape;
    const bool is_given =
        is_choice ? chosen.is_given()
                  : std::ranges::count(made.call.inputs, a, &FormulaInput::argument) != 0;
    if (is_given) tokens_.fail(tokens_.quoted() + " is given twice");
    tokens_.next();
    tokens_.next();
    if (!is_choice) return bind(made, *a);
    expression(chosen, name == "dtype" ? RuleType::dtype : RuleType::dims);
  }

  void bind(FormulaTensor& made, const bp_op_argument& a) {
    FormulaInput input{.argument = &a};
    const RuleArgument* const own = named(tokens_.current());
    const bool is_plain = own != nullptr && tokens_.ahead() != ".";
    if (is_tensor_kind(a.kind) && is_list_kind(a.kind)) {
      tokens_.fail(std::string(a.name) + " is a list of tensors, which formulas do not have");
    } else if (a.kind == BP_ARGUMENT_ENUM) {
      enumeration(input, a);
    } else if (!is_tensor_kind(a.kind)) {
      expression(input.value, type_of_attribute(a.kind));
      input.source = FormulaInput::Source::value;
    } else if (is_plain && has_scalar(own->kind) && own->kind == a.kind) {
      input.source = FormulaInput::Source::operand;
      input.offset = own->offset;
      tokens_.next();
    } else if (has_scalar(a.kind) && !is_tensor()) {
      expression(input.value, RuleType::real);
      input.source = FormulaInput::Source::value;
    } else {
      input.index = static_cast<uint32_t>(made.inputs.size());
      made.inputs.push_back(tensor());
    }
    made.call.inputs.push_back(std::move(input));
  }

  // Parses a value of the called op's enumeration, or an enumeration of this op, which is passed
  // on.
  void enumeration(FormulaInput& input, const bp_op_argument& a) {
    input.source = FormulaInput::Source::value;
    const RuleArgument* const own = named(tokens_.current());
    if (own != nullptr && own->kind == BP_ARGUMENT_ENUM) {
      return expression(input.value, RuleType::number);
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

  void check_complete(const FormulaCall& call, size_t begin) {
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
  void skip_brackets() {
    int depth = 0;
    do {
      depth += tokens_.current() == "(" ? 1 : tokens_.current() == ")" ? -1 : 0;
      tokens_.next();
    } while (depth > 0);
  }

  const FormulaSubject& subject_;
  std::string_view text_;
  Formula& formula_;
  RuleTokens tokens_;
  size_t line_begin_ = 0;
  std::vector<RuleArgument> scope_;
  std::vector<std::unique_ptr<std::string>> names_;  // What the scope points to.
  std::vector<Unset> unset_;
  std::vector<std::string> allowed_;
  uint32_t end_ = 0, nesting_ = 0;
};

std::string parse_gradients(const FormulaSubject& subject, std::string_view text,
                            Formula& formula) {
  Parser parser(subject, text, formula);
  for (const bp_op_argument& a : subject.arguments) {
    if (a.since > subject.revision || !is_tensor_kind(a.kind)) continue;
    const std::string gradient = std::string("grad_") + a.name;
    if (is_output_kind(a.kind)) parser.add_tensor(gradient);
    if (!is_written_kind(a.kind) && !is_list_kind(a.kind)) parser.allow(gradient);
  }
  return parser.parse();
}

}  // namespace

std::string parse_decomposition(const FormulaSubject& subject, std::string_view text,
                                Formula& out_formula) {
  Formula formula;
  Parser parser(subject, text, formula);
  for (const bp_op_argument& a : subject.arguments) {
    if (a.since > subject.revision || !is_written_kind(a.kind)) continue;
    if (!is_output_kind(a.kind)) {
      return std::string(a.name) +
             " is a list, or is read and written; such an op has no "
             "decomposition";
    }
    parser.add_output(a);
  }
  std::string defect = parser.parse();
  if (defect.empty()) out_formula = std::move(formula);
  return defect;
}

std::string check_backward(const FormulaSubject& subject, std::string_view text,
                           Formula& out_formula) {
  if (text.starts_with("none: ")) return "";
  const bool is_name = text.find('=') == text.npos;
  if (!is_name) return parse_gradients(subject, text, out_formula);
  if (find_desc(std::string(text)) != nullptr) return "";
  return "there is no op '" + clean_text(text, LineBreaks::kEscape) + "'";
}

}  // namespace bp::core
