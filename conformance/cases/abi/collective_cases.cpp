// Cases for api/include/backplane/collective.h. Values are small integers, so that a reduction
// gives the same result in any order, which follows from rank and index.
#include <cmath>

#include "conformance/cases/families.hpp"
#include "conformance/cases/fixtures/api_cases.hpp"
#include "conformance/cases/fixtures/rank_group.hpp"
#include "conformance/numerics/dtype.hpp"

namespace bp::conformance {
namespace {

constexpr uint64_t kCount = RankGroup::kCount;

struct Numbers {
  bp_dtype dtype;
  bp_reduction reduction;
};

// Runs one all_reduce at odd offsets, in place or not, and compares on every rank.
void check_all_reduce(Context& t, RankGroup& g, Numbers n, bool in_place) {
  const uint64_t item = element_size(n.dtype), size_bytes = kCount * item, offset = 3 * item;
  const ValueOf given = [n](uint32_t rank, uint64_t i) { return summand(n.reduction, rank, i); };
  std::vector<bp_collective_call> calls;
  std::vector<bp_buffer_ref> results;
  for (uint32_t rank = 0; rank < g.size(); ++rank) {
    bp_buffer_ref from = g.allocate(rank, size_bytes + offset);
    bp_buffer_ref to = in_place ? from : g.allocate(rank, size_bytes + offset);
    for (bp_buffer_ref* ref : {&from, &to}) *ref = {ref->buffer, offset, size_bytes};
    g.store(rank, from, n.dtype, given);
    bp_collective_call call = g.call(rank, BP_COLLECTIVE_ALL_REDUCE, n.dtype, kCount, n.reduction);
    call.send = from;
    call.receive = to;
    call.scale = n.reduction == BP_REDUCTION_SCALED_SUM ? 1.0 : 0.0;
    calls.push_back(call);
    results.push_back(to);
  }
  t.require_ok(g.submit(calls), "submit");
  g.finish_all();
  for (uint32_t rank = 0; rank < g.size(); ++rank) {
    compare(
        t, g.load(rank, results[rank], n.dtype),
        [&](uint64_t i) {
          const double exact = reduced(n.reduction, g.size(), i, given);
          return is_float(n.dtype) ? round_to(n.dtype, DoubleDouble(exact)) : exact;
        },
        "rank " + std::to_string(rank) + " of " + std::to_string(g.size()));
  }
}

// Returns the combinations that the device's dtypes and the group allow.
std::vector<Numbers> claimed_numbers(Context& t, const RankGroup& g) {
  std::vector<Numbers> claimed;
  const bp_device_properties& p = *t.target().properties;
  for (uint64_t d = 0; d < p.dtype_count; ++d) {
    for (bp_reduction r = BP_REDUCTION_SUM; r <= BP_REDUCTION_SCALED_SUM; ++r) {
      if (float_format(p.dtypes[d]) == nullptr && p.dtypes[d] != BP_I32 && p.dtypes[d] != BP_I64 &&
          p.dtypes[d] != BP_U8 && p.dtypes[d] != BP_I8) {
        continue;
      }
      const bp_status status =
          g.ops().supports(g.ops().self, g.group(0), BP_COLLECTIVE_ALL_REDUCE, r, p.dtypes[d]);
      if (status == BP_OK) claimed.push_back({p.dtypes[d], r});
      if (status != BP_OK) t.expect_refused(status, BP_UNSUPPORTED, "supports");
    }
  }
  if (claimed.empty()) t.missing("all_reduce is not supported for any dtype of the device");
  return claimed;
}

void check_all_reduces(Context& t, uint32_t size) {
  RankGroup g(t, size);
  for (const Numbers n : claimed_numbers(t, g)) {
    // If the number of ranks is not a power of two, an average is not exact.
    if (n.reduction == BP_REDUCTION_AVERAGE && (size & (size - 1)) != 0) continue;
    check_all_reduce(t, g, n, false);
    check_all_reduce(t, g, n, true);
  }
}

template <uint32_t kSize>
void all_reduce_is_exact(Context& t) {
  check_all_reduces(t, kSize);
}

// The data are random bits: their sum depends on the order, which must be the same for all ranks.
void all_reduce_gives_every_rank_the_same_bits(Context& t) {
  RankGroup g(t, 2);
  constexpr uint64_t kMany = 1000;
  std::vector<bp_collective_call> calls;
  std::vector<bp_buffer_ref> results;
  for (uint32_t rank = 0; rank < g.size(); ++rank) {
    const bp_buffer_ref all = g.allocate(rank, kMany * 4);
    const std::vector<uint8_t> noise = random_bytes(t, kMany, rank + 1);
    g.store(rank, all, BP_F32, [&](uint32_t, uint64_t i) {
      return (noise[i] - 127.5) * std::ldexp(1.0, static_cast<int>(i % 50) - 25);
    });
    bp_collective_call call =
        g.call(rank, BP_COLLECTIVE_ALL_REDUCE, BP_F32, kMany, BP_REDUCTION_SUM);
    call.send = call.receive = all;
    calls.push_back(call);
    results.push_back(all);
  }
  t.require_ok(g.submit(calls), "submit");
  g.finish_all();
  for (uint32_t rank = 1; rank < g.size(); ++rank) {
    t.expect(g.bytes(rank, results[rank]) == g.bytes(0, results[0]),
             "rank " + std::to_string(rank) + " has the bits of rank 0");
  }
}

}  // namespace

void add_collective_cases(std::vector<Case>& cases) {
  add_api_cases(cases, "collective",
                {
                    {"all_reduce_is_exact_on_1_rank", {"COLLECTIVE-5"}, all_reduce_is_exact<1>},
                    {"all_reduce_is_exact_on_2_ranks", {"COLLECTIVE-5"}, all_reduce_is_exact<2>},
                    {"all_reduce_is_exact_on_3_ranks", {"COLLECTIVE-5"}, all_reduce_is_exact<3>},
                    {"all_reduce_is_exact_on_5_ranks", {"COLLECTIVE-5"}, all_reduce_is_exact<5>},
                    {"all_reduce_is_exact_on_8_ranks", {"COLLECTIVE-5"}, all_reduce_is_exact<8>},
                    {"all_reduce_gives_every_rank_the_same_bits",
                     {"COLLECTIVE-9"},
                     all_reduce_gives_every_rank_the_same_bits},
                });
}

}  // namespace bp::conformance
