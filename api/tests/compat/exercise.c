#include "exercise.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define COUNT 1000 /* The number of elements of a test tensor. */

char words[WORDS];

void failed(const char* what) {
  printf("FAILED: %s%s%s\n", what, words[0] != 0 ? ": " : "", words);
  exit(1);
}

void expect(int condition, const char* what) {
  if (!condition) failed(what);
}

void expect_ok(bp_status status, const char* what) {
  if (status == BP_OK) return;
  char line[WORDS];
  snprintf(line, sizeof(line), "%s returned %d", what, (int)status);
  failed(line);
}

/* A request with a tail that no side of the matrix knows. A backend accepts a tail of zeros and
 * refuses any other tail, also an appended member that it does not know. */
typedef union long_desc {
  bp_struct_header header;
  bp_allocate_desc allocate;
  bp_stream_desc stream;
  bp_event_desc event;
  unsigned char bytes[1024];
} long_desc;

static long_desc longer(const void* desc, size_t size_bytes, int has_tail) {
  long_desc l;
  memset(&l, 0, sizeof(l));
  memcpy(&l, desc, size_bytes);
  l.header.struct_size = sizeof(l);
  if (has_tail) l.bytes[sizeof(l) - 1] = 1;
  return l;
}

static bp_allocate_desc allocate_desc(uint64_t size_bytes) {
  return (bp_allocate_desc){.struct_size = sizeof(bp_allocate_desc),
                            .struct_type = BP_STRUCT_ALLOCATE_DESC,
                            .size_bytes = size_bytes,
                            .alignment_bytes = 64,
                            .heap_flags = BP_HEAP_HOST_VISIBLE};
}

static bp_buffer* allocate(const tables* t, uint64_t size_bytes) {
  const bp_allocate_desc desc = allocate_desc(size_bytes);
  bp_buffer* buffer = NULL;
  expect_ok(t->allocator.allocate(t->allocator.self, t->device, &desc, &buffer), "allocate");
  expect(buffer != NULL, "allocate returned BP_OK, but no buffer");
  return buffer;
}

static void check_requests(const tables* t, uint32_t version) {
  bp_allocate_desc desc = allocate_desc(64);
  long_desc l = longer(&desc, sizeof(desc), 0);
  bp_buffer *none = NULL, *buffer = NULL;
  expect_ok(t->allocator.allocate(t->allocator.self, t->device, &l.allocate, &buffer),
            "allocate with a longer desc whose tail is zero");
  expect_ok(t->allocator.deallocate(t->allocator.self, buffer, NULL), "deallocate");
  l = longer(&desc, sizeof(desc), 1);
  expect(t->allocator.allocate(t->allocator.self, t->device, &l.allocate, &none) == BP_INCOMPATIBLE,
         "allocate accepts a longer desc whose tail is not zero");
  expect(none == NULL, "allocate wrote its out parameter and failed");
  (void)version;
#ifdef BP_ABI_SYNTHETIC
  desc.appended = 1;
  expect((t->allocator.allocate(t->allocator.self, t->device, &desc, &buffer) == BP_OK) ==
             (version >= VERSION(BP_ABI_MAJOR, BP_ABI_MINOR)),
         "allocate: an appended member is not refused, or not by those alone that lack it");
  if (version >= VERSION(BP_ABI_MAJOR, BP_ABI_MINOR)) {
    expect_ok(t->allocator.deallocate(t->allocator.self, buffer, NULL), "deallocate");
  }
#endif
}

#if BP_ABI_MAJOR > 0 || BP_ABI_MINOR >= 3
/* Gives a request links that no side of the matrix knows. A backend skips the one, and refuses the
 * request because of the other. */
static void check_links(const tables* t) {
  bp_struct_header link = {.struct_size = sizeof(link), .struct_type = 0x7fff0001u};
  bp_allocate_desc desc = allocate_desc(64);
  bp_buffer *buffer = NULL, *none = NULL;
  desc.next = &link;
  expect_ok(t->allocator.allocate(t->allocator.self, t->device, &desc, &buffer),
            "allocate with a link that may be ignored");
  expect_ok(t->allocator.deallocate(t->allocator.self, buffer, NULL), "deallocate");
  link.struct_type |= BP_STRUCT_MUST_UNDERSTAND;
  expect(t->allocator.allocate(t->allocator.self, t->device, &desc, &none) == BP_INCOMPATIBLE,
         "allocate accepts a link that must be understood");
  expect(none == NULL, "allocate wrote its out parameter and failed");
}

/* Counts the records that can be read, with their appended member. */
static void take_record(void* user_data, const bp_activity* record) {
  const uint32_t first = offsetof(bp_activity, kind) + sizeof(bp_activity_kind);
  bp_activity known;
  if (bp_struct_read(record, first, &known, sizeof(known), NULL) != BP_OK) return;
  if (known.kind != BP_ACTIVITY_KERNEL || known.bytes != 12) return;
#ifdef BP_ABI_SYNTHETIC
  *(uint64_t*)user_data += 100 * known.appended;
#endif
  *(uint64_t*)user_data += 1;
}

/* Takes a record, which has one member more or less than this side knows. */
static void check_records(const tables* t, uint32_t version) {
  uint64_t got = 0;
  const bp_profile_desc desc = {.struct_size = sizeof(desc),
                                .struct_type = BP_STRUCT_PROFILE_DESC,
                                .sink = take_record,
                                .user_data = &got};
  long_desc l = longer(&desc, sizeof(desc), 0);
  expect_ok(t->profiler.start(t->profiler.self, t->device, (const bp_profile_desc*)&l), "start");
  expect_ok(t->profiler.stop(t->profiler.self, t->device, UINT64_MAX), "stop");
  (void)version;
#ifdef BP_ABI_SYNTHETIC
  if (version >= VERSION(BP_ABI_MAJOR, BP_ABI_MINOR)) got -= 500;
#endif
  expect(got == 1, "a record was lost, or its appended member is another one");
  l = longer(&desc, sizeof(desc), 1);
  expect(
      t->profiler.start(t->profiler.self, t->device, (const bp_profile_desc*)&l) == BP_INCOMPATIBLE,
      "start accepts a longer desc whose tail is not zero");
}

#ifdef BP_ABI_SYNTHETIC
/* Reads the member that this minor appended to the properties. An older backend has none. */
static void check_appended_property(const tables* t, uint32_t version) {
  const uint32_t first = offsetof(bp_device_properties, dlpack_device_id) + sizeof(int32_t);
  const bp_device_properties* theirs = NULL;
  bp_device_properties known;
  expect_ok(t->devices.properties(t->devices.self, t->device, &theirs), "properties");
  expect_ok(bp_struct_read(theirs, first, &known, sizeof(known), NULL), "bp_struct_read");
  expect(known.appended == (version >= VERSION(BP_ABI_MAJOR, BP_ABI_MINOR) ? 77 : 0),
         "the appended member of the properties has another value");
}
#endif
#endif

static void check_properties(const tables* t) {
  const bp_device_properties* p = NULL;
  uint64_t free_bytes = 0, total_bytes = 0, i;
  expect_ok(t->devices.properties(t->devices.self, t->device, &p), "properties");
  expect(p->struct_type == BP_STRUCT_DEVICE_PROPERTIES, "properties have another struct_type");
  expect(p->name != NULL && p->name[0] != 0, "the device has no name");
  expect(p->max_rank >= 4 && p->max_rank <= BP_MAX_RANK, "max_rank is not from 4 to BP_MAX_RANK");
  expect(p->heap_count > 0 && p->dtype_count > 0, "there is no heap or no dtype");
  expect(p->dlpack_device_id >= 0, "dlpack_device_id is below 0");
  for (i = 0; i < p->heap_count; ++i) {
    const bp_heap* heap = (const bp_heap*)((const char*)p->heaps + i * p->heap_stride_bytes);
    expect(heap->struct_type == BP_STRUCT_HEAP, "a heap has another struct_type");
    expect(heap->max_allocation_bytes <= heap->size_bytes, "a heap gives more than it has");
    expect(heap->tensor_offset_alignment_bytes >= 1 && heap->tensor_offset_alignment_bytes <= 4096,
           "tensor_offset_alignment_bytes is not from 1 to 4096");
    expect_ok(t->devices.memory_info(t->devices.self, t->device, i, &free_bytes, &total_bytes),
              "memory_info");
    expect(free_bytes <= total_bytes && total_bytes > 0, "memory_info gives more than there is");
  }
}

static bp_stream* create_stream(const tables* t) {
  const bp_stream_desc desc = {
      .struct_size = sizeof(bp_stream_desc), .struct_type = BP_STRUCT_STREAM_DESC, .priority = -1};
  bp_stream* stream = NULL;
  expect_ok(t->streams.create(t->streams.self, t->device, &desc, &stream), "stream.create");
  return stream;
}

/* Checks fills, and copies in every direction. Each range is another part of one buffer. */
static void check_copies(const tables* t, bp_stream* stream) {
  const bp_allocator_ops* a = &t->allocator;
  const uint32_t pattern = 0x01020304;
  uint32_t sent[64], received[64] = {0};
  bp_buffer* buffer = allocate(t, 4096);
  const bp_buffer_ref first = {buffer, 256, sizeof(sent)}, second = {buffer, 1024, sizeof(sent)},
                      part = {buffer, 1024, 16};
  void* mapped = NULL;
  uint32_t i;
  for (i = 0; i < 64; ++i) sent[i] = 1000 + i;
  expect_ok(a->copy_from_host(a->self, stream, &first, sent, BP_BORROW_DURING_CALL),
            "copy_from_host");
  expect_ok(a->copy(a->self, stream, &second, &first), "copy");
  expect_ok(a->fill(a->self, stream, &part, &pattern, sizeof(pattern)), "fill");
  expect_ok(a->copy_to_host(a->self, stream, received, &second, BP_BORROW_DURING_CALL FOREVER),
            "copy_to_host");
  for (i = 0; i < 64; ++i) {
    expect(received[i] == (i < 4 ? pattern : sent[i]), "bytes differ after their copies");
  }
  expect_ok(t->streams.synchronize(t->streams.self, stream, UINT64_MAX), "synchronize");
  expect_ok(a->map(a->self, &first, &mapped), "map");
  expect(memcmp(mapped, sent, sizeof(sent)) == 0, "mapped bytes differ");
#if BP_ABI_MAJOR == 0 && BP_ABI_MINOR < 3
  expect_ok(a->unmap(a->self, buffer), "unmap");
#else
  expect_ok(a->unmap(a->self, buffer, mapped), "unmap");
#endif
  expect_ok(a->deallocate(a->self, buffer, NULL), "deallocate");
}

static void count_call(void* user_data, bp_status status) {
  if (status == BP_OK) ++*(int*)user_data;
}

static void check_events(const tables* t, bp_stream* stream) {
  const bp_event_ops* e = &t->events;
  const bp_event_desc desc = {.struct_size = sizeof(bp_event_desc),
                              .struct_type = BP_STRUCT_EVENT_DESC,
                              .flags = BP_EVENT_TIMING};
  bp_event *start = NULL, *end = NULL;
  int64_t elapsed_ns = -1;
  uint32_t is_done = 0;
  int calls = 0;
  expect_ok(e->create(e->self, t->device, &desc, &start), "event.create");
  expect_ok(e->create(e->self, t->device, &desc, &end), "event.create");
  expect_ok(e->record(e->self, start, stream), "record");
  expect_ok(t->streams.add_callback(t->streams.self, stream, count_call, &calls), "add_callback");
  expect_ok(e->record(e->self, end, stream), "record");
  expect_ok(t->streams.wait_event(t->streams.self, stream, start), "wait_event");
  expect_ok(e->synchronize(e->self, end, UINT64_MAX), "event.synchronize");
  expect_ok(e->query(e->self, end, &is_done), "event.query");
  expect_ok(e->elapsed_ns(e->self, start, end, &elapsed_ns), "elapsed_ns");
  expect(is_done == 1 && elapsed_ns >= 0, "an event has not happened, or went back in time");
  expect(calls == 1, "the callback did not run once");
  expect_ok(e->destroy(e->self, start), "event.destroy");
  expect_ok(e->destroy(e->self, end), "event.destroy");
}

/* Launches with the frame as the kernel's own build has it: cut, or filled with zero. */
static void launch_add(const tables* t, bp_stream* stream, const bp_tensor* a, const bp_tensor* b,
                       const bp_tensor* y) {
  union {
    bp_add_args args;
    unsigned char bytes[512];
  } frame;
  const bp_launch launch = {.device = t->device, .stream = stream};
  memset(&frame, 0, sizeof(frame));
  frame.args.a = a;
  frame.args.b = b;
  frame.args.y = y;
  expect(t->add->args_size_bytes <= sizeof(frame), "the frame of add is too long");
  frame.args.struct_size = t->add->args_size_bytes;
  expect_ok(t->add->launch(t->add, &launch, &frame), "launch");
}

static void check_kernel(const tables* t, bp_stream* stream) {
  const int64_t shape[2] = {COUNT / 10, 10}, strides[2] = {10, 1};
  const uint64_t size_bytes = COUNT * sizeof(float);
  bp_buffer* buffer = allocate(t, 4 * size_bytes);
  float values[3 * COUNT];
  bp_tensor tensors[3];
  int i;
  expect(t->add != NULL, "there is no kernel of add");
  for (i = 0; i < 3 * COUNT; ++i) values[i] = (float)i;
  for (i = 0; i < 3; ++i) {
    tensors[i] = (bp_tensor){.buffer = buffer,
                             .byte_offset = (uint64_t)i * size_bytes,
                             .shape = shape,
                             .strides = strides,
                             .ndim = 2,
                             .dtype = BP_F32};
  }
  const bp_buffer_ref all = {buffer, 0, sizeof(values)};
  expect_ok(t->allocator.copy_from_host(t->allocator.self, stream, &all, values,
                                        BP_BORROW_UNTIL_COMPLETE),
            "copy_from_host");
  launch_add(t, stream, tensors, tensors + 1, tensors + 2);
  expect_ok(t->allocator.copy_to_host(t->allocator.self, stream, values, &all,
                                      BP_BORROW_DURING_CALL FOREVER),
            "copy_to_host");
  for (i = 0; i < COUNT; ++i) {
    expect(values[2 * COUNT + i] == (float)(2 * i + COUNT), "the sum is wrong");
  }
  expect_ok(t->allocator.deallocate(t->allocator.self, buffer, NULL), "deallocate");
}

/* Checks that slots that are younger than the backend return BP_UNSUPPORTED. No caller tests a
 * slot for NULL. */
static void check_young_slots(const tables* t, uint32_t version) {
  const char* bad[] = {
      check_bp_device_ops(&t->devices, version), check_bp_allocator_ops(&t->allocator, version),
      check_bp_stream_ops(&t->streams, version), check_bp_event_ops(&t->events, version)};
  char line[WORDS];
  size_t i;
  for (i = 0; i < sizeof(bad) / sizeof(*bad); ++i) {
    if (bad[i] == NULL) continue;
    snprintf(line, sizeof(line), "%s is no stub, though the backend is older", bad[i]);
    failed(line);
  }
#ifdef BP_ABI_SYNTHETIC
  if (version >= VERSION(BP_ABI_MAJOR, BP_ABI_MINOR)) {
    uint64_t answer = 0;
    expect_ok(t->allocator.appended(t->allocator.self, 41, &answer), "memory.appended");
    expect(answer == 42, "memory.appended gave another answer");
    expect_ok(t->streams.appended(t->streams.self, 42, &answer), "stream.appended");
    expect(answer == 43, "stream.appended gave another answer");
  }
#endif
}

void exercise(const tables* t, uint32_t version) {
  bp_stream *stream = create_stream(t), *lent = NULL;
  uint64_t device_count = 0;
  expect_ok(t->devices.probe(t->devices.self, &device_count), "probe");
  expect(device_count > 0, "probe found no device");
  expect_ok(t->streams.default_stream(t->streams.self, t->device, &lent), "default_stream");
  expect(lent != NULL, "default_stream returned BP_OK, but no stream");
  check_properties(t);
  check_requests(t, version);
#if BP_ABI_MAJOR > 0 || BP_ABI_MINOR >= 3
  check_links(t);
  check_records(t, version);
#endif
#ifdef BP_ABI_SYNTHETIC
  check_appended_property(t, version);
#endif
  check_copies(t, stream);
  check_events(t, stream);
  check_kernel(t, lent);
  check_young_slots(t, version);
  expect_ok(t->streams.status(t->streams.self, stream), "stream.status");
  expect_ok(t->streams.flush(t->streams.self, stream), "stream.flush");
  expect_ok(t->streams.destroy(t->streams.self, stream), "stream.destroy");
  expect_ok(t->devices.synchronize(t->devices.self, t->device, UINT64_MAX), "device.synchronize");
}
