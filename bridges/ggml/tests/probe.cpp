// Drives the library through ggml's public interface, for run_tests.py.
//
//   probe LIBRARY ACTION [DEVICE]
//
// An action prints what it found, and "ok" last; a check that does not hold ends it with status 1.
// Lines of ggml's log go to the standard error stream.
#include "probe.h"

#include <map>

namespace probe {
namespace {

void list_devices(ggml_backend_dev_t) {
  for (size_t i = 0; i < ggml_backend_dev_count(); ++i) {
    ggml_backend_dev_props props;
    ggml_backend_dev_get_props(ggml_backend_dev_get(i), &props);
    std::printf("device %s type %d total %d async %d, host memory %d, pinned %d\n", props.name,
                static_cast<int>(props.type), props.memory_total > 0, props.caps.async,
                props.caps.buffer_from_host_ptr, props.caps.host_buffer);
  }
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

const std::map<std::string, Action*> kActions = {
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
}  // namespace probe

int main(int argc, char** argv) {
  using probe::kActions;
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
