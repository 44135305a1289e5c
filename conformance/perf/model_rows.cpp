// Scans and norms of any order, selection and look-ups by index, windows, gates and cells of
// models, and the steps of optimizers over lists of tensors.
#include "conformance/perf/rows.hpp"

namespace bp::conformance {
namespace {

const std::vector<bp_dtype> kF32 = {BP_F32};
const std::vector<bp_dtype> kTwo = {BP_F32, BP_BF16};
const std::vector<bp_dtype> kThree = {BP_F32, BP_F16, BP_BF16};

const Shape kSquare = {1024, 1024}, kRows = {16384, 64};

void add_scan_rows(std::vector<PerfRow>& rows) {
  constexpr const char* kMost = "repeat.5x7_axis1.dense";
  rows.insert(
      rows.end(),
      {
          {BP_OP_NORM, "axis1_p2", "random.5x7_axes1_p2_keep.dense", kThree, {{"x", kSquare}}},
          {BP_OP_NORM, "axis0_p1", "random.5x7_axes0_p1.dense", kF32, {{"x", kSquare}}},
          {BP_OP_CUMMAX, "axis1", kMost, kF32, {{"x", kSquare}}},
          {BP_OP_CUMMIN, "axis0", "repeat.5x7_axis0.dense", kF32, {{"x", kSquare}}},
          {BP_OP_LOGCUMSUMEXP, "axis1", "random.5x7_axis1.dense", kTwo, {{"x", kSquare}}},
          {BP_OP_LOGCUMSUMEXP, "axis0", "random.5x7_axis0.dense", kF32, {{"x", kSquare}}},
          {BP_OP_GRAD_NORM,
           "two_tensors",
           "random.67_5x7_f32.dense",
           kTwo,
           {{"xs", {1 << 20}}, {"xs", kSquare}}},
      });
}

void add_selection_rows(std::vector<PerfRow>& rows) {
  constexpr const char* kAdd = "exact_dense.64x8_axis0_i3.dense";
  constexpr const char* kPut = "exact_dense.64x8_i3x5_indexed1_set.dense";
  constexpr const char* kPutAdd = "exact_dense.64x8_i3x5_indexed1_add.dense";
  const Shape table = {1024, 64};
  rows.insert(rows.end(),
              {
                  {BP_OP_NONZERO, "half", "repeat.67x9.dense", {BP_BOOL}, {{"x", kSquare}}},
                  {BP_OP_MASKED_SELECT,
                   "half",
                   "coord.67x9.dense",
                   kF32,
                   {{"x", kSquare}, {"mask", kSquare}}},
                  {BP_OP_INDEX_ADD,
                   "rows",
                   kAdd,
                   kTwo,
                   {{"x", table}, {"indices", {16384}}, {"src", kRows}},
                   {},
                   1024},
                  {BP_OP_INDEX_PUT,
                   "rows",
                   kPut,
                   kF32,
                   {{"x", kRows}, {"indices", {64, 16}}, {"values", {64, 16, 64}}},
                   {},
                   16384},
                  {BP_OP_INDEX_PUT,
                   "rows_added",
                   kPutAdd,
                   kF32,
                   {{"x", table}, {"indices", {128, 128}}, {"values", {128, 128, 64}}},
                   {},
                   1024},
              });
}

void add_window_rows(std::vector<PerfRow>& rows) {
  constexpr const char* kWindow = "random.2x3x7x9_k3x3_s2x1_p1x1x1x1_d1x1.dense";
  const std::vector<Attribute> of_images = {{"output_size", Shape{32, 32}}};
  rows.insert(rows.end(),
              {
                  {BP_OP_UNFOLD, "k3x3_s2x1", kWindow, kF32, {{"x", {4, 64, 32, 32}}}},
                  {BP_OP_FOLD, "k3x3_s2x1", kWindow, kF32, {{"x", {4, 576, 512}}}, of_images},
                  {BP_OP_ADAPTIVE_MAX_POOL,
                   "to7x7",
                   "random.2x17x7x7_to1x1.dense",
                   kF32,
                   {{"x", {16, 256, 14, 14}}},
                   {{"output_size", Shape{7, 7}}}},
                  {BP_OP_INSTANCE_NORM,
                   "planes",
                   "random.2x6x3x5.dense",
                   kTwo,
                   {{"x", {8, 128, 32, 32}}, {"gamma", {128}}, {"beta", {128}}}},
              });
}

PerfRow gate(uint32_t op, std::vector<PerfShape> shapes) {
  return {op, "dense", "random.67.dense", kThree, std::move(shapes)};
}

void add_gate_rows(std::vector<PerfRow>& rows) {
  const std::vector<PerfShape> two = {{"gate", kSquare}, {"up", kSquare}};
  const std::vector<PerfShape> three = {{"grad_y", kSquare}, {"gate", kSquare}, {"up", kSquare}};
  rows.push_back(gate(BP_OP_SWIGLU, two));
  rows.push_back(gate(BP_OP_SWIGLU_BACKWARD, three));
  rows.push_back(gate(BP_OP_GEGLU, two));
  rows.push_back(gate(BP_OP_GEGLU_BACKWARD, three));
  const std::vector<PerfShape> operands = {{"a", kSquare}, {"b", kSquare}, {"c", kSquare}};
  rows.push_back({BP_OP_ADDCMUL, "dense", "random.67.dense", kF32, operands});
  rows.push_back({BP_OP_ADDCDIV, "dense", "random.67.dense", kF32, operands});
  rows.push_back({BP_OP_FAKE_QUANTIZE,
                  "i8",
                  "random.5x7_i8.dense",
                  kF32,
                  {{"x", kSquare}, {"scale", kSquare}}});
}

void add_cell_rows(std::vector<PerfRow>& rows) {
  const Shape x = {64, 256}, h = {64, 256};
  const std::vector<PerfShape> of_lstm = {
      {"x", x},        {"h", h}, {"c", h}, {"weight", {1024, 256}}, {"recurrent", {1024, 256}},
      {"bias", {1024}}};
  const std::vector<PerfShape> of_gru = {{"x", x},
                                         {"h", h},
                                         {"weight", {768, 256}},
                                         {"recurrent", {768, 256}},
                                         {"bias", {768}},
                                         {"recurrent_bias", {768}}};
  rows.push_back({BP_OP_LSTM_CELL, "h256", "random.3x5x4_full.dense", kTwo, of_lstm});
  rows.push_back({BP_OP_GRU_CELL, "h256", "random.3x5x4_after.dense", kF32, of_gru});
}

void add_list_rows(std::vector<PerfRow>& rows) {
  const Shape line = {262144}, matrix = {512, 512};
  rows.insert(rows.end(),
              {
                  {BP_OP_ADAM_STEP,
                   "two_tensors",
                   "random.67_5x7_step2_decay.dense",
                   kF32,
                   {{"params", line},
                    {"params", matrix},
                    {"exp_avg", line},
                    {"exp_avg", matrix},
                    {"exp_avg_sq", line},
                    {"exp_avg_sq", matrix},
                    {"grads", line},
                    {"grads", matrix}}},
                  {BP_OP_LION_STEP,
                   "two_tensors",
                   "random.67_5x7_decay.dense",
                   kF32,
                   {{"params", line},
                    {"params", matrix},
                    {"exp_avg", line},
                    {"exp_avg", matrix},
                    {"grads", line},
                    {"grads", matrix}}},
                  {BP_OP_FOREACH_SCALE,
                   "two_tensors",
                   "random.67_5x7_scaled.dense",
                   kF32,
                   {{"xs", line}, {"xs", matrix}}},
                  {BP_OP_RANDINT, "dense", "seed42.67_0to10.dense", {BP_I32}, {{"y", {1 << 20}}}},
                  {BP_OP_RANDPERM, "line", "seed42.1031.dense", {BP_I64}, {{"y", {1 << 17}}}},
              });
}

}  // namespace

void add_model_rows(std::vector<PerfRow>& rows) {
  add_scan_rows(rows);
  add_selection_rows(rows);
  add_window_rows(rows);
  add_gate_rows(rows);
  add_cell_rows(rows);
  add_list_rows(rows);
}

}  // namespace bp::conformance
