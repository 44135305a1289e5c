#include "registry/layers/fault_rules.hpp"

#include <charconv>

#include "registry/boundary/fail.hpp"
#include "registry/layers/options.hpp"
#include "registry/layers/slots.hpp"

namespace bp::layers {
namespace {

// Reads the whole of `text`. Returns 0 if it is no number.
uint64_t number(std::string_view text) {
  uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size() ? value : 0;
}

// Returns whether calls can fit. Names of kernels are known when kernels are registered, names of
// slots now.
bool can_fit(const std::string& glob) {
  if (glob.find('/') != std::string::npos) return true;
  for (uint32_t i = 0; i < kSlotCount; ++i) {
    if (fits_glob(slot_name(static_cast<Slot>(i)), glob)) return true;
  }
  return false;
}

}  // namespace

uint64_t mix(uint64_t seed, uint64_t index) {
  uint64_t z = seed + 0x9E3779B97F4A7C15 * (index + 1);
  z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9;
  z = (z ^ z >> 27) * 0x94D049BB133111EB;
  return z ^ z >> 31;
}

bool FaultRules::read_when(std::string_view text, Rule& rule) {
  if (text.starts_with("1/")) return (rule.odds = number(text.substr(2))) != 0;
  rule.goes_on = text.ends_with('+');
  if (rule.goes_on) text.remove_suffix(1);
  return (rule.first = number(text)) != 0;
}

bp_status FaultRules::read(std::string_view key, const std::string& text, uint64_t seed) {
  Options one;
  one.set("rules", text);
  for (const std::string& part : one.list("rules")) {
    const size_t at = part.rfind('@');
    Rule& rule = rules_.emplace_back();
    rule.seed = mix(seed, rules_.size());
    rule.glob = part.substr(0, at);
    if (at == part.npos || at == 0 || !read_when(std::string_view(part).substr(at + 1), rule)) {
      return fail(BP_INVALID_ARGUMENT,
                  "layer option fault." + std::string(key) + ": '" + part +
                      "' is not GLOB@WHEN, where WHEN is 3, 3+ or 1/50, as in memory.allocate@3");
    }
    if (!can_fit(rule.glob)) {
      return fail(BP_INVALID_ARGUMENT,
                  "layer option fault." + std::string(key) + ": '" + rule.glob +
                      "' matches no slot; give the name of one, such as memory.allocate");
    }
  }
  return BP_OK;
}

uint64_t FaultRules::strike(std::string_view slot, std::string_view kernel) {
  uint64_t struck = 0;
  for (Rule& rule : rules_) {
    const bool fits =
        fits_glob(slot, rule.glob) ||
        (!kernel.empty() && fits_glob(std::string(slot) + "/" + std::string(kernel), rule.glob));
    if (!fits) continue;
    const uint64_t call = rule.count.fetch_add(1, std::memory_order_relaxed) + 1;
    const bool strikes = rule.odds != 0 ? mix(rule.seed, call) % rule.odds == 0
                         : rule.goes_on ? call >= rule.first
                                        : call == rule.first;
    if (strikes && struck == 0) struck = call;
  }
  return struck;
}

std::vector<std::string> FaultRules::idle() const {
  std::vector<std::string> globs;
  for (const Rule& rule : rules_) {
    if (rule.count.load(std::memory_order_relaxed) == 0) globs.push_back(rule.glob);
  }
  return globs;
}

}  // namespace bp::layers
