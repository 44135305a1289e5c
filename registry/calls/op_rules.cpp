#include "registry/calls/op_rules.hpp"

#include <cstring>

namespace bp::core {
namespace {

template <typename T>
T value_at(const void* frame, uint32_t offset) {
  T value;
  // NOLINTNEXTLINE(bugprone-sizeof-expression): T may be a pointer.
  std::memcpy(&value, static_cast<const char*>(frame) + offset, sizeof(value));
  return value;
}

RuleValue number(int64_t value) {
  RuleValue result;
  result.number = value;
  return result;
}

RuleValue real(double value) {
  RuleValue result;
  result.number = 0;  // The number exists.
  result.real = value;
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
    case BP_ARGUMENT_DTYPE:
      return number(value_at<uint32_t>(frame, offset));
    case BP_ARGUMENT_F64:
      return real(value_at<double>(frame, offset));
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

}  // namespace

RuleValue Rule::evaluate(const void* frame, uint64_t item) const {
  return evaluate(nodes_.back(), frame, item);
}

// Returns what a node reads from the frame.
RuleValue Rule::read(const Node& node, const void* frame, uint64_t item) {
  if (node.op == Op::constant) {
    return node.type == RuleType::real ? real(node.real) : number(node.number);
  }
  if (node.op == Op::attribute) return attribute(node.kind, node.offset, frame);
  if (node.op == Op::count) {
    return number(static_cast<int64_t>(value_at<uint64_t>(frame, node.offset - 8)));
  }
  const bp_tensor* const t = tensor(node.kind, node.offset, frame, item);
  switch (node.op) {
    case Op::shape:
      return list(shape_or_none(t));
    case Op::rank:
      return number(shape_or_none(t).count);
    case Op::is_given:
      return number(t != nullptr);
    default:
      break;
  }
  if (t == nullptr) return {};
  switch (node.op) {
    case Op::accumulator:
      return number(dims::accumulator(t->dtype));
    case Op::is_integer:
      return number(dims::is_integer(t->dtype));
    case Op::is_quantized:
      return number(dims::is_quantized(t->dtype));
    default:
      return number(t->dtype);
  }
}

// Returns the number of input i, which may be a whole one.
RuleValue Rule::real_input(const Node& node, size_t i, const void* frame, uint64_t item) const {
  const Node& input = nodes_[node.inputs[i]];
  const RuleValue value = evaluate(input, frame, item);
  if (input.type == RuleType::real || value.number == dims::kNone) return value;
  return real(static_cast<double>(value.number));
}

// Evaluates an operator whose result is no whole number.
RuleValue Rule::calculate(const Node& node, const void* frame, uint64_t item) const {
  const RuleValue a = real_input(node, 0, frame, item);
  if (node.op == Op::negate) return a.number == dims::kNone ? a : real(-a.real);
  const RuleValue b = real_input(node, 1, frame, item);
  if (a.number == dims::kNone || b.number == dims::kNone) return {};
  return real(node.op == Op::add        ? a.real + b.real
              : node.op == Op::subtract ? a.real - b.real
                                        : a.real * b.real);
}

// Returns whether a comparison holds. What does not exist equals nothing but itself.
bool Rule::compare(const Node& node, const void* frame, uint64_t item) const {
  const RuleType left = nodes_[node.inputs[0]].type, right = nodes_[node.inputs[1]].type;
  if (left == RuleType::real || right == RuleType::real) {
    const RuleValue a = real_input(node, 0, frame, item), b = real_input(node, 1, frame, item);
    const bool exist = a.number != dims::kNone && b.number != dims::kNone;
    if (node.op == Op::less) return exist && a.real < b.real;
    if (node.op == Op::less_equal) return exist && a.real <= b.real;
    return exist && a.real == b.real;
  }
  const RuleValue a = evaluate(nodes_[node.inputs[0]], frame, item);
  const RuleValue b = evaluate(nodes_[node.inputs[1]], frame, item);
  if (node.op == Op::less) return a.number < b.number;
  if (node.op == Op::less_equal) return a.number <= b.number;
  return left == RuleType::dims ? dims::View(a.list) == dims::View(b.list) : a.number == b.number;
}

// Evaluates an operator or a function whose result is a whole number.
RuleValue Rule::count(const Node& node, const void* frame, uint64_t item) const {
  const auto input = [&](size_t i) { return evaluate(nodes_[node.inputs[i]], frame, item); };
  switch (node.op) {
    case Op::numel:
      return number(dims::numel(input(0).list));
    case Op::index:
      return number(dims::at(input(0).list, input(1).number));
    case Op::add:
      return number(dims::add(input(0).number, input(1).number));
    case Op::subtract:
      return number(dims::sub(input(0).number, input(1).number));
    case Op::multiply:
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
    case Op::both:
      return number(input(0).number == 1 && input(1).number == 1);
    case Op::either:
      return number(input(0).number == 1 || input(1).number == 1);
    case Op::unequal:
      return number(!compare(node, frame, item));
    default:
      return number(compare(node, frame, item));
  }
}

// Evaluates an operator or a function whose result is a shape.
RuleValue Rule::shape(const Node& node, const void* frame, uint64_t item) const {
  const auto input = [&](size_t i) { return evaluate(nodes_[node.inputs[i]], frame, item); };
  switch (node.op) {
    case Op::list: {
      RuleValue result;
      for (size_t i = 0; i < node.inputs.size(); ++i) result.list.append(input(i).number);
      return result;
    }
    case Op::slice: {
      const RuleValue whole = input(0);
      return list(dims::slice(whole.list, input(1).number, input(2).number));
    }
    case Op::add:
      return list(dims::concat(input(0).list, input(1).list));
    case Op::multiply:
      return list(dims::repeat(input(0).list, input(1).number));
    case Op::broadcast:
      return list(dims::broadcast(input(0).list, input(1).list));
    case Op::reduced:
      return list(dims::reduced(input(0).list, input(1).list, input(2).number));
    case Op::blocks:
      return list(dims::blocks(input(0).list, input(1).list));
    case Op::covered:
      return list(dims::covered(input(0).list, input(1).list, input(2).list, input(3).list,
                                input(4).list, input(5).list));
    default:
      return list(
          dims::window(input(0).list, input(1).list, input(2).list, input(3).list, input(4).list));
  }
}

RuleValue Rule::evaluate(const Node& node, const void* frame, uint64_t item) const {
  if (node.inputs.empty() && node.op != Op::list) return read(node, frame, item);
  if (node.op == Op::condition) {
    const bool holds = evaluate(nodes_[node.inputs[0]], frame, item).number == 1;
    return evaluate(nodes_[node.inputs[holds ? 1 : 2]], frame, item);
  }
  if (node.type == RuleType::dims) return shape(node, frame, item);
  return node.type == RuleType::real ? calculate(node, frame, item) : count(node, frame, item);
}

}  // namespace bp::core
