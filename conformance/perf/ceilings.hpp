// The ceilings of a device, measured through the ABI before any call is compared with them.
//
//   perf.ceiling.copy            op copy, and the allocator's copy, between two buffers beyond the
//                                cache; bytes read plus bytes written, by the faster of the two
//   perf.ceiling.read            op sum of one large tensor, whole or by rows
//   perf.ceiling.write           op fill of one large tensor
//   perf.ceiling.update          op relu of one large tensor in place; bytes read plus bytes
//                                written
//   perf.ceiling.launch          op copy of one element: alone, and in batches of 100
//   perf.ceiling.matmul.<dtype>  op matmul of 512^3, 1024^3 and, until one takes a millisecond, of
//                                larger cubes
//
// A ceiling is the best of several runs, because noise only makes runs slower. Runs in which the
// process was preempted do not count. A ceiling has settled when its three best runs agree within
// 2 %. The results of the runs are verified, because a ceiling from work that was not done would
// make every grade too low.
#pragma once

#include <vector>

#include "conformance/case.hpp"
#include "conformance/runner/perf_options.hpp"

namespace bp::conformance {

constexpr const char* kCeilingPrefix = "perf.ceiling.";
// The name of the metric that a ceiling has if it did not settle.
constexpr const char* kUnsettled = "unsettled";

// Adds a case for each ceiling. A case leaves the metrics "bytes_per_s" or "flops_per_s", or
// "launch_s" and "batched_s".
void add_ceiling_cases(std::vector<Case>& cases, const PerfOptions& options);

}  // namespace bp::conformance
