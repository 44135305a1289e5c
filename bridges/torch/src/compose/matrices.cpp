// Products of matrices with an addend: addmm and its family.
#include "compose.h"

namespace bpt {
namespace {

// alpha * (a b) + beta * addend, rounded once. The op takes an alpha or beta of 0 for 1.
Tensor product(const Tensor& a, const Tensor& b, const OptionalTensor& addend, const Scalar& beta,
               const Scalar& alpha) {
  require(!alpha.equal(0) && !alpha.isComplex() && !beta.isComplex(),
          "a product that is scaled by 0, or by a complex number");
  require(a.scalar_type() == b.scalar_type(), "the matrices of a product have two dtypes");
  Call call("matmul");
  call.in("a", a).in("b", b);
  if (!alpha.equal(1)) call.set("alpha", alpha.toDouble());
  if (addend && !beta.equal(0)) {
    require(addend->scalar_type() == a.scalar_type(), "the addend of a product has another dtype");
    const bp_op_output& shape = call.infer();
    require(addend->dim() <= shape.ndim, "the addend of a product has more axes than the result");
    call.in("addend", addend->expand(IntArrayRef(shape.shape, shape.ndim)));
    if (!beta.equal(1)) call.set("beta", beta.toDouble());
  }
  return call.run_one();
}

// x weight^T + bias: what a Linear layer calls.
bool is_linear(const Tensor& bias, const Tensor& a, const Tensor& b, const Scalar& beta,
               const Scalar& alpha) {
  return beta.equal(1) && alpha.equal(1) && bias.dim() == 1 && a.dim() == 2 && b.dim() == 2 &&
         bias.size(0) == b.size(1) && is_float(a) && bias.scalar_type() == a.scalar_type() &&
         b.t().is_contiguous();
}

Tensor addmm(const Tensor& self, const Tensor& a, const Tensor& b, const Scalar& beta,
             const Scalar& alpha) {
  if (is_linear(self, a, b, beta, alpha)) {
    return Call("linear").in("x", a).in("weight", b.t()).in("bias", self).run_one();
  }
  return product(a, b, self, beta, alpha);
}

Tensor baddbmm(const Tensor& self, const Tensor& a, const Tensor& b, const Scalar& beta,
               const Scalar& alpha) {
  return product(a, b, self, beta, alpha);
}

Tensor addbmm(const Tensor& self, const Tensor& a, const Tensor& b, const Scalar& beta,
              const Scalar& alpha) {
  require(a.dim() == 3 && b.dim() == 3 && a.size(0) == b.size(0), "addbmm takes two batches");
  // The sum over the batch is a product whose inner axis is the batch and the inner axis.
  const int64_t inner = a.size(0) * a.size(2);
  const Tensor left = a.permute({1, 0, 2}).reshape({a.size(1), inner});
  return product(left, b.reshape({inner, b.size(2)}), self, beta, alpha);
}

Tensor addmv(const Tensor& self, const Tensor& matrix, const Tensor& vector, const Scalar& beta,
             const Scalar& alpha) {
  require(matrix.dim() == 2 && vector.dim() == 1 && self.dim() <= 1,
          "addmv takes a matrix and a vector");
  const Tensor addend = self.dim() == 0 ? self.expand({matrix.size(0)}) : self;
  return product(matrix, vector.unsqueeze(1), addend.unsqueeze(1), beta, alpha).squeeze(1);
}

Tensor mv(const Tensor& matrix, const Tensor& vector) {
  require(matrix.dim() == 2 && vector.dim() == 1, "mv takes a matrix and a vector");
  return product(matrix, vector.unsqueeze(1), std::nullopt, 0, 1).squeeze(1);
}

Tensor dot(const Tensor& self, const Tensor& other) {
  require(self.dim() == 1 && other.dim() == 1, "dot takes two vectors");
  return product(self.unsqueeze(0), other.unsqueeze(1), std::nullopt, 0, 1).reshape({});
}

}  // namespace

void compose_matrices() {
  compose("addmm", &addmm);
  compose("baddbmm", &baddbmm);
  compose("addbmm", &addbmm);
  compose("addmv", &addmv);
  compose("mv", &mv);
  compose("dot", &dot);
}

}  // namespace bpt
