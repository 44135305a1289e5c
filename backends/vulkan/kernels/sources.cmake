# The host side of the kernels, relative to the folder of the backend.
set(vulkan_kernel_sources
  kernels/activation.cpp
  kernels/arange.cpp
  kernels/arrangement.cpp
  kernels/axes.cpp
  kernels/blocks.cpp
  kernels/cat.cpp
  kernels/channel_norm.cpp
  kernels/channel_norm_backward.cpp
  kernels/columns.cpp
  kernels/convolution.cpp
  kernels/cross_entropy.cpp
  kernels/element_loss.cpp
  kernels/embedding.cpp
  kernels/gather.cpp
  kernels/interpolate.cpp
  kernels/linear.cpp
  kernels/map.cpp
  kernels/matmul.cpp
  kernels/matmul_scaled.cpp
  kernels/movement.cpp
  kernels/norm.cpp
  kernels/optimizer.cpp
  kernels/places.cpp
  kernels/pool.cpp
  kernels/product.cpp
  kernels/quantization.cpp
  kernels/random.cpp
  kernels/recurrent.cpp
  kernels/recurrent_backward.cpp
  kernels/recurrent_forward.cpp
  kernels/reduce.cpp
  kernels/reduction.cpp
  kernels/rope.cpp
  kernels/rows.cpp
  kernels/running.cpp
  kernels/scan.cpp
  kernels/scatter.cpp
  kernels/sdpa.cpp
  kernels/sdpa_products.cpp
  kernels/searchsorted.cpp
  kernels/softmax.cpp
  kernels/sort.cpp
  kernels/submit.cpp
  kernels/walk.cpp
  kernels/where.cpp
)

# The files that ops_spec/emit_glsl.py writes to the build tree: kernels, and includes of shaders.
set(vulkan_emitted_kernel_sources elementwise_kernels.cpp elementwise_list.hpp)
set(vulkan_emitted_shader_parts
  elementwise_f32.glsl
  elementwise_f64.glsl
  elementwise_integers.glsl
  elementwise_ops.def)

# The files that ops_spec/emit_reductions.py writes there.
set(vulkan_emitted_reduction_sources reductions.def reductions.hpp)
set(vulkan_emitted_reduction_parts
  reductions_f32.glsl
  reductions_f64.glsl
  reductions_integers.glsl)
