# The sources of the kernels, for every backend that builds them, relative to this folder.
# The sources of the second list need oneDNN.
set(kernel_sources
  activation.cpp
  argmax.cpp
  avg_pool.cpp
  block_codec.cpp
  cat.cpp
  convolution_f64.cpp
  copy.cpp
  cross_entropy.cpp
  embedding.cpp
  gather.cpp
  gemm.cpp
  gemv.cpp
  layer_norm.cpp
  log_softmax.cpp
  loop.cpp
  max_pool.cpp
  max_pool_backward.cpp
  movement.cpp
  norm.cpp
  norm_backward.cpp
  norm_rows.cpp
  optimizer.cpp
  quantization.cpp
  random.cpp
  reduce.cpp
  reduction.cpp
  rms_norm.cpp
  rope.cpp
  scale_and_check.cpp
  scatter.cpp
  sdpa.cpp
  sdpa_backward.cpp
  sdpa_forward.cpp
  sdpa_sinks.cpp
  softmax.cpp
  softmax_backward.cpp
  softmax_backward_rows.cpp
  softmax_rows.cpp
  sort.cpp
  strided.cpp
  transpose.cpp
  where.cpp
)
# The sources that ops_spec/emit_highway.py and emit_reductions.py write to the build tree.
set(emitted_kernel_sources elementwise_binary.cpp elementwise_list.hpp elementwise_unary.cpp)
set(emitted_reduction_sources reductions-inl.hpp reductions.def)
set(library_kernel_sources
  convolution.cpp
  convolution_parts.cpp
  dnnl_convolution.cpp
  dnnl_program.cpp
  inner_product.cpp
  linear.cpp
  matmul.cpp
  matmul_integers.cpp
  product.cpp
  product_plan.cpp
)
# The sources of the kernels that the cpu backend alone has.
set(cpu_kernel_sources
  matmul_scaled.cpp
  scaled_library.cpp
  scaled_product.cpp
  scaled_rows.cpp
)
