#include "conformance/recordings/player.hpp"

#include <algorithm>
#include <cstring>

#include "conformance/numerics/fills.hpp"
#include "conformance/usage_error.hpp"

namespace bp::conformance {
namespace {

using nlohmann::json;

std::vector<std::byte> bytes_of_hex(const std::string& text) {
  std::vector<std::byte> bytes;
  for (size_t i = 0; i + 1 < text.size(); i += 2) {
    bytes.push_back(static_cast<std::byte>(std::stoul(text.substr(i, 2), nullptr, 16)));
  }
  return bytes;
}

std::string hex_of(const std::byte* bytes, size_t size) {
  constexpr char kDigits[] = "0123456789abcdef";
  std::string text;
  for (size_t i = 0; i < size; ++i) {
    const auto byte = std::to_integer<unsigned>(bytes[i]);
    text += {kDigits[byte >> 4], kDigits[byte & 15]};
  }
  return text;
}

}  // namespace

Player::Player(const Recording& recording, const bp_target& target) : recording_(recording) {
  uint64_t at = 0;
  const uint64_t count = bp_registry_target_count(target.registry);
  while (at < count && bp_registry_target(target.registry, at) != &target) ++at;
  for (const uint64_t number : recording.devices()) {
    const bp_target* next = at < count ? bp_registry_target(target.registry, at++) : nullptr;
    if (next == nullptr || next->plugin != target.plugin) {
      throw std::runtime_error("the recording uses " + std::to_string(recording.devices().size()) +
                               " devices, and " + target.plugin->name + " has fewer from " +
                               target.name + " on");
    }
    devices_[number] = {next, next->default_stream};
  }
}

// The destructor waits for work that still runs, because it may write to host memory of the player.
Player::~Player() {
  for (auto& [number, each] : events_) {
    const bp_event_ops& events = *device(each.device).target->events;
    if (each.is_host_signaled && !each.is_signaled) {
      static_cast<void>(events.signal(events.self, each.event, BP_ABORTED));
    }
  }
  for (auto& [number, each] : semaphores_) {
    const bp_semaphore_ops& semaphores = *device(each.device).target->semaphores;
    static_cast<void>(semaphores.signal(semaphores.self, each.semaphore, UINT64_MAX));
  }
  for (auto& [number, each] : devices_) {
    const bp_device_ops& devices = *each.target->devices;
    static_cast<void>(devices.synchronize(devices.self, each.target->device, kPlayTimeoutNs));
  }
  for (auto& [number, each] : events_) {
    const bp_event_ops& events = *device(each.device).target->events;
    static_cast<void>(events.destroy(events.self, each.event));
  }
  for (auto& [number, each] : semaphores_) {
    const bp_semaphore_ops& semaphores = *device(each.device).target->semaphores;
    static_cast<void>(semaphores.destroy(semaphores.self, each.semaphore));
  }
  for (auto& [number, each] : streams_) {
    if (each.is_lent) continue;
    const bp_stream_ops& streams = *device(each.device).target->streams;
    static_cast<void>(streams.destroy(streams.self, each.stream));
  }
  for (auto& [number, each] : buffers_) {
    const bp_allocator_ops& memory = *device(each.device).target->allocator;
    static_cast<void>(memory.deallocate(memory.self, each.buffer, nullptr));
  }
}

const LineResult& Player::result_of(size_t index) {
  while (results_.size() <= index) {
    try {
      results_.push_back(run_line(results_.size()));
    } catch (const Broken& broken) {
      end_at(broken);
    }
  }
  return results_[index];
}

// Ends the recording at a line that failed. If this line is not a case, the next line that is a
// case reports the failure.
void Player::end_at(const Broken& broken) {
  const std::vector<json>& lines = recording_.lines();
  size_t line = results_.size();
  while (line + 1 < lines.size() && !recording_.is_judged(line)) ++line;
  const LineResult skipped{
      Outcome::kSkip, {"not reached: " + broken.finding.message, "", ""}, "", ""};
  results_.resize(lines.size(), skipped);
  results_[line] = {broken.outcome, broken.finding, "", ""};
}

LineResult Player::run_line(size_t index) try {
  const json& line = recording_.lines()[index];
  const std::string call = line.at("call").get<std::string>();
  if (line.contains("status") || call == "unrecorded" || call == "end") return {};
  if (call == "op.describe") return {};  // The recording has described it.
  const bool is_unused =
      line.contains("device") && !devices_.contains(line.at("device").get<uint64_t>());
  if (is_unused) return {};
  if (call == "kernel.launch") return launch(index);
  if (call == "memory.copy_to_host") return copy_out(index);
  if (call == "host.read") return read_late(index);
  if (call.starts_with("memory.") || call == "host.write") {
    run_memory(index, call);
  } else if (call.starts_with("stream.")) {
    run_stream(line, call);
  } else if (call.starts_with("event.")) {
    run_event(line, call);
  } else if (call.starts_with("semaphore.")) {
    run_semaphore(line, call);
  } else {
    const Device& where = device(line.at("device").get<uint64_t>());
    const bp_device_ops& devices = *where.target->devices;
    check(devices.synchronize(devices.self, where.target->device, kPlayTimeoutNs), call);
  }
  return {};
} catch (const Broken& broken) {
  Finding finding = broken.finding;
  finding.message = recording_.place(index) + ": " + finding.message;
  throw Broken{broken.outcome, finding};
} catch (const UsageError& e) {
  throw Broken{Outcome::kFail, {recording_.place(index) + ": " + e.what(), "recording", ""}};
} catch (const json::exception& e) {
  throw Broken{Outcome::kFail, {recording_.place(index) + ": " + e.what(), "recording", ""}};
}

// ---- Memory -------------------------------------------------------------------------------------

void Player::run_memory(size_t index, const std::string& call) {
  const json& line = recording_.lines()[index];
  if (call == "memory.allocate" || call == "memory.register_host") return allocate(line);
  if (call == "memory.deallocate" || call == "memory.unregister_host") return free(line);
  if (call == "memory.copy_from_host" || call == "host.write") return copy_in(index);
  if (call == "memory.fill") return fill(line);
  copy_within(line, call == "memory.copy_peer");
}

// Allocates from the first heap: the player maps no memory, so the program's heap does not matter.
void Player::allocate(const json& line) {
  const auto where = line.at("device").get<uint64_t>();
  const auto number = line.at("buffer").get<uint64_t>();
  check_new(buffers_, "buffer", number);
  const bp_target& target = *device(where).target;
  const bp_allocate_desc desc{.struct_size = sizeof(desc),
                              .struct_type = BP_STRUCT_ALLOCATE_DESC,
                              .size_bytes = line.at("size_bytes").get<uint64_t>(),
                              .alignment_bytes = line.value("alignment_bytes", uint64_t{0}),
                              .usage = line.value("usage", uint32_t{0}) & uint32_t{BP_MEMORY_PEER}};
  bp_buffer* made = nullptr;
  check(target.allocator->allocate(target.allocator->self, target.device, &desc, &made),
        "memory.allocate of " + std::to_string(desc.size_bytes) + " bytes");
  buffers_[number] = {made, where, desc.size_bytes, {}, {}};
}

void Player::free(const json& line) {
  const auto number = line.at("buffer").get<uint64_t>();
  Buffer& ending = buffer(number);
  const bp_allocator_ops& memory = *device(ending.device).target->allocator;
  bp_stream* behind = nullptr;
  if (line.contains("stream")) {
    behind = stream(line.at("stream").get<uint64_t>()).stream;
  } else {
    wait_for_uses(ending);
  }
  check(memory.deallocate(memory.self, ending.buffer, behind), "memory.deallocate");
  buffers_.erase(number);
}

// Copies what a program wrote through a mapping, after all work on that memory.
void Player::copy_in(size_t index) {
  const json& line = recording_.lines()[index];
  const bp_buffer_ref dst = range(line.at("dst"));
  const std::vector<std::byte> bytes = input_bytes(index);
  const auto number = line.at("dst").at(0).get<uint64_t>();
  Buffer& into = buffer(number);
  const Device& where = device(into.device);
  const bool has_stream = line.contains("stream");
  if (!has_stream) wait_for_uses(into);
  bp_stream* on = has_stream ? stream(line.at("stream").get<uint64_t>()).stream : where.stream;
  if (bytes.size() != dst.size_bytes) {
    throw UsageError("the payload has " + std::to_string(bytes.size()) + " bytes, and the copy " +
                     std::to_string(dst.size_bytes));
  }
  const bp_allocator_ops& memory = *where.target->allocator;
  check(memory.copy_from_host(memory.self, on, &dst, bytes.data(), BP_BORROW_DURING_CALL),
        "memory.copy_from_host");
  note_written(line.at("dst"));
  if (has_stream) return use(number, line.at("stream").get<uint64_t>());
  const bp_stream_ops& streams = *where.target->streams;
  check(streams.synchronize(streams.self, on, kPlayTimeoutNs), "stream.synchronize");
}

// Returns the recorded bytes, or seeded elements.
std::vector<std::byte> Player::input_bytes(size_t index) {
  const json& line = recording_.lines()[index];
  const bp_dtype dtype = recording_.seeded_dtype(index);
  if (dtype == 0) return recording_.payload(line);
  std::vector<std::byte> bytes(line.at("dst").at(2).get<uint64_t>());
  const uint64_t size = element_size(dtype), count = bytes.size() / size;
  for (uint64_t i = 0; i < count; ++i) {
    const DoubleDouble value = fill_element({FillKind::kUniform, -1, 1}, dtype,
                                            recording_.source().seed, static_cast<uint32_t>(index),
                                            {.index = i, .extent = static_cast<int64_t>(count)});
    store_element(dtype, value, bytes.data() + i * size);
  }
  return bytes;
}

void Player::copy_within(const json& line, bool is_peer) {
  const bp_buffer_ref dst = range(line.at("dst")), src = range(line.at("src"));
  const auto on = line.at("stream").get<uint64_t>();
  const bp_allocator_ops& memory = *device(stream(on).device).target->allocator;
  check(is_peer ? memory.copy_peer(memory.self, stream(on).stream, &dst, &src)
                : memory.copy(memory.self, stream(on).stream, &dst, &src),
        line.at("call").get<std::string>());
  // Bytes that nobody has written are copied as unwritten.
  ByteSet& written = buffer(line.at("dst").at(0).get<uint64_t>()).written;
  const ByteSet source = written_of(line.at("src"));
  written.erase(dst.byte_offset, dst.byte_offset + dst.size_bytes);
  for (const auto& [begin, end] : source.within(0, src.size_bytes)) {
    written.insert(dst.byte_offset + begin, dst.byte_offset + end);
  }
  for (const char* side : {"dst", "src"}) use(line.at(side).at(0).get<uint64_t>(), on);
}

void Player::fill(const json& line) {
  const bp_buffer_ref dst = range(line.at("dst"));
  const auto on = line.at("stream").get<uint64_t>();
  const std::vector<std::byte> pattern = bytes_of_hex(line.at("pattern").get<std::string>());
  const bp_allocator_ops& memory = *device(stream(on).device).target->allocator;
  check(memory.fill(memory.self, stream(on).stream, &dst, pattern.data(), pattern.size()),
        "memory.fill");
  note_written(line.at("dst"));
  use(line.at("dst").at(0).get<uint64_t>(), on);
}

// ---- Reads --------------------------------------------------------------------------------------

// A copy whose bytes stand later in the recording must not block: it may wait for calls that
// follow.
LineResult Player::copy_out(size_t index) {
  const json& line = recording_.lines()[index];
  const bp_buffer_ref src = range(line.at("src"));
  const auto on = line.at("stream").get<uint64_t>();
  const bp_allocator_ops& memory = *device(stream(on).device).target->allocator;
  const bool is_there = line.contains("payload");
  const auto number = line.at("read").get<uint64_t>();
  check_new(reads_, "read", number);
  PendingRead& pending = reads_[number];
  pending = {index, on, std::vector<std::byte>(src.size_bytes), written_of(line.at("src"))};
  use(line.at("src").at(0).get<uint64_t>(), on);
  check(
      memory.copy_to_host(memory.self, stream(on).stream, pending.bytes.data(), &src,
                          is_there ? BP_BORROW_DURING_CALL : BP_BORROW_UNTIL_COMPLETE, UINT64_MAX),
      "memory.copy_to_host");
  if (!is_there) return {};
  const PendingRead ended = std::move(pending);
  reads_.erase(number);
  return compare_read(index, ended.bytes, ended.written);
}

LineResult Player::read_late(size_t index) {
  const json& line = recording_.lines()[index];
  if (!line.contains("src")) {
    const auto number = line.at("read").get<uint64_t>();
    const auto pending = reads_.find(number);
    if (pending == reads_.end()) {
      throw UsageError("the line ends read " + std::to_string(number) +
                       ", which no earlier line begins; the recording is damaged");
    }
    wait(pending->second.stream, "stream.synchronize");
    const PendingRead ended = std::move(pending->second);
    reads_.erase(pending);
    return compare_read(index, ended.bytes, ended.written);
  }
  const bp_buffer_ref src = range(line.at("src"));
  Buffer& from = buffer(line.at("src").at(0).get<uint64_t>());
  wait_for_uses(from);
  const Device& where = device(from.device);
  std::vector<std::byte> bytes(src.size_bytes);
  const bp_allocator_ops& memory = *where.target->allocator;
  check(memory.copy_to_host(memory.self, where.stream, bytes.data(), &src, BP_BORROW_DURING_CALL,
                            UINT64_MAX),
        "memory.copy_to_host");
  return compare_read(index, bytes, written_of(line.at("src")));
}

LineResult Player::compare_read(size_t index, const std::vector<std::byte>& seen,
                                const ByteSet& written) {
  const json& line = recording_.lines()[index];
  if (recording_.source().seeds_weights) {
    return {Outcome::kSkip, {"not compared: the data are drawn from the seed", "", ""}, "", ""};
  }
  const std::vector<std::byte> recorded = recording_.payload(line);
  if (seen.size() != recorded.size()) {
    throw UsageError("the payload has " + std::to_string(recorded.size()) +
                     " bytes, and the copy " + std::to_string(seen.size()));
  }
  uint64_t count = 0, compared = 0;
  size_t first = seen.size();
  for (const auto& [begin, end] : written.within(0, seen.size())) {
    compared += end - begin;
    for (size_t i = begin; i < end; ++i) {
      if (seen[i] == recorded[i]) continue;
      ++count;
      first = std::min(first, i);
    }
  }
  if (count == 0) return {.checked = "equal"};
  const std::string reason = reason_of_difference();
  if (reason.empty()) return {.checked = "within the bounds of its launches"};
  const size_t shown = std::min<size_t>(8, seen.size() - first);
  return {Outcome::kFail,
          {"read " + std::to_string(line.at("read").get<uint64_t>()) +
               " differs: " + std::to_string(count) + " of " + std::to_string(compared) +
               " bytes that were written, from byte " + std::to_string(first) +
               " on: " + hex_of(seen.data() + first, shown) + " here, " +
               hex_of(recorded.data() + first, shown) + " recorded; " + reason,
           "different", ""},
          "",
          ""};
}

// Returns "" if the launches before explain the difference within their bounds.
std::string Player::reason_of_difference() const {
  if (parted_.wrong) return "the first launch that is wrong is " + *parted_.wrong;
  if (parted_.parted && parted_.unjudged) {
    return "the first launch that parts from the recording is " + *parted_.parted;
  }
  if (parted_.unjudged) {
    return *parted_.unjudged +
           " is the first launch that neither an oracle nor the recording judges: "
           "record.outputs=1 records what each launch gives";
  }
  return parted_.has_rounding ? "" : "every launch before gave the recorded bits";
}

}  // namespace bp::conformance
