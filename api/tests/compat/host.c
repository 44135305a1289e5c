/* A host that knows only the headers it is compiled with. It loads a backend, takes its tables, and
 * uses each of them once. The matrix compiles it with every set of headers.
 *
 * usage: host BACKEND OLDEST_MINOR    the oldest minor that this host serves while the major is 0
 *
 * Prints one line: "served 0.1", "refused: why; majors 0 to 0" or "FAILED: what". A host of ABI 0.2
 * or older cannot read the majors. */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "exercise.h"

/* The end of a member of the first release. Every table reaches at least to it. */
#define END(type, member) (uint32_t)(offsetof(type, member) + sizeof(((type*)NULL)->member))
#define TAKE(ours, theirs, type, last)                                                     \
  do {                                                                                     \
    if ((theirs) == NULL) failed(#type " is NULL");                                        \
    if (bp_struct_read((theirs), END(type, last), &(ours), sizeof(type), NULL) != BP_OK) { \
      failed(#type " is shorter than in the first release");                               \
    }                                                                                      \
    fill_##type(&(ours));                                                                  \
  } while (0)

/* The tables that the backend registered. */
typedef struct registered {
  tables t;
  uint64_t device_count, kernel_count;
} registered;

static bp_status accept(bp_add_result* out_result) {
  if (out_result != NULL) *out_result = (bp_add_result){.outcome = BP_ADD_ACCEPTED};
  return BP_OK;
}

static bp_status add_device(void* self, uint64_t device_count, bp_device* const* device_list,
                            const bp_device_ops* devices, bp_add_result* out_result) {
  registered* r = self;
  TAKE(r->t.devices, devices, bp_device_ops, set_option);
  if (device_count != 0) {
    r->t.device = device_list[0];
    r->device_count = device_count;
  } else {
    bp_device* first = NULL;
    expect_ok(r->t.devices.enumerate(r->t.devices.self, 1, &first, &r->device_count), "enumerate");
    r->t.device = first;
  }
  return accept(out_result);
}

static bp_status add_allocator(void* self, uint64_t device_count, bp_device* const* device_list,
                               const bp_allocator_ops* allocator, bp_add_result* out_result) {
  (void)device_count, (void)device_list;
  TAKE(((registered*)self)->t.allocator, allocator, bp_allocator_ops, fill);
  return accept(out_result);
}

static bp_status add_streams(void* self, uint64_t device_count, bp_device* const* device_list,
                             const bp_stream_ops* streams, const bp_event_ops* events,
                             bp_add_result* out_result) {
  registered* r = self;
  (void)device_count, (void)device_list;
  TAKE(r->t.streams, streams, bp_stream_ops, add_callback);
  TAKE(r->t.events, events, bp_event_ops, signal);
  return accept(out_result);
}

static bp_status add_kernels(void* self, uint64_t device_count, bp_device* const* device_list,
                             uint64_t kernel_count, const bp_kernel* const* kernels,
                             bp_add_result* out_results) {
  registered* r = self;
  uint64_t i;
  (void)device_count, (void)device_list;
  for (i = 0; i < kernel_count; ++i) {
    if (kernels[i]->struct_type != BP_STRUCT_KERNEL) failed("a kernel has another struct_type");
    if (kernels[i]->op == BP_OP_ADD) r->t.add = kernels[i];
    if (out_results != NULL) accept(out_results + i);
  }
  r->kernel_count += kernel_count;
  return BP_OK;
}

#if BP_ABI_MAJOR > 0 || BP_ABI_MINOR >= 3
static bp_status add_profiler(void* self, uint64_t device_count, bp_device* const* device_list,
                              const bp_profiler_ops* profiler, bp_add_result* out_result) {
  (void)device_count, (void)device_list;
  TAKE(((registered*)self)->t.profiler, profiler, bp_profiler_ops, calibrate);
  return accept(out_result);
}
#endif

static bp_status set_error(void* self, bp_status status, const char* message) {
  snprintf(self, WORDS, "%s", message);
  return status;
}

static bp_status take_line(void* self, bp_log_level level, const char* message) {
  (void)self, (void)level, (void)message;
  return BP_OK;
}

static bp_status get_option(void* self, const char* key, const char** out_value) {
  (void)self, (void)key, (void)out_value;
  return BP_NOT_FOUND;
}

static bp_status allocate(void* self, uint64_t size_bytes, uint64_t alignment_bytes,
                          void** out_memory) {
  void* memory = aligned_alloc(
      (size_t)alignment_bytes,
      (size_t)((size_bytes + alignment_bytes - 1) / alignment_bytes * alignment_bytes));
  (void)self;
  if (memory == NULL) return BP_OUT_OF_MEMORY;
  *out_memory = memory;
  return BP_OK;
}

static bp_status free_memory(void* self, void* memory, uint64_t size_bytes) {
  (void)self, (void)size_bytes;
  free(memory);
  return BP_OK;
}

#ifdef BP_ABI_SYNTHETIC
/* A service that earlier hosts do not have. A backend of this minor asks for it. */
static bp_status appended(void* self, uint64_t value, uint64_t* out_value) {
  (void)self;
  *out_value = value + 1;
  return BP_OK;
}
#endif

/* Returns the registrar, with every slot of these headers. */
static bp_registrar make_registrar(registered* r) {
  bp_registrar registrar = {.struct_size = sizeof(bp_registrar),
                            .struct_type = BP_STRUCT_REGISTRAR,
                            .self = r,
                            .add_device = add_device,
                            .add_allocator = add_allocator,
                            .add_streams = add_streams,
                            .add_kernels = add_kernels};
#if BP_ABI_MAJOR > 0 || BP_ABI_MINOR >= 3
  registrar.add_profiler = add_profiler;
#endif
#ifdef BP_ABI_SYNTHETIC
  registrar.appended = appended;
#endif
  fill_bp_registrar(&registrar);
  return registrar;
}

static bp_host make_host(void) {
  bp_host host = {.struct_size = sizeof(bp_host),
                  .struct_type = BP_STRUCT_HOST,
                  .self = words,
                  .set_error = set_error,
                  .log_line = take_line,
                  .get_option = get_option,
                  .allocate = allocate,
                  .deallocate = free_memory};
#ifdef BP_ABI_SYNTHETIC
  host.appended = appended;
#endif
  return host;
}

/* Prints why the backend refuses, and the majors for which it is, as the reply says. A backend of
 * ABI 0.2 or older leaves them as they were, which is major 0. */
static void print_refusal(const bp_entry_reply* reply) {
#if BP_ABI_MAJOR == 0 && BP_ABI_MINOR < 3
  (void)reply;
  printf("refused: %s\n", words);
#else
  printf("refused: %s; majors %u to %u\n", words, (unsigned)reply->abi_major_min,
         (unsigned)reply->abi_major_max);
#endif
}

/* Negotiates with the backend. If the backend refuses, prints why and ends the program. */
static bp_entry_reply negotiate(bp_backend_entry_fn* entry, const bp_host* host, uint32_t oldest) {
  const bp_entry_request request = {.struct_size = sizeof(bp_entry_request),
                                    .struct_type = BP_STRUCT_ENTRY_REQUEST,
                                    .abi_major_min = BP_ABI_MAJOR,
                                    .abi_major_max = BP_ABI_MAJOR,
                                    .abi_minor = BP_ABI_MINOR,
                                    .abi_minor_min = oldest,
                                    .host = host};
  bp_entry_reply reply = {.struct_size = sizeof(bp_entry_reply),
                          .struct_type = BP_STRUCT_ENTRY_REPLY};
  const bp_status status = entry(&request, &reply);
  if (status == BP_INCOMPATIBLE) {
    if (words[0] == 0) failed("the backend refused without a word");
    print_refusal(&reply);
    exit(0);
  }
  expect_ok(status, "bp_backend_entry");
  if (reply.backend == NULL) failed("the entry returned BP_OK, but no backend");
  if (reply.abi_major != BP_ABI_MAJOR) failed("the backend chose another major");
  return reply;
}

int main(int argc, char** argv) {
  registered r = {.device_count = 0};
  bp_backend backend;
  bp_entry_reply reply;
  if (argc != 3) failed("usage: host BACKEND OLDEST_MINOR");
  void* library = dlopen(argv[1], RTLD_NOW | RTLD_LOCAL);
  if (library == NULL) failed(dlerror());
  bp_backend_entry_fn* entry = NULL;
  *(void**)&entry = dlsym(library, "bp_backend_entry");
  if (entry == NULL) failed("there is no bp_backend_entry");
  const bp_host host = make_host();
  const bp_registrar registrar = make_registrar(&r);
  reply = negotiate(entry, &host, (uint32_t)strtoul(argv[2], NULL, 10));
  TAKE(backend, reply.backend, bp_backend, status_class);
  expect_ok(backend.register_all(backend.self, &registrar), "register_all");
  if (r.device_count == 0) failed("no device was registered");
  exercise(&r.t, VERSION(reply.abi_major, reply.abi_minor));
  expect_ok(backend.shutdown(backend.self FOREVER), "shutdown");
  dlclose(library);
  printf("served %u.%u\n", (unsigned)reply.abi_major, (unsigned)reply.abi_minor);
  return 0;
}
