#include "registry/services/memory_snapshot.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <nlohmann/json.hpp>

namespace bp::services {
namespace {

using Json = nlohmann::ordered_json;

// Handles are shown as numbers, because a reader only compares them.
std::string hex(const void* handle) {
  std::array<char, 16> digits;
  const auto number = reinterpret_cast<uintptr_t>(handle);
  const auto end = std::to_chars(digits.data(), digits.data() + digits.size(), number, 16).ptr;
  return "0x" + std::string(digits.data(), end);
}

Json statistics_json(const bp_cache_statistics& s) {
  return {{"allocated_bytes", s.allocated_bytes},
          {"allocated_peak_bytes", s.allocated_peak_bytes},
          {"reserved_bytes", s.reserved_bytes},
          {"reserved_peak_bytes", s.reserved_peak_bytes},
          {"requested_bytes", s.requested_bytes},
          {"allocation_count", s.allocation_count},
          {"free_count", s.free_count},
          {"backend_allocation_count", s.backend_allocation_count},
          {"backend_free_count", s.backend_free_count},
          {"retry_count", s.retry_count},
          {"out_of_memory_count", s.out_of_memory_count}};
}

Json block_json(const Block& block, const std::vector<const Block*>& waiting) {
  const bool is_waiting = std::ranges::count(waiting, &block) != 0;
  const char* state = is_waiting ? "waiting" : block.is_live ? "used" : "free";
  Json json{
      {"byte_offset", block.face.ref.byte_offset},
      {"size_bytes", block.segment->is_wrapped ? block.face.ref.size_bytes : block.size_bytes},
      {"state", state}};
  if (block.is_live || is_waiting) json["requested_bytes"] = block.face.ref.size_bytes;
  return json;
}

Json segment_json(const Segment& segment, const std::vector<const Block*>& waiting) {
  const bp_stream* stream = segment.pool == nullptr ? nullptr : segment.pool->stream;
  Json json{{"buffer", hex(segment.buffer)},
            {"size_bytes", segment.size_bytes},
            {"is_wrapped", segment.is_wrapped},
            {"stream", stream == nullptr ? Json(nullptr) : Json(hex(stream))}};
  Json& blocks = json["blocks"] = Json::array();
  for (const Block* block = segment.first; block != nullptr; block = block->next) {
    blocks.push_back(block_json(*block, waiting));
  }
  return json;
}

Json cache_json(const CacheSet::Shown& shown) {
  const Source& source = shown.cache->source();
  Json json{{"heap", source.heap_index},
            {"usage", source.usage},
            {"alignment_bytes", source.alignment_bytes},
            {"pool", shown.pool == nullptr ? Json(nullptr) : Json(shown.pool)},
            {"statistics", statistics_json(shown.cache->statistics())}};
  Json& segments = json["segments"] = Json::array();
  shown.cache->look_at_segments([&](const Segment& segment, const auto& waiting) {
    segments.push_back(segment_json(segment, waiting));
  });
  return json;
}

Json event_json(const MemoryEvent& event) {
  static constexpr std::array<const char*, 5> kNames = {"allocate", "free", "add_segment",
                                                        "free_segment", "out_of_memory"};
  return {{"event", kNames[event.kind]},
          {"time_ns", event.time_ns},
          {"buffer", hex(event.buffer)},
          {"byte_offset", event.byte_offset},
          {"size_bytes", event.size_bytes}};
}

}  // namespace

std::string snapshot(const bp_target& target, const CacheSet& caches,
                     const MemoryHistory& history) {
  Json json{{"target", target.name}, {"caches", Json::array()}, {"history", Json::array()}};
  caches.look_at_all([&](const std::vector<CacheSet::Shown>& all) {
    for (const CacheSet::Shown& shown : all) json["caches"].push_back(cache_json(shown));
  });
  for (const MemoryEvent& event : history.events()) json["history"].push_back(event_json(event));
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace bp::services
