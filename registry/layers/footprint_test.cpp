// Compares footprints with the set of all bytes that a tensor has.
#include "registry/layers/footprint.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <set>
#include <vector>

#include "backplane/host.h"

namespace bp::layers {
namespace {

struct View {
  std::vector<int64_t> shape, strides;
  uint64_t byte_offset = 0;
  bp_dtype dtype = BP_F32;
  uintptr_t buffer = 16;

  bp_tensor tensor() const {
    // NOLINTNEXTLINE(performance-no-int-to-ptr): nobody follows the handle.
    return {.buffer = reinterpret_cast<bp_buffer*>(buffer),
            .byte_offset = byte_offset,
            .shape = shape.data(),
            .strides = strides.data(),
            .ndim = static_cast<uint32_t>(shape.size()),
            .dtype = dtype};
  }
  Footprint footprint() const { return footprint_of(tensor()); }

  std::set<uint64_t> bytes() const {
    std::set<uint64_t> all;
    const int64_t item = bp_dtype_bits(dtype) / 8;
    int64_t count = 1;
    for (const int64_t extent : shape) count *= extent;
    for (int64_t n = 0; n < count; ++n) {
      int64_t rest = n, at = 0;
      for (size_t axis = shape.size(); axis-- > 0; rest /= shape[axis]) {
        at += rest % shape[axis] * strides[axis];
      }
      for (int64_t b = 0; b < item; ++b) {
        all.insert(static_cast<uint64_t>(static_cast<int64_t>(byte_offset) + at * item + b));
      }
    }
    return all;
  }
  std::string text() const {
    std::string words = std::to_string(byte_offset) + ":";
    for (size_t i = 0; i < shape.size(); ++i) {
      words += " " + std::to_string(shape[i]) + "*" + std::to_string(strides[i]);
    }
    return words;
  }
};

class Draws {
 public:
  explicit Draws(uint64_t seed) : random_(seed) {}
  int64_t between(int64_t low, int64_t high) {
    return std::uniform_int_distribution<int64_t>(low, high)(random_);
  }
  // Draws a view with any strides, none of whose bytes is below 0.
  View view() {
    constexpr bp_dtype kDtypes[] = {BP_I8, BP_F16, BP_F32, BP_F64};
    View view{.dtype = kDtypes[between(0, 3)]};
    int64_t lowest = 0;
    for (int64_t axis = between(0, 3); axis > 0; --axis) {
      view.shape.push_back(between(between(0, 9) == 0 ? 0 : 1, 4));
      view.strides.push_back(between(-9, 9));
      lowest += std::min<int64_t>(view.strides.back(), 0) * view.shape.back();
    }
    const int64_t item = bp_dtype_bits(view.dtype) / 8;
    view.byte_offset = static_cast<uint64_t>((between(0, 40) - lowest) * item);
    return view;
  }

 private:
  std::mt19937_64 random_;
};

bool share_a_byte(const View& a, const View& b) {
  const std::set<uint64_t> of_a = a.bytes(), of_b = b.bytes();
  return std::ranges::any_of(of_a, [&](uint64_t byte) { return of_b.contains(byte); });
}

TEST(Footprints, MeetWhereTheirTensorsShareAByteAndNowhereElse) {
  int meetings = 0;
  for (uint64_t seed = 0; seed < 4000; ++seed) {
    Draws draws(seed);
    const View a = draws.view(), b = draws.view();
    const bool expected = share_a_byte(a, b);
    EXPECT_EQ(overlap(a.footprint(), b.footprint()), expected)
        << "seed " << seed << ": " << a.text() << " and " << b.text();
    EXPECT_EQ(overlap(b.footprint(), a.footprint()), expected) << "seed " << seed;
    meetings += expected ? 1 : 0;
  }
  EXPECT_GT(meetings, 400);
  EXPECT_LT(meetings, 3600);
}

TEST(Footprints, SpanTheirTensors) {
  for (uint64_t seed = 0; seed < 500; ++seed) {
    const View view = Draws(seed).view();
    const std::set<uint64_t> bytes = view.bytes();
    const Footprint footprint = view.footprint();
    EXPECT_EQ(footprint.is_empty(), bytes.empty()) << seed;
    if (bytes.empty()) continue;
    EXPECT_EQ(footprint.begin, *bytes.begin()) << view.text();
    EXPECT_EQ(footprint.end, *bytes.rbegin() + 1) << view.text();
  }
}

TEST(Footprints, OfTwoBuffersNeverMeet) {
  const View a{.shape = {4}, .strides = {1}}, b{.shape = {4}, .strides = {1}, .buffer = 32};
  EXPECT_TRUE(overlap(a.footprint(), a.footprint()));
  EXPECT_FALSE(overlap(a.footprint(), b.footprint()));
  const View nowhere{.shape = {4}, .strides = {1}, .buffer = 0};
  EXPECT_TRUE(nowhere.footprint().is_empty());
}

TEST(Footprints, OfRangesMeetTensors) {
  const View columns{.shape = {4, 2}, .strides = {8, 1}};  // 8 of each 32 bytes.
  // NOLINTNEXTLINE(performance-no-int-to-ptr): nobody follows the handle.
  const auto buffer = reinterpret_cast<bp_buffer*>(uintptr_t{16});
  EXPECT_FALSE(overlap(columns.footprint(), footprint_of(bp_buffer_ref{buffer, 8, 24})));
  EXPECT_TRUE(overlap(columns.footprint(), footprint_of(bp_buffer_ref{buffer, 8, 25})));
  EXPECT_TRUE(overlap(columns.footprint(), footprint_of(bp_buffer_ref{buffer, 103, 1})));
  EXPECT_FALSE(overlap(columns.footprint(), footprint_of(bp_buffer_ref{buffer, 104, 9})));
  EXPECT_FALSE(overlap(columns.footprint(), footprint_of(bp_buffer_ref{buffer, 4, 0})));
}

TEST(Footprints, AreOfOneShapeHoweverTheAxesStand) {
  const View rows{.shape = {3, 4}, .strides = {8, 1}}, columns{.shape = {4, 3}, .strides = {1, 8}};
  const View ones{.shape = {1, 3, 1, 4}, .strides = {77, 8, -5, 1}};
  EXPECT_EQ(rows.footprint(), columns.footprint());
  EXPECT_EQ(rows.footprint(), ones.footprint());
  const View backwards{.shape = {3, 4}, .strides = {-8, -1}, .byte_offset = 76};
  EXPECT_EQ(rows.footprint(), backwards.footprint());
  const View repeated{.shape = {5, 3, 4}, .strides = {0, 8, 1}};
  EXPECT_EQ(rows.footprint(), repeated.footprint());
}

TEST(Footprints, TakeAnyStrideOfAnAxisOfOneElement) {
  const View plain{.shape = {4}, .strides = {1}};
  for (const int64_t stride : {INT64_MIN, INT64_MIN + 1, INT64_MAX}) {
    const View odd{.shape = {1, 4}, .strides = {stride, 1}};
    EXPECT_EQ(tensor_defect(odd.tensor(), 16), "") << stride;
    EXPECT_EQ(odd.footprint(), plain.footprint()) << stride;
  }
}

TEST(Footprints, OfFourBitsAreOneRow) {
  const View packed{.shape = {3}, .strides = {1}, .byte_offset = 5, .dtype = BP_I4};
  EXPECT_EQ(packed.footprint().begin, 5u);
  EXPECT_EQ(packed.footprint().end, 7u) << "a half byte is a byte that is touched";
}

// An exact answer would take a minute, and nobody waits so long for a warning.
TEST(Footprints, OfMoreRowsThanAnyoneLooksAtAreNotSaidToMeet) {
  const View even{.shape = {5000}, .strides = {2}};
  EXPECT_FALSE(overlap(even.footprint(), even.footprint()));
  View few = even;
  few.shape = {4096};
  EXPECT_TRUE(overlap(few.footprint(), few.footprint()));
  const View dense{.shape = {1 << 30}, .strides = {1}};
  EXPECT_TRUE(overlap(dense.footprint(), dense.footprint())) << "one row, however long";
}

TEST(TensorDefects, NameTheRuleThatIsBroken) {
  const View good{.shape = {2, 3}, .strides = {3, 1}, .byte_offset = 8};
  EXPECT_EQ(tensor_defect(good.tensor(), 32), "");
  EXPECT_EQ(tensor_defect(good.tensor(), 31), "[TENSOR-5] it ends at byte 32 of a buffer of 31");
  const auto with = [&](auto change) {
    bp_tensor tensor = good.tensor();
    change(tensor);
    return tensor_defect(tensor, 32);
  };
  EXPECT_TRUE(with([](bp_tensor& t) { t.ndim = BP_MAX_RANK + 1; }).starts_with("[TENSOR-1]"));
  EXPECT_EQ(with([](bp_tensor& t) { t.shape = nullptr; }), "[ERROR-3] its shape is NULL");
  EXPECT_EQ(with([](bp_tensor& t) { t.strides = nullptr; }), "[ERROR-3] its strides are NULL");
  EXPECT_TRUE(with([](bp_tensor& t) { t.buffer = nullptr; }).starts_with("[TENSOR-4]"));
  EXPECT_TRUE(with([](bp_tensor& t) { t.byte_offset = 6; }).starts_with("[TENSOR-1]"));
  const View negative{.shape = {-1}, .strides = {1}};
  EXPECT_EQ(tensor_defect(negative.tensor(), 32), "[TENSOR-1] an extent is -1");
  const View before{.shape = {2}, .strides = {-1}};
  EXPECT_EQ(tensor_defect(before.tensor(), 32), "[TENSOR-5] it begins before its buffer");
}

// 64 bits cannot hold the ends of these views. The sums must not wrap around into the buffer.
TEST(TensorDefects, SeeWhatEndsBeyond64Bits) {
  for (const View& huge : {View{.shape = {INT64_MAX}, .strides = {INT64_MAX}},
                           View{.shape = {2}, .strides = {INT64_MAX}},
                           View{.shape = {2}, .strides = {1}, .byte_offset = UINT64_MAX - 3},
                           View{.shape = std::vector<int64_t>(8, INT64_MAX),
                           .strides = std::vector<int64_t>(8, INT64_MAX)}}) {
    EXPECT_EQ(tensor_defect(huge.tensor(), UINT64_MAX).substr(0, 32),
              "[TENSOR-5] it ends at byte 2^64 ")
        << huge.text();
  }
  for (const View& below : {View{.shape = {2}, .strides = {INT64_MIN}},
                            View{.shape = {INT64_MAX}, .strides = {INT64_MIN}}}) {
    EXPECT_EQ(tensor_defect(below.tensor(), UINT64_MAX), "[TENSOR-5] it begins before its buffer")
        << below.text();
  }
  const View nothing{.shape = {0, INT64_MAX}, .strides = {INT64_MIN, INT64_MAX}};
  EXPECT_EQ(tensor_defect(nothing.tensor(), 0), "") << "no element lies anywhere";
}

}  // namespace
}  // namespace bp::layers
