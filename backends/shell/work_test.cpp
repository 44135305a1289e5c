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

// ---- Launches of ops that were described at run time --------------------------------------------

// A host that knows one op, acme.copy.
struct DescribingHost {
  DescribingHost() {
    arguments[0].name = "x";
    arguments[0].kind = BP_ARGUMENT_TENSOR;
    arguments[0].offset_bytes = 8;
    arguments[0].dtype_rule = "float";
    desc.name = "acme.copy";
    desc.op = 65536;
    desc.arguments = arguments;
    desc.argument_count = 1;
    desc.argument_stride_bytes = sizeof(bp_op_argument);
    host.self = this;
    host.op_find = [](void* /*self*/, const char* name, uint32_t* out_op) -> bp_status {
      *out_op = 65536;
      return std::string(name) == "acme.copy" ? BP_OK : BP_NOT_FOUND;
    };
    host.op_describe = [](void* self, uint32_t /*op*/, const bp_op_desc** out_desc) -> bp_status {
      *out_desc = &static_cast<DescribingHost*>(self)->desc;
      return BP_OK;
    };
  }
  DescribingHost(const DescribingHost&) = delete;

  bp_op_argument arguments[1]{};
  bp_op_desc desc{};
  bp_host host{};
};

TEST(Launches, OfAnOpThatTheKernelNamesAreCopiedByItsDescription) {
  const DescribingHost described;
  const int64_t shape[] = {3}, strides[] = {1};
  bp_tensor x{.shape = shape, .strides = strides, .ndim = 1, .dtype = BP_F32};
  struct {
    uint32_t struct_size, flags;
    const bp_tensor* x;
  } args = {16, 0, &x};
  bp_kernel kernel{};
  kernel.name = "copy.fast";
  kernel.op_name = "acme.copy";
  kernel.args_size_bytes = sizeof(args);
  const Work work = Work::launch(described.host, kernel, bp_launch{}, &args);
  ASSERT_EQ(work.frame.tensors().size(), 1u);
  EXPECT_NE(work.frame.tensors()[0], &x) << "the tensor is copied";
  EXPECT_EQ(work.frame.tensors()[0]->shape[0], 3);
  EXPECT_EQ(work.text(), "copy.fast (acme.copy) dtype " + std::to_string(BP_F32) + " [3]");
  kernel.op_name = "acme.gone";
  EXPECT_THROW(static_cast<void>(Work::launch(described.host, kernel, bp_launch{}, &args)),
               StatusError);
}

}  // namespace
}  // namespace bp
