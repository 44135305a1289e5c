#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backends/host_kernels/parts.cpp"
#include "hwy/foreach_target.h"
// The headers below must come after foreach_target.h.
#include "backends/host_kernels/copy.hpp"
#include "backends/host_kernels/dense_rows-inl.hpp"
#include "backends/host_kernels/parts.hpp"

#ifndef BACKPLANE_CPU_PARTS_ROWS
#define BACKPLANE_CPU_PARTS_ROWS
namespace bp::kernels {
namespace {

// A part that gives some elements of each row. The elements are dense in the tensor.
struct RowPart {
  explicit RowPart(const Loop& loop)
      : to(loop.data[0]), from(loop.data[1]), scalar(loop.scalar), pitch(loop.strides[1][0]) {
    if (loop.rank == 2) {
      count = loop.extents[1];
      stride = loop.strides[1][1];
    }
  }

  std::byte* to;          // The place of the first row.
  const std::byte* from;  // NULL for a part that is `scalar`.
  uint64_t scalar;
  int64_t pitch;       // The bytes between rows of `from`.
  int64_t count = 1;   // The elements of a row.
  int64_t stride = 0;  // The bytes between elements of `from`.
};

}  // namespace
}  // namespace bp::kernels
#endif

HWY_BEFORE_NAMESPACE();
namespace bp::kernels {
namespace HWY_NAMESPACE {
namespace {

template <typename T>
void copy_part(const RowPart& part, int64_t row, int64_t to_pitch) {
  const std::byte* const from = part.from == nullptr
                                    ? reinterpret_cast<const std::byte*>(&part.scalar)
                                    : part.from + row * part.pitch;
  gather_row(from, part.stride, part.count, reinterpret_cast<T*>(part.to + row * to_pitch));
}

template <typename T>
void copy_rows(const std::vector<RowPart>& parts, int64_t rows, int64_t to_pitch, int threads) {
  int64_t row_length = 0;
  for (const RowPart& part : parts) row_length += part.count;
  parallel_for(threads, rows, std::max<int64_t>(1, kGrain / row_length),
               [&](int64_t begin, int64_t end) {
                 for (int64_t row = begin; row < end; ++row) {
                   for (const RowPart& part : parts) copy_part<T>(part, row, to_pitch);
                 }
               });
}

void copy_joined(const std::vector<Loop>& loops, int64_t size_bytes, int threads) {
  const std::vector<RowPart> parts(loops.begin(), loops.end());
  const int64_t rows = loops.front().extents[0], to_pitch = loops.front().strides[0][0];
  switch (size_bytes) {
    case 1:
      return copy_rows<uint8_t>(parts, rows, to_pitch, threads);
    case 2:
      return copy_rows<uint16_t>(parts, rows, to_pitch, threads);
    case 4:
      return copy_rows<uint32_t>(parts, rows, to_pitch, threads);
    default:
      return copy_rows<uint64_t>(parts, rows, to_pitch, threads);
  }
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace bp::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace bp::kernels {
namespace {

HWY_EXPORT(copy_joined);

// Returns whether a part has short rows, which are dense in the tensor.
bool has_short_rows(const Loop& loop) {
  constexpr int64_t kShortBytes = 4096;
  const int64_t size_bytes = loop.size_bytes[0];
  return loop.rank == 2 && !loop.is_tiled && loop.strides[0][1] == size_bytes &&
         loop.extents[1] * size_bytes <= kShortBytes && !choose_row_options(loop).is_streamed;
}

}  // namespace

void PartCopies::join() {
  if (loops_.size() < 2) return;
  const auto found = std::ranges::find_if(loops_, has_short_rows);
  if (found == loops_.end()) return;
  const int64_t rows = found->extents[0], pitch = found->strides[0][0];
  const auto can_join = [&](const Loop& loop) {
    // A row of one element has no axis of its own.
    const bool is_column = loop.rank == 1;
    return (is_column || has_short_rows(loop)) && loop.extents[0] == rows &&
           loop.strides[0][0] == pitch;
  };
  const auto rest = std::stable_partition(loops_.begin(), loops_.end(), can_join);
  joined_.assign(loops_.begin(), rest);
  loops_.erase(loops_.begin(), rest);
}

void PartCopies::run(int threads) const {
  if (!joined_.empty()) {
    HWY_DYNAMIC_DISPATCH(copy_joined)(joined_, size_bytes_, threads);
  }
  for (const Loop& loop : loops_) run_copy(loop, size_bytes_, threads);
}

}  // namespace bp::kernels
#endif  // HWY_ONCE
