// Tests guards on a device whose memory is memory of the test, so that every byte can be damaged.
#include "conformance/memory/guarded_tensor.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <stdexcept>

#include "conformance/memory/fake_memory.hpp"

namespace bp::conformance {
namespace {

constexpr Layout kLayouts[] = {Layout::kDense,         Layout::kTransposed, Layout::kSliced,
                               Layout::kStepped,       Layout::kNegative,   Layout::kReversed,
                               Layout::kBroadcastFirst};

GuardedSpec spec_of(const Shape& shape, Layout layout, bp_dtype dtype = BP_F32) {
  return {.dtype = dtype, .shape = shape, .placement = place(layout, shape)};
}

class Guards : public testing::Test {
 protected:
  MemoryPlace place_on(Edge edge = Edge::kNone, uint64_t canary_bytes = 64) {
    return {.target = &memory_.target, .canary_bytes = canary_bytes, .edge = edge};
  }
  FakeMemory::Buffer& buffer_of(const GuardedTensor& tensor) {
    return memory_.buffers.at(tensor.view()->buffer);
  }
  // Returns which bytes belong to elements.
  std::vector<bool> elements_of(const GuardedTensor& tensor, const GuardedSpec& spec) {
    std::vector<bool> is_element(buffer_of(tensor).size_bytes);
    const uint64_t size = element_size(spec.dtype);
    for (int64_t i = 0; i < element_count(spec.shape); ++i) {
      const int64_t offset = element_offset(spec.placement, spec.shape, i);
      const uint64_t byte =
          tensor.view()->byte_offset + static_cast<uint64_t>(offset * static_cast<int64_t>(size));
      for (uint64_t k = byte; k < byte + size; ++k) is_element.at(k) = true;
    }
    return is_element;
  }

  FakeMemory memory_;
};

TEST_F(Guards, GiveBackWhatWasStored) {
  for (const Layout layout : kLayouts) {
    const Shape shape = {3, 4};
    const GuardedSpec spec = spec_of(shape, layout);
    GuardedTensor tensor(place_on(), spec);
    std::vector<DoubleDouble> values;
    for (int64_t i = 0; i < 12; ++i) {
      values.emplace_back(static_cast<double>(stored_index(spec.placement, shape, i)) + 0.5);
    }
    tensor.set_elements(values);
    tensor.upload();
    tensor.download();
    for (int64_t i = 0; i < 12; ++i) {
      EXPECT_EQ(tensor.element(i).hi, values[static_cast<size_t>(i)].hi) << layout_text(layout);
      EXPECT_TRUE(tensor.is_unchanged(i));
    }
    EXPECT_FALSE(tensor.damage().has_value());
  }
}

TEST_F(Guards, SurroundTheElementsWithOneOfTwoPatterns) {
  const GuardedSpec spec = spec_of({2, 3}, Layout::kSliced, BP_F16);
  GuardedTensor tensor(place_on(), spec);
  std::vector<std::vector<std::byte>> images;
  for (const Surroundings kind : {Surroundings::kNan, Surroundings::kLow}) {
    tensor.surround(kind);
    tensor.set_elements(std::vector<DoubleDouble>(6, DoubleDouble(1.5)));
    tensor.upload();
    tensor.download();
    EXPECT_FALSE(tensor.damage().has_value());
    const FakeMemory::Buffer& buffer = buffer_of(tensor);
    images.emplace_back(buffer.bytes, buffer.bytes + buffer.size_bytes);
  }
  const std::vector<bool> is_element = elements_of(tensor, spec);
  bool is_different = true;
  for (size_t i = 0; i < images[0].size(); ++i) {
    if (is_element[i]) {
      EXPECT_EQ(images[0][i], images[1][i]) << i;
    } else if (i % 2 == 1) {
      is_different = is_different && images[0][i] != images[1][i];
    }
  }
  EXPECT_TRUE(is_different);
}

TEST_F(Guards, SurroundWithNumbersThatAreNegativeAndFiniteInEachDtype) {
  std::byte bytes[16];
  for (uint64_t i = 0; i < 16; ++i) bytes[i] = canary_byte(i, Surroundings::kLow);
  for (const bp_dtype dtype : {BP_F64, BP_F32, BP_F16, BP_BF16, BP_I64, BP_I32, BP_I16}) {
    for (size_t at = 0; at < 16; at += element_size(dtype)) {
      const double value = load_element(dtype, bytes + at).hi;
      EXPECT_TRUE(std::isfinite(value) && value < 0) << dtype_text(dtype) << " " << value;
    }
  }
}

// Changes each byte of the buffer in turn: in front of, between and behind the elements.
TEST_F(Guards, FindEachByteThatChangesOutsideOfTheElements) {
  for (const Layout layout : kLayouts) {
    const GuardedSpec spec = spec_of({2, 3}, layout, BP_F16);
    GuardedTensor tensor(place_on(Edge::kNone, 8), spec);
    tensor.poison_elements(Poison::kNan);
    tensor.upload();
    const std::vector<bool> is_element = elements_of(tensor, spec);
    for (size_t i = 0; i < is_element.size(); ++i) {
      std::byte& byte = buffer_of(tensor).bytes[i];
      byte ^= std::byte{1};
      tensor.download();
      byte ^= std::byte{1};
      const std::optional<Damage> damage = tensor.damage();
      ASSERT_EQ(damage.has_value(), !is_element[i]) << layout_text(layout) << ", byte " << i;
      if (!damage) continue;
      EXPECT_EQ(damage->byte, i);
      EXPECT_EQ(damage->count, 1u);
      const auto lowest = static_cast<int64_t>(tensor.ref().byte_offset);
      const auto end = lowest + static_cast<int64_t>(tensor.ref().size_bytes);
      EXPECT_EQ(damage->from_start, static_cast<int64_t>(i) - lowest);
      EXPECT_EQ(damage->from_end, static_cast<int64_t>(i) - end);
    }
  }
}

// Turns each bit of the buffer in turn.
TEST_F(Guards, FindEachBitThatChangesOutsideOfPackedElements) {
  for (const bp_dtype dtype : {BP_I4, BP_F6E2M3, BP_U2}) {
    for (const Layout layout : kLayouts) {
      const GuardedSpec spec = spec_of({3, 3}, layout, dtype);
      GuardedTensor tensor(place_on(Edge::kNone, 8), spec);
      tensor.poison_elements(Poison::kNan);
      tensor.upload();
      std::vector<bool> is_element(8 * buffer_of(tensor).size_bytes);
      for (int64_t i = 0; i < 9; ++i) {
        const int64_t offset = element_offset(spec.placement, spec.shape, i);
        const uint64_t bits = dtype_bits(dtype);
        const uint64_t first =
            8 * tensor.view()->byte_offset + static_cast<uint64_t>(offset) * bits;
        for (uint64_t bit = first; bit < first + bits; ++bit) is_element.at(bit) = true;
      }
      for (size_t bit = 0; bit < is_element.size(); ++bit) {
        std::byte& byte = buffer_of(tensor).bytes[bit / 8];
        byte ^= std::byte{1} << (bit % 8);
        tensor.download();
        byte ^= std::byte{1} << (bit % 8);
        ASSERT_EQ(tensor.damage().has_value(), !is_element[bit])
            << layout_text(layout) << ", bit " << bit << " of dtype " << dtype;
      }
    }
  }
}

TEST_F(Guards, CountEachDamagedByteAndNameTheFirst) {
  const GuardedSpec spec = spec_of({4}, Layout::kDense);
  GuardedTensor tensor(place_on(), spec);
  tensor.upload();
  for (const size_t i : {3u, 70u, 90u}) buffer_of(tensor).bytes[i] ^= std::byte{0x80};
  tensor.download();
  const std::optional<Damage> damage = tensor.damage();
  ASSERT_TRUE(damage.has_value());
  EXPECT_EQ(damage->byte, 3u);
  EXPECT_EQ(damage->count, 2u) << "byte 70 belongs to an element";
  EXPECT_FALSE(tensor.is_unchanged(1));
  EXPECT_TRUE(tensor.is_unchanged(0));
}

TEST_F(Guards, FillCanariesAndGapsWithNanInEveryFloat) {
  for (uint64_t i = 1; i < 10000; i += 2) ASSERT_EQ(canary_byte(i), std::byte{0x7f});
  for (const bp_dtype dtype : {BP_F16, BP_BF16, BP_F32, BP_F64}) {
    const GuardedSpec spec = spec_of({40}, Layout::kDense, dtype);
    GuardedTensor tensor(place_on(), spec);
    tensor.poison_elements(Poison::kNan);
    tensor.upload();
    tensor.download();
    for (int64_t i = 0; i < 40; ++i) EXPECT_TRUE(std::isnan(tensor.element(i).hi)) << i;
    tensor.poison_elements(Poison::kOnes);
    tensor.upload();
    tensor.download();
    EXPECT_TRUE(std::isnan(tensor.element(7).hi));
  }
}

TEST_F(Guards, RepeatTheirPatternSoRarelyThatACopiedRowShows) {
  size_t equal = 0;
  for (uint64_t i = 0; i < 4096; i += 2) equal += canary_byte(i) == canary_byte(i + 256);
  EXPECT_LT(equal, 2048u / 4);
}

TEST_F(Guards, PlaceTheFirstElementWhereTheHeapTakesTensors) {
  for (const uint64_t alignment : {1u, 16u, 256u}) {
    memory_.heap.tensor_offset_alignment_bytes = alignment;
    for (const Edge edge : {Edge::kNone, Edge::kLeft, Edge::kRight}) {
      for (const Layout layout : kLayouts) {
        for (const Shape& shape : {Shape{3, 5}, Shape{1}, Shape{0, 4}}) {
          const GuardedSpec spec = spec_of(shape, layout);
          const GuardedTensor tensor(place_on(edge), spec);
          const bp_buffer_ref ref = tensor.ref();
          EXPECT_EQ(tensor.view()->byte_offset % alignment, 0u) << layout_text(layout);
          EXPECT_LE(ref.byte_offset + ref.size_bytes, buffer_of(tensor).size_bytes);
          EXPECT_EQ(static_cast<int64_t>(tensor.view()->byte_offset),
                    static_cast<int64_t>(ref.byte_offset) - 4 * spec.placement.lowest);
        }
      }
    }
  }
}

TEST_F(Guards, AtAnEdgeEndWithinTheAlignmentOfAPageWithoutAccess) {
  for (const uint64_t alignment : {1u, 64u}) {
    memory_.heap.tensor_offset_alignment_bytes = alignment;
    for (const Layout layout : kLayouts) {
      const GuardedTensor left(place_on(Edge::kLeft), spec_of({3, 5}, layout));
      EXPECT_LT(left.ref().byte_offset, alignment) << layout_text(layout);
      const GuardedTensor right(place_on(Edge::kRight), spec_of({3, 5}, layout));
      const uint64_t end = right.ref().byte_offset + right.ref().size_bytes;
      EXPECT_LT(buffer_of(right).size_bytes - end, alignment) << layout_text(layout);
    }
  }
}

TEST_F(Guards, BeginAtByteZeroWithoutACanaryInFront) {
  GuardedSpec spec = spec_of({4}, Layout::kDense);
  spec.has_front_canary = false;
  EXPECT_EQ(GuardedTensor(place_on(), spec).view()->byte_offset, 0u);
  spec.has_front_canary = true;
  spec.small_offset_bytes = 4;
  EXPECT_EQ(GuardedTensor(place_on(), spec).view()->byte_offset, 68u);
}

TEST_F(Guards, LeaveNothingBehind) {
  for (const Edge edge : {Edge::kNone, Edge::kRight}) {
    { const GuardedTensor tensor(place_on(edge), spec_of({4}, Layout::kDense)); }
    EXPECT_TRUE(memory_.buffers.empty());
  }
  memory_.fails_from_bytes = 1;
  EXPECT_THROW(GuardedTensor(place_on(), spec_of({4}, Layout::kDense)), std::runtime_error);
  EXPECT_THROW(GuardedTensor(place_on(Edge::kLeft), spec_of({4}, Layout::kDense)),
               std::runtime_error);
}

TEST(FencedPagesDeathTest, EndWhoeverLeavesThem) {
  FencedPages pages(100);
  EXPECT_EQ(pages.size_bytes() % FencedPages::kPage, 0u);
  pages.data()[0] = pages.data()[pages.size_bytes() - 1] = std::byte{1};  // The whole memory can be
                                                                          // written.
  volatile std::byte* const data = pages.data();
  EXPECT_DEATH(static_cast<void>(data[-1]), "");
  EXPECT_DEATH(static_cast<void>(data[pages.size_bytes()]), "");
  PageEnd last(10);
  EXPECT_EQ(last.size(), 10u);
  volatile std::byte* const end = last.data();
  static_cast<void>(end[9]);
  EXPECT_DEATH(static_cast<void>(end[10]), "");
}

}  // namespace
}  // namespace bp::conformance
