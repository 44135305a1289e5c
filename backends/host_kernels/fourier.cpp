#include "backends/host_kernels/fourier.hpp"

#include <algorithm>
#include <limits>

namespace bp::kernels {
namespace {

// The most bytes of the arrays of a tile, so that they stay in a second-level cache.
constexpr int64_t kTileBytes = 1 << 20;

// Returns about how long the passes take for one element.
double cost_of(const FourierPasses& passes) {
  double cost = 0;
  for (int i = 0; i < passes.count; ++i) {
    const auto radix = static_cast<double>(passes.radices[static_cast<size_t>(i)]);
    cost += radix <= 4 ? 0.5 + radix / 8 : 0.3 + 0.2 * radix;
  }
  return cost;
}

// Returns passes of at least `least` points that take the shortest time.
FourierPasses passes_of_convolution(int64_t least) {
  FourierPasses best;
  double least_time = std::numeric_limits<double>::infinity();
  int64_t most = 1;
  while (most < least) most *= 2;
  for (int64_t fives = 1; fives <= most; fives *= 5) {
    for (int64_t threes = fives; threes <= most; threes *= 3) {
      int64_t length = threes;
      while (length < least) length *= 2;
      const FourierPasses passes(length);
      const double time = static_cast<double>(length) * cost_of(passes);
      if (time < least_time) best = passes, least_time = time;
    }
  }
  return best;
}

// Returns the lines of a tile: a vector of them, or half of one. Fewer lines would leave most of a
// vector empty, and one line alone fills it with its own elements.
int64_t tile_width(const FourierPlan& plan) {
  constexpr int64_t kVectorBytes = 64;
  const int64_t of_line = 4 * plan.call.size_bytes * plan.passes.length;
  const int64_t vector = kVectorBytes / plan.call.size_bytes;
  for (const int64_t width : {vector, vector / 2}) {
    if (width * of_line > kTileBytes) continue;
    return plan.call.line_count < vector / 2 ? 1 : std::min(plan.call.line_count, width);
  }
  return 1;
}

}  // namespace

FourierPasses::FourierPasses(int64_t its_length) : length(its_length) {
  int64_t rest = length;
  const auto take = [&](int64_t radix) {
    for (; rest % radix == 0; rest /= radix) radices[static_cast<size_t>(count++)] = radix;
  };
  take(4);
  for (int64_t radix = 2; radix <= kMostRadix; ++radix) take(radix);
  is_possible = rest == 1;
}

FourierPlan::FourierPlan(const FourierCall& its_call) : call(its_call) {
  is_halved = (call.has_real_x || call.has_real_y) && call.length % 2 == 0;
  points = is_halved ? call.length / 2 : call.length;
  passes = FourierPasses(points);
  is_convolution = !passes.is_possible;
  if (is_convolution) passes = passes_of_convolution(2 * points - 1);
  width = tile_width(*this);
}

uint64_t FourierPlan::table_bytes() const {
  const int64_t elements = room(passes.length, 1) + room(half_count(), 1) + room(chirp_count(), 1) +
                           room(response_count(), 1);
  return static_cast<uint64_t>(2 * elements * call.size_bytes);
}

uint64_t FourierPlan::thread_bytes() const {
  return static_cast<uint64_t>(4 * tile_elements() * call.size_bytes);
}

}  // namespace bp::kernels
