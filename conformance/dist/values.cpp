#include "conformance/dist/values.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "conformance/cases/fixtures/collective_values.hpp"
#include "conformance/numerics/bounds.hpp"
#include "conformance/numerics/dtype.hpp"
#include "registry/boundary/number_text.hpp"

namespace bp::conformance::dist {
namespace {

// The periods of the values of collective_values.hpp.
constexpr uint64_t kPlacedPeriod = 30;
constexpr uint64_t kNoisePeriod = 509;

// A small generator, of which all ranks draw equal numbers (splitmix64, Steele et al. 2014).
uint64_t mixed(uint64_t x) {
  x += 0x9E3779B97F4A7C15;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EB;
  return x ^ (x >> 31);
}

}  // namespace

Values::Values(const Check& check, uint32_t world_size, uint64_t seed)
    : check_(check), item_(element_size(check.claim.dtype)), given_(world_size) {
  if (check.data == Data::kNoise) {
    fill_noise(world_size, seed);
  } else {
    fill_exact(world_size);
  }
}

void Values::fill_exact(uint32_t world_size) {
  const Claim& claim = check_.claim;
  const bool reduces = is_reducing(claim.kind);
  const ValueOf value = [&](uint32_t rank, uint64_t i) {
    return reduces ? summand(claim.reduction, rank, i) : placed(rank, i);
  };
  period_ = reduces ? kSummandPeriod : kPlacedPeriod;
  const auto fill = [&](std::vector<std::byte>& table, const auto& element_of) {
    table.resize(period_ * item_);
    for (uint64_t i = 0; i < period_; ++i) {
      store_element(claim.dtype, DoubleDouble(element_of(i)), &table[i * item_]);
    }
  };
  for (uint32_t rank = 0; rank < world_size; ++rank) {
    fill(given_[rank], [&](uint64_t i) { return value(rank, i); });
  }
  if (reduces) {
    fill(reduced_, [&](uint64_t i) { return reduced(claim.reduction, world_size, i, value); });
  }
}

void Values::fill_noise(uint32_t world_size, uint64_t seed) {
  const Claim& claim = check_.claim;
  period_ = kNoisePeriod;
  const bool is_ordered =
      claim.reduction == BP_REDUCTION_MIN || claim.reduction == BP_REDUCTION_MAX;
  const ValueOf value = [&](uint32_t rank, uint64_t i) {
    const uint64_t bits = mixed(mixed(seed + rank) + i);
    uint8_t noise[8];
    std::memcpy(noise, &bits, sizeof(noise));
    return noisy_element(claim.dtype, noise);
  };
  for (std::vector<std::byte>& table : given_) table.resize(period_ * item_);
  reduced_.resize(period_ * item_);
  for (uint64_t i = 0; i < period_; ++i) {
    std::vector<double> column;
    for (uint32_t rank = 0; rank < world_size; ++rank) {
      column.push_back(value(rank, i));
      store_element(claim.dtype, DoubleDouble(column[rank]), &given_[rank][i * item_]);
    }
    if (is_ordered) {
      const double exact = reduced(claim.reduction, world_size, i, value);
      store_element(claim.dtype, DoubleDouble(exact), &reduced_[i * item_]);
      continue;
    }
    const ExactReduction exact = exactly_reduced(claim.reduction, column);
    const double bound = collective_bound(claim.dtype, world_size, exact.magnitude);
    store_element(claim.dtype, exact.result, &reduced_[i * item_]);
    const DoubleDouble low = exact.result - DoubleDouble(bound);
    const DoubleDouble high = exact.result + DoubleDouble(bound);
    allowed_.push_back({low.hi, high.hi});
  }
}

std::vector<std::byte> Values::sent(uint32_t rank, uint64_t count) const {
  std::vector<std::byte> bytes(count * item_);
  for (uint64_t i = 0; i < count; i += period_) {
    std::memcpy(&bytes[i * item_], given_[rank].data(), std::min(period_, count - i) * item_);
  }
  return bytes;
}

const std::byte* Values::element(uint32_t rank, uint64_t i) const {
  return &given_[rank][i % period_ * item_];
}

const std::byte* Values::reduced_element(uint64_t i) const {
  return &reduced_[i % period_ * item_];
}

std::string Values::difference(const std::byte* got, const std::byte* want, uint64_t i) const {
  const bp_dtype dtype = check_.claim.dtype;
  std::string text = "element " + std::to_string(i) + " is " +
                     short_text(load_element(dtype, got).hi, 17) + ", expected " +
                     short_text(load_element(dtype, want).hi, 17);
  const bool is_poison =
      std::all_of(got, got + item_, [](std::byte b) { return b == std::byte{0xA5}; });
  return is_poison ? text + ": it was not written" : text;
}

Values::Wrong Values::compare(const Shape& shape, const std::byte* received) const {
  Wrong wrong;
  const bool reduces = is_reducing(check_.claim.kind);
  for (const Piece& piece : shape.pieces) {
    for (uint64_t k = 0; k < piece.count; ++k) {
      const uint64_t source = piece.source_at + k;
      const std::byte* const got = received + (piece.at + k) * item_;
      const std::byte* const want = reduces ? reduced_element(source) : element(piece.from, source);
      if (std::memcmp(got, want, item_) == 0) continue;
      std::string beyond;
      if (!allowed_.empty()) {
        const Range& range = allowed_[source % period_];
        const double value = load_element(check_.claim.dtype, got).hi;
        if (value >= range.low && value <= range.high) continue;
        beyond = ", allowed are " + short_text(range.low, 17) + " to " + short_text(range.high, 17);
      }
      if (wrong.count++ == 0) wrong.first = difference(got, want, piece.at + k) + beyond;
    }
  }
  return wrong;
}

}  // namespace bp::conformance::dist
