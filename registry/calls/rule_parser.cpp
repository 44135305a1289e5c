#include "registry/calls/rule_parser.hpp"

#include <charconv>
#include <iterator>
#include <string>
#include <utility>
#include <vector>

#include "backplane/host.h"

namespace bp::core {
namespace {

// Evaluation walks the nodes recursively, so this bounds its stack too.
constexpr size_t kMaxNodes = 256;

bool is_numeric(RuleType type) { return type == RuleType::number || type == RuleType::real; }

}  // namespace

uint32_t RuleParser::add(Node node) {
  if (rule_.nodes_.size() == kMaxNodes) {
    tokens_.fail("the expression has more than " + std::to_string(kMaxNodes) + " parts");
  }
  rule_.nodes_.push_back(std::move(node));
  return static_cast<uint32_t>(rule_.nodes_.size() - 1);
}

uint32_t RuleParser::constant(int64_t number) {
  return add({.op = Op::constant, .number = number});
}

void RuleParser::require(uint32_t node, RuleType type) const {
  const RuleType found = type_of(node);
  if (found == type || (type == RuleType::real && found == RuleType::number)) return;
  tokens_.fail(std::string(name_of(type)) + " is expected in front of " + tokens_.quoted() +
               ", not " + name_of(found));
}

uint32_t RuleParser::numbers(Op op, uint32_t left, uint32_t right) {
  require(left, RuleType::number);
  require(right, RuleType::number);
  return add({.op = op, .inputs = {left, right}});
}

// Adds an operator between numbers, one of which may be no whole number.
uint32_t RuleParser::arithmetic(Op op, uint32_t left, uint32_t right) {
  require(left, RuleType::real);
  require(right, RuleType::real);
  const bool is_whole = type_of(left) == type_of(right) && type_of(left) == RuleType::number;
  return add(
      {.op = op, .type = is_whole ? RuleType::number : RuleType::real, .inputs = {left, right}});
}

uint32_t RuleParser::expression() {
  if (++nesting_ > kMaxNesting) tokens_.fail("the expression is nested too deeply");
  uint32_t value = either();
  if (tokens_.take("if")) {
    const uint32_t test = either();
    require(test, RuleType::number);
    tokens_.expect("else");
    const uint32_t otherwise = expression();
    require(otherwise, type_of(value));
    value = add({.op = Op::condition, .type = type_of(value), .inputs = {test, value, otherwise}});
  }
  --nesting_;
  return value;
}

uint32_t RuleParser::either() {
  uint32_t left = both();
  while (tokens_.take("or")) left = numbers(Op::either, left, both());
  return left;
}

uint32_t RuleParser::both() {
  uint32_t left = comparison();
  while (tokens_.take("and")) left = numbers(Op::both, left, comparison());
  return left;
}

uint32_t RuleParser::comparison() {
  const uint32_t left = sum();
  const std::string_view sign = tokens_.current();
  constexpr std::string_view kSigns[] = {"==", "!=", "<", "<=", ">", ">="};
  if (std::ranges::count(kSigns, sign) == 0) return left;
  tokens_.next();
  return compared(sign, left, is_enumeration(left) ? enumerator(left) : sum());
}

uint32_t RuleParser::compared(std::string_view sign, uint32_t left, uint32_t right) {
  if (sign == "==" || sign == "!=") {
    require(right, is_numeric(type_of(left)) ? RuleType::real : type_of(left));
    return add({.op = sign == "==" ? Op::equal : Op::unequal, .inputs = {left, right}});
  }
  require(left, RuleType::real);
  require(right, RuleType::real);
  if (sign == ">" || sign == ">=") std::swap(left, right);
  return add({.op = sign.size() == 1 ? Op::less : Op::less_equal, .inputs = {left, right}});
}

bool RuleParser::is_enumeration(uint32_t node) const {
  return rule_.nodes_[node].op == Op::attribute && rule_.nodes_[node].kind == BP_ARGUMENT_ENUM;
}

uint32_t RuleParser::enumerator(uint32_t left) {
  const uint32_t offset = rule_.nodes_[left].offset;
  const auto argument = std::ranges::find(arguments_, offset, &RuleArgument::offset);
  for (size_t i = 0; i < argument->values.size(); ++i) {
    if (!tokens_.take(argument->values[i])) continue;
    return constant(argument->first_value + static_cast<int64_t>(i));
  }
  tokens_.fail(tokens_.quoted() + " is no value of " + std::string(argument->name));
}

uint32_t RuleParser::sum() {
  uint32_t left = product();
  for (;;) {
    if (tokens_.take("+")) {
      const uint32_t right = product();
      if (type_of(left) == RuleType::dims) {
        require(right, RuleType::dims);
        left = add({.op = Op::add, .type = RuleType::dims, .inputs = {left, right}});
      } else {
        left = arithmetic(Op::add, left, right);
      }
    } else if (tokens_.take("-")) {
      left = arithmetic(Op::subtract, left, product());
    } else {
      return left;
    }
  }
}

uint32_t RuleParser::product() {
  uint32_t left = unary();
  for (;;) {
    if (tokens_.take("*")) {
      const uint32_t right = unary();
      if (type_of(left) == RuleType::dims) {
        require(right, RuleType::number);
        left = add({.op = Op::multiply, .type = RuleType::dims, .inputs = {left, right}});
      } else {
        left = arithmetic(Op::multiply, left, right);
      }
    } else if (tokens_.take("//")) {
      left = numbers(Op::divide, left, unary());
    } else if (tokens_.take("%")) {
      left = numbers(Op::modulo, left, unary());
    } else {
      return left;
    }
  }
}

uint32_t RuleParser::unary() {
  if (!tokens_.take("-")) return postfix();
  const uint32_t value = postfix();
  require(value, RuleType::real);
  return add({.op = Op::negate, .type = type_of(value), .inputs = {value}});
}

uint32_t RuleParser::postfix() {
  uint32_t value = primary();
  while (tokens_.take("[")) {
    require(value, RuleType::dims);
    const uint32_t from = tokens_.current() == ":" ? constant(0) : expression();
    require(from, RuleType::number);
    if (!tokens_.take(":")) {
      value = add({.op = Op::index, .inputs = {value, from}});
    } else {
      const uint32_t to = tokens_.current() == "]" ? constant(dims::kEnd) : expression();
      require(to, RuleType::number);
      value = add({.op = Op::slice, .type = RuleType::dims, .inputs = {value, from, to}});
    }
    tokens_.expect("]");
  }
  return value;
}

uint32_t RuleParser::primary() {
  if (tokens_.take("(")) {
    const uint32_t value = expression();
    tokens_.expect(")");
    return value;
  }
  if (tokens_.take("[")) return list();
  if (tokens_.is_end()) tokens_.fail("the expression ends here");
  if (tokens_.is_number()) return literal();
  if (!tokens_.is_word()) tokens_.fail(tokens_.quoted() + " is not expected");
  return tokens_.ahead() == "(" ? call(tokens_.current()) : name(tokens_.current());
}

uint32_t RuleParser::literal() {
  const std::string_view token = tokens_.current();
  const char* const end = token.data() + token.size();
  Node node;
  const auto whole = std::from_chars(token.data(), end, node.number);
  if (whole.ec != std::errc() || whole.ptr != end) {
    node.type = RuleType::real;
    const auto read = std::from_chars(token.data(), end, node.real);
    if (read.ec != std::errc() || read.ptr != end) tokens_.fail(tokens_.quoted() + " is no number");
  }
  tokens_.next();
  return add(std::move(node));
}

uint32_t RuleParser::list() {
  Node node{.op = Op::list, .type = RuleType::dims};
  while (tokens_.current() != "]") {
    node.inputs.push_back(expression());
    require(node.inputs.back(), RuleType::number);
    if (!tokens_.take(",")) break;
  }
  tokens_.expect("]");
  return add(std::move(node));
}

const RuleArgument& RuleParser::argument(std::string_view word) {
  const auto found = std::ranges::find(arguments_, word, &RuleArgument::name);
  if (found == arguments_.end()) tokens_.fail(tokens_.quoted() + " is no argument of this op");
  const auto index = static_cast<size_t>(found - arguments_.begin());
  if (index < 32) rule_.names_ |= 1u << index;
  return *found;
}

uint32_t RuleParser::name(std::string_view word) {
  const auto found = std::ranges::find(arguments_, word, &RuleArgument::name);
  const bp_dtype dtype =
      found == arguments_.end() ? bp_dtype_from_name(std::string(word).c_str()) : bp_dtype{0};
  if (dtype != 0) {
    tokens_.next();
    return add({.op = Op::constant, .type = RuleType::dtype, .number = dtype});
  }
  const RuleArgument& a = argument(word);
  Node node{.op = Op::attribute, .kind = a.kind, .offset = a.offset};
  tokens_.next();
  if (!is_tensor_kind(a.kind)) {
    if (a.kind == BP_ARGUMENT_F64) node.type = RuleType::real;
    if (a.kind == BP_ARGUMENT_DTYPE) node.type = RuleType::dtype;
    if (a.kind == BP_ARGUMENT_I64_LIST) node.type = RuleType::dims;
    return add(std::move(node));
  }
  if (!tokens_.take(".")) tokens_.fail("'.shape', '.ndim' or '.dtype' is expected behind a tensor");
  if (tokens_.take("ndim")) {
    node.op = Op::rank;
  } else if (tokens_.take("dtype")) {
    node.op = Op::dtype;
    node.type = RuleType::dtype;
  } else {
    tokens_.expect("shape");
    node.op = Op::shape;
    node.type = RuleType::dims;
  }
  return add(std::move(node));
}

// Parses the name of an argument in parentheses, the first of which is the next token.
uint32_t RuleParser::of_argument(Op op, RuleType type, bool is_list) {
  tokens_.next();
  tokens_.expect("(");
  const RuleArgument& a = argument(tokens_.current());
  if (is_list ? !is_list_kind(a.kind) : !is_tensor_kind(a.kind)) {
    tokens_.fail(tokens_.quoted() + (is_list ? " is no list" : " is no tensor"));
  }
  tokens_.next();
  tokens_.expect(")");
  return add({.op = op, .type = type, .kind = a.kind, .offset = a.offset});
}

uint32_t RuleParser::call(std::string_view word) {
  struct Function {
    std::string_view name;
    Op op;
    RuleType type;
    std::vector<RuleType> parameters;
  };
  using enum RuleType;
  static const Function functions[] = {
      {"min", Op::minimum, number, {number, number}},
      {"max", Op::maximum, number, {number, number}},
      {"numel", Op::numel, number, {dims}},
      {"broadcast", Op::broadcast, dims, {dims, dims}},
      {"reduced", Op::reduced, dims, {dims, dims, number}},
      {"blocks", Op::blocks, dims, {dims, dims}},
      {"window", Op::window, dims, {dims, dims, dims, dims, dims}},
      {"covered", Op::covered, dims, {dims, dims, dims, dims, dims, dims}},
  };
  if (word == "len") return of_argument(Op::count, number, true);
  if (word == "given") return of_argument(Op::is_given, number, false);
  if (word == "acc") return of_argument(Op::accumulator, dtype, false);
  if (word == "is_integer") return of_argument(Op::is_integer, number, false);
  if (word == "is_quantized") return of_argument(Op::is_quantized, number, false);
  const auto* const f = std::ranges::find(functions, word, &Function::name);
  if (f == std::end(functions)) tokens_.fail("there is no function " + tokens_.quoted());
  tokens_.next();
  tokens_.expect("(");
  Node node{.op = f->op, .type = f->type};
  // numel() takes a tensor in place of its shape.
  const auto tensor = std::ranges::find(arguments_, tokens_.current(), &RuleArgument::name);
  if (f->op == Op::numel && tensor != arguments_.end() && is_tensor_kind(tensor->kind) &&
      tokens_.ahead() == ")") {
    argument(tokens_.current());
    tokens_.next();
    node.inputs.push_back(
        add({.op = Op::shape, .type = dims, .kind = tensor->kind, .offset = tensor->offset}));
  } else {
    for (const RuleType parameter : f->parameters) {
      if (!node.inputs.empty()) tokens_.expect(",");
      node.inputs.push_back(expression());
      require(node.inputs.back(), parameter);
    }
  }
  tokens_.expect(")");
  return add(std::move(node));
}

std::string Rule::parse(std::string_view text, std::span<const RuleArgument> arguments,
                        Rule& out_rule) {
  Rule rule;
  rule.text_ = text;
  try {
    RuleTokens tokens(rule.text_);
    RuleParser(tokens, arguments, rule).expression();
    if (!tokens.is_end()) tokens.fail(tokens.quoted() + " is not expected");
  } catch (const Fault& fault) {
    return "column " + std::to_string(fault.offset + 1) + ": " + fault.text;
  }
  out_rule = std::move(rule);
  return "";
}

}  // namespace bp::core
