// What the parsers of formulas share: the tokens of the present line, and the names that it may
// read.
#pragma once

#include <algorithm>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "registry/calls/formula.hpp"
#include "registry/calls/rule_parser.hpp"
#include "registry/calls/rule_tokens.hpp"

namespace bp::core {

// Returns the description of an op that somebody describes, or NULL.
const bp_op_desc* find_desc(const std::string& name);

struct FormulaScope {
  FormulaScope(const FormulaSubject& its_subject, Formula& its_formula)
      : subject(its_subject), formula(its_formula), tokens("") {
    for (const bp_op_argument& a : subject.arguments) {
      if (a.since > subject.revision) continue;
      names.push_back({.name = a.name,
                       .kind = a.kind,
                       .offset = a.offset_bytes,
                       .values = {a.value_names, a.value_count},
                       .first_value = a.first_value});
    }
  }
  FormulaScope(const FormulaScope&) = delete;

  const RuleArgument* find(std::string_view name) const {
    const auto found = std::ranges::find(names, name, &RuleArgument::name);
    return found == names.end() ? nullptr : &*found;
  }
  const RuleArgument* present() const { return find(tokens.current()); }

  // Parses an expression into `rule`.
  void expression(Rule& rule, RuleType type) {
    const size_t begin = tokens.offset();
    RuleParser(tokens, names, rule).expression();
    finish(rule, begin, type);
  }

  // Gives a rule its text, which began at `begin`, and fails if it has another type.
  void finish(Rule& rule, size_t begin, RuleType type) {
    std::string text(tokens.text().substr(begin, tokens.offset() - begin));
    std::ranges::replace(text, '\n', ' ');
    rule.set_text(text.substr(0, text.find_last_not_of(' ') + 1));
    const bool is_real = type == RuleType::real && rule.type() == RuleType::number;
    if (rule.type() == type || is_real) return;
    tokens.go_to(begin);
    tokens.fail(std::string("'") + rule.text() + "' is " + name_of(rule.type()) + ", not " +
                name_of(type));
  }

  const FormulaSubject& subject;
  Formula& formula;
  RuleTokens tokens;
  std::vector<RuleArgument> names;
  std::vector<std::string> unset;  // Outputs that no line has given a value yet.
  bool is_for_list = false;        // The present line runs for each tensor of a list.
};

// Parses one tensor of a formula.
class TensorParser {
 public:
  explicit TensorParser(FormulaScope& scope) : scope_(scope), tokens_(scope.tokens) {}

  // Returns whether a tensor begins here, and not an expression.
  bool is_tensor();

  FormulaTensor tensor();

 private:
  struct View;
  static const View* find_view(std::string_view name);

  std::string take_op_name();
  const bp_op_desc* find_callee(const std::string& name) const;
  FormulaTensor plain_tensor();
  void note_callee(const bp_op_desc& desc, size_t begin);
  FormulaTensor name(const RuleArgument& a);
  FormulaTensor of_list(const RuleArgument& a);
  bool take_keyword(std::string_view name);
  FormulaTensor view(const View& view);
  FormulaTensor call(const bp_op_desc& op);
  void find_output(FormulaCall& call) const;
  const bp_op_argument& next_input(const bp_op_desc& op, size_t& place) const;
  void keyword(FormulaTensor& made);
  void bind(FormulaTensor& made, const bp_op_argument& a);
  void bind_list(FormulaTensor& made, FormulaInput& input);
  void enumeration(FormulaInput& input, const bp_op_argument& a);
  void check_complete(const FormulaCall& call, size_t begin);
  void skip_brackets();

  FormulaScope& scope_;
  RuleTokens& tokens_;
  uint32_t nesting_ = 0;
};

}  // namespace bp::core
