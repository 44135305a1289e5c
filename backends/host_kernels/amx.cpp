// The intrinsics of AMX are compiled for this file's functions alone, whatever the target of the
// build is. Two tiles of a by two of b fill four tiles of c, so that a product loads as many tiles
// as it multiplies.
#include "backends/host_kernels/amx.hpp"

#if defined(__x86_64__) && defined(__linux__)
#include <cpuid.h>
#include <immintrin.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>

#define BP_AMX_TARGET __attribute__((target("amx-tile,amx-bf16")))

namespace bp::kernels {
namespace {

// How ldtilecfg reads the shapes of the tiles.
struct alignas(64) TileShapes {
  uint8_t palette = 1, start_row = 0;
  uint8_t reserved[14] = {};
  uint16_t row_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
  uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
};

bool ask_for_amx() {
  constexpr unsigned kBf16 = 1u << 22, kTile = 1u << 24;       // Of edx in leaf 7.
  constexpr long kRequestPermission = 0x1023, kTileData = 18;  // Of arch_prctl() in Linux 5.16.
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  if (__get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx) == 0) return false;
  if ((edx & (kBf16 | kTile)) != (kBf16 | kTile)) return false;
  return syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
}

BP_AMX_TARGET void load_shapes(const TileShapes& shapes) { _tile_loadconfig(&shapes); }
BP_AMX_TARGET void release() { _tile_release(); }

// Computes one or two rows of tiles.
template <bool kTwo>
BP_AMX_TARGET void multiply_rows(const uint16_t* a, int64_t a_stride, const uint32_t* b,
                                 int64_t depth, float* c) {
  constexpr int kPitchBytes = 128;
  const int64_t stride_bytes = 2 * a_stride;
  const uint16_t* const below = a + kAmxRows * a_stride;
  _tile_zero(0);
  _tile_zero(1);
  _tile_zero(2);
  _tile_zero(3);
  for (int64_t k = 0; k < depth; k += kAmxDepth, b += kAmxDepth / 2 * 32) {
    _tile_loadd(4, a + k, stride_bytes);
    _tile_loadd(6, b, kPitchBytes);
    _tile_loadd(7, b + 16, kPitchBytes);
    _tile_dpbf16ps(0, 4, 6);
    _tile_dpbf16ps(1, 4, 7);
    if constexpr (kTwo) {
      _tile_loadd(5, below + k, stride_bytes);
      _tile_dpbf16ps(2, 5, 6);
      _tile_dpbf16ps(3, 5, 7);
    }
  }
  _tile_stored(0, c, kPitchBytes);
  _tile_stored(1, c + 16, kPitchBytes);
  if constexpr (kTwo) {
    _tile_stored(2, c + kAmxRows * 32, kPitchBytes);
    _tile_stored(3, c + kAmxRows * 32 + 16, kPitchBytes);
  }
}

}  // namespace

bool has_amx_bf16() {
  static const bool has = ask_for_amx();
  return has;
}

AmxScope::AmxScope() {
  static constexpr TileShapes kShapes;
  load_shapes(kShapes);
}

AmxScope::~AmxScope() { release(); }

void multiply_amx(const uint16_t* a, int64_t a_stride, const uint32_t* b, int64_t rows,
                  int64_t depth, float* c) {
  // The intrinsics do not tell the compiler that they read memory.
  std::atomic_signal_fence(std::memory_order_seq_cst);
  int64_t r = 0;
  for (; r + 2 * kAmxRows <= rows; r += 2 * kAmxRows) {
    multiply_rows<true>(a + r * a_stride, a_stride, b, depth, c + r * 32);
  }
  if (r < rows) multiply_rows<false>(a + r * a_stride, a_stride, b, depth, c + r * 32);
}

}  // namespace bp::kernels

#else

namespace bp::kernels {

bool has_amx_bf16() { return false; }
AmxScope::AmxScope() = default;
AmxScope::~AmxScope() = default;
void multiply_amx(const uint16_t*, int64_t, const uint32_t*, int64_t, int64_t, float*) {}

}  // namespace bp::kernels

#endif
