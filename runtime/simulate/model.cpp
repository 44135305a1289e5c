#include "runtime/simulate/model.hpp"

#include <algorithm>

#include "backplane/runtime/distributed/pipeline_schedule.hpp"
#include "backplane/runtime/error.hpp"

namespace bp::simulate {
namespace {

namespace bd = bp::distributed;

void need_divisor(const char* whole, uint32_t value, const char* part, uint32_t divisor) {
  if (divisor > 0 && value % divisor == 0) return;
  throw Error(BP_INVALID_ARGUMENT, std::string(whole) + " is " + std::to_string(value) + ", and " +
                                       part + " is " + std::to_string(divisor) +
                                       "; allowed: divisors of it");
}

void need_positive(const char* name, double value) {
  if (value > 0) return;
  throw Error(BP_INVALID_ARGUMENT,
              std::string(name) + " is " + std::to_string(value) + "; allowed: above 0");
}

double tokens_of(const Job& job, const Layout& layout) {
  return double{1} * layout.micro_batch * job.model.context;
}

// The bytes of a part of the activations that sequence parallelism alone divides.
double of_sequence(double bytes, const Layout& layout) {
  return layout.sequence_parallel ? bytes / layout.tensor : bytes;
}

double optimizer_bytes(const Job& job) { return job.element_bytes == 2 ? 12 : 8; }

double divided(double value, bool is_divided, uint32_t count) {
  return is_divided ? value / count : value;
}

uint32_t layers_of_rank(const Job& job, const Layout& layout) {
  return job.model.layers / layout.pipe;
}

// A schedule has an operation for each half of a layer and each bucket. More than this many would
// not fit the memory of most machines.
void check_size(const Job& job, const Layout& layout) {
  constexpr double kMost = 2e6;
  const double passes = double{1} * job.model.layers * micro_batches_of(job, layout);
  if (passes > kMost) {
    throw Error(BP_INVALID_ARGUMENT, "layers * micro-batches is " + std::to_string(passes) +
                                         "; allowed: at most 2 million; use larger micro-batches");
  }
  const double buckets = job.model.parameters() * job.element_bytes / layout.bucket_bytes;
  if (layout.shard_stage == 0 && layout.data > 1 && buckets > kMost) {
    throw Error(BP_INVALID_ARGUMENT,
                "the gradients fill " + std::to_string(buckets) +
                    " buckets; allowed: at most 2 million; use larger buckets");
  }
}

}  // namespace

double Gpt::layer_parameters() const { return 12.0 * width * width + 13.0 * width; }
double Gpt::embedding_parameters() const { return double{1} * width * (vocabulary + context); }
double Gpt::head_parameters() const { return double{1} * width * vocabulary + 2.0 * width; }
double Gpt::parameters() const {
  return layers * layer_parameters() + embedding_parameters() + head_parameters();
}

void check(const Job& job, const Layout& layout) {
  const Gpt& m = job.model;
  for (const auto& [name, value] : {std::pair{"layers", m.layers},
                                    {"width", m.width},
                                    {"heads", m.heads},
                                    {"context", m.context},
                                    {"vocabulary", m.vocabulary},
                                    {"batch", job.batch},
                                    {"tensor", layout.tensor},
                                    {"data", layout.data},
                                    {"pipe", layout.pipe},
                                    {"micro-batch", layout.micro_batch},
                                    {"stages-per-rank", layout.stages_per_rank}}) {
    need_positive(name, value);
  }
  need_positive("flops of the device", job.device.flops);
  need_positive("memory_bandwidth of the device", job.device.memory_bandwidth);
  need_positive("efficiency of the device", job.device.efficiency);
  if (job.element_bytes != 2 && job.element_bytes != 4) {
    throw Error(BP_INVALID_ARGUMENT,
                "elements have " + std::to_string(job.element_bytes) + " bytes; allowed: 2, 4");
  }
  if (layout.shard_stage < 0 || layout.shard_stage > 3) {
    throw Error(BP_INVALID_ARGUMENT,
                "shard-stage is " + std::to_string(layout.shard_stage) + "; allowed: 0 to 3");
  }
  if (layout.sequence_parallel && layout.tensor == 1) {
    throw Error(BP_INVALID_ARGUMENT,
                "sequence parallelism is on, and tensor is 1; allowed: with several tensor ranks");
  }
  need_divisor("width", m.width, "heads", m.heads);
  need_divisor("heads", m.heads, "tensor", layout.tensor);
  need_divisor("layers", m.layers, "pipe * stages-per-rank", layout.pipe * layout.stages_per_rank);
  need_divisor("batch", job.batch, "data * micro-batch", layout.data * layout.micro_batch);
  check_size(job, layout);
}

uint32_t micro_batches_of(const Job& job, const Layout& layout) {
  return job.batch / (layout.data * layout.micro_batch);
}

HalfLayer attention_of(const Job& job, const Layout& layout) {
  const double h = job.model.width, s = job.model.context, e = job.element_bytes;
  const double tokens = tokens_of(job, layout), t = layout.tensor;
  HalfLayer half{.operations = tokens * (8 * h * h + 4 * s * h) / t};
  half.kept_bytes = tokens * h * (of_sequence(2 * e + 1, layout) + 4 * e / t);
  if (layout.recompute == Recompute::kNone) {
    half.score_bytes = job.model.heads * tokens * s * (2 * e + 1) / t;
  }
  return half;
}

HalfLayer mlp_of(const Job& job, const Layout& layout) {
  const double h = job.model.width, e = job.element_bytes;
  const double tokens = tokens_of(job, layout), t = layout.tensor;
  return {.operations = tokens * 16 * h * h / t,
          .kept_bytes = tokens * h * (of_sequence(2 * e + 1, layout) + 8 * e / t)};
}

double seconds_of(const HalfLayer& half, const SimulatedDevice& device) {
  return half.operations / (device.flops * device.efficiency) +
         2 * (half.kept_bytes + half.score_bytes) / device.memory_bandwidth;
}

double head_seconds(const Job& job, const Layout& layout) {
  const double tokens = tokens_of(job, layout), t = layout.tensor;
  const double operations = 2 * tokens * job.model.width * job.model.vocabulary / t;
  return operations / (job.device.flops * job.device.efficiency) +
         2 * tokens * 4 * job.model.vocabulary / t / job.device.memory_bandwidth;
}

double embedding_seconds(const Job& job, const Layout& layout) {
  return 2 * tokens_of(job, layout) * job.model.width * job.element_bytes /
         job.device.memory_bandwidth;
}

double score_seconds(const Job& job, const Layout& layout) {
  if (layout.recompute != Recompute::kSelective) return 0;
  const double s = job.model.context;
  return tokens_of(job, layout) * 4 * s * job.model.width / layout.tensor /
         (job.device.flops * job.device.efficiency);
}

double parameters_of_rank(const Job& job, const Layout& layout, uint32_t pipe) {
  double count = layers_of_rank(job, layout) * job.model.layer_parameters();
  if (pipe == 0) count += job.model.embedding_parameters();
  if (pipe == layout.pipe - 1) count += job.model.head_parameters();
  return count / layout.tensor;
}

MemoryUse memory_of(const Job& job, const Layout& layout, uint32_t pipe, uint32_t alive) {
  const double count = parameters_of_rank(job, layout, pipe), e = job.element_bytes;
  const double layer = job.model.layer_parameters() / layout.tensor * e;
  const int stage = layout.shard_stage;
  const uint32_t n = layout.data;
  MemoryUse use{.parameters = divided(count * e, stage >= 3, n),
                .gradients = divided(count * e, stage >= 2, n),
                .optimizer = divided(count * optimizer_bytes(job), stage >= 1, n)};
  if (stage == 3 && n > 1) {
    // The root unit, the layer that computes and those ahead of it.
    const double root = count * e - layers_of_rank(job, layout) * layer;
    use.gathered += root + (1 + layout.prefetch) * layer;
  }
  // The gradients of the layer that computes and of the one that is reduced.
  if (stage >= 2 && n > 1) use.gathered += 2 * layer;
  const HalfLayer attention = attention_of(job, layout), mlp = mlp_of(job, layout);
  const double whole = attention.kept_bytes + attention.score_bytes + mlp.kept_bytes;
  const double input = of_sequence(tokens_of(job, layout) * job.model.width * e, layout);
  const uint32_t layers = job.model.layers / (layout.pipe * layout.stages_per_rank);
  const bool is_full = layout.recompute == Recompute::kFull;
  use.activations = alive * layers * (is_full ? input : whole) + (is_full ? whole : 0);
  if (pipe == layout.pipe - 1) {
    use.activations += tokens_of(job, layout) *
                       (2 * e * job.model.width + 4.0 * job.model.vocabulary / layout.tensor);
  }
  return use;
}

MemoryUse largest_memory(const Job& job, const Layout& layout) {
  const std::vector<uint32_t> alive = bd::largest_alive_counts(bd::make_pipeline_schedule(
      layout.pipeline, layout.pipe, micro_batches_of(job, layout), layout.stages_per_rank));
  MemoryUse most;
  for (uint32_t pipe = 0; pipe < layout.pipe; ++pipe) {
    const MemoryUse use = memory_of(job, layout, pipe, alive[pipe]);
    if (use.total() > most.total()) most = use;
  }
  return most;
}

double optimizer_seconds(const Job& job, const Layout& layout, uint32_t pipe) {
  const double count =
      divided(parameters_of_rank(job, layout, pipe), layout.shard_stage >= 1, layout.data);
  const double bytes = 2 * (job.element_bytes + optimizer_bytes(job)) + job.element_bytes;
  return count * bytes / job.device.memory_bandwidth;
}

}  // namespace bp::simulate
