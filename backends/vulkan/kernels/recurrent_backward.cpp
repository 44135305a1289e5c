// Gradients of lstm, gru and rnn (recurrent.hpp, recurrent_backward.comp). The steps run backwards.
// The workspace has these buffers, without gaps:
//
//   lengths   how many steps each row has
//   d         the gradients of the sums in the gates, (steps, rows, gates * hidden)
//   d_state   those of what the state adds to the sums, if a GRU resets the state after the product
//   through   the product of the `d` of a step with the recurrent weights, (rows, hidden)
//   of_kept   the gradient of r * h, (rows, hidden), if a GRU resets the state before the product
//   dh, dc    the gradients of the state, (rows, hidden)
//   before    the state that each step takes, (steps, rows, hidden), in the dtype of x
//   kept      r * h of each step, if a GRU resets the state before the product
//   x         x with zeros in the steps that a row does not have
//
// The gradients of x and of the weights are products of all of `d`.
#include <algorithm>
#include <array>

#include "backends/vulkan/kernels/map.hpp"
#include "backends/vulkan/kernels/recurrent.hpp"
#include "backends/vulkan/kernels/reduce.hpp"

namespace bp::vulkan {
namespace {

enum BackwardStage : uint32_t { kGradient = 0, kReset = 1, kFinish = 2, kUnseen = 3 };

struct GradientRecord {
  StepElements grad_y, y, gates, state, h, grad_h;
  uint64_t d, d_state, before, kept, through, of_kept, dh, dc, lengths;
  int64_t grad_y_step, y_step;
  uint32_t rows, hidden, step, earlier_step, later_step, steps;
};

class Backward {
 public:
  Backward(const SequenceBackward& s, Scratch& scratch, const Env& env)
      : s_(s),
        lengths_(scratch.take(BP_I32, {s.lengths == nullptr ? 0 : s.rows})),
        d_(scratch.take(BP_F32, {s.steps * s.rows, s.width()})),
        d_state_(scratch.take(BP_F32, {resets_after() ? s.steps * s.rows : 0, s.width()})),
        through_(scratch.take(BP_F32, {s.rows, s.hidden})),
        of_kept_(scratch.take(BP_F32, {resets_before() ? s.rows : 0, s.hidden})),
        dh_(scratch.take(BP_F32, {s.rows, s.hidden})),
        dc_(scratch.take(BP_F32, {s.cell == Cell::kLstmCell ? s.rows : 0, s.hidden})),
        before_(scratch.take(s.dtype, {of_recurrent(), s.hidden})),
        kept_(scratch.take(BP_F32, {resets_before() ? of_recurrent() : 0, s.hidden})),
        x_(scratch.take(s.dtype, {copies_x() ? s.steps : 0, s.rows, s.inputs})),
        partial_(scratch.take_bytes(partial_size_bytes(env))) {}

  bp_status run(Launch& launch) const {
    bp_status status = submit_lengths(launch, s_, lengths_);
    if (status == BP_OK) status = submit_map(launch, kMapCopy, {&dh_.tensor(), s_.grad_h_next});
    if (status == BP_OK && s_.cell == Cell::kLstmCell) {
      status = submit_map(launch, kMapCopy, {&dc_.tensor(), s_.grad_c_next});
    }
    for (int64_t number = s_.steps; number-- > 0 && status == BP_OK;) {
      status = run_step(launch, number);
    }
    if (status == BP_OK) status = store_state(launch);
    if (status == BP_OK) status = make_grad_x(launch);
    if (status == BP_OK) status = make_weights(launch);
    return status == BP_OK ? make_biases(launch) : status;
  }

 private:
  bool resets_after() const { return s_.cell == Cell::kResetAfter; }
  bool resets_before() const { return s_.cell == Cell::kResetBefore; }
  int64_t all_rows() const { return s_.steps * s_.rows; }
  int64_t of_recurrent() const { return s_.grad_recurrent == nullptr ? 0 : all_rows(); }
  // Returns whether the gradient of the weights needs a copy of x.
  bool copies_x() const {
    return s_.grad_weight != nullptr && (s_.lengths != nullptr || !StepRows(*s_.x).is_even);
  }
  // Returns the gradients of what the state adds to the sums.
  const ScratchTensor& of_state() const { return resets_after() ? d_state_ : d_; }

  // ---- Products --------------------------------------------------------------------------------

  // Returns the columns of the gates from `gate` on, of a buffer as wide as all gates.
  Part gates_of(const ScratchTensor& buffer, int64_t first_row, int64_t gate) const {
    return {&buffer.tensor(), first_row * s_.width() + gate * s_.hidden, s_.width(), 1};
  }
  static Part matrix(const bp_tensor& t, int64_t first_row = 0) {
    return {&t, first_row * t.strides[0], t.strides[0], t.strides[1]};
  }

  // Returns the product that gives the gradient of the state from `count` gates of a step.
  Product state_product(const Launch* launch, const ScratchTensor& d, int64_t step, int64_t gate,
                        int64_t count, const ScratchTensor& to) const {
    const int64_t hidden = s_.hidden;
    return make_product(launch, {s_.rows, hidden, count * hidden},
                        gates_of(d, step * s_.rows, gate), matrix(*s_.recurrent, gate * hidden),
                        matrix(to.tensor()));
  }
  Product through_product(const Launch* launch, int64_t step) const {
    return state_product(launch, of_state(), step, 0, resets_before() ? 2 : gate_count(s_.cell),
                         through_);
  }
  Product candidate_product(const Launch* launch, int64_t step) const {
    return state_product(launch, d_, step, 2, 1, of_kept_);
  }

  Product x_product(const Launch* launch) const {
    const StepRows rows(*s_.grad_x);
    return make_product(launch, rows.extents(s_.steps, s_.inputs, s_.width()),
                        rows.dense(d_.tensor(), 0, s_.width()), matrix(*s_.weight),
                        rows.part(*s_.grad_x, 0));
  }
  Product weight_product(const Launch* launch) const {
    const bp_tensor& x = copies_x() ? x_.tensor() : *s_.x;
    return make_product(launch, {s_.width(), s_.inputs, all_rows()},
                        gates_of(d_, 0, 0).transposed(), StepRows(x).part(x, 0),
                        matrix(*s_.grad_weight));
  }
  // Returns the product that gives the gradient of `count` gates of the recurrent weights.
  Product recurrent_product(const Launch* launch, const ScratchTensor& state, int64_t gate,
                            int64_t count) const {
    const int64_t hidden = s_.hidden;
    return make_product(launch, {count * hidden, hidden, all_rows()},
                        gates_of(of_state(), 0, gate).transposed(), matrix(state.tensor()),
                        matrix(*s_.grad_recurrent, gate * hidden));
  }
  Product before_product(const Launch* launch) const {
    return recurrent_product(launch, before_, 0, resets_before() ? 2 : gate_count(s_.cell));
  }
  Product kept_product(const Launch* launch) const {
    return recurrent_product(launch, kept_, 2, 1);
  }

  Reduction bias_sum(const ScratchTensor& d, const bp_tensor& to) const {
    return make_reduction(BP_OP_SUM, d.tensor(), to, 1);
  }

  // Returns the scratch memory of the longest product or sum.
  uint64_t partial_size_bytes(const Env& env) const {
    uint64_t size = 0;
    const auto include = [&](const Product& p) {
      size = std::max(size, product_workspace(env, p));
    };
    include(through_product(nullptr, 0));
    if (resets_before()) include(candidate_product(nullptr, 0));
    if (s_.grad_x != nullptr) include(x_product(nullptr));
    if (s_.grad_weight != nullptr) include(weight_product(nullptr));
    if (s_.grad_recurrent != nullptr) include(before_product(nullptr));
    if (s_.grad_recurrent != nullptr && resets_before()) include(kept_product(nullptr));
    if (s_.grad_bias != nullptr) {
      size = std::max(size, reduction_workspace(bias_sum(d_, *s_.grad_bias)));
    }
    if (s_.grad_recurrent_bias != nullptr) {
      size = std::max(size, reduction_workspace(bias_sum(of_state(), *s_.grad_recurrent_bias)));
    }
    return size;
  }

  // Submits a product that reads the workspace and a tensor, and writes a tensor or the workspace.
  bp_status run_product(Launch& launch, const Product& product, const bp_tensor* from,
                        const bp_tensor* to) const {
    Ranges reads(launch, {from}), writes(launch, {to});
    reads.add(launch.workspace());
    if (to == nullptr) writes.add(launch.workspace());
    return submit_product(launch, product, reads, writes, partial_);
  }

  // ---- Steps -----------------------------------------------------------------------------------

  bp_status submit_stage(Launch& launch, BackwardStage stage, const GradientRecord& record,
                         const Touched& touched) const {
    const uint32_t units = units_of_invocation(launch, record.hidden);
    const std::array<uint32_t, 5> constants = {local_size(launch), stage,
                                               static_cast<uint32_t>(s_.cell),
                                               one_of(kF32Dtypes, s_.dtype), units};
    const uint64_t count = uint64_t{record.steps} * record.rows * record.hidden / units;
    return submit(launch, kRecurrentBackwardModule, constants, record,
                  ceil_divide(count, local_size(launch)), touched);
  }

  GradientRecord record_of(const Launch& launch) const {
    GradientRecord record{};
    record.dh = address_at(launch, dh_);
    record.dc = address_at(launch, dc_);
    record.lengths = address_at(launch, lengths_);
    record.rows = static_cast<uint32_t>(s_.rows);
    record.hidden = static_cast<uint32_t>(s_.hidden);
    record.steps = 1;
    return record;
  }

  // Returns the record of step number `number`.
  GradientRecord step_record(const Launch& launch, int64_t number) const {
    const int64_t step = s_.step_at(number), row = step * s_.rows;
    GradientRecord record = record_of(launch);
    record.grad_y = elements_of(launch, s_.grad_y, step);
    record.y = elements_of(launch, s_.y, step);
    record.gates = elements_of(launch, s_.gates, step);
    record.h = elements_of(launch, s_.h);
    record.d = address_at(launch, d_, row * s_.width());
    record.d_state = address_at(launch, d_state_, row * s_.width());
    record.before = address_at(launch, before_, row * s_.hidden);
    record.kept = address_at(launch, kept_, row * s_.hidden);
    record.of_kept = address_at(launch, of_kept_);
    record.step = static_cast<uint32_t>(step);
    if (number > 0) {
      const int64_t earlier = s_.step_at(number - 1);
      record.state = elements_of(launch, s_.y, earlier);
      record.earlier_step = static_cast<uint32_t>(earlier);
    }
    put_later(launch, number, record);
    return record;
  }

  // Adds the step that runs behind number `number`, if there is one.
  void put_later(const Launch& launch, int64_t number, GradientRecord& record) const {
    if (number + 1 >= s_.steps) return;
    record.through = address_at(launch, through_);
    record.later_step = static_cast<uint32_t>(s_.step_at(number + 1));
  }

  bp_status run_step(Launch& launch, int64_t number) const {
    const GradientRecord record = step_record(launch, number);
    const int64_t step = s_.step_at(number);
    Ranges reads(launch, {s_.grad_y, s_.y, s_.gates, s_.h}), writes(launch);
    reads.add(launch.workspace());
    writes.add(launch.workspace());
    bp_status status = submit_stage(launch, kGradient, record, {reads, writes});
    if (status == BP_OK && resets_before()) {
      status = run_product(launch, candidate_product(&launch, step), s_.recurrent, nullptr);
      if (status == BP_OK) status = submit_stage(launch, kReset, record, {reads, writes});
    }
    if (status != BP_OK) return status;
    return run_product(launch, through_product(&launch, step), s_.recurrent, nullptr);
  }

  bp_status store_state(Launch& launch) const {
    GradientRecord record = record_of(launch);
    record.grad_h = elements_of(launch, s_.grad_h);
    put_later(launch, -1, record);
    Ranges reads(launch), writes(launch, {s_.grad_h});
    reads.add(launch.workspace());
    const bp_status status = submit_stage(launch, kFinish, record, {reads, writes});
    if (status != BP_OK || s_.grad_c == nullptr) return status;
    return submit_map(launch, kMapCopy, {s_.grad_c, &dc_.tensor()});
  }

  // ---- Results ---------------------------------------------------------------------------------

  // Writes zeros to the steps that a row does not have, and copies all others if there is a tensor
  // to copy from.
  bp_status clear_unseen(Launch& launch, const bp_tensor* from, const bp_tensor& to) const {
    GradientRecord record = record_of(launch);
    record.grad_y = elements_of(launch, from);
    record.y = elements_of(launch, &to);
    const int64_t item = dtype_size_bytes(to.dtype);
    if (from != nullptr) record.grad_y_step = from->strides[0] * item;
    record.y_step = to.strides[0] * item;
    record.hidden = static_cast<uint32_t>(s_.inputs);
    record.steps = static_cast<uint32_t>(s_.steps);
    Ranges reads(launch, {from}), writes(launch);
    reads.add(launch.workspace());
    if (from == nullptr) {
      writes.add(&to);
    } else {
      writes.add(launch.workspace());
    }
    return submit_stage(launch, kUnseen, record, {reads, writes});
  }

  bp_status make_grad_x(Launch& launch) const {
    if (s_.grad_x == nullptr) return BP_OK;
    const bp_status status = run_product(launch, x_product(&launch), s_.weight, s_.grad_x);
    if (status != BP_OK || s_.lengths == nullptr) return status;
    return clear_unseen(launch, nullptr, *s_.grad_x);  // A weight may be NaN.
  }

  bp_status make_weights(Launch& launch) const {
    bp_status status = BP_OK;
    if (copies_x()) status = clear_unseen(launch, s_.x, x_.tensor());
    if (status == BP_OK && s_.grad_weight != nullptr) {
      status = run_product(launch, weight_product(&launch), s_.x, s_.grad_weight);
    }
    if (status != BP_OK || s_.grad_recurrent == nullptr) return status;
    status = run_product(launch, before_product(&launch), nullptr, s_.grad_recurrent);
    if (status != BP_OK || !resets_before()) return status;
    return run_product(launch, kept_product(&launch), nullptr, s_.grad_recurrent);
  }

  bp_status make_bias(Launch& launch, const ScratchTensor& d, const bp_tensor* to) const {
    if (to == nullptr) return BP_OK;
    Reduction sum = bias_sum(d, *to);
    sum.from_address = address_at(launch, d);
    sum.from_tensor = &d.tensor();
    sum.to_address = address_of(launch, to);
    Ranges reads(launch);
    reads.add(launch.workspace());
    return submit_reduction(launch, sum, reads, Ranges(launch, {to}), partial_);
  }
  bp_status make_biases(Launch& launch) const {
    const bp_status status = make_bias(launch, d_, s_.grad_bias);
    return status == BP_OK ? make_bias(launch, of_state(), s_.grad_recurrent_bias) : status;
  }

  const SequenceBackward& s_;
  const ScratchTensor lengths_, d_, d_state_, through_, of_kept_, dh_, dc_, before_, kept_, x_;
  const uint64_t partial_;
};

}  // namespace

uint64_t sequence_workspace(const SequenceBackward& s, const Env& env) {
  Scratch scratch;
  const Backward backward(s, scratch, env);
  return scratch.size_bytes();
}

bp_status submit_sequence(const SequenceBackward& s, Launch& launch) {
  Scratch scratch(launch);
  const Backward backward(s, scratch, launch);
  return backward.run(launch);
}

}  // namespace bp::vulkan
