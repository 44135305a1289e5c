// kv_cache_append copies rows of new tokens. Threads share the elements of a row, and each thread
// walks all tokens in their order, so the last of equal slots wins.
#include <algorithm>
#include <cstring>

#include "backends/host_kernels/dtypes.hpp"
#include "backends/host_kernels/indices.hpp"
#include "backends/host_kernels/strided.hpp"
#include "hwy/base.h"

namespace bp::kernels {
namespace {

// The lines of a row are its heads. All strides count elements.
struct Line {
  std::byte* address = nullptr;
  int64_t head_stride = 0, stride = 0;
};

struct Append {
  View cache, y, x, slots;
  IndexTensor indices;
  Bounds bounds;  // Of the rows of the cache.
  bp_dtype dtype = 0;
  int64_t tokens = 0, heads = 0, width = 0;

  // Returns the offset of token `token` in the first axes of a tensor, which are those of slots.
  int64_t token_offset(const View& view, int64_t token) const {
    int64_t offset = 0;
    for (uint32_t axis = slots.ndim; axis-- > 0; token /= slots.shape[axis]) {
      offset += token % slots.shape[axis] * view.strides[axis];
    }
    return offset;
  }
  const std::byte* slot_place(int64_t token) const {
    return slots.address + token_offset(slots, token) * (indices.is_i64 ? 8 : 4);
  }
  int64_t slot(const std::byte* place) const {
    return indices.is_i64 ? *reinterpret_cast<const int64_t*>(place)
                          : *reinterpret_cast<const int32_t*>(place);
  }
};

// Copies the elements [begin, end) of a row of heads.
template <typename T>
void copy_part(const Line& from, const Line& to, int64_t width, int64_t begin, int64_t end) {
  while (begin < end) {
    const int64_t head = begin / width, first = begin % width;
    const int64_t count = std::min(width - first, end - begin);
    const T* const source =
        reinterpret_cast<const T*>(from.address) + head * from.head_stride + first * from.stride;
    T* const target = reinterpret_cast<T*>(to.address) + head * to.head_stride + first * to.stride;
    if (from.stride == 1 && to.stride == 1) {
      std::memcpy(target, source, static_cast<size_t>(count) * sizeof(T));
    } else {
      for (int64_t i = 0; i < count; ++i) target[i * to.stride] = source[i * from.stride];
    }
    begin += count;
  }
}

// Writes the elements [begin, end) of the rows of all tokens.
template <typename T>
void append_part(const Append& a, int64_t begin, int64_t end, WrongIndex& wrong) {
  const int64_t block_size = a.y.shape[1];
  const uint32_t axes = a.slots.ndim;
  for (int64_t token = 0; token < a.tokens; ++token) {
    const std::byte* const place = a.slot_place(token);
    if (a.slot(place) < 0) continue;
    const int64_t slot = a.bounds.acting(a.slot(place));
    if (!a.bounds.contains(slot)) {
      wrong.set(place);
      continue;
    }
    const Line from{a.x.address + a.token_offset(a.x, token) * int64_t{sizeof(T)},
                    a.x.strides[axes], a.x.strides[axes + 1]};
    const int64_t row = slot / block_size * a.y.strides[0] + slot % block_size * a.y.strides[1];
    const Line to{a.y.address + row * int64_t{sizeof(T)}, a.y.strides[2], a.y.strides[3]};
    copy_part<T>(from, to, a.width, begin, end);
  }
}

// Below this many elements a team of threads costs more than it saves.
constexpr int64_t kGrainElements = 32768;

void run_append(const Append& a, int thread_count) {
  const bool is_in_place = a.y.address == a.cache.address;
  if (!is_in_place) copy_elements(a.cache, a.y, dtype_size_bytes(a.dtype), thread_count);
  const int64_t count = a.heads * a.width;
  const int64_t grain = std::max<int64_t>(1, kGrainElements / std::max<int64_t>(1, a.tokens));
  WrongIndex wrong;
  with_any(a.dtype, [&]<typename T>(T) {
    using Bits = hwy::UnsignedFromSize<sizeof(T)>;
    parallel_for(thread_count, count, grain,
                 [&](int64_t begin, int64_t end) { append_part<Bits>(a, begin, end, wrong); });
    if (count == 0) append_part<Bits>(a, 0, 0, wrong);  // It checks the slots.
  });
  wrong.check("kv_cache_append", a.indices, a.bounds.extent, "", "slots");
}

bp_status append_launch(const bp_kv_cache_append_args& args, Launch& launch) {
  Append a{view_of(*args.cache), view_of(*args.y), view_of(*args.x), view_of(*args.slots)};
  a.indices = IndexTensor(*args.slots);
  a.bounds = Bounds(args.cache->shape[0] * args.cache->shape[1], args.bounds);
  a.dtype = args.cache->dtype;
  a.tokens = element_count(*args.slots);
  a.heads = args.cache->shape[2];
  a.width = args.cache->shape[3];
  return launch.submit([a, threads = launch.thread_count()] { run_append(a, threads); });
}

constexpr auto kDtypes = with_indices(kAnyDtypes);

}  // namespace

extern constinit const bp_kernel kKvCacheAppend =
    make_kernel<bp_kv_cache_append_args, append_launch>(
        kernel_row("kv_cache_append", BP_OP_KV_CACHE_APPEND, {kDtypes, 2}, BP_KERNEL_IN_PLACE));

}  // namespace bp::kernels
