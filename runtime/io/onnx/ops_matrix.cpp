// Products of matrices, and determinants.
#include <cmath>

#include "runtime/io/onnx/composed.hpp"
#include "runtime/io/onnx/einsum.hpp"
#include "runtime/io/onnx/op_table.hpp"
#include "runtime/io/onnx/scaled_product.hpp"

namespace bp::onnx {
namespace {

Values run_matmul(const Call& call) {
  if (Tensor y = scaled_product(call.value(0), call.value(1), false, call.device())) return {y};
  const Tensor a = call.input(0);
  return {converted(matmul_nd(computable(a), computable(call.input(1))), a.dtype())};
}

// Returns the product if it is one of codes. It is as exact as that of the elements.
Tensor gemm_of_codes(const Call& call, double alpha, double beta) {
  if (call.flag("transA", false) || call.value(0).shape().size() != 2) return Tensor();
  Tensor y =
      scaled_product(call.value(0), call.value(1), call.flag("transB", false), call.device());
  if (!y) return y;
  if (alpha != 1) y = y * alpha;
  return call.has(2) && beta != 0 ? y + call.input(2) * beta : y;
}

Values gemm(const Call& call) {
  if (Tensor y = gemm_of_codes(call, call.number("alpha", 1), call.number("beta", 1))) return {y};
  const Tensor a = call.flag("transA", false) ? call.input(0).transpose() : call.input(0);
  const Tensor b = call.flag("transB", false) ? call.input(1).transpose() : call.input(1);
  const double alpha = call.number("alpha", 1);
  const double beta = call.number("beta", 1);
  const bool has_addend = call.has(2) && beta != 0;
  const Tensor addend = has_addend ? call.input(2).expand({a.shape(0), b.shape(1)}) : Tensor();
  if (is_plain_float(a.dtype()) && alpha != 0) {  // An alpha of 0 would stand for 1.
    return {matmul(a, b, 0, addend, alpha, has_addend ? beta : 0)};
  }
  const Tensor wide = computable(a);
  Tensor y = mul(matmul(wide, computable(b)), scalar_like(alpha, wide));
  if (has_addend) y = add(y, mul(computable(addend), scalar_like(beta, wide)));
  return {converted(y, a.dtype())};
}

Values run_einsum(const Call& call) {
  return {einsum(call, call.text("equation", ""), call.all_inputs())};
}

// Eliminates with the largest pivot of each column.
double determinant(std::vector<double> m, size_t n) {
  double result = 1;
  for (size_t column = 0; column < n; ++column) {
    size_t pivot = column;
    for (size_t row = column + 1; row < n; ++row) {
      if (std::abs(m[row * n + column]) > std::abs(m[pivot * n + column])) pivot = row;
    }
    if (m[pivot * n + column] == 0) return 0;
    if (pivot != column) result = -result;
    for (size_t i = 0; i < n; ++i) std::swap(m[pivot * n + i], m[column * n + i]);
    result *= m[column * n + column];
    for (size_t row = column + 1; row < n; ++row) {
      const double factor = m[row * n + column] / m[column * n + column];
      for (size_t i = column; i < n; ++i) m[row * n + i] -= factor * m[column * n + i];
    }
  }
  return result;
}

Values det(const Call& call) {
  const Tensor x = call.input(0);
  if (x.ndim() < 2 || x.shape(-1) != x.shape(-2)) {
    call.refuse("input 0 has the shape " + bp::to_string(x.shape()) +
                "; allowed: square matrices in the last two axes");
  }
  const std::vector<double> elements = to_host(x).to_doubles("input 0");
  const auto n = static_cast<size_t>(x.shape(-1));
  const std::vector<int64_t> shape(x.shape().begin(), x.shape().end() - 2);
  std::vector<double> results(static_cast<size_t>(count_or_negative(shape)));
  for (size_t i = 0; i < results.size(); ++i) {
    const auto begin = elements.begin() + static_cast<std::ptrdiff_t>(i * n * n);
    results[i] = determinant({begin, begin + static_cast<std::ptrdiff_t>(n * n)}, n);
  }
  return {floats_on(x.device(), results, shape, x.dtype())};
}

constexpr OpRow kRows[] = {
    {"Det", 11, det, "", OnnxRoute::kHost},
    {"Einsum", 12, run_einsum, "equation"},
    {"Gemm", 1, gemm, "alpha beta broadcast transA transB", OnnxRoute::kOp},
    {"MatMul", 1, run_matmul, "", OnnxRoute::kOp},
};

}  // namespace

std::span<const OpRow> matrix_ops() { return kRows; }

}  // namespace bp::onnx
