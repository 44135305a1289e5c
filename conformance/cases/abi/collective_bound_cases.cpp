// Cases for api/include/backplane/collective.h: the errors that reductions of floats may have.
#include "conformance/cases/families.hpp"
#include "conformance/cases/fixtures/api_cases.hpp"
#include "conformance/cases/fixtures/rank_group.hpp"
#include "conformance/numerics/bounds.hpp"
#include "conformance/numerics/dtype.hpp"
#include "registry/boundary/number_text.hpp"

namespace bp::conformance {
namespace {

constexpr uint64_t kCount = 500;

struct Numbers {
  bp_dtype dtype;
  bp_reduction reduction;
};

std::vector<double> elements(Context& t, bp_dtype dtype, uint32_t rank) {
  const std::vector<uint8_t> noise = random_bytes(t, 8 * kCount, rank + 1);
  std::vector<double> values;
  for (uint64_t i = 0; i < kCount; ++i) values.push_back(noisy_element(dtype, &noise[8 * i]));
  return values;
}

// Returns element i, reduced over all ranks.
ExactReduction combined(const std::vector<std::vector<double>>& given, bp_reduction reduction,
                        uint64_t i) {
  std::vector<double> column;
  for (const std::vector<double>& values : given) column.push_back(values[i]);
  return exactly_reduced(reduction, column);
}

std::string describe(Numbers n, uint32_t rank, uint64_t i) {
  return "reduction " + std::to_string(n.reduction) + " of " + dtype_text(n.dtype) + ", rank " +
         std::to_string(rank) + ", element " + std::to_string(i);
}

// Runs one all_reduce, and reports the first element of each rank whose error is too large.
void check_bound(Context& t, RankGroup& g, Numbers n) {
  std::vector<std::vector<double>> given;
  std::vector<bp_collective_call> calls;
  for (uint32_t rank = 0; rank < g.size(); ++rank) {
    given.push_back(elements(t, n.dtype, rank));
    bp_collective_call call = g.call(rank, BP_COLLECTIVE_ALL_REDUCE, n.dtype, kCount, n.reduction);
    call.send = g.allocate(rank, kCount * element_size(n.dtype));
    call.receive = g.allocate(rank, kCount * element_size(n.dtype));
    call.scale = n.reduction == BP_REDUCTION_SCALED_SUM ? scale_of_rank(rank) : 0;
    g.store(rank, call.send, n.dtype, [&](uint32_t r, uint64_t i) { return given[r][i]; });
    calls.push_back(call);
  }
  t.require_ok(g.submit(calls), "submit");
  g.finish_all();
  for (uint32_t rank = 0; rank < g.size(); ++rank) {
    const std::vector<double> got = g.load(rank, calls[rank].receive, n.dtype);
    for (uint64_t i = 0; i < kCount; ++i) {
      const ExactReduction exact = combined(given, n.reduction, i);
      const double error = abs(DoubleDouble(got[i]) - exact.result).hi;
      const double bound = collective_bound(n.dtype, g.size(), exact.magnitude);
      if (error <= bound) continue;
      t.add({describe(n, rank, i) + " is " + short_text(got[i], 17) + ", not " +
                 short_text(exact.result.hi, 17) + ": off by " + short_text(error, 3) + " where " +
                 short_text(bound, 3) + " is allowed",
             "values", ""});
      break;
    }
  }
}

template <uint32_t kSize>
void reductions_of_floats_keep_their_bound(Context& t) {
  RankGroup g(t, kSize);
  const bp_device_properties& p = *t.target().properties;
  bool is_any = false;
  for (uint64_t d = 0; d < p.dtype_count; ++d) {
    if (!is_float(p.dtypes[d])) continue;
    for (const bp_reduction r :
         {BP_REDUCTION_SUM, BP_REDUCTION_PRODUCT, BP_REDUCTION_AVERAGE, BP_REDUCTION_SCALED_SUM}) {
      if (g.ops().supports(g.ops().self, g.group(0), BP_COLLECTIVE_ALL_REDUCE, r, p.dtypes[d]) !=
          BP_OK) {
        continue;
      }
      is_any = true;
      check_bound(t, g, {p.dtypes[d], r});
    }
  }
  if (!is_any) t.missing("all_reduce is not supported for any float of the device");
}

}  // namespace

void add_collective_bound_cases(std::vector<Case>& cases) {
  add_api_cases(cases, "collective",
                {
                    {"reductions_of_floats_keep_their_bound_on_2_ranks",
                     {"COLLECTIVE-11"},
                     reductions_of_floats_keep_their_bound<2>},
                    {"reductions_of_floats_keep_their_bound_on_3_ranks",
                     {"COLLECTIVE-11"},
                     reductions_of_floats_keep_their_bound<3>},
                    {"reductions_of_floats_keep_their_bound_on_8_ranks",
                     {"COLLECTIVE-11"},
                     reductions_of_floats_keep_their_bound<8>},
                });
}

}  // namespace bp::conformance
