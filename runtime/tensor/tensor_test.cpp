#include "backplane/runtime/tensor.hpp"

#include <gtest/gtest.h>

#include <functional>

#include "backplane/runtime/memory.hpp"
#include "backplane/runtime/ops.hpp"
#include "runtime/tensor/tensor_impl.hpp"
#include "runtime/test_device.hpp"

namespace bp {
namespace {

using Floats = std::vector<float>;

class Tensors : public testing::Test {
 protected:
  Device device = test_device();
  DeviceGuard guard{device};
  Tensor x = from_host<float>({0, 1, 2, 3, 4, 5}, {2, 3}, device);
};

TEST_F(Tensors, KeepWhatTheHostGaveThem) {
  EXPECT_EQ(x.to_vector<float>(), (Floats{0, 1, 2, 3, 4, 5}));
  EXPECT_EQ(x.shape(), IntList({2, 3}));
  EXPECT_EQ(x.strides(), IntList({3, 1}));
  EXPECT_EQ(x.dtype(), bp_dtype{BP_F32});
  EXPECT_EQ(x.numel(), 6);
  EXPECT_EQ(x.device(), device);
}

TEST_F(Tensors, AreFilledWithWhatIsAskedFor) {
  EXPECT_EQ(zeros({2}, BP_F32).to_vector<float>(), (Floats{0, 0}));
  EXPECT_EQ(ones({2}, BP_F32).to_vector<float>(), (Floats{1, 1}));
  EXPECT_EQ(full({2}, -1.5, BP_F32).to_vector<float>(), (Floats{-1.5, -1.5}));
  EXPECT_EQ(arange(3, BP_I64).to_vector<int64_t>(), (std::vector<int64_t>{0, 1, 2}));
  EXPECT_EQ(scalar(7, BP_I32).item<int>(), 7);
  EXPECT_EQ(scalar(2.5, BP_F64).item<double>(), 2.5);
  EXPECT_EQ(zeros({0, 3}, BP_F32).to_vector<float>(), Floats());
}

TEST_F(Tensors, ConvertBetweenDtypes) {
  EXPECT_EQ(x.to(BP_I64).to_vector<int64_t>(), (std::vector<int64_t>{0, 1, 2, 3, 4, 5}));
  EXPECT_EQ(x.to(BP_BOOL).to_vector<uint8_t>(), (std::vector<uint8_t>{0, 1, 1, 1, 1, 1}));
  EXPECT_EQ(x.to(BP_F32).impl(), x.impl()) << "nothing to convert";
}

TEST_F(Tensors, MayHavePackedElements) {
  const uint8_t bytes[] = {0x21, 0xF3, 0x65, 0x87};  // 1 2 3 -1, 5 6 7 -8 in i4.
  const Tensor packed = from_host(bytes, {2, 4}, BP_I4, device);
  EXPECT_EQ(packed.numel(), 8);
  EXPECT_EQ(packed.size_bytes(), 4u);
  EXPECT_EQ(packed.element_bits(), 4u);
  const auto bytes_of = [](const Tensor& of) {
    std::vector<uint8_t> read(of.size_bytes());
    of.copy_to_host(read.data(), read.size());
    return read;
  };
  EXPECT_EQ(bytes_of(packed.clone()), (std::vector<uint8_t>{0x21, 0xF3, 0x65, 0x87}));
  EXPECT_EQ(bytes_of(packed.select(0, 1)), (std::vector<uint8_t>{0x65, 0x87}));
  EXPECT_EQ(bytes_of(packed.slice(1, 2, 4)), (std::vector<uint8_t>{0xF3, 0x87}));
  EXPECT_EQ(to_string(packed),
            "[[ 1,  2,  3, -1],\n [ 5,  6,  7, -8]]  i4 (2, 4) on " + std::string(device.name()));
  EXPECT_EQ(from_host(bytes, {1}, BP_U4, device).item<int>(), 1);
  EXPECT_EQ(full({2}, 1.5, BP_F4E2M1, device).select(0, 0).item<double>(), 1.5);
  packed.select(0, 0).fill(-2);
  EXPECT_EQ(bytes_of(packed), (std::vector<uint8_t>{0xEE, 0xEE, 0x65, 0x87}));
}

TEST_F(Tensors, OfPackedElementsBeginAtWholeBytes) {
  const uint8_t bytes[] = {0x21, 0x43, 0x65, 0x87};
  const Tensor packed = from_host(bytes, {2, 4}, BP_I4, device);
  const auto failure = [](const std::function<void()>& call) -> std::string {
    try {
      call();
    } catch (const Error& e) {
      return e.what();
    }
    return "";
  };
  EXPECT_NE(failure([&] { packed.select(1, 1); }).find("begins within a byte"), std::string::npos);
  EXPECT_NE(failure([&] { packed.as_strided({1}, {1}, 3); }).find("begins within a byte"),
            std::string::npos);
  EXPECT_NE(failure([&] { packed.as_strided({9}, {1}, 0); }).find("leave the memory of"),
            std::string::npos);
  EXPECT_NE(failure([&] { packed.to_vector<uint8_t>(); }).find("copy_to_host() gives the bytes"),
            std::string::npos);
  EXPECT_NE(failure([&] { packed.to(BP_F32); }).find("the call converts its elements"),
            std::string::npos);
}

TEST_F(Tensors, OfFloatsOfEightBitsArePrintedAsNumbers) {
  const uint8_t codes[] = {0x38, 0xFE, 0x01};
  EXPECT_EQ(from_host(codes, {1}, BP_F8E4M3FN, device).item<double>(), 1);
  const std::string text = to_string(from_host(codes, {2}, BP_F8E4M3FN, device));
  EXPECT_EQ(text, "[   1., -448.]  f8e4m3fn (2,) on " + std::string(device.name()));
  const uint8_t scales[] = {127, 130};
  EXPECT_EQ(to_string(from_host(scales, {2}, BP_F8E8M0FNU, device)),
            "[1., 8.]  f8e8m0fnu (2,) on " + std::string(device.name()));
}

TEST_F(Tensors, ShareTheMemoryOfTheirViews) {
  x.select(0, 1).fill(9);
  EXPECT_EQ(x.to_vector<float>(), (Floats{0, 1, 2, 9, 9, 9}));
  x.transpose().copy_from(from_host<float>({1, 2, 3, 4, 5, 6}, {3, 2}, device));
  EXPECT_EQ(x.to_vector<float>(), (Floats{1, 3, 5, 2, 4, 6}));
}

TEST_F(Tensors, CountWritesAcrossViews) {
  const Tensor row = x.select(0, 0);
  const uint32_t before = x.version();
  row.fill(1);
  EXPECT_EQ(x.version(), before + 1);
  EXPECT_EQ(x.detach().version(), before + 1);
}

TEST_F(Tensors, CopyRowMajorWhateverTheStrides) {
  EXPECT_EQ(x.transpose().to_vector<float>(), (Floats{0, 3, 1, 4, 2, 5}));
  EXPECT_EQ(x.transpose().contiguous().strides(), IntList({2, 1}));
  const Tensor wide = zeros({2, 4}, BP_F32);
  const Tensor part = wide.slice(1, 0, 4, 2);
  const Floats given{1, 2, 3, 4};
  part.copy_from_host(given.data(), given.size() * sizeof(float));
  EXPECT_EQ(wide.to_vector<float>(), (Floats{1, 0, 2, 0, 3, 0, 4, 0}));
}

TEST_F(Tensors, AreMadeOfABlockThatTheyFree) {
  const auto used_bytes = [&] { return memory_statistics(device).allocated_bytes; };
  const uint64_t before = used_bytes();
  bp_block* block = nullptr;
  ASSERT_EQ(bp_block_allocate(&device.target(), nullptr, 24, &block), BP_OK);
  const int64_t shape[] = {2, 2}, strides[] = {-3, 1};
  bp_tensor view{
      block->ref.buffer, block->ref.byte_offset + 12, shape, strides, 2, BP_F32, nullptr, 0, 0};
  Tensor y = from_block(block, view, device);
  y.copy_from(from_host<float>({1, 2, 3, 4}, {2, 2}, device));
  EXPECT_EQ(y.slice(0, 1, 2).to_vector<float>(), (Floats{3, 4}));
  EXPECT_EQ(y.as_strided({5}, {1}, -3).to_vector<float>()[0], 3) << "the first byte of the block";
  EXPECT_GT(used_bytes(), before);
  y = Tensor();
  EXPECT_EQ(used_bytes(), before);
}

TEST_F(Tensors, RefuseABlockInWhichTheyDoNotLie) {
  bp_block* block = nullptr;
  ASSERT_EQ(bp_block_allocate(&device.target(), nullptr, 24, &block), BP_OK);
  const int64_t shape[] = {2}, strides[] = {1};
  bp_tensor view{
      block->ref.buffer, block->ref.byte_offset, shape, strides, 1, BP_F32, nullptr, 0, 0};
  const auto refused = [&](const bp_tensor& given) { from_block(block, given, device); };
  bp_tensor outside = view, flagged = view;
  outside.byte_offset += 1024;
  flagged.flags = 1;
  EXPECT_THROW(refused(outside), Error);
  EXPECT_THROW(refused(flagged), Error);
  EXPECT_THROW(from_block(nullptr, view, device), Error);
  EXPECT_EQ(bp_block_free(block), BP_OK) << "the block stayed the caller's";
}

TEST_F(Tensors, CountTheWritesOfTheirHolder) {
  const uint32_t before = x.version();
  x.transpose().mark_written();
  EXPECT_EQ(x.version(), before + 1);
}

TEST_F(Tensors, RefuseAHostBufferOfAnotherSize) {
  float one = 0;
  EXPECT_EQ(message_of([&] { x.copy_to_host(&one, sizeof(one)); }),
            "copy_to_host: the host has 4 bytes, and f32 (2, 3) has 24");
  EXPECT_EQ(message_of([&] {
              from_host<float>({1, 2}, {3}, device);
            }),
            "from_host: data has 2 elements, and the shape 3");
}

TEST_F(Tensors, RefuseAHostShapeWhoseExtentsMultiplyPastEveryNumber) {
  const int64_t far = int64_t{1} << 32;  // The product of two of them is 0 in 64 bits.
  EXPECT_NE(message_of([&] {
              from_host(std::vector<float>(), {far, far}, device);
            }).find("a tensor of the shape (4294967296, 4294967296) has too many elements"),
            std::string::npos);
  EXPECT_EQ(message_of([&] {
              from_host<float>({1, 2}, {-1, -2}, device);
            }),
            "the shape (-1, -2) has an extent below 0; allowed: 0 and above");
}

TEST_F(Tensors, RefuseAHostTypeThatIsNotTheDtype) {
  EXPECT_EQ(message_of([&] { x.to_vector<double>(); }),
            "to_vector: the tensor is f32, and the host type is f64; use to(dtype) first");
}

TEST_F(Tensors, GiveAnItemOnlyOfOneElement) {
  EXPECT_EQ(x.slice(0, 1, 2).slice(1, 2, 3).item<float>(), 5);
  EXPECT_EQ(message_of([&] { x.item<float>(); }),
            "item: the tensor has the shape (2, 3); allowed: one element");
}

TEST_F(Tensors, SayWhereTheyAreEmpty) {
  const Tensor nothing;
  EXPECT_FALSE(nothing);
  EXPECT_EQ(message_of([&] { nothing.shape(); }),
            "an empty tensor was used: it was never given a value");
}

TEST_F(Tensors, RefuseShapesThatCannotBe) {
  EXPECT_EQ(message_of([] {
              empty({-1, 2}, BP_F32);
            }),
            "the shape (-1, 2) has an extent below 0; allowed: 0 and above");
  EXPECT_EQ(message_of([] {
              empty({0, -1}, BP_F32);
            }),
            "the shape (0, -1) has an extent below 0; allowed: 0 and above");
  EXPECT_EQ(message_of([] {
              empty({1, 1, 1, 1, 1, 1, 1, 1, 1}, BP_F32);
            }),
            "a tensor has 9 axes; allowed: up to 8");
  EXPECT_EQ(message_of([] {
              empty({INT64_MAX, 4}, BP_F32);
            }),
            "a tensor of the shape (9223372036854775807, 4) has too many elements; allowed: 2^58, "
            "where an extent of 0 counts as 1");
  const int64_t far = int64_t{1} << 40;
  for (const auto& make :
       std::vector<std::function<void()>>{[&] {
                                            empty({0, far, far}, BP_F32);
                                          },
                                          [&] {
                                            empty({1, 1}, BP_F32).expand({far, far});
                                          },
                                          [&] {
                                            empty({0}, BP_F32).reshape({far, 0, far});
                                          }}) {
    EXPECT_NE(message_of(make).find("has too many elements; allowed: 2^58"), std::string::npos);
  }
}

TEST(Devices, AreNamedWhereNoneIsCurrent) {
  EXPECT_EQ(message_of([] { zeros({1}, BP_F32); }),
            "no device is given, and none is current: name one, or make a bp::DeviceGuard");
}

// ---- Views -------------------------------------------------------------------------------------

TEST_F(Tensors, AreReshapedWithoutACopy) {
  const Tensor y = x.view({3, -1});
  EXPECT_EQ(y.shape(), IntList({3, 2}));
  EXPECT_EQ(y.get()->byte_offset, x.get()->byte_offset);
  EXPECT_EQ(y.to_vector<float>(), x.to_vector<float>());
  EXPECT_EQ(x.flatten().shape(), IntList({6}));
  EXPECT_EQ(x.unsqueeze(1).shape(), IntList({2, 1, 3}));
  EXPECT_EQ(x.unsqueeze(-1).squeeze().shape(), IntList({2, 3}));
}

TEST_F(Tensors, AreReshapedAcrossAxesThatLieApart) {
  const Tensor cube = arange(24, BP_F32).reshape({2, 3, 4});
  const Tensor swapped = cube.permute({1, 0, 2});
  EXPECT_EQ(swapped.view({3, 2, 2, 2}).shape(), IntList({3, 2, 2, 2}));
  EXPECT_EQ(swapped.view({3, 2, 2, 2}).to_vector<float>(), swapped.to_vector<float>());
  EXPECT_EQ(swapped.reshape({6, 4}).to_vector<float>(), swapped.to_vector<float>());
  EXPECT_EQ(message_of([&] {
              swapped.view({6, 4});
            }),
            "view: the shape (6, 4) needs a copy, since elements lie too far apart in a tensor of "
            "(3, 2, 4)");
}

TEST_F(Tensors, RefuseAShapeOfOtherSize) {
  EXPECT_EQ(message_of([&] {
              x.reshape({4, 2});
            }),
            "reshape: the shape (4, 2) does not have the elements of (2, 3)");
  EXPECT_EQ(message_of([&] {
              x.reshape({-1, -1});
            }),
            "reshape: the shape (-1, -1) does not have the elements of (2, 3)");
}

TEST_F(Tensors, AreSlicedAsInPython) {
  EXPECT_EQ(x.slice(1, -2, 100).to_vector<float>(), (Floats{1, 2, 4, 5}));
  EXPECT_EQ(x.slice(1, 0, 3, 2).to_vector<float>(), (Floats{0, 2, 3, 5}));
  EXPECT_EQ(x.slice(0, 2, 1).shape(), IntList({0, 3}));
  EXPECT_EQ(x.narrow(1, 1, 2).to_vector<float>(), (Floats{1, 2, 4, 5}));
  EXPECT_EQ(x.select(-1, -1).to_vector<float>(), (Floats{2, 5}));
  EXPECT_EQ(message_of([&] { x.narrow(1, 2, 2); }),
            "narrow: start 2 and length 2 reach beyond an axis of extent 3");
  EXPECT_EQ(message_of([&] { x.slice(2, 0, 1); }), "slice: axis is 2; allowed: -2 <= axis < 2");
}

TEST_F(Tensors, AreExpandedByStridesOfZero) {
  const Tensor y = x.select(0, 1).expand({2, 2, -1});
  EXPECT_EQ(y.shape(), IntList({2, 2, 3}));
  EXPECT_EQ(y.strides(), IntList({0, 0, 1}));
  EXPECT_EQ(y.to_vector<float>(), (Floats{3, 4, 5, 3, 4, 5, 3, 4, 5, 3, 4, 5}));
  EXPECT_EQ(message_of([&] {
              x.expand({4, 3});
            }),
            "expand: the shape (4, 3) is not what broadcasting can make of (2, 3)");
}

TEST_F(Tensors, RefuseToPermuteAnAxisTwice) {
  EXPECT_EQ(message_of([&] { x.permute({0, 0}); }), "permute: axes (0, 0) name an axis twice");
  EXPECT_EQ(message_of([&] { x.permute({0}); }),
            "permute: axes (0,) are 1; allowed: one for each axis of the shape (2, 3)");
}

TEST_F(Tensors, StayWithinTheirMemoryWhenStrided) {
  EXPECT_EQ(x.as_strided({2, 2}, {1, 2}, 1).to_vector<float>(), (Floats{1, 3, 2, 4}));
  const uint64_t bytes = 1u << 20;
  EXPECT_NE(message_of([&] { x.as_strided({bytes}, {1}); }).find("leave the memory of"),
            std::string::npos);
  const int64_t wraps = int64_t{1} << 61;  // 3 floats are 2^64 bytes apart.
  EXPECT_NE(message_of([&] { x.as_strided({3}, {wraps}); }).find("leave the memory"),
            std::string::npos);
  EXPECT_NE(message_of([&] { x.as_strided({1}, {1}, 2 * wraps); }).find("leave the memory"),
            std::string::npos);
  EXPECT_NE(message_of([&] { x.as_strided({1}, {1}, -1); }).find("leave the memory of"),
            std::string::npos);
}

// ---- Text --------------------------------------------------------------------------------------

TEST_F(Tensors, PrintInAlignedColumns) {
  const std::string tail = std::string("  f32 (2, 3) on ") + device.name();
  EXPECT_EQ(to_string(x), "[[0., 1., 2.],\n [3., 4., 5.]]" + tail);
  EXPECT_EQ(to_string(x * -0.5),
            "[[-0.0000, -0.5000, -1.0000],\n [-1.5000, -2.0000, -2.5000]]" + tail);
}

TEST_F(Tensors, PrintNumbersOfEveryKind) {
  const std::string on = std::string(" on ") + device.name();
  EXPECT_EQ(to_string(arange(3, BP_I64)), "[0, 1, 2]  i64 (3,)" + on);
  EXPECT_EQ(to_string(arange(2, BP_F32) == 1), "[false,  true]  bool (2,)" + on);
  EXPECT_EQ(to_string(scalar(1e-9, BP_F64)), "1.0000e-09  f64 ()" + on);
  EXPECT_EQ(to_string(log(from_host<float>({-1, 0, 1}, {3}, device))),
            "[ nan, -inf,   0.]  f32 (3,)" + on);
  EXPECT_EQ(to_string(zeros({0, 2}, BP_F32)), "[]  f32 (0, 2)" + on);
  EXPECT_EQ(to_string(Tensor()), "(empty)");
}

TEST_F(Tensors, PrintOnlyTheEdgesWhereTheyAreLarge) {
  EXPECT_EQ(
      to_string(arange(2000, BP_I64)),
      std::string("[   0,    1,    2, ..., 1997, 1998, 1999]  i64 (2000,) on ") + device.name());
}

TEST_F(Tensors, TakeOtherMemoryInPlace) {
  const Tensor handle = x;
  const Tensor view = x.select(0, 1);
  const Tensor other = full({2, 3}, 7, BP_F16);
  detail::rebind(x, other);
  EXPECT_EQ(handle.dtype(), bp_dtype{BP_F16}) << "all handles see it";
  EXPECT_EQ(handle.to(BP_F32).to_vector<float>(), Floats(6, 7));
  EXPECT_EQ(view.to_vector<float>(), (Floats{3, 4, 5})) << "views keep the old memory";
  detail::rebind(x, detail::make_absent(device.target(), BP_F32, x.shape()));
  EXPECT_EQ(x.shape(), IntList({2, 3}));
  EXPECT_EQ(message_of([&] { x.to_vector<float>(); }),
            "copy_to_host: f32 (2, 3) has no memory at present: it is a parameter whose parts lie "
            "on several ranks, and is whole only while its unit computes");
  EXPECT_NE(message_of([&] { x + 1; }).find("has elements and no buffer"), std::string::npos);
  EXPECT_THROW(x.as_strided({1}, {1}), Error);
  EXPECT_THROW(x.copy_from_host("", 24), Error);
  detail::rebind(x, full({2, 3}, 1, BP_F32));
  EXPECT_EQ((x + 1).to_vector<float>(), Floats(6, 2));
}

TEST_F(Tensors, GiveTheirMemoryBackForOtherMemory) {
  const auto held = [&] { return memory_statistics(device).allocated_bytes; };
  const Tensor absent = detail::make_absent(device.target(), BP_F32, {1 << 20});
  const uint64_t before = held();
  Tensor large = zeros({1 << 20}, BP_F32);
  EXPECT_EQ(held() - before, uint64_t{4} << 20);
  detail::rebind(large, absent);
  EXPECT_EQ(held(), before);
  detail::rebind(large, zeros({1 << 20}, BP_F32));
  EXPECT_EQ(held() - before, uint64_t{4} << 20);
  large = {};
  EXPECT_EQ(held(), before);
}

}  // namespace
}  // namespace bp
