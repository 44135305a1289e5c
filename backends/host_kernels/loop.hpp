// Element-wise iteration over up to four tensors of one shape and any strides.
//
// A loop is prepared once per launch: axes of extent 1 vanish, the others are ordered by the stride
// of the result, and neighbours that lie behind each other in every tensor are merged, so that
// contiguous tensors become one row. It then hands rows to a function of the op:
//
//   outer axes   [i0][i1]...      walked by run_loop(), cut into parts for the threads
//   inner axis   one row          walked by the row function, vectorised for strides of 0 and 1
//
// Where a tensor is read across its lines, as in a transpose, an axis along its lines is made the
// neighbour of the inner one, and the two are walked in tiles: a line is then read once. Threads
// share tiles, so that planes may have any proportions.
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

// Works on a tile of rows x cols elements of the two inner axes of `loop`; data is where it begins.
struct Loop;
using TileFunction = void(const Loop& loop, std::byte* const* data, int64_t rows, int64_t cols,
                          const void* context);

// A tensor of the shape that the others have. Its strides count elements.
struct LoopOperand {
  std::byte* data;         // NULL: the value is in the scalar of the loop.
  const int64_t* strides;  // Not read without data.
  int64_t size_bytes;      // Of an element.
};

struct Loop {
  int operand_count = 0;
  int rank = 0;                                    // Axes that are left.
  bool is_tiled = false;                           // The two inner axes are walked in tiles.
  int64_t count = 1;                               // Elements.
  std::array<int64_t, BP_MAX_RANK> extents;        // The outermost axis first; `rank` entries.
  int64_t strides[kMaxOperands][BP_MAX_RANK];      // In bytes.
  std::array<std::byte*, kMaxOperands> data;       // NULL for an operand that is in `scalar`.
  std::array<int64_t, kMaxOperands> size_bytes{};  // Of one element.
  uint64_t scalar = 0;                             // One value, of the dtype of its operand.
};

// A loop over `operands`, the result first.
Loop make_loop(uint32_t ndim, const int64_t* shape, std::span<const LoopOperand> operands,
               uint64_t scalar = 0);

// A loop over `tensors`, the result first. All have one shape; NULL stands for `scalar`.
Loop make_loop(std::initializer_list<const bp_tensor*> tensors, uint64_t scalar = 0);

// Calls `row` for all elements, on up to `threads` threads. Parts have at least `grain` elements.
void run_loop(const Loop& loop, RowFunction* row, int threads, int64_t grain,
              const void* context = nullptr);

// The same by tiles of up to tile_rows x tile_cols elements, for a loop that is tiled.
void run_tiles(const Loop& loop, TileFunction* tile, int64_t tile_rows, int64_t tile_cols,
               int threads, int64_t grain, const void* context);

// What the row functions of rows-inl.hpp take as their context.
struct RowOptions {
  bool is_streamed = false;  // The result is written past the caches.
};

// Bytes of all operands from which a result that overwrites none of them is streamed: 3/4 of a
// last-level cache of 32 MiB. Below, what is written stays there for who reads it next.
constexpr int64_t kStreamBytes = 24 << 20;

// The options for `loop`. A result is streamed where the operands together do not stay in a cache
// and none of them is overwritten: its lines are then not read before they are written.
RowOptions choose_row_options(const Loop& loop);

// As run_loop(), for a row function of rows-inl.hpp, which only reads all operands but the first,
// and reads them only at their places: it may be given copies of them.
void run_rows(const Loop& loop, RowFunction* row, int threads, int64_t grain,
              const RowOptions& options);

// Elements below which one thread is faster, for a loop that only moves memory, and for one that
// computes functions as long as exp().
constexpr int64_t kGrain = 32768, kMathGrain = 8192;

// Submits a loop whose row function is one of rows-inl.hpp.
bp_status submit_rows(Launch& launch, const Loop& loop, RowFunction* row, int64_t grain);

}  // namespace bp::kernels
