#include <algorithm>

#include "backplane/host.h"
#include "conformance/cases/engine/host_call.hpp"
#include "conformance/cases/rules/spec_bends.hpp"

namespace bp::conformance {
namespace {

constexpr int kRepairs = 6;  // A repair can need another repair; the longest chains have three
                             // links.

bool has(const std::string& text, std::string_view words) {
  return text.find(words) != std::string::npos;
}

// Returns tensor `item` of a list, or the only tensor of an argument; NULL if there is none.
TensorArgument* find(OpCase& row, std::string_view name, size_t item) {
  for (TensorArgument& argument : row.tensors) {
    if (argument.name == name && item-- == 0) return &argument;
  }
  return nullptr;
}

void resize(OpCase& row, std::string_view name, size_t count) {
  for (Attribute& attribute : row.attributes) {
    auto* list = std::get_if<Shape>(&attribute.value);
    if (attribute.name == name && list != nullptr && count < 100) {
      list->resize(count, list->empty() ? 1 : list->back());
    }
  }
}

// Returns whether dense strides of all tensors can be counted. A call without such strides cannot
// be written down.
bool has_strides(const OpCase& row) {
  return std::ranges::all_of(row.tensors, [](const TensorArgument& argument) {
    int64_t count = 1;
    return std::ranges::none_of(argument.shape, [&count](int64_t extent) {
      return __builtin_mul_overflow(count, std::max<int64_t>(extent, 1), &count);
    });
  });
}

// Gives an argument the value that its rule requires. Returns false if that is impossible.
bool follow(OpCase& row, const SpecRule& rule, size_t item, const Shape& wanted) {
  const std::string_view kind = rule.kind;
  if (kind == "count") {
    resize(row, rule.argument, static_cast<size_t>(std::max<int64_t>(wanted.front(), 0)));
    return true;
  }
  TensorArgument* const tensor = find(row, rule.argument, item);
  if (tensor == nullptr || wanted.size() > BP_MAX_RANK) return false;
  if (kind == "dtype") {
    tensor->dtype = static_cast<bp_dtype>(wanted.front());
  } else if (kind == "rank") {
    tensor->shape.resize(static_cast<size_t>(wanted.front()), 1);
  } else if (kind == "shape" && !has(rule.text, "one element")) {
    tensor->shape = wanted;
  } else {
    return false;
  }
  return true;
}

// Gives the outputs the shapes and dtypes of the spec. Returns false if an output has another one
// already.
bool fit(OpCase& row, const std::vector<SpecJudge::Output>& outputs) {
  bool is_right = true;
  for (const SpecJudge::Output& output : outputs) {
    TensorArgument* const own = find(row, output.argument, 0);
    if (own == nullptr) continue;
    is_right =
        is_right && own->dtype == output.dtype && (output.is_given || own->shape == output.shape);
    own->dtype = output.dtype;
    if (!output.is_given) own->shape = output.shape;
  }
  return is_right;
}

}  // namespace

SpecTrial::SpecTrial(uint32_t op, Check check) : op_(op), judge_(op), check_(std::move(check)) {}

void SpecTrial::run(const OpCase& row) {
  for_each_bend(row, [this](const Bend& bend) { try_bend(bend); });
}

void SpecTrial::try_bend(const Bend& bend) {
  if (!has_strides(bend.row)) return;
  HostCall call(bend.row);
  const auto breaches = judge_.breaches(call.frame());
  if (breaches.empty() && !bend.is_of_output) {
    Bend whole = bend;
    fit(whole.row, judge_.outputs(call.frame()));
    if (!has_strides(whole.row)) return;
    HostCall legal(whole.row);
    return judge(whole, legal.frame());
  }
  judge(bend, call.frame());
  if (breaches.size() < 2) return;
  for (const SpecJudge::Breach& kept : breaches) {
    Bend other = bend;
    if (!repair(other.row, judge_.rules()[kept.rule].program)) continue;
    other.what += ", where the rest follows";
    HostCall repaired(other.row);
    judge(other, repaired.frame());
  }
}

// Gives arguments the values that equations of the spec require, except for the rule whose program
// is `kept`. Returns false if nothing changed.
bool SpecTrial::repair(OpCase& row, std::string_view kept) const {
  bool has_changed = false;
  for (int i = 0; i < kRepairs; ++i) {
    HostCall call(row);
    OpCase next = row;
    bool changes = false;
    for (const SpecJudge::Breach& breach : judge_.breaches(call.frame())) {
      const SpecRule& rule = judge_.rules()[breach.rule];
      const auto wanted = judge_.wanted(call.frame(), breach);
      if (rule.program == kept || !wanted) continue;
      if (!follow(next, rule, breach.item, *wanted)) continue;
      changes = true;
      break;  // The repair may have changed what other rules require.
    }
    if (!changes || !has_strides(next)) return has_changed;
    has_changed = true;
    row = std::move(next);
  }
  return has_changed;
}

void SpecTrial::judge(const Bend& bend, const Frame& frame) {
  ++calls_;
  const auto breaches = judge_.breaches(frame);
  std::set<size_t> rules;
  for (const SpecJudge::Breach& breach : breaches) rules.insert(breach.rule);
  broken_.insert(rules.begin(), rules.end());
  if (rules.size() == 1) alone_.insert(rules.begin(), rules.end());
  OpCase expected = bend.row;
  const bool is_legal = breaches.empty() && fit(expected, judge_.outputs(frame));
  std::string text;
  const bp_status status = check_(frame, text);
  const std::string at = bend.what + ": ";
  if (is_legal) {
    if (status != BP_OK) findings_.push_back(at + "refused, and no rule is broken: " + text);
  } else if (breaches.empty()) {
    if (status != BP_INVALID_ARGUMENT) {
      findings_.push_back(at + "accepted, and the output follows from the arguments otherwise");
    } else if (!has(text, op_info(op_).name) || !has(text, "; allowed: ")) {
      findings_.push_back(at + "the error text does not say what is allowed: " + text);
    }
  } else {
    judge_refusal(at, breaches, status, text);
  }
}

void SpecTrial::judge_refusal(const std::string& at, const std::vector<SpecJudge::Breach>& breaches,
                              bp_status status, const std::string& text) {
  const SpecRule& first = judge_.rules()[breaches.front().rule];
  if (status != BP_INVALID_ARGUMENT) {
    findings_.push_back(at + bp_status_name(status) + ", and this does not hold: " + first.text);
    return;
  }
  const std::string head = std::string(op_info(op_).name) + ": ";
  const bool is_named = std::ranges::any_of(breaches, [&](const SpecJudge::Breach& breach) {
    const SpecRule& rule = judge_.rules()[breach.rule];
    return *rule.argument == '\0' ? has(text, rule.text) : has(text, head + rule.argument);
  });
  if (!is_named) {
    findings_.push_back(at + "the error text does not name the op and what is wrong, as in '" +
                        first.text + "': " + text);
  } else if (!has(text, "; allowed: ")) {
    findings_.push_back(at + "the error text does not say what is allowed: " + text);
  }
}

std::vector<const SpecRule*> SpecTrial::missing(const std::set<size_t>& found) const {
  std::vector<const SpecRule*> rules;
  for (size_t i = 0; i < judge_.rules().size(); ++i) {
    if (!found.contains(i)) rules.push_back(&judge_.rules()[i]);
  }
  return rules;
}

}  // namespace bp::conformance
