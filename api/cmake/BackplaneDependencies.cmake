# Finds every package that the project uses, once. If a required package is missing, the
# configuration stops. If an optional package is missing, what needs it is turned off, with a
# message.
#
# Sets BACKPLANE_WITH_CPU, _SIM, _VULKAN and _CUDA, which say whether these backends are built, and
# BACKPLANE_WITH_ONEDNN, which says whether cpu and sim have their kernels on oneDNN.
# BACKPLANE_WITH_GLOO and _MPI say whether cpu has process groups over them, and
# BACKPLANE_WITH_ONNX whether the importer of ONNX models is built. Defines backplane::yaml_cpp,
# since distributions have different names for it.

find_package(Threads REQUIRED)
find_package(nlohmann_json 3.10 REQUIRED)
find_package(CLI11 2.1 REQUIRED)

# The target of Debian 12 is yaml-cpp, of later releases yaml-cpp::yaml-cpp.
find_package(yaml-cpp REQUIRED)
add_library(backplane_yaml_cpp INTERFACE)
add_library(backplane::yaml_cpp ALIAS backplane_yaml_cpp)
target_link_libraries(backplane_yaml_cpp INTERFACE
  $<IF:$<TARGET_EXISTS:yaml-cpp::yaml-cpp>,yaml-cpp::yaml-cpp,yaml-cpp>)

if(BACKPLANE_BUILD_TESTS)
  find_package(GTest REQUIRED)
endif()

# Only runtime/bench needs this package.
find_package(benchmark QUIET)
if(NOT benchmark_FOUND)
  message(STATUS "Backplane: no benchmarks: Google Benchmark was not found (libbenchmark-dev)")
endif()

# The kernels of the cpu and the sim backend.
if(BACKPLANE_BUILD_CPU OR BACKPLANE_BUILD_SIM)
  find_package(hwy QUIET)
endif()

# The cpu backend.
set(BACKPLANE_WITH_CPU FALSE)
set(BACKPLANE_WITH_ONEDNN FALSE)
if(BACKPLANE_BUILD_CPU)
  set(missing "")
  # The wheel that .ci/setup installs comes before the packages of the system. Only this package is
  # looked for in .deps, which also holds a Python that lacks the generator's packages.
  find_package(dnnl 3.2 CONFIG QUIET HINTS ${PROJECT_SOURCE_DIR}/.deps)
  if(NOT dnnl_FOUND)
    list(APPEND missing "oneDNN 3.2 or newer (.ci/setup installs it into .deps)")
  endif()
  if(NOT hwy_FOUND)
    list(APPEND missing "Highway (libhwy-dev)")
  endif()
  find_package(OpenMP QUIET COMPONENTS CXX)
  if(NOT OpenMP_CXX_FOUND)
    list(APPEND missing "OpenMP of the C++ compiler")
  endif()
  list(JOIN missing ", " missing)
  if(missing STREQUAL "")
    set(BACKPLANE_WITH_CPU TRUE)
    set(BACKPLANE_WITH_ONEDNN TRUE)
    message(STATUS "Backplane: cpu backend with oneDNN ${dnnl_VERSION} (${dnnl_DIR})")
    # An installed plugin must find the wheel's library without this folder, so the library lies
    # beside it.
    cmake_path(IS_PREFIX PROJECT_SOURCE_DIR ${dnnl_DIR} NORMALIZE from_wheel)
    if(from_wheel)
      install(FILES $<TARGET_FILE:DNNL::dnnl> DESTINATION ${CMAKE_INSTALL_LIBDIR}/backplane
        RENAME $<TARGET_SONAME_FILE_NAME:DNNL::dnnl>)
      install(FILES ${PROJECT_SOURCE_DIR}/.deps/share/doc/onednn/LICENSE
        DESTINATION ${CMAKE_INSTALL_DOCDIR} RENAME LICENSE.onednn)
    endif()
  elseif(BACKPLANE_BUILD_CPU STREQUAL "AUTO")
    message(STATUS "Backplane: no cpu backend: missing ${missing}")
  else()
    message(FATAL_ERROR "Backplane: BACKPLANE_BUILD_CPU is ON, but missing: ${missing}")
  endif()
else()
  message(STATUS "Backplane: no cpu backend: BACKPLANE_BUILD_CPU is OFF")
endif()

# Process groups of the cpu backend, which gives buffers of its own to Gloo. A Gloo whose buffers
# have further functions without a body is not known here.
set(BACKPLANE_WITH_GLOO FALSE)
if(BACKPLANE_WITH_CPU)
  find_package(Gloo CONFIG QUIET)
  if(TARGET gloo)
    include(CheckCXXSourceCompiles)
    set(CMAKE_REQUIRED_LIBRARIES gloo)
    check_cxx_source_compiles("
#include <gloo/transport/context.h>
#include <gloo/transport/unbound_buffer.h>
struct Transport final : gloo::transport::Context {
  using Context::Context;
  std::unique_ptr<gloo::transport::Pair>& createPair(int rank) override;
  std::unique_ptr<gloo::transport::UnboundBuffer> createUnboundBuffer(void*, size_t) override;
};
struct Buffer final : gloo::transport::UnboundBuffer {
  using UnboundBuffer::UnboundBuffer;
  bool waitRecv(int*, std::chrono::milliseconds) override;
  bool waitSend(int*, std::chrono::milliseconds) override;
  void abortWaitRecv() override;
  void abortWaitSend() override;
  void send(int, uint64_t, size_t, size_t) override;
  void recv(int, uint64_t, size_t, size_t) override;
  void recv(std::vector<int>, uint64_t, size_t, size_t) override;
};
static_assert(!std::is_abstract<Transport>::value && !std::is_abstract<Buffer>::value, \"\");
int main() { return 0; }" BACKPLANE_GLOO_IS_KNOWN)
    unset(CMAKE_REQUIRED_LIBRARIES)
  endif()
  if(NOT TARGET gloo)
    message(STATUS "Backplane: no process groups over Gloo in the cpu backend: missing Gloo "
      "(libgloo-dev)")
  elseif(NOT BACKPLANE_GLOO_IS_KNOWN)
    message(STATUS "Backplane: no process groups over Gloo in the cpu backend: Gloo "
      "${Gloo_VERSION} (${Gloo_DIR}) has another interface than 0.5")
  else()
    set(BACKPLANE_WITH_GLOO TRUE)
    message(STATUS "Backplane: process groups in the cpu backend with Gloo ${Gloo_VERSION}")
  endif()
endif()

# Process groups of the cpu backend over MPI.
set(BACKPLANE_WITH_MPI FALSE)
if(BACKPLANE_WITH_CPU AND BACKPLANE_BUILD_MPI)
  find_package(MPI 3.1 QUIET COMPONENTS C)
  if(MPI_C_FOUND)
    set(BACKPLANE_WITH_MPI TRUE)
    message(STATUS "Backplane: process groups in the cpu backend over MPI ${MPI_C_VERSION} "
      "(${MPI_C_LIBRARIES})")
  elseif(BACKPLANE_BUILD_MPI STREQUAL "AUTO")
    message(STATUS "Backplane: no process groups over MPI in the cpu backend: missing MPI 3.1 "
      "(libopenmpi-dev)")
  else()
    message(FATAL_ERROR "Backplane: BACKPLANE_BUILD_MPI is ON, but missing: MPI 3.1 "
      "(libopenmpi-dev)")
  endif()
elseif(BACKPLANE_WITH_CPU)
  message(STATUS "Backplane: no process groups over MPI in the cpu backend: BACKPLANE_BUILD_MPI is "
    "OFF")
elseif(BACKPLANE_BUILD_MPI AND NOT BACKPLANE_BUILD_MPI STREQUAL "AUTO")
  message(FATAL_ERROR "Backplane: BACKPLANE_BUILD_MPI is ON, but there is no cpu backend")
endif()

# The importer of ONNX models reads them with protobuf, whose code for the messages is generated
# from ONNX's own onnx.proto.
set(BACKPLANE_WITH_ONNX FALSE)
if(BACKPLANE_BUILD_ONNX)
  set(missing "")
  # Releases from 22 on need the targets of their own package.
  find_package(Protobuf CONFIG QUIET)
  if(NOT TARGET protobuf::libprotobuf-lite)
    find_package(Protobuf 3.12 QUIET)
  endif()
  if(NOT TARGET protobuf::libprotobuf-lite)
    list(APPEND missing "protobuf 3.12 or newer (libprotobuf-dev)")
  endif()
  if(NOT TARGET protobuf::protoc)
    list(APPEND missing "protoc (protobuf-compiler)")
  endif()
  find_path(BACKPLANE_ONNX_PROTO_DIR onnx/onnx.proto
    DOC "The folder that has onnx/onnx.proto (Debian: libonnx-dev)")
  if(NOT BACKPLANE_ONNX_PROTO_DIR)
    list(APPEND missing "onnx/onnx.proto (libonnx-dev)")
  endif()
  list(JOIN missing ", " missing)
  if(missing STREQUAL "")
    set(BACKPLANE_WITH_ONNX TRUE)
    message(STATUS "Backplane: importer of ONNX models with protobuf ${Protobuf_VERSION}")
  elseif(BACKPLANE_BUILD_ONNX STREQUAL "AUTO")
    message(STATUS "Backplane: no importer of ONNX models: missing ${missing}")
  else()
    message(FATAL_ERROR "Backplane: BACKPLANE_BUILD_ONNX is ON, but missing: ${missing}")
  endif()
else()
  message(STATUS "Backplane: no importer of ONNX models: BACKPLANE_BUILD_ONNX is OFF")
endif()

# The sim backend. Without the cpu backend it is built without oneDNN, and lacks the kernels that
# need it.
set(BACKPLANE_WITH_SIM FALSE)
if(BACKPLANE_BUILD_SIM AND hwy_FOUND AND UNIX)
  set(BACKPLANE_WITH_SIM TRUE)
  message(STATUS "Backplane: sim backend")
elseif(NOT BACKPLANE_BUILD_SIM)
  message(STATUS "Backplane: no sim backend: BACKPLANE_BUILD_SIM is OFF")
elseif(BACKPLANE_BUILD_SIM STREQUAL "AUTO")
  message(STATUS "Backplane: no sim backend: missing Highway (libhwy-dev)")
else()
  message(FATAL_ERROR "Backplane: BACKPLANE_BUILD_SIM is ON, but missing: Highway (libhwy-dev)")
endif()

# The vulkan backend needs headers and a compiler of shaders. The loader is opened at run time.
set(BACKPLANE_WITH_VULKAN FALSE)
if(BACKPLANE_BUILD_VULKAN)
  set(missing "")
  find_path(BACKPLANE_VULKAN_INCLUDE_DIR vulkan/vulkan_core.h
    DOC "Where the headers of Vulkan are (Debian: libvulkan-dev)")
  if(NOT BACKPLANE_VULKAN_INCLUDE_DIR)
    list(APPEND missing "the headers of Vulkan (libvulkan-dev)")
  endif()
  find_program(BACKPLANE_GLSLANG NAMES glslangValidator glslang
    DOC "Compiles GLSL to SPIR-V (Debian: glslang-tools)")
  if(NOT BACKPLANE_GLSLANG)
    list(APPEND missing "glslangValidator (glslang-tools)")
  endif()
  if(NOT UNIX)
    list(APPEND missing "a POSIX system")
  endif()
  list(JOIN missing ", " missing)
  if(missing STREQUAL "")
    set(BACKPLANE_WITH_VULKAN TRUE)
    add_library(backplane_vulkan_headers INTERFACE)
    target_include_directories(backplane_vulkan_headers SYSTEM INTERFACE
      ${BACKPLANE_VULKAN_INCLUDE_DIR})
    message(STATUS "Backplane: vulkan backend")
  elseif(BACKPLANE_BUILD_VULKAN STREQUAL "AUTO")
    message(STATUS "Backplane: no vulkan backend: missing ${missing}")
  else()
    message(FATAL_ERROR "Backplane: BACKPLANE_BUILD_VULKAN is ON, but missing: ${missing}")
  endif()
else()
  message(STATUS "Backplane: no vulkan backend: BACKPLANE_BUILD_VULKAN is OFF")
endif()

# The cuda backend needs the compiler and the headers of the CUDA runtime. The driver and the
# libraries are looked for at run time.
set(BACKPLANE_WITH_CUDA FALSE)
if(BACKPLANE_BUILD_CUDA)
  set(missing "")
  include(CheckLanguage)
  # The toolkit may be installed in its usual place without being on the path.
  find_program(BACKPLANE_NVCC nvcc HINTS ENV CUDA_PATH PATHS /usr/local/cuda/bin)
  mark_as_advanced(BACKPLANE_NVCC)
  if(BACKPLANE_NVCC AND NOT CMAKE_CUDA_COMPILER)
    set(CMAKE_CUDA_COMPILER ${BACKPLANE_NVCC})
  endif()
  check_language(CUDA)
  if(CMAKE_CUDA_COMPILER)
    find_package(CUDAToolkit 12.2 QUIET)
  endif()
  if(NOT CMAKE_CUDA_COMPILER)
    list(APPEND missing "nvcc (the CUDA toolkit, 12.2 or newer)")
  elseif(NOT CUDAToolkit_FOUND OR NOT TARGET CUDA::cudart_static)
    list(APPEND missing "the CUDA toolkit's libcudart_static.a, 12.2 or newer")
  else()
    # Only headers are needed, from the toolkit or from the wheels of a Python environment. The
    # libraries are opened at run time.
    set(BACKPLANE_CUDA_PYTHON "" CACHE PATH
      "A Python environment, or its site-packages, with NVIDIA's wheels: their headers are used")
    file(GLOB wheels LIST_DIRECTORIES TRUE
      ${BACKPLANE_CUDA_PYTHON}/nvidia/*/include
      ${BACKPLANE_CUDA_PYTHON}/lib/python3*/site-packages/nvidia/*/include)
    set(BACKPLANE_CUDA_INCLUDE_DIRS ${CUDAToolkit_INCLUDE_DIRS})
    foreach(header IN ITEMS cublasLt.h cudnn_graph.h nccl.h)
      find_path(BACKPLANE_${header} ${header} HINTS ${CUDAToolkit_INCLUDE_DIRS} PATHS ${wheels})
      mark_as_advanced(BACKPLANE_${header})
      if(BACKPLANE_${header})
        list(APPEND BACKPLANE_CUDA_INCLUDE_DIRS ${BACKPLANE_${header}})
      else()
        list(APPEND missing "${header} (in the toolkit, or in wheels in BACKPLANE_CUDA_PYTHON)")
      endif()
    endforeach()
    list(REMOVE_DUPLICATES BACKPLANE_CUDA_INCLUDE_DIRS)
  endif()
  list(JOIN missing ", " missing)
  if(missing STREQUAL "")
    # A release has code for each generation of data centres and desktops, because a driver takes
    # minutes to make it from PTX at the first use. PTX is there too, for what comes later. Code of
    # sm_100 and sm_120 needs nvcc 12.8.
    if(CMAKE_BUILD_TYPE STREQUAL "Release" AND CUDAToolkit_VERSION VERSION_GREATER_EQUAL 12.8)
      set(architectures "80-real;90-real;100-real;120")
    else()
      set(architectures "80-real;90")
    endif()
    set(CMAKE_CUDA_ARCHITECTURES ${architectures} CACHE STRING
      "What device code is compiled for; a number without -real has PTX for newer devices too")
    set(CMAKE_CUDA_HOST_COMPILER ${CMAKE_CXX_COMPILER} CACHE FILEPATH "nvcc's C++ compiler")
    if(CMAKE_CXX_COMPILER_LAUNCHER AND NOT CMAKE_CUDA_COMPILER_LAUNCHER)
      set(CMAKE_CUDA_COMPILER_LAUNCHER ${CMAKE_CXX_COMPILER_LAUNCHER})
    endif()
    enable_language(CUDA)
    set(BACKPLANE_WITH_CUDA TRUE)
    message(STATUS "Backplane: cuda backend with CUDA ${CUDAToolkit_VERSION} for "
      "${CMAKE_CUDA_ARCHITECTURES}")
  elseif(BACKPLANE_BUILD_CUDA STREQUAL "AUTO")
    message(STATUS "Backplane: no cuda backend: missing ${missing}")
  else()
    message(FATAL_ERROR "Backplane: BACKPLANE_BUILD_CUDA is ON, but missing: ${missing}")
  endif()
else()
  message(STATUS "Backplane: no cuda backend: BACKPLANE_BUILD_CUDA is OFF")
endif()
