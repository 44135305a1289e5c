// Random numbers, and dropout. A node with a seed gives the same numbers in every run.
#include <algorithm>
#include <cstring>

#include "runtime/io/onnx/composed.hpp"
#include "runtime/io/onnx/op_table.hpp"

namespace bp::onnx {
namespace {

using Ints = std::vector<int64_t>;

// The generator of a node: one of its own if it has a seed, else that of the device.
class Numbers {
 public:
  explicit Numbers(const Call& call)
      : device_(call.device()), own_(seed_of(call)), has_seed_(call.has("seed")) {
    call.note_random();
  }

  Tensor uniform(IntList shape, bp_dtype dtype) {
    return bp::uniform(shape, dtype, device_, &generator());
  }
  Tensor normal(IntList shape, bp_dtype dtype, double mean, double deviation) {
    const int64_t count = count_or_negative(shape.to_vector());
    const Generator::Range range =
        generator().take(static_cast<uint64_t>(std::max<int64_t>(count, 0)) / 2 + 1);
    return bp::normal(shape, dtype, device_, range.seed, range.offset, mean, deviation);
  }
  // Draws `count` columns for each row of weights.
  Tensor multinomial(const Tensor& weights, int64_t count, bp_dtype dtype) {
    const Generator::Range range =
        generator().take(static_cast<uint64_t>(weights.shape(0)) * static_cast<uint64_t>(count));
    return bp::multinomial(weights, range.seed, range.offset, count, dtype);
  }

 private:
  static uint64_t seed_of(const Call& call) {
    // The seed of Dropout is an integer, that of the others a float.
    if (call.op() == "Dropout") return static_cast<uint64_t>(call.integer("seed", 0));
    const double seed = call.number("seed", 0);
    uint64_t bits;
    std::memcpy(&bits, &seed, sizeof(bits));
    return bits;
  }
  Generator& generator() { return has_seed_ ? own_ : device_.generator(); }

  Device device_;
  Generator own_;
  bool has_seed_;
};

struct Wanted {
  Ints shape;
  bp_dtype dtype;
};

Wanted from_attributes(const Call& call) {
  if (!call.has("shape")) call.refuse("attribute 'shape' is not given");
  return {call.integers("shape", {}), call.dtype("dtype", BP_F32)};
}

Wanted from_input(const Call& call) {
  const bp_dtype given = call.value(0).dtype();
  return {call.value(0).shape(),
          call.dtype("dtype", is_plain_float(given) ? given : bp_dtype{BP_F32})};
}

template <Wanted (*kWanted)(const Call&)>
Values random_uniform(const Call& call) {
  const Wanted wanted = kWanted(call);
  const double low = call.number("low", 0);
  const double high = call.number("high", 1);
  return {Numbers(call).uniform(wanted.shape, wanted.dtype) * (high - low) + low};
}

template <Wanted (*kWanted)(const Call&)>
Values random_normal(const Call& call) {
  const Wanted wanted = kWanted(call);
  return {Numbers(call).normal(wanted.shape, wanted.dtype, call.number("mean", 0),
                               call.number("scale", 1))};
}

Values bernoulli(const Call& call) {
  const Tensor x = call.input(0);
  const bp_dtype dtype = call.dtype("dtype", x.dtype());
  return {lt(Numbers(call).uniform(x.shape(), BP_F32), x).to(dtype)};
}

// The input has logarithms; the largest of a row stands for 1.
Values multinomial(const Call& call) {
  const Tensor x = call.input(0);
  const int64_t count = call.integer("sample_size", 1);
  if (x.ndim() != 2 || x.shape(1) == 0 || count < 0) {
    call.refuse("input 0 is " + bp::to_string(x.shape()) + " and 'sample_size' " +
                std::to_string(count) + "; allowed: rows of classes, and a number from 0 on");
  }
  const Tensor weights = exp(x - amax(x, {1}, true));
  return {Numbers(call).multinomial(weights, count, call.dtype("dtype", BP_I32))};
}

// ---- Dropout -----------------------------------------------------------------------------------

Values dropped(const Call& call, double ratio, bool is_training, bp_dtype mask_dtype) {
  const Tensor x = call.input(0);
  if (!is_training || ratio == 0) return {x, ones(x.shape(), mask_dtype, x.device())};
  if (ratio < 0 || ratio >= 1) {
    call.refuse("the ratio is " + std::to_string(ratio) + "; allowed: 0 to less than 1");
  }
  const Tensor mask = ge(Numbers(call).uniform(x.shape(), BP_F32), ratio);
  return {keep_where(mask, x / (1 - ratio)), mask.to(mask_dtype)};
}

// Before opset 7 the node trained unless is_test was set, and until opset 12 no node trained.
Values dropout_attributes(const Call& call) {
  const bool is_training = call.opset() < 7 && !call.flag("is_test", false);
  const bp_dtype mask = call.opset() < 10 ? call.value(0).dtype() : bp_dtype{BP_BOOL};
  return dropped(call, call.number("ratio", 0.5), is_training, mask);
}

Values dropout_inputs(const Call& call) {
  const double ratio = call.has(1) ? call.number(1) : 0.5;
  return dropped(call, ratio, call.has(2) && call.integer(2) != 0, BP_BOOL);
}

constexpr OpRow kRows[] = {
    {"Bernoulli", 15, bernoulli, "dtype seed"},
    {"Dropout", 1, dropout_attributes, "is_test ratio"},
    {"Dropout", 12, dropout_inputs, "seed"},
    {"Multinomial", 7, multinomial, "dtype sample_size seed"},
    {"RandomNormal", 1, random_normal<from_attributes>, "dtype mean scale seed shape"},
    {"RandomNormalLike", 1, random_normal<from_input>, "dtype mean scale seed"},
    {"RandomUniform", 1, random_uniform<from_attributes>, "dtype high low seed shape"},
    {"RandomUniformLike", 1, random_uniform<from_input>, "dtype high low seed"},
};

}  // namespace

std::span<const OpRow> random_ops() { return kRows; }

}  // namespace bp::onnx
