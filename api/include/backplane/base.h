/* backplane/base.h - version, status codes, dtypes, and what every other header uses.
 *
 * A struct that crosses the boundary is extensible, frozen, or an argument frame:
 *
 *   Extensible  It begins with the three members of bp_struct_header. Members are only ever
 *               appended. In a table of functions `void* self` comes next: the first argument of
 *               each function.
 *   Frozen      It never changes. The list of frozen structs is below.
 *   Frame       It holds the arguments of one op (backplane/ops.h). It begins with `uint32_t
 *               struct_size; uint32_t flags;` for ever. Members are only ever appended.
 *
 * An extensible struct is an offer or a request:
 *
 *   Offer       Tables, bp_host, bp_kernel, properties, and the entry's request and reply are
 *               offers. An offer longer than the reader knows is valid, and its tail is ignored.
 *   Request     Each _desc and each frame is a request. A request longer than the reader knows is
 *               valid only if its tail is zero, so that nothing that was asked for is ever ignored
 *               silently.
 *
 * In a _desc, and in members appended to a frame, zero means "not given". A member that is named
 * `reserved` is padding: its writer sets it to 0, and no version of the ABI gives it a meaning. A
 * reader of a request may refuse another value.
 *
 * The list of frozen structs is: bp_struct_header, bp_buffer_ref, bp_tensor, bp_scalar, bp_launch,
 * bp_add_result, bp_option, bp_op_output, bp_extent_binding and bp_program_alias; in host.h
 * bp_kernel_choice and bp_block; in dlpack.h, which DLPack froze, bp_dlpack_device,
 * bp_dlpack_dtype, bp_dlpack_tensor, bp_dlpack_managed and bp_dlpack_unversioned.
 *
 * A link is an extensible struct in the chain behind the `next` of another struct, which it
 * qualifies. Of the frozen structs, bp_tensor and bp_launch have such a chain. Links are of two
 * kinds:
 *
 *   Must-understand  Its struct_type has BP_STRUCT_MUST_UNDERSTAND. It changes what the struct
 *                    means, so a reader that does not know its type rejects the struct. With such
 *                    a link a tensor may say, for example, that its elements are scaled.
 *   Ignorable        Every other link. [LINK-1] An ignorable link changes no result and no choice:
 *                    it is a hint, such as that the rows of a tensor are sorted, and every reader
 *                    may skip it.
 *
 * [LINK-2] Where a tensor is kept beyond a call, as in a capture, a recording or a program, its
 * ignorable links are left out, since they are only lent to the call. A tensor with a
 * must-understand link is BP_UNSUPPORTED there; a recording only says that it lacks the call.
 *
 * [OFFER-1] A reader of an offer ignores each flag that it does not know. [OFFER-2] If a reader of
 * an offer does not know a value of an enumeration, it rejects the smallest part that has the
 * value, such as one row of dtypes or one kernel, says why, and takes the rest.
 *
 * Vendors add values to these enumerations: the struct types, bp_external_type, bp_layout_kind,
 * bp_collective_kind, bp_reduction and bp_activity_kind. Their values begin at BP_VENDOR_FIRST.
 * Each vendor has a block of BP_VENDOR_BLOCK values, the same one in all of these enumerations
 * (api/docs/versioning.md). Dtypes of vendors are handed out by the host, and the flags of heaps
 * have bits of their own; bp_dtype and bp_heap_flags say which.
 *
 * Pointers have 64 bits, since the offsets of members and the exchange of addresses as uint64_t
 * rely on it. Bytes are in little-endian order, since scalars, blobs, patterns and recordings hold
 * values as bytes. No other target compiles these headers (api/docs/platforms.md).
 *
 * Strings are UTF-8 and end with a zero byte. Unless a comment says otherwise, what is passed
 * in is borrowed during the call, and what is lent lives until shutdown().
 *
 * A tag such as [ERROR-1] makes the sentence after it normative; conformance cases cite the tag,
 * and `bp-conformance explain ERROR-1` prints the sentence with its cases.
 */
#ifndef BACKPLANE_BASE_H_
#define BACKPLANE_BASE_H_

#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* The version of these headers, and the oldest minor that a host with them serves. Before the
 * freeze the major is 0, and a host does not serve a minor newer than its own. The promise is in
 * api/docs/versioning.md. */
#define BP_ABI_MAJOR 0
#define BP_ABI_MINOR 4
#define BP_ABI_MINOR_MIN 3

/* No struct is ever larger, and no `next` chain longer; SIZE-1 says what readers do with more. */
#define BP_MAX_STRUCT_BYTES 65536u
#define BP_MAX_LINKS 64u

/* The first value that vendors may add to an enumeration, and how many each of them has. */
#define BP_VENDOR_FIRST 0x01000000u
#define BP_VENDOR_BLOCK 0x00010000u

#if UINTPTR_MAX != UINT64_MAX
#error "Backplane needs a target whose pointers have 64 bits"
#endif
/* Windows runs on little-endian processors alone, and its compilers do not say the order. */
#if !defined(_WIN32) && (!defined(__BYTE_ORDER__) || __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__)
#error "Backplane needs a little-endian target"
#endif

/* BP_EXPORT marks what a library exports, such as the entry of a backend. BP_API marks the
 * functions of libbackplane: the build of that library, which alone defines BP_BUILDING_BACKPLANE,
 * exports them, and programs import them. A backend imports nothing. */
#if defined(_WIN32)
#define BP_EXPORT __declspec(dllexport)
#else
#define BP_EXPORT __attribute__((visibility("default")))
#endif
#if defined(_WIN32) && !defined(BP_BUILDING_BACKPLANE)
#define BP_API __declspec(dllimport)
#else
#define BP_API BP_EXPORT
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* The outcome of a call. The type has 32 bits, since the width of a C enum is the compiler's
 * choice. Values below zero belong to vendors; bp_backend::status_class maps them to one of those
 * below. A reader treats a value above zero that its headers do not have as BP_INTERNAL.
 *
 * [ERROR-1] Before a call fails, it sets its thread's error text, through bp_host::set_error.
 * [ERROR-2] On failure every out parameter is left as it was.
 * [ERROR-3] If a required pointer is NULL, an out parameter included, the call returns
 * BP_INVALID_ARGUMENT and never crashes. */
typedef int32_t bp_status;
enum {
  BP_OK = 0,
  BP_INVALID_ARGUMENT = 1, /* The caller broke a documented rule; retrying cannot help. */
  BP_UNSUPPORTED = 2,      /* The call is legal, but not offered here; try a fallback. */
  BP_OUT_OF_MEMORY = 3,    /* The call may succeed after the caller frees something. */
  BP_DEVICE_LOST = 4,      /* Calls on the device fail until reset(); ending a handle works. */
  BP_TIMEOUT = 5,          /* The given time passed; the work may still complete. */
  BP_ABORTED = 6,          /* The work was stopped on request, before it completed. */
  BP_INCOMPATIBLE = 7,     /* The two sides cannot agree on an ABI or on a struct's members. */
  BP_NOT_FOUND = 8,        /* There is no such name, file or entry. */
  BP_ALREADY_EXISTS = 9,   /* The name is taken. */
  BP_INTERNAL = 10,        /* A bug in the callee. Report it. */
  BP_DATA_FAILURE = 11,    /* A check on the device failed, such as that of an index. */
  BP_STREAM_FAILED = 12    /* The stream has failed before; status() returns its failure. */
};

/* A static string that says why something is not offered, or NULL if it is. */
typedef const char* bp_reason;

/* The type of an element. An element takes whole bytes, except that those of the sub-byte types are
 * packed in bytes. A BP_BOOL is one byte, 0 or 1. Floating-point types are IEEE 754 binary formats;
 * bf16 is the upper half of f32; the f8, f6 and f4 formats are those of the OCP specifications;
 * those named "FNUZ" have no infinities and no negative zero. An f8e8m0fnu of bits b is 2^(b -
 * 127), and NaN if b is 255: it has no sign and no zero, and serves as the scale of a block.
 *
 * [DTYPE-2] Sub-byte elements are packed from the low bits of each byte up, without gaps: the
 * element at offset n, counted in elements, has the bits from n * width on, and bit i is bit i % 8
 * of byte i / 8. A tensor of them begins at a whole byte. These are the bytes from the first one
 * on, each from its high bit to its low one, with the number of the element that has the bit:
 *
 *   2 bits   33221100 77665544              i2 u2: 4 in a byte
 *   4 bits   11110000 33332222              i4 u4 f4e2m1: 2 in a byte
 *   6 bits   11000000 22221111 33333322     f6e2m3 f6e3m2: 4 in 3 bytes
 *
 * [DTYPE-3] The bits of a byte that belong to no element of the tensor have any value in an input,
 * and a kernel leaves them in an output as they were.
 *
 * A dtype has 16 bits. Those from BP_DTYPE_VENDOR_FIRST on belong to vendors: the host hands them
 * out by name (bp_registrar::add_dtype), and another host, or the next process, may give the same
 * name another number. [DTYPE-1] What another process may read, such as a file, a blob or a
 * recording, names the dtype of a vendor, and never holds its number. */
typedef uint32_t bp_dtype;
enum {
  BP_BOOL = 1,
  BP_I4 = 2,
  BP_U4 = 3,
  BP_I8 = 4,
  BP_I16 = 5,
  BP_I32 = 6,
  BP_I64 = 7,
  BP_U8 = 8,
  BP_U16 = 9,
  BP_U32 = 10,
  BP_U64 = 11,
  BP_F16 = 12,
  BP_BF16 = 13,
  BP_F32 = 14,
  BP_F64 = 15,
  BP_C64 = 16, /* Two f32: real, imaginary. */
  BP_C128 = 17,
  BP_F8E4M3FN = 18,
  BP_F8E5M2 = 19,
  BP_F8E4M3FNUZ = 20,
  BP_F8E5M2FNUZ = 21,
  BP_F4E2M1 = 22,
  BP_F8E8M0FNU = 23,
  BP_F6E2M3 = 24,
  BP_F6E3M2 = 25,
  BP_I2 = 26,
  BP_U2 = 27
};
#define BP_DTYPE_VENDOR_FIRST 0x8000u
#define BP_DTYPE_VENDOR_LAST 0xFFFFu

/* Each extensible struct begins with these members; a reader follows a `next` chain by them. This
 * struct is frozen. */
typedef struct bp_struct_header {
  uint32_t struct_size; /* sizeof the struct in its writer's own build, in bytes. */
  uint32_t
      struct_type;  /* A BP_STRUCT_* value; a link may have BP_STRUCT_MUST_UNDERSTAND as well. */
  const void* next; /* NULL, or an extensible struct that qualifies this one. */
} bp_struct_header;

/* Identities of the extensible structs. */
enum {
  BP_STRUCT_HOST = 1,
  BP_STRUCT_ENTRY_REQUEST = 2,
  BP_STRUCT_ENTRY_REPLY = 3,
  BP_STRUCT_BACKEND = 4,
  BP_STRUCT_REGISTRAR = 5,
  BP_STRUCT_DEVICE_OPS = 6,
  BP_STRUCT_DEVICE_PROPERTIES = 7,
  BP_STRUCT_HEAP = 8,
  BP_STRUCT_ALLOCATOR_OPS = 9,
  BP_STRUCT_ALLOCATE_DESC = 10,
  BP_STRUCT_STREAM_OPS = 11,
  BP_STRUCT_STREAM_DESC = 12,
  BP_STRUCT_EVENT_OPS = 13,
  BP_STRUCT_EVENT_DESC = 14,
  BP_STRUCT_KERNEL = 15,
  BP_STRUCT_NUMERICS = 16,
  BP_STRUCT_PREPARE_DESC = 17,
  BP_STRUCT_PLAN_INFO = 18,
  BP_STRUCT_DEVICE_GUARD_OPS = 19,
  BP_STRUCT_ADDRESS_INFO = 20,
  BP_STRUCT_EXTERNAL_HANDLE = 21,
  BP_STRUCT_VIRTUAL_MEMORY_OPS = 22,
  BP_STRUCT_LAYOUT_OPS = 23,
  BP_STRUCT_LAYOUT = 24,
  BP_STRUCT_GRAPH_OPS = 25,
  BP_STRUCT_CAPTURE_DESC = 26,
  BP_STRUCT_CAPTURE_INFO = 27,
  BP_STRUCT_COMPILER_OPS = 28,
  BP_STRUCT_PROGRAM = 29,
  BP_STRUCT_PROGRAM_VALUE = 30,
  BP_STRUCT_PROGRAM_NODE = 31,
  BP_STRUCT_COMPILE_DESC = 32,
  BP_STRUCT_EXECUTABLE_INFO = 33,
  BP_STRUCT_PROCESS_GROUP_OPS = 34,
  BP_STRUCT_PROCESS_GROUP_DESC = 35,
  BP_STRUCT_STORE = 36,
  BP_STRUCT_COLLECTIVE_CALL = 37,
  BP_STRUCT_PROFILER_OPS = 38,
  BP_STRUCT_PROFILE_DESC = 39,
  BP_STRUCT_ACTIVITY = 40,
  BP_STRUCT_BUFFER_INFO = 41,
  BP_STRUCT_PEER_INFO = 42,
  BP_STRUCT_SEMAPHORE_OPS = 43,
  BP_STRUCT_SEMAPHORE_DESC = 44,
  BP_STRUCT_OP_DESC = 45,
  BP_STRUCT_OP_ARGUMENT = 46,
  BP_STRUCT_PROGRAM_EXTENT = 47,
  BP_STRUCT_LAYOUT_DESC = 48,
  BP_STRUCT_LAYOUT_CLAIM = 49
};

/* If this bit is set in the struct_type of a link, a reader that does not know the link rejects the
 * struct that the link qualifies, instead of skipping the link. */
#define BP_STRUCT_MUST_UNDERSTAND 0x80000000u

/* One option of a request, or of a load: a name and a value in words. Frozen. */
typedef struct bp_option {
  const char* key;
  const char* value;
} bp_option;

/* How serious a line for bp_host::log_line is. */
typedef uint32_t bp_log_level;
enum { BP_LOG_DEBUG = 1, BP_LOG_INFO = 2, BP_LOG_WARNING = 3, BP_LOG_ERROR = 4 };

/* The description of an op (backplane/operator.h). */
struct bp_op_desc;

/* Services of the host. An offer, valid until the instance that received it is shut down.
 *
 *   Threads    Safe from any thread.
 *   Blocking   Never waits for a device.
 *   Errors     Entries that can fail return a status. */
typedef struct bp_host {
  uint32_t struct_size;
  uint32_t struct_type; /* BP_STRUCT_HOST. */
  const void* next;
  void* self;

  /* Copies `message` into the calling thread's error slot and returns `status`, so that a backend
   * can write: return host->set_error(host->self, BP_UNSUPPORTED, "no timer on this device"); */
  bp_status (*set_error)(void* self, bp_status status, const char* message);

  /* Hands one line without a line break to the host's log. It borrows `message` during the call. */
  bp_status (*log_line)(void* self, bp_log_level level, const char* message);

  /* Finds the option `key` that the user gave to this backend, such as "threads", and lends its
   * text until shutdown. If there is none, it returns BP_NOT_FOUND and sets no error text: that is
   * no failure. */
  bp_status (*get_option)(void* self, const char* key, const char** out_value);

  /* Allocates host memory for the backend's own objects; alignment_bytes is a power of two. The
   * caller passes the memory to deallocate() with the same size. BP_OUT_OF_MEMORY leaves
   * *out_memory as it was. A size of 0 gives a pointer, which is freed as well; deallocate(NULL) is
   * a no-op. */
  bp_status (*allocate)(void* self, uint64_t size_bytes, uint64_t alignment_bytes,
                        void** out_memory);
  bp_status (*deallocate)(void* self, void* memory, uint64_t size_bytes);

  /* Gives the number of the op `name`, such as "softmax". BP_NOT_FOUND if there is none. */
  bp_status (*op_find)(void* self, const char* name, uint32_t* out_op);

  /* Lends the description of an op (backplane/operator.h). BP_NOT_FOUND if there is no such op. */
  bp_status (*op_describe)(void* self, uint32_t op, const struct bp_op_desc** out_desc);
} bp_host;

/* One device of one backend. The backend makes it, and it is valid until the backend's shutdown().
 * The type is never completed as a global struct: each backend converts it to its own type in one
 * function. */
typedef struct bp_device bp_device;

/* How a handle travels to another process, or to another library of the same process. A type says
 * what its handle is, and so which other libraries take it. */
typedef uint32_t bp_external_type;
enum {
  BP_EXTERNAL_OPAQUE_FD = 1,   /* A file descriptor that only a backend of this name imports. */
  BP_EXTERNAL_DMA_BUF_FD = 2,  /* The descriptor of a dma-buf of Linux: memory. */
  BP_EXTERNAL_SYNC_FD = 3,     /* The descriptor of a sync file of Linux: what an event captured. */
  BP_EXTERNAL_WIN32 = 4,       /* An NT handle. */
  BP_EXTERNAL_MACH_PORT = 5,   /* A send right for a Mach port. */
  BP_EXTERNAL_FABRIC = 6,      /* Bytes that other machines on the devices' own links take too. */
  BP_EXTERNAL_OPAQUE_BYTES = 7 /* Bytes that only a backend of this name imports. */
};

/* What an export gives, for the import on the other side. To the exporter, who fills it, the struct
 * is an offer; to the importer it is a request. The caller of an export sets struct_size,
 * struct_type and next.
 *
 * [EXTERNAL-1] The caller of an export owns the descriptor, NT handle or Mach port that it gave and
 * closes it; an import keeps a duplicate of its own. [EXTERNAL-2] What was exported lives until the
 * last handle that was imported from it has ended, also where the exporter frees its own handle
 * first. [EXTERNAL-3] Bytes that an export gave are lent until the exported buffer, event or
 * semaphore ends; an import borrows them during the call. */
typedef struct bp_external_handle {
  uint32_t struct_size;
  uint32_t struct_type; /* BP_STRUCT_EXTERNAL_HANDLE. */
  const void* next;
  bp_external_type type;
  int32_t fd;          /* The descriptor of the types that have one; else -1. */
  uint64_t os_handle;  /* The NT handle, or the name of the Mach port; else 0. */
  uint64_t size_bytes; /* The size of the exported memory; 0 for an event and a semaphore. */
  uint64_t byte_count; /* How many bytes there are, for the types that have some; else 0. */
  const void* bytes;   /* These bytes; else NULL. */
} bp_external_handle;

/* Reads the links of a frozen struct, whose `next` is `first`; NULL is an empty chain. Returns
 * BP_INCOMPATIBLE for a must-understand link whose type, without that bit, is not among
 * known_types, and for more than 64 links; BP_INVALID_ARGUMENT if known_types is NULL and
 * known_count is not 0. */
static inline bp_status bp_links_read(const void* first, const uint32_t* known_types,
                                      uint32_t known_count) {
  const uint32_t most_links = BP_MAX_LINKS;
  const bp_struct_header* link = (const bp_struct_header*)first;
  uint32_t count = 0, i;
  if (known_types == NULL && known_count != 0) return BP_INVALID_ARGUMENT;
  for (; link != NULL; link = (const bp_struct_header*)link->next) {
    if (++count > most_links) return BP_INCOMPATIBLE;
    if ((link->struct_type & BP_STRUCT_MUST_UNDERSTAND) == 0) continue;
    i = 0;
    while (i < known_count && known_types[i] != (link->struct_type & ~BP_STRUCT_MUST_UNDERSTAND))
      ++i;
    if (i == known_count) return BP_INCOMPATIBLE;
  }
  return BP_OK;
}

/* Returns the first link of a type in a chain, whether it must be understood or not, or NULL. The
 * chain is one that bp_links_read() takes, as the host ensures for the tensors of a kernel. A
 * reader reads the link itself with bp_struct_read_linked(). */
static inline const void* bp_link_find(const void* first, uint32_t struct_type) {
  const bp_struct_header* link = (const bp_struct_header*)first;
  while (link != NULL && (link->struct_type & ~BP_STRUCT_MUST_UNDERSTAND) != struct_type) {
    link = (const bp_struct_header*)link->next;
  }
  return link;
}

/* Reads `theirs`, an extensible struct of any build, into `ours`; nothing else compares sizes.
 * Members that `theirs` lacks become zero, and `ours` gets our size. [SIZE-1] A struct smaller than
 * first_size_bytes, its size in the first release, is refused with BP_INCOMPATIBLE. So is one above
 * 65,536 bytes, which no struct ever has (*out_offset is then 0), and one with a chain of more than
 * 64 links (*out_offset is then the byte of `next`). A NULL `theirs` or `ours` is refused with
 * BP_INVALID_ARGUMENT, and *out_offset is then 0. [SIZE-2] In an offer (out_offset is NULL),
 * members behind those that the reader knows are ignored. [SIZE-3] In a request (out_offset is
 * given), members behind those that the reader knows must be zero, else the request is refused with
 * BP_INCOMPATIBLE. *out_offset is then the byte at which the two builds part. [SIZE-4] A struct
 * with a link that has BP_STRUCT_MUST_UNDERSTAND is refused with BP_INCOMPATIBLE, and *out_offset
 * is then the byte of `next`; other links are skipped. [SIZE-5] bp_struct_read_linked() takes the
 * must-understand links whose types, without that bit, are among the known_types of the reader. */
static inline bp_status bp_struct_read_linked(const void* theirs, uint32_t first_size_bytes,
                                              void* ours, uint32_t our_size_bytes,
                                              const uint32_t* known_types, uint32_t known_count,
                                              uint32_t* out_offset) {
  const uint32_t most_bytes = BP_MAX_STRUCT_BYTES;
  uint32_t size_bytes, i;
  bp_status status;
  if (theirs == NULL || ours == NULL) {
    if (out_offset != NULL) *out_offset = 0;
    return BP_INVALID_ARGUMENT;
  }
  memcpy(&size_bytes, theirs, sizeof(size_bytes));
  if (size_bytes > most_bytes) {
    if (out_offset != NULL) *out_offset = 0;
    return BP_INCOMPATIBLE;
  }
  for (i = our_size_bytes; out_offset != NULL && i < size_bytes; ++i) {
    if (((const unsigned char*)theirs)[i] != 0) return *out_offset = i, BP_INCOMPATIBLE;
  }
  if (size_bytes < first_size_bytes) {
    if (out_offset != NULL) *out_offset = size_bytes;
    return BP_INCOMPATIBLE;
  }
  status = bp_links_read(((const bp_struct_header*)theirs)->next, known_types, known_count);
  if (status != BP_OK) {
    if (out_offset != NULL) *out_offset = offsetof(bp_struct_header, next);
    return status;
  }
  memset(ours, 0, our_size_bytes);
  memcpy(ours, theirs, size_bytes < our_size_bytes ? size_bytes : our_size_bytes);
  memcpy(ours, &our_size_bytes, sizeof(our_size_bytes));
  return BP_OK;
}

static inline bp_status bp_struct_read(const void* theirs, uint32_t first_size_bytes, void* ours,
                                       uint32_t our_size_bytes, uint32_t* out_offset) {
  return bp_struct_read_linked(theirs, first_size_bytes, ours, our_size_bytes, NULL, 0, out_offset);
}

#ifdef __cplusplus
} /* extern "C" */
#endif

#endif /* BACKPLANE_BASE_H_ */
