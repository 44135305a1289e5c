// Tests the ops that select elements against plain loops: cat, gather, scatter, index_select and
// embedding.
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <limits>
#include <memory>
#include <random>
#include <utility>

#include "backends/shell/test_backend.hpp"
#include "backplane/shell/narrow.hpp"

namespace bp {
namespace {

using kernels::BFloat16;
using kernels::Float16;

// Gives the index of the element at (outer, at, inner) of a tensor with `extent` along its axis.
struct Lines {
  int64_t extent, inner;
  int64_t operator()(int64_t outer, int64_t at, int64_t i) const {
    return (outer * extent + at) * inner + i;
  }
};

class Selection : public testing::Test {
 protected:
  bp_status run(uint32_t op, const auto& args) {
    EXPECT_EQ(b.launch(op, args), BP_OK) << b.text;
    const bp_status status = b.streams->synchronize(b.streams->self, b.default_stream(), ~0ull);
    return status;
  }

  template <typename T>
  void number(TestTensor& t) {
    for (int64_t i = 0; i < t.size(); ++i) t.at<T>(i) = static_cast<T>(i);
  }

  template <typename Index>
  void pick(TestTensor& t, int64_t extent) {
    for (int64_t i = 0; i < t.size(); ++i) {
      t.at<Index>(i) = static_cast<Index>(random() % static_cast<uint64_t>(extent));
    }
  }

  // Calls body for shapes (outer, extent, inner) in which the selected axis takes every place.
  template <typename T, typename Index, typename Body>
  void for_each_layout(bp_dtype index_dtype, bp_dtype dtype, const Body& body) {
    for (const int64_t gap : {1, 3}) {
      for (const bool is_permuted : {false, true}) {
        TestTensor x(b, dtype, {5, 33, 20}, gap), y(b, dtype, {20, 5, 70}),
            indices(b, index_dtype, {5, 20, 70});
        x.permute({0, 2, 1});
        if (!is_permuted) {
          TestTensor dense_x(b, dtype, {5, 20, 33}, gap), dense_y(b, dtype, {5, 20, 70});
          number<T>(dense_x);
          pick<Index>(indices, 33);
          body(dense_x, indices, dense_y, 2, Lines{33, 1}, Lines{70, 1}, 100);
        }
        y.permute({1, 0, 2});
        number<T>(x);
        pick<Index>(indices, 33);
        body(x, indices, y, 2, Lines{33, 1}, Lines{70, 1}, 100);
        TestTensor middle(b, dtype, {9, 7, 11}, gap), result(b, dtype, {9, 21, 11}, gap),
            places(b, index_dtype, {9, 21, 11});
        number<T>(middle);
        pick<Index>(places, 7);
        body(middle, places, result, 1, Lines{7, 11}, Lines{21, 11}, 9);
      }
    }
  }

  template <typename T, typename Index>
  void expect_gather(bp_dtype dtype, bp_dtype index_dtype) {
    for_each_layout<T, Index>(
        index_dtype, dtype,
        [&](TestTensor& x, TestTensor& indices, TestTensor& y, int32_t axis, Lines in_x, Lines in_y,
            int64_t outer) {
          const bp_gather_args args{.x = &x, .indices = &indices, .y = &y, .axis = axis};
          ASSERT_EQ(run(BP_OP_GATHER, args), BP_OK);
          for (int64_t o = 0; o < outer; ++o) {
            for (int64_t at = 0; at < in_y.extent; ++at) {
              for (int64_t i = 0; i < in_y.inner; ++i) {
                const auto index = static_cast<int64_t>(indices.at<Index>(in_y(o, at, i)));
                ASSERT_EQ(y.at<T>(in_y(o, at, i)), x.at<T>(in_x(o, index, i)));
              }
            }
          }
        });
  }

  // Here y has the layout of x, because both have the same shape.
  template <typename T, typename Index>
  void expect_scatter(bp_dtype dtype, bp_dtype index_dtype, bool adds) {
    for_each_layout<T, Index>(index_dtype, dtype,
                              [&](TestTensor& x, TestTensor& indices, TestTensor& src, int32_t axis,
                                  Lines in_y, Lines in_src, int64_t outer) {
                                number<T>(src);
                                std::vector<T> expected = x.get<T>();
                                for (int64_t o = 0; o < outer; ++o) {
                                  for (int64_t at = 0; at < in_src.extent; ++at) {
                                    for (int64_t i = 0; i < in_src.inner; ++i) {
                                      const auto index =
                                          static_cast<int64_t>(indices.at<Index>(in_src(o, at, i)));
                                      T& to = expected[static_cast<size_t>(in_y(o, index, i))];
                                      const T from = src.at<T>(in_src(o, at, i));
                                      to = adds ? static_cast<T>(to + from) : from;
                                    }
                                  }
                                }
                                std::vector<int64_t> shape(&(&x)->shape[0], &(&x)->shape[3]);
                                TestTensor y(b, dtype, shape);
                                scatter(x, indices, src, y, axis, adds);
                                scatter(x, indices, src, x, axis, adds);
                                ASSERT_EQ(y.get<T>(), expected);
                                ASSERT_EQ(x.get<T>(), expected) << "in place";
                              });
  }

  void scatter(TestTensor& x, TestTensor& indices, TestTensor& src, TestTensor& y, int32_t axis,
               bool adds) {
    const bp_scatter_args set{.x = &x, .indices = &indices, .src = &src, .y = &y, .axis = axis};
    const bp_scatter_reduce_args add{
        .x = &x, .indices = &indices, .src = &src, .y = &y, .axis = axis};
    ASSERT_EQ(adds ? run(BP_OP_SCATTER_REDUCE, add) : run(BP_OP_SCATTER, set), BP_OK);
  }

  TestBackend b{BACKEND_PATH, {{"threads", "3"}}};
  std::mt19937 random{17};
};

TEST_F(Selection, GathersElementsOfEveryWidthAndLayout) {
  expect_gather<uint8_t, int64_t>(BP_U8, BP_I64);
  expect_gather<int16_t, int32_t>(BP_I16, BP_I32);
  expect_gather<float, int32_t>(BP_F32, BP_I32);
  expect_gather<double, int64_t>(BP_F64, BP_I64);
}

TEST_F(Selection, ScattersSoThatTheLastIndexCounts) {
  expect_scatter<uint8_t, int64_t>(BP_U8, BP_I64, false);
  expect_scatter<int16_t, int32_t>(BP_I16, BP_I32, false);
  expect_scatter<float, int64_t>(BP_F32, BP_I64, false);
  expect_scatter<int64_t, int32_t>(BP_I64, BP_I32, false);
}

TEST_F(Selection, AddsWhatIsScattered) {
  expect_scatter<float, int64_t>(BP_F32, BP_I64, true);
  expect_scatter<double, int32_t>(BP_F64, BP_I32, true);
  expect_scatter<int32_t, int32_t>(BP_I32, BP_I32, true);
  expect_scatter<int64_t, int64_t>(BP_I64, BP_I64, true);
}

// An index that names whole rows has a stride of 0. Threads share the columns of long rows, and the
// targets of short ones.
TEST_F(Selection, ScattersRowsOfOneIndex) {
  for (const auto& [rows, count, cols] :
       {std::array<int64_t, 3>{3, 9001, 5}, {700, 9001, 7}, {64, 3000, 300}, {50, 20, 1}}) {
    TestTensor x(b, BP_F32, {rows, cols}), indices(b, BP_I32, {count, 1});
    TestTensor src(b, BP_F32, {count, cols}), y(b, BP_F32, {rows, cols});
    number<float>(x);
    pick<int32_t>(indices, rows);
    indices.expand(1, cols);
    for (int64_t i = 0; i < src.size(); ++i) src.at<float>(i) = static_cast<float>(i % 8);
    for (const bool adds : {false, true}) {
      std::vector<float> expected = x.get<float>();
      for (int64_t i = 0; i < src.size(); ++i) {
        float& to = expected[static_cast<size_t>(indices.at<int32_t>(i) * cols + i % cols)];
        to = adds ? to + src.at<float>(i) : src.at<float>(i);
      }
      scatter(x, indices, src, y, 0, adds);
      ASSERT_EQ(y.get<float>(), expected) << rows << " rows, adds: " << adds;
    }
    indices.at<int32_t>((count - 1) * cols) = static_cast<int32_t>(rows);
    const bp_scatter_reduce_args wrong{.x = &x, .indices = &indices, .src = &src, .y = &y};
    EXPECT_EQ(run(BP_OP_SCATTER_REDUCE, wrong), BP_DATA_FAILURE);
    b.streams->clear_failure(b.streams->self, b.default_stream());
  }
}

// A running sum of ones stops at 2048 in f16, and at 256 in bf16.
TEST_F(Selection, RoundsSumsOfNarrowFloatsOnce) {
  TestTensor x(b, BP_F16, {3}), indices(b, BP_I64, {4096}), src(b, BP_F16, {4096});
  x.set<Float16>({Float16::from_f32(1), Float16::from_f32(2), Float16::from_f32(3)});
  for (int64_t i = 0; i < 4096; ++i) {
    indices.at<int64_t>(i) = 1;
    src.at<Float16>(i) = Float16::from_f32(1);
  }
  scatter(x, indices, src, x, 0, true);
  EXPECT_EQ(x.at<Float16>(0).to_f32(), 1);
  EXPECT_EQ(x.at<Float16>(1).to_f32(), 4096) << "4098 lies between 4096 and 4100, which is odd";
  EXPECT_EQ(x.at<Float16>(2).to_f32(), 3);
  TestTensor grad(b, BP_BF16, {600, 40}), rows(b, BP_I32, {600}), sums(b, BP_BF16, {2, 40}, 2);
  for (int64_t i = 0; i < grad.size(); ++i) grad.at<BFloat16>(i) = BFloat16::from_f32(1);
  for (int64_t i = 0; i < 600; ++i) rows.at<int32_t>(i) = 1;
  const bp_embedding_backward_args args{
      .grad_y = &grad, .indices = &rows, .grad_weight = &sums, .num_embeddings = 2};
  ASSERT_EQ(run(BP_OP_EMBEDDING_BACKWARD, args), BP_OK);
  for (int64_t i = 0; i < 40; ++i) {
    EXPECT_EQ(sums.at<BFloat16>(i).to_f32(), 0);
    EXPECT_EQ(sums.at<BFloat16>(40 + i).to_f32(), 600);
  }
}

TEST_F(Selection, SelectsSlicesAndRows) {
  TestTensor x(b, BP_F32, {6, 50, 40}), indices(b, BP_I32, {77}, 2), y(b, BP_F32, {6, 77, 40});
  number<float>(x);
  pick<int32_t>(indices, 50);
  ASSERT_EQ(run(BP_OP_INDEX_SELECT,
                bp_index_select_args{.x = &x, .indices = &indices, .y = &y, .axis = 1}),
            BP_OK);
  for (int64_t i = 0; i < y.size(); ++i) {
    const int64_t at = i / 40 % 77, outer = i / 40 / 77;
    ASSERT_EQ(y.at<float>(i), x.at<float>((outer * 50 + indices.at<int32_t>(at)) * 40 + i % 40));
  }
  TestTensor weight(b, BP_BF16, {40, 90}), ids(b, BP_I64, {8, 100}), rows(b, BP_BF16, {90, 100, 8});
  weight.permute({1, 0});
  rows.permute({2, 1, 0});
  TestTensor columns(b, BP_BF16, {8, 100, 40});
  number<uint16_t>(weight);
  pick<int64_t>(ids, 90);
  ids.permute({1, 0});
  columns.permute({1, 0, 2});
  ASSERT_EQ(
      run(BP_OP_EMBEDDING, bp_embedding_args{.weight = &weight, .indices = &ids, .y = &columns}),
      BP_OK);
  for (int64_t i = 0; i < columns.size(); ++i) {
    ASSERT_EQ(columns.at<uint16_t>(i), weight.at<uint16_t>(ids.at<int64_t>(i / 40) * 40 + i % 40));
  }
}

// Results that do not stay in a cache are written past it.
TEST_F(Selection, GathersWhatNoCacheHolds) {
  TestTensor x(b, BP_F32, {701, 1501}), indices(b, BP_I64, {701, 3001}), y(b, BP_F32, {701, 3001});
  number<float>(x);
  pick<int64_t>(indices, 1501);
  const bp_gather_args args{.x = &x, .indices = &indices, .y = &y, .axis = 1};
  ASSERT_EQ(run(BP_OP_GATHER, args), BP_OK);
  for (int64_t i = 0; i < y.size(); ++i) {
    ASSERT_EQ(y.at<float>(i), x.at<float>(i / 3001 * 1501 + indices.at<int64_t>(i))) << i;
  }
  for (const int64_t wrong : {int64_t{-1}, int64_t{1501}, std::numeric_limits<int64_t>::min()}) {
    for (const int64_t at : {int64_t{0}, int64_t{123456}, y.size() - 1}) {
      const int64_t right = std::exchange(indices.at<int64_t>(at), wrong);
      EXPECT_EQ(run(BP_OP_GATHER, args), BP_DATA_FAILURE);
      EXPECT_EQ(b.text, "gather: element " + std::to_string(at) + " of indices is " +
                            std::to_string(wrong) + ", not from 0 to 1500");
      b.streams->clear_failure(b.streams->self, b.default_stream());
      indices.at<int64_t>(at) = right;
    }
  }
}

TEST_F(Selection, SelectsRowsThatNoCacheHoldsAndLongOnes) {
  for (const auto& [rows, count, cols] :
       {std::array<int64_t, 3>{300, 2203, 1501}, {5, 3, 40001}, {9, 200001, 3}}) {
    TestTensor x(b, BP_F32, {rows, cols}), indices(b, BP_I32, {count}), y(b, BP_F32, {count, cols});
    number<float>(x);
    pick<int32_t>(indices, rows);
    const bp_index_select_args args{.x = &x, .indices = &indices, .y = &y};
    ASSERT_EQ(run(BP_OP_INDEX_SELECT, args), BP_OK);
    for (int64_t i = 0; i < y.size(); ++i) {
      ASSERT_EQ(y.at<float>(i), x.at<float>(indices.at<int32_t>(i / cols) * cols + i % cols)) << i;
    }
    indices.at<int32_t>(count - 1) = -7;
    EXPECT_EQ(run(BP_OP_INDEX_SELECT, args), BP_DATA_FAILURE);
    EXPECT_EQ(b.text, "index_select: element " + std::to_string(count - 1) +
                          " of indices is -7, not from 0 to " + std::to_string(rows - 1));
    b.streams->clear_failure(b.streams->self, b.default_stream());
  }
}

// A row that no index names becomes 0, even if it was not 0 before. The sum of a single -0 is 0.
TEST_F(Selection, WritesEveryRowOfTheGradientOfAnEmbedding) {
  for (const int64_t gap : {1, 2}) {
    TestTensor grad(b, BP_F32, {7, 300, 19}), rows(b, BP_I64, {300, 7}),
        sums(b, BP_F32, {999, 19}, gap);
    rows.permute({1, 0});
    std::vector<double> expected(999 * 19);
    for (int64_t i = 0; i < rows.size(); ++i) {
      rows.at<int64_t>(i) = static_cast<int64_t>(random() % 500 * 2 % 999);
      for (int64_t k = 0; k < 19; ++k) {
        const int64_t value = static_cast<int64_t>(random() % 64);
        grad.at<float>(i * 19 + k) = value == 0 ? -0.0f : static_cast<float>(value);
        expected[static_cast<size_t>(rows.at<int64_t>(i) * 19 + k)] += static_cast<double>(value);
      }
    }
    for (int64_t i = 0; i < sums.size(); ++i) sums.at<float>(i) = 5;
    const bp_embedding_backward_args args{
        .grad_y = &grad, .indices = &rows, .grad_weight = &sums, .num_embeddings = 999};
    ASSERT_EQ(run(BP_OP_EMBEDDING_BACKWARD, args), BP_OK);
    for (int64_t i = 0; i < sums.size(); ++i) {
      ASSERT_EQ(sums.at<float>(i), static_cast<float>(expected[static_cast<size_t>(i)])) << i;
      ASSERT_FALSE(std::signbit(sums.at<float>(i))) << i;
    }
  }
}

TEST_F(Selection, PutsTensorsBehindEachOther) {
  TestTensor a(b, BP_I16, {50, 30}), empty(b, BP_I16, {30, 0}), one(b, BP_I16, {30, 1}),
      c(b, BP_I16, {30, 400}, 2), y(b, BP_I16, {454, 30});
  a.permute({1, 0});
  one.expand(1, 4);
  y.permute({1, 0});
  number<int16_t>(a);
  number<int16_t>(c);
  one.at<int16_t>(0) = -1;
  const bp_tensor* const xs[] = {&a, &empty, &one, &c};
  ASSERT_EQ(run(BP_OP_CAT, bp_cat_args{.xs_count = 4, .xs = xs, .y = &y, .axis = 1}), BP_OK);
  for (int64_t i = 0; i < y.size(); ++i) {
    const int64_t row = i / 454, at = i % 454;
    const int16_t expected = at < 50   ? a.at<int16_t>(row * 50 + at)
                             : at < 54 ? one.at<int16_t>(row * 4)
                                       : c.at<int16_t>(row * 400 + at - 54);
    ASSERT_EQ(y.at<int16_t>(i), expected) << row << ", " << at;
  }
}

// The test joins short rows, long rows and rows with gaps, and uses one tensor more than once.
TEST_F(Selection, JoinsRows) {
  constexpr int64_t kRows = 300;
  TestTensor a(b, BP_F32, {kRows, 7}), c(b, BP_F32, {kRows, 130}), wide(b, BP_F32, {kRows, 1100}),
      apart(b, BP_F32, {kRows, 5}, 2), y(b, BP_F32, {kRows, 7 + 130 + 1100 + 5 + 7});
  const std::vector<TestTensor*> tensors{std::addressof(a), std::addressof(c), std::addressof(wide),
                                         std::addressof(apart), std::addressof(a)};
  std::vector<const bp_tensor*> xs;
  for (TestTensor* const tensor : tensors) {
    for (int64_t i = 0; i < tensor->size(); ++i)
      tensor->at<float>(i) = static_cast<float>(random());
    xs.push_back(&*tensor);
  }
  ASSERT_EQ(run(BP_OP_CAT, bp_cat_args{.xs_count = 5, .xs = xs.data(), .y = &y, .axis = 1}), BP_OK);
  for (int64_t row = 0, at = 0; row < kRows; ++row) {
    for (TestTensor* const tensor : tensors) {
      const int64_t cols = tensor->shape()[1];
      for (int64_t i = 0; i < cols; ++i, ++at) {
        ASSERT_EQ(y.at<float>(at), tensor->at<float>(row * cols + i)) << row << ", " << i;
      }
    }
  }
}

TEST_F(Selection, FailTheStreamForAnIndexOutOfRange) {
  for (const int64_t wrong : {int64_t{-1}, int64_t{7}, int64_t{1} << 40}) {
    TestTensor x(b, BP_F32, {7}), indices(b, BP_I64, {3}), src(b, BP_F32, {3}), y(b, BP_F32, {7});
    indices.set<int64_t>({0, wrong, 6});
    bp_stream* const stream = b.make_stream();
    for (const uint32_t op : {0u + BP_OP_GATHER, 0u + BP_OP_INDEX_SELECT, 0u + BP_OP_SCATTER}) {
      b.streams->clear_failure(b.streams->self, stream);
      b.text.clear();
      if (op == BP_OP_GATHER) {
        b.launch(op, bp_gather_args{.x = &x, .indices = &indices, .y = &src}, stream);
      } else if (op == BP_OP_INDEX_SELECT) {
        b.launch(op, bp_index_select_args{.x = &x, .indices = &indices, .y = &src}, stream);
      } else {
        b.launch(op, bp_scatter_args{.x = &x, .indices = &indices, .src = &src, .y = &y}, stream);
      }
      EXPECT_EQ(b.streams->synchronize(b.streams->self, stream, ~0ull), BP_DATA_FAILURE);
      EXPECT_NE(b.text.find(": element 1 of indices is " + std::to_string(wrong) + ", "),
                std::string::npos)
          << b.text;
    }
    b.streams->destroy(b.streams->self, stream);
  }
}

}  // namespace
}  // namespace bp
