/* Buffers and copies. Every range is checked before anything is touched. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "npu.h"

/* The end of the last member of the first release. It must not grow when the struct does. */
#define FIRST_DESC (uint32_t)(offsetof(bp_allocate_desc, usage) + sizeof(bp_memory_usage))

static const char* allocation_problem(const bp_allocate_desc* d) {
  const uint64_t alignment = d->alignment_bytes;
  if (d->usage >= 2 * BP_MEMORY_COLLECTIVE) return "memory.allocate: unknown usage";
  if (alignment > 4096 || (alignment & (alignment - 1)) != 0) {
    return "memory.allocate: alignment_bytes is not 0 or a power of two up to 4096";
  }
  return d->heap_index > 1 ? "memory.allocate: heap_index is neither 0 nor 1, the only heap" : NULL;
}

static bp_status allocate(void* self, bp_device* handle, const bp_allocate_desc* desc,
                          bp_buffer** out_buffer) {
  instance* i = self;
  bp_allocate_desc d;
  buffer* b;
  uint32_t offset;
  const char* problem;
  char text[80];
  if (!is_ours(i, handle)) return invalid(i, "memory.allocate: not a device of this backend");
  if (desc == NULL || out_buffer == NULL) return invalid(i, "memory.allocate: an argument is NULL");
  if (bp_struct_read(desc, FIRST_DESC, &d, sizeof(d), &offset) != BP_OK) {
    return fail(i, BP_INCOMPATIBLE, "memory.allocate: desc has a member that is not understood");
  }
  problem = allocation_problem(&d);
  if (problem != NULL) return invalid(i, problem);
  if (d.usage & ~(uint32_t)BP_MEMORY_STREAM_ORDERED) return fail(i, BP_UNSUPPORTED, "no such use");
  if ((d.heap_flags & ~i->device.heap.flags) != 0) {
    return fail(i, BP_NOT_FOUND, "memory.allocate: no heap has the wanted flags");
  }
  b = calloc(1, sizeof(buffer));
  if (b != NULL && d.size_bytes <= i->device.heap.max_allocation_bytes) {
    b->bytes = aligned_alloc(4096, (d.size_bytes + 4096) / 4096 * 4096);
  }
  if (b == NULL || b->bytes == NULL) {
    free(b);
    snprintf(text, sizeof(text), "memory.allocate: no room for %" PRIu64 " bytes", d.size_bytes);
    return fail(i, BP_OUT_OF_MEMORY, text);
  }
  b->size_bytes = d.size_bytes;
  *out_buffer = (bp_buffer*)b;
  return BP_OK;
}

static bp_status free_buffer(void* self, bp_buffer* handle, bp_stream* stream) {
  buffer* b = (buffer*)handle;
  (void)self, (void)stream; /* All work has ended, on every stream. */
  if (b != NULL) free(b->bytes);
  free(b);
  return BP_OK;
}

/* Returns the bytes of a range. If it is not valid, sets the error text and returns NULL. */
static unsigned char* resolve(const instance* i, const bp_buffer_ref* range) {
  const buffer* b = range == NULL ? NULL : (const buffer*)range->buffer;
  if (b == NULL) {
    invalid(i, "memory: a range or its buffer is NULL");
    return NULL;
  }
  if (range->byte_offset > b->size_bytes ||
      range->size_bytes > b->size_bytes - range->byte_offset) {
    invalid(i, "memory: a range leaves its buffer");
    return NULL;
  }
  return b->bytes + range->byte_offset;
}

static bp_status map(void* self, const bp_buffer_ref* range, void** out_pointer) {
  unsigned char* bytes = resolve(self, range);
  if (bytes == NULL) return BP_INVALID_ARGUMENT;
  if (out_pointer == NULL) return invalid(self, "memory.map: out_pointer is NULL");
  if (((buffer*)range->buffer)->is_mapped) return invalid(self, "memory.map: is mapped already");
  ((buffer*)range->buffer)->is_mapped = 1;
  *out_pointer = bytes;
  return BP_OK;
}

static bp_status unmap(void* self, bp_buffer* handle) {
  buffer* b = (buffer*)handle;
  if (b == NULL || !b->is_mapped) return invalid(self, "memory.unmap: the buffer is not mapped");
  b->is_mapped = 0;
  return BP_OK;
}

/* Serves flush and invalidate, which have nothing to do: the heap is coherent. */
static bp_status keep_coherent(void* self, const bp_buffer_ref* range) {
  return resolve(self, range) == NULL ? BP_INVALID_ARGUMENT : BP_OK;
}

static bp_status copy(void* self, bp_stream* stream, const bp_buffer_ref* dst,
                      const bp_buffer_ref* src) {
  unsigned char *to, *from;
  if (stream == NULL) return invalid(self, "memory.copy: stream is NULL");
  to = resolve(self, dst);
  if (to == NULL) return BP_INVALID_ARGUMENT;
  from = resolve(self, src);
  if (from == NULL) return BP_INVALID_ARGUMENT;
  if (dst->size_bytes != src->size_bytes) return invalid(self, "memory.copy: sizes differ");
  if (to != from && to < from + src->size_bytes && from < to + dst->size_bytes) {
    return invalid(self, "memory.copy: the ranges overlap");
  }
  memmove(to, from, dst->size_bytes);
  return BP_OK;
}

static int is_borrow(bp_borrow borrow) {
  return borrow == BP_BORROW_DURING_CALL || borrow == BP_BORROW_UNTIL_COMPLETE;
}

static bp_status copy_from_host(void* self, bp_stream* stream, const bp_buffer_ref* dst,
                                const void* src, bp_borrow borrow) {
  unsigned char* to = resolve(self, dst);
  if (to == NULL) return BP_INVALID_ARGUMENT;
  if (stream == NULL || src == NULL || !is_borrow(borrow)) {
    return invalid(self, "memory.copy_from_host: stream or src is NULL, or borrow is unknown");
  }
  memcpy(to, src, dst->size_bytes);
  return BP_OK;
}

static bp_status copy_to_host(void* self, bp_stream* stream, void* dst, const bp_buffer_ref* src,
                              bp_borrow borrow) {
  const unsigned char* from = resolve(self, src);
  if (from == NULL) return BP_INVALID_ARGUMENT;
  if (stream == NULL || dst == NULL || !is_borrow(borrow)) {
    return invalid(self, "memory.copy_to_host: stream or dst is NULL, or borrow is unknown");
  }
  memcpy(dst, from, src->size_bytes);
  return BP_OK;
}

static bp_status can_access_peer(void* self, bp_device* a, bp_device* b, uint32_t* out_can) {
  if (!is_ours(self, a) || !is_ours(self, b) || out_can == NULL) {
    return invalid(self, "memory.can_access_peer: not devices of this backend, or NULL");
  }
  *out_can = 0;
  return BP_OK;
}

static bp_status fill(void* self, bp_stream* stream, const bp_buffer_ref* dst, const void* pattern,
                      uint64_t pattern_size_bytes) {
  unsigned char* to = resolve(self, dst);
  uint64_t at;
  if (to == NULL) return BP_INVALID_ARGUMENT;
  if (stream == NULL || pattern == NULL) return invalid(self, "memory.fill: an argument is NULL");
  if (pattern_size_bytes < 1 || pattern_size_bytes > 16 ||
      dst->size_bytes % pattern_size_bytes != 0) {
    return invalid(self, "memory.fill: patterns have 1 to 16 bytes, and fill the range evenly");
  }
  for (at = 0; at < dst->size_bytes; at += pattern_size_bytes) {
    memcpy(to + at, pattern, pattern_size_bytes);
  }
  return BP_OK;
}

void init_memory(instance* i) {
  i->allocator = (bp_allocator_ops){.struct_size = sizeof(bp_allocator_ops),
                                    .struct_type = BP_STRUCT_ALLOCATOR_OPS,
                                    .self = i,
                                    .allocate = allocate,
                                    .free = free_buffer,
                                    .map = map,
                                    .unmap = unmap,
                                    .flush = keep_coherent,
                                    .invalidate = keep_coherent,
                                    .copy = copy,
                                    .copy_from_host = copy_from_host,
                                    .copy_to_host = copy_to_host,
                                    .can_access_peer = can_access_peer,
                                    .fill = fill};
}
