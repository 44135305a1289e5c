#include "backends/host_kernels/recurrent_memory.hpp"

#include <algorithm>

namespace bp::kernels {
namespace {

// A part of the workspace. The address is NULL as long as the workspace is only asked for.
std::byte* at(std::byte* workspace, uint64_t offset) {
  return workspace == nullptr ? nullptr : workspace + offset;
}

Matrix dense_rows(std::byte* data, bp_dtype dtype, int64_t rows, int64_t cols) {
  return {data, dtype, rows, cols, cols, 1};
}

// Returns whether the steps and rows of a tensor (steps, rows, elements) are rows of one matrix.
bool has_even_rows(const View& view) {
  return view.shape[0] <= 1 || view.shape[1] == 1 ||
         view.strides[0] == view.shape[1] * view.strides[1];
}

// Returns this matrix for a range of steps.
Matrix rows_of(const View& view, bp_dtype dtype, const Steps& steps) {
  const int64_t row_stride = view.shape[1] == 1 ? view.strides[0] : view.strides[1];
  std::byte* const data = view.address == nullptr ? nullptr : row_of(view, dtype, steps.first, 0);
  return {data, dtype, steps.count * view.shape[1], view.shape[2], row_stride, view.strides[2]};
}

// Returns the part of a tensor (steps, rows, elements) that a range of steps has.
View part_of(const View& view, bp_dtype dtype, const Steps& steps) {
  View part = view;
  part.shape[0] = steps.count;
  if (part.address != nullptr) part.address = row_of(view, dtype, steps.first, 0);
  return part;
}

uint64_t product_bytes(const Gemm& gemm, int thread_count) {
  return gemm.y.rows != 0 && gemm.y.cols != 0 ? gemm_workspace_size_bytes(gemm, thread_count) : 0;
}

// Computes a product, any of whose extents may be 0.
void run_product(const Gemm& gemm, std::byte* workspace, int thread_count) {
  if (gemm.y.rows != 0 && gemm.y.cols != 0) run_gemm(gemm, workspace, thread_count);
}

// Calls visit(Steps) for ranges of all lengths that a sequence is divided into.
template <typename Visit>
void for_each_kind_of_range(const Recurrence& r, const Visit& visit) {
  const int64_t count = std::min(steps_at_once(r), r.steps);
  visit(Steps{0, count});
  if (count != 0 && r.steps % count != 0) visit(Steps{r.steps / count * count, r.steps % count});
}

// Reserves buffers behind each other.
struct Reserver {
  uint64_t& end;

  uint64_t operator()(int64_t elements, uint64_t size_bytes) const {
    return reserve_bytes(static_cast<uint64_t>(elements) * size_bytes, end);
  }
};

// ---- Forward -----------------------------------------------------------------------------------

// Returns the product of x and all weights. If the rows of x are not those of a matrix, they have
// been copied.
Gemm input_product(const SequenceForward& s, const ForwardMemory& m, const Steps& steps,
                   std::byte* workspace) {
  Gemm gemm;
  gemm.a = has_even_rows(s.x)
               ? rows_of(s.x, s.dtype, steps)
               : dense_rows(at(workspace, m.x), s.dtype, steps.count * s.rows, s.inputs);
  gemm.b = matrix_of(s.weight, s.dtype).transposed();
  gemm.y = dense_rows(at(workspace, m.sums), s.sum_dtype(), steps.count * s.rows, s.width());
  gemm.bias = {at(workspace, m.bias), s.sum_dtype(), gemm.y.rows, gemm.y.cols, 0, 1};
  return gemm;
}

// ---- Gradients ---------------------------------------------------------------------------------

// The products of a range of steps. That of recurrent is in two parts, because the last gate of a
// GRU has gradients or a state of its own.
struct RangeProducts {
  Gemm x, weight, recurrent, last;
};

// Returns where a gradient of weights is summed: in its tensor, if that has the dtype of sums, else
// in `memory`.
Matrix summed_in(const SequenceBackward& s, const View& gradient, int64_t cols, std::byte* memory) {
  if (!s.is_narrow()) return matrix_of(gradient, s.dtype);
  return dense_rows(memory, s.sum_dtype(), s.width(), cols);
}

void set_recurrent(const SequenceBackward& s, const BackwardMemory& m, int64_t rows,
                   std::byte* workspace, RangeProducts& products) {
  const int64_t hidden = s.hidden, shared = is_gru(s.cell) ? 2 * hidden : s.width();
  const auto buffer = [&](uint64_t offset, int64_t cols) {
    return dense_rows(at(workspace, offset), s.sum_dtype(), rows, cols);
  };
  const Matrix d = buffer(m.d, s.width()), before = buffer(m.before, hidden);
  const Matrix sums = summed_in(s, s.grad_recurrent, hidden, at(workspace, m.recurrent));
  products.recurrent.a = d.part(0, rows, 0, shared).transposed();
  products.recurrent.b = before;
  products.recurrent.y = sums.part(0, shared, 0, hidden);
  if (!is_gru(s.cell)) return;
  const bool is_after = s.cell == Cell::kResetAfter;
  const Matrix d_last = is_after ? buffer(m.d_last, hidden) : d.part(0, rows, shared, hidden);
  products.last.a = d_last.transposed();
  products.last.b = is_after ? before : buffer(m.kept, hidden);
  products.last.y = sums.part(shared, hidden, 0, hidden);
}

RangeProducts products_of(const SequenceBackward& s, const BackwardMemory& m, const Steps& steps,
                          std::byte* workspace) {
  const int64_t rows = steps.count * s.rows;
  const Matrix d = dense_rows(at(workspace, m.d), s.sum_dtype(), rows, s.width());
  const Matrix x = dense_rows(at(workspace, m.x), s.dtype, rows, s.inputs);
  RangeProducts products;
  if (is_given(s.grad_x)) {
    products.x.a = d;
    products.x.b = matrix_of(s.weight, s.dtype);
    products.x.y = has_even_rows(s.grad_x) ? rows_of(s.grad_x, s.dtype, steps) : x;
  }
  if (is_given(s.grad_weight)) {
    products.weight.a = d.transposed();
    products.weight.b = x;
    products.weight.y = summed_in(s, s.grad_weight, s.inputs, at(workspace, m.weight));
  }
  if (is_given(s.grad_recurrent)) set_recurrent(s, m, rows, workspace, products);
  return products;
}

// Writes zeros to a matrix of rows of steps, where rows do not have the step.
void clear_unseen(const SequenceBackward& s, const BackwardMemory& m, const Steps& steps,
                  const Matrix& matrix, const std::byte* workspace) {
  if (!s.has_lengths()) return;
  const int64_t size_bytes = dtype_size_bytes(matrix.dtype);
  const auto* const lengths = reinterpret_cast<const int64_t*>(workspace + m.lengths);
  for (int64_t i = 0; i < matrix.rows; ++i) {
    if (steps.first + i / s.rows < lengths[i % s.rows]) continue;
    for (int64_t col = 0; col < matrix.cols; ++col) {
      std::fill_n(matrix.at(i, col), size_bytes, std::byte{0});
    }
  }
}

// Copies x, but for the steps that rows do not have: there it counts as 0.
void copy_inputs(const SequenceBackward& s, const BackwardMemory& m, const Steps& steps,
                 std::byte* workspace, int thread_count) {
  const View from = part_of(s.x, s.dtype, steps), to = dense_view(from, workspace + m.x);
  copy_elements(from, to, dtype_size_bytes(s.dtype), thread_count);
  clear_unseen(s, m, steps, dense_rows(to.address, s.dtype, steps.count * s.rows, s.inputs),
               workspace);
}

// Adds the columns of `d`, whose sums over many rows are kept in f64.
template <typename Sum>
void add_columns(const Sum* d, int64_t rows, int64_t cols, double* to, int thread_count) {
  constexpr int64_t kColumns = 64;
  parallel_for(thread_count, cols, kColumns, [&](int64_t begin, int64_t end) {
    for (int64_t row = 0; row < rows; ++row) {
      for (int64_t i = begin; i < end; ++i) to[i] += static_cast<double>(d[row * cols + i]);
    }
  });
}

template <typename Sum>
void add_biases(const SequenceBackward& s, const BackwardMemory& m, int64_t rows,
                std::byte* workspace, int thread_count) {
  auto* const sums = reinterpret_cast<double*>(workspace + m.bias);
  add_columns(reinterpret_cast<const Sum*>(workspace + m.d), rows, s.width(), sums, thread_count);
  if (s.cell != Cell::kResetAfter) return;
  add_columns(reinterpret_cast<const Sum*>(workspace + m.d_last), rows, s.hidden, sums + s.width(),
              thread_count);
}

}  // namespace

ForwardMemory::ForwardMemory(const SequenceForward& s, int thread_count)
    : units(round_up(s.hidden, kTileColsLimit)), rows(s.rows + kTileRowsLimit) {
  const Reserver reserve{end};
  const auto sum = static_cast<uint64_t>(s.sum_bytes());
  const int64_t gates = gate_count(s.cell), hidden = s.hidden, all = steps_at_once(s) * s.rows;
  const bool is_before = s.cell == Cell::kResetBefore;
  lengths = reserve(s.rows, sizeof(int64_t));
  panels = reserve(gates * units * hidden, sum);
  // A line is read as a whole block, also behind the last unit.
  bias = reserve(s.width() + kTileColsLimit, sum);
  state_bias = reserve(s.cell == Cell::kResetAfter ? units : 0, sum);
  sums = reserve(all * s.width() + kTileColsLimit, sum);
  packed[0] = reserve(rows * hidden, sum);
  packed[1] = reserve(rows * hidden, sum);
  packed_kept = reserve(is_before ? rows * hidden : 0, sum);
  h = reserve(s.rows * units, sum);
  c = reserve(s.cell == Cell::kLstmCell ? s.rows * units : 0, sum);
  z = reserve(is_before ? s.rows * units : 0, sum);
  kept = reserve(is_before ? s.rows * units : 0, sum);
  x = reserve(has_even_rows(s.x) ? 0 : all * s.inputs,
              static_cast<uint64_t>(dtype_size_bytes(s.dtype)));
  product = end;
  for_each_kind_of_range(s, [&](const Steps& steps) {
    const Gemm gemm = input_product(s, *this, steps, nullptr);
    end = std::max(end, product + product_bytes(gemm, thread_count));
  });
}

void multiply_inputs(const SequenceForward& s, const ForwardMemory& memory, const Steps& steps,
                     std::byte* workspace, int thread_count) {
  if (!has_even_rows(s.x)) {
    const View from = part_of(s.x, s.dtype, steps);
    copy_elements(from, dense_view(from, workspace + memory.x), dtype_size_bytes(s.dtype),
                  thread_count);
  }
  run_product(input_product(s, memory, steps, workspace), workspace + memory.product, thread_count);
}

BackwardMemory::BackwardMemory(const SequenceBackward& s, int thread_count)
    : units(round_up(s.hidden, kTileColsLimit)), rows(s.rows + kTileRowsLimit) {
  const Reserver reserve{end};
  const auto sum = static_cast<uint64_t>(s.sum_bytes());
  const int64_t all = steps_at_once(s) * s.rows, hidden = s.hidden;
  const int64_t carried = carried_gates(s.cell) * hidden, weights = s.width();
  const bool is_narrow = s.is_narrow(), is_before = s.cell == Cell::kResetBefore;
  lengths = reserve(s.rows, sizeof(int64_t));
  panels = reserve(carried * units, sum);
  last_panels = reserve(is_before ? hidden * units : 0, sum);
  d = reserve(all * weights, sum);
  d_last = reserve(s.cell == Cell::kResetAfter ? all * hidden : 0, sum);
  packed[0] = reserve(rows * carried, sum);
  packed[1] = reserve(rows * carried, sum);
  packed_last = reserve(is_before ? rows * hidden : 0, sum);
  dh = reserve(s.rows * units, sum);
  dc = reserve(s.cell == Cell::kLstmCell ? s.rows * units : 0, sum);
  r = reserve(is_before ? s.rows * units : 0, sum);
  x = reserve(is_given(s.grad_weight) || is_given(s.grad_x) ? all * s.inputs : 0,
              static_cast<uint64_t>(dtype_size_bytes(s.dtype)));
  before = reserve(all * hidden, sum);
  kept = reserve(is_before ? all * hidden : 0, sum);
  weight = reserve(is_narrow && is_given(s.grad_weight) ? weights * s.inputs : 0, sum);
  recurrent = reserve(is_narrow && is_given(s.grad_recurrent) ? weights * hidden : 0, sum);
  bias = reserve(2 * weights, sizeof(double));
  product = end;
  for_each_kind_of_range(s, [&](const Steps& steps) {
    const RangeProducts p = products_of(s, *this, steps, nullptr);
    for (const Gemm* gemm : {&p.x, &p.weight, &p.recurrent, &p.last}) {
      end = std::max(end, product + product_bytes(*gemm, thread_count));
    }
  });
}

void add_range(const SequenceBackward& s, const BackwardMemory& memory, const Steps& steps,
               bool is_first, std::byte* workspace, int thread_count) {
  std::byte* const scratch = workspace + memory.product;
  RangeProducts products = products_of(s, memory, steps, workspace);
  if (is_given(s.grad_weight)) {
    copy_inputs(s, memory, steps, workspace, thread_count);
    products.weight.accumulates = !is_first;
    run_product(products.weight, scratch, thread_count);
  }
  if (is_given(s.grad_recurrent)) {
    products.recurrent.accumulates = products.last.accumulates = !is_first;
    run_product(products.recurrent, scratch, thread_count);
    run_product(products.last, scratch, thread_count);
  }
  if (is_given(s.grad_x)) {
    run_product(products.x, scratch, thread_count);
    clear_unseen(s, memory, steps, products.x.y, workspace);  // A weight may be NaN.
    if (!has_even_rows(s.grad_x)) {
      const View to = part_of(s.grad_x, s.dtype, steps);
      copy_elements(dense_view(to, workspace + memory.x), to, dtype_size_bytes(s.dtype),
                    thread_count);
    }
  }
  if (!is_given(s.grad_bias) && !is_given(s.grad_recurrent_bias)) return;
  const int64_t rows = steps.count * s.rows;
  if (s.dtype == BP_F64) {
    add_biases<double>(s, memory, rows, workspace, thread_count);
  } else {
    add_biases<float>(s, memory, rows, workspace, thread_count);
  }
}

uint64_t workspace_size_bytes(const SequenceForward& s, int thread_count) {
  return ForwardMemory(s, thread_count).end;
}

uint64_t workspace_size_bytes(const SequenceBackward& s, int thread_count) {
  return BackwardMemory(s, thread_count).end;
}

}  // namespace bp::kernels
