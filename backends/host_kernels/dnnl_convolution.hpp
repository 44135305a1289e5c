// The convolutions of oneDNN: of f32, and of bf16 with sums in f32.
#pragma once

#include <memory>

#include "backends/host_kernels/convolution.hpp"
#include "backends/host_kernels/dnnl_program.hpp"

namespace bp::kernels {

// Returns whether oneDNN takes the strides of `view`, which must not repeat, reverse or overlap
// elements.
bool is_describable(const View& view);

// Returns the program for `c`, whose tensors are all describable and have elements. The externals
// of the program are x, weight, y and, if c.has_bias, the dense bias in f32. The program has no
// steps if a tensor is of bf16 and oneDNN has only its reference implementation, which is slow.
std::shared_ptr<const Program> find_convolution(const Convolution& c, const Env& env);

// The programs of a forward convolution with a packed weight. The externals of the convolution are
// x, a memory that is not read, y, the weight in the layout that the primitive wants, and, if
// c.has_bias, the bias. The packer packs a weight that lies as in `c`; its externals are from and
// to.
struct PackedConvolution {
  std::shared_ptr<const Program> program, packer;
  dnnl::memory::desc weight;
  bool is_repacked = false;  // The two layouts differ.
};
PackedConvolution make_packed_convolution(const Convolution& c, const Env& env);

}  // namespace bp::kernels
