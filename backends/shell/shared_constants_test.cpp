// Tests constants that have a key, or lie in buffers of the caller.
#include "backplane/shell/shared_constants.hpp"

#include "backends/shell/test_compiler.hpp"

namespace bp {
namespace {

using Values = std::vector<float>;

// y = x + c, where c has the key "w".
struct Weighted {
  explicit Weighted(const Values& data) {
    maker.add_add(x, c = maker.add_constant(data), y);
    maker.values[c].key = "w";
  }
  bp_program_value& value() { return maker.values[c]; }

  ProgramMaker maker;
  uint32_t x = maker.add_value(BP_VALUE_INPUT), y = maker.add_value(BP_VALUE_OUTPUT), c = 0;
};

class SharedConstantsTest : public ProgramTest {
 protected:
  // Returns the text of the refusal.
  std::string refusal(bp_status want, const std::function<void(bp_program_value&)>& change) {
    Weighted other(data);
    change(other.value());
    bp_executable* executable = nullptr;
    EXPECT_EQ(ops.compile(ops.self, device.handle(), other.maker.desc(), &executable), want);
    EXPECT_EQ(executable, nullptr);
    return device.text;
  }
  Values result(bp_executable* executable) {
    return run(executable, first.maker, {{1, 2, 3, 4}})[1];
  }
  void release(bp_executable* executable) {
    EXPECT_EQ(ops.release(ops.self, executable), BP_OK) << device.text;
  }

  const Values data{10, 20, 30, 40}, sums{11, 22, 33, 44};
  Weighted first{data}, second{data};
};

TEST_F(SharedConstantsTest, HoldAKeyOnceUntilTheLastExecutableEnds) {
  bp_executable* const a = compile(first.maker);
  const size_t live_count = device.live_count();
  second.value().data = nullptr;
  bp_executable* const b = compile(second.maker);
  EXPECT_EQ(device.live_count(), live_count) << "nothing was allocated";
  EXPECT_EQ(info_of(b).constant_bytes, 0u);
  EXPECT_EQ(info_of(b).shared_constant_bytes, 16u);
  EXPECT_EQ(result(a), sums);
  const bp_buffer* const buffer = launched[0].tensors[1].buffer;
  release(a);
  EXPECT_EQ(result(b), sums);
  EXPECT_EQ(launched[1].tensors[1].buffer, buffer);
  release(b);
  EXPECT_EQ(device.live_count(), 0u);
  EXPECT_EQ(refusal(BP_NOT_FOUND, [](bp_program_value& v) { v.data = nullptr; }),
            "compile: value 2: no executable holds a constant with the key \"w\", and its data is "
            "not given");
}

TEST_F(SharedConstantsTest, AreFreedBehindTheLaunchesOfAllTheirExecutables) {
  bp_executable *const a = compile(first.maker), *const b = compile(second.maker);
  ProgramCall one(device, kernel_of(a), first.maker, {data}),
      two(device, kernel_of(b), first.maker, {data});
  EXPECT_EQ(one.run(), BP_OK);
  EXPECT_EQ(two.run(), BP_OK);
  device.log.clear();
  release(a);
  release(b);
  EXPECT_EQ(device.log.size(), 4u);
  EXPECT_EQ(device.log.back(), "buffer 1 freed behind stream 6");
  EXPECT_EQ(device.log[1], "stream 6 waits for event 2");
  EXPECT_EQ(device.log[2], "stream 6 waits for event 1") << "that of an executable that has ended";
}

TEST_F(SharedConstantsTest, AreNotThoseOfADeviceBeforeItsReset) {
  compile(first.maker);
  ++device.generation;
  refusal(BP_NOT_FOUND, [](bp_program_value& v) { v.data = nullptr; });
  EXPECT_EQ(result(compile(second.maker)), sums);
}

TEST_F(SharedConstantsTest, RefuseAKeyOfAnotherConstant) {
  compile(first.maker);
  const auto other_dtype = [](bp_program_value& v) { v.dtype = BP_I32; };
  EXPECT_EQ(refusal(BP_INVALID_ARGUMENT, other_dtype),
            "compile: value 2: key \"w\" names a constant of another dtype, shape or layout");
}

TEST_F(SharedConstantsTest, LeaveNothingWhereACopyFails) {
  device.failing_call = "copy_from_host";
  refusal(BP_OUT_OF_MEMORY, [](bp_program_value&) {});
  EXPECT_EQ(device.live_count(), 0u);
  EXPECT_EQ(result(compile(first.maker)), sums);
}

TEST_F(SharedConstantsTest, AreReadInPlaceInBuffersOfTheCaller) {
  bp_buffer* const buffer = device.make_buffer(1024);
  std::memcpy(device.bytes(buffer, 512, 16), data.data(), 16);
  first.value().data = nullptr;
  first.value().buffer = {buffer, 512, 16};
  bp_executable* const a = compile(first.maker);
  EXPECT_EQ(info_of(a).constant_bytes + info_of(a).shared_constant_bytes, 0u);
  EXPECT_EQ(result(a), sums);
  EXPECT_EQ(launched[0].tensors[1].buffer, buffer);
  EXPECT_EQ(launched[0].tensors[1].byte_offset, 512u);
  refusal(BP_NOT_FOUND, [](bp_program_value& v) { v.data = nullptr; });
  release(a);
  const auto with = [&](bp_buffer_ref range) {
    return refusal(BP_INVALID_ARGUMENT, [&](bp_program_value& v) {
      v.data = nullptr;
      v.buffer = range;
    });
  };
  EXPECT_EQ(with({buffer, 64, 16}),
            "program: value 2: the constant begins at byte 64 of its buffer; multiples of 256 are "
            "allowed");
  EXPECT_EQ(with({buffer, 0, 8}),
            "program: value 2: buffer has 8 bytes, and the constant needs 16");
  EXPECT_EQ(refusal(BP_INVALID_ARGUMENT,
                    [&](bp_program_value& v) {
                      v.buffer = {buffer, 0, 16};
                    }),
            "program: value 2: it has data and a buffer; give one");
  device.end(buffer);
}

TEST_F(SharedConstantsTest, AreFoundByTheirKeysAgain) {
  bp_executable* const a = compile(first.maker);
  uint64_t size_bytes = 0;
  EXPECT_EQ(ops.serialize(ops.self, a, 0, nullptr, &size_bytes), BP_OK);
  std::vector<std::byte> bytes(size_bytes);
  EXPECT_EQ(ops.serialize(ops.self, a, size_bytes, bytes.data(), &size_bytes), BP_OK);
  release(a);
  bp_executable* b = nullptr;
  const auto read = [&](const bp_program* constants) {
    return ops.deserialize(ops.self, device.handle(), bytes.data(), size_bytes, constants, &b);
  };
  EXPECT_EQ(read(nullptr), BP_NOT_FOUND);
  bp_program constants = *second.maker.program();
  constants.nodes = nullptr;
  constants.node_count = 0;
  ASSERT_EQ(read(&constants), BP_OK) << device.text;
  EXPECT_EQ(result(b), sums);
  ASSERT_EQ(read(nullptr), BP_OK) << "an executable holds it";
  EXPECT_EQ(result(b), sums);
}

TEST_F(SharedConstantsTest, StandForTheirBytesInFingerprints) {
  const auto fingerprint = [&](Weighted& of) {
    std::vector<uint64_t> words(2);
    EXPECT_EQ(ops.fingerprint(ops.self, device.handle(), of.maker.desc(), words.data()), BP_OK);
    return words;
  };
  const Values other{1, 2, 3, 4};
  Weighted third(other);
  EXPECT_EQ(fingerprint(first), fingerprint(third));
  third.value().key = "v";
  EXPECT_NE(fingerprint(first), fingerprint(third));
  third.value().key = nullptr;
  third.value().data = nullptr;
  third.value().buffer = {device.make_buffer(256), 0, 256};
  uint64_t words[2] = {};
  EXPECT_EQ(ops.fingerprint(ops.self, device.handle(), third.maker.desc(), words), BP_UNSUPPORTED);
  EXPECT_EQ(device.text, "fingerprint: value 2: a constant in a buffer has no key");
  device.end(third.value().buffer.buffer);
}

}  // namespace
}  // namespace bp
