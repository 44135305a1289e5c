// Gradients of lstm, gru and rnn (recurrent.hpp). The steps run backwards.
//
//   d           the gradients of the sums in the gates of many steps, (steps, rows, gates * hidden)
//   packed      those of one step, in panels of rows; those of the earlier step lie beside them
//   panels      the columns of `recurrent`, (blocks of units, gates * hidden, units of a block)
//   dh, dc      the gradients of the state, (rows, hidden), of which a task has its own units
//
// A task makes the gradient of its units of h from the `d` of the later step, and then its part of
// the `d` of this step. After a range of steps, the gradients of x and of the weights are products
// of all of its `d`. If a GRU resets the state before the product, a step has two parts, because r
// needs the product of all candidates.
#include <algorithm>
#include <cstdint>

#include "backends/host_kernels/dtypes.hpp"
#include "backends/host_kernels/recurrent_memory.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backends/host_kernels/recurrent_backward.cpp"
// clang-format off: this header compiles the file once for each target, and comes first.
#include <hwy/foreach_target.h>
// clang-format on
#include <hwy/highway.h>

#include "backends/host_kernels/recurrent_cells-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace bp::kernels::HWY_NAMESPACE {
namespace {

template <typename T>
class BackwardRun {
 public:
  using Sum = Compute<T>;

  BackwardRun(const SequenceBackward& s, std::byte* workspace, int thread_count)
      : s_(s),
        memory_(s, thread_count),
        workspace_(workspace),
        lengths_(reinterpret_cast<int64_t*>(workspace + memory_.lengths)),
        thread_count_(thread_count) {}

  void run() {
    read_lengths(s_, lengths_);
    pack_weights();
    load_gradients();
    std::fill_n(biases(), 2 * s_.width(), 0.0);
    const int64_t count = steps_at_once(s_);
    int64_t number = s_.steps - 1;
    bool is_first = true;
    do {  // It runs once without steps, where sums are 0.
      const int64_t first = number < 0 ? 0 : s_.step_at(number) / count * count;
      range_ = {first, std::min(count, s_.steps - first)};
      for (int64_t i = 0; i < range_.count; ++i) run_step(number - i);
      number -= range_.count;
      add_range(s_, memory_, range_, is_first, workspace_, thread_count_);
      is_first = false;
    } while (number >= 0);
    run_step(-1);
    store_gradients();
  }

 private:
  static constexpr int64_t kBlock = kUnits<Sum>;

  Sum* sums_at(uint64_t offset) const { return reinterpret_cast<Sum*>(workspace_ + offset); }
  double* biases() const { return reinterpret_cast<double*>(workspace_ + memory_.bias); }
  int64_t blocks() const { return ceil_div(s_.hidden, kBlock); }
  int64_t units_of(int64_t block) const { return std::min(kBlock, s_.hidden - block * kBlock); }
  int64_t carried() const { return carried_gates(s_.cell) * s_.hidden; }
  Sum* state(uint64_t offset, int64_t row, int64_t block) const {
    return sums_at(offset) + row * memory_.units + block * kBlock;
  }
  bool has(int64_t step, int64_t row) const { return step < lengths_[row]; }
  // Returns the number of a row of a step among those of the range.
  int64_t place(int64_t step, int64_t row) const { return (step - range_.first) * s_.rows + row; }
  Sum* d_of(int64_t step, int64_t row, int64_t gate, int64_t block) const {
    return sums_at(memory_.d) + place(step, row) * s_.width() + gate * s_.hidden + block * kBlock;
  }
  // Returns a line of a buffer (rows of the range, hidden).
  Sum* line_of(uint64_t offset, int64_t step, int64_t row, int64_t block) const {
    return sums_at(offset) + place(step, row) * s_.hidden + block * kBlock;
  }

  int step_threads() const {
    constexpr int64_t kFewest = 1 << 16;
    return s_.rows * s_.width() * s_.hidden < kFewest ? 1 : thread_count_;
  }
  template <typename Task>
  void for_each_block(int threads, const Task& task) const {
    parallel_for(threads, blocks(), 1, [&](int64_t begin, int64_t end) {
      for (int64_t block = begin; block < end; ++block) task(block);
    });
  }

  void pack_weights() const {
    const int64_t depth = carried(), hidden = s_.hidden;
    const Matrix columns = matrix_of(s_.recurrent, s_.dtype).transposed();
    for_each_block(thread_count_, [&](int64_t block) {
      const Matrix lines = columns.part(block * kBlock, units_of(block), 0, columns.cols);
      pack_panels<kBlock>(lines.part(0, kBlock, 0, depth),
                          sums_at(memory_.panels) + block * kBlock * depth);
      if (s_.cell != Cell::kResetBefore) return;
      pack_panels<kBlock>(lines.part(0, kBlock, depth, hidden),
                          sums_at(memory_.last_panels) + block * kBlock * hidden);
    });
  }

  void load_gradients() const {
    const auto load = [&](const View& view, uint64_t offset) {
      std::fill_n(sums_at(offset), s_.rows * memory_.units, Sum{0});
      for (int64_t row = 0; is_given(view) && row < s_.rows; ++row) {
        load_line(reinterpret_cast<const T*>(row_of(view, s_.dtype, 0, row)), view.strides[1],
                  s_.hidden, state(offset, row, 0));
      }
    };
    load(s_.grad_h_next, memory_.dh);
    if (s_.cell == Cell::kLstmCell) load(s_.grad_c_next, memory_.dc);
  }

  // ---- One step --------------------------------------------------------------------------------

  // Runs number `number` of the steps. Number -1 only adds what the first step gives to dh.
  void run_step(int64_t number) {
    const Sum* const later = sums_at(memory_.packed[number_ % 2]);
    Sum* const own = sums_at(memory_.packed[(number_ + 1) % 2]);
    ++number_;
    for_each_block(step_threads(), [&](int64_t block) {
      if (number + 1 < s_.steps) add_carried(s_.step_at(number + 1), block, later);
      if (number < 0) return;
      run_units(number, block);
      if (s_.cell == Cell::kResetBefore) {
        pack_gate(number, block, 2, 0, sums_at(memory_.packed_last), s_.hidden);
      } else {
        for (int64_t gate = 0; gate < carried_gates(s_.cell); ++gate) {
          pack_gate(number, block, gate, gate, own, carried());
        }
      }
    });
    if (s_.cell != Cell::kResetBefore || number < 0) return;
    for_each_block(step_threads(), [&](int64_t block) {
      run_resets_before(number, block);
      for (int64_t gate = 0; gate < 2; ++gate) {
        pack_gate(number, block, gate, gate, own, carried());
      }
    });
  }

  // Packs the gradients of a gate, for which the product has gate `slot`.
  void pack_gate(int64_t number, int64_t block, int64_t gate, int64_t slot, Sum* packed,
                 int64_t depth) const {
    const int64_t step = s_.step_at(number);
    const bool is_last = s_.cell == Cell::kResetAfter && gate == 2;
    const Sum* const first =
        is_last ? line_of(memory_.d_last, step, 0, block) : d_of(step, 0, gate, block);
    const Matrix d = {reinterpret_cast<std::byte*>(const_cast<Sum*>(first)),
                      s_.sum_dtype(),
                      s_.rows,
                      units_of(block),
                      is_last ? s_.hidden : s_.width(),
                      1};
    pack_columns(d, 0, d.cols, packed, depth, slot * s_.hidden + block * kBlock);
  }

  // Calls fn(row, line) with the product of packed rows and a panel, for each row of this step.
  template <typename Fn>
  void for_each_product(int64_t step, const Sum* packed, const Sum* panel, int64_t depth,
                        const Fn& fn) const {
    HWY_ALIGN Sum tile[kTileRows * kBlock];
    for (int64_t row = 0; row < s_.rows; row += kTileRows) {
      const int64_t rows = std::min(kTileRows, s_.rows - row);
      multiply_rows<Sum>(rows, packed + row * depth, panel, depth, {nullptr, 0, tile, kBlock});
      for (int64_t r = 0; r < rows; ++r) {
        if (has(step, row + r)) fn(row + r, tile + r * kBlock);
      }
    }
  }

  // Adds what a later step gives to dh.
  void add_carried(int64_t step, int64_t block, const Sum* packed) const {
    const Sum* const panel = sums_at(memory_.panels) + block * kBlock * carried();
    for_each_product(step, packed, panel, carried(), [&](int64_t row, const Sum* product) {
      add_to_line(product, state(memory_.dh, row, block));
    });
  }

  void run_units(int64_t number, int64_t block) const {
    const int64_t step = s_.step_at(number);
    for (int64_t row = 0; row < s_.rows; ++row) {
      if (!has(step, row)) {
        clear_row(step, row, block);
        continue;
      }
      HWY_ALIGN Sum before[kBlock] = {}, dh[kBlock] = {};
      load_before(number, row, block, before);
      load(s_.grad_y, step, row, 0, block, dh);
      add_to_line(state(memory_.dh, row, block), dh);
      if (s_.cell == Cell::kLstmCell) {
        run_lstm(step, row, block, dh);
      } else if (is_gru(s_.cell)) {
        run_gru(step, row, block, before, dh);
      } else {
        run_simple(step, row, block, dh);
      }
    }
  }

  // The rows that do not have a step add nothing to the sums over steps.
  void clear_row(int64_t step, int64_t row, int64_t block) const {
    const int64_t count = units_of(block);
    for (int64_t gate = 0; gate < gate_count(s_.cell); ++gate) {
      std::fill_n(d_of(step, row, gate, block), count, Sum{0});
    }
    const auto clear = [&](uint64_t offset) {
      std::fill_n(line_of(offset, step, row, block), count, Sum{0});
    };
    clear(memory_.before);
    if (s_.cell == Cell::kResetAfter) clear(memory_.d_last);
    if (s_.cell == Cell::kResetBefore) clear(memory_.kept);
  }

  // Loads a line of a tensor (steps, rows, elements) of T, or of Sum for gates.
  template <typename E = T>
  void load(const View& view, int64_t step, int64_t row, int64_t gate, int64_t block,
            Sum* to) const {
    constexpr bp_dtype kDtype = sizeof(Sum) == 8 ? BP_F64 : BP_F32;
    const bp_dtype dtype = std::is_same_v<E, Sum> ? kDtype : s_.dtype;
    const auto* const from = reinterpret_cast<const E*>(row_of(view, dtype, step, row));
    const int64_t axis = view.ndim - 1;
    load_line(from + (gate * s_.hidden + block * kBlock) * view.strides[axis], view.strides[axis],
              units_of(block), to);
  }

  // Loads the h that a step took, and keeps it for the gradient of `recurrent`. A row may begin
  // later than others.
  void load_before(int64_t number, int64_t row, int64_t block, Sum* to) const {
    const bool is_first = number == 0 || !has(s_.step_at(number - 1), row);
    if (is_first) {
      load(s_.h, 0, row, 0, block, to);
    } else {
      load(s_.y, s_.step_at(number - 1), row, 0, block, to);
    }
    std::copy_n(to, units_of(block), line_of(memory_.before, s_.step_at(number), row, block));
  }

  void store_d(int64_t step, int64_t row, int64_t gate, int64_t block, const Sum* line) const {
    std::copy_n(line, units_of(block), d_of(step, row, gate, block));
  }

  void run_lstm(int64_t step, int64_t row, int64_t block, const Sum* dh) const {
    HWY_ALIGN Sum lines[5][kBlock] = {};
    for (int64_t gate = 0; gate < 5; ++gate)
      load<Sum>(s_.gates, step, row, gate, block, lines[gate]);
    lstm_gradient_line<Sum>({lines[0], lines[1], lines[2], lines[3], lines[4]}, dh,
                            state(memory_.dc, row, block));
    for (int64_t gate = 0; gate < 4; ++gate) store_d(step, row, gate, block, lines[gate]);
    std::fill_n(state(memory_.dh, row, block), kBlock, Sum{0});
  }

  void run_simple(int64_t step, int64_t row, int64_t block, const Sum* dh) const {
    HWY_ALIGN Sum y[kBlock] = {}, d[kBlock];
    load(s_.y, step, row, 0, block, y);
    simple_gradient_line(s_.cell == Cell::kReluCell, y, dh, d);
    store_d(step, row, 0, block, d);
    std::fill_n(state(memory_.dh, row, block), kBlock, Sum{0});
  }

  void run_gru(int64_t step, int64_t row, int64_t block, const Sum* before, Sum* dh) const {
    HWY_ALIGN Sum z[kBlock] = {}, r[kBlock] = {}, candidate[kBlock] = {}, inner[kBlock] = {};
    load<Sum>(s_.gates, step, row, 0, block, z);
    load<Sum>(s_.gates, step, row, 1, block, r);
    load<Sum>(s_.gates, step, row, 2, block, candidate);
    gru_gradient_line(z, candidate, before, dh);
    store_d(step, row, 0, block, z);
    store_d(step, row, 2, block, candidate);
    std::copy_n(dh, kBlock, state(memory_.dh, row, block));
    if (s_.cell == Cell::kResetAfter) {
      load<Sum>(s_.gates, step, row, 3, block, inner);
      multiply_line(candidate, r, dh);
      std::copy_n(dh, units_of(block), line_of(memory_.d_last, step, row, block));
      reset_gradient_line<Sum>(r, inner, candidate, nullptr);
      store_d(step, row, 1, block, r);
    } else {
      std::copy_n(r, kBlock, state(memory_.r, row, block));
      multiply_line(r, before, inner);
      std::copy_n(inner, units_of(block), line_of(memory_.kept, step, row, block));
    }
  }

  // Makes the gradients of r from those of all candidates.
  void run_resets_before(int64_t number, int64_t block) const {
    const int64_t step = s_.step_at(number), hidden = s_.hidden;
    const Sum* const panel = sums_at(memory_.last_panels) + block * kBlock * hidden;
    for_each_product(
        step, sums_at(memory_.packed_last), panel, hidden, [&](int64_t row, const Sum* product) {
          HWY_ALIGN Sum before[kBlock] = {};
          std::copy_n(line_of(memory_.before, step, row, block), units_of(block), before);
          Sum* const r = state(memory_.r, row, block);
          reset_gradient_line(r, before, product, state(memory_.dh, row, block));
          store_d(step, row, 1, block, r);
        });
  }

  // ---- Results ---------------------------------------------------------------------------------

  void store_gradients() const {
    const auto store = [&](const View& view, uint64_t offset) {
      for (int64_t row = 0; is_given(view) && row < s_.rows; ++row) {
        store_line(state(offset, row, 0), s_.hidden,
                   reinterpret_cast<T*>(row_of(view, s_.dtype, 0, row)), view.strides[1]);
      }
    };
    store(s_.grad_h, memory_.dh);
    store(s_.grad_c, memory_.dc);
    store_bias(s_.grad_bias, false);
    store_bias(s_.grad_recurrent_bias, s_.cell == Cell::kResetAfter);
    if (!s_.is_narrow()) return;
    for (const auto& [view, offset] : {std::pair(&s_.grad_weight, memory_.weight),
                                       std::pair(&s_.grad_recurrent, memory_.recurrent)}) {
      if (!is_given(*view)) continue;
      convert_elements(dense_view(*view, workspace_ + offset), s_.sum_dtype(), *view, s_.dtype,
                       thread_count_);
    }
  }

  // If the state has gradients of its own in the last gate, they are the second sums.
  void store_bias(const View& view, bool has_own_last) const {
    for (int64_t i = 0; is_given(view) && i < s_.width(); ++i) {
      const int64_t last = i - 2 * s_.hidden;
      const auto total =
          static_cast<Sum>(biases()[has_own_last && last >= 0 ? s_.width() + last : i]);
      store_line(&total, 1, reinterpret_cast<T*>(view.address) + i * view.strides[0], 1);
    }
  }

  const SequenceBackward& s_;
  const BackwardMemory memory_;
  std::byte* const workspace_;
  int64_t* const lengths_;
  const int thread_count_;
  Steps range_;
  int64_t number_ = 0;  // How many steps have run.
};

void run_backward(const SequenceBackward& s, std::byte* workspace, int thread_count) {
  with_float(s.dtype, [&]<typename T>(T) { BackwardRun<T>(s, workspace, thread_count).run(); });
}

}  // namespace
}  // namespace bp::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace bp::kernels {
namespace {

HWY_EXPORT(run_backward);

}  // namespace

void run_sequence(const SequenceBackward& s, std::byte* workspace, int thread_count) {
  HWY_DYNAMIC_DISPATCH(run_backward)(s, workspace, thread_count);
}

}  // namespace bp::kernels
#endif
