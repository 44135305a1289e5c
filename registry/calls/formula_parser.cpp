// Parses formulas line by line. A line ends where a line of the text ends outside of brackets.
#include <algorithm>
#include <cstring>
#include <memory>
#include <utility>

#include "registry/calls/formula_scope.hpp"

namespace bp::core {
namespace {

constexpr size_t kMaxLines = 256;

class Parser {
 public:
  Parser(const FormulaSubject& subject, std::string_view text, Formula& formula)
      : text_(text), formula_(formula), scope_(subject, formula), tokens_(scope_.tokens) {
    formula_.revision = subject.revision;
    formula_.frame_size_bytes = subject.frame_size_bytes;
    formula_.run_size_bytes = end_ = (subject.frame_size_bytes + 7) / 8 * 8;
    for (const RuleArgument& a : scope_.names) {
      if (!is_tensor_kind(a.kind) || is_output_kind(a.kind)) continue;
      formula_.inputs.push_back({a.offset, is_list_kind(a.kind)});
    }
  }

  // Makes `name` a tensor that lines read.
  void add_tensor(const std::string& name) { add_name(name, BP_ARGUMENT_TENSOR); }

  // Lines must give this argument a value. They may not read an output before.
  void add_written(const bp_op_argument& a) {
    written_.push_back(&a);
    if (is_output_kind(a.kind)) scope_.unset.emplace_back(a.name);
  }
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
    if (written_.empty()) return "";
    return std::string("no line gives ") + written_[0]->name + " a value";
  }

 private:
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
    const auto written = std::ranges::find(written_, name, &bp_op_argument::name);
    const bool is_allowed = std::ranges::count(allowed_, name) != 0;
    if (written == written_.end() && !is_allowed) check_new(name);
    tokens_.next();
    tokens_.expect("=");
    FormulaLine line{.number = line_number(), .name = name};
    scope_.is_for_list = written != written_.end() && is_list_kind((*written)->kind);
    if (TensorParser parser(scope_);
        written != written_.end() || is_allowed || parser.is_tensor()) {
      line.tensor = parser.tensor();
      line.kind = BP_ARGUMENT_TENSOR;
    } else {
      read_value(line);
    }
    if (!tokens_.is_end()) tokens_.fail(tokens_.quoted() + " is not expected");
    give_place(line, written);
    formula_.lines.push_back(std::move(line));
  }

  void give_place(FormulaLine& line, std::vector<const bp_op_argument*>::iterator written) {
    if (written == written_.end()) {
      line.offset = add_name(line.name, line.kind);
      std::erase(allowed_, line.name);
      return;
    }
    line.kind = (*written)->kind;
    line.offset = (*written)->offset_bytes;
    line.may_alias = (*written)->may_alias != 0 || is_inout_kind(line.kind);
    std::erase(scope_.unset, line.name);
    written_.erase(written);
  }

  void check_new(const std::string& name) const {
    constexpr std::string_view kReserved[] = {"if", "else", "and", "or"};
    const bool is_known = scope_.find(name) != nullptr;
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
    scope_.names.push_back({.name = *names_.back(), .kind = kind, .offset = end_, .values = {}});
    end_ += 8;
    formula_.run_size_bytes = end_;
    return scope_.names.back().offset;
  }

  void read_value(FormulaLine& line) {
    const size_t begin = tokens_.offset();
    RuleParser(tokens_, scope_.names, line.value).expression();
    const RuleType type = line.value.type();
    scope_.finish(line.value, begin, type);
    if (type == RuleType::dtype) tokens_.fail("a line is a tensor, a number or a shape");
    line.kind = type == RuleType::dims   ? BP_ARGUMENT_I64_LIST
                : type == RuleType::real ? BP_ARGUMENT_F64
                                         : BP_ARGUMENT_I64;
  }

  std::string_view text_;
  Formula& formula_;
  FormulaScope scope_;
  RuleTokens& tokens_;
  size_t line_begin_ = 0;
  std::vector<std::unique_ptr<std::string>> names_;  // What the scope points to.
  std::vector<const bp_op_argument*> written_;       // Those without a line so far.
  std::vector<std::string> allowed_;
  uint32_t end_ = 0;
};

std::string parse_gradients(const FormulaSubject& subject, std::string_view text,
                            Formula& formula) {
  Parser parser(subject, text, formula);
  for (const bp_op_argument& a : subject.arguments) {
    if (a.since > subject.revision || !is_tensor_kind(a.kind)) continue;
    const std::string gradient = std::string("grad_") + a.name;
    if (is_output_kind(a.kind) && !is_list_kind(a.kind)) parser.add_tensor(gradient);
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
    if (a.since <= subject.revision && is_written_kind(a.kind)) parser.add_written(a);
  }
  std::string defect = parser.parse();
  if (defect.empty()) out_formula = std::move(formula);
  return defect;
}

std::string parse_condition(const FormulaSubject& subject, const char* text, Formula& formula) {
  const FormulaScope scope(subject, formula);
  std::string defect = Rule::parse(text, scope.names, formula.condition);
  if (defect.empty() && formula.condition.type() != RuleType::number) {
    defect = std::string("it is ") + name_of(formula.condition.type()) + ", not a whole number";
  }
  formula.refusal = std::string("it serves only calls with: ") + text;
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
