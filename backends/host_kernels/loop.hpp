// Element-wise iteration over up to four tensors of one shape and any strides.
//
// A loop is prepared once per launch: axes of extent 1 vanish, the others are ordered by the stride
// of the result, and neighbours that lie behind each other in every tensor are merged, so that
// contiguous tensors become one row. It then hands rows to a function of the op:
//
//   outer axes   [i0][i1]...      walked by run_loop(), cut into parts for the threads
//   inner axis   one row          walked by the row function, vectorised for strides of 0 and 1
//
// If a tensor is read across its lines, as in a transpose, the axis along its lines becomes the
// neighbour of the inner axis. The two axes are walked in tiles, so that each line is read once.
// Threads share tiles, so that planes may have any proportions.
#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>
#include <span>

#include "backends/host_kernels/dtypes.hpp"
#include "backends/host_kernels/kernels.hpp"

namespace bp::kernels {

constexpr int kMaxOperands = 4;

// Works on n elements; operand k begins at data[k], and its elements are strides[k] bytes apart.
// `context` is what the op gave to run_loop().
using RowFunction = void(std::byte* const* data, const int64_t* strides, int64_t n,
                         const void* context);

// Works on a tile of rows x cols elements of the two inner axes of `loop`. The tile of operand k
// begins at data[k].
struct Loop;
using TileFunction = void(const Loop& loop, std::byte* const* data, int64_t rows, int64_t cols,
                          const void* context);

// One of the tensors of a loop, which all have the same shape. Its strides count elements.
struct LoopOperand {
  std::byte* data;         // If NULL, the value is the scalar of the loop.
  const int64_t* strides;  // Not read if `data` is NULL.
  int64_t size_bytes;      // The size of an element.
};

struct Loop {
  int operand_count = 0;
  int rank = 0;                                    // The number of axes after merging.
  bool is_tiled = false;                           // The two inner axes are walked in tiles.
  int64_t count = 1;                               // The number of elements.
  std::array<int64_t, BP_MAX_RANK> extents;        // The outermost axis first; `rank` entries.
  int64_t strides[kMaxOperands][BP_MAX_RANK];      // In bytes.
  std::array<std::byte*, kMaxOperands> data;       // NULL for an operand that is in `scalar`.
  std::array<int64_t, kMaxOperands> size_bytes{};  // The size of one element.
  uint64_t scalar = 0;                             // One value in the dtype of its operand.
};

// Makes a loop over `operands`. The first one is the result.
Loop make_loop(uint32_t ndim, const int64_t* shape, std::span<const LoopOperand> operands,
               uint64_t scalar = 0);

// Makes a loop over `tensors`, which have one shape. The first one is the result; NULL stands for
// `scalar`.
Loop make_loop(std::initializer_list<const bp_tensor*> tensors, uint64_t scalar = 0);

// Calls `row` for all elements, on up to `threads` threads. Parts have at least `grain` elements.
void run_loop(const Loop& loop, RowFunction* row, int threads, int64_t grain,
              const void* context = nullptr);

// Calls `tile` for all elements of a tiled loop, in tiles of up to tile_rows x tile_cols elements.
void run_tiles(const Loop& loop, TileFunction* tile, int64_t tile_rows, int64_t tile_cols,
               int threads, int64_t grain, const void* context);

// The context of the row functions of rows-inl.hpp.
struct RowOptions {
  bool is_streamed = false;  // The result is written past the caches.
};

// If all operands have this many bytes and the result overwrites none of them, the result is
// streamed. It is 3/4 of a last-level cache of 32 MiB. A smaller result stays in the cache for its
// next reader.
constexpr int64_t kStreamBytes = 24 << 20;

// Returns the options for `loop`. A result is streamed if the operands together do not stay in a
// cache and the result overwrites none of them. Lines of a streamed result are not read before they
// are written.
RowOptions choose_row_options(const Loop& loop);

// Does what run_loop() does, for a row function of rows-inl.hpp. Such a function writes only the
// first operand, and reads each element of the others for its own place alone, so it may get copies
// of them.
void run_rows(const Loop& loop, RowFunction* row, int threads, int64_t grain,
              const RowOptions& options);

// Below this many elements one thread is faster: kGrain is for a loop that only moves memory,
// kMathGrain for a loop that computes functions as slow as exp().
constexpr int64_t kGrain = 32768, kMathGrain = 8192;

// Submits a loop whose row function is one of rows-inl.hpp.
bp_status submit_rows(Launch& launch, const Loop& loop, RowFunction* row, int64_t grain);

}  // namespace bp::kernels
