# The kernels of the cuda backend, relative to its folder: device code and what launches it.
set(cuda_kernel_sources)
