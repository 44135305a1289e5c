// Cuts the scores of attention into parts, which are computed and used one after the other
// (sdpa_products.cpp).
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>

#include "backends/vulkan/kernels/dropout.hpp"
#include "backends/vulkan/kernels/submit.hpp"
#include "backplane/base.h"
#include "backplane/shell/key_band.hpp"
#include "backplane/shell/scalar.hpp"
#include "backplane/tensor.h"

namespace bp::vulkan {

// The most scores of a part: 16 MiB.
inline constexpr int64_t kMostScores = int64_t{1} << 22;

// The scores that are computed at once: some heads of some batches, and either all keys of some
// queries or all queries of some keys. If a part has several heads, they are all heads that share
// some heads of keys.
struct Part {
  int64_t batch = 0, batches = 0, head = 0, heads = 0;
  int64_t query = 0, queries = 0, key = 0, keys = 0;

  int64_t row_count() const { return batches * heads * queries; }
};

// Returns the soft cap in f32. A cap below the normal numbers of f32 becomes the smallest of them,
// because both make every score 0.
template <typename Args>
float shader_softcap(const Args& args) {
  if (args.softcap == 0) return 0;
  return std::max(static_cast<float>(args.softcap), std::numeric_limits<float>::min());
}

// The dropout of attention, as in weight_dropout.glsl.
struct DropoutRecord {
  uint64_t seed_address, offset_address;
  uint64_t seed, offset;
  uint64_t heads, queries, keys;
  uint32_t threshold;
  float scale;
};

// Returns the record of a call with dropout, and one of zeros for others.
template <typename Args>
DropoutRecord dropout_record(const Launch& launch, const Args& args) {
  DropoutRecord record{};
  if (args.dropout_p == 0) return record;
  record.seed_address = address_of(launch, args.seed);
  record.offset_address = address_of(launch, args.offset);
  if (args.seed == nullptr) record.seed = convert_scalar(args.seed_scalar, BP_U64);
  if (args.offset == nullptr) record.offset = convert_scalar(args.offset_scalar, BP_U64);
  record.heads = static_cast<uint64_t>(args.q->shape[1]);
  record.queries = static_cast<uint64_t>(args.q->shape[2]);
  record.keys = static_cast<uint64_t>(args.k->shape[2]);
  record.threshold = dropout_threshold(args.dropout_p);
  record.scale = dropout_scale(args.dropout_p);
  return record;
}

// The tensors and extents that both ops have.
struct Attention {
  template <typename Args>
  explicit Attention(const Args& a)
      : q(*a.q),
        k(*a.k),
        v(*a.v),
        mask(a.mask),
        bias(a.bias),
        lse(a.lse),
        sinks(a.sinks),
        scale(a.scale),
        softcap(shader_softcap(a)),
        has_band(bp::has_band(a)),
        band(key_band(a)) {}

  int64_t batches() const { return q.shape[0]; }
  int64_t heads() const { return q.shape[1]; }
  int64_t group() const { return std::max<int64_t>(1, q.shape[1] / k.shape[1]); }
  int64_t queries() const { return q.shape[2]; }
  int64_t keys() const { return k.shape[2]; }
  int64_t width() const { return q.shape[3]; }
  int64_t value_width() const { return v.shape[3]; }

  const bp_tensor &q, &k, &v;
  const bp_tensor *mask, *bias, *lse, *sinks;
  double scale;
  float softcap;
  bool has_band;
  KeyBand band;
};

inline int64_t round_up(int64_t count, int64_t multiple) {
  return (count + multiple - 1) / multiple * multiple;
}

// Returns the distance of rows of scores, which begin at vectors of 16 bytes.
inline int64_t row_stride(int64_t keys) { return std::max<int64_t>(4, round_up(keys, 4)); }

// Returns how many of `count` units, with `scores` scores each, make a part.
inline int64_t step_of(int64_t count, int64_t scores) {
  return std::clamp<int64_t>(kMostScores / std::max<int64_t>(1, scores), 1,
                             std::max<int64_t>(1, count));
}

// The numbers of batches and heads of a part.
struct Steps {
  int64_t batches, heads;
};

inline Steps steps_of(const Attention& a) {
  const int64_t of_head = a.queries() * row_stride(a.keys());
  const int64_t batches = step_of(a.batches(), of_head * a.heads());
  if (of_head * a.heads() <= kMostScores) return {batches, std::max<int64_t>(1, a.heads())};
  const int64_t heads = step_of(a.heads(), of_head) / a.group() * a.group();
  return {1, std::max<int64_t>(1, heads)};
}

// Calls body(part) for all queries and keys of some heads, until one fails.
template <typename Body>
bp_status for_heads(const Attention& a, Body&& body) {
  const Steps steps = steps_of(a);
  for (int64_t batch = 0; batch < a.batches(); batch += steps.batches) {
    for (int64_t head = 0; head < a.heads(); head += steps.heads) {
      const Part part{.batch = batch,
                      .batches = std::min(steps.batches, a.batches() - batch),
                      .head = head,
                      .heads = std::min(steps.heads, a.heads() - head),
                      .queries = a.queries(),
                      .keys = a.keys()};
      const bp_status status = body(part);
      if (status != BP_OK) return status;
    }
  }
  return BP_OK;
}

// Returns whether all scores of a head fit one part.
inline bool is_whole(const Attention& a) {
  return a.queries() * row_stride(a.keys()) <= kMostScores;
}

// Calls body(part) for the queries of `heads`, with the keys that they see.
template <typename Body>
bp_status for_queries(const Attention& a, const Part& heads, Body&& body) {
  const int64_t step =
      is_whole(a) ? std::max<int64_t>(1, a.queries()) : step_of(a.queries(), row_stride(a.keys()));
  Part part = heads;
  do {
    part.queries = std::min(step, a.queries() - part.query);
    if (a.has_band && !is_whole(a)) {  // The gradients of keys need the whole part.
      part.key = a.band.first_key(part.query) / 4 * 4;
      part.keys = std::max<int64_t>(a.band.key_limit(part.query + part.queries - 1) - part.key, 0);
    }
    const bp_status status = body(part);
    if (status != BP_OK) return status;
    part.query += step;
  } while (part.query < a.queries());
  return BP_OK;
}

// Calls body(part) for the keys of `heads`, with all queries.
template <typename Body>
bp_status for_keys(const Attention& a, const Part& heads, Body&& body) {
  const int64_t step = std::max<int64_t>(4, step_of(a.keys(), a.queries()) / 4 * 4);
  Part part = heads;
  for (; part.key < a.keys(); part.key += step) {
    part.keys = std::min(step, a.keys() - part.key);
    const bp_status status = body(part);
    if (status != BP_OK) return status;
  }
  return BP_OK;
}

// Returns the most scores that a part has in memory.
inline int64_t most_scores(const Attention& a) {
  const int64_t of_head = a.queries() * row_stride(a.keys());
  const Steps steps = steps_of(a);
  if (is_whole(a)) return std::max<int64_t>(4, steps.batches * steps.heads * of_head);
  const int64_t by_queries = step_of(a.queries(), row_stride(a.keys())) * row_stride(a.keys());
  const int64_t by_keys =
      std::max<int64_t>(4, step_of(a.keys(), a.queries()) / 4 * 4) * a.queries();
  return std::max(by_queries, by_keys);
}

}  // namespace bp::vulkan
