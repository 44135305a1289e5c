#include "registry/calls/op_rules.hpp"

#include <algorithm>
#include <charconv>
#include <cstring>
#include <utility>

namespace bp::core {
namespace {

// The exception that ends a parse.
struct Fault {
  std::string text;
};

constexpr bool is_word_character(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
}

template <typename T>
T value_at(const void* frame, uint32_t offset) {
  T value;
  // NOLINTNEXTLINE(bugprone-sizeof-expression): T may be a pointer.
  std::memcpy(&value, static_cast<const char*>(frame) + offset, sizeof(value));
  return value;
}

constexpr uint32_t kMaxNesting = 32;

}  // namespace

// Parses an expression by recursive descent: each function parses one level of precedence, and
// returns the number of the node that it made.
class RuleParser {
 public:
  using Op = Rule::Op;
  using Node = Rule::Node;

  RuleParser(std::string_view text, std::span<const RuleArgument> arguments, Rule& rule)
      : text_(text), arguments_(arguments), rule_(rule) {
    next();
  }

  void parse_all() {
    condition();
    if (!token_.empty()) fail("'" + std::string(token_) + "' is not expected");
  }

 private:
  [[noreturn]] void fail(const std::string& what) const {
    const auto column = static_cast<size_t>(token_.data() - text_.data()) + 1;
    throw Fault{"column " + std::to_string(column) + ": " + what};
  }

  void next() {
    size_t at = 0;
    if (token_.data() != nullptr) {
      at = static_cast<size_t>(token_.data() - text_.data()) + token_.size();
    }
    while (at < text_.size() && (text_[at] == ' ' || text_[at] == '\n')) ++at;
    size_t end = at;
    while (end < text_.size() && is_word_character(text_[end])) ++end;
    if (end == at && at < text_.size()) {
      constexpr std::string_view kPairs[] = {"//", "==", "!=", "<=", ">="};
      const bool is_pair = std::ranges::count(kPairs, text_.substr(at, 2)) != 0;
      end = at + (is_pair ? 2 : 1);
    }
    token_ = text_.substr(at, end - at);
  }

  bool take(std::string_view token) {
    if (token_ != token) return false;
    next();
    return true;
  }

  void expect(std::string_view token) {
    if (!take(token)) fail("'" + std::string(token) + "' is expected");
  }

  uint32_t add(Node node) {
    rule_.nodes_.push_back(std::move(node));
    return static_cast<uint32_t>(rule_.nodes_.size() - 1);
  }

  RuleType type_of(uint32_t node) const { return rule_.nodes_[node].type; }

  void require(uint32_t node, RuleType type) const {
    if (type_of(node) == type) return;
    fail(type == RuleType::number ? "a number is expected in front of this, not a shape"
                                  : "a shape is expected in front of this, not a number");
  }

  uint32_t binary(Op op, RuleType type, uint32_t left, uint32_t right) {
    return add({.op = op, .type = type, .inputs = {left, right}});
  }

  uint32_t numbers(Op op, uint32_t left, uint32_t right) {
    require(left, RuleType::number);
    require(right, RuleType::number);
    return binary(op, RuleType::number, left, right);
  }

  uint32_t condition() {
    if (++nesting_ > kMaxNesting) fail("the expression is nested too deeply");
    uint32_t value = either();
    if (take("if")) {
      const uint32_t test = either();
      require(test, RuleType::number);
      expect("else");
      const uint32_t otherwise = condition();
      require(otherwise, type_of(value));
      value =
          add({.op = Op::condition, .type = type_of(value), .inputs = {test, value, otherwise}});
    }
    --nesting_;
    return value;
  }

  uint32_t either() {
    uint32_t left = both();
    while (take("or")) left = numbers(Op::either, left, both());
    return left;
  }

  uint32_t both() {
    uint32_t left = comparison();
    while (take("and")) left = numbers(Op::both, left, comparison());
    return left;
  }

  uint32_t comparison() {
    const uint32_t left = sum();
    const std::string_view sign = token_;
    constexpr std::string_view kSigns[] = {"==", "!=", "<", "<=", ">", ">="};
    if (std::ranges::count(kSigns, sign) == 0) return left;
    next();
    const uint32_t right = value_of_enumeration(left) ? enumerator(left) : sum();
    require(right, type_of(left));
    if (sign == "==") return binary(Op::equal, RuleType::number, left, right);
    if (sign == "!=") return binary(Op::unequal, RuleType::number, left, right);
    if (sign == "<") return numbers(Op::less, left, right);
    if (sign == "<=") return numbers(Op::less_equal, left, right);
    return numbers(sign == ">" ? Op::less : Op::less_equal, right, left);
  }

  bool value_of_enumeration(uint32_t left) const {
    return rule_.nodes_[left].op == Op::attribute && rule_.nodes_[left].kind == BP_ARGUMENT_ENUM;
  }

  uint32_t enumerator(uint32_t left) {
    const uint32_t offset = rule_.nodes_[left].offset;
    const auto argument = std::ranges::find(arguments_, offset, &RuleArgument::offset);
    for (size_t i = 0; i < argument->values.size(); ++i) {
      if (token_ != argument->values[i]) continue;
      next();
      return constant(argument->first_value + static_cast<int64_t>(i));
    }
    fail("'" + std::string(token_) + "' is no value of " + std::string(argument->name));
  }

  uint32_t constant(int64_t number) { return add({.op = Op::constant, .number = number}); }

  uint32_t sum() {
    uint32_t left = product();
    for (;;) {
      if (take("+")) {
        const uint32_t right = product();
        require(right, type_of(left));
        left = binary(Op::add, type_of(left), left, right);
      } else if (take("-")) {
        left = numbers(Op::subtract, left, product());
      } else {
        return left;
      }
    }
  }

  uint32_t product() {
    uint32_t left = unary();
    for (;;) {
      if (take("*")) {
        const uint32_t right = unary();
        require(right, RuleType::number);
        left = binary(Op::multiply, type_of(left), left, right);
      } else if (take("//")) {
        left = numbers(Op::divide, left, unary());
      } else if (take("%")) {
        left = numbers(Op::modulo, left, unary());
      } else {
        return left;
      }
    }
  }

  uint32_t unary() {
    if (!take("-")) return postfix();
    const uint32_t value = postfix();
    require(value, RuleType::number);
    return add({.op = Op::negate, .inputs = {value}});
  }

  uint32_t postfix() {
    uint32_t value = primary();
    while (take("[")) {
      require(value, RuleType::dims);
      uint32_t from = token_ == ":" ? constant(0) : condition();
      require(from, RuleType::number);
      if (!take(":")) {
        value = binary(Op::index, RuleType::number, value, from);
      } else {
        const uint32_t to = token_ == "]" ? constant(dims::kEnd) : condition();
        require(to, RuleType::number);
        value = add({.op = Op::slice, .type = RuleType::dims, .inputs = {value, from, to}});
      }
      expect("]");
    }
    return value;
  }

  uint32_t primary() {
    if (take("(")) {
      const uint32_t value = condition();
      expect(")");
      return value;
    }
    if (take("[")) return list();
    if (token_.empty()) fail("the expression ends here");
    if (token_[0] >= '0' && token_[0] <= '9') return literal();
    const std::string_view word = token_;
    if (!is_word_character(word[0])) fail("'" + std::string(word) + "' is not expected");
    next();
    return token_ == "(" ? call(word) : name(word);
  }

  uint32_t literal() {
    int64_t number = 0;
    const char* const end = token_.data() + token_.size();
    const auto read = std::from_chars(token_.data(), end, number);
    if (read.ec != std::errc() || read.ptr != end) {
      fail("'" + std::string(token_) + "' is no whole number");
    }
    next();
    return constant(number);
  }

  uint32_t list() {
    Node node{.op = Op::list, .type = RuleType::dims};
    while (token_ != "]") {
      node.inputs.push_back(condition());
      require(node.inputs.back(), RuleType::number);
      if (!take(",")) break;
    }
    expect("]");
    return add(std::move(node));
  }

  const RuleArgument& argument(std::string_view word) {
    const auto found = std::ranges::find(arguments_, word, &RuleArgument::name);
    if (found == arguments_.end()) fail("'" + std::string(word) + "' is no argument of this op");
    rule_.names_ |= 1u << (found - arguments_.begin());
    return *found;
  }

  uint32_t name(std::string_view word) {
    const RuleArgument& a = argument(word);
    Node node{.op = Op::attribute, .kind = a.kind, .offset = a.offset};
    if (!is_tensor_kind(a.kind)) {
      if (a.kind == BP_ARGUMENT_F64 || a.kind == BP_ARGUMENT_DTYPE) {
        fail("'" + std::string(word) + "' is neither a whole number nor a shape");
      }
      if (a.kind == BP_ARGUMENT_I64_LIST) node.type = RuleType::dims;
      return add(std::move(node));
    }
    if (!take(".")) fail("'.shape' or '.ndim' is expected behind a tensor");
    if (take("ndim")) {
      node.op = Op::rank;
    } else {
      expect("shape");
      node.op = Op::shape;
      node.type = RuleType::dims;
    }
    return add(std::move(node));
  }

  // Parses the name of an argument in parentheses.
  uint32_t of_argument(Op op, bool is_list) {
    const RuleArgument& a = argument(token_);
    if (is_list ? !is_list_kind(a.kind) : !is_tensor_kind(a.kind)) {
      fail("'" + std::string(token_) + (is_list ? "' is no list" : "' is no tensor"));
    }
    next();
    expect(")");
    return add({.op = op, .kind = a.kind, .offset = a.offset});
  }

  uint32_t call(std::string_view word) {
    struct Function {
      std::string_view name;
      Op op;
      RuleType type;
      std::vector<RuleType> parameters;
    };
    using enum RuleType;
    static const Function kFunctions[] = {
        {"min", Op::minimum, number, {number, number}},
        {"max", Op::maximum, number, {number, number}},
        {"numel", Op::numel, number, {dims}},
        {"broadcast", Op::broadcast, dims, {dims, dims}},
        {"reduced", Op::reduced, dims, {dims, dims, number}},
        {"window", Op::window, dims, {dims, dims, dims, dims, dims}},
    };
    expect("(");
    if (word == "len") return of_argument(Op::count, true);
    if (word == "given") return of_argument(Op::is_given, false);
    const auto* const f = std::ranges::find(kFunctions, word, &Function::name);
    if (f == std::end(kFunctions)) fail("there is no function '" + std::string(word) + "'");
    Node node{.op = f->op, .type = f->type};
    for (const RuleType parameter : f->parameters) {
      if (!node.inputs.empty()) expect(",");
      node.inputs.push_back(condition());
      require(node.inputs.back(), parameter);
    }
    expect(")");
    return add(std::move(node));
  }

  std::string_view text_, token_;
  std::span<const RuleArgument> arguments_;
  Rule& rule_;
  uint32_t nesting_ = 0;
};

std::string Rule::parse(std::string_view text, std::span<const RuleArgument> arguments,
                        Rule& out_rule) {
  Rule rule;
  rule.text_ = text;
  try {
    RuleParser(rule.text_, arguments, rule).parse_all();
  } catch (const Fault& fault) {
    return fault.text;
  }
  out_rule = std::move(rule);
  return "";
}

RuleValue Rule::evaluate(const void* frame, uint64_t item) const {
  return evaluate(nodes_.back(), frame, item);
}

namespace {

RuleValue number(int64_t value) {
  RuleValue result;
  result.number = value;
  return result;
}

RuleValue list(dims::View view) {
  RuleValue result;
  result.list = dims::Dims(view);
  return result;
}

RuleValue attribute(bp_argument_kind kind, uint32_t offset, const void* frame) {
  switch (kind) {
    case BP_ARGUMENT_I32:
      return number(value_at<int32_t>(frame, offset));
    case BP_ARGUMENT_ENUM:
      return number(value_at<uint32_t>(frame, offset));
    case BP_ARGUMENT_I64_LIST:
      return list(dims::list(value_at<const int64_t*>(frame, offset),
                             value_at<uint64_t>(frame, offset - 8)));
    default:
      return number(value_at<int64_t>(frame, offset));
  }
}

// Returns the tensor that a node reads, or NULL: of a list, the one that `item` counts.
const bp_tensor* tensor(bp_argument_kind kind, uint32_t offset, const void* frame, uint64_t item) {
  if (!is_list_kind(kind)) return value_at<const bp_tensor*>(frame, offset);
  if (item >= value_at<uint64_t>(frame, offset - 8)) return nullptr;
  return value_at<const bp_tensor* const*>(frame, offset)[item];
}

dims::View shape_or_none(const bp_tensor* t) {
  return t == nullptr ? dims::View{nullptr, dims::kNone} : dims::shape(*t);
}

bool is_same(const RuleValue& a, const RuleValue& b, RuleType type) {
  return type == RuleType::number ? a.number == b.number : dims::View(a.list) == dims::View(b.list);
}

}  // namespace

RuleValue Rule::evaluate(const Node& node, const void* frame, uint64_t item) const {
  const auto input = [&](size_t i) { return evaluate(nodes_[node.inputs[i]], frame, item); };
  switch (node.op) {
    case Op::constant:
      return number(node.number);
    case Op::attribute:
      return attribute(node.kind, node.offset, frame);
    case Op::shape:
      return list(shape_or_none(tensor(node.kind, node.offset, frame, item)));
    case Op::rank:
      return number(shape_or_none(tensor(node.kind, node.offset, frame, item)).count);
    case Op::count:
      return number(static_cast<int64_t>(value_at<uint64_t>(frame, node.offset - 8)));
    case Op::is_given:
      return number(value_at<const void*>(frame, node.offset) != nullptr);
    case Op::numel:
      return number(dims::numel(input(0).list));
    case Op::list: {
      RuleValue result;
      for (size_t i = 0; i < node.inputs.size(); ++i) result.list.append(input(i).number);
      return result;
    }
    case Op::index:
      return number(dims::at(input(0).list, input(1).number));
    case Op::slice: {
      const RuleValue whole = input(0);
      return list(dims::slice(whole.list, input(1).number, input(2).number));
    }
    case Op::add:
      if (node.type == RuleType::dims) return list(dims::concat(input(0).list, input(1).list));
      return number(dims::add(input(0).number, input(1).number));
    case Op::subtract:
      return number(dims::sub(input(0).number, input(1).number));
    case Op::multiply:
      if (node.type == RuleType::dims) return list(dims::repeat(input(0).list, input(1).number));
      return number(dims::mul(input(0).number, input(1).number));
    case Op::divide:
      return number(dims::floor_div(input(0).number, input(1).number));
    case Op::modulo:
      return number(dims::mod(input(0).number, input(1).number));
    case Op::negate:
      return number(dims::sub(0, input(0).number));
    case Op::minimum:
      return number(dims::min(input(0).number, input(1).number));
    case Op::maximum:
      return number(dims::max(input(0).number, input(1).number));
    case Op::equal:
      return number(is_same(input(0), input(1), nodes_[node.inputs[0]].type));
    case Op::unequal:
      return number(!is_same(input(0), input(1), nodes_[node.inputs[0]].type));
    case Op::less:
      return number(input(0).number < input(1).number);
    case Op::less_equal:
      return number(input(0).number <= input(1).number);
    case Op::both:
      return number(input(0).number == 1 && input(1).number == 1);
    case Op::either:
      return number(input(0).number == 1 || input(1).number == 1);
    case Op::condition:
      return input(0).number == 1 ? input(1) : input(2);
    case Op::broadcast:
      return list(dims::broadcast(input(0).list, input(1).list));
    case Op::reduced:
      return list(dims::reduced(input(0).list, input(1).list, input(2).number));
    case Op::window:
      return list(
          dims::window(input(0).list, input(1).list, input(2).list, input(3).list, input(4).list));
  }
  return {};
}

}  // namespace bp::core
