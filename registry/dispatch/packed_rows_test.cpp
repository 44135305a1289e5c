// Tests ops that move packed elements as whole bytes, on a real host.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "backplane/ops.h"
#include "registry/tests/service_tensors.hpp"

namespace bp {

template <>
inline constexpr bp_dtype kDtypeOf<uint8_t> = BP_U8;

namespace {

using Bytes = std::vector<uint8_t>;

// A tensor of packed elements in a block of bytes.
class Packed {
 public:
  Packed(const bp_target& target, bp_dtype dtype, std::vector<int64_t> shape,
         std::vector<int64_t> strides, int64_t size_bytes, uint64_t first_byte = 0)
      : memory_(target, {size_bytes}), shape_(std::move(shape)), strides_(std::move(strides)) {
    tensor_ = *memory_.get();
    tensor_.byte_offset += first_byte;
    tensor_.dtype = dtype;
    tensor_.shape = shape_.data();
    tensor_.strides = strides_.data();
    tensor_.ndim = static_cast<uint32_t>(shape_.size());
  }
  Packed(const Packed&) = delete;

  const bp_tensor* get() const { return &tensor_; }
  void set(const Bytes& bytes) { memory_.write(bytes); }
  Bytes bytes() const { return memory_.read(); }

 private:
  Tensor<uint8_t> memory_;
  std::vector<int64_t> shape_, strides_;
  bp_tensor tensor_{};
};

class PackedRows : public testing::Test {
 protected:
  template <typename Args>
  bp_status launch(uint32_t op, Args args) {
    args.struct_size = sizeof(Args);
    EXPECT_EQ(bp_op_check(op, &args), BP_OK) << bp_error_text();
    return bp_op_launch(host, nullptr, 0, op, &args);
  }

  // Launches a call, which counts as one that the host runs in another way.
  template <typename Args>
  void run(uint32_t op, const Args& args) {
    const bp_dispatch_statistics before = statistics(*host, op);
    ASSERT_EQ(launch(op, args), BP_OK) << bp_error_text();
    EXPECT_EQ(statistics(*host, op).decomposed_count, before.decomposed_count + 1);
  }

  template <typename Args>
  void expect_refused(uint32_t op, const Args& args, const std::string& words) {
    ASSERT_EQ(launch(op, args), BP_UNSUPPORTED);
    EXPECT_NE(std::string(bp_error_text()).find(words), std::string::npos) << bp_error_text();
  }

  static bp_fill_args filled(const Packed& y, const bp_scalar& value) {
    return {.y = y.get(), .value_scalar = value};
  }

  Registry registry;
  const bp_target* host = load(registry, BACKPLANE_TEST_PLUGIN);
};

TEST_F(PackedRows, CopyWholeBytes) {
  // Rows of 4 elements in 2 bytes, of which x has every other one.
  Packed x(*host, BP_I4, {2, 4}, {8, 1}, 8, 1), y(*host, BP_I4, {2, 4}, {4, 1}, 6, 1);
  x.set({0, 0x21, 0x43, 0, 0, 0x65, 0x87, 0});
  run(BP_OP_COPY, bp_copy_args{.x = x.get(), .y = y.get()});
  EXPECT_EQ(y.bytes(), (Bytes{77, 0x21, 0x43, 0x65, 0x87, 77}));
}

TEST_F(PackedRows, JoinAxesUntilTheyAreWholeBytes) {
  // A row of 3 elements has 18 bits; 4 rows have 9 bytes.
  Packed x(*host, BP_F6E2M3, {4, 3}, {3, 1}, 9), y(*host, BP_F6E2M3, {4, 3}, {3, 1}, 10);
  x.set({1, 2, 3, 4, 5, 6, 7, 8, 9});
  run(BP_OP_COPY, bp_copy_args{.x = x.get(), .y = y.get()});
  EXPECT_EQ(y.bytes(), (Bytes{1, 2, 3, 4, 5, 6, 7, 8, 9, 77}));
}

TEST_F(PackedRows, AreConcatenatedAlongTheirOwnAxis) {
  Packed a(*host, BP_U2, {2, 4}, {4, 1}, 2), b(*host, BP_U2, {2, 8}, {8, 1}, 4);
  Packed y(*host, BP_U2, {2, 12}, {12, 1}, 6);
  a.set({1, 2});
  b.set({3, 4, 5, 6});
  const bp_tensor* const xs[] = {a.get(), b.get()};
  run(BP_OP_CAT, bp_cat_args{.xs_count = 2, .xs = xs, .y = y.get(), .axis = 1});
  EXPECT_EQ(y.bytes(), (Bytes{1, 3, 4, 2, 5, 6}));
}

TEST_F(PackedRows, AreConcatenatedAlongAnAxisThatIsJoined) {
  // Along axis 1 each tensor has rows of 2 by 2 or of 4 by 2 elements.
  Packed a(*host, BP_I4, {2, 2, 2}, {4, 2, 1}, 4), b(*host, BP_I4, {2, 4, 2}, {8, 2, 1}, 8);
  Packed y(*host, BP_I4, {2, 6, 2}, {12, 2, 1}, 12);
  a.set({1, 2, 3, 4});
  b.set({5, 6, 7, 8, 9, 10, 11, 12});
  const bp_tensor* const xs[] = {a.get(), b.get()};
  run(BP_OP_CAT, bp_cat_args{.xs_count = 2, .xs = xs, .y = y.get(), .axis = 1});
  EXPECT_EQ(y.bytes(), (Bytes{1, 2, 5, 6, 7, 8, 3, 4, 9, 10, 11, 12}));
  // An axis of 2-bit elements whose rows are half a byte is joined with the axis behind it.
  Packed c(*host, BP_I2, {2, 2, 2}, {4, 2, 1}, 2), d(*host, BP_I2, {2, 2, 2}, {4, 2, 1}, 2);
  Packed z(*host, BP_I2, {2, 4, 2}, {8, 2, 1}, 4);
  c.set({1, 2});
  d.set({3, 4});
  const bp_tensor* const others[] = {c.get(), d.get()};
  run(BP_OP_CAT, bp_cat_args{.xs_count = 2, .xs = others, .y = z.get(), .axis = 1});
  EXPECT_EQ(z.bytes(), (Bytes{1, 3, 2, 4}));
}

TEST_F(PackedRows, AreChosenByTheirIndices) {
  Packed table(*host, BP_F4E2M1, {3, 2}, {2, 1}, 3), rows(*host, BP_F4E2M1, {2, 2}, {2, 1}, 2);
  Tensor<int64_t> indices(*host, {2});
  table.set({1, 2, 3});
  indices.set({2, 0});
  run(BP_OP_EMBEDDING,
      bp_embedding_args{.weight = table.get(), .indices = indices.get(), .y = rows.get()});
  EXPECT_EQ(rows.bytes(), (Bytes{3, 1}));
  Packed x(*host, BP_I2, {2, 3, 2, 2}, {12, 4, 2, 1}, 6);
  Packed y(*host, BP_I2, {2, 2, 2, 2}, {8, 4, 2, 1}, 4);
  x.set({1, 2, 3, 4, 5, 6});
  run(BP_OP_INDEX_SELECT,
      bp_index_select_args{.x = x.get(), .indices = indices.get(), .y = y.get(), .axis = 1});
  EXPECT_EQ(y.bytes(), (Bytes{3, 1, 6, 4}));
}

TEST_F(PackedRows, AreFilledWithANumber) {
  Packed i2(*host, BP_I2, {4}, {1}, 2), i4(*host, BP_I4, {2, 2}, {2, 1}, 2);
  run(BP_OP_FILL, filled(i2, {.dtype = BP_I64, .bits = static_cast<uint64_t>(-2)}));
  EXPECT_EQ(i2.bytes(), (Bytes{0b10101010, 77}));
  run(BP_OP_FILL, filled(i4, {.dtype = BP_I64, .bits = 0xA7}));
  EXPECT_EQ(i4.bytes(), (Bytes{0x77, 0x77}));
  Packed f6(*host, BP_F6E3M2, {2, 4}, {8, 1}, 9);
  run(BP_OP_FILL, filled(f6, {.dtype = BP_I64, .bits = 1}));  // Its code is 0b001100.
  const uint8_t a = 0b00001100, b = 0b11000011, c = 0b00110000;
  EXPECT_EQ(f6.bytes(), (Bytes{a, b, c, 77, 77, 77, a, b, c})) << "the second row begins at byte 6";
}

TEST_F(PackedRows, ThatAreNoWholeBytesAreRefused) {
  Packed odd(*host, BP_I4, {3}, {1}, 4), other(*host, BP_I4, {3}, {1}, 4);
  const std::string words = "by bytes: a row of packed elements is not whole bytes";
  expect_refused(BP_OP_COPY, bp_copy_args{.x = odd.get(), .y = other.get()}, words);
  expect_refused(BP_OP_FILL, filled(odd, {.dtype = BP_I64, .bits = 1}), words);
  Packed stepped(*host, BP_I4, {2}, {2}, 4), pair(*host, BP_I4, {2}, {1}, 4);
  expect_refused(BP_OP_COPY, bp_copy_args{.x = stepped.get(), .y = pair.get()}, words);
  Packed one(*host, BP_I4, {}, {}, 4), another(*host, BP_I4, {}, {}, 4);
  expect_refused(BP_OP_COPY, bp_copy_args{.x = one.get(), .y = another.get()}, words);
  Tensor<int64_t> index(*host, {1});
  Packed chosen(*host, BP_I4, {1}, {1}, 4);
  expect_refused(BP_OP_INDEX_SELECT,
                 bp_index_select_args{.x = pair.get(), .indices = index.get(), .y = chosen.get()},
                 words);
  expect_refused(BP_OP_FILL, bp_fill_args{.y = pair.get(), .value = one.get()},
                 "value is a tensor of one packed element");
  Packed wide(*host, BP_U4, {2}, {1}, 4);
  expect_refused(BP_OP_COPY, bp_copy_args{.x = pair.get(), .y = wide.get()},
                 "by bytes: the call converts its elements");
}

TEST_F(PackedRows, DoNotBreakOpsThatMoveSingleElements) {
  Packed x(*host, BP_I4, {2}, {1}, 4), y(*host, BP_I4, {2}, {1}, 4);
  Tensor<int64_t> indices(*host, {2});
  indices.set({1, 0});
  const bp_gather_args args{
      .struct_size = sizeof(args), .x = x.get(), .indices = indices.get(), .y = y.get()};
  EXPECT_EQ(bp_op_check(BP_OP_GATHER, &args), BP_INVALID_ARGUMENT);
  EXPECT_EQ(bp_op_launch(host, nullptr, 0, BP_OP_GATHER, &args), BP_UNSUPPORTED);
  EXPECT_NE(std::string(bp_error_text()).find("by bytes: an element of i4 has no address"),
            std::string::npos)
      << bp_error_text();
}

TEST_F(PackedRows, WithoutElementsAreNotTouched) {
  Packed x(*host, BP_I4, {0}, {1}, 4), y(*host, BP_I4, {0}, {1}, 4);
  run(BP_OP_COPY, bp_copy_args{.x = x.get(), .y = y.get()});
  EXPECT_EQ(y.bytes(), Bytes(4, 77));
}

}  // namespace
}  // namespace bp
