# The sources of the kernels of the cuda backend, relative to its folder: device code and launches.
set(cuda_kernel_sources
  kernels/activation.cu
  kernels/adaptive_avg_pool.cu
  kernels/adaptive_max_pool.cu
  kernels/argmax.cu
  kernels/arrangement.cu
  kernels/avg_pool.cu
  kernels/blocks.cu
  kernels/cast.cu
  kernels/cat.cu
  kernels/channel_norm.cu
  kernels/channel_norm_backward.cu
  kernels/channel_norm_planes.cu
  kernels/convolution.cpp
  kernels/convolution_direct.cu
  kernels/cross_entropy.cu
  kernels/element_loss.cu
  kernels/embedding.cu
  kernels/gather.cu
  kernels/grad_norm.cu
  kernels/grouped_matmul.cu
  kernels/groups.cu
  kernels/interpolate.cu
  kernels/kv_cache_append.cu
  kernels/layer_norm.cu
  kernels/linear.cpp
  kernels/loop.cu
  kernels/matmul.cpp
  kernels/matmul_integers.cu
  kernels/matmul_scaled.cu
  kernels/max_pool.cu
  kernels/moe.cu
  kernels/movement.cu
  kernels/norm.cu
  kernels/norm_sums.cu
  kernels/optimizer.cu
  kernels/places.cu
  kernels/product.cpp
  kernels/product_library.cpp
  kernels/product_tiles.cu
  kernels/quantization.cu
  kernels/radix_sort.cu
  kernels/random.cu
  kernels/recurrent.cu
  kernels/recurrent_backward.cu
  kernels/recurrent_forward.cu
  kernels/recurrent_sums.cu
  kernels/reduce.cu
  kernels/reduction.cu
  kernels/repeated_product.cpp
  kernels/rope.cu
  kernels/rows.cu
  kernels/running.cu
  kernels/scan.cu
  kernels/scatter.cu
  kernels/sdpa.cu
  kernels/sdpa_backward.cu
  kernels/sdpa_backward_mma.cu
  kernels/sdpa_library.cu
  kernels/sdpa_mma.cu
  kernels/sdpa_mma_rounded.cu
  kernels/sdpa_paged.cu
  kernels/searchsorted.cu
  kernels/softmax.cu
  kernels/sort.cu
  kernels/topk.cu
  kernels/transpose.cu
  kernels/where.cu
)

# The kernels that ops_spec/emit_cuda.py writes to the build tree.
set(cuda_emitted_kernel_sources
  elementwise_1_of_4.cu
  elementwise_2_of_4.cu
  elementwise_3_of_4.cu
  elementwise_4_of_4.cu
  elementwise_list.hpp
)

# The files that ops_spec/emit_reductions.py writes there.
set(cuda_emitted_reduction_parts reductions.cuh reductions.def)

# The kernels that only NVIDIA's GPUs can run: they have instructions of its tensor cores in PTX, or
# call cuDNN. .ci/hip leaves them out.
set(cuda_kernel_sources_of_nvidia
  kernels/sdpa_backward_mma.cu
  kernels/sdpa_library.cu
  kernels/sdpa_mma.cu
  kernels/sdpa_mma_rounded.cu
)
