// Losses between tensors, norms of channels, and the resampling of images.
#include "conformance/perf/rows.hpp"

namespace bp::conformance {
namespace {

const std::vector<bp_dtype> kF32 = {BP_F32};
const std::vector<bp_dtype> kThree = {BP_F32, BP_F16, BP_BF16};

const Shape kSquare = {1024, 1024}, kImages = {8, 128, 32, 32}, kMaps = {16, 256, 14, 14};

PerfRow loss(uint32_t op, const char* what, const char* base, std::vector<bp_dtype> dtypes) {
  return {op, what, base, std::move(dtypes), {{"x", kSquare}, {"target", kSquare}}};
}

void add_loss_rows(std::vector<PerfRow>& rows) {
  constexpr const char* kMean = "random.5x67_mean.dense";
  constexpr const char* kNone = "random.5x67_none.dense";
  rows.push_back(loss(BP_OP_MSE_LOSS, "mean", kMean, kThree));
  rows.push_back(loss(BP_OP_MSE_LOSS, "none", kNone, kF32));
  rows.push_back(loss(BP_OP_L1_LOSS, "mean", kMean, kF32));
  rows.push_back(loss(BP_OP_SMOOTH_L1_LOSS, "mean", kMean, kF32));
  rows.push_back(loss(BP_OP_HUBER_LOSS, "none", kNone, kF32));
  rows.push_back(loss(BP_OP_BCE_WITH_LOGITS_LOSS, "mean", kMean, kThree));
  rows.push_back(loss(BP_OP_KL_DIV_LOSS, "mean", kMean, kThree));
  rows.push_back({BP_OP_NLL_LOSS,
                  "classes1000",
                  "random.n17c10_mean.dense",
                  kF32,
                  {{"x", {512, 1000}}, {"target", {512}}},
                  {},
                  1000});
}

void add_channel_norm_rows(std::vector<PerfRow>& rows) {
  const std::vector<PerfShape> affine = {{"x", kImages}, {"gamma", {128}}, {"beta", {128}}};
  std::vector<PerfShape> with_statistics = affine;
  with_statistics.push_back({"mean", {128}});
  with_statistics.push_back({"variance", {128}});
  constexpr const char* kPlain = "random.2x6x17.dense";
  rows.insert(rows.end(),
              {
                  {BP_OP_GROUP_NORM,
                   "groups32",
                   "random.2x6x17_groups2.dense",
                   kThree,
                   affine,
                   {{"groups", int64_t{32}}}},
                  {BP_OP_BATCH_NORM_TRAINING, "planes", kPlain, kThree, affine},
                  {BP_OP_BATCH_NORM_INFERENCE, "planes", kPlain, kThree, with_statistics},
                  {BP_OP_GROUP_NORM_BACKWARD,
                   "groups32",
                   "random.2x6x17_groups2.dense",
                   kThree,
                   {{"grad_y", kImages},
                    {"x", kImages},
                    {"gamma", {128}},
                    {"mean", {kImages[0], 32}},
                    {"rstd", {kImages[0], 32}}}},
                  {BP_OP_BATCH_NORM_TRAINING_BACKWARD,
                   "planes",
                   kPlain,
                   kThree,
                   {{"grad_y", kImages},
                    {"x", kImages},
                    {"gamma", {128}},
                    {"mean", {128}},
                    {"variance", {128}}}},
              });
}

// The base cases of 4 axes double the images, or shrink them to one element.
void add_resampling_rows(std::vector<PerfRow>& rows) {
  constexpr const char* kLinear = "random.1x2x3x33_to2x70_linear_half_pixel.dense";
  constexpr const char* kNearest = "random.1x2x3x33_to2x70_nearest_asymmetric_floor.dense";
  constexpr const char* kPool = "random.2x17x7x7_to1x1.dense";
  const Shape small = {4, 64, 32, 32}, large = {4, 64, 64, 64};
  const std::vector<Attribute> doubled = {{"output_size", Shape{64, 64}}};
  const std::vector<Attribute> of_small = {{"input_size", Shape{32, 32}}};
  rows.insert(
      rows.end(),
      {
          {BP_OP_INTERPOLATE, "linear_x2", kLinear, kF32, {{"x", small}}, doubled},
          {BP_OP_INTERPOLATE, "nearest_x2", kNearest, kF32, {{"x", small}}, doubled},
          {BP_OP_INTERPOLATE_BACKWARD, "linear_x2", kLinear, kF32, {{"grad_y", large}}, of_small},
          {BP_OP_ADAPTIVE_AVG_POOL,
           "to7x7",
           kPool,
           kF32,
           {{"x", kMaps}},
           {{"output_size", Shape{7, 7}}}},
          {BP_OP_ADAPTIVE_AVG_POOL, "to1x1", kPool, kF32, {{"x", kMaps}}},
          {BP_OP_ADAPTIVE_AVG_POOL_BACKWARD,
           "from7x7",
           kPool,
           kF32,
           {{"grad_y", {16, 256, 7, 7}}},
           {{"input_size", Shape{14, 14}}}},
      });
}

}  // namespace

void add_image_rows(std::vector<PerfRow>& rows) {
  add_loss_rows(rows);
  add_channel_norm_rows(rows);
  add_resampling_rows(rows);
}

}  // namespace bp::conformance
