// cumsum and cumprod along any axis (scan.comp). Long lines are cut into parts: a first dispatch
// finds the total of each part, a second one the total of the parts before each, and a third one
// writes the results.
#include <algorithm>
#include <array>
#include <cstdlib>

#include "backends/vulkan/kernels/reduce.hpp"
#include "backends/vulkan/kernels/rows.hpp"
#include "backends/vulkan/kernels/walk.hpp"

namespace bp::vulkan {
namespace {

struct ScanRecord {
  uint64_t x, y, totals;
  uint64_t part_number, size, part_size, part_count;
  uint32_t extents[BP_MAX_RANK];
  int64_t x_step, y_step;
  int64_t x_strides[BP_MAX_RANK], y_strides[BP_MAX_RANK];
};

// The constants of scan.comp that differ between the dispatches of a launch.
struct ScanStage {
  bool writes = true, is_exclusive = false, has_totals = false;
  bp_dtype from = BP_F32, to = BP_F32;
};

// A part has at most this many elements, so that no invocation takes more than 8,192: drivers may
// end a loop silently after 65,535 trips.
constexpr int64_t kMostOfPart = 65536, kMostOfLane = 8192;

struct ScanPlan {
  int64_t lines = 1, size = 0, parts = 1, part_size = 0;
};

// Cuts lines into parts. If there are few lines, there are more parts, so that the device has
// enough work.
ScanPlan make_plan(const bp_tensor& x, size_t axis) {
  ScanPlan plan;
  plan.size = axis_extent(x, axis);
  plan.lines = plan.size == 0 ? 0 : element_count(x) / plan.size;
  const int64_t needed = (plan.size + kMostOfPart - 1) / kMostOfPart;
  const int64_t wanted = plan.lines < 64 ? std::min<int64_t>(64, plan.size / kMostOfLane) : 1;
  plan.parts = std::max<int64_t>({1, needed, wanted});
  plan.part_size = (plan.size + plan.parts - 1) / plan.parts;
  return plan;
}

// Returns the dtype of totals.
bp_dtype total_dtype(bp_dtype from) {
  if (is_f32_class(from)) return BP_F32;
  return from == BP_F64 ? BP_F64 : BP_I64;
}

const Module& module_of(bp_dtype from) {
  if (is_f32_class(from)) return kScanF32Module;
  return from == BP_F64 ? kScanF64Module : kScanI64Module;
}

// Returns how many invocations share a part. If neighbouring lines are closer to each other than
// the elements of a line, each invocation has its own part.
uint32_t lanes_of(const Env& env, const ScanRecord& record) {
  const auto part_size = static_cast<int64_t>(record.part_size);
  const bool is_across = std::abs(record.x_strides[0]) < std::abs(record.x_step) &&
                         record.part_number >= local_size(env);
  if (is_across && part_size <= kMostOfLane) return 1;
  return lanes_of_row(env, static_cast<int64_t>(record.part_number), part_size, kMostOfLane);
}

bp_status submit_stage(Launch& launch, bool multiplies, const ScanStage& stage,
                       const ScanRecord& record, uint32_t rank, const Ranges& reads,
                       const Ranges& writes) {
  const uint32_t lanes = lanes_of(launch, record), size = row_group_size(launch, lanes);
  const std::array<uint32_t, 9> constants = {size,
                                             lanes,
                                             multiplies ? 1u : 0u,
                                             one_of(kNumberDtypes, stage.to),
                                             one_of(kAnyDtypes, stage.from),
                                             std::max(rank, 1u),
                                             stage.writes ? 1u : 0u,
                                             stage.is_exclusive ? 1u : 0u,
                                             stage.has_totals ? 1u : 0u};
  return submit(launch, module_of(stage.from), constants, record,
                ceil_divide(record.part_number, size / lanes), {reads, writes});
}

// Returns the record of the scan of the totals of each line.
ScanRecord record_of_totals(const ScanPlan& plan, uint64_t totals, int64_t total_bytes) {
  ScanRecord record{};
  record.x = record.y = totals;
  record.part_number = static_cast<uint64_t>(plan.lines);
  record.size = record.part_size = static_cast<uint64_t>(plan.parts);
  record.part_count = 1;
  record.extents[0] = static_cast<uint32_t>(plan.lines);
  record.x_step = record.y_step = total_bytes;
  record.x_strides[0] = record.y_strides[0] = plan.parts * total_bytes;
  return record;
}

template <typename Args>
ScanRecord record_of(Launch& launch, const Args& args, const ScanPlan& plan, const Walk& lines) {
  const auto axis = static_cast<size_t>(args.axis);
  ScanRecord record{};
  record.x = launch.device_address(*args.x);
  record.y = launch.device_address(*args.y);
  record.x_step = axis_stride(*args.x, axis) * dtype_size_bytes(args.x->dtype);
  record.y_step = axis_stride(*args.y, axis) * dtype_size_bytes(args.y->dtype);
  if (args.is_reverse != 0) {
    record.x += static_cast<uint64_t>((plan.size - 1) * record.x_step);
    record.y += static_cast<uint64_t>((plan.size - 1) * record.y_step);
    record.x_step = -record.x_step;
    record.y_step = -record.y_step;
  }
  record.part_number = static_cast<uint64_t>(plan.lines * plan.parts);
  record.size = static_cast<uint64_t>(plan.size);
  record.part_size = static_cast<uint64_t>(plan.part_size);
  record.part_count = static_cast<uint64_t>(plan.parts);
  copy_extents(lines, record.extents);
  std::ranges::copy(lines.strides[0], record.x_strides);
  std::ranges::copy(lines.strides[1], record.y_strides);
  return record;
}

template <typename Args, bool kMultiplies>
bp_status scan_launch(const Args& args, Launch& launch) {
  const ScanPlan plan = make_plan(*args.x, static_cast<size_t>(args.axis));
  if (plan.lines == 0) return BP_OK;
  const Walk lines = make_row_walk({args.x, args.y}, static_cast<uint32_t>(args.axis), 1);
  ScanRecord record = record_of(launch, args, plan, lines);
  ScanStage stage{
      .is_exclusive = args.is_exclusive != 0, .from = args.x->dtype, .to = args.y->dtype};
  Ranges reads(launch, {args.x}), writes(launch, {args.y});
  if (plan.parts > 1) {
    Ranges scratch(launch);
    scratch.add(launch.workspace());
    record.totals = launch.workspace_address();
    ScanStage first = stage;
    first.writes = false;
    bp_status status = submit_stage(launch, kMultiplies, first, record, lines.rank, reads, scratch);
    if (status != BP_OK) return status;

    const bp_dtype dtype = total_dtype(stage.from);
    const ScanStage second{.is_exclusive = true, .from = dtype, .to = dtype};
    status = submit_stage(launch, kMultiplies, second,
                          record_of_totals(plan, record.totals, dtype_size_bytes(dtype)), 1,
                          scratch, scratch);
    if (status != BP_OK) return status;
    stage.has_totals = true;
    reads.add(launch.workspace());
  }
  return submit_stage(launch, kMultiplies, stage, record, lines.rank, reads, writes);
}

template <typename Args>
uint64_t scan_workspace(const Args& args, const Env&) {
  const ScanPlan plan = make_plan(*args.x, static_cast<size_t>(args.axis));
  if (plan.parts == 1) return 0;
  return static_cast<uint64_t>(plan.lines * plan.parts *
                               dtype_size_bytes(total_dtype(args.x->dtype)));
}

template <typename Args>
bp_reason scan_supports(const Args& args) {
  const ScanPlan plan = make_plan(*args.x, static_cast<size_t>(args.axis));
  const bool is_counted = plan.lines * plan.parts < int64_t{1} << 31;
  return is_counted ? nullptr : "x has 2^31 parts of lines or more";
}

template <typename Args, bool kMultiplies>
constexpr bp_kernel scan_kernel(const char* name, uint32_t op) {
  return make_kernel<Args, scan_launch<Args, kMultiplies>, scan_supports<Args>,
                     scan_workspace<Args>>(kernel_row(name, op, kSumPairs));
}

}  // namespace

constinit const bp_kernel kCumsum = scan_kernel<bp_cumsum_args, false>("cumsum", BP_OP_CUMSUM);
constinit const bp_kernel kCumprod = scan_kernel<bp_cumprod_args, true>("cumprod", BP_OP_CUMPROD);

}  // namespace bp::vulkan
