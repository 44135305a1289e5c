// Element-wise ops, copies and look-ups: these calls move their operands and do little else.
//
// A tensor of 2^20 elements is large enough for a backend to split it between threads and for its
// work to outweigh the launch, and small enough for the oracle.
#include "conformance/perf/rows.hpp"

namespace bp::conformance {
namespace {

const std::vector<bp_dtype> kF32 = {BP_F32};
const std::vector<bp_dtype> kThree = {BP_F32, BP_F16, BP_BF16};
const std::vector<bp_dtype> kAll = {BP_F32, BP_F16, BP_BF16, BP_F64};

constexpr int64_t kMany = 1 << 20;
constexpr int64_t kSide = 1 << 10;
const Shape kLine = {kMany}, kSquare = {kSide, kSide};

void add_binary_rows(std::vector<PerfRow>& rows) {
  rows.insert(rows.end(),
              {
                  {BP_OP_ADD, "dense", "random.1031.dense", kAll, {{"a", kLine}, {"b", kLine}}},
                  {BP_OP_ADD,
                   "broadcast_row",
                   "coord.5x7.dense_broadcast0",
                   kF32,
                   {{"a", kSquare}, {"b", kSquare}}},
                  {BP_OP_ADD,
                   "transposed",
                   "coord.5x7.transposed_dense",
                   kF32,
                   {{"a", kSquare}, {"b", kSquare}}},
                  {BP_OP_DIV, "dense", "random.1031.dense", kF32, {{"a", kLine}, {"b", kLine}}},
                  {BP_OP_LT, "dense", "repeat.65.dense", kF32, {{"a", kLine}, {"b", kLine}}},
                  {BP_OP_WHERE,
                   "dense",
                   "coord.1031.dense",
                   kThree,
                   {{"condition", kLine}, {"a", kLine}, {"b", kLine}}},
              });
}

void add_unary_rows(std::vector<PerfRow>& rows) {
  rows.insert(rows.end(), {
                              {BP_OP_RELU, "dense", "random.16.dense", kThree, {{"x", kLine}}},
                              {BP_OP_EXP, "dense", "random.16.dense", kThree, {{"x", kLine}}},
                              {BP_OP_TANH, "dense", "random.17.dense", kThree, {{"x", kLine}}},
                              {BP_OP_GELU, "dense", "random.17_erf.dense", kThree, {{"x", kLine}}},
                              {BP_OP_GELU_BACKWARD,
                               "dense",
                               "random.17_erf.dense",
                               kThree,
                               {{"grad_y", kLine}, {"x", kLine}}},
                          });
}

void add_copy_rows(std::vector<PerfRow>& rows) {
  rows.insert(
      rows.end(),
      {
          {BP_OP_FILL, "dense", "three.17.dense", kF32, {{"y", kLine}}},
          {BP_OP_COPY, "dense", "coord.67_to_f32.dense", kF32, {{"x", kLine}, {"y", kLine}}},
          {BP_OP_COPY,
           "transposed",
           "coord.5x7_to_f32.transposed_to_dense",
           kF32,
           {{"x", kSquare}, {"y", kSquare}}},
          {BP_OP_COPY,
           "transposed",
           "coord.5x7_to_bf16.transposed_to_dense",
           {BP_BF16},
           {{"x", kSquare}, {"y", kSquare}}},
          {BP_OP_COPY,
           "stepped",
           "coord.5x7_to_f32.stepped_to_dense",
           kF32,
           {{"x", kSquare}, {"y", kSquare}}},
          {BP_OP_COPY, "to_bf16", "random.67_to_bf16.dense", kF32, {{"x", kLine}, {"y", kLine}}},
          {BP_OP_CAT,
           "axis1",
           "coord.16x16_n2_axis1.dense",
           kThree,
           {{"xs", {kSide, 512}}, {"xs", {kSide, 512}}}},
      });
}

void add_arrangement_rows(std::vector<PerfRow>& rows) {
  rows.insert(
      rows.end(),
      {
          {BP_OP_FLIP, "axis0", "coord.33x17_axis0.dense", kF32, {{"x", kSquare}}},
          {BP_OP_FLIP, "axis1", "coord.5x17_axis1.dense", kThree, {{"x", kSquare}}},
          {BP_OP_ROLL, "axis1", "coord.5x17_axis1_by1.dense", kF32, {{"x", kSquare}}},
          {BP_OP_PAD, "axis1", "coord.5x17_axis1_constant2_4.dense", kThree, {{"x", kSquare}}},
          {BP_OP_PAD, "reflect", "coord.5x17_axis1_reflect2_4.dense", kF32, {{"x", kSquare}}},
          {BP_OP_TILE, "axis0", "coord.33x17_axis0_n3.dense", kF32, {{"x", {512, 1024}}}},
          {BP_OP_TILE, "axis1", "coord.5x17_axis1_n3.dense", kF32, {{"x", {1 << 15, 16}}}},
          {BP_OP_TRIL, "square", "coord.33x67_diagonal0.dense", kThree, {{"x", kSquare}}},
          {BP_OP_TRIU, "square", "coord.33x67_diagonal0.dense", kF32, {{"x", kSquare}}},
          {BP_OP_MASKED_FILL, "dense", "coord.257.dense", kThree, {{"x", kLine}, {"mask", kLine}}},
          {BP_OP_ONE_HOT,
           "classes128",
           "index.33_c5.dense",
           kF32,
           {{"indices", {8192}}},
           {{"num_classes", int64_t{128}}},
           128},
      });
}

void add_index_rows(std::vector<PerfRow>& rows) {
  rows.insert(rows.end(), {
                              {BP_OP_EMBEDDING,
                               "vocabulary32k",
                               "coord.v11_d17_i5x3.dense",
                               kThree,
                               {{"weight", {32768, 128}}, {"indices", {8, 512}}},
                               {},
                               32768},
                              {BP_OP_EMBEDDING_BACKWARD,
                               "vocabulary8k",
                               "random.v11_d17_i5x3.dense",
                               kF32,
                               {{"grad_y", {8, 512, 128}}, {"indices", {8, 512}}},
                               {{"num_embeddings", int64_t{8192}}},
                               8192},
                              {BP_OP_GATHER,
                               "axis1",
                               "coord.5x17_axis1_i33.dense",
                               kThree,
                               {{"x", kSquare}, {"indices", kSquare}},
                               {},
                               kSide},
                              {BP_OP_INDEX_SELECT,
                               "axis0",
                               "coord.5x17_axis0_i9.dense",
                               kF32,
                               {{"x", {4096, 512}}, {"indices", {2048}}},
                               {},
                               4096},
                              {BP_OP_SCATTER,
                               "axis0",
                               "coord.5x9_axis0_i5_permuted.dense",
                               kF32,
                               {{"x", {1024, 512}}, {"indices", {1024, 512}}, {"src", {1024, 512}}},
                               {},
                               1024},
                              {BP_OP_SCATTER_REDUCE,
                               "sum_axis0",
                               "random.5x17_axis0_i9.dense",
                               kF32,
                               {{"x", {512, 512}}, {"indices", {1024, 512}}, {"src", {1024, 512}}},
                               {},
                               512},
                          });
}

}  // namespace

void add_element_rows(std::vector<PerfRow>& rows) {
  add_binary_rows(rows);
  add_unary_rows(rows);
  add_copy_rows(rows);
  add_arrangement_rows(rows);
  add_index_rows(rows);
}

}  // namespace bp::conformance
