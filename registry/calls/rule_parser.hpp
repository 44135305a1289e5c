// Parses the expressions of an op that was described at run time.
#pragma once

#include <span>
#include <string_view>

#include "registry/calls/op_rules.hpp"
#include "registry/calls/rule_tokens.hpp"

namespace bp::core {

// Parses one expression by recursive descent: each function parses one level of precedence, and
// returns the number of the node that it made. It throws Fault, and stops in front of the first
// token that is no part of the expression.
class RuleParser {
 public:
  // The parser keeps references to all of them.
  RuleParser(RuleTokens& tokens, std::span<const RuleArgument> arguments, Rule& rule)
      : tokens_(tokens), arguments_(arguments), rule_(rule) {}

  // Parses an expression, which may be a choice of two.
  uint32_t expression();

  // Parses an expression that is no choice: the condition of one.
  uint32_t either();

 private:
  using Op = Rule::Op;
  using Node = Rule::Node;

  uint32_t add(Node node);
  uint32_t constant(int64_t number);
  RuleType type_of(uint32_t node) const { return rule_.nodes_[node].type; }
  void require(uint32_t node, RuleType type) const;
  uint32_t numbers(Op op, uint32_t left, uint32_t right);
  uint32_t arithmetic(Op op, uint32_t left, uint32_t right);
  uint32_t both();
  uint32_t comparison();
  uint32_t compared(std::string_view sign, uint32_t left, uint32_t right);
  bool is_enumeration(uint32_t node) const;
  uint32_t enumerator(uint32_t left);
  uint32_t sum();
  uint32_t product();
  uint32_t unary();
  uint32_t postfix();
  uint32_t primary();
  uint32_t literal();
  uint32_t list();
  const RuleArgument& argument(std::string_view word);
  uint32_t name(std::string_view word);
  uint32_t of_argument(Op op, RuleType type, bool is_list);
  uint32_t call(std::string_view word);

  RuleTokens& tokens_;
  std::span<const RuleArgument> arguments_;
  Rule& rule_;
  uint32_t nesting_ = 0;
};

}  // namespace bp::core
