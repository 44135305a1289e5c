// Drives the library through ggml's public interface, for run_tests.py.
//
//   probe LIBRARY ACTION [DEVICE]
//
// An action prints what it found, and "ok" last; a check that does not hold ends it with status 1.
// Lines of ggml's log go to the standard error stream.
#include <sys/mman.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <numeric>
#include <string>
#include <vector>

#include "ggml-alloc.h"
#include "ggml-backend.h"
#include "ggml.h"

namespace {

#define EXPECT(condition)                                                       \
  do {                                                                          \
    if (!(condition)) {                                                         \
      std::printf("%s:%d: %s does not hold\n", __FILE__, __LINE__, #condition); \
      std::exit(1);                                                             \
    }                                                                           \
  } while (false)

using Floats = std::vector<float>;

Floats counted(size_t count, float start = 0) {
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

Floats read(const ggml_tensor* tensor) {
  Floats list(ggml_nelements(tensor));
  ggml_backend_tensor_get(tensor, list.data(), 0, ggml_nbytes(tensor));
  return list;
}

void write(ggml_tensor* tensor, const Floats& list) {
  ggml_backend_tensor_set(tensor, list.data(), 0, list.size() * sizeof(float));
}

ggml_backend_t start(ggml_backend_dev_t device) {
  ggml_backend_t const backend = ggml_backend_dev_init(device, nullptr);
  EXPECT(backend != nullptr);
  return backend;
}

// ---- Actions ------------------------------------------------------------------------------------

void list_devices(ggml_backend_dev_t) {
  for (size_t i = 0; i < ggml_backend_dev_count(); ++i) {
    ggml_backend_dev_props props;
    ggml_backend_dev_get_props(ggml_backend_dev_get(i), &props);
    std::printf("device %s type %d total %d async %d, host memory %d, pinned %d\n", props.name,
                static_cast<int>(props.type), props.memory_total > 0, props.caps.async,
                props.caps.buffer_from_host_ptr, props.caps.host_buffer);
  }
}

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

void compute_and_wait(ggml_backend_dev_t device) {
  ggml_backend_t const first = start(device), second = start(device);
  Context c;
  ggml_tensor* const x = ggml_new_tensor_1d(c.ggml, GGML_TYPE_F32, 4096);
  ggml_tensor* const y = ggml_add(c.ggml, x, x);
  ggml_tensor* const copy = ggml_new_tensor_1d(c.ggml, GGML_TYPE_F32, 4096);
  ggml_build_forward_expand(c.graph, y);
  c.allocate(first);
  EXPECT(ggml_backend_supports_op(first, y));
  ggml_backend_event_t const event = ggml_backend_event_new(device);
  EXPECT(event != nullptr);
  Floats result(4096);
  for (int i = 0; i < 20; ++i) {
    const Floats values = counted(4096, static_cast<float>(i));
    ggml_backend_tensor_set_async(first, x, values.data(), 0, ggml_nbytes(x));
    EXPECT(ggml_backend_graph_compute_async(first, c.graph) == GGML_STATUS_SUCCESS);
    ggml_backend_event_record(event, first);
    ggml_backend_event_wait(second, event);
    ggml_backend_tensor_copy_async(second, second, y, copy);
    ggml_backend_tensor_get_async(second, copy, result.data(), 0, ggml_nbytes(copy));
    ggml_backend_synchronize(second);
    for (int j = 0; j < 4096; ++j) EXPECT(result[j] == 2 * (values[j]));
  }
  ggml_backend_event_synchronize(event);
  ggml_backend_event_free(event);
  ggml_backend_free(second);
  ggml_backend_free(first);
}

// A buffer goes while work still uses it, and the next one may get its memory.
void free_early(ggml_backend_dev_t device) {
  ggml_backend_t const backend = start(device);
  for (int i = 0; i < 20; ++i) {
    Context c;
    ggml_tensor* const x = ggml_new_tensor_2d(c.ggml, GGML_TYPE_F32, 128, 128);
    ggml_tensor* const y = ggml_mul_mat(c.ggml, x, x);
    ggml_build_forward_expand(c.graph, y);
    c.allocate(backend);
    write(x, Floats(128 * 128, 1.0f));
    EXPECT(ggml_backend_graph_compute_async(backend, c.graph) == GGML_STATUS_SUCCESS);
  }
  ggml_backend_synchronize(backend);
  ggml_backend_free(backend);
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

// An op that the device does not compute, given to it all the same.
void compute_unsupported(ggml_backend_dev_t device) {
  ggml_backend_t const backend = start(device);
  Context c;
  ggml_tensor* const x = ggml_new_tensor_2d(c.ggml, GGML_TYPE_IQ2_XXS, 256, 4);
  ggml_tensor* const y = ggml_new_tensor_2d(c.ggml, GGML_TYPE_F32, 256, 2);
  ggml_tensor* const product = ggml_mul_mat(c.ggml, x, y);
  ggml_build_forward_expand(c.graph, product);
  c.allocate(backend);
  EXPECT(!ggml_backend_supports_op(backend, product));
  EXPECT(ggml_backend_graph_compute(backend, c.graph) == GGML_STATUS_FAILED);
  ggml_backend_free(backend);
}

void allocate_too_much(ggml_backend_dev_t device) {
  ggml_backend_buffer_type_t const type = ggml_backend_dev_buffer_type(device);
  EXPECT(ggml_backend_buft_alloc_buffer(type, size_t{1} << 50) == nullptr);
  ggml_backend_buffer_t const small = ggml_backend_buft_alloc_buffer(type, 1 << 16);
  EXPECT(small != nullptr);
  ggml_backend_buffer_free(small);
}

// The graph needs memory for what lies between its launches, and there is none.
void run_out_of_memory(ggml_backend_dev_t device) {
  ggml_backend_t const backend = start(device);
  Context c;
  ggml_tensor* const x = ggml_new_tensor_1d(c.ggml, GGML_TYPE_F32, 2 << 20);
  ggml_tensor* const y = ggml_gelu_quick(c.ggml, x);
  ggml_build_forward_expand(c.graph, y);
  c.allocate(backend);
  EXPECT(ggml_backend_graph_compute(backend, c.graph) == GGML_STATUS_ALLOC_FAILED);
  ggml_backend_free(backend);
}

// The layer "fault" loses the device at a launch.
void lose_device(ggml_backend_dev_t device) {
  ggml_backend_t const backend = start(device);
  Context c;
  ggml_tensor* const x = ggml_new_tensor_1d(c.ggml, GGML_TYPE_F32, 64);
  ggml_tensor* const y = ggml_add(c.ggml, x, x);
  ggml_build_forward_expand(c.graph, y);
  c.allocate(backend);
  write(x, counted(64));
  EXPECT(ggml_backend_graph_compute(backend, c.graph) == GGML_STATUS_SUCCESS);
  EXPECT(ggml_backend_graph_compute(backend, c.graph) == GGML_STATUS_FAILED);
  EXPECT(ggml_backend_graph_compute(backend, c.graph) == GGML_STATUS_FAILED);
  ggml_backend_free(backend);
}

// Rows by their numbers: in any order, one of them twice, with a step, and of one element.
void set_rows(ggml_backend_dev_t device) {
  ggml_backend_t const backend = start(device);
  Context c;
  ggml_tensor* const table = ggml_new_tensor_2d(c.ggml, GGML_TYPE_F32, 4, 20);
  ggml_tensor* const x = ggml_new_tensor_2d(c.ggml, GGML_TYPE_F32, 4, 8);
  ggml_tensor* const rows = ggml_new_tensor_1d(c.ggml, GGML_TYPE_I64, 8);
  ggml_tensor* const column = ggml_new_tensor_2d(c.ggml, GGML_TYPE_F32, 1, 20);
  ggml_tensor* const narrow = ggml_new_tensor_1d(c.ggml, GGML_TYPE_I32, 8);
  ggml_tensor* const values = ggml_new_tensor_2d(c.ggml, GGML_TYPE_F32, 1, 8);
  ggml_tensor* const y = ggml_set_rows(c.ggml, table, x, rows);
  ggml_tensor* const z = ggml_set_rows(c.ggml, column, values, narrow);
  ggml_build_forward_expand(c.graph, y);
  ggml_build_forward_expand(c.graph, z);
  c.allocate(backend);
  const int64_t numbers[] = {2, 5, 8, 11, 3, 2, 19, 0};
  const int32_t numbers32[] = {2, 5, 8, 11, 3, 2, 19, 0};
  Floats expected(80, -1), expected_column(20, -1);
  write(table, expected);
  write(column, expected_column);
  write(x, counted(32));
  write(values, counted(8));
  ggml_backend_tensor_set(rows, numbers, 0, sizeof(numbers));
  ggml_backend_tensor_set(narrow, numbers32, 0, sizeof(numbers32));
  for (int i = 0; i < 8; ++i) {
    for (int j = 0; j < 4; ++j) expected[numbers[i] * 4 + j] = static_cast<float>(4 * i + j);
    expected_column[numbers[i]] = static_cast<float>(i);
  }
  EXPECT(ggml_backend_supports_op(backend, y) && ggml_backend_supports_op(backend, z));
  EXPECT(ggml_backend_graph_compute(backend, c.graph) == GGML_STATUS_SUCCESS);
  EXPECT(read(table) == expected && read(column) == expected_column);
  ggml_backend_free(backend);
}

// A row that is not there, where the device has no kernel that writes rows.
void set_missing_row(ggml_backend_dev_t device) {
  ggml_backend_t const backend = start(device);
  Context c;
  ggml_tensor* const table = ggml_new_tensor_2d(c.ggml, GGML_TYPE_F32, 4, 20);
  ggml_tensor* const x = ggml_new_tensor_2d(c.ggml, GGML_TYPE_F32, 4, 1);
  ggml_tensor* const rows = ggml_new_tensor_1d(c.ggml, GGML_TYPE_I64, 1);
  ggml_build_forward_expand(c.graph, ggml_set_rows(c.ggml, table, x, rows));
  c.allocate(backend);
  const int64_t wrong = 20;
  ggml_backend_tensor_set(rows, &wrong, 0, sizeof(wrong));
  EXPECT(ggml_backend_graph_compute(backend, c.graph) == GGML_STATUS_FAILED);
  ggml_backend_free(backend);
}

// An op whose decomposition needs a kernel that the device lacks.
void compute_half_served(ggml_backend_dev_t device) {
  ggml_backend_t const backend = start(device);
  Context c;
  ggml_tensor* const x = ggml_new_tensor_1d(c.ggml, GGML_TYPE_F32, 16);
  ggml_tensor* const y = ggml_roll(c.ggml, x, 3, 0, 0, 0);
  ggml_tensor* const z = ggml_add(c.ggml, x, x);
  ggml_build_forward_expand(c.graph, y);
  c.allocate(backend);
  for (int i = 0; i < 2; ++i) EXPECT(!ggml_backend_supports_op(backend, y));
  EXPECT(ggml_backend_supports_op(backend, z));
  EXPECT(ggml_backend_graph_compute(backend, c.graph) == GGML_STATUS_FAILED);
  ggml_backend_free(backend);
}

// A row that is not there. The next graph runs.
void read_missing_row(ggml_backend_dev_t device) {
  ggml_backend_t const backend = start(device);
  Context c;
  ggml_tensor* const x = ggml_new_tensor_2d(c.ggml, GGML_TYPE_F32, 8, 4);
  ggml_tensor* const rows = ggml_new_tensor_1d(c.ggml, GGML_TYPE_I32, 2);
  ggml_tensor* const y = ggml_get_rows(c.ggml, x, rows);
  ggml_build_forward_expand(c.graph, y);
  c.allocate(backend);
  write(x, counted(32));
  const int32_t wrong[] = {1, 7}, right[] = {1, 3};
  ggml_backend_tensor_set(rows, wrong, 0, sizeof(wrong));
  ggml_backend_graph_compute(backend, c.graph);
  ggml_backend_synchronize(backend);
  std::fflush(stderr);
  ggml_backend_tensor_set(rows, right, 0, sizeof(right));
  EXPECT(ggml_backend_graph_compute(backend, c.graph) == GGML_STATUS_SUCCESS);
  EXPECT(read(y)[0] == 8 && read(y)[8] == 24);
  ggml_backend_free(backend);
}

const std::map<std::string, void (*)(ggml_backend_dev_t)> kActions = {
    {"devices", list_devices},
    {"bytes", move_bytes},
    {"events", compute_and_wait},
    {"free-early", free_early},
    {"unsupported", compute_unsupported},
    {"too-much", allocate_too_much},
    {"out-of-memory", run_out_of_memory},
    {"lost", lose_device},
    {"missing-row", read_missing_row},
    {"host-memory", use_host_memory},
    {"host-refused", be_refused_host_memory},
    {"shared-memory", share_host_memory},
    {"pinned", use_pinned_memory},
    {"set-rows", set_rows},
    {"set-missing-row", set_missing_row},
    {"half-served", compute_half_served},
};

}  // namespace

int main(int argc, char** argv) {
  if (argc < 3 || kActions.count(argv[2]) == 0) {
    std::fprintf(stderr, "usage: probe LIBRARY ACTION [DEVICE]\n");
    return 2;
  }
  ggml_backend_reg_t const library = ggml_backend_load(argv[1]);
  std::printf("library %s\n", library != nullptr ? ggml_backend_reg_name(library) : "refused");
  ggml_backend_dev_t device = nullptr;
  if (argc > 3) {
    device = ggml_backend_dev_by_name(argv[3]);
    EXPECT(device != nullptr);
  }
  kActions.at(argv[2])(device);
  std::printf("ok\n");
  return 0;
}
