// Cases for gradients: <v, J u> = <J^T v, u> must hold for random u and v. J^T v comes from the
// backward kernel. J u comes from the device's own forward kernel if the op is linear, else from
// differences of the oracle.
//
// A gradient that agrees with the oracle of its own op may still belong to another forward op.
// Here, saved tensors, masks and indices come from the device.
#include "conformance/cases/rules/gradient_cases.hpp"

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <set>

namespace bp::conformance {
namespace {

constexpr std::string_view kGrad = "grad_";
constexpr size_t kMostRows = 6;  // The most rows of one op and dtype.

// Returns the op whose gradient `name` is: "convolution" for "convolution_backward_input"; "" if
// there is none.
std::string_view forward_name(std::string_view name) {
  const size_t at = name.find("_backward");
  return at == std::string_view::npos ? std::string_view() : name.substr(0, at);
}

bool fits(const OpCase& forward, const OpCase& backward) {
  for (const TensorArgument& argument : backward.tensors) {
    std::string_view name = argument.name;
    if (name.starts_with(kGrad)) name.remove_prefix(kGrad.size());
    const auto found = std::ranges::find(forward.tensors, name, &TensorArgument::name);
    if (found == forward.tensors.end() || found->shape != argument.shape ||
        found->dtype != argument.dtype) {
      return false;
    }
  }
  // If the gradient lacks an optional tensor, so does the forward call.
  const std::vector<FrameMember>& members = op_info(backward.op).members;
  return std::ranges::none_of(forward.tensors, [&](const TensorArgument& argument) {
    return argument.role == Role::kInput &&
           std::ranges::find(members, argument.name, &FrameMember::name) != members.end() &&
           std::ranges::find(backward.tensors, argument.name, &TensorArgument::name) ==
               backward.tensors.end();
  });
}

bool is_equal(const Attribute& a, const Attribute& b) {
  if (a.value.index() != b.value.index()) return false;
  if (const auto* scalar = std::get_if<bp_scalar>(&a.value)) {
    return scalar->bits == std::get<bp_scalar>(b.value).bits;
  }
  if (const auto* list = std::get_if<Shape>(&a.value)) return *list == std::get<Shape>(b.value);
  if (const auto* number = std::get_if<double>(&a.value)) {
    return *number == std::get<double>(b.value);
  }
  return std::get<int64_t>(a.value) == std::get<int64_t>(b.value);
}

// Returns whether the attributes that both ops have are equal.
bool agree(const OpCase& forward, const OpCase& backward) {
  for (const Attribute& attribute : forward.attributes) {
    const auto other = std::ranges::find(backward.attributes, attribute.name, &Attribute::name);
    if (other != backward.attributes.end() && !is_equal(attribute, *other)) return false;
  }
  return true;
}

// Fills the row with random numbers whose sums do not overflow in a narrow dtype.
void fill_randomly(OpCase& row) {
  for (TensorArgument& argument : row.tensors) {
    if (holds_numbers(argument)) argument.fill = kRandom;
  }
}

// ---- One case ---------------------------------------------------------------------------------

std::vector<DoubleDouble> random_numbers(bp_dtype dtype, size_t count, uint64_t key,
                                         uint32_t number) {
  std::vector<DoubleDouble> numbers;
  for (size_t i = 0; i < count; ++i) {
    numbers.push_back(fill_element(kRandom, dtype, key, number, {i, 0, 0, 1}));
  }
  return numbers;
}

double dot(const std::vector<DoubleDouble>& a, const std::vector<DoubleDouble>& b) {
  DoubleDouble total;
  for (size_t i = 0; i < a.size(); ++i) total = total + a[i] * b[i];
  return total.hi;
}

class Adjoint {
 public:
  Adjoint(const GradientPair& pair, uint64_t seed, const RunCall& run)
      : pair_(pair), seed_(seed), run_(run), forward_(pair.forward, seed) {}

  AdjointResult result() {
    const Ran y = run_(pair_.forward, forward_);
    const CallData backward = backward_data(y);
    const Ran gradients = run_(pair_.backward, backward);
    const std::vector<Expected> expected = pair_.backward.reference(backward, gradients.numerics);
    double right = 0, allowed = 0;
    for (size_t i = 0; i < gradients.outputs.size(); ++i) {
      const OutputView& gradient = gradients.outputs[i];
      const auto u = directions_.find(std::string(gradient.name));
      if (u == directions_.end()) continue;
      right += dot(gradient.value, u->second);
      allowed += slack(gradient, expected[i], u->second);
    }
    const bool runs_forward = is_linear();
    const auto [left, error] = runs_forward ? by_forward(y) : by_oracle();
    return {left, right, allowed + error, runs_forward};
  }

 private:
  // Returns the call of the backward kernel, and a direction u for each gradient that it gives.
  CallData backward_data(const Ran& y) {
    CallData data(pair_.backward, seed_ + 1);
    uint32_t number = 0;
    for (HostTensor& tensor : data.tensors()) {
      ++number;
      const std::string name(tensor.name);
      const auto count = static_cast<size_t>(element_count(tensor.shape));
      if (tensor.role == Role::kOutput) {
        directions_[name] = random_numbers(tensor.dtype, count, seed_ + 2, number);
      } else if (!name.starts_with(kGrad)) {
        tensor.data = from_forward(tensor.name, y);
      } else {
        tensor.data = random_numbers(tensor.dtype, count, seed_ + 3, number);
        cotangents_[name.substr(kGrad.size())] = tensor.data;
      }
    }
    return data;
  }

  std::vector<DoubleDouble> from_forward(std::string_view name, const Ran& y) const {
    for (const OutputView& output : y.outputs) {
      if (output.name == name) return output.value;
    }
    return forward_.tensor(name).data;
  }

  // Returns how much the gradient's own error may add to the product with u.
  static double slack(const OutputView& gradient, const Expected& expected,
                      const std::vector<DoubleDouble>& u) {
    double total = 0;
    for (size_t i = 0; i < u.size(); ++i) {
      const double bound = expected.bound.empty() ? 0 : expected.bound[i];
      total += std::fabs(u[i].hi) * (bound + ulp(gradient.dtype, gradient.value[i].hi));
    }
    return total;
  }

  // Returns the forward call at x + step * u.
  CallData moved(double step) const {
    CallData data = forward_;
    for (HostTensor& tensor : data.tensors()) {
      const auto found = directions_.find(std::string(kGrad) + std::string(tensor.name));
      if (found == directions_.end()) continue;
      for (size_t i = 0; i < tensor.data.size(); ++i) {
        tensor.data[i] = tensor.data[i] + DoubleDouble(step) * found->second[i];
      }
    }
    return data;
  }

  // Returns <v, J u> by central differences of the oracle, and the error that they may have.
  std::pair<double, double> by_oracle() const {
    const double step = pair_.forward.dtype == "f64" ? 0x1p-26 : 0x1p-17;
    const std::vector<Expected> above = pair_.forward.reference(moved(step), Numerics{});
    const std::vector<Expected> below = pair_.forward.reference(moved(-step), Numerics{});
    DoubleDouble total;
    double size = 0;
    size_t output = 0;
    for (const TensorArgument& argument : pair_.forward.tensors) {
      if (argument.role == Role::kInput) continue;
      const size_t at = output++;
      const auto v = cotangents_.find(std::string(argument.name));
      if (v == cotangents_.end()) continue;
      for (size_t i = 0; i < v->second.size(); ++i) {
        // This also skips elements that are infinite in both.
        if (above[at].value[i] == below[at].value[i]) continue;
        const DoubleDouble slope =
            (above[at].value[i] - below[at].value[i]) / DoubleDouble(2 * step);
        total = total + slope * v->second[i];
        size += std::fabs(slope.hi * v->second[i].hi);
      }
    }
    return {total.hi, size * 1e-7};
  }

  // Returns the forward call at step * u in place of x, without a bias that does not change.
  CallData only(double step) const {
    CallData data = forward_;
    for (HostTensor& tensor : data.tensors()) {
      const auto found = directions_.find(std::string(kGrad) + std::string(tensor.name));
      const bool is_moved = found != directions_.end();
      if (!is_moved && tensor.name != "bias") continue;
      for (size_t i = 0; i < tensor.data.size(); ++i) {
        tensor.data[i] = is_moved ? DoubleDouble(step) * found->second[i] : DoubleDouble(0.0);
      }
    }
    return data;
  }

  // Returns whether the op is linear: a sum of products of a tensor that moves and one that does
  // not. J u is then F(u).
  bool is_linear() const {
    if (!has_class(pair_.forward, {"R1"}) || directions_.size() != 1) return false;
    const std::vector<Expected> at_zero = pair_.forward.reference(only(0), Numerics{});
    return std::ranges::all_of(at_zero, [](const Expected& expected) {
      return std::ranges::all_of(expected.value, [](DoubleDouble y) { return y.hi == 0; });
    });
  }

  // Returns <v, F(u)> of a linear op.
  std::pair<double, double> by_forward(const Ran& y) const {
    const CallData data = only(1);
    const Ran seen = run_(pair_.forward, data);
    const std::vector<Expected> expected = pair_.forward.reference(data, y.numerics);
    double total = 0, allowed = 0;
    for (size_t i = 0; i < seen.outputs.size(); ++i) {
      const auto v = cotangents_.find(std::string(seen.outputs[i].name));
      if (v == cotangents_.end()) continue;
      total += dot(seen.outputs[i].value, v->second);
      allowed += slack(seen.outputs[i], expected[i], v->second);
    }
    return {total, allowed};
  }

  const GradientPair& pair_;
  uint64_t seed_;
  const RunCall& run_;
  CallData forward_;
  std::map<std::string, std::vector<DoubleDouble>> directions_;  // The directions u by the name of
                                                                 // a gradient.
  std::map<std::string, std::vector<DoubleDouble>> cotangents_;  // The directions v by the name of
                                                                 // a result.
};

void gradients_are_adjoint(Context& t, const GradientPair& pair) {
  const AdjointResult result =
      adjoint_test(pair, t.seed(), [&](const OpCase& row, const CallData& data) {
        Observation seen = observe_native(t, row, data);
        const Numerics numerics =
            resolve_numerics(seen.kernel->numerics, seen.outputs.front().dtype);
        return Ran{std::move(seen.outputs), numerics};
      });
  const double difference = std::fabs(result.left - result.right);
  t.metric("difference", difference);
  t.metric("allowed", result.allowed);
  t.detail("forward", result.has_run_forward ? "device" : "oracle");
  if (difference <= result.allowed) return;
  t.add({"<v, J u> is " + std::to_string(result.left) + " and <J^T v, u> is " +
             std::to_string(result.right) + ", which may differ by " +
             std::to_string(result.allowed) + ": the gradient is not that of " +
             std::string(op_info(pair.forward.op).name),
         "adjoint", "KERNEL-8"});
}

// Linear ops are tested in every dtype. For other ops, the oracle's differences need a wide dtype,
// in which no two numbers are equal by chance.
bool is_testable(const OpCase& backward, const OpCase& forward) {
  const bool is_wide = backward.dtype == "f32" || backward.dtype == "f64";
  return is_wide || has_class(forward, {"R1"});
}

// Returns whether the backward call has each input of the forward call, or its gradient. For a sum
// of products it need not: a gradient lacks the input that it is for, and a bias.
bool covers(const OpCase& backward, const OpCase& forward) {
  return has_class(forward, {"R1"}) ||
         std::ranges::all_of(forward.tensors, [&](const TensorArgument& argument) {
           if (argument.role != Role::kInput) return true;
           const std::string gradient = std::string(kGrad) + std::string(argument.name);
           return std::ranges::any_of(backward.tensors, [&](const TensorArgument& other) {
             return other.name == argument.name || other.name == gradient;
           });
         });
}

const OpCase* find_forward(const OpCases& rows, const OpCase& backward) {
  const std::string_view name = forward_name(op_info(backward.op).name);
  const auto forward = std::ranges::find(all_ops(), name, &OpInfo::name);
  if (forward == all_ops().end()) return nullptr;
  for (const OpCase& row : rows) {
    if (row.op != forward->id || row.dtype != backward.dtype) continue;
    const bool is_one = fits(row, backward) && agree(row, backward) && covers(backward, row);
    if (is_one && is_plain(row)) return &row;
  }
  return nullptr;
}

Case make_entry(GradientPair pair) {
  Case entry;
  entry.id = "gradient.adjoint." + std::string(op_info(pair.backward.op).name) + "." +
             pair.backward.dtype + "." + pair.backward.detail;
  entry.tags = {"KERNEL-8"};
  entry.tier = pair.backward.is_smoke ? Tier::kSmoke : Tier::kQuick;
  entry.group = "gradient";
  entry.op = pair.backward.op;
  entry.dtype = pair.backward.dtype;
  const auto shared = std::make_shared<const GradientPair>(std::move(pair));
  entry.run = [shared](Context& t) { gradients_are_adjoint(t, *shared); };
  return entry;
}

// ---- Known answers ----------------------------------------------------------------------------

// The values are the first block of Philox4x32-10 with a counter and a key of zeros (Salmon et al.
// 2011, the test vectors of Random123).
void random_bits_are_philox(Context& t) {
  OpCase row = make_case(BP_OP_RANDOM_BITS, BP_I32, "known", "4", "dense");
  row.output("y", BP_I32, {4});
  row.set("seed", unsigned_scalar(0)).set("offset", unsigned_scalar(0));
  const Observation seen = observe_native(t, row, CallData(row, t.seed()));
  constexpr uint64_t kBlock[] = {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8};
  for (size_t i = 0; i < std::size(kBlock); ++i) {
    t.expect_eq(seen.outputs.front().bits[i], kBlock[i], "word " + std::to_string(i));
  }
}

}  // namespace

AdjointResult adjoint_test(const GradientPair& pair, uint64_t seed, const RunCall& run) {
  return Adjoint(pair, seed, run).result();
}

Ran run_oracle(const OpCase& row, const CallData& data) {
  Ran ran;
  const std::vector<Expected> expected = row.reference(data, Numerics{});
  size_t output = 0;
  for (const HostTensor& tensor : data.tensors()) {
    if (tensor.role == Role::kInput) continue;
    OutputView& view = ran.outputs.emplace_back();
    view.name = tensor.name;
    view.dtype = tensor.dtype;
    view.shape = tensor.shape;
    for (const DoubleDouble& value : expected[output++].value) {
      const bool is_rounded = is_float(tensor.dtype);
      view.value.push_back(is_rounded ? DoubleDouble(round_to(tensor.dtype, value)) : value);
    }
  }
  ran.numerics = resolve_numerics(nullptr, ran.outputs.front().dtype);
  return ran;
}

std::vector<GradientPair> gradient_pairs(const OpCases& rows) {
  std::vector<GradientPair> pairs;
  for (const OpCase& backward : rows) {
    if (!is_plain(backward) || forward_name(op_info(backward.op).name).empty()) continue;
    const OpCase* forward = find_forward(rows, backward);
    if (forward == nullptr || !is_testable(backward, *forward)) continue;
    pairs.push_back({*forward, backward});
    fill_randomly(pairs.back().forward);
  }
  return pairs;
}

void add_gradient_cases(std::vector<Case>& cases, const OpCases& rows) {
  std::map<std::pair<uint32_t, std::string>, std::vector<Case>> found;
  std::set<std::string> ids;
  for (GradientPair& pair : gradient_pairs(rows)) {
    Case entry = make_entry(std::move(pair));
    if (!ids.insert(entry.id).second) continue;
    found[{entry.op, entry.dtype}].push_back(std::move(entry));
  }
  for (auto& [key, all] : found) {
    // The case takes rows from the first to the last, because families list their attributes one
    // after the other.
    const size_t count = std::min(all.size(), kMostRows);
    for (size_t i = 0; i < count; ++i) {
      cases.push_back(std::move(all[count == 1 ? 0 : i * (all.size() - 1) / (count - 1)]));
    }
  }
}

void add_known_answers(std::vector<Case>& cases) {
  Case entry;
  entry.id = "random.philox_known_answer";
  entry.tags = {"KERNEL-8"};
  entry.group = "random";
  entry.op = BP_OP_RANDOM_BITS;
  entry.dtype = "i32";
  entry.run = random_bits_are_philox;
  cases.push_back(std::move(entry));
}

}  // namespace bp::conformance
