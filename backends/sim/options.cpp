#include "backends/sim/options.hpp"

#include <bit>
#include <charconv>

#include "backplane/shell/options.hpp"
#include "backplane/shell/resolved.hpp"

namespace bp::sim {
namespace {

constexpr uint32_t kMaxDevices = 16;
constexpr uint64_t kMaxDelayUs = 1'000'000;
constexpr uint64_t kMaxOffsetAlignmentBytes = 4096;

double probability(std::string_view key, std::string_view value) {
  double parsed = 0;
  const char* const end = value.data() + value.size();
  const auto [last, error] = std::from_chars(value.data(), end, parsed);
  if (error != std::errc() || last != end || !(parsed >= 0 && parsed <= 1)) {
    refuse_option(key, value, "a number from 0 to 1");
  }
  return parsed;
}

HeapMode heap_mode(std::string_view key, std::string_view value) {
  if (value == "coherent") return HeapMode::kCoherent;
  if (value == "noncoherent") return HeapMode::kNoncoherent;
  if (value == "integrated") return HeapMode::kIntegrated;
  refuse_option(key, value, "coherent, noncoherent or integrated");
}

uint64_t alignment(std::string_view key, std::string_view value) {
  const uint64_t parsed = read_number(key, value, 1, kMaxOffsetAlignmentBytes);
  if (!std::has_single_bit(parsed)) refuse_option(key, value, "a power of two from 1 to 4096");
  return parsed;
}

LayoutMode layout_mode(std::string_view key, std::string_view value) {
  if (value == "tiled") return LayoutMode::kTiled;
  if (value == "only") return LayoutMode::kOnly;
  if (value == "no") return LayoutMode::kNone;
  refuse_option(key, value, "tiled, only or no");
}

bool is_shared(std::string_view key, std::string_view value) {
  if (value == "shared") return true;
  if (value == "separate") return false;
  refuse_option(key, value, "separate or shared");
}

using Set = void(Options& options, std::string_view key, std::string_view value);

struct Row {
  const char* key;
  Set* set;
};

constexpr Row kRows[] = {
    {"device_count",
     [](Options& o, std::string_view k, std::string_view v) {
       o.device_count = static_cast<uint32_t>(read_number(k, v, 0, kMaxDevices));
     }},
    {"capacity_bytes",
     [](Options& o, std::string_view k, std::string_view v) {
       o.capacity_bytes = read_number(k, v, 1, uint64_t{1} << 46);
     }},
    {"offset_alignment_bytes",
     [](Options& o, std::string_view k, std::string_view v) {
       o.offset_alignment_bytes = alignment(k, v);
     }},
    {"heaps",
     [](Options& o, std::string_view k, std::string_view v) { o.heaps = heap_mode(k, v); }},
    {"protect", [](Options& o, std::string_view k,
                   std::string_view v) { o.is_protected = read_yes_or_no(k, v); }},
    {"addresses", [](Options& o, std::string_view k,
                     std::string_view v) { o.has_addresses = read_yes_or_no(k, v); }},
    {"kernels", [](Options& o, std::string_view k,
                   std::string_view v) { o.has_kernels = read_yes_or_no(k, v); }},
    {"virtual_memory", [](Options& o, std::string_view k,
                          std::string_view v) { o.has_virtual_memory = read_yes_or_no(k, v); }},
    {"host_registration", [](Options& o, std::string_view k,
                             std::string_view v) { o.has_registration = read_yes_or_no(k, v); }},
    {"sharing", [](Options& o, std::string_view k,
                   std::string_view v) { o.has_sharing = read_yes_or_no(k, v); }},
    {"native_streams", [](Options& o, std::string_view k,
                          std::string_view v) { o.has_native_streams = read_yes_or_no(k, v); }},
    {"layouts",
     [](Options& o, std::string_view k, std::string_view v) { o.layouts = layout_mode(k, v); }},
    {"ops", [](Options& o, std::string_view k,
               std::string_view v) { o.has_own_ops = read_yes_or_no(k, v); }},
    {"peer", [](Options& o, std::string_view k,
                std::string_view v) { o.has_peers = read_yes_or_no(k, v); }},
    {"whole_buffers", [](Options& o, std::string_view k,
                         std::string_view v) { o.has_whole_buffers = read_yes_or_no(k, v); }},
    {"network", [](Options& o, std::string_view, std::string_view v) { o.network = v; }},
    {"queues", [](Options& o, std::string_view k,
                  std::string_view v) { o.has_shared_queue = is_shared(k, v); }},
};

constexpr const char* kDelayKeys[] = {"delay_us", "delay_probability", "seed"};

}  // namespace

bool set_delay_option(DelayOptions& delays, std::string_view key, std::string_view value) {
  if (key == "delay_us") {
    delays.bound_us = read_number(key, value, 0, kMaxDelayUs);
  } else if (key == "delay_probability") {
    delays.probability = probability(key, value);
  } else if (key == "seed") {
    delays.seed = read_number(key, value, 0, UINT64_MAX);
  } else {
    return false;
  }
  return true;
}

CompilerLimits read_limits(const bp_host& host) {
  CompilerLimits limits;
  if (const auto value = find_option(host, "shapes")) {
    if (*value != "ranged" && *value != "fixed") refuse_option("shapes", *value, "ranged or fixed");
    if (*value == "fixed") {
      limits.refusal_of_ranges = "the device has fixed shapes; compile the program for each shape";
    }
  }
  constexpr uint64_t kMostBytes = uint64_t{1} << 46;
  if (const auto value = find_option(host, "chip_memory_bytes")) {
    limits.chip_memory_bytes = read_number("chip_memory_bytes", *value, 0, kMostBytes);
  }
  return limits;
}

Options read_options(const bp_host& host) {
  Options options;
  for (const Row& row : kRows) {
    if (const auto value = find_option(host, row.key)) row.set(options, row.key, *value);
  }
  for (const char* key : kDelayKeys) {
    if (const auto value = find_option(host, key)) set_delay_option(options.delays, key, *value);
  }
  return options;
}

}  // namespace bp::sim
