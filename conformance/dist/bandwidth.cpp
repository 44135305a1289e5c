#include "conformance/dist/bandwidth.hpp"

#include <algorithm>
#include <array>
#include <cstdio>

#include "conformance/numerics/dtype.hpp"

namespace bp::conformance::dist {

std::vector<Claim> timed_claims() {
  return {{BP_COLLECTIVE_ALL_REDUCE, BP_REDUCTION_SUM, BP_F32},
          {BP_COLLECTIVE_ALL_GATHER, 0, BP_F32},
          {BP_COLLECTIVE_REDUCE_SCATTER, BP_REDUCTION_SUM, BP_F32},
          {BP_COLLECTIVE_BROADCAST, 0, BP_F32},
          {BP_COLLECTIVE_ALL_TO_ALL, 0, BP_F32},
          {BP_COLLECTIVE_SEND, 0, BP_F32}};
}

bool is_timed_in_place(bp_collective_kind kind) {
  return kind != BP_COLLECTIVE_ALL_TO_ALL && kind != BP_COLLECTIVE_SEND;
}

double bus_factor(bp_collective_kind kind, uint32_t world_size) {
  const double others = static_cast<double>(world_size - 1) / world_size;
  if (kind == BP_COLLECTIVE_ALL_REDUCE) return 2 * others;
  return has_parts(kind) ? others : 1;
}

uint64_t count_of_size(const Claim& claim, uint64_t size_bytes, uint32_t world_size) {
  const uint64_t elements = size_bytes / element_size(claim.dtype);
  return has_parts(claim.kind) ? elements / world_size : elements;
}

std::vector<uint64_t> listed_sizes(const Sizes& sizes) {
  std::vector<uint64_t> list;
  for (uint64_t size = sizes.min_bytes; size <= sizes.max_bytes; size *= sizes.factor) {
    list.push_back(size);
    if (size > UINT64_MAX / sizes.factor) break;
  }
  return list;
}

double BandwidthRow::algorithm_bandwidth(const Timing& timing) const {
  return timing.seconds > 0 ? static_cast<double>(size_bytes) / timing.seconds : 0;
}

double median_of_slowest(const std::vector<std::vector<double>>& ranks) {
  std::vector<double> slowest;
  for (const std::vector<double>& groups : ranks) {
    slowest.resize(std::max(slowest.size(), groups.size()));
    for (size_t i = 0; i < groups.size(); ++i) slowest[i] = std::max(slowest[i], groups[i]);
  }
  if (slowest.empty()) return 0;
  std::ranges::sort(slowest);
  return slowest[slowest.size() / 2];
}

std::string bandwidth_text(const std::vector<BandwidthRow>& rows, uint32_t world_size) {
  if (rows.empty()) return "";
  std::string text =
      "# " +
      std::string(rows[0].claim.kind == BP_COLLECTIVE_SEND ? "send, receive"
                                                           : kind_text(rows[0].claim.kind)) +
      ", " + std::to_string(world_size) +
      " ranks\n"
      "#                                                        out-of-place                       "
      "in-place\n"
      "#       size         count    type   redop    root     time   algbw   busbw #wrong     time "
      " "
      " algbw   busbw #wrong\n"
      "#        (B)    (elements)                             (us)  (GB/s)  (GB/s)            (us) "
      " "
      "(GB/s)  (GB/s)\n";
  for (const BandwidthRow& row : rows) {
    const Claim& claim = row.claim;
    std::array<char, 160> line;
    std::snprintf(line.data(), line.size(), "%12llu  %12llu  %6s  %6s  %6s",
                  static_cast<unsigned long long>(row.size_bytes),
                  static_cast<unsigned long long>(row.count), dtype_text(claim.dtype),
                  claim.reduction == 0 ? "none" : reduction_text(claim.reduction),
                  has_root(claim.kind) ? "0" : "-1");
    text += line.data();
    for (const Timing* const timing : {&row.apart, &row.in_place}) {
      if (!timing->is_measured) {
        text += "       N/A     N/A     N/A    N/A";
        continue;
      }
      const double algorithm = row.algorithm_bandwidth(*timing) / 1e9;
      std::snprintf(line.data(), line.size(), "  %8.2f %7.3f %7.3f %6llu", timing->seconds * 1e6,
                    algorithm, algorithm * bus_factor(claim.kind, world_size),
                    static_cast<unsigned long long>(timing->wrong_count));
      text += line.data();
    }
    text += "\n";
  }
  return text;
}

}  // namespace bp::conformance::dist
