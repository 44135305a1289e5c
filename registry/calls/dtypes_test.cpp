// Tests the dtypes of vendors: their numbers, their names, and who is refused one.
#include "registry/calls/dtypes.hpp"

#include <gtest/gtest.h>

#include <string>
#include <thread>
#include <vector>

#include "backplane/host.h"

namespace bp::core {
namespace {

TEST(Dtypes, OfAVendorHaveOneNumberForEachName) {
  bp_dtype first = 0, again = 0, other = 0;
  ASSERT_EQ(bp_dtype_add("acme.f24", 24, &first), BP_OK) << bp_error_text();
  ASSERT_EQ(bp_dtype_add("acme.f24", 24, &again), BP_OK) << bp_error_text();
  ASSERT_EQ(bp_dtype_add("other.f24", 24, &other), BP_OK) << bp_error_text();
  EXPECT_EQ(first, again);
  EXPECT_NE(first, other);
  EXPECT_GE(first, BP_DTYPE_VENDOR_FIRST);
  EXPECT_LE(other, BP_DTYPE_VENDOR_LAST);
  EXPECT_STREQ(bp_dtype_name(first), "acme.f24");
  EXPECT_EQ(bp_dtype_bits(first), 24u);
  EXPECT_EQ(bp_dtype_from_name("acme.f24"), first);
  EXPECT_EQ(dtype_text(first), "acme.f24");
  EXPECT_TRUE(is_known_dtype(first));
}

TEST(Dtypes, OfAVendorMayBePacked) {
  for (const uint32_t bits : {2u, 4u, 6u}) {
    const std::string name = "acme.packed" + std::to_string(bits);
    bp_dtype dtype = 0;
    ASSERT_EQ(bp_dtype_add(name.c_str(), bits, &dtype), BP_OK) << bp_error_text();
    EXPECT_EQ(bp_dtype_bits(dtype), bits);
    EXPECT_EQ(bp_dtype_from_name(name.c_str()), dtype);
  }
}

TEST(Dtypes, ThatNobodyAddedAreNotKnown) {
  const bp_dtype next = BP_DTYPE_VENDOR_FIRST + vendor_dtype_count.load();
  for (const bp_dtype dtype :
       {bp_dtype{0}, bp_dtype{BP_U2 + 1}, bp_dtype{BP_DTYPE_VENDOR_FIRST - 1}, next,
        bp_dtype{BP_DTYPE_VENDOR_LAST}, bp_dtype{0x10000}, UINT32_MAX}) {
    EXPECT_FALSE(is_known_dtype(dtype)) << dtype;
    EXPECT_EQ(bp_dtype_name(dtype), nullptr) << dtype;
    EXPECT_EQ(bp_dtype_bits(dtype), 0u) << dtype;
    EXPECT_EQ(dtype_text(dtype), "dtype " + std::to_string(dtype));
  }
  EXPECT_EQ(bp_dtype_from_name("acme.nothing"), 0u);
}

TEST(Dtypes, AreRefusedInWords) {
  bp_dtype dtype = 7;
  ASSERT_EQ(bp_dtype_add("acme.taken", 8, &dtype), BP_OK);
  dtype = 7;
  const struct {
    const char* name;
    uint32_t bits;
    bp_status status;
    std::string words;
  } rows[] = {
      {nullptr, 8, BP_INVALID_ARGUMENT, "add_dtype: name or out_dtype is NULL"},
      {"f24", 24, BP_INVALID_ARGUMENT, "the name is f24, not vendor.name"},
      {"f32", 32, BP_INVALID_ARGUMENT, "the name is f32, not vendor.name"},
      {"acme.F24", 24, BP_INVALID_ARGUMENT, "the name is acme.F24, not vendor.name"},
      {"acme.a.b", 24, BP_INVALID_ARGUMENT, "not vendor.name"},
      {"acme.", 24, BP_INVALID_ARGUMENT, "not vendor.name"},
      {"", 24, BP_INVALID_ARGUMENT, "not vendor.name"},
      {"acme.zero", 0, BP_INVALID_ARGUMENT,
       "acme.zero has 0 bits; allowed are 2, 4, 6, and multiples of 8 up to 1024"},
      {"acme.one", 1, BP_INVALID_ARGUMENT, "acme.one has 1 bits"},
      {"acme.seven", 7, BP_INVALID_ARGUMENT, "acme.seven has 7 bits"},
      {"acme.odd", 12, BP_INVALID_ARGUMENT, "acme.odd has 12 bits"},
      {"acme.large", 1032, BP_INVALID_ARGUMENT, "acme.large has 1032 bits"},
      {"acme.taken", 16, BP_ALREADY_EXISTS, "acme.taken has 8 bits, not 16"},
  };
  for (const auto& [name, bits, status, words] : rows) {
    EXPECT_EQ(bp_dtype_add(name, bits, &dtype), status) << words;
    EXPECT_NE(std::string(bp_error_text()).find(words), std::string::npos) << bp_error_text();
    EXPECT_EQ(dtype, 7u) << words;
  }
  EXPECT_EQ(bp_dtype_add("acme.taken", 8, nullptr), BP_INVALID_ARGUMENT);
}

TEST(Dtypes, AreHandedOutToManyThreadsAtOnce) {
  std::vector<bp_dtype> given(4 * 16);
  std::vector<std::thread> threads;
  for (size_t t = 0; t < 4; ++t) {
    threads.emplace_back([&given, t] {
      for (size_t i = 0; i < 16; ++i) {
        const std::string name = "race.t" + std::to_string(i);
        EXPECT_EQ(bp_dtype_add(name.c_str(), 8, &given[t * 16 + i]), BP_OK);
        EXPECT_STREQ(bp_dtype_name(given[t * 16 + i]), name.c_str());
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (size_t i = 16; i < given.size(); ++i) EXPECT_EQ(given[i], given[i % 16]);
}

// The last test, because it takes all numbers that are left.
TEST(DtypesOfVendors, EndWhenAllAreHandedOut) {
  bp_dtype dtype = 0;
  uint32_t count = 0;
  bp_status status = BP_OK;
  for (; status == BP_OK && count < 2000; ++count) {
    status = bp_dtype_add(("full.t" + std::to_string(count)).c_str(), 8, &dtype);
  }
  EXPECT_EQ(status, BP_UNSUPPORTED);
  EXPECT_STREQ(bp_error_text(), "add_dtype: all 1024 dtypes of vendors are handed out");
  EXPECT_EQ(bp_dtype_add("full.t0", 8, &dtype), BP_OK) << "it has its number";
  EXPECT_EQ(vendor_dtype_count.load(), 1024u);
}

}  // namespace
}  // namespace bp::core
