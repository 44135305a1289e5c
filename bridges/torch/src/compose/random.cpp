// Random numbers: every call draws one offset from the generator of the device.
#include <ATen/Dispatch.h>
#include <ATen/MemoryOverlap.h>
#include <ATen/native/DistributionTemplates.h>
#include <ATen/native/TensorFactories.h>

#include "compose.h"

namespace bpt {
namespace {

using Generator = std::optional<at::Generator>;

Call& seeded(Call& call, const Generator& generator, at::Device device) {
  const auto [seed, offset] = next_random(generator, device);
  return call.word("seed", seed).word("offset", offset);
}

// Runs `write` with a dense tensor like `self`, then copies where self is not dense itself.
template <typename Write>
Tensor& into(Tensor& self, at::ScalarType type, Write write) {
  if (self.numel() == 0) return self;
  at::assert_no_internal_overlap(self);
  const bool is_direct = self.is_contiguous() && self.scalar_type() == type;
  Tensor dense = is_direct ? self : new_empty(self.sizes(), type, self.device());
  write(dense);
  if (!is_direct) copy_into(dense, self);
  return self;
}

// Numbers in [0, 1).
Tensor draw(IntArrayRef shape, at::ScalarType type, at::Device device, const Generator& generator) {
  const Tensor numbers = new_empty(shape, type, device);
  if (numbers.numel() == 0) return numbers;
  Call call("uniform");
  seeded(call, generator, device).out("y", numbers).go();
  return numbers;
}

Tensor& uniform_(Tensor& self, double from, double to, Generator generator) {
  TORCH_CHECK(from <= to, "uniform_ expects to return a [from, to) range, but found from=", from,
              " > to=", to);
  require(is_float(self), "uniform_ makes floats alone");
  AT_DISPATCH_FLOATING_TYPES_AND2(at::kHalf, at::kBFloat16, self.scalar_type(), "uniform_", [&] {
    const auto most = static_cast<double>(std::numeric_limits<scalar_t>::max());
    TORCH_CHECK(to - from <= most, "uniform_ expects to-from <= ", most, " for ",
                self.scalar_type(), ", but got from=", from, " and to=", to);
  });
  return into(self, self.scalar_type(), [&](Tensor& y) {
    Call call("uniform");
    seeded(call, generator, y.device()).out("y", y).go();
    if (to - from != 1) y.mul_(to - from);
    if (from != 0) y.add_(from);
  });
}

Tensor& normal_(Tensor& self, double mean, double std, Generator generator) {
  TORCH_CHECK(std >= 0, "normal expects std >= 0.0, but found std ", std);
  require(is_float(self), "normal_ makes floats alone");
  return into(self, self.scalar_type(), [&](Tensor& y) {
    Call call("normal");
    seeded(call, generator, y.device()).set("mean", mean).set("std", std).out("y", y).go();
  });
}

Tensor& log_normal_(Tensor& self, double mean, double std, Generator generator) {
  TORCH_CHECK(std > 0, "log_normal_ expects std > 0.0, but found std=", std);
  return normal_(self, mean, std, generator).exp_();
}

Tensor& exponential_(Tensor& self, double rate, Generator generator) {
  TORCH_CHECK(rate > 0, "exponential_ expects lambda > 0.0, but found lambda=", rate);
  require(is_float(self), "exponential_ makes floats alone");
  // 1 - u lies in (0, 1], so that its logarithm is finite.
  const Tensor u = draw(self.sizes(), self.scalar_type(), self.device(), generator);
  copy_into(at::div(at::neg(at::log(at::rsub(u, 1))), rate), self);
  return self;
}

Tensor& cauchy_(Tensor& self, double median, double sigma, Generator generator) {
  TORCH_CHECK(sigma > 0, "cauchy_ expects sigma > 0.0, but found sigma=", sigma);
  require(is_float(self), "cauchy_ makes floats alone");
  const Tensor u = draw(self.sizes(), self.scalar_type(), self.device(), generator);
  const Tensor angle = at::mul(at::sub(u, 0.5), M_PI);
  copy_into(at::add(at::mul(at::tan(angle), sigma), median), self);
  return self;
}

Tensor& geometric_(Tensor& self, double p, Generator generator) {
  TORCH_CHECK(0 < p && p < 1, "geometric_ expects p to be in (0, 1), but got p=", p);
  const Tensor u = draw(self.sizes(), at::kFloat, self.device(), generator);
  const Tensor count = at::ceil(at::div(at::log(at::rsub(u, 1)), std::log1p(-p)));
  copy_into(at::clamp_min(count, 1), self);
  return self;
}

Tensor& bernoulli_float(Tensor& self, double p, Generator generator) {
  TORCH_CHECK(0 <= p && p <= 1, "bernoulli_ expects p to be in [0, 1], but got p=", p);
  if (self.numel() == 0) return self;
  const Tensor u = draw(self.sizes(), at::kFloat, self.device(), generator);
  copy_into(at::lt(u, p), self);
  return self;
}

Tensor& bernoulli_tensor(Tensor& self, const Tensor& p, Generator generator) {
  require(is_float(p), "the probabilities of bernoulli are floats");
  if (self.numel() == 0) return self;
  const Tensor own = p.to(self.device()).expand(self.sizes());
  Call call("bernoulli");
  call.in("p", own);
  copy_into(seeded(call, generator, self.device()).run_one(), self);
  return self;
}

Tensor bernoulli(const Tensor& self, Generator generator) {
  Tensor result = at::empty_like(self, at::MemoryFormat::Contiguous);
  return bernoulli_tensor(result, self, generator);
}

Tensor& integers(Tensor& self, int64_t low, int64_t high, const Generator& generator) {
  TORCH_CHECK(low < high, "random_ expects 'from' to be less than 'to', but got from=", low,
              " >= to=", high);
  at::native::templates::check_from_to_in_range(low, high - 1, self.dtype());
  require(static_cast<uint64_t>(high) - static_cast<uint64_t>(low) <= (uint64_t{1} << 32),
          "the range of random integers is wider than 32 bits");
  return into(self, at::kLong, [&](Tensor& y) {
    Call call("randint");
    seeded(call, generator, y.device()).set("low", low).set("high", high).out("y", y).go();
  });
}

Tensor& random_from(Tensor& self, int64_t from, std::optional<int64_t> to, Generator generator) {
  require(to.has_value(), "random_ without an upper end has 64 bits");
  return integers(self, from, *to, generator);
}

Tensor& random_to(Tensor& self, int64_t to, Generator generator) {
  return integers(self, 0, to, generator);
}

// The whole numbers that a dtype holds exactly, as PyTorch defines it.
Tensor& random_(Tensor& self, Generator generator) {
  switch (self.scalar_type()) {
    case at::kBool:
      return integers(self, 0, 2, generator);
    case at::kByte:
      return integers(self, 0, 256, generator);
    case at::kChar:
      return integers(self, 0, 128, generator);
    case at::kShort:
      return integers(self, 0, 32768, generator);
    case at::kInt:
      return integers(self, 0, int64_t{1} << 31, generator);
    case at::kHalf:
      return integers(self, 0, 2049, generator);
    case at::kBFloat16:
      return integers(self, 0, 257, generator);
    case at::kFloat:
      return integers(self, 0, (int64_t{1} << 24) + 1, generator);
    default:
      throw Unsupported{"random_ of 64 bits"};
  }
}

Tensor& randperm(int64_t count, Generator generator, Tensor& out) {
  at::native::check_supported_max_int_with_precision(
      count, at::empty({0}, out.options().device(at::kCPU)));
  TORCH_CHECK(count >= 0, "n must be non-negative, got ", count);
  out.resize_({count});
  return into(out, at::kLong, [&](Tensor& y) {
    Call call("randperm");
    seeded(call, generator, y.device()).out("y", y).go();
  });
}

Tensor multinomial(const Tensor& weights, int64_t count, bool replacement, Generator generator) {
  require(is_float(weights) && weights.dim() >= 1 && weights.dim() <= 2 && count > 0,
          "multinomial takes one or two axes of floats");
  const Tensor rows = weights.dim() == 1 ? weights.unsqueeze(0) : weights;
  Tensor drawn;
  if (replacement || count == 1) {
    Call call("multinomial");
    call.in("weights", rows).set("count", count);
    drawn = seeded(call, generator, rows.device()).run_one();
  } else {
    TORCH_CHECK(count <= rows.size(1),
                "cannot sample n_sample > prob_dist.size(-1) samples without replacement");
    // The largest of weight / exponential number are a draw without replacement.
    Tensor races = at::empty_like(rows, at::MemoryFormat::Contiguous);
    exponential_(races, 1, generator);
    drawn = std::get<1>(at::topk(at::div(rows, races), count, 1));
  }
  return weights.dim() == 1 ? drawn.squeeze(0) : drawn;
}

std::tuple<Tensor, Tensor> native_dropout(const Tensor& x, double p, std::optional<bool> train) {
  if (train && !*train) {
    return {x.clone(), at::ones_like(x, x.options().dtype(at::kBool))};
  }
  if (p == 1) return {at::zeros_like(x), at::zeros_like(x, x.options().dtype(at::kBool))};
  // The numbers are those that the op dropout draws, so that the mask is the one it applies.
  const Tensor keep = at::ge(draw(x.sizes(), at::kFloat, x.device(), std::nullopt), p);
  return {at::mul(at::mul(x, keep.to(x.scalar_type())), 1 / (1 - p)), keep};
}

Tensor native_dropout_backward(const Tensor& grad, const Tensor& mask, double scale) {
  return at::mul(at::mul(grad, mask.to(grad.scalar_type())), scale);
}

}  // namespace

void compose_random() {
  compose("uniform_", &uniform_);
  compose("normal_", &normal_);
  compose("log_normal_", &log_normal_);
  compose("exponential_", &exponential_);
  compose("cauchy_", &cauchy_);
  compose("geometric_", &geometric_);
  compose("bernoulli_.float", &bernoulli_float);
  compose("bernoulli_.Tensor", &bernoulli_tensor);
  compose("bernoulli", &bernoulli);
  compose("random_", &random_);
  compose("random_.from", &random_from);
  compose("random_.to", &random_to);
  compose("randperm.generator_out", &randperm);
  compose("multinomial", &multinomial);
  compose("native_dropout", &native_dropout);
  compose("native_dropout_backward", &native_dropout_backward);
}

}  // namespace bpt
