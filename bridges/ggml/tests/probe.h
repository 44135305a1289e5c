// What the actions of probe share: tensors and graphs on a device, and checks.
#pragma once

#include <cstdio>
#include <cstdlib>
#include <numeric>
#include <string>
#include <vector>

#include "ggml-alloc.h"
#include "ggml-backend.h"
#include "ggml.h"

namespace probe {

#define EXPECT(condition)                                                       \
  do {                                                                          \
    if (!(condition)) {                                                         \
      std::printf("%s:%d: %s does not hold\n", __FILE__, __LINE__, #condition); \
      std::exit(1);                                                             \
    }                                                                           \
  } while (false)

using Floats = std::vector<float>;

inline Floats counted(size_t count, float start = 0) {
  Floats list(count);
  std::iota(list.begin(), list.end(), start);
  return list;
}

// Tensors without memory of their own, and a graph of them.
struct Context {
  Context() {
    const ggml_init_params params{ggml_tensor_overhead() * 64 + ggml_graph_overhead(), nullptr,
                                  true};
    ggml = ggml_init(params);
    graph = ggml_new_graph(ggml);
  }
  ~Context() {
    ggml_backend_buffer_free(buffer);
    ggml_free(ggml);
  }
  void allocate(ggml_backend_t backend) {
    buffer = ggml_backend_alloc_ctx_tensors(ggml, backend);
    EXPECT(buffer != nullptr);
  }
  ggml_context* ggml;
  ggml_cgraph* graph;
  ggml_backend_buffer_t buffer = nullptr;
};

inline Floats read(const ggml_tensor* tensor) {
  Floats list(ggml_nelements(tensor));
  ggml_backend_tensor_get(tensor, list.data(), 0, ggml_nbytes(tensor));
  return list;
}

inline void write(ggml_tensor* tensor, const Floats& list) {
  ggml_backend_tensor_set(tensor, list.data(), 0, list.size() * sizeof(float));
}

inline ggml_backend_t start(ggml_backend_dev_t device) {
  ggml_backend_t const backend = ggml_backend_dev_init(device, nullptr);
  EXPECT(backend != nullptr);
  return backend;
}

using Action = void(ggml_backend_dev_t device);

// In probe_memory.cpp.
Action move_bytes, allocate_too_much, use_host_memory, share_host_memory, be_refused_host_memory,
    use_pinned_memory;

}  // namespace probe
