// Places of recorded work in the slots of a graph.
#include "backplane/shell/work.hpp"

#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <vector>

#include "backplane/shell/boundary.hpp"

namespace bp {
namespace {

class Slots : public testing::Test {
 protected:
  // Returns the number of the slot, or the text of the refusal. The slots are bytes 64 to 128 and
  // 128 to 256 of the buffer.
  std::string slot(uint64_t byte_offset, int64_t begin, int64_t end) {
    bp_buffer* buffer = buffer_;
    const Place place{&buffer, &byte_offset, begin, end, 1};
    try {
      return std::to_string(slot_of(place, {{buffer_, 64, 64}, {buffer_, 128, 128}}));
    } catch (const StatusError& e) {
      EXPECT_EQ(e.status(), BP_INVALID_ARGUMENT);
      return e.what();
    }
  }

  char byte_ = 0;
  bp_buffer* buffer_ = reinterpret_cast<bp_buffer*>(&byte_);
};

TEST_F(Slots, HaveThePlacesThatLieInThem) {
  EXPECT_EQ(slot(64, 0, 64), "0");
  EXPECT_EQ(slot(160, -32, 32), "1");
  EXPECT_EQ(slot(0, 0, 64), "-1");
  EXPECT_EQ(slot(80, 0, 0), "-1") << "no byte is used";
  EXPECT_EQ(slot(96, 0, 64),
            "capture: bytes 96 to 160 leave slot 0, which has bytes 64 to 128 of "
            "the buffer");
}

TEST_F(Slots, RefusePlacesThatNoBufferHas) {
  const std::string offset = "capture: an argument has byte_offset ";
  EXPECT_EQ(slot(64, 0, INT64_MAX), offset +
                                        "64 and reaches byte 9223372036854775807 from there, "
                                        "which lies in no buffer");
  EXPECT_EQ(slot(UINT64_MAX - 3, 0, 4), offset +
                                            "18446744073709551612 and reaches byte 0 from "
                                            "there, which lies in no buffer");
  EXPECT_EQ(slot(UINT64_MAX - 3, 0, 0), "-1") << "no byte is used";
}

// A workspace is a range of which nobody has checked the size.
TEST_F(Slots, ARangeOfAnySizeHasItsBytesBehindItsBegin) {
  bp_buffer_ref all{buffer_, 0, UINT64_MAX};
  Work work = Work::copy(Work::Kind::kCopy, all, all);
  for (const Place& place : places_of(work)) {
    EXPECT_EQ(place.begin, 0);
    EXPECT_EQ(place.end, INT64_MAX);
  }
}

}  // namespace
}  // namespace bp
