#include "backplane/runtime/distributed/comm_hooks.hpp"

#include <algorithm>
#include <cmath>
#include <map>
#include <random>
#include <utility>

#include "backplane/runtime/error.hpp"
#include "backplane/runtime/ops.hpp"

namespace bp::distributed {
namespace {

void require(bool holds, const std::string& what) {
  if (!holds) throw Error(BP_INVALID_ARGUMENT, what);
}

// Counts steps: the first bucket of a backward() begins one.
class StepCounter {
 public:
  explicit StepCounter(int64_t exact_steps) : left_(exact_steps) {}
  bool is_exact(const GradBucket& bucket) {
    if (bucket.index == 0) is_exact_ = left_ > 0 && left_-- > 0;
    return is_exact_;
  }

 private:
  int64_t left_;
  bool is_exact_ = false;
};

// What a rank has not sent yet. Buckets change behind the first step, so errors belong to
// parameters.
class ErrorMemory {
 public:
  // Returns the errors of a bucket, which lie as its gradients do.
  Tensor of(const GradBucket& bucket) {
    const bool is_known = std::ranges::all_of(bucket.grads, [&](const BucketGrad& grad) {
      const auto at = errors_.find(grad.name);
      return at != errors_.end() && at->second.bucket == bucket.grads[0].name &&
             at->second.flat.numel() == bucket.data.numel();
    });
    if (is_known) return errors_.at(bucket.grads[0].name).flat;
    const Tensor flat = zeros(bucket.data.shape(), bucket.data.dtype(), bucket.data.device());
    for (const BucketGrad& grad : bucket.grads) {
      Error& error = errors_[grad.name];
      const Tensor place = flat.narrow(0, grad.offset, grad.grad.numel());
      if (error.place) place.copy_from(error.place);
      error = {bucket.grads[0].name, flat, place};
    }
    return flat;
  }

 private:
  struct Error {
    std::string bucket;  // The name of its first parameter.
    Tensor flat, place;
  };
  std::map<std::string, Error> errors_;
};

Tensor flattened(const Tensor& x) { return x.contiguous().view({x.numel()}); }

// Takes tensors one after the other out of a flat one.
class Cutter {
 public:
  explicit Cutter(Tensor flat) : flat_(std::move(flat)) {}
  Tensor next(IntList shape, int64_t count) {
    const Tensor part = flat_.narrow(0, start_, count).view(shape);
    start_ += count;
    return part;
  }

 private:
  const Tensor flat_;
  int64_t start_ = 0;
};

// ---- PowerSGD -----------------------------------------------------------------------------------

class PowerSgd {
 public:
  explicit PowerSgd(const PowerSgdOptions& options) : o_(options), steps_(options.exact_steps) {}

  std::function<void()> send(const std::shared_ptr<PowerSgd>& self, const ProcessGroup& group,
                             const GradBucket& bucket);

 private:
  struct Matrix {
    Tensor grad;  // As it lies in the bucket.
    Tensor m, p;  // In f32.
    std::string name;
  };
  // A bucket on its way.
  struct Sent {
    std::vector<Matrix> matrices;
    std::vector<Tensor> exact;  // Gradients that are averaged as they are.
    Tensor flat;                // The factors P, then the exact ones.
  };

  int64_t columns_for(const Tensor& grad) const;
  const Tensor& first_factor(const std::string& name, int64_t rows, int64_t columns, Device device);
  void receive(const ProcessGroup& group, const GradBucket& bucket, Sent& sent);
  void send_second_factors(const ProcessGroup& group, std::vector<Matrix>& matrices);

  const PowerSgdOptions o_;
  StepCounter steps_;
  ErrorMemory errors_;
  std::map<std::string, Tensor> q_;
};

// Returns the columns of the factors; 0 if the gradient is not compressed.
int64_t PowerSgd::columns_for(const Tensor& grad) const {
  if (grad.ndim() < 2 || grad.numel() == 0) return 0;
  const int64_t rows = grad.shape()[0], columns = grad.numel() / rows;
  const int64_t rank = std::min({o_.rank, rows, columns});
  const double sent = static_cast<double>(rows + columns) * static_cast<double>(rank);
  return static_cast<double>(grad.numel()) >= sent * o_.least_ratio ? rank : 0;
}

// The first factor is random and the same on all ranks. Later it is that of the last step.
const Tensor& PowerSgd::first_factor(const std::string& name, int64_t rows, int64_t columns,
                                     Device device) {
  Tensor& q = q_[name];
  if (q) return q;
  std::seed_seq seed(name.begin(), name.end());
  std::vector<uint32_t> words(1);
  seed.generate(words.begin(), words.end());
  std::mt19937_64 bits(o_.seed * 0x9e3779b97f4a7c15u + words[0]);
  // Sums of uniform numbers, since the standard leaves it to each library how it draws normal ones.
  std::vector<float> values(static_cast<size_t>(rows * columns));
  for (float& value : values) {
    for (int i = 0; i < 4; ++i) value += static_cast<float>(bits() >> 40) / 16777216.0f - 0.5f;
  }
  return q = from_host(values, {rows, columns}, device);
}

// Makes the columns orthonormal, each against those before it (Gram and Schmidt). A column of zeros
// stays one.
Tensor orthonormal(const Tensor& p) {
  constexpr double kTiny = 1e-30;
  std::vector<Tensor> columns;
  for (int64_t i = 0; i < p.shape()[1]; ++i) {
    Tensor column = p.narrow(1, i, 1);
    // Twice, because what one pass leaves is large beside a column that nearly vanishes.
    for (int pass = 0; pass < 2 && i > 0; ++pass) {
      const Tensor before = cat(columns, 1);
      column = column - matmul(before, matmul(before.transpose(), column));
    }
    columns.push_back(column / sqrt(sum(column * column) + kTiny));
  }
  return cat(columns, 1);
}

std::function<void()> PowerSgd::send(const std::shared_ptr<PowerSgd>& self,
                                     const ProcessGroup& group, const GradBucket& bucket) {
  if (steps_.is_exact(bucket)) return average_hook(group, bucket);
  if (o_.keeps_errors) bucket.data.copy_from(bucket.data + errors_.of(bucket));
  const auto sent = std::make_shared<Sent>();
  std::vector<Tensor> parts, exact;
  for (const BucketGrad& entry : bucket.grads) {
    const int64_t rank = columns_for(entry.grad);
    if (rank == 0) {
      sent->exact.push_back(entry.grad);
      exact.push_back(flattened(entry.grad).to(BP_F32));
      continue;
    }
    const int64_t rows = entry.grad.shape()[0], columns = entry.grad.numel() / rows;
    const Tensor m = entry.grad.view({rows, columns}).to(BP_F32);
    const Tensor p = matmul(m, first_factor(entry.name, columns, rank, group.device()));
    sent->matrices.push_back({entry.grad, m, p, entry.name});
    parts.push_back(flattened(p));
  }
  parts.insert(parts.end(), exact.begin(), exact.end());
  sent->flat = cat(parts, 0);
  const Work work = group.all_reduce(sent->flat, Reduction::kAverage);
  return [self, group, bucket, sent, work] {
    work.join();
    self->receive(group, bucket, *sent);
  };
}

void PowerSgd::receive(const ProcessGroup& group, const GradBucket& bucket, Sent& sent) {
  Cutter averages(sent.flat);
  for (Matrix& matrix : sent.matrices) {
    matrix.p = orthonormal(averages.next(matrix.p.shape(), matrix.p.numel()));
  }
  if (!sent.matrices.empty()) send_second_factors(group, sent.matrices);
  const Tensor before = o_.keeps_errors ? bucket.data.clone() : Tensor();
  for (const Matrix& matrix : sent.matrices) {
    const Tensor approximation = matmul(matrix.p, q_.at(matrix.name).transpose());
    matrix.grad.copy_from(approximation.view(matrix.grad.shape()).to(matrix.grad.dtype()));
  }
  if (o_.keeps_errors) errors_.of(bucket).copy_from(before - bucket.data);
  // Exact averages come last: nothing of them is left over.
  for (const Tensor& grad : sent.exact) {
    grad.copy_from(averages.next(grad.shape(), grad.numel()).to(grad.dtype()));
  }
}

void PowerSgd::send_second_factors(const ProcessGroup& group, std::vector<Matrix>& matrices) {
  std::vector<Tensor> parts;
  for (const Matrix& matrix : matrices) {
    parts.push_back(flattened(matmul(matrix.m.transpose(), matrix.p)));
  }
  const Tensor flat = cat(parts, 0);
  group.all_reduce(flat, Reduction::kAverage).join();
  Cutter averages(flat);
  for (const Matrix& matrix : matrices) {
    const Tensor& q = q_.at(matrix.name);
    q_[matrix.name] = averages.next(q.shape(), q.numel());
  }
}

// ---- The largest elements -----------------------------------------------------------------------

class TopK {
 public:
  explicit TopK(const TopKOptions& options) : o_(options), steps_(options.exact_steps) {}

  std::function<void()> send(const ProcessGroup& group, const GradBucket& bucket) {
    if (steps_.is_exact(bucket)) return average_hook(group, bucket);
    const Tensor error = o_.keeps_errors ? errors_.of(bucket) : Tensor();
    const Tensor all = o_.keeps_errors ? bucket.data + error : bucket.data;
    const int64_t count = count_of(bucket);
    Tensor places;
    topk(abs(all), count, 0, true, &places, BP_I64);
    const Tensor values = gather(all, places, 0);
    if (error) error.copy_from(scatter(all, places, zeros_like(values), 0));
    const auto ranks = static_cast<int64_t>(group.size());
    const Tensor all_values = empty({ranks * count}, values.dtype(), group.device());
    const Tensor all_places = empty({ranks * count}, BP_I64, group.device());
    const Collective calls[] = {Collective::all_gather(all_values, values),
                                Collective::all_gather(all_places, places)};
    const Work work = group.submit(calls);
    return [work, all_values, all_places, data = bucket.data, count, ranks] {
      work.join();
      add_up(all_values, all_places, data, count, ranks);
    };
  }

 private:
  int64_t count_of(const GradBucket& bucket) const {
    const double share = std::ceil(static_cast<double>(bucket.data.numel()) * o_.ratio);
    return std::clamp(static_cast<int64_t>(share), int64_t{1}, bucket.data.numel());
  }

  // One rank after the other: within a rank each place comes once, so the order of the sums is the
  // same on all ranks.
  static void add_up(const Tensor& values, const Tensor& places, const Tensor& data, int64_t count,
                     int64_t ranks) {
    Tensor total = zeros_like(data);
    for (int64_t rank = 0; rank < ranks; ++rank) {
      total = scatter_reduce(total, places.narrow(0, rank * count, count),
                             values.narrow(0, rank * count, count), 0);
    }
    data.copy_from(total / static_cast<double>(ranks));
  }

  const TopKOptions o_;
  StepCounter steps_;
  ErrorMemory errors_;
};

}  // namespace

CommHook power_sgd_hook(const PowerSgdOptions& options) {
  require(options.rank >= 1,
          "power_sgd_hook: rank is " + std::to_string(options.rank) + "; allowed: at least 1");
  require(options.exact_steps >= 0, "power_sgd_hook: exact_steps is " +
                                        std::to_string(options.exact_steps) +
                                        "; allowed: at least 0");
  require(options.least_ratio >= 1, "power_sgd_hook: least_ratio is " +
                                        std::to_string(options.least_ratio) +
                                        "; allowed: at least 1");
  return [state = std::make_shared<PowerSgd>(options)](const ProcessGroup& group,
                                                       const GradBucket& bucket) {
    return state->send(state, group, bucket);
  };
}

CommHook top_k_hook(const TopKOptions& options) {
  require(
      options.ratio > 0 && options.ratio <= 1,
      "top_k_hook: ratio is " + std::to_string(options.ratio) + "; allowed: above 0, at most 1");
  require(options.exact_steps >= 0, "top_k_hook: exact_steps is " +
                                        std::to_string(options.exact_steps) +
                                        "; allowed: at least 0");
  return [state = std::make_shared<TopK>(options)](const ProcessGroup& group,
                                                   const GradBucket& bucket) {
    return state->send(group, bucket);
  };
}

}  // namespace bp::distributed
