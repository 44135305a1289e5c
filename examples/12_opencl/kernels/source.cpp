// What the programs of all kernels share: places of elements, and loads and stores of dtypes.
#include <algorithm>
#include <string>

#include "backplane/shell/dtypes.hpp"
#include "kernels/kernels.hpp"

namespace acme_opencl {
namespace {

constexpr const char* kCommon = R"(
#pragma OPENCL FP_CONTRACT OFF
typedef struct {
  int ndim, reserved;
  long count;
  long shape[8];
  long strides[4][8];
  long offset[4];
} Grid;

long place(const Grid* grid, long index, int tensor) {
  long at = grid->offset[tensor];
  for (int axis = grid->ndim - 1; axis > 0; --axis) {
    at += index % grid->shape[axis] * grid->strides[tensor][axis];
    index /= grid->shape[axis];
  }
  return grid->ndim == 0 ? at : at + index * grid->strides[tensor][0];
}

float from_bf16(ushort bits) { return as_float((uint)bits << 16); }
ushort to_bf16(float value) {
  const uint bits = as_uint(value);
  if (value != value) return (ushort)(bits >> 16 | 0x40);
  return (ushort)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

// Reports the first bad element of a call that was checked.
void report(global int* failure, int number, long position, long value) {
  if (atomic_cmpxchg(failure, 0, number) != 0) return;
  global long* numbers = (global long*)(failure + 2);
  numbers[0] = position;
  numbers[1] = value;
}

// Adds a value of each of 64 items. All items of the group call it.
float sum_of_group(local float* partial, float value) {
  const int me = get_local_id(0);
  partial[me] = value;
  for (int half_way = 32; half_way > 0; half_way /= 2) {
    barrier(CLK_LOCAL_MEM_FENCE);
    if (me < half_way) partial[me] += partial[me + half_way];
  }
  barrier(CLK_LOCAL_MEM_FENCE);
  const float sum = partial[0];
  barrier(CLK_LOCAL_MEM_FENCE);
  return sum;
}
float larger(float a, float b) { return a != a || a > b ? a : b; }
float largest_of_group(local float* partial, float value) {
  const int me = get_local_id(0);
  partial[me] = value;
  for (int half_way = 32; half_way > 0; half_way /= 2) {
    barrier(CLK_LOCAL_MEM_FENCE);
    if (me < half_way) partial[me] = larger(partial[me], partial[me + half_way]);
  }
  barrier(CLK_LOCAL_MEM_FENCE);
  const float result = partial[0];
  barrier(CLK_LOCAL_MEM_FENCE);
  return result;
}
)";

// One row for each dtype: the type in memory, the type of values, and how to load and store. In the
// texts, p is the pointer, i the index, and v the value.
struct Element {
  bp_dtype dtype;
  const char *type, *value, *load, *store;
};

constexpr Element kElements[] = {
    {BP_F32, "float", "float", "(p)[i]", "(p)[i] = (v)"},
    {BP_F16, "half", "float", "vload_half(i, p)", "vstore_half_rte((float)(v), i, p)"},
    {BP_BF16, "ushort", "float", "from_bf16((p)[i])", "(p)[i] = to_bf16(v)"},
    {BP_F64, "double", "double", "(p)[i]", "(p)[i] = (v)"},
    {BP_I64, "long", "long", "(p)[i]", "(p)[i] = (v)"},
    {BP_I32, "int", "long", "(p)[i]", "(p)[i] = (int)(v)"},
    {BP_I16, "short", "long", "(p)[i]", "(p)[i] = (short)(v)"},
    {BP_I8, "char", "long", "(p)[i]", "(p)[i] = (char)(v)"},
    {BP_U8, "uchar", "long", "(p)[i]", "(p)[i] = (uchar)(v)"},
    {BP_BOOL, "uchar", "long", "(p)[i]", "(p)[i] = (uchar)((v) != 0)"},
};

}  // namespace

std::string prelude(std::initializer_list<std::pair<const char*, bp_dtype>> dtypes) {
  std::string text;
  for (const auto& [name, dtype] : dtypes) {
    const auto* const element =
        std::ranges::find(kElements, dtype, [](const Element& e) { return e.dtype; });
    if (element == std::end(kElements)) bp::refuse_dtype(dtype);
    if (dtype == BP_F64) text += "#pragma OPENCL EXTENSION cl_khr_fp64 : enable\n";
    const std::string define = std::string("#define ") + name;
    text += define + "_T " + element->type + "\n" + define + "_A " + element->value + "\n" +
            define + "_LOAD(p, i) " + element->load + "\n" + define + "_STORE(p, i, v) " +
            element->store + "\n";
  }
  return text + kCommon;
}

Grid grid_at(std::initializer_list<const bp_tensor*> tensors) {
  Grid grid;
  size_t k = 0;
  for (const bp_tensor* const t : tensors) {
    if (t != nullptr) {
      grid.offset[k] = static_cast<int64_t>(t->byte_offset) / bp::dtype_size_bytes(t->dtype);
    }
    ++k;
  }
  return grid;
}

void add_axis(Grid& grid, int64_t extent, const int64_t (&strides)[4]) {
  grid.count *= extent;
  if (extent == 1) return;
  const int32_t last = grid.ndim - 1;
  bool merges = last >= 0;
  for (size_t k = 0; k < 4 && merges; ++k) {
    merges = grid.strides[k][last] == strides[k] * extent;
  }
  const int32_t axis = merges ? last : grid.ndim++;
  grid.shape[axis] = merges ? grid.shape[axis] * extent : extent;
  for (size_t k = 0; k < 4; ++k) grid.strides[k][axis] = strides[k];
}

Grid grid_of(std::initializer_list<const bp_tensor*> tensors) {
  Grid grid = grid_at(tensors);
  const bp_tensor& first = **tensors.begin();
  for (uint32_t axis = 0; axis < first.ndim; ++axis) {
    int64_t strides[4] = {};
    size_t k = 0;
    for (const bp_tensor* const t : tensors) strides[k++] = t == nullptr ? 0 : t->strides[axis];
    add_axis(grid, first.shape[axis], strides);
  }
  return grid;
}

}  // namespace acme_opencl
