// Sequences of lstm, gru and rnn (recurrent.hpp).
//
//   sums        x weight^T + bias of many steps at once, (steps, rows, gates * hidden)
//   panels      the rows of `recurrent`, (blocks of units, gates, hidden, units of a block)
//   packed      the state that a step takes, in panels of rows; the next one lies beside it
//   h, c        the state, (rows, hidden), of which a task reads and writes its own units alone
//
// If a GRU resets the state before the product, a step has two parts: z and r, and then the
// candidate with the product of r * h.
#include <algorithm>
#include <cstdint>

#include "backends/host_kernels/dtypes.hpp"
#include "backends/host_kernels/recurrent_memory.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backends/host_kernels/recurrent_forward.cpp"
// clang-format off: this header compiles the file once for each target, and comes first.
#include <hwy/foreach_target.h>
// clang-format on
#include <hwy/highway.h>

#include "backends/host_kernels/recurrent_cells-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace bp::kernels::HWY_NAMESPACE {
namespace {

template <typename T>
class ForwardRun {
 public:
  using Sum = Compute<T>;

  ForwardRun(const SequenceForward& s, std::byte* workspace, int thread_count)
      : s_(s),
        memory_(s, thread_count),
        workspace_(workspace),
        lengths_(reinterpret_cast<int64_t*>(workspace + memory_.lengths)),
        thread_count_(thread_count) {}

  void run() {
    read_lengths(s_, lengths_);
    pack_weights();
    write_bias();
    load_state();
    const int64_t count = steps_at_once(s_);
    int64_t number = 0;
    while (number < s_.steps) {
      // Ranges begin at multiples of `count`, in both orders of the steps.
      const int64_t first = s_.step_at(number) / count * count;
      range_ = {first, std::min(count, s_.steps - first)};
      multiply_inputs(s_, memory_, range_, workspace_, thread_count_);
      for (int64_t i = 0; i < range_.count; ++i) run_step(s_.step_at(number + i));
      number += range_.count;
    }
    store_state();
  }

 private:
  static constexpr int64_t kBlock = kUnits<Sum>;
  static constexpr int64_t kMostGates = 4;

  Sum* sums_at(uint64_t offset) const { return reinterpret_cast<Sum*>(workspace_ + offset); }
  int64_t blocks() const { return ceil_div(s_.hidden, kBlock); }
  int64_t gates() const { return gate_count(s_.cell); }
  int64_t units_of(int64_t block) const { return std::min(kBlock, s_.hidden - block * kBlock); }
  Matrix states(uint64_t offset) const {
    return {workspace_ + offset, s_.sum_dtype(), s_.rows, s_.hidden, memory_.units, 1};
  }
  Sum* state(uint64_t offset, int64_t row, int64_t block) const {
    return sums_at(offset) + row * memory_.units + block * kBlock;
  }
  Sum* panel(int64_t block, int64_t gate) const {
    return sums_at(memory_.panels) + (block * gates() + gate) * kBlock * s_.hidden;
  }
  bool has(int64_t step, int64_t row) const { return step < lengths_[row]; }

  // Small steps are not worth a team.
  int step_threads() const {
    constexpr int64_t kFewest = 1 << 16;
    return s_.rows * s_.width() * s_.hidden < kFewest ? 1 : thread_count_;
  }
  template <typename Task>
  void for_each_block(const Task& task) const {
    parallel_for(step_threads(), blocks(), 1, [&](int64_t begin, int64_t end) {
      for (int64_t block = begin; block < end; ++block) task(block);
    });
  }

  void pack_weights() const {
    const Matrix recurrent = matrix_of(s_.recurrent, s_.dtype);
    parallel_for(thread_count_, blocks(), 1, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin * gates(); i < end * gates(); ++i) {
        const int64_t block = i / gates(), gate = i % gates();
        const Matrix lines =
            recurrent.part(gate * s_.hidden + block * kBlock, units_of(block), 0, s_.hidden);
        pack_panels<kBlock>(lines, panel(block, gate));
      }
    });
  }

  void load_bias(const View& view, int64_t first, int64_t count, Sum* to) const {
    const T* const from = reinterpret_cast<const T*>(view.address) + first * view.strides[0];
    load_line(from, view.strides[0], count, to);
  }

  // Writes what is added to the products of x, and what a GRU adds to the product of the state that
  // its reset multiplies.
  void write_bias() const {
    const int64_t width = s_.width(), hidden = s_.hidden;
    Sum* const bias = sums_at(memory_.bias);
    std::fill_n(bias, width + kTileColsLimit, Sum{0});
    if (is_given(s_.bias)) load_bias(s_.bias, 0, width, bias);
    const bool is_after = s_.cell == Cell::kResetAfter;
    Sum* const inner = sums_at(memory_.state_bias);
    if (is_after) std::fill_n(inner, memory_.units, Sum{0});
    if (!is_given(s_.recurrent_bias)) return;
    for (int64_t gate = 0; gate < gates(); ++gate) {
      for (int64_t unit = 0; unit < hidden; ++unit) {
        Sum value;
        load_bias(s_.recurrent_bias, gate * hidden + unit, 1, &value);
        if (is_after && gate == 2) {
          inner[unit] = value;
        } else {
          bias[gate * hidden + unit] += value;
        }
      }
    }
  }

  void load_state() {
    const auto load = [&](const View& view, uint64_t offset) {
      std::fill_n(sums_at(offset), s_.rows * memory_.units, Sum{0});
      for (int64_t row = 0; row < s_.rows; ++row) {
        load_line(reinterpret_cast<const T*>(row_of(view, s_.dtype, 0, row)), view.strides[1],
                  s_.hidden, state(offset, row, 0));
      }
    };
    load(s_.h, memory_.h);
    if (s_.cell == Cell::kLstmCell) load(s_.c, memory_.c);
    pack_columns(states(memory_.h), 0, s_.hidden, sums_at(memory_.packed[0]), s_.hidden, 0);
  }

  void store_state() const {
    const auto store = [&](uint64_t offset, const View& view) {
      if (!is_given(view)) return;
      for (int64_t row = 0; row < s_.rows; ++row) {
        store_line(state(offset, row, 0), s_.hidden,
                   reinterpret_cast<T*>(row_of(view, s_.dtype, 0, row)), view.strides[1]);
      }
    };
    store(memory_.h, s_.h_next);
    store(memory_.c, s_.c_next);
  }

  // Returns the sums of a gate of one row so far.
  const Sum* sums_of(int64_t step, int64_t row, int64_t gate, int64_t block) const {
    const int64_t place = (step - range_.first) * s_.rows + row;
    return sums_at(memory_.sums) + place * s_.width() + gate * s_.hidden + block * kBlock;
  }

  void run_step(int64_t step) {
    Sum* const taken = sums_at(memory_.packed[number_ % 2]);
    Sum* const left = sums_at(memory_.packed[(number_ + 1) % 2]);
    ++number_;
    if (s_.cell == Cell::kResetBefore) {
      Sum* const kept = sums_at(memory_.packed_kept);
      for_each_block([&](int64_t block) {
        for_each_tile(step, [&](int64_t row, int64_t rows) {
          run_gates_before(step, block, row, rows, taken);
        });
        pack(memory_.kept, block, kept);
      });
      for_each_block([&](int64_t block) {
        for_each_tile(step, [&](int64_t row, int64_t rows) {
          run_candidates_before(step, block, row, rows, kept);
        });
        finish_block(step, block, left);
      });
      return;
    }
    for_each_block([&](int64_t block) {
      for_each_tile(step,
                    [&](int64_t row, int64_t rows) { run_units(step, block, row, rows, taken); });
      finish_block(step, block, left);
    });
  }

  // Calls fn(first row, rows) for each tile of rows of which one has this step.
  template <typename Fn>
  void for_each_tile(int64_t step, const Fn& fn) const {
    for (int64_t row = 0; row < s_.rows; row += kTileRows) {
      const int64_t rows = std::min(kTileRows, s_.rows - row);
      const bool is_needed = std::any_of(lengths_ + row, lengths_ + row + rows,
                                         [step](int64_t length) { return step < length; });
      if (is_needed) fn(row, rows);
    }
  }

  // Makes the sums of a gate for a tile of rows: `terms` plus the product of the packed state.
  // NOLINTNEXTLINE(readability-function-size): the place of a tile, and the tensors of a product.
  void multiply(int64_t block, int64_t gate, int64_t row, int64_t rows, const Sum* packed,
                const Sum* terms, int64_t terms_stride, Sum* to) const {
    multiply_rows<Sum>(rows, packed + row * s_.hidden, panel(block, gate), s_.hidden,
                       {terms, terms_stride, to, kBlock});
  }

  void run_units(int64_t step, int64_t block, int64_t row, int64_t rows, const Sum* packed) const {
    HWY_ALIGN Sum tile[kMostGates][kTileRows * kBlock];
    for (int64_t gate = 0; gate < gates(); ++gate) {
      const bool is_inner = s_.cell == Cell::kResetAfter && gate == 2;
      const Sum* const inner = sums_at(memory_.state_bias) + block * kBlock;
      const Sum* const terms = is_inner ? inner : sums_of(step, row, gate, block);
      multiply(block, gate, row, rows, packed, terms, is_inner ? 0 : s_.width(), tile[gate]);
    }
    for (int64_t r = 0; r < rows; ++r) {
      if (!has(step, row + r)) continue;
      Sum* const lines[] = {tile[0] + r * kBlock, tile[1] + r * kBlock, tile[2] + r * kBlock,
                            tile[3] + r * kBlock};
      if (s_.cell == Cell::kLstmCell) {
        run_lstm(step, block, row + r, lines);
      } else if (s_.cell == Cell::kResetAfter) {
        run_gru(step, block, row + r, lines);
      } else {
        HWY_ALIGN Sum y[kBlock];
        simple_line(s_.cell == Cell::kReluCell, lines[0], y);
        leave_h(step, block, row + r, y);
      }
    }
  }

  void run_lstm(int64_t step, int64_t block, int64_t row, Sum* const (&lines)[4]) const {
    HWY_ALIGN Sum y[kBlock];
    Sum* const c = state(memory_.c, row, block);
    store_gate(step, block, row, 4, c);
    lstm_line(lines, c, y);
    for (int64_t gate = 0; gate < 4; ++gate) store_gate(step, block, row, gate, lines[gate]);
    round_line<T>(c);
    leave_h(step, block, row, y);
  }

  void run_gru(int64_t step, int64_t block, int64_t row, Sum* const (&lines)[4]) const {
    HWY_ALIGN Sum y[kBlock];
    gru_gates_line(lines[0], lines[1]);
    gru_candidate_line(sums_of(step, row, 2, block), lines[1], lines[2], lines[3]);
    gru_mix_line(lines[0], lines[3], state(memory_.h, row, block), y);
    store_gate(step, block, row, 0, lines[0]);
    store_gate(step, block, row, 1, lines[1]);
    store_gate(step, block, row, 2, lines[3]);
    store_gate(step, block, row, 3, lines[2]);
    leave_h(step, block, row, y);
  }

  // Makes z, and r * h for the products of the candidates.
  void run_gates_before(int64_t step, int64_t block, int64_t row, int64_t rows,
                        const Sum* packed) const {
    HWY_ALIGN Sum tile[2][kTileRows * kBlock];
    for (int64_t gate = 0; gate < 2; ++gate) {
      multiply(block, gate, row, rows, packed, sums_of(step, row, gate, block), s_.width(),
               tile[gate]);
    }
    for (int64_t r = 0; r < rows; ++r) {
      Sum *const z = tile[0] + r * kBlock, *const reset = tile[1] + r * kBlock;
      gru_gates_line(z, reset);
      std::copy_n(z, kBlock, state(memory_.z, row + r, block));
      multiply_line(reset, state(memory_.h, row + r, block), state(memory_.kept, row + r, block));
      if (!has(step, row + r)) continue;
      store_gate(step, block, row + r, 0, z);
      store_gate(step, block, row + r, 1, reset);
    }
  }

  void run_candidates_before(int64_t step, int64_t block, int64_t row, int64_t rows,
                             const Sum* packed) const {
    HWY_ALIGN Sum tile[kTileRows * kBlock];
    multiply(block, 2, row, rows, packed, sums_of(step, row, 2, block), s_.width(), tile);
    for (int64_t r = 0; r < rows; ++r) {
      if (!has(step, row + r)) continue;
      HWY_ALIGN Sum y[kBlock];
      Sum* const candidate = tile + r * kBlock;
      gru_candidate_line<Sum>(nullptr, nullptr, candidate, candidate);
      gru_mix_line(state(memory_.z, row + r, block), candidate, state(memory_.h, row + r, block),
                   y);
      store_gate(step, block, row + r, 2, candidate);
      leave_h(step, block, row + r, y);
    }
  }

  // Stores y, and keeps what it is when it is rounded as the state.
  void leave_h(int64_t step, int64_t block, int64_t row, Sum* y) const {
    store_y(step, block, row, y);
    round_line<T>(y);
    std::copy_n(y, kBlock, state(memory_.h, row, block));
  }

  void store_y(int64_t step, int64_t block, int64_t row, const Sum* line) const {
    T* const to = reinterpret_cast<T*>(row_of(s_.y, s_.dtype, step, row));
    store_line(line, units_of(block), to + block * kBlock * s_.y.strides[2], s_.y.strides[2]);
  }

  void store_gate(int64_t step, int64_t block, int64_t row, int64_t gate, const Sum* line) const {
    if (!is_given(s_.gates)) return;
    Sum* const to = reinterpret_cast<Sum*>(row_of(s_.gates, s_.sum_dtype(), step, row));
    const int64_t stride = s_.gates.strides[2];
    store_line(line, units_of(block), to + (gate * s_.hidden + block * kBlock) * stride, stride);
  }

  // Writes zeros for rows that do not have this step, and packs the state that the step leaves.
  void finish_block(int64_t step, int64_t block, Sum* packed) const {
    HWY_ALIGN constexpr Sum kZeros[kBlock] = {};
    const int64_t saved = is_given(s_.gates) ? s_.gates.shape[2] / s_.hidden : 0;
    for (int64_t row = 0; row < s_.rows; ++row) {
      if (has(step, row)) continue;
      store_y(step, block, row, kZeros);
      for (int64_t gate = 0; gate < saved; ++gate) store_gate(step, block, row, gate, kZeros);
    }
    pack(memory_.h, block, packed);
  }

  void pack(uint64_t offset, int64_t block, Sum* packed) const {
    pack_columns(states(offset), block * kBlock, units_of(block), packed, s_.hidden,
                 block * kBlock);
  }

  const SequenceForward& s_;
  const ForwardMemory memory_;
  std::byte* const workspace_;
  int64_t* const lengths_;
  const int thread_count_;
  Steps range_;
  int64_t number_ = 0;  // Of the step that runs next.
};

void run_forward(const SequenceForward& s, std::byte* workspace, int thread_count) {
  with_float(s.dtype, [&]<typename T>(T) { ForwardRun<T>(s, workspace, thread_count).run(); });
}

}  // namespace
}  // namespace bp::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace bp::kernels {
namespace {

HWY_EXPORT(run_forward);

}  // namespace

void run_sequence(const SequenceForward& s, std::byte* workspace, int thread_count) {
  HWY_DYNAMIC_DISPATCH(run_forward)(s, workspace, thread_count);
}

}  // namespace bp::kernels
#endif
