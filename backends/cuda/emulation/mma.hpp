// The functions of kernels/mma.cuh on the emulated device.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

#include "backends/cuda/emulation/emulation.hpp"

namespace bp::cuda::emulation {

using SharedAddress = std::byte*;

inline SharedAddress shared_address(const void* place) {
  return static_cast<std::byte*>(const_cast<void*>(place));
}

// Publishes `mine` to the warp, and returns the memory with the values of all its lanes, 16 bytes
// each. It is valid until the next exchange.
template <typename T>
const std::byte* exchange(const T& mine) {
  static_assert(sizeof(T) <= 16);
  Place& here = place();
  std::byte* const slots = exchange_slots(here.shuffles++ % 2);
  {
    const Unchecked unchecked;
    std::memcpy(slots + size_t{here.thread.x % 32} * 16, &mine, sizeof(T));
  }
  wait_for_exchange();
  return slots;
}

inline void copy_unchecked(void* to, const void* from, size_t size) {
  const Unchecked unchecked;
  std::memcpy(to, from, size);
}

template <typename T>
float element(const std::byte* at) {
  T value;
  std::memcpy(&value, at, sizeof(T));
  return static_cast<float>(value);
}

// Returns x as a float, without the bits that do not fit.
inline float truncated(double x) {
  const auto nearest = static_cast<float>(x);
  const bool is_above = std::isfinite(nearest) && std::fabs(double{nearest}) > std::fabs(x);
  return is_above ? std::nextafter(nearest, 0.0f) : nearest;
}

template <typename T>
void mma(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  struct Four {
    uint32_t at[4];
  };
  struct Two {
    uint32_t at[2];
  };
  const size_t lane = place().thread.x % 32, g = lane / 4, t = lane % 4;
  std::byte rows[4][16];  // Of the lanes with the rows g and g + 8.
  copy_unchecked(rows, exchange(Four{{a[0], a[1], a[2], a[3]}}) + size_t{g} * 64, sizeof(rows));
  const std::byte* const columns = exchange(Two{{b0, b1}});
  const Unchecked unchecked;
  for (size_t i = 0; i < 4; ++i) {
    const size_t is_lower = i / 2, column = 2 * t + i % 2;
    double sum = double{c[i]};
    for (unsigned k = 0; k < 16; ++k) {
      const size_t owner = k % 8 / 2, half = k % 2, is_late = k / 8;
      const float left = element<T>(&rows[owner][(2 * is_late + is_lower) * 4 + half * 2]);
      const float right = element<T>(columns + (column * 4 + owner) * 16 + is_late * 4 + half * 2);
      sum += double{left} * double{right};
    }
    c[i] = truncated(sum);
  }
}

template <typename T>
int64_t byte_number(const std::byte* at) {
  T value;
  std::memcpy(&value, at, sizeof(T));
  return value;
}

template <typename A, typename B>
void mma_bytes(uint32_t (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  struct Four {
    uint32_t at[4];
  };
  struct Two {
    uint32_t at[2];
  };
  const size_t lane = place().thread.x % 32, g = lane / 4, t = lane % 4;
  std::byte rows[4][16];  // Of the lanes with the rows g and g + 8.
  copy_unchecked(rows, exchange(Four{{a[0], a[1], a[2], a[3]}}) + size_t{g} * 64, sizeof(rows));
  const std::byte* const columns = exchange(Two{{b0, b1}});
  const Unchecked unchecked;
  for (size_t i = 0; i < 4; ++i) {
    const size_t is_lower = i / 2, column = 2 * t + i % 2;
    int64_t sum = 0;
    for (unsigned k = 0; k < 32; ++k) {
      const size_t owner = k % 16 / 4, byte = k % 4, is_late = k / 16;
      sum += byte_number<A>(&rows[owner][(2 * is_late + is_lower) * 4 + byte]) *
             byte_number<B>(columns + (column * 4 + owner) * 16 + is_late * 4 + byte);
    }
    c[i] += static_cast<uint32_t>(sum);
  }
}

template <bool kIsTransposed>
void load(uint32_t (&to)[4], SharedAddress row) {
  const std::byte* const rows = exchange(row);
  const size_t lane = place().thread.x % 32, g = lane / 4, t = lane % 4;
  for (size_t i = 0; i < 4; ++i) {
    for (size_t half = 0; half < 2; ++half) {
      const size_t from_row = kIsTransposed ? 2 * t + half : g;
      const size_t column = kIsTransposed ? g : 2 * t + half;
      const std::byte* begin;
      copy_unchecked(&begin, rows + (8 * i + from_row) * 16, sizeof(begin));
      std::memcpy(reinterpret_cast<std::byte*>(&to[i]) + half * 2, begin + column * 2, 2);
    }
  }
}
inline void load_matrices(uint32_t (&to)[4], SharedAddress row) { load<false>(to, row); }
inline void load_transposed(uint32_t (&to)[4], SharedAddress row) { load<true>(to, row); }

// The copies that the threads of the running block have begun. No thread ends before its copies.
struct Copies {
  struct Copy {
    std::byte* to;
    const void* from;
    unsigned group;
  };
  std::vector<Copy> pending;
  unsigned groups = 0;  // That were committed.
};
inline Copies& copies() {
  static thread_local Copies all[1024];
  return all[place().thread.x];
}

// `from` is NULL for zeros.
inline void copy_async(SharedAddress to, const void* from, bool is_there) {
  const Unchecked unchecked;
  unchecked.note(to, 16, AccessKind::kWrite);
  if (is_there) unchecked.note(from, 16, AccessKind::kRead);
  Copies& mine = copies();
  mine.pending.push_back({to, is_there ? from : nullptr, mine.groups});
}
inline void commit_copies() {
  const Unchecked unchecked;
  ++copies().groups;
}

template <int kPending>
void wait_for_copies() {
  const Unchecked unchecked;
  Copies& mine = copies();
  std::erase_if(mine.pending, [&](const Copies::Copy& copy) {
    if (copy.group + kPending >= mine.groups) return false;
    unchecked.note(copy.to, 16, AccessKind::kWrite);
    if (copy.from == nullptr) {
      std::memset(copy.to, 0, 16);
    } else {
      std::memcpy(copy.to, copy.from, 16);
    }
    return true;
  });
}

inline float exp2_fast(float x) { return std::exp2(x); }

}  // namespace bp::cuda::emulation
