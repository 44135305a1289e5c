#include "backends/vulkan/kernels/sdpa_products.hpp"

#include <algorithm>
#include <array>

#include "backends/vulkan/kernels/map.hpp"
#include "backends/vulkan/kernels/product.hpp"
#include "backends/vulkan/kernels/reduce.hpp"
#include "backends/vulkan/kernels/scratch.hpp"
#include "backends/vulkan/kernels/sdpa_parts.hpp"

namespace bp::vulkan {
namespace {

enum RowStage : uint32_t { kForward = 0, kBackward = 1 };

struct RowTensor {
  uint64_t address;
  int64_t strides[4];
};

struct RowRecord {
  RowTensor mask, bias, lse, delta;
  uint32_t first_batch, first_head, first_query, first_key;
  uint32_t heads, queries, keys;
  uint32_t row_count, row_vectors;
  int32_t band_begin, band_end;
  float scale, softcap;
  uint32_t reserved;  // 0: the tensor begins at 8 bytes.
  RowTensor sinks;
  DropoutRecord dropout;
};

// Makes the products of a part. Without a launch they only have extents.
class Maker {
 public:
  Maker(const Attention& attention, const Part& part, Launch* launch)
      : a_(attention),
        part_(part),
        group_(std::min(attention.group(), part.heads)),
        launch_(launch) {}

  // Returns the rows from `first` on of a tensor (batch, heads, rows, columns) for each head of the
  // part.
  Matrix of_queries(const bp_tensor& t, int64_t first) const {
    return matrix(t, part_.head, first, group_ * t.strides[1], t.strides[1]);
  }
  Matrix of_keys(const bp_tensor& t, int64_t first) const {
    return matrix(t, part_.head / a_.group(), first, t.strides[1], 0);
  }
  // Returns the scores of the part.
  Matrix of_scores(const ScratchTensor& scores) const {
    const int64_t row = row_stride(part_.keys), head = part_.queries * row;
    Matrix m{.dtype = BP_F32, .row_stride = row, .col_stride = 1};
    m.batch_strides = {part_.heads * head, group_ * head, head};
    place(m, scores.tensor(), 0);
    return m;
  }

  static Matrix transposed(Matrix m) {
    std::swap(m.row_stride, m.col_stride);
    return m;
  }

  // Makes the product y (m, n) = a (m, k) b (k, n) for each head.
  Product product(const Matrix& a, const Matrix& b, const Matrix& y, int64_t m, int64_t n,
                  int64_t k) const {
    Product p{.m = m, .n = n, .k = k, .batch_ndim = 3, .a = a, .b = b, .y = y};
    p.batch_shape = {part_.batches, part_.heads / group_, group_};
    return p;
  }

 private:
  Matrix matrix(const bp_tensor& t, int64_t head, int64_t first, int64_t key_head_stride,
                int64_t head_stride) const {
    Matrix m{.dtype = t.dtype, .row_stride = t.strides[2], .col_stride = t.strides[3]};
    m.batch_strides = {t.strides[0], key_head_stride, head_stride};
    place(m, t, part_.batch * t.strides[0] + head * t.strides[1] + first * t.strides[2]);
    return m;
  }
  void place(Matrix& m, const bp_tensor& t, int64_t elements) const {
    if (launch_ == nullptr || element_count(t) == 0) return;
    m.tensor = &t;
    m.address =
        launch_->device_address(t) + static_cast<uint64_t>(elements * dtype_size_bytes(t.dtype));
  }

  const Attention& a_;
  const Part& part_;
  const int64_t group_;
  Launch* const launch_;
};

// Submits the products of a launch, or computes the workspace that they need.
class Runner {
 public:
  Runner(const Env& env, Launch* launch) : env_(env), launch_(launch) {}

  // Sets the address of the scratch memory of products.
  void set_partial(uint64_t address) { partial_ = address; }
  uint64_t partial_size_bytes() const { return partial_size_bytes_; }
  Launch* launch() const { return launch_; }

  bp_status run(const Product& p, std::initializer_list<const bp_tensor*> reads,
                std::initializer_list<const bp_tensor*> writes) {
    if (launch_ == nullptr) {
      partial_size_bytes_ = std::max(partial_size_bytes_, product_workspace(env_, p));
      return BP_OK;
    }
    Ranges all_reads(*launch_, reads), all_writes(*launch_, writes);
    all_reads.add(launch_->workspace());
    all_writes.add(launch_->workspace());
    return submit_product(*launch_, p, all_reads, all_writes, partial_);
  }

 private:
  const Env& env_;
  Launch* const launch_;
  uint64_t partial_ = 0, partial_size_bytes_ = 0;
};

RowTensor row_tensor(const Launch& launch, const bp_tensor* t) {
  RowTensor result{};
  if (t == nullptr) return result;
  result.address = address_of(launch, t);
  for (uint32_t i = 0; i < t->ndim; ++i) {
    result.strides[i] = t->strides[i] * dtype_size_bytes(t->dtype);
  }
  return result;
}

// One call of sdpa_rows.comp. The forward op has neither slopes nor delta.
struct RowCall {
  RowStage stage;
  const bp_tensor* scores;
  const bp_tensor* slopes = nullptr;
  const bp_tensor* delta = nullptr;
};

template <typename Args>
bp_status submit_rows(Launch& launch, const Args& args, const Attention& a, const Part& part,
                      const RowCall& call) {
  const RowRecord record{.mask = row_tensor(launch, a.mask),
                         .bias = row_tensor(launch, a.bias),
                         .lse = row_tensor(launch, a.lse),
                         .delta = row_tensor(launch, call.delta),
                         .first_batch = static_cast<uint32_t>(part.batch),
                         .first_head = static_cast<uint32_t>(part.head),
                         .first_query = static_cast<uint32_t>(part.query),
                         .first_key = static_cast<uint32_t>(part.key),
                         .heads = static_cast<uint32_t>(part.heads),
                         .queries = static_cast<uint32_t>(part.queries),
                         .keys = static_cast<uint32_t>(part.keys),
                         .row_count = static_cast<uint32_t>(part.row_count()),
                         .row_vectors = static_cast<uint32_t>(row_stride(part.keys) / 4),
                         .band_begin = static_cast<int32_t>(a.band.begin),
                         .band_end = static_cast<int32_t>(a.band.end),
                         .scale = static_cast<float>(a.scale),
                         .softcap = a.softcap,
                         .reserved = 0,
                         .sinks = row_tensor(launch, a.sinks),
                         .dropout = dropout_record(launch, args)};
  constexpr uint32_t kLanes = 8;
  const std::array<uint32_t, 8> constants = {kLanes,
                                             kLanes,
                                             call.stage,
                                             one_of(kF32Dtypes, a.q.dtype),
                                             a.mask != nullptr ? 1u : 0u,
                                             a.bias != nullptr ? 1u : 0u,
                                             a.has_band ? 1u : 0u,
                                             args.dropout_p != 0 ? 1u : 0u};
  const std::array<Range, 2> bound = {
      launch.range(*call.scores),
      launch.range(call.slopes == nullptr ? *call.scores : *call.slopes)};
  Ranges reads(launch, {a.mask, a.bias, a.sinks, args.seed, args.offset}), writes(launch);
  (call.stage == kForward ? writes : reads).add(a.lse);
  writes.add(launch.workspace());
  return submit(launch, kSdpaRowsModule, constants, record, record.row_count,
                {reads, writes, bound});
}

// ---- The two ops, each as what it takes of the workspace, and what it does with it --------------

struct Forward {
  Forward(const bp_sdpa_args& its_args, Scratch& scratch)
      : args(its_args), a(args), y(*args.y), scores(scratch.take(BP_F32, {most_scores(a)})) {}

  bp_status run(Runner& runner) const {
    return for_heads(a, [&](const Part& heads) {
      return for_queries(a, heads, [&](const Part& part) { return run_part(runner, part); });
    });
  }

  bp_status run_part(Runner& runner, const Part& part) const {
    const Maker maker(a, part, runner.launch());
    const Matrix s = maker.of_scores(scores);
    bp_status status = runner.run(maker.product(maker.of_queries(a.q, part.query),
                                                Maker::transposed(maker.of_keys(a.k, part.key)), s,
                                                part.queries, part.keys, a.width()),
                                  {&a.q, &a.k}, {});
    if (status == BP_OK && runner.launch() != nullptr) {
      status = submit_rows(*runner.launch(), args, a, part, {kForward, &scores.tensor()});
    }
    if (status != BP_OK) return status;
    return runner.run(
        maker.product(s, maker.of_keys(a.v, part.key), maker.of_queries(y, part.query),
                      part.queries, a.value_width(), part.keys),
        {&a.v}, {&y});
  }

  const bp_sdpa_args& args;
  const Attention a;
  const bp_tensor& y;
  const ScratchTensor scores;
};

// The gradient of k or v. If several heads share a head of keys, each computes its own gradient,
// and the gradients are added at the end.
class SharedGradient {
 public:
  SharedGradient(const Attention& a, const bp_tensor* to, Scratch& scratch)
      : to_(to), is_sum_(to != nullptr && a.group() > 1), is_empty_(a.heads() == 0) {
    if (!is_sum_) return;
    group_ = a.group();
    own_ = scratch.take(BP_F32, {a.batches(), a.heads(), to->shape[2], to->shape[3]});
    sums_ = scratch.take_bytes(reduction_workspace(sum()));
  }

  bool is_wanted() const { return to_ != nullptr; }
  const bp_tensor& tensor() const { return is_sum_ ? own_.tensor() : *to_; }
  Matrix matrix(const Maker& maker, int64_t first) const {
    return is_sum_ ? maker.of_queries(own_.tensor(), first) : maker.of_keys(*to_, first);
  }

  bp_status finish(Launch& launch) const {
    if (to_ == nullptr || element_count(*to_) == 0) return BP_OK;
    if (is_empty_) return submit_map(launch, kMapCopy, {to_, nullptr});
    if (!is_sum_) return BP_OK;
    Reduction reduction = sum();
    reduction.from_address = launch.device_address(own_.tensor());
    reduction.to_address = launch.device_address(*to_);
    Ranges reads(launch);
    reads.add(launch.workspace());
    return submit_reduction(launch, reduction, reads, Ranges(launch, {to_}), sums_);
  }

 private:
  // Returns the sum, from (batch, key heads, heads of each, keys, columns).
  Reduction sum() const {
    const int64_t* const own = own_.tensor().strides;
    const int64_t shape[] = {to_->shape[0], to_->shape[1], group_, to_->shape[2], to_->shape[3]};
    const int64_t strides[] = {own[0], group_ * own[1], own[1], own[2], own[3]};
    const bp_tensor from{.shape = shape, .strides = strides, .ndim = 5, .dtype = BP_F32};
    return make_reduction(BP_OP_SUM, from, *to_, 1u << 2);
  }

  const bp_tensor* const to_;
  const bool is_sum_, is_empty_;
  int64_t group_ = 1;
  ScratchTensor own_;
  uint64_t sums_ = 0;
};

struct Backward {
  Backward(const bp_sdpa_backward_args& its_args, Scratch& scratch)
      : args(its_args),
        a(args),
        grad_y(*args.grad_y),
        grad_q(*args.grad_q),
        delta(scratch.take(BP_F32, {a.batches(), a.heads(), a.queries()})),
        scores(scratch.take(BP_F32, {most_scores(a)})),
        slopes(scratch.take(BP_F32, {most_scores(a)})),
        grad_k(a, args.grad_k, scratch),
        grad_v(a, args.grad_v, scratch) {}

  bp_status run(Runner& runner) const {
    const bp_status status =
        for_heads(a, [&](const Part& heads) { return run_heads(runner, heads); });
    if (status != BP_OK || runner.launch() == nullptr) return status;
    const bp_status added = grad_k.finish(*runner.launch());
    return added == BP_OK ? grad_v.finish(*runner.launch()) : added;
  }

  // Sums over queries need the scores of all queries. If the scores of a head do not fit one part,
  // they are computed again, for some of the keys at a time.
  bp_status run_heads(Runner& runner, const Part& heads) const {
    const bp_status status = for_queries(a, heads, [&](const Part& part) {
      const bp_status made = make_slopes(runner, part);
      if (made != BP_OK) return made;
      const bp_status done = add_to_queries(runner, part);
      return done == BP_OK && is_whole(a) ? add_to_keys(runner, part) : done;
    });
    if (status != BP_OK || is_whole(a)) return status;
    return for_keys(a, heads, [&](const Part& part) {
      const bp_status made = make_slopes(runner, part);
      return made == BP_OK ? add_to_keys(runner, part) : made;
    });
  }

  bp_status make_slopes(Runner& runner, const Part& part) const {
    const Maker maker(a, part, runner.launch());
    bp_status status =
        runner.run(maker.product(maker.of_queries(a.q, part.query),
                                 Maker::transposed(maker.of_keys(a.k, part.key)),
                                 maker.of_scores(scores), part.queries, part.keys, a.width()),
                   {&a.q, &a.k}, {});
    if (status != BP_OK) return status;
    status =
        runner.run(maker.product(maker.of_queries(grad_y, part.query),
                                 Maker::transposed(maker.of_keys(a.v, part.key)),
                                 maker.of_scores(slopes), part.queries, part.keys, a.value_width()),
                   {&grad_y, &a.v}, {});
    if (status != BP_OK || runner.launch() == nullptr) return status;
    return submit_rows(*runner.launch(), args, a, part,
                       {kBackward, &scores.tensor(), &slopes.tensor(), &delta.tensor()});
  }

  bp_status add_to_queries(Runner& runner, const Part& part) const {
    const Maker maker(a, part, runner.launch());
    return runner.run(
        maker.product(maker.of_scores(slopes), maker.of_keys(a.k, part.key),
                      maker.of_queries(grad_q, part.query), part.queries, a.width(), part.keys),
        {&a.k}, {&grad_q});
  }

  bp_status add_to_keys(Runner& runner, const Part& part) const {
    const Maker maker(a, part, runner.launch());
    bp_status status = BP_OK;
    if (grad_k.is_wanted()) {
      status = runner.run(
          maker.product(Maker::transposed(maker.of_scores(slopes)), maker.of_queries(a.q, 0),
                        grad_k.matrix(maker, part.key), part.keys, a.width(), part.queries),
          {&a.q}, {&grad_k.tensor()});
    }
    if (status != BP_OK || !grad_v.is_wanted()) return status;
    return runner.run(
        maker.product(Maker::transposed(maker.of_scores(scores)), maker.of_queries(grad_y, 0),
                      grad_v.matrix(maker, part.key), part.keys, a.value_width(), part.queries),
        {&grad_y}, {&grad_v.tensor()});
  }

  const bp_sdpa_backward_args& args;
  const Attention a;
  const bp_tensor &grad_y, &grad_q;
  const ScratchTensor delta, scores, slopes;
  const SharedGradient grad_k, grad_v;
};

template <typename Op, typename Args>
uint64_t workspace_of(const Args& args, const Env& env) {
  Scratch scratch;
  const Op op(args, scratch);
  Runner runner(env, nullptr);
  static_cast<void>(op.run(runner));
  static_cast<void>(scratch.take_bytes(runner.partial_size_bytes()));
  return scratch.size_bytes();
}

template <typename Op, typename Args>
bp_status launch_op(const Args& args, Launch& launch) {
  Scratch scratch(launch);
  const Op op(args, scratch);
  Runner runner(launch, &launch);
  runner.set_partial(scratch.take_bytes(0));
  return op.run(runner);
}

}  // namespace

uint64_t attention_workspace(const bp_sdpa_args& args, const Env& env) {
  return workspace_of<Forward>(args, env);
}
uint64_t attention_workspace(const bp_sdpa_backward_args& args, const Env& env) {
  return workspace_of<Backward>(args, env);
}

bp_status submit_attention(const bp_sdpa_args& args, Launch& launch) {
  return launch_op<Forward>(args, launch);
}
bp_status submit_attention(const bp_sdpa_backward_args& args, Launch& launch) {
  return launch_op<Backward>(args, launch);
}

}  // namespace bp::vulkan
