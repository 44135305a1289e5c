#include "conformance/recordings/launch_line.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "backplane/ops.h"
#include "conformance/cases/selection.hpp"
#include "conformance/memory/layout.hpp"

namespace bp::conformance {
namespace {

using nlohmann::json;

json tensor(const Shape& shape, const Shape& strides, uint64_t buffer = 1) {
  return {{"dtype", "f32"},
          {"shape", shape},
          {"strides", strides},
          {"buffer", buffer},
          {"byte_offset", 64}};
}

json addition() {
  return {{"op", "add"},
          {"launch", 17},
          {"kernel", "add.f32"},
          {"flags", 1},
          {"args",
           {{"a", tensor({2, 3}, {3, 1}, 1)},
            {"b", tensor({2, 3}, {0, 1}, 2)},
            {"y", tensor({2, 3}, {3, 1}, 3)}}}};
}

std::string refusal_of(const json& line) {
  try {
    static_cast<void>(read_launch(line));
  } catch (const UsageError& e) {
    return e.what();
  }
  return "";
}

TEST(LaunchLine, IsReadAsItWasRecorded) {
  const RecordedLaunch launch = read_launch(addition());
  EXPECT_EQ(launch.op, uint32_t{BP_OP_ADD});
  EXPECT_EQ(launch.words(), "launch 17 (add)");
  EXPECT_EQ(launch.kernel, "add.f32");
  EXPECT_EQ(launch.flags, 1u);
  ASSERT_EQ(launch.tensors.size(), 3u);
  EXPECT_EQ(launch.tensors[1].name, "b");
  EXPECT_EQ(launch.tensors[1].strides, (Shape{0, 1}));
  EXPECT_EQ(launch.tensors[1].buffer, 2u);
  EXPECT_EQ(launch.tensors[1].byte_offset, 64u);
  EXPECT_EQ(launch.tensors[0].role, Role::kInput);
  EXPECT_EQ(launch.tensors[2].role, Role::kOutput);
  EXPECT_TRUE(launch.attributes.empty());
}

TEST(LaunchLine, TakesAnInlineScalarForAnAttribute) {
  json line = addition();
  line["args"]["b"] = {{"scalar", "f64"}, {"bits", 0x3ff0000000000000u}};
  const RecordedLaunch launch = read_launch(line);
  EXPECT_EQ(launch.tensors.size(), 2u);
  ASSERT_EQ(launch.attributes.size(), 1u);
  const auto scalar = std::get<bp_scalar>(launch.attributes[0].value);
  EXPECT_EQ(scalar.dtype, bp_dtype{BP_F64});
  EXPECT_EQ(scalar_value(scalar).hi, 1.0);
}

TEST(LaunchLine, ReadsNumbersThatJsonHasNoWordFor) {
  json line = {{"op", "layer_norm"},
               {"launch", 1},
               {"kernel", "k"},
               {"flags", 0},
               {"args", {{"normalized_ndim", 1}, {"eps", "inf"}}}};
  const auto eps_of = [&](const json& value) {
    line["args"]["eps"] = value;
    const RecordedLaunch launch = read_launch(line);
    const auto eps = std::ranges::find(launch.attributes, "eps", &Attribute::name);
    return std::get<double>(eps->value);
  };
  EXPECT_EQ(eps_of("inf"), HUGE_VAL);
  EXPECT_EQ(eps_of("-inf"), -HUGE_VAL);
  EXPECT_TRUE(std::isnan(eps_of("nan")));
  EXPECT_EQ(eps_of(1e-5), 1e-5);
  EXPECT_EQ(eps_of(2), 2.0);
  line["args"]["eps"] = "1e-5";
  EXPECT_EQ(
      refusal_of(line),
      "launch 1 (layer_norm): 'eps' is '1e-5'; allowed: a number, or the text inf, -inf or nan");
  line["args"]["eps"] = nullptr;
  EXPECT_NE(refusal_of(line).find("'eps' cannot be read: "), std::string::npos);
}

TEST(LaunchLine, NamesTheArgumentAndTheMemberThatIsWrong) {
  const auto expect = [](const char* pointer, const json& value, const std::string& words) {
    json line = addition();
    line[json::json_pointer(pointer)] = value;
    const std::string text = refusal_of(line);
    EXPECT_TRUE(text.starts_with("launch 17 (add)")) << pointer << ": " << text;
    EXPECT_NE(text.find(words), std::string::npos) << pointer << ": " << text;
  };
  expect("/args/a/dtype", "f33", "'a' has the dtype \"f33\", which is not known");
  expect("/args/a/dtype", 7, "'a' has the dtype 7, which is not known");
  expect("/args/b/shape", {2}, "'b' has 1 extents and 2 strides");
  expect("/args/b/shape", {2, -3}, "'b' has the extent -3; allowed: 0 and above");
  expect("/args/b/shape", "2x3", "'b' cannot be read");
  expect("/args/b/strides", {0.5, "x"}, "'b' cannot be read");
  expect("/args/b/buffer", "first", "'b' cannot be read");
  expect("/args/y", 7, "'y' cannot be read");
  expect("/args/y/byte_offset", nullptr, "'y' cannot be read");
  expect("/args/c", 7, "launch 17 (add) has no argument 'c'");
  json without = addition();
  without["args"]["a"].erase("byte_offset");
  EXPECT_NE(refusal_of(without).find("'a' cannot be read"), std::string::npos);
  const Shape many(BP_MAX_RANK + 1, 1);
  json deep = addition();
  deep["args"]["a"]["shape"] = deep["args"]["a"]["strides"] = many;
  EXPECT_NE(refusal_of(deep).find("of each are allowed"), std::string::npos);
}

// Computations with such a tensor would wrap around, and could place it inside its buffer.
TEST(LaunchLine, RefusesATensorWhoseBytesCannotBeCounted) {
  constexpr int64_t kLarge = int64_t{1} << 62;
  const auto refuses = [](const Shape& shape, const Shape& strides) {
    json line = addition();
    line["args"]["a"] = tensor(shape, strides);
    return refusal_of(line) == "launch 17 (add): 'a' has more bytes than 64 bits can count";
  };
  EXPECT_TRUE(refuses({kLarge, 4}, {0, 1})) << "2^64 elements";
  EXPECT_TRUE(refuses({kLarge}, {0})) << "2^67 bits of elements";
  EXPECT_TRUE(refuses({3}, {kLarge})) << "they lie 2^63 elements apart";
  EXPECT_TRUE(refuses({3}, {-kLarge}));
  EXPECT_TRUE(refuses({2}, {INT64_MIN}));
  EXPECT_TRUE(refuses({2, 2, 2, 2, 2}, Shape(5, kLarge / 32))) << "only their sum wraps";
  EXPECT_TRUE(refuses({0, kLarge, kLarge}, {1, 1, 1})) << "the product of the others wraps";
  EXPECT_FALSE(refuses({0, 4}, {INT64_MAX, INT64_MIN})) << "no element lies anywhere";
  EXPECT_FALSE(refuses({4, 0}, {INT64_MAX, INT64_MIN}));
  EXPECT_FALSE(refuses({int64_t{1} << 40}, {1}));
  EXPECT_FALSE(refuses({1}, {INT64_MAX})) << "no second element lies there";
}

TEST(Spans, ReachFromTheLowestToTheHighestElement) {
  const auto span = [](Shape shape, Shape strides) {
    const RecordedTensor recorded{.name = "a",
                                  .dtype = BP_F32,
                                  .shape = std::move(shape),
                                  .strides = std::move(strides),
                                  .byte_offset = 64};
    const ByteSpan bytes = span_of(recorded);
    return std::pair(bytes.begin, bytes.end);
  };
  using Pair = std::pair<uint64_t, uint64_t>;
  EXPECT_EQ(span({2, 3}, {3, 1}), Pair(64, 64 + 24));
  EXPECT_EQ(span({2, 3}, {-3, 1}), Pair(64 - 12, 64 + 12));
  EXPECT_EQ(span({2, 3}, {0, 2}), Pair(64, 64 + 20));
  EXPECT_EQ(span({}, {}), Pair(64, 68));
  EXPECT_EQ(span({2, 0}, {3, 1}), Pair(0, 0));
  EXPECT_GT(span({20}, {-1}).first, span({20}, {-1}).second)
      << "a tensor that would begin before byte 0 is seen by its end";
}

// The test compares with the layouts of the suite, which compute the places in another way.
TEST(Elements, AreVisitedInRowMajorOrder) {
  for (const Shape& shape : {Shape{}, Shape{5}, Shape{2, 3}, Shape{2, 3, 4}, Shape{2, 0, 3}}) {
    for (int number = 0; number <= static_cast<int>(Layout::kOffset); ++number) {
      const Placement placement = place(static_cast<Layout>(number), shape);
      const RecordedTensor recorded{.name = "a",
                                    .dtype = BP_F32,
                                    .shape = shape,
                                    .strides = placement.strides,
                                    .byte_offset = 4096};
      int64_t next = 0;
      visit_elements(recorded, 4, [&](int64_t element, uint64_t byte) {
        EXPECT_EQ(element, next++);
        EXPECT_EQ(static_cast<int64_t>(byte), 4096 + 4 * element_offset(placement, shape, element));
      });
      EXPECT_EQ(next, element_count(shape));
    }
  }
}

}  // namespace
}  // namespace bp::conformance
