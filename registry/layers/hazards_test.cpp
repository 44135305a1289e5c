// Tests which bytes tensors cover, and which work is not ordered.
#include "registry/layers/hazards.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

namespace bp::layers {
namespace {

bp_buffer* const kBuffer = reinterpret_cast<bp_buffer*>(0x1000);
bp_buffer* const kOther = reinterpret_cast<bp_buffer*>(0x2000);
bp_device* const kDevice = reinterpret_cast<bp_device*>(0x3000);
bp_stream* const kFirst = reinterpret_cast<bp_stream*>(0x10);
bp_stream* const kSecond = reinterpret_cast<bp_stream*>(0x20);
bp_event* const kEvent = reinterpret_cast<bp_event*>(0x30);

struct View {
  std::vector<int64_t> shape, strides;
  uint64_t byte_offset = 0;
  bp_dtype dtype = BP_F32;

  bp_tensor tensor() const {
    return {.buffer = kBuffer,
            .byte_offset = byte_offset,
            .shape = shape.data(),
            .strides = strides.data(),
            .ndim = static_cast<uint32_t>(shape.size()),
            .dtype = dtype};
  }
  Footprint footprint() const { return footprint_of(tensor()); }
};

TEST(Footprint, IsTheSpanAndTheRowsOfATensor) {
  const Footprint dense = View{{4, 8}, {8, 1}, 16}.footprint();
  EXPECT_EQ(dense.begin, 16);
  EXPECT_EQ(dense.end, 144);
  EXPECT_EQ(dense.axis_count, 0);
  const Footprint columns = View{{4, 2}, {8, 1}}.footprint();
  EXPECT_EQ(columns.row_bytes, 8);
  EXPECT_EQ(columns.axis_count, 1);
  const Footprint reversed = View{{4}, {-1}, 12}.footprint();
  EXPECT_EQ(reversed.begin, 0);
  EXPECT_EQ(reversed.end, 16);
  EXPECT_EQ(reversed.axis_count, 0);
  const Footprint broadcast = View{{100, 4}, {0, 1}}.footprint();
  EXPECT_EQ(broadcast.end, 16);
  EXPECT_TRUE((View{{4, 0}, {1, 1}}).footprint().is_empty());
}

// Finds the bytes one by one, as tensor.h defines a tensor.
std::set<uint64_t> bytes_of(const View& v) {
  std::set<uint64_t> bytes;
  int64_t count = 1;
  for (const int64_t extent : v.shape) count *= extent;
  for (int64_t n = 0; n < count; ++n) {
    int64_t element = 0, rest = n;
    for (size_t i = 0; i < v.shape.size(); ++i) {
      element += rest % v.shape[i] * v.strides[i];
      rest /= v.shape[i];
    }
    for (int64_t b = 0; b < 4; ++b) {
      bytes.insert(v.byte_offset + static_cast<uint64_t>(element * 4 + b));
    }
  }
  return bytes;
}

TEST(Footprint, OverlapsWhereTwoTensorsShareAByte) {
  std::mt19937 random(1);
  const auto draw = [&](int64_t low, int64_t high) {
    return std::uniform_int_distribution<int64_t>(low, high)(random);
  };
  int overlapping = 0;
  for (int round = 0; round < 2000; ++round) {
    View views[2];
    for (View& view : views) {
      for (int64_t axis = draw(1, 3); axis > 0; --axis) {
        view.shape.push_back(draw(1, 4));
        view.strides.push_back(draw(-7, 9));
      }
      view.byte_offset = 4 * static_cast<uint64_t>(draw(70, 120));
    }
    const std::set<uint64_t> first = bytes_of(views[0]), second = bytes_of(views[1]);
    const bool do_share = std::ranges::any_of(first, [&](uint64_t b) { return second.count(b); });
    EXPECT_EQ(overlap(views[0].footprint(), views[1].footprint()), do_share) << "round " << round;
    overlapping += do_share ? 1 : 0;
  }
  EXPECT_GT(overlapping, 200);
  EXPECT_LT(overlapping, 1800);
}

TEST(TensorDefect, NamesTheRule) {
  struct Row {
    View view;
    const char* words;
  };
  const Row rows[] = {
      {{{4, 4}, {4, 1}}, ""},
      {{{4, 4}, {4, 1}, 4}, "[TENSOR-5] it ends at byte 68 of a buffer of 64"},
      {{{4}, {-1}}, "[TENSOR-5] it begins before its buffer"},
      {{{4}, {1}, 2}, "[TENSOR-1] its byte_offset is 2, no multiple of the 4 bytes of an element"},
      {{{-1}, {1}}, "[TENSOR-1] an extent is -1"},
      {{{0, 1 << 20}, {1, 1}, 4096}, ""},
      {{{INT64_MAX, 2}, {INT64_MAX, 1}},
       "[TENSOR-5] it ends at byte 2^64 and more of a buffer of 64"},
  };
  for (const Row& row : rows) EXPECT_EQ(tensor_defect(row.view.tensor(), 64), row.words);
  const bp_layout blocks{.struct_size = sizeof(blocks), .alignment_bytes = 2};
  View view{{4}, {1}, 2};
  bp_tensor tensor = view.tensor();
  tensor.layout = &blocks;
  EXPECT_EQ(tensor_defect(tensor, 64), "");
  tensor.byte_offset = 3;
  EXPECT_EQ(tensor_defect(tensor, 64),
            "[TENSOR-1] its byte_offset is 3, no multiple of the 2 bytes of its layout");
}

class HazardTest : public testing::Test {
 protected:
  HazardTest() {
    hazards_.add_stream(kFirst, kDevice);
    hazards_.add_stream(kSecond, kDevice);
  }

  size_t submit(bp_stream* stream, bool writes, uint64_t begin = 0, uint64_t size = 64,
                bp_buffer* buffer = kBuffer) {
    const bp_buffer_ref range{buffer, begin, size};
    return hazards_.submit(stream, {{footprint_of(range), writes}}, {"work", 0}, &epoch_).size();
  }

  Hazards hazards_;
  uint64_t epoch_ = 0;
};

TEST_F(HazardTest, FindsUnorderedAccessesOfWhichOneWrites) {
  EXPECT_EQ(submit(kFirst, true), 0);
  EXPECT_EQ(submit(kFirst, false), 0) << "a stream is ordered";
  EXPECT_EQ(submit(kSecond, false), 1) << "read after write";
  EXPECT_EQ(submit(kSecond, false, 64), 0) << "other bytes";
  EXPECT_EQ(submit(kSecond, false, 0, 64, kOther), 0) << "another buffer";
}

TEST_F(HazardTest, TwoReadsAreNoHazard) {
  EXPECT_EQ(submit(kFirst, false), 0);
  EXPECT_EQ(submit(kSecond, false), 0);
  EXPECT_EQ(submit(kSecond, true), 1) << "write after read of the other stream";
}

TEST_F(HazardTest, AnEventOrdersWhatWasSubmittedBeforeItsRecord) {
  submit(kFirst, true);
  hazards_.record_event(kEvent, kFirst);
  submit(kFirst, true, 64);
  hazards_.wait_event(kSecond, kEvent);
  EXPECT_EQ(submit(kSecond, true), 0);
  EXPECT_EQ(submit(kSecond, true, 64), 1) << "behind the record";
}

TEST_F(HazardTest, OrderPassesOnFromStreamToStream) {
  bp_stream* const third = reinterpret_cast<bp_stream*>(0x40);
  bp_event* const second_event = reinterpret_cast<bp_event*>(0x50);
  hazards_.add_stream(third, kDevice);
  submit(kFirst, true);
  hazards_.record_event(kEvent, kFirst);
  hazards_.wait_event(kSecond, kEvent);
  hazards_.record_event(second_event, kSecond);
  hazards_.wait_event(third, second_event);
  EXPECT_EQ(submit(third, true), 0);
}

TEST_F(HazardTest, WhatTheHostWaitedForIsBeforeAllThatFollows) {
  submit(kFirst, true);
  EXPECT_EQ(hazards_.host_touches(footprint_of(bp_buffer_ref{kBuffer, 0, 8}), true).size(), 1);
  hazards_.host_waits_for_stream(kFirst);
  EXPECT_EQ(hazards_.host_touches(footprint_of(bp_buffer_ref{kBuffer, 0, 8}), true).size(), 0);
  EXPECT_EQ(submit(kSecond, true), 0);
}

TEST_F(HazardTest, WorkOfADestroyedStreamGoesOnUntilItsDeviceWasWaitedFor) {
  submit(kFirst, true);
  hazards_.remove_stream(kFirst);
  EXPECT_EQ(submit(kSecond, false), 1);
  hazards_.host_waits_for_device(kDevice);
  EXPECT_EQ(submit(kSecond, true), 0);
  hazards_.add_stream(kFirst, kDevice);
  EXPECT_EQ(submit(kFirst, true), 1) << "a new stream of the same address is not the old one";
}

TEST_F(HazardTest, WorkThatWasNotSubmittedLeavesNothing) {
  submit(kFirst, true);
  hazards_.retract(kFirst, epoch_, {{footprint_of(bp_buffer_ref{kBuffer, 0, 64}), true}});
  EXPECT_EQ(submit(kSecond, true), 0);
}

TEST_F(HazardTest, AStreamThatIsNotSeenMakesNone) {
  submit(kFirst, true);
  hazards_.begin_unseen(kSecond);
  EXPECT_EQ(submit(kSecond, true), 0);
  hazards_.end_unseen(kSecond);
  EXPECT_EQ(submit(kSecond, true), 1);
}

// The hazards, and a model that keeps, for each stream, event and the host, the set of all work
// that is before what comes next.
class Compared {
 public:
  Compared() {
    for (uint32_t i = 0; i < kStreams; ++i) hazards_.add_stream(stream(i), kDevice);
  }
  Compared(const Compared&) = delete;

  void record(uint32_t s, uint32_t e) {
    before_[s].insert(known_.begin(), known_.end());
    captured_[e] = before_[s];
    hazards_.record_event(event(e), stream(s));
  }
  void wait(uint32_t s, uint32_t e) {
    before_[s].insert(captured_[e].begin(), captured_[e].end());
    hazards_.wait_event(stream(s), event(e));
  }
  void host_waits(uint32_t s) {
    known_.insert(before_[s].begin(), before_[s].end());
    hazards_.host_waits_for_stream(stream(s));
  }

  // Returns whether both agree on whether work at a place is in a race.
  bool agree_on(uint32_t s, uint32_t place, bool writes) {
    before_[s].insert(known_.begin(), known_.end());
    bool is_racy = false;
    for (size_t i = 0; i < work_.size(); ++i) {
      is_racy |= before_[s].count(i) == 0 && work_[i].place == place && (work_[i].writes || writes);
    }
    const bp_buffer_ref range{kBuffer, uint64_t{place} * 8, 8};
    uint64_t epoch = 0;
    const auto found =
        hazards_.submit(stream(s), {{footprint_of(range), writes}}, {"work", 0}, &epoch);
    before_[s].insert(work_.size());
    work_.push_back({place, writes});
    return found.empty() != is_racy;
  }

  static constexpr uint32_t kStreams = 3, kEvents = 3;

 private:
  struct Done {
    uint32_t place;
    bool writes;
  };

  bp_stream* stream(uint32_t i) { return reinterpret_cast<bp_stream*>(&streams_[i]); }
  bp_event* event(uint32_t i) { return reinterpret_cast<bp_event*>(&events_[i]); }

  char streams_[kStreams], events_[kEvents];  // Their addresses are the handles.
  Hazards hazards_;
  std::vector<Done> work_;
  std::set<size_t> before_[kStreams], captured_[kEvents], known_;
};

TEST_F(HazardTest, FollowsSignalsOfASemaphoreInTheOrderOfTheirValues) {
  int object = 0;
  auto* const semaphore = reinterpret_cast<bp_semaphore*>(&object);
  hazards_.add_semaphore(semaphore, 1);
  EXPECT_EQ(submit(kFirst, true), 0);
  hazards_.signal_semaphore(semaphore, kFirst, 3);
  hazards_.wait_semaphore(kSecond, semaphore, 1);
  EXPECT_EQ(submit(kSecond, true), 1) << "the value was there before the signal";
  hazards_.wait_semaphore(kSecond, semaphore, 2);
  EXPECT_EQ(submit(kSecond, true), 0);
  EXPECT_EQ(submit(kFirst, true), 1);
  hazards_.wait_semaphore(kFirst, semaphore, 7);
  EXPECT_EQ(submit(kFirst, true), 0) << "nobody has signalled the value yet";
  hazards_.signal_semaphore(semaphore, kSecond, 8);
  EXPECT_EQ(submit(kFirst, true), 0);
  hazards_.signal_semaphore(semaphore, kFirst, 9);
  hazards_.host_waits_for_semaphore(semaphore, 9);
  EXPECT_TRUE(hazards_.host_touches(footprint_of(bp_buffer_ref{kBuffer, 0, 64}), true).empty());
  hazards_.remove_semaphore(semaphore);
}

TEST(Hazards, AgreeWithTheSetsOfWhatIsBefore) {
  for (uint32_t seed = 0; seed < 200; ++seed) {
    std::mt19937 random(seed);
    const auto draw = [&](uint32_t n) { return static_cast<uint32_t>(random() % n); };
    Compared compared;
    for (int step = 0; step < 60; ++step) {
      const uint32_t s = draw(Compared::kStreams), e = draw(Compared::kEvents);
      switch (draw(8)) {
        case 0:
          compared.record(s, e);
          break;
        case 1:
          compared.wait(s, e);
          break;
        case 2:
          if (draw(4) == 0) compared.host_waits(s);
          break;
        default:
          const uint32_t place = draw(3);
          ASSERT_TRUE(compared.agree_on(s, place, draw(2) != 0))
              << "seed " << seed << " step " << step;
      }
    }
  }
}

}  // namespace
}  // namespace bp::layers
