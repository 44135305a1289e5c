/* backplane/device.h - the devices of a backend: what they are, and what they can hold.
 *
 * Rules for every entry, unless it says otherwise:
 *   Threads    Safe from any thread.
 *   Blocking   Never waits for device work.
 *   Errors     Returns a status, with the text in the thread's error slot.
 *   Ownership  What is lent belongs to the backend and lives until shutdown().
 */
#ifndef BACKPLANE_DEVICE_H_
#define BACKPLANE_DEVICE_H_

#include "backplane/base.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The kind of a device. Hosts decide by it only where they need a device of class BP_DEVICE_HOST,
 * for the fallback; they ask the device for everything else. A host takes a class that it does not
 * know for BP_DEVICE_ACCELERATOR. */
typedef uint32_t bp_device_class;
enum {
  BP_DEVICE_HOST = 1,        /* Runs on the host's processors, in its memory. */
  BP_DEVICE_INTEGRATED = 2,  /* Shares the host's memory. */
  BP_DEVICE_DISCRETE = 3,    /* Has memory of its own. */
  BP_DEVICE_ACCELERATOR = 4, /* Anything else, such as a card that runs compiled graphs only. */
  BP_DEVICE_SIMULATED = 5
};

/* What the memory of a heap can do. The bits 24 to 31 are the backend's own. [HEAP-6] A heap that
 * is host_coherent, host_concurrent or host_cached is also host_visible. */
typedef uint32_t bp_heap_flags;
enum {
  BP_HEAP_DEVICE_LOCAL = 1u << 0,    /* Fastest for the device. */
  BP_HEAP_HOST_VISIBLE = 1u << 1,    /* map() works. */
  BP_HEAP_HOST_COHERENT = 1u << 2,   /* Needs no flush() and invalidate(). */
  BP_HEAP_HOST_CONCURRENT = 1u << 3, /* The host may touch it while the device works on it. */
  BP_HEAP_MIGRATES = 1u << 4,        /* Pages move to where they are used. */
  BP_HEAP_HOST_CACHED = 1u << 5      /* The host reads it as fast as memory of its own. */
};

/* One kind of memory. An offer. */
typedef struct bp_heap {
  uint32_t struct_size;
  uint32_t struct_type; /* BP_STRUCT_HEAP. */
  const void* next;
  uint64_t size_bytes;
  /* [HEAP-1] A request for more than max_allocation_bytes of a heap returns BP_OUT_OF_MEMORY. */
  uint64_t max_allocation_bytes;
  /* [HEAP-2] Kernels take tensors at every multiple of tensor_offset_alignment_bytes, a power of
   * two from 1 to 4096. The offset of a tensor is a multiple of its dtype's size as well. [HEAP-4]
   * Kernels of copy take every multiple of the dtype's size. [HEAP-5] No other kernel is offered a
   * tensor at an offset below this alignment: the host copies the tensor to an aligned place and
   * back, and counts the call. A launch() that meets such an offset returns BP_UNSUPPORTED. */
  uint64_t tensor_offset_alignment_bytes;
  uint64_t suballocation_granularity_bytes; /* 0: buffers can only be used whole. */
  /* A power of two; 1 if the heap is host_coherent, 0 if it is not host_visible. [HEAP-3] flush()
   * and invalidate() of a range may also move the bytes around it up to the next multiples of
   * map_granularity_bytes, counted from byte 0 of what allocate() gave, and they leave all other
   * bytes as they are. */
  uint64_t map_granularity_bytes;
  bp_heap_flags flags;
  uint32_t reserved; /* 0. */
} bp_heap;

/* What a device is. An offer. Constant. */
typedef struct bp_device_properties {
  uint32_t struct_size;
  uint32_t struct_type; /* BP_STRUCT_DEVICE_PROPERTIES. */
  const void* next;

  const char* name;   /* For people: "Acme X1". */
  const char* bus_id; /* NULL, or where the device is plugged in: "0000:3b:00.0". */
  uint8_t uuid[16];   /* [DEVICE-1] A uuid is unique among all devices and equal in each process. */
  bp_device_class device_class;
  uint32_t compute_unit_count; /* Cores, multiprocessors; 0: not known. */
  uint32_t subgroup_size;      /* Lanes that run in step; 1 on a host; 0: not known. */
  uint32_t max_rank;           /* [DEVICE-2] max_rank is at least 4 and at most BP_MAX_RANK. */

  /* The heaps, each `heap_stride_bytes` behind the one before. [DEVICE-3] A device has at least one
   * heap and at most 64, and allocate() uses the first heap that has the wanted flags. A heap that
   * the host cannot read keeps its index: the host shows it as all zero, and does not use it. The
   * host must be able to read the first heap. */
  const bp_heap* heaps;
  uint64_t heap_count;
  uint64_t heap_stride_bytes;

  /* The dtypes that tensors of this device may have. A backend that claims a profile needs each
   * mandatory op of the profile for those of these dtypes that the op has. A host leaves out those
   * that it does not know. */
  const bp_dtype* dtypes;
  uint64_t dtype_count;

  /* Profiles that the backend claims to cover: "infer", "train", "llm", "spectral",
   * "quantized". */
  const char* const* profiles;
  uint64_t profile_count;

  double peak_bytes_per_second; /* The peak of the first heap; 0: not known. */
  double peak_f32_flops;        /* Per second; multiply and add count as two; 0: not known. */
  /* What register_host() takes begins and ends at a multiple of it: a power of two; 0 if the device
   * takes no memory of the host. */
  uint64_t host_register_alignment_bytes;
  int32_t dlpack_device_type; /* kDLCPU is 1; 0: no DLPack. */
  int32_t dlpack_device_id;
} bp_device_properties;

/* The device functions of one backend. An offer. */
typedef struct bp_device_ops {
  uint32_t struct_size;
  uint32_t struct_type; /* BP_STRUCT_DEVICE_OPS. */
  const void* next;
  void* self;

  /* Counts the devices that can be used. [DEVICE-4] probe() makes no driver context and is safe
   * before fork: a process that probed, then forked, can use the devices in the child. If there is
   * no device, it returns BP_OK with a count of 0, and a line in the log gives the reason. */
  bp_status (*probe)(void* self, uint64_t* out_device_count);

  /* Lends up to `capacity` devices and sets *out_device_count to how many there are. [DEVICE-5] The
   * order and the handles of devices are the same in every call of enumerate(). `out_devices` may
   * be NULL if capacity is 0. */
  bp_status (*enumerate)(void* self, uint64_t capacity, bp_device** out_devices,
                         uint64_t* out_device_count);

  /* Lends the properties of `device`. */
  bp_status (*properties)(void* self, bp_device* device,
                          const bp_device_properties** out_properties);

  /* [DEVICE-8] synchronize() of a device blocks until the work of all its streams has ended, or
   * returns BP_TIMEOUT after timeout_ns nanoseconds. With a timeout of 0 it only looks; a timeout
   * of UINT64_MAX never runs out. Failures stay on their streams and are not returned. */
  bp_status (*synchronize)(void* self, bp_device* device, uint64_t timeout_ns);

  /* Gives the free and total bytes of properties->heaps[heap_index]; heap_index counts from 0. The
   * result is a snapshot: others allocate too. [DEVICE-6] memory_info() returns BP_INVALID_ARGUMENT
   * for the index of a heap that does not exist. */
  bp_status (*memory_info)(void* self, bp_device* device, uint64_t heap_index,
                           uint64_t* out_free_bytes, uint64_t* out_total_bytes);

  /* Gives the number of resets of `device`, which tells a host that its handles are lost.
   * [DEVICE-9] generation() gives the same number until a reset() of the device, and a higher
   * number after it. It serves a lost device too. */
  bp_status (*generation)(void* self, bp_device* device, uint64_t* out_generation);

  /* Optional; brings a lost device back, and waits for work that still runs. It returns
   * BP_UNSUPPORTED while another instance uses the device. [DEVICE-10] The device, its default
   * stream, its tables, its kernels and its layouts survive reset() under the same handles. The
   * default stream is then idle and has no failure.
   *
   * All other handles of the device are lost, and so are its maps and open captures. [DEVICE-11]
   * After a reset(), each use of a handle of the device from before it returns BP_DEVICE_LOST, and
   * each call that ends such a handle returns BP_OK. A lost handle stays safe to use until the host
   * has ended it, at the latest until shutdown(); lost handles may be ended in any order. */
  bp_status (*reset)(void* self, bp_device* device);

  /* Optional; sets an option of the device at run time, such as "threads" to "4". [DEVICE-7]
   * set_option() returns BP_NOT_FOUND for a key that does not exist, and BP_INVALID_ARGUMENT for a
   * value that does not fit, with a text that says what is allowed. */
  bp_status (*set_option)(void* self, bp_device* device, const char* key, const char* value);
} bp_device_ops;

/* Switches the native current device of the calling thread, for hosts that also call the device's
 * own library in between. An offer; optional.
 *
 * No other part of this ABI needs the guard. [GUARD-4] Every entry outside the device guard leaves
 * the thread's native current device as it found it, also when the entry fails. */
typedef struct bp_device_guard_ops {
  uint32_t struct_size;
  uint32_t struct_type; /* BP_STRUCT_DEVICE_GUARD_OPS. */
  const void* next;
  void* self;

  /* Makes `device` current, and sets *out_previous to the device that was current; NULL stands for
   * no device. [GUARD-1] Passing *out_previous back to exchange() restores the previous device, so
   * that uses nest. [GUARD-2] exchange() never fails for NULL or a device of this backend, a lost
   * one included. [GUARD-3] exchange() affects no other thread. */
  bp_status (*exchange)(void* self, bp_device* device, bp_device** out_previous);

  /* Sets *out_is_initialized to 1 if this process holds native state of `device`, such as a driver
   * context, else 0. [GUARD-5] is_initialized() initialises nothing. */
  bp_status (*is_initialized)(void* self, bp_device* device, uint32_t* out_is_initialized);
} bp_device_guard_ops;

#ifdef __cplusplus
} /* extern "C" */
#endif

#endif /* BACKPLANE_DEVICE_H_ */
