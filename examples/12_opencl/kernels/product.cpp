// matmul and linear: y = activation(alpha * a b + bias + beta * addend). A group of 16 by 16 items
// computes a tile of y, and goes through k in steps of 16, which it keeps in local memory.
#include <string>

#include "kernels/kernels.hpp"

namespace acme_opencl {
namespace {

// The program has the same struct. The strides are those of rows, columns and the sum, in elements.
struct Product {
  int64_t m, n, k;
  int64_t y_m, y_n, a_m, a_k, b_k, b_n, addend_m, addend_n, bias_n, bias_offset;
  float alpha, beta;
};

constexpr const char* kSource = R"(
typedef struct {
  long m, n, k;
  long y_m, y_n, a_m, a_k, b_k, b_n, addend_m, addend_n, bias_n, bias_offset;
  float alpha, beta;
} Product;

float activated(float x) {
  if (ACTIVATION == 2) return x < 0.0f ? 0.0f : x;
  if (ACTIVATION == 3) return x == -INFINITY ? -0.0f : 0.5f * x * erfc(-x * 0.70710678118654752f);
  if (ACTIVATION == 4) return x == -INFINITY ? -0.0f : x / (1.0f + exp(-x));
  return x;
}

// The tensors of `batch` are y, a, b and addend.
kernel void product(Grid batch, Product p, global Y_T* y, global const A_T* a, global const B_T* b,
                    global const Y_T* addend, global const Y_T* bias, global Y_T* preactivation,
                    long preactivation_offset) {
  local float a_tile[16][16], b_tile[16][16];
  const int column = get_local_id(0), row = get_local_id(1);
  const long n = get_group_id(0) * 16 + column, m = get_group_id(1) * 16 + row;
  const long index = get_group_id(2);
  const long to = place(&batch, index, 0), a_at = place(&batch, index, 1),
             b_at = place(&batch, index, 2);
  float sum = 0.0f;
  for (long k = 0; k < p.k; k += 16) {
    const long a_k = k + column, b_k = k + row;
    a_tile[row][column] =
        m < p.m && a_k < p.k ? A_LOAD(a, (a_at + m * p.a_m + a_k * p.a_k)) : 0.0f;
    b_tile[row][column] =
        n < p.n && b_k < p.k ? B_LOAD(b, (b_at + b_k * p.b_k + n * p.b_n)) : 0.0f;
    barrier(CLK_LOCAL_MEM_FENCE);
    const int steps = (int)min(p.k - k, 16L);
    for (int step = 0; step < steps; ++step) sum += a_tile[row][step] * b_tile[step][column];
    barrier(CLK_LOCAL_MEM_FENCE);
  }
  if (m >= p.m || n >= p.n) return;
  if (SCALES) sum *= p.alpha;
  if (HAS_BIAS) sum += Y_LOAD(bias, (p.bias_offset + n * p.bias_n));
  if (HAS_ADDEND) {
    const long at = place(&batch, index, 3) + m * p.addend_m + n * p.addend_n;
    sum += p.beta * Y_LOAD(addend, at);
  }
  const long at = m * p.y_m + n * p.y_n;
  if (HAS_PREACTIVATION) Y_STORE(preactivation, (preactivation_offset + at), sum);
  Y_STORE(y, (to + at), activated(sum));
}
)";

struct Tensors {
  const bp_tensor *y, *a, *b, *addend = nullptr, *bias = nullptr, *preactivation = nullptr;
};

bp_status submit(const Tensors& t, const Grid& batch, Product p, uint32_t activation,
                 Launch& launch) {
  if (p.alpha == 0.0f) p.alpha = 1.0f;
  if (p.beta == 0.0f) p.beta = 1.0f;
  const auto define = [](const char* name, auto value) {
    return std::string("#define ") + name + " " + std::to_string(static_cast<int>(value)) + "\n";
  };
  Call call(prelude({{"Y", t.y->dtype}, {"A", t.a->dtype}, {"B", t.b->dtype}}) +
                define("ACTIVATION", activation) + define("SCALES", p.alpha != 1.0f) +
                define("HAS_BIAS", t.bias != nullptr) + define("HAS_ADDEND", t.addend != nullptr) +
                define("HAS_PREACTIVATION", t.preactivation != nullptr) + kSource,
            "product");
  const auto place = [](const bp_tensor* at) {
    return at == nullptr ? Place{} : Launch::place(*at);
  };
  call.value(batch).value(p).buffer(place(t.y)).buffer(place(t.a)).buffer(place(t.b));
  call.buffer(place(t.addend)).buffer(place(t.bias)).buffer(place(t.preactivation));
  call.value(t.preactivation == nullptr ? int64_t{0} : grid_at({t.preactivation}).offset[0]);
  call.groups((p.n + 15) / 16, (p.m + 15) / 16, batch.count, 16, 16);
  return launch.submit([call](CommandQueue& queue) { queue.run(call); });
}

bp_status matmul(const bp_matmul_args& args, Launch& launch) {
  const bp_tensor &a = *args.a, &b = *args.b, &y = *args.y;
  const bp_tensor* const addend = args.addend;
  const uint32_t rows = y.ndim - 2, columns = y.ndim - 1;
  Grid batch = grid_at({&y, &a, &b, addend});
  for (uint32_t axis = 0; axis < rows; ++axis) {
    add_axis(batch, y.shape[axis],
             {y.strides[axis], a.strides[axis], b.strides[axis],
              addend == nullptr ? 0 : addend->strides[axis]});
  }
  Product p{.m = y.shape[rows], .n = y.shape[columns], .k = a.shape[columns]};
  p.y_m = y.strides[rows], p.y_n = y.strides[columns];
  p.a_m = a.strides[rows], p.a_k = a.strides[columns];
  p.b_k = b.strides[rows], p.b_n = b.strides[columns];
  if (addend != nullptr) p.addend_m = addend->strides[rows], p.addend_n = addend->strides[columns];
  p.alpha = static_cast<float>(args.alpha), p.beta = static_cast<float>(args.beta);
  return submit({&y, &a, &b, addend}, batch, p, BP_LINEAR_ACTIVATION_NONE, launch);
}

// All tensors are contiguous, so the axes of x but the last one are the rows of one matrix.
bp_status linear(const bp_linear_args& args, Launch& launch) {
  const bp_tensor &x = *args.x, &weight = *args.weight, &y = *args.y;
  Product p{.m = 1, .n = weight.shape[0], .k = weight.shape[1]};
  for (uint32_t axis = 0; axis + 1 < x.ndim; ++axis) p.m *= x.shape[axis];
  p.y_m = p.n, p.y_n = 1, p.a_m = p.k, p.a_k = 1, p.b_k = 1, p.b_n = p.k;
  p.addend_m = p.n, p.addend_n = 1;
  if (args.bias != nullptr) p.bias_n = 1, p.bias_offset = grid_at({args.bias}).offset[0];
  p.alpha = static_cast<float>(args.alpha), p.beta = static_cast<float>(args.beta);
  return submit({&y, &x, &weight, args.addend, args.bias, args.preactivation},
                grid_at({&y, &x, &weight, args.addend}), p, args.activation, launch);
}

constexpr bp_kernel linear_row() {
  bp_kernel row = bp::kernel_row("linear", BP_OP_LINEAR, {kFloatTriples, 3});
  row.layouts = BP_LAYOUT_CONTIGUOUS;
  return row;
}

}  // namespace

constinit const bp_kernel kMatmul =
    make_kernel<bp_matmul_args, matmul>(bp::kernel_row("matmul", BP_OP_MATMUL, {kFloatTriples, 3}));
constinit const bp_kernel kLinear = make_kernel<bp_linear_args, linear>(linear_row());

}  // namespace acme_opencl
