// What a failure says about its call, its worst element, and the values and places of the wrong
// ones.
#include "conformance/cases/engine/op_words.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <numeric>

#include "conformance/cases/engine/op_mistakes.hpp"
#include "conformance/cases/ops/op_families.hpp"

namespace bp::conformance {
namespace {

// Returns the first row of an op whose id matches.
OpCase row_of(uint32_t op, const std::string& part) {
  OpCases rows;
  for (const OpFamily& family : op_families()) family.add(rows);
  for (const OpCase& row : rows) {
    if (row.op == op && row.id().find(part) != std::string::npos) return row;
  }
  ADD_FAILURE() << "there is no row " << part;
  return {};
}

TEST(Words, NameACallAsTheSpecDoes) {
  EXPECT_EQ(call_text(row_of(BP_OP_GATHER, ".f32.clamped.11x5_axis0_i7.")),
            "gather(x f32 [11, 5], indices i64 [7, 5], axis = 0, bounds = clamp) -> y f32 [7, 5]");
}

TEST(Words, NameTheInputsOfAnElementOfAProduct) {
  const OpCase row = row_of(BP_OP_MATMUL, ".f32.exact_dense.m1k1n1.");
  const CallData data(row, 7);
  const std::string a = element_text(BP_F32, data.tensor("a").data[0]);
  const std::string b = element_text(BP_F32, data.tensor("b").data[0]);
  EXPECT_EQ(inputs_text(row, data, resolve_numerics(nullptr, BP_F32), 0, 0),
            "a[0, 0] = " + a + "; b[0, 0] = " + b);
}

TEST(Words, NameNoInputsThatDoNotMatter) {
  OpCase row = row_of(BP_OP_MATMUL, ".f32.onehot.m16k17n16.");
  const CallData data(row, 7);
  const std::string text = inputs_text(row, data, resolve_numerics(nullptr, BP_F32), 0, 16 * 5 + 2);
  EXPECT_TRUE(text.starts_with("a[5, 0] = ")) << text;
  EXPECT_NE(text.find("a[5, 5] = "), std::string::npos) << text;
  EXPECT_EQ(text.find("a[4, "), std::string::npos) << text;
  EXPECT_NE(text.find(" and others; b[0, 2] = "), std::string::npos) << text;
  EXPECT_EQ(text.find("b[0, 3]"), std::string::npos) << text;
}

// ---- Mistakes -------------------------------------------------------------------------------- //

class MistakenOutput {
 public:
  MistakenOutput(Shape shape, const std::function<double(int64_t)>& right,
                 const std::function<double(int64_t)>& got) {
    output_.name = "y";
    output_.dtype = BP_F32;
    output_.shape = std::move(shape);
    for (int64_t i = 0; i < element_count(output_.shape); ++i) {
      output_.value.emplace_back(got(i));
      expected_.value.emplace_back(right(i));
      const bool is_same = got(i) == right(i) && std::signbit(got(i)) == std::signbit(right(i));
      if (!is_same && !(std::isnan(got(i)) && std::isnan(right(i)))) wrong_.push_back(i);
    }
  }
  Mistakes mistakes() const { return {output_, expected_, wrong_}; }

 private:
  OutputView output_;
  Expected expected_;
  std::vector<int64_t> wrong_;
};

double number(int64_t i) { return 3.5 + 2 * static_cast<double>(i * i); }

TEST(Mistakes, OfSpecialValuesAreNoTail) {
  const auto right = [](int64_t i) { return i % 25 == 24 ? std::nan("") : number(i); };
  const auto got = [&](int64_t i) { return i % 25 == 24 ? 0 : number(i); };
  const MistakenOutput output({3, 25}, right, got);
  EXPECT_EQ(value_of(output.mistakes()),
            "each should be NaN; none of the 3 that should be NaN is right");
  EXPECT_EQ(place_of(output.mistakes()), "all elements with index 24 (of 25) on axis 1");
  const MistakenOutput one({51}, right, [&](int64_t i) { return i == 24 ? 0 : right(i); });
  EXPECT_EQ(value_of(one.mistakes()), "it should be NaN; 1 others that should be NaN are right");
  EXPECT_EQ(place_of(one.mistakes()), "this element alone");
}

TEST(Mistakes, AreNamedByTheirValues) {
  const auto value = [](const std::function<double(int64_t)>& got) {
    return value_of(MistakenOutput({64}, number, got).mistakes());
  };
  EXPECT_EQ(value([](int64_t) { return 0.0; }), "each is 0 where the right value is not");
  EXPECT_EQ(value([](int64_t i) { return -number(i); }), "each has the wrong sign");
  EXPECT_EQ(value([](int64_t) { return std::nan(""); }), "each is NaN and should be a number");
  EXPECT_EQ(value([](int64_t) { return HUGE_VAL; }), "each is infinite and should not be");
  EXPECT_EQ(value([](int64_t i) { return 2 * number(i); }), "each is 2 times the right value");
  EXPECT_EQ(value([](int64_t) { return 99.25; }), "all hold the same value");
  EXPECT_EQ(value([](int64_t i) { return number(i) * 1.001; }),
            "each is off by at most 1 %; the largest relative error is 0.001");
  EXPECT_TRUE(value([](int64_t i) {
                return std::nextafter(static_cast<float>(number(i)), 0.0f);
              }).starts_with("each is a neighbour of the right value"));
  EXPECT_EQ(value([](int64_t i) { return i == 63 ? number(i) : number(i + 1); }),
            "each holds the right value of the element behind it");
}

TEST(Mistakes, AreNamedByTheirPlace) {
  const auto place = [](Shape shape, const std::function<bool(int64_t)>& is_wrong) {
    return place_of(MistakenOutput(std::move(shape), number, [&](int64_t i) {
                      return is_wrong(i) ? -1.0 : number(i);
                    }).mistakes());
  };
  EXPECT_EQ(place({4, 16}, [](int64_t) { return true; }), "all elements of the tensor");
  EXPECT_EQ(place({64}, [](int64_t i) { return i % 16 == 3; }),
            "element 3 of every 16 in row-major order");
  EXPECT_EQ(place({4, 19}, [](int64_t i) { return i % 19 >= 16; }),
            "all elements with index 16 to 18 (of 19) on axis 1");
  EXPECT_EQ(place({8, 8}, [](int64_t i) { return i == 0 || i == 20 || i == 63; }),
            "scattered over the whole tensor");
}

TEST(Mistakes, FillATailOnlyIfTheyAreJustIt) {
  const auto fills = [](Shape shape, const std::function<bool(int64_t)>& is_wrong) {
    return fill_a_tail(MistakenOutput(std::move(shape), number, [&](int64_t i) {
                         return is_wrong(i) ? -1.0 : number(i);
                       }).mistakes());
  };
  EXPECT_TRUE(fills({259}, [](int64_t i) { return i >= 256; }));
  EXPECT_TRUE(fills({4, 19}, [](int64_t i) { return i % 19 >= 16; }));
  EXPECT_FALSE(fills({4, 19}, [](int64_t i) { return i % 19 == 18; })) << "a part of a tail";
  EXPECT_FALSE(fills({4, 16}, [](int64_t i) { return i % 16 >= 12; })) << "no tail of 16";
  EXPECT_FALSE(fills({259}, [](int64_t i) { return i >= 256 || i == 0; }));
}

}  // namespace
}  // namespace bp::conformance
