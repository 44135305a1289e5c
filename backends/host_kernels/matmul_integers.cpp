// matmul of integers. Sums wrap in the dtype of y, so the elements of y hold them while they grow,
// and no wider memory is needed. Threads share the rows of y. A row of y is a sum of rows of b,
// each times one element of a, so that the inner loop walks along rows. oneDNN multiplies i8 into
// i32 on processors that have instructions for it: at 1024^3 in 4 ms of processor time with AMX,
// and these loops in 110.
#include <algorithm>
#include <array>
#include <cstdint>
#include <type_traits>

#include "backends/host_kernels/kernels.hpp"
#include "backends/host_kernels/product.hpp"
#include "backends/host_kernels/strided.hpp"
#include "backplane/shell/dtypes.hpp"

namespace bp::kernels {
namespace {

constexpr bp_dtype kIntegers[] = {BP_I32, BP_I64, BP_U8, BP_I8, BP_I16};
constexpr int64_t kGrainProducts = 65536;  // With fewer products a team costs more.

struct IntegerProduct {
  View a, b, y;

  int64_t rows() const { return y.shape[y.ndim - 2]; }
  int64_t columns() const { return y.shape[y.ndim - 1]; }
  int64_t depth() const { return a.shape[a.ndim - 1]; }
};

// Returns the offset in elements of a matrix among those of the leading axes.
int64_t matrix_offset(const View& view, int64_t batch) {
  int64_t offset = 0;
  for (uint32_t i = view.ndim - 2; i-- > 0; batch /= view.shape[i]) {
    offset += batch % view.shape[i] * view.strides[i];
  }
  return offset;
}

template <typename T>
T* row_of(const View& view, int64_t batch, int64_t row) {
  return reinterpret_cast<T*>(view.address) + matrix_offset(view, batch) +
         row * view.strides[view.ndim - 2];
}

// An unsigned type in which products of elements of Y wrap. Narrower types would be promoted to
// int, which overflows.
template <typename Y>
using Wrapping = std::conditional_t<sizeof(Y) == 8, uint64_t, uint32_t>;

// Adds n elements of a row of b, times `factor`, to a row of y.
template <typename T, typename Y>
void add_row(Wrapping<Y> factor, const T* b, int64_t b_stride, Y* y, int64_t y_stride, int64_t n) {
  const auto sum = [factor](Y total, T element) {
    return static_cast<Y>(static_cast<Wrapping<Y>>(total) +
                          factor * static_cast<Wrapping<Y>>(element));
  };
  if (b_stride == 1 && y_stride == 1) {
    for (int64_t i = 0; i < n; ++i) y[i] = sum(y[i], b[i]);
    return;
  }
  for (int64_t i = 0; i < n; ++i) y[i * y_stride] = sum(y[i * y_stride], b[i * b_stride]);
}

// Computes rows of y, which are numbered through all matrices.
template <typename T, typename Y>
void multiply_rows(const IntegerProduct& p, int64_t begin, int64_t end) {
  const int64_t a_stride = p.a.strides[p.a.ndim - 1], b_stride = p.b.strides[p.b.ndim - 1];
  const int64_t y_stride = p.y.strides[p.y.ndim - 1], n = p.columns();
  for (int64_t row = begin; row < end; ++row) {
    const int64_t batch = row / p.rows();
    Y* const y = row_of<Y>(p.y, batch, row % p.rows());
    const T* const a = row_of<const T>(p.a, batch, row % p.rows());
    for (int64_t i = 0; i < n; ++i) y[i * y_stride] = 0;
    for (int64_t k = 0; k < p.depth(); ++k) {
      add_row<T, Y>(static_cast<Wrapping<Y>>(a[k * a_stride]), row_of<const T>(p.b, batch, k),
                    b_stride, y, y_stride, n);
    }
  }
}

using MultiplyRows = void(const IntegerProduct& p, int64_t begin, int64_t end);

// Calls fn(T{}) for a dtype of kIntegers.
template <typename Fn>
auto with_integer(bp_dtype dtype, const Fn& fn) {
  switch (dtype) {
    case BP_U8:
      return fn(uint8_t{});
    case BP_I8:
      return fn(int8_t{});
    case BP_I16:
      return fn(int16_t{});
    case BP_I32:
      return fn(int32_t{});
    case BP_I64:
      return fn(int64_t{});
    default:
      refuse_dtype(dtype);
  }
}

MultiplyRows* find_rows(bp_dtype element, bp_dtype result) {
  return with_integer(element, [result]<typename T>(T) {
    return with_integer(result, []<typename Y>(Y) -> MultiplyRows* { return multiply_rows<T, Y>; });
  });
}

bp_reason supports(const bp_matmul_args& args) { return scaled_sum_reason(args); }

uint64_t workspace_of_integers(const bp_matmul_args& args, const Env& env) {
  const Product product = product_of(args);
  return library_has_bytes(product, env) ? product_workspace_size_bytes(product, env) : 0;
}

bp_status launch_integers(const bp_matmul_args& args, Launch& launch) {
  if (const bp_reason reason = supports(args)) {
    return launch.refuse(BP_UNSUPPORTED, std::string("matmul: ") + reason);
  }
  const Product whole = product_of(args);
  if (library_has_bytes(whole, launch)) return submit_product(whole, launch);
  const IntegerProduct product = {view_of(*args.a), view_of(*args.b), view_of(*args.y)};
  const int64_t columns = product.columns();
  const int64_t rows = columns == 0 ? 0 : element_count(*args.y) / columns;
  const int64_t of_row = std::max<int64_t>(1, columns * product.depth());
  const int64_t grain = std::max<int64_t>(1, kGrainProducts / of_row);
  MultiplyRows* const run = find_rows(args.a->dtype, args.y->dtype);
  return launch.submit([=, threads = launch.thread_count()] {
    parallel_for(threads, rows, grain,
                 [&](int64_t begin, int64_t end) { run(product, begin, end); });
  });
}

// a and b have one dtype, and y has any.
constexpr auto kRows = [] {
  std::array<bp_dtype, 3 * std::size(kIntegers) * std::size(kIntegers)> rows{};
  size_t next = 0;
  for (const bp_dtype element : kIntegers) {
    for (const bp_dtype result : kIntegers) {
      rows[next++] = element;
      rows[next++] = element;
      rows[next++] = result;
    }
  }
  return rows;
}();

}  // namespace

extern constinit const bp_kernel kMatmulIntegers =
    make_kernel<bp_matmul_args, launch_integers, supports, workspace_of_integers>(
        kernel_row("matmul.integers", BP_OP_MATMUL, {kRows, 3}));

}  // namespace bp::kernels
