#include "backplane/runtime/ops.hpp"

namespace bp {

Tensor operator+(const Tensor& a, const Operand& b) { return add(a, b); }
Tensor operator-(const Tensor& a, const Operand& b) { return sub(a, b); }
Tensor operator*(const Tensor& a, const Operand& b) { return mul(a, b); }
Tensor operator/(const Tensor& a, const Operand& b) { return div(a, b); }
Tensor operator==(const Tensor& a, const Tensor& b) { return eq(a, b); }
Tensor operator==(const Tensor& a, const Operand& b) { return eq(a, b); }
Tensor operator-(const Tensor& x) { return neg(x); }
Tensor operator+(Scalar a, const Tensor& b) { return add(b, a); }
Tensor operator-(Scalar a, const Tensor& b) { return sub(a, b); }
Tensor operator*(Scalar a, const Tensor& b) { return mul(b, a); }
Tensor operator/(Scalar a, const Tensor& b) { return div(a, b); }

}  // namespace bp
