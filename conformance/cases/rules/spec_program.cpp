#include "conformance/cases/rules/spec_program.hpp"

#include <algorithm>
#include <cstring>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>

#include "backplane/host.h"
#include "registry/boundary/number_text.hpp"

namespace bp::conformance::spec {
namespace {

Value to_value(std::optional<int64_t> number) { return number ? Value(*number) : Value(); }

double to_double(const Value& value) {
  const auto* integer = std::get_if<int64_t>(&value);
  return integer != nullptr ? static_cast<double>(*integer) : std::get<double>(value);
}

// ---- Frames -------------------------------------------------------------------------------------

template <typename T>
T read(const void* frame, size_t offset) {
  T value;
  // NOLINTNEXTLINE(bugprone-sizeof-expression): what is read may be a pointer.
  std::memcpy(&value, static_cast<const std::byte*>(frame) + offset, sizeof(T));
  return value;
}

Value attribute_of(const void* frame, const FrameMember& member) {
  if (member.kind == "i32") return int64_t{read<int32_t>(frame, member.offset)};
  if (member.kind == "i64") return read<int64_t>(frame, member.offset);
  if (member.kind == "f64") return read<double>(frame, member.offset);
  if (member.kind == "enumeration") return int64_t{read<uint32_t>(frame, member.offset)};
  if (member.kind != "i64_list")
    throw std::invalid_argument("no rule reads " + std::string(member.kind));
  const auto* values = read<const int64_t*>(frame, member.offset);
  return Shape(values, values + read<uint64_t>(frame, member.offset - sizeof(uint64_t)));
}

Shape shape_of(const bp_tensor& tensor) { return {tensor.shape, tensor.shape + tensor.ndim}; }

// ---- The machine --------------------------------------------------------------------------------

// Takes the arguments of `function` from the stack, and puts its value there. The value is Nothing
// if one of the arguments is.
template <typename... T, size_t... kIndex>
Value called(Value (*function)(T...), std::vector<Value>& stack, std::index_sequence<kIndex...>) {
  const size_t first = stack.size() - sizeof...(T);
  const bool is_whole = (exists(stack[first + kIndex]) && ...);
  Value result = is_whole ? function(std::get<std::decay_t<T>>(stack[first + kIndex])...) : Value();
  stack.resize(first);
  return result;
}
template <auto kFunction>
void call(Machine& machine, const Step& /*step*/) {
  const auto apply = [&]<typename... T>(Value (*function)(T...)) {
    return called(function, machine.stack, std::index_sequence_for<T...>());
  };
  machine.stack.push_back(apply(kFunction));
}

template <template <typename> typename Order>
bool holds(const Value& a, const Value& b) {
  if (!exists(a) || !exists(b)) return false;
  if (std::holds_alternative<Shape>(a))
    return Order<Shape>()(std::get<Shape>(a), std::get<Shape>(b));
  if (std::holds_alternative<double>(a) || std::holds_alternative<double>(b)) {
    return Order<double>()(to_double(a), to_double(b));
  }
  return Order<int64_t>()(std::get<int64_t>(a), std::get<int64_t>(b));
}
template <template <typename> typename Order>
void compare(Machine& machine, const Step& /*step*/) {
  const Value b = machine.pop(), a = machine.pop();
  machine.stack.emplace_back(int64_t{holds<Order>(a, b)});
}
template <template <typename> typename Order>
void compare_each(Machine& machine, const Step& /*step*/) {
  const Value b = machine.pop();
  const auto values = std::get<Shape>(machine.pop());
  const bool all =
      std::ranges::all_of(values, [&](int64_t value) { return holds<Order>(value, b); });
  machine.stack.emplace_back(int64_t{all});
}

void choose(Machine& machine, const Step& /*step*/) {
  Value otherwise = machine.pop(), value = machine.pop();
  const bool condition = is_true(machine.pop());
  machine.stack.push_back(condition ? std::move(value) : std::move(otherwise));
}

void make_list(Machine& machine, const Step& step) {
  const auto count = static_cast<size_t>(step.numbers.front());
  const size_t first = machine.stack.size() - count;
  Shape list;
  bool is_whole = true;
  for (size_t i = first; i < machine.stack.size(); ++i) {
    is_whole = is_whole && exists(machine.stack[i]);
    if (is_whole) list.push_back(std::get<int64_t>(machine.stack[i]));
  }
  machine.stack.resize(first);
  machine.stack.push_back(is_whole ? Value(std::move(list)) : Value());
}

// Gives the shape of the first tensor, with the sum of all extents along the axis. The tensors must
// have equal extents along the other axes.
void concatenate(Machine& machine, const Step& step) {
  const Value axis = machine.pop();
  const auto tensors = tensors_of(machine.frame, *step.member);
  machine.stack.emplace_back();
  if (tensors.empty() || !exists(axis)) return;
  Shape whole = shape_of(*tensors.front());
  const auto index = static_cast<size_t>(std::get<int64_t>(axis));
  if (index >= whole.size()) return;
  whole[index] = 0;
  for (const bp_tensor* tensor : tensors) {
    Shape own = shape_of(*tensor);
    if (own.size() != whole.size()) return;
    const int64_t extent = std::exchange(own[index], whole[index]);
    if (own != whole) return;
    whole[index] += extent;
  }
  machine.stack.back() = std::move(whole);
}

bool is_integer(int64_t dtype) {
  return (dtype >= BP_BOOL && dtype <= BP_U64) || dtype == BP_I2 || dtype == BP_U2;
}

bool is_quantized(int64_t dtype) {
  constexpr bp_dtype kAll[] = {BP_I8,       BP_U8,     BP_I4,     BP_U4,     BP_I2,    BP_U2,
                               BP_F8E4M3FN, BP_F8E5M2, BP_F6E2M3, BP_F6E3M2, BP_F4E2M1};
  return std::ranges::count(kAll, dtype) != 0;
}

// A number with a fraction does not fit an integer dtype, and a complex one fits a complex dtype
// alone.
bool fits(const bp_scalar& value, int64_t dtype) {
  if (value.dtype == BP_C128) return dtype == BP_C64 || dtype == BP_C128;
  if (value.imaginary_bits != 0) return false;
  if (value.dtype == BP_F64) return !is_integer(dtype);
  return value.dtype == BP_I64 || value.dtype == BP_U64 ||
         (value.dtype == BP_BOOL && value.bits <= 1);
}

Value dtype_after(const Value& dtype, bool is_sum) {
  const int64_t d = std::get<int64_t>(dtype);
  if (is_sum) return is_integer(d) ? int64_t{BP_I64} : d;
  return d == BP_F16 || d == BP_BF16 ? int64_t{BP_F32} : d;
}

using Run = void (*)(Machine&, const Step&);

// Returns the words that name nothing.
const std::map<std::string_view, Run>& plain_words() {
  static const std::map<std::string_view, Run> words = {
      {"add", call<add>},
      {"sub", call<sub>},
      {"mul", call<mul>},
      {"floor_div", call<quotient>},
      {"mod", call<remainder>},
      {"min", call<lower>},
      {"max", call<higher>},
      {"at", call<at>},
      {"slice", call<slice>},
      {"concat", call<concat>},
      {"repeat", call<repeat>},
      {"reduced", call<reduced>},
      {"window", call<window>},
      {"covered", call<covered>},
      {"blocks", call<blocks>},
      {"band", call<band>},
      {"is_integer",
       [](Machine& m, const Step&) {
         m.stack.emplace_back(int64_t{is_integer(std::get<int64_t>(m.pop()))});
       }},
      {"is_quantized",
       [](Machine& m, const Step&) {
         m.stack.emplace_back(int64_t{is_quantized(std::get<int64_t>(m.pop()))});
       }},
      {"==", compare<std::equal_to>},
      {"!=", compare<std::not_equal_to>},
      {"<", compare<std::less>},
      {"<=", compare<std::less_equal>},
      {">", compare<std::greater>},
      {">=", compare<std::greater_equal>},
      {"each<", compare_each<std::less>},
      {"each<=", compare_each<std::less_equal>},
      {"each>=", compare_each<std::greater_equal>},
      {"if", choose},
      {"end", [](Machine& m, const Step&) { m.stack.emplace_back(kEnd); }},
      {"not", [](Machine& m, const Step&) { m.stack.emplace_back(int64_t{!is_true(m.pop())}); }},
      {"or",
       [](Machine& m, const Step&) {
         const bool b = is_true(m.pop()), a = is_true(m.pop());
         m.stack.emplace_back(int64_t{a || b});
       }},
      {"len",
       [](Machine& m, const Step&) {
         const Value list = m.pop();
         const auto* shape = std::get_if<Shape>(&list);
         m.stack.push_back(shape == nullptr ? Value() : static_cast<int64_t>(shape->size()));
       }},
      {"numel",
       [](Machine& m, const Step&) {
         const Value list = m.pop();
         const auto* shape = std::get_if<Shape>(&list);
         m.stack.push_back(shape == nullptr ? Value() : to_value(product(*shape)));
       }},
      {"exists",
       [](Machine& m, const Step&) {
         const Value list = m.pop();
         const auto* shape = std::get_if<Shape>(&list);
         const bool fits = shape != nullptr && shape->size() <= BP_MAX_RANK && is_countable(*shape);
         m.stack.emplace_back(int64_t{fits});
       }},
      {"distinct",
       [](Machine& m, const Step&) {
         m.stack.emplace_back(int64_t{are_distinct(std::get<Shape>(m.pop()))});
       }},
      {"acc", [](Machine& m, const Step&) { m.stack.push_back(dtype_after(m.pop(), false)); }},
      {"sum_dtype", [](Machine& m, const Step&) { m.stack.push_back(dtype_after(m.pop(), true)); }},
  };
  return words;
}

// Returns the words that name an argument.
const std::map<std::string_view, Run>& naming_words() {
  static const std::map<std::string_view, Run> words = {
      {"shape",
       [](Machine& m, const Step& s) {
         const bp_tensor* tensor = s.tensor(m);
         m.stack.push_back(tensor == nullptr ? Value() : shape_of(*tensor));
       }},
      {"ndim",
       [](Machine& m, const Step& s) {
         const bp_tensor* tensor = s.tensor(m);
         m.stack.push_back(tensor == nullptr ? Value() : int64_t{tensor->ndim});
       }},
      {"numel",
       [](Machine& m, const Step& s) {
         const bp_tensor* tensor = s.tensor(m);
         m.stack.push_back(tensor == nullptr ? Value() : to_value(product(shape_of(*tensor))));
       }},
      {"dtype",
       [](Machine& m, const Step& s) {
         const bp_tensor* tensor = s.tensor(m);
         m.stack.emplace_back(tensor == nullptr ? int64_t{0} : int64_t{tensor->dtype});
       }},
      {"sound",
       [](Machine& m, const Step& s) {
         const bp_tensor* tensor = s.tensor(m);
         m.stack.emplace_back(int64_t{tensor != nullptr && is_countable(shape_of(*tensor))});
       }},
      {"scalar",
       [](Machine& m, const Step& s) {
         const int64_t dtype = std::get<int64_t>(m.pop());
         const auto value = read<bp_scalar>(m.frame, s.member->offset + sizeof(void*));
         m.stack.emplace_back(int64_t{fits(value, dtype)});
       }},
      {"absent",
       [](Machine& m, const Step& s) {
         const auto value = read<bp_scalar>(m.frame, s.member->offset + sizeof(void*));
         const bool is_absent = value.dtype == 0 && value.imaginary_bits == 0;
         m.stack.emplace_back(int64_t{is_absent && s.tensor(m) == nullptr});
       }},
      {"given",
       [](Machine& m, const Step& s) { m.stack.emplace_back(int64_t{s.tensor(m) != nullptr}); }},
      {"count",
       [](Machine& m, const Step& s) {
         m.stack.emplace_back(
             static_cast<int64_t>(read<uint64_t>(m.frame, s.member->offset - sizeof(uint64_t))));
       }},
      {"attr",
       [](Machine& m, const Step& s) { m.stack.push_back(attribute_of(m.frame, *s.member)); }},
      {"concatenated", concatenate},
  };
  return words;
}

int64_t dtype_named(std::string_view name) {
  for (bp_dtype dtype = 1; dtype < 64; ++dtype) {
    const char* const own = bp_dtype_name(dtype);
    if (own != nullptr && name == own) return dtype;
  }
  throw std::invalid_argument("no dtype " + std::string(name));
}

Step literal(std::string_view text) {
  if (text.find_first_of(".e") == std::string_view::npos) {
    return {.run = [](Machine& m, const Step& s) { m.stack.emplace_back(s.numbers.front()); },
            .numbers = {std::stoll(std::string(text))}};
  }
  const std::optional<double> number = parse_double(text);
  if (!number) throw std::invalid_argument("no number " + std::string(text));
  return {.run = [](Machine& m, const Step& s) { m.stack.emplace_back(s.number); },
          .numbers = {},
          .number = *number};
}

Step dtype_set(std::string_view names) {
  Step step{.run = [](Machine& m, const Step& s) {
    const int64_t dtype = std::get<int64_t>(m.pop());
    m.stack.emplace_back(int64_t{std::ranges::count(s.numbers, dtype) != 0});
  }};
  while (!names.empty()) {
    const size_t comma = std::min(names.find(','), names.size());
    step.numbers.push_back(dtype_named(names.substr(0, comma)));
    names.remove_prefix(std::min(comma + 1, names.size()));
  }
  return step;
}

Step parse(const OpInfo& info, std::string_view word) {
  if (word.starts_with('#')) return literal(word.substr(1));
  if (word.starts_with("dtype.")) {
    return {.run = [](Machine& m, const Step& s) { m.stack.emplace_back(s.numbers.front()); },
            .numbers = {dtype_named(word.substr(6))}};
  }
  const size_t colon = std::min(word.find(':'), word.size());
  std::string_view what = word.substr(0, colon);
  const std::string_view name = word.substr(std::min(colon + 1, word.size()));
  if (what == "in") return dtype_set(name);
  if (what == "list") return {.run = make_list, .numbers = {std::stoll(std::string(name))}};
  const bool is_of_item = what.starts_with("item.");
  if (is_of_item) what.remove_prefix(5);
  const auto& words = name.empty() ? plain_words() : naming_words();
  const auto found = words.find(what);
  if (found == words.end()) throw std::invalid_argument("no word '" + std::string(word) + "'");
  return {.run = found->second,
          .member = name.empty() ? nullptr : &info.member(name),
          .is_of_item = is_of_item};
}

}  // namespace

Value Machine::pop() {
  Value top = std::move(stack.back());
  stack.pop_back();
  return top;
}

const bp_tensor* Step::tensor(const Machine& machine) const {
  const auto tensors = tensors_of(machine.frame, *member);
  const size_t index = is_of_item ? machine.item : 0;
  return index < tensors.size() ? tensors[index] : nullptr;
}

bool is_true(const Value& value) { return exists(value) && std::get<int64_t>(value) != 0; }

std::vector<const bp_tensor*> tensors_of(const void* frame, const FrameMember& member) {
  if (!member.is_list()) {
    const auto* tensor = read<const bp_tensor*>(frame, member.offset);
    return tensor == nullptr ? std::vector<const bp_tensor*>() : std::vector{tensor};
  }
  const auto* items = read<const bp_tensor* const*>(frame, member.offset);
  const std::span list(items, read<uint64_t>(frame, member.offset - sizeof(uint64_t)));
  return {list.begin(), list.end()};
}

Program parse_program(const OpInfo& info, std::string_view text) {
  Program program;
  while (!text.empty()) {
    const size_t space = std::min(text.find(' '), text.size());
    program.push_back(parse(info, text.substr(0, space)));
    text.remove_prefix(std::min(space + 1, text.size()));
  }
  return program;
}

Value run(const Program& program, const void* frame, size_t item) {
  Machine machine{frame, item, {}};
  for (const Step& step : program) step.run(machine, step);
  return machine.pop();
}

Value wanted_by(const Program& program, const void* frame, size_t item) {
  Machine machine{frame, item, {}};
  for (size_t i = 0; i + 1 < program.size(); ++i) program[i].run(machine, program[i]);
  return machine.pop();
}

}  // namespace bp::conformance::spec
