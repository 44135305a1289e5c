/* Buffers and copies. Every range is checked before anything is touched. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "template.h"

/* The end of the last member of the first release. It must not grow when the struct does. */
#define FIRST_DESC (uint32_t)(offsetof(bp_allocate_desc, usage) + sizeof(bp_memory_usage))

static const char* allocation_problem(const bp_allocate_desc* d) {
  const uint64_t alignment = d->alignment_bytes;
  if (d->usage >= 2 * BP_MEMORY_COLLECTIVE) return "memory.allocate: unknown usage";
  if (alignment > 4096 || (alignment & (alignment - 1)) != 0) {
    return "memory.allocate: alignment_bytes is not 0 or a power of two up to 4096";
  }
  return d->heap_mask > 1 ? "memory.allocate: heap_mask is neither 0 nor 1, the only heap" : NULL;
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
  if (d.layout != NULL) return fail(i, BP_UNSUPPORTED, "memory.allocate: there are no layouts");
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
  i->device.used_bytes += b->size_bytes;
  *out_buffer = (bp_buffer*)b;
  return BP_OK;
}

static bp_status free_buffer(void* self, bp_buffer* handle, bp_stream* stream) {
  buffer* b = (buffer*)handle;
  (void)stream; /* All work has ended, on every stream. */
  if (b == NULL) return BP_OK;
  ((instance*)self)->device.used_bytes -= b->size_bytes;
  free(b->bytes);
  free(b);
  return BP_OK;
}

/* Fills *out_info, whose header is the caller's. size_bytes is its size in the first release. */
static bp_status give(const instance* i, const void* ours, uint32_t size_bytes, void* out_info) {
  const size_t header = sizeof(bp_struct_header);
  unsigned char theirs[64];
  if (out_info == NULL) return invalid(i, "memory: out_info is NULL");
  if (bp_struct_read(out_info, size_bytes, theirs, size_bytes, NULL) != BP_OK) {
    return fail(i, BP_INCOMPATIBLE, "memory: out_info is too short, or has a link that is unknown");
  }
  memcpy((unsigned char*)out_info + header, (const unsigned char*)ours + header,
         size_bytes - header);
  return BP_OK;
}

static bp_status buffer_info(void* self, bp_buffer* handle, bp_buffer_info* out_info) {
  instance* i = self;
  bp_buffer_info info = {.device = (bp_device*)&i->device};
  if (handle == NULL) return invalid(i, "memory.buffer_info: buffer is NULL");
  info.size_bytes = ((const buffer*)handle)->size_bytes;
  return give(i, &info, 56, out_info);
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
  ++((buffer*)range->buffer)->map_count;
  *out_pointer = bytes;
  return BP_OK;
}

static bp_status unmap(void* self, bp_buffer* handle, void* pointer) {
  buffer* b = (buffer*)handle;
  if (b == NULL || b->map_count == 0) return invalid(self, "memory.unmap: the buffer is unmapped");
  if ((uintptr_t)pointer - (uintptr_t)b->bytes > b->size_bytes) {
    return invalid(self, "memory.unmap: pointer lies outside of the buffer");
  }
  --b->map_count;
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
                              bp_borrow borrow, uint64_t timeout_ns) {
  const unsigned char* from = resolve(self, src);
  (void)timeout_ns; /* The copy ends in this call. */
  if (from == NULL) return BP_INVALID_ARGUMENT;
  if (stream == NULL || dst == NULL || !is_borrow(borrow)) {
    return invalid(self, "memory.copy_to_host: stream or dst is NULL, or borrow is unknown");
  }
  memcpy(dst, from, src->size_bytes);
  return BP_OK;
}

static bp_status peer_info(void* self, bp_device* a, bp_device* b, bp_peer_info* out_info) {
  const bp_peer_info info = {.is_direct = 0};
  if (!is_ours(self, a) || !is_ours(self, b)) {
    return invalid(self, "memory.peer_info: not devices of this backend");
  }
  return give(self, &info, 32, out_info);
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
                                    .deallocate = free_buffer,
                                    .buffer_info = buffer_info,
                                    .map = map,
                                    .unmap = unmap,
                                    .flush = keep_coherent,
                                    .invalidate = keep_coherent,
                                    .copy = copy,
                                    .copy_from_host = copy_from_host,
                                    .copy_to_host = copy_to_host,
                                    .peer_info = peer_info,
                                    .fill = fill};
}
