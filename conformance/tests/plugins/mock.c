/* A backend with one device and almost nothing else. It misbehaves as its options say: while
 * loading (option `load`, or MOCK_LOAD at compile time), when a NULL stream is destroyed (option
 * `stream`), when a NULL event is destroyed (option `event`), and at its end (option `shutdown`).
 * With the option `say` it creates no stream, and the error has that text. The option `version` is
 * the text of its version.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <fcntl.h>
#include <fenv.h>
#include <locale.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include "backplane/backend.h"

#ifndef MOCK_LOAD
#define MOCK_LOAD ""
#endif

struct bp_device {
  int poison;
};
struct bp_stream {
  int unused;
};

static struct bp_device the_device;
static struct bp_stream the_stream, a_stream;
static const bp_host* the_host;
static const char* option_stream = "";
static const char* option_memory = "";  // "leaks": each memory_info() tells 1 MiB more in use.
static const char* option_event = "";
static const char* option_shutdown = "";
static const char* option_say = "";

static void flood(void) {
  static const char kLine[] = "this backend talks and talks and talks and talks and talks\n";
  for (;;) {
    fputs(kLine, stdout);
    fputs(kLine, stderr);
  }
}

static void* crash_thread(void* unused) {
  usleep(20000);
  raise(SIGSEGV);
  return unused;
}

static void* die_soon(void* unused) {
  usleep(500000);
  raise(SIGSEGV);
  return unused;
}

/* The descriptors of the worker's pipes to and from the supervisor. */
enum { kCommandFd = 230, kRecordFd = 231 };

/* Returns whether each thread of `process` is stopped. */
static int is_stopped(pid_t process) {
  char path[300];
  snprintf(path, sizeof(path), "/proc/%d/task", (int)process);
  DIR* threads = opendir(path);
  if (threads == NULL) abort();
  int stopped = 1;
  for (const struct dirent* thread; stopped && (thread = readdir(threads)) != NULL;) {
    if (thread->d_name[0] == '.') continue;
    snprintf(path, sizeof(path), "/proc/%d/task/%s/stat", (int)process, thread->d_name);
    FILE* file = fopen(path, "r");
    char state = 'T'; /* A thread that has ended counts as stopped. */
    if (file != NULL && fscanf(file, "%*d (%*[^)]) %c", &state) != 1) abort();
    if (file != NULL) fclose(file);
    stopped = state == 'T';
  }
  closedir(threads);
  return stopped;
}

/* Returns the process that started the parent of this process. */
static pid_t grandparent(void) {
  char path[64];
  int found = 0;
  snprintf(path, sizeof(path), "/proc/%d/stat", (int)getppid());
  FILE* file = fopen(path, "r");
  if (file == NULL || fscanf(file, "%*d (%*[^)]) %*c %d", &found) != 1) abort();
  fclose(file);
  return (pid_t)found;
}

/* Leaves a process behind that has its own session and no parent here. Writes its process id to a
 * file. */
static void leave_daemon(const char* path) {
  const pid_t child = fork();
  if (child != 0) {
    waitpid(child, NULL, 0);
    return;
  }
  setsid();
  const pid_t left = fork();
  if (left == 0) {
    signal(SIGTERM, SIG_IGN);
    for (;;) pause();
  }
  FILE* file = fopen(path, "w");
  if (file == NULL) abort();
  fprintf(file, "%d\n", (int)left);
  fclose(file);
  _exit(0);
}

static void stop(pid_t process) {
  kill(process, SIGSTOP);
  while (!is_stopped(process)) usleep(1000);
}

/* Dies between the end of the case and the beginning of the next. It stops the supervisor, and a
 * helper process lets the supervisor continue when this process has ended, which closes the pipe.
 * It also stops the warden, which kills what a dead worker left behind and could kill the helper
 * before the helper has let the supervisor continue. */
static void crash_between(void) {
  const pid_t warden = getppid();
  const pid_t supervisor = grandparent();
  int ends[2];
  if (pipe(ends) != 0) abort();
  stop(supervisor);
  stop(warden);
  if (fork() == 0) {
    char byte;
    close(ends[1]);
    close(kCommandFd);
    close(kRecordFd);
    if (read(ends[0], &byte, 1) != 0) abort();
    kill(supervisor, SIGCONT);
    kill(warden, SIGCONT);
    _exit(0);
  }
  pthread_t thread;
  pthread_create(&thread, NULL, die_soon, NULL);
}

/* ---- Lies to the supervisor, in the worker's protocol ---- */

enum { kHello = 1, kBegin = 3, kEnd = 5 };

static void send_bytes(const void* bytes, size_t size) {
  if (write(kRecordFd, bytes, size) != (ssize_t)size) abort();
}

static void send_record(uint32_t size, uint8_t type, const char* payload) {
  const uint8_t head[] = {(uint8_t)size, (uint8_t)(size >> 8), (uint8_t)(size >> 16),
                          (uint8_t)(size >> 24), type};
  send_bytes(head, sizeof(head));
  send_bytes(payload, strlen(payload));
}

static void send_whole(uint8_t type, const char* payload) {
  send_record((uint32_t)strlen(payload), type, payload);
}

static void lie(const char* how) {
  static const char kThis[] = "{\"case\":\"stream.destroy_accepts_null\"}";
  if (strcmp(how, "partial") == 0) {
    send_bytes("\x20\0", 2);
    _exit(0);
  }
  if (strcmp(how, "unknown") == 0) send_whole(99, "{}");
  if (strcmp(how, "hello") == 0) send_whole(kHello, "{\"target\":7,\"targets\":[],\"plugin\":{}}");
  if (strcmp(how, "huge") == 0) send_record(0xffffffffu, kEnd, "");
  if (strcmp(how, "text") == 0) send_whole(kEnd, "no JSON");
  if (strcmp(how, "list") == 0) send_whole(kEnd, "[]");
  if (strcmp(how, "number") == 0) send_whole(kEnd, "{\"case\":7}");
  if (strcmp(how, "begin_twice") == 0) send_whole(kBegin, kThis);
  if (strcmp(how, "bare_end") == 0) send_whole(kEnd, kThis);
  if (strcmp(how, "other_case") == 0) send_whole(kEnd, "{\"case\":\"another.case\"}");
  if (strcmp(how, "end_twice") == 0) {
    send_whole(kEnd,
               "{\"case\":\"stream.destroy_accepts_null\",\"status\":\"Pass\",\"wall_ms\":1}");
  }
  if (strcmp(how, "deep") == 0) {
    static char deep[200001];
    memset(deep, '[', 100000);
    memset(deep + 100000, ']', 100000);
    send_whole(kEnd, deep);
  }
  if (strcmp(how, "types") == 0) {
    send_whole(kEnd, "{\"case\":\"stream.destroy_accepts_null\",\"status\":[],\"wall_ms\":1}");
  }
  if (strcmp(how, "close") == 0) close(kCommandFd); /* The worker ends itself after the case. */
}

/* Defined in mock_throw.cpp. */
void mock_throw(void);

static void change_state(const char* how) {
  if (strcmp(how, "chdir") == 0 && chdir("/") != 0) abort();
  if (strcmp(how, "round") == 0) fesetround(FE_UPWARD);
  if (strcmp(how, "handler") == 0) signal(SIGUSR1, SIG_IGN);
  if (strcmp(how, "locale") == 0 && setlocale(LC_ALL, "C.UTF-8") == NULL) abort();
#if defined(__x86_64__)
  if (strcmp(how, "flush") == 0) _mm_setcsr(_mm_getcsr() | 0x8040);
#elif defined(__aarch64__)
  if (strcmp(how, "flush") == 0) {
    uint64_t control;
    __asm__ volatile("mrs %0, fpcr" : "=r"(control));
    __asm__ volatile("msr fpcr, %0" ::"r"(control | (uint64_t)1 << 24));
  }
#endif
}

static void misbehave(const char* how) {
  if (strncmp(how, "lie:", 4) == 0) lie(how + 4);
  if (strcmp(how, "crash_between") == 0) crash_between();
  if (strcmp(how, "kill_parent") == 0) {
    kill(getppid(), SIGKILL);
    for (;;) pause();
  }
  if (strcmp(how, "stop_parent") == 0) kill(getppid(), SIGSTOP);
  if (strncmp(how, "daemon:", 7) == 0) leave_daemon(how + 7);
  if (strcmp(how, "throw") == 0) mock_throw();
  if (strcmp(how, "pthread_exit") == 0) pthread_exit(NULL);
  if (strcmp(how, "segfault") == 0) raise(SIGSEGV);
  if (strcmp(how, "abort") == 0) abort();
  if (strcmp(how, "exit") == 0) exit(0);
  if (strcmp(how, "exit_7") == 0) exit(7);
  if (strcmp(how, "hang_hard") == 0) signal(SIGTERM, SIG_IGN);
  if (strncmp(how, "hang", 4) == 0) {
    for (;;) pause();
  }
  if (strcmp(how, "flood") == 0) flood();
  if (strcmp(how, "print") == 0) puts("hello from a backend");
  if (strcmp(how, "print_forged") == 0) puts("\033[2J\nverdict: PERFECT");
  change_state(how);
  if (strcmp(how, "close") == 0) {
    for (int fd = 3; fd < 1024; ++fd) close(fd);
  }
  if (strcmp(how, "nap") == 0) usleep(1000000);
  if (strcmp(how, "fork") == 0 && fork() == 0) {
    for (;;) pause();
  }
  if (strcmp(how, "crash_later") == 0) {
    pthread_t thread;
    pthread_create(&thread, NULL, crash_thread, NULL);
  }
  /* Prints only in the first process that creates the file. */
  if (strncmp(how, "first:", 6) == 0 && open(how + 6, O_CREAT | O_EXCL, 0600) >= 0) puts("first");
  /* The device refuses later calls in this process after `poison`, or after both halves. */
  if (strcmp(how, "poison") == 0) the_device.poison = 3;
  if (strcmp(how, "half") == 0) the_device.poison |= 1;
  if (strcmp(how, "other_half") == 0) the_device.poison |= 2;
}

static bp_status refuse(const char* why) {
  return the_host->set_error(the_host->self, BP_UNSUPPORTED, why);
}

/* ---- Tables ---- */

static bp_status probe(void* self, uint64_t* out_count) {
  (void)self;
  *out_count = 1;
  return BP_OK;
}

static bp_status enumerate(void* self, uint64_t capacity, bp_device** out_devices,
                           uint64_t* out_count) {
  (void)self;
  if (capacity > 0) out_devices[0] = &the_device;
  *out_count = 1;
  return BP_OK;
}

static const bp_heap kHeap = {.struct_size = sizeof(bp_heap),
                              .struct_type = BP_STRUCT_HEAP,
                              .size_bytes = 1 << 20,
                              .max_allocation_bytes = 1 << 20,
                              .tensor_offset_alignment_bytes = 64,
                              .suballocation_granularity_bytes = 64};
static const bp_dtype kDtypes[] = {BP_F32};
static const bp_device_properties kProperties = {.struct_size = sizeof(bp_device_properties),
                                                 .struct_type = BP_STRUCT_DEVICE_PROPERTIES,
                                                 .name = "Mock",
                                                 .uuid = {1, 2, 3},
                                                 .device_class = BP_DEVICE_SIMULATED,
                                                 .max_rank = 4,
                                                 .heaps = &kHeap,
                                                 .heap_count = 1,
                                                 .heap_stride_bytes = sizeof(bp_heap),
                                                 .dtypes = kDtypes,
                                                 .dtype_count = 1};

static bp_status properties(void* self, bp_device* device,
                            const bp_device_properties** out_properties) {
  (void)self, (void)device;
  *out_properties = &kProperties;
  return BP_OK;
}

static bp_status synchronize_device(void* self, bp_device* device, uint64_t timeout_ns) {
  (void)self, (void)device, (void)timeout_ns;
  return BP_OK;
}

static bp_status memory_info(void* self, bp_device* device, uint64_t heap_index,
                             uint64_t* out_free_bytes, uint64_t* out_total_bytes) {
  (void)self, (void)device, (void)heap_index;
  if (strcmp(option_memory, "leaks") != 0) return refuse("the mock has no memory");
  static uint64_t used_bytes = 0;
  used_bytes += 1 << 20;
  *out_total_bytes = (uint64_t)1 << 40;
  *out_free_bytes = *out_total_bytes - used_bytes;
  return BP_OK;
}

static bp_status allocate(void* self, bp_device* device, const bp_allocate_desc* desc,
                          bp_buffer** out_buffer) {
  (void)self, (void)device, (void)desc, (void)out_buffer;
  return refuse("the mock has no memory");
}

static bp_status free_buffer(void* self, bp_buffer* buffer, bp_stream* stream) {
  (void)self, (void)buffer, (void)stream;
  return BP_OK;
}

static bp_status create_stream(void* self, bp_device* device, const bp_stream_desc* desc,
                               bp_stream** out_stream) {
  (void)self, (void)device, (void)desc;
  if (the_device.poison == 3) return refuse("the mock is poisoned");
  if (option_say[0] != 0) return the_host->set_error(the_host->self, BP_INTERNAL, option_say);
  *out_stream = &a_stream;
  return BP_OK;
}

static bp_status default_stream(void* self, bp_device* device, bp_stream** out_stream) {
  (void)self, (void)device;
  *out_stream = &the_stream;
  return BP_OK;
}

static bp_status destroy_stream(void* self, bp_stream* stream) {
  (void)self;
  if (stream == &the_stream) {
    return the_host->set_error(the_host->self, BP_INVALID_ARGUMENT, "the default stream stays");
  }
  if (stream == NULL) misbehave(option_stream);
  return BP_OK;
}

static bp_status query_stream(void* self, bp_stream* stream, uint32_t* out_done) {
  (void)self, (void)stream;
  *out_done = 1;
  return BP_OK;
}

static bp_status stream_ok(void* self, bp_stream* stream) {
  (void)self, (void)stream;
  return BP_OK;
}

static bp_status synchronize_stream(void* self, bp_stream* stream, uint64_t timeout_ns) {
  (void)self, (void)stream, (void)timeout_ns;
  return BP_OK;
}

static bp_status generation(void* self, bp_device* device, uint64_t* out_generation) {
  (void)self, (void)device;
  *out_generation = 0;
  return BP_OK;
}

static bp_status create_event(void* self, bp_device* device, const bp_event_desc* desc,
                              bp_event** out_event) {
  (void)self, (void)device, (void)desc, (void)out_event;
  return refuse("the mock has no events");
}

static bp_status destroy_event(void* self, bp_event* event) {
  (void)self;
  if (event == NULL) misbehave(option_event);
  return BP_OK;
}

static const bp_device_ops kDevices = {.struct_size = sizeof(bp_device_ops),
                                       .struct_type = BP_STRUCT_DEVICE_OPS,
                                       .probe = probe,
                                       .enumerate = enumerate,
                                       .properties = properties,
                                       .synchronize = synchronize_device,
                                       .memory_info = memory_info,
                                       .generation = generation};
static const bp_allocator_ops kAllocator = {.struct_size = sizeof(bp_allocator_ops),
                                            .struct_type = BP_STRUCT_ALLOCATOR_OPS,
                                            .allocate = allocate,
                                            .deallocate = free_buffer};
static const bp_stream_ops kStreams = {.struct_size = sizeof(bp_stream_ops),
                                       .struct_type = BP_STRUCT_STREAM_OPS,
                                       .create = create_stream,
                                       .default_stream = default_stream,
                                       .destroy = destroy_stream,
                                       .query = query_stream,
                                       .status = stream_ok,
                                       .clear_failure = stream_ok,
                                       .synchronize = synchronize_stream,
                                       .flush = stream_ok};
static const bp_event_ops kEvents = {.struct_size = sizeof(bp_event_ops),
                                     .struct_type = BP_STRUCT_EVENT_OPS,
                                     .create = create_event,
                                     .destroy = destroy_event};

static bp_status register_all(void* self, const bp_registrar* r) {
  (void)self;
  bp_status status = r->add_device(r->self, 0, NULL, &kDevices, NULL);
  if (status == BP_OK) status = r->add_allocator(r->self, 0, NULL, &kAllocator, NULL);
  if (status == BP_OK) status = r->add_streams(r->self, 0, NULL, &kStreams, &kEvents, NULL);
  return status;
}

static bp_status shut_down(void* self, uint64_t timeout_ns) {
  (void)self, (void)timeout_ns;
  misbehave(option_shutdown);
  return BP_OK;
}

static bp_backend the_backend = {.struct_size = sizeof(bp_backend),
                                 .struct_type = BP_STRUCT_BACKEND,
                                 .name = "test.mock",
                                 .version = "1",
                                 .register_all = register_all,
                                 .shutdown = shut_down};

static const char* option(const char* key) {
  const char* value = "";
  the_host->get_option(the_host->self, key, &value);
  return value;
}

bp_status bp_backend_entry(const bp_entry_request* request, bp_entry_reply* out_reply) {
  const char* load = MOCK_LOAD;
  the_host = request->host;
  if (load[0] == 0) load = option("load");
  option_stream = option("stream");
  option_memory = option("memory");
  option_event = option("event");
  option_shutdown = option("shutdown");
  option_say = option("say");
  if (option("version")[0] != 0) the_backend.version = option("version");
  misbehave(load);
  if (strcmp(load, "nothing") == 0) return BP_OK;
  out_reply->abi_major = strcmp(load, "major") == 0 ? BP_ABI_MAJOR + 7 : BP_ABI_MAJOR;
  out_reply->abi_minor = BP_ABI_MINOR;
  out_reply->abi_major_min = out_reply->abi_major_max = out_reply->abi_major;
  out_reply->backend = &the_backend;
  return BP_OK;
}
