// Own kernels of random draws.
#include <algorithm>
#include <bit>
#include <span>
#include <vector>

#include "backplane/ops.h"
#include "conformance/mutants/own_kernels.hpp"
#include "conformance/reference/random.hpp"

namespace bp::mutants {
namespace {

using conformance::Array;
using conformance::Shape;
namespace reference = conformance::reference;

template <typename Args>
reference::RandomState state_of(Inputs& inputs, const Args& args) {
  return {inputs.word(args.seed, args.seed_scalar), inputs.word(args.offset, args.offset_scalar)};
}

Shape shape_of(const bp_tensor& tensor) { return {tensor.shape, tensor.shape + tensor.ndim}; }

// Writes value(i) to each element i.
template <typename Value>
bp_status write_each(const Call& call, const Inputs& inputs, const bp_tensor& to, Value value) {
  if (inputs.status() != BP_OK) return inputs.status();
  Array<double> y(shape_of(to));
  for (int64_t i = 0; i < y.size(); ++i) y[i] = static_cast<double>(value(i));
  return write(call, to, y);
}

enum class Range { kRight, kInclusive, kModulo };

// Inclusive: `high` is drawn too. Modulo: the rest of a division takes the place of the product.
template <Range kRange>
bp_status draw_integers(const Call& call, const bp_randint_args& args) {
  Inputs inputs(call);
  const auto state = state_of(inputs, args);
  const int64_t high = kRange == Range::kInclusive ? args.high + 1 : args.high;
  return write_each(call, inputs, *args.y, [&](int64_t i) {
    const auto index = static_cast<uint64_t>(i);
    if (kRange != Range::kModulo) return reference::random_integer(state, args.low, high, index);
    const int64_t word = reference::random_bits(state, index);
    return args.low + word % (high - args.low);
  });
}

// Wrong: the largest numbers give 1, and not the smallest ones.
template <bool kIsRight>
bp_status draw_trials(const Call& call, const bp_bernoulli_args& args) {
  Inputs inputs(call);
  const auto state = state_of(inputs, args);
  const auto p = inputs.array<double>(*args.p);
  const bp_dtype wide = args.p->dtype == BP_F64 ? bp_dtype{BP_F64} : bp_dtype{BP_F32};
  return write_each(call, inputs, *args.y, [&](int64_t i) {
    const double draw = reference::uniform(state, wide, static_cast<uint64_t>(i));
    return kIsRight ? draw < p[i] : 1 - draw < p[i];
  });
}

// Wrong: orders as many integers as the next power of two, as a network that sorts does, and takes
// the rest of a division for those that are too large.
template <bool kIsRight>
bp_status draw_order(const Call& call, const bp_randperm_args& args) {
  Inputs inputs(call);
  const auto state = state_of(inputs, args);
  const int64_t n = args.y->shape[0];
  const auto sorted = static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(n)));
  const std::vector<int64_t> order = reference::permutation(state, kIsRight ? n : sorted);
  return write_each(call, inputs, *args.y,
                    [&](int64_t i) { return order[static_cast<size_t>(i)] % n; });
}

// Wrong: the draws of each row are those of the first row.
template <bool kIsRight>
bp_status draw_classes(const Call& call, const bp_multinomial_args& args) {
  Inputs inputs(call);
  const auto state = state_of(inputs, args);
  const auto weights = inputs.array<double>(*args.weights);
  const int64_t classes = weights.shape[1];
  return write_each(call, inputs, *args.y, [&](int64_t i) {
    const auto first = static_cast<size_t>(i / args.count * classes);
    const auto row = std::span(weights.data).subspan(first, static_cast<size_t>(classes));
    const auto number = static_cast<uint64_t>(kIsRight ? i : i % args.count);
    return reference::drawn_class(row, reference::uniform(state, BP_F64, number));
  });
}

constexpr Mistake kRight[] = {
    {"randint", BP_OP_RANDINT, on_frame<draw_integers<Range::kRight>>},
    {"bernoulli", BP_OP_BERNOULLI, on_frame<draw_trials<true>>},
    {"randperm", BP_OP_RANDPERM, on_frame<draw_order<true>>},
    {"multinomial", BP_OP_MULTINOMIAL, on_frame<draw_classes<true>>},
};

constexpr Mistake kWrong[] = {
    {"randint_high", BP_OP_RANDINT, on_frame<draw_integers<Range::kInclusive>>},
    {"randint_modulo", BP_OP_RANDINT, on_frame<draw_integers<Range::kModulo>>},
    {"bernoulli", BP_OP_BERNOULLI, on_frame<draw_trials<false>>},
    {"randperm", BP_OP_RANDPERM, on_frame<draw_order<false>>},
    {"multinomial", BP_OP_MULTINOMIAL, on_frame<draw_classes<false>>},
};

}  // namespace

std::span<const Mistake> right_draws() { return kRight; }
std::span<const Mistake> wrong_draws() { return kWrong; }

}  // namespace bp::mutants
