// Sequences of lstm, gru and rnn (recurrent.hpp, recurrent.comp). The workspace has these buffers:
//
//   lengths   how many steps each row has
//   offsets   the sum of the biases of each gate
//   sums      x weight^T + offsets of some steps, (steps, rows, gates * hidden)
//   inner     the product of the state with the recurrent weights, (rows, gates * hidden)
//   h, c      the state, (rows, hidden), in the dtype of x, which each step replaces
//   kept      r * h, if a GRU resets the state before the product
#include <algorithm>
#include <array>
#include <utility>

#include "backends/vulkan/kernels/indices.hpp"
#include "backends/vulkan/kernels/map.hpp"
#include "backends/vulkan/kernels/recurrent.hpp"

namespace bp::vulkan {
namespace {

enum ForwardStage : uint32_t { kLengths = 0, kOffsets = 1, kReset = 2, kCellStage = 3 };

struct RecurrentRecord {
  StepElements y, gates, bias, recurrent_bias, given_lengths;
  uint64_t sums, inner, kept, h, c, lengths, offsets, failure;
  uint32_t rows, hidden, steps, step;
};

// Returns the invocations of a stage with `units` units each.
uint64_t invocations_of(const Recurrence& r, ForwardStage stage, uint32_t units) {
  if (stage == kLengths) return static_cast<uint64_t>(r.rows);
  if (stage == kOffsets) return static_cast<uint64_t>(r.width());
  return static_cast<uint64_t>(r.rows * r.hidden) / units;
}

bp_status submit_stage(Launch& launch, const Recurrence& r, ForwardStage stage,
                       const RecurrentRecord& record, const Touched& touched) {
  const bool reads_lengths = stage == kLengths;
  const bool has_units = stage == kReset || stage == kCellStage;
  const uint32_t units = has_units ? units_of_invocation(launch, r.hidden) : 1;
  const std::array<uint32_t, 7> constants = {
      local_size(launch),
      stage,
      reads_lengths ? 0 : static_cast<uint32_t>(r.cell),
      one_of(kF32Dtypes, r.dtype),
      units,
      reads_lengths ? one_of(kIndexDtypes, r.lengths->dtype) : bp_dtype{BP_I64},
      reads_lengths ? clamps(r.bounds) : 0};
  return submit(launch, kRecurrentModule, constants, record,
                ceil_divide(invocations_of(r, stage, units), local_size(launch)), touched);
}

RecurrentRecord record_of(const Recurrence& r) {
  return {.rows = static_cast<uint32_t>(r.rows),
          .hidden = static_cast<uint32_t>(r.hidden),
          .steps = static_cast<uint32_t>(r.steps)};
}

// The steps whose sums are in the workspace at the same time.
struct Range {
  int64_t first, count;
};

class Forward {
 public:
  Forward(const SequenceForward& s, Scratch& scratch, const Env& env)
      : s_(s),
        chunk_(steps_at_once(s)),
        lengths_(scratch.take(BP_I32, {s.lengths == nullptr ? 0 : s.rows})),
        offsets_(scratch.take(BP_F32, {has_offsets() ? s.width() : 0})),
        sums_(scratch.take(BP_F32, {chunk_, s.rows, s.width()})),
        inner_(scratch.take(BP_F32, {s.rows, s.width()})),
        h_(scratch.take(s.dtype, {s.rows, s.hidden})),
        c_(scratch.take(s.dtype, {s.c == nullptr ? 0 : s.rows, s.hidden})),
        kept_(scratch.take(BP_F32, {resets_before() ? s.rows : 0, s.hidden})),
        partial_(scratch.take_bytes(partial_size_bytes(env))) {}

  bp_status run(Launch& launch) const {
    bp_status status = submit_lengths(launch, s_, lengths_);
    if (status == BP_OK) status = submit_map(launch, kMapCopy, {&h_.tensor(), s_.h});
    if (status == BP_OK && s_.c != nullptr) {
      status = submit_map(launch, kMapCopy, {&c_.tensor(), s_.c});
    }
    if (status == BP_OK) status = make_offsets(launch);
    for (int64_t number = 0; number < s_.steps && status == BP_OK;) {
      // Ranges begin at multiples of `chunk_`, in both orders of the steps.
      const int64_t first = s_.step_at(number) / chunk_ * chunk_;
      const Range range{first, std::min(chunk_, s_.steps - first)};
      status = run_range(launch, range, number);
      number += range.count;
    }
    if (status != BP_OK) return status;
    return store_state(launch);
  }

 private:
  // Returns how many steps have 64 MiB of sums.
  static int64_t steps_at_once(const SequenceForward& s) {
    constexpr int64_t kSums = int64_t{1} << 24;
    const int64_t of_one = std::max<int64_t>(1, s.rows * s.width());
    return std::clamp<int64_t>(kSums / of_one, 1, std::max<int64_t>(1, s.steps));
  }

  bool resets_before() const { return s_.cell == Cell::kResetBefore; }
  bool has_offsets() const { return s_.bias != nullptr || s_.recurrent_bias != nullptr; }

  // ---- Products --------------------------------------------------------------------------------

  Product input_product(const Launch* launch, const Range& range) const {
    const StepRows rows(*s_.x);
    const bp_tensor& weight = *s_.weight;
    Product product = make_product(launch, rows.extents(range.count, s_.width(), s_.inputs),
                                   rows.part(*s_.x, range.first),
                                   {&weight, 0, weight.strides[1], weight.strides[0]},
                                   rows.dense(sums_.tensor(), 0, s_.width()));
    product.has_bias = has_offsets();
    product.bias_stride = 1;
    if (launch != nullptr) product.bias = address_at(*launch, offsets_);
    return product;
  }

  // Returns the product of a state with the rows of `count` gates from `gate` on.
  Product state_product(const Launch* launch, const ScratchTensor& state, int64_t gate,
                        int64_t count) const {
    const bp_tensor& recurrent = *s_.recurrent;
    const int64_t hidden = s_.hidden, first = gate * hidden;
    return make_product(
        launch, {s_.rows, count * hidden, hidden}, {&state.tensor(), 0, hidden, 1},
        {&recurrent, first * recurrent.strides[0], recurrent.strides[1], recurrent.strides[0]},
        {&inner_.tensor(), first, s_.width(), 1});
  }
  Product gates_product(const Launch* launch) const {
    return state_product(launch, h_, 0, resets_before() ? 2 : gate_count(s_.cell));
  }
  Product candidate_product(const Launch* launch) const {
    return state_product(launch, kept_, 2, 1);
  }

  uint64_t partial_size_bytes(const Env& env) const {
    uint64_t size = product_workspace(env, gates_product(nullptr));
    if (resets_before()) size = std::max(size, product_workspace(env, candidate_product(nullptr)));
    for (const int64_t count : {std::min(chunk_, s_.steps), s_.steps % chunk_}) {
      if (count == 0) continue;
      size = std::max(size, product_workspace(env, input_product(nullptr, {0, count})));
    }
    return size;
  }

  // ---- Steps -----------------------------------------------------------------------------------

  bp_status make_offsets(Launch& launch) const {
    if (!has_offsets()) return BP_OK;
    RecurrentRecord record = record_of(s_);
    record.bias = elements_of(launch, s_.bias);
    record.recurrent_bias = elements_of(launch, s_.recurrent_bias);
    record.offsets = address_at(launch, offsets_);
    Ranges reads(launch, {s_.bias, s_.recurrent_bias}), writes(launch);
    writes.add(launch.workspace());
    return submit_stage(launch, s_, kOffsets, record, {reads, writes});
  }

  bp_status run_range(Launch& launch, const Range& range, int64_t number) const {
    Ranges reads(launch, {s_.x, s_.weight}), writes(launch);
    reads.add(launch.workspace());
    writes.add(launch.workspace());
    bp_status status =
        submit_product(launch, input_product(&launch, range), reads, writes, partial_);
    for (int64_t i = 0; i < range.count && status == BP_OK; ++i) {
      status = run_step(launch, range, s_.step_at(number + i));
    }
    return status;
  }

  bp_status run_step(Launch& launch, const Range& range, int64_t step) const {
    Ranges weights(launch, {s_.recurrent}), scratch(launch);
    weights.add(launch.workspace());
    scratch.add(launch.workspace());
    const RecurrentRecord record = step_record(launch, range, step);
    Ranges reads(launch, {s_.recurrent_bias}), writes(launch, {s_.y, s_.gates});
    reads.add(launch.workspace());
    writes.add(launch.workspace());
    bp_status status = submit_product(launch, gates_product(&launch), weights, scratch, partial_);
    if (status == BP_OK && resets_before()) {
      status = submit_stage(launch, s_, kReset, record, {reads, scratch});
      if (status != BP_OK) return status;
      status = submit_product(launch, candidate_product(&launch), weights, scratch, partial_);
    }
    if (status != BP_OK) return status;
    return submit_stage(launch, s_, kCellStage, record, {reads, writes});
  }

  RecurrentRecord step_record(const Launch& launch, const Range& range, int64_t step) const {
    RecurrentRecord record = record_of(s_);
    record.y = elements_of(launch, s_.y, step);
    record.gates = elements_of(launch, s_.gates, step);
    record.recurrent_bias = elements_of(launch, s_.recurrent_bias);
    record.sums = address_at(launch, sums_, (step - range.first) * s_.rows * s_.width());
    record.inner = address_at(launch, inner_);
    record.kept = address_at(launch, kept_);
    record.h = address_at(launch, h_);
    record.c = address_at(launch, c_);
    record.lengths = address_at(launch, lengths_);
    record.step = static_cast<uint32_t>(step);
    return record;
  }

  bp_status store_state(Launch& launch) const {
    bp_status status = BP_OK;
    if (s_.h_next != nullptr) status = submit_map(launch, kMapCopy, {s_.h_next, &h_.tensor()});
    if (status != BP_OK || s_.c_next == nullptr) return status;
    return submit_map(launch, kMapCopy, {s_.c_next, &c_.tensor()});
  }

  const SequenceForward& s_;
  const int64_t chunk_;
  const ScratchTensor lengths_, offsets_, sums_, inner_, h_, c_, kept_;
  const uint64_t partial_;
};

}  // namespace

bp_status submit_lengths(Launch& launch, const Recurrence& r, const ScratchTensor& lengths) {
  if (r.lengths == nullptr || r.rows == 0) return BP_OK;
  RecurrentRecord record = record_of(r);
  record.given_lengths = elements_of(launch, r.lengths);
  // A row of the shader is an element of this tensor.
  std::swap(record.given_lengths.row, record.given_lengths.unit);
  record.lengths = address_at(launch, lengths);
  record.failure = launch.failure_address(
      wrong_index(r.op, "lengths", *r.lengths, record.given_lengths.address, r.steps + 1));
  Ranges reads(launch, {r.lengths}), writes(launch);
  writes.add(launch.workspace());
  return submit_stage(launch, r, kLengths, record, {reads, writes});
}

uint64_t sequence_workspace(const SequenceForward& s, const Env& env) {
  Scratch scratch;
  const Forward forward(s, scratch, env);
  return scratch.size_bytes();
}

bp_status submit_sequence(const SequenceForward& s, Launch& launch) {
  Scratch scratch(launch);
  const Forward forward(s, scratch, launch);
  return forward.run(launch);
}

}  // namespace bp::vulkan
