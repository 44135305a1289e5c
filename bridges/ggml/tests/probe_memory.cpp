// Actions of probe that are about memory: of the device, of the program, and pinned.
#include <sys/mman.h>

#include <cstring>

#include "probe.h"

namespace probe {

void move_bytes(ggml_backend_dev_t device) {
  ggml_backend_t const backend = start(device);
  Context c;
  ggml_tensor* const x = ggml_new_tensor_1d(c.ggml, GGML_TYPE_F32, 1000);
  ggml_tensor* const y = ggml_new_tensor_1d(c.ggml, GGML_TYPE_F32, 1000);
  c.allocate(backend);
  const Floats values = counted(1000);
  write(x, values);
  EXPECT(read(x) == values);
  const Floats part = counted(10, -5);
  ggml_backend_tensor_set(x, part.data(), 40, 40);
  EXPECT(read(x)[10] == -5 && read(x)[19] == 4 && read(x)[9] == 9 && read(x)[20] == 20);
  ggml_backend_tensor_copy(x, y);
  EXPECT(read(y) == read(x));
  ggml_backend_tensor_memset(y, 0, 4, 8);
  EXPECT(read(y)[0] == 0 && read(y)[1] == 0 && read(y)[2] == 0 && read(y)[3] == 3);
  ggml_backend_buffer_clear(c.buffer, 0);
  EXPECT(read(x) == Floats(1000, 0.0f));
  ggml_backend_free(backend);
}

void allocate_too_much(ggml_backend_dev_t device) {
  ggml_backend_buffer_type_t const type = ggml_backend_dev_buffer_type(device);
  EXPECT(ggml_backend_buft_alloc_buffer(type, size_t{1} << 50) == nullptr);
  ggml_backend_buffer_t const small = ggml_backend_buft_alloc_buffer(type, 1 << 16);
  EXPECT(small != nullptr);
  ggml_backend_buffer_free(small);
}

// A tensor in memory of the program that may only be read, as in a mapped model. It is freed and
// unmapped while work still uses it.
void use_host_memory(ggml_backend_dev_t device) {
  ggml_backend_t const backend = start(device);
  constexpr size_t kBytes = 1 << 16, kBegin = 96;
  for (int i = 0; i < 20; ++i) {
    auto* const memory = static_cast<char*>(
        mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    const Floats values = counted(4096, static_cast<float>(i));
    std::memcpy(memory + kBegin + 64, values.data(), values.size() * sizeof(float));
    EXPECT(mprotect(memory, kBytes, PROT_READ) == 0);
    Context c, weights;
    ggml_tensor* const x = ggml_new_tensor_1d(weights.ggml, GGML_TYPE_F32, 4096);
    ggml_tensor* const y = ggml_add(c.ggml, x, x);
    ggml_build_forward_expand(c.graph, y);
    weights.buffer = ggml_backend_dev_buffer_from_host_ptr(device, memory + kBegin, kBytes - kBegin,
                                                           kBytes - kBegin);
    EXPECT(weights.buffer != nullptr);
    EXPECT(ggml_backend_buffer_get_base(weights.buffer) == memory + kBegin);
    EXPECT(ggml_backend_tensor_alloc(weights.buffer, x, memory + kBegin + 64) ==
           GGML_STATUS_SUCCESS);
    c.allocate(backend);
    EXPECT(read(x) == values);
    EXPECT(ggml_backend_graph_compute_async(backend, c.graph) == GGML_STATUS_SUCCESS);
    ggml_backend_buffer_free(weights.buffer);
    weights.buffer = nullptr;
    EXPECT(munmap(memory, kBytes) == 0);
    ggml_backend_synchronize(backend);
    const Floats sums = read(y);
    for (int j = 0; j < 4096; ++j) EXPECT(sums[j] == 2 * values[j]);
  }
  ggml_backend_free(backend);
}

void be_refused_host_memory(ggml_backend_dev_t device) {
  alignas(4096) static float memory[1024];
  EXPECT(ggml_backend_dev_buffer_from_host_ptr(device, memory, sizeof(memory), 64) == nullptr);
}

// What the program writes to lent memory is seen by the device, so that nothing was copied.
void share_host_memory(ggml_backend_dev_t device) {
  ggml_backend_t const backend = start(device);
  alignas(4096) static float memory[4096];
  Context c, weights;
  ggml_tensor* const x = ggml_new_tensor_1d(weights.ggml, GGML_TYPE_F32, 4096);
  ggml_tensor* const y = ggml_add(c.ggml, x, x);
  ggml_build_forward_expand(c.graph, y);
  weights.buffer =
      ggml_backend_dev_buffer_from_host_ptr(device, memory, sizeof(memory), sizeof(memory));
  EXPECT(weights.buffer != nullptr);
  EXPECT(ggml_backend_tensor_alloc(weights.buffer, x, memory) == GGML_STATUS_SUCCESS);
  c.allocate(backend);
  for (float value : {1.0f, 5.0f}) {
    memory[17] = value;
    EXPECT(ggml_backend_graph_compute(backend, c.graph) == GGML_STATUS_SUCCESS);
    EXPECT(read(y)[17] == 2 * value);
  }
  ggml_backend_free(backend);
}

// Copies between pinned memory and the device in both directions.
void use_pinned_memory(ggml_backend_dev_t device) {
  ggml_backend_t const backend = start(device);
  ggml_backend_buffer_type_t const type = ggml_backend_dev_host_buffer_type(device);
  EXPECT(type != nullptr && ggml_backend_buft_is_host(type));
  EXPECT(ggml_backend_buft_get_device(type) == device);
  ggml_backend_buffer_t const pinned = ggml_backend_buft_alloc_buffer(type, 2 * 16384);
  EXPECT(pinned != nullptr && ggml_backend_buffer_is_host(pinned));
  auto* const from = static_cast<float*>(ggml_backend_buffer_get_base(pinned));
  float* const to = from + 4096;
  Context c;
  ggml_tensor* const x = ggml_new_tensor_1d(c.ggml, GGML_TYPE_F32, 4096);
  c.allocate(backend);
  for (int i = 0; i < 20; ++i) {
    const Floats values = counted(4096, static_cast<float>(i));
    std::memcpy(from, values.data(), 16384);
    ggml_backend_tensor_set_async(backend, x, from, 0, 16384);
    ggml_backend_tensor_get_async(backend, x, to, 0, 16384);
    ggml_backend_synchronize(backend);
    EXPECT(std::memcmp(to, values.data(), 16384) == 0);
  }
  ggml_backend_buffer_free(pinned);
  EXPECT(ggml_backend_buft_alloc_buffer(type, size_t{1} << 50) == nullptr);
  ggml_backend_free(backend);
}

}  // namespace probe
