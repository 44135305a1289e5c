// Fourier transforms of lines: how a length is transformed, and the memory that this needs.
//
// A length is transformed in passes, one for each of its factors (Cooley and Tukey 1965), each of
// which reads one buffer and writes another in order (the autosort form of Stockham: Swarztrauber,
// FFT algorithms for vector computers, 1984). A length with a large prime factor is transformed by
// a convolution of a length with small factors (Bluestein 1970), so that no length takes the square
// of its time. Real lines of an even length are transformed as half as many complex numbers.
//
// Some lines are transformed side by side, as a tile: element i of line q is number i * width + q.
// The real and the imaginary parts lie in arrays of their own. The width follows from the call, so
// that results do not depend on the number of threads.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "backends/host_kernels/line_operands.hpp"

namespace bp::kernels {

// The factors of the passes that a length needs.
struct FourierPasses {
  FourierPasses() = default;
  // Factors `length`. If it has a prime factor above kMostRadix, there are no passes.
  explicit FourierPasses(int64_t its_length);

  static constexpr int64_t kMostRadix = 97;

  int64_t length = 1;
  int count = 0;
  bool is_possible = true;
  std::array<int64_t, 64> radices{};
};

// What is transformed.
struct FourierCall {
  int64_t length = 1;  // The elements of a line of the complex transform.
  bool is_inverse = false;
  bool has_real_x = false, has_real_y = false;
  double scale = 1;        // Multiplies every sum.
  int64_t size_bytes = 4;  // The size of a number of the compute type.
  int64_t line_count = 1;
};

struct FourierPlan {
  FourierPlan() = default;
  explicit FourierPlan(const FourierCall& its_call);

  FourierCall call;
  bool is_halved = false;       // A real line of an even length: `points` is half of it.
  bool is_convolution = false;  // The passes transform a convolution.
  int64_t points = 1;           // The complex elements of a line that are transformed.
  FourierPasses passes;         // Of `points`, or of a longer convolution.
  int64_t width = 1;            // The lines of a tile.

  // The elements of the tables of the factors (fourier_lines.cpp).
  int64_t half_count() const { return is_halved ? points + 1 : 0; }
  int64_t chirp_count() const { return is_convolution ? points : 0; }
  int64_t response_count() const { return is_convolution ? passes.length : 0; }
  // The elements of an array of a tile, which has room for a bin more than a line has elements.
  int64_t tile_elements() const { return room(passes.length + 1, width); }
  // The memory of the tables, which all threads share, and of the four arrays of a thread.
  uint64_t table_bytes() const;
  uint64_t thread_bytes() const;

  // Returns the elements of an array, behind which a vector may be read and written.
  static int64_t room(int64_t elements, int64_t lines) {
    constexpr int64_t kVectorElements = 16;
    return (elements * lines + 2 * kVectorElements - 1) / kVectorElements * kVectorElements;
  }
};

// One tensor as lines. Strides are in bytes.
struct FourierSide {
  LineOperand lines;
  bool has_parts = false;
  int64_t part_stride = 0;  // From the real to the imaginary part.
};

struct FourierWork {
  FourierPlan plan;
  LineSpace space;
  FourierSide x, y;
  bp_dtype dtype = BP_F32;
  int threads = 1;
  std::byte* memory = nullptr;  // Of table_bytes(), and thread_bytes() for each thread.
};

// Transforms all lines.
void run_fourier(const FourierWork& work);

}  // namespace bp::kernels
