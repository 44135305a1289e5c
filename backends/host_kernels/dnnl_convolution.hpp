// The f32 convolutions of oneDNN.
#pragma once

#include <memory>

#include "backends/host_kernels/convolution.hpp"
#include "backends/host_kernels/dnnl_program.hpp"

namespace bp::kernels {

// Whether oneDNN takes the strides of `view`: none repeats, reverses or overlaps elements.
bool is_describable(const View& view);

// The program for `c`, all of whose tensors are describable and have elements. Its externals are x,
// weight, y and, where c.has_bias, the dense bias.
std::shared_ptr<const Program> find_convolution(const Convolution& c, const Env& env);

// The program of a forward convolution whose weight is in the layout that its primitive wants:
// externals are x, one that is not read, y, the packed weight and, where c.has_bias, the bias. And
// one that packs a weight that lies as in `c`: externals are from and to.
struct PackedConvolution {
  std::shared_ptr<const Program> program, packer;
  dnnl::memory::desc weight;
  bool is_repacked = false;  // The two layouts differ.
};
PackedConvolution make_packed_convolution(const Convolution& c, const Env& env);

}  // namespace bp::kernels
