// Plays the streams, events and semaphores of a recording, and maps its numbers to handles.
#include <algorithm>

#include "conformance/recordings/player.hpp"
#include "conformance/usage_error.hpp"

namespace bp::conformance {

namespace {

using nlohmann::json;

template <typename Handle>
Handle& find_alive(std::map<uint64_t, Handle>& handles, const char* noun, uint64_t number) {
  const auto found = handles.find(number);
  if (found != handles.end()) return found->second;
  throw UsageError(std::string(noun) + " " + std::to_string(number) +
                   " does not exist at this line, because no earlier line creates it, or one ends "
                   "it; the recording is damaged or not complete");
}

}  // namespace

// ---- Streams and events -------------------------------------------------------------------------

void Player::run_stream(const json& line, const std::string& call) {
  const auto number = line.at("stream").get<uint64_t>();
  if (call == "stream.create" || call == "stream.default_stream") {
    const auto where = line.at("device").get<uint64_t>();
    const bp_target& target = *device(where).target;
    Stream made{device(where).stream, where, true};
    // A program may ask for a default stream again, but not under the number of a created one.
    const auto known = streams_.find(number);
    const bool is_lent = known != streams_.end() && known->second.is_lent;
    if (call == "stream.create" || !is_lent) check_new(streams_, "stream", number);
    if (call == "stream.create") {
      const bp_stream_desc desc{.struct_size = sizeof(desc),
                                .struct_type = BP_STRUCT_STREAM_DESC,
                                .flags = line.at("flags").get<uint32_t>(),
                                .priority = line.value("priority", 0)};
      made.is_lent = false;
      check(target.streams->create(target.streams->self, target.device, &desc, &made.stream), call);
    }
    streams_[number] = made;
    return;
  }
  Stream& on = stream(number);
  const bp_stream_ops& streams = *device(on.device).target->streams;
  if (call == "stream.destroy") {
    check(streams.destroy(streams.self, on.stream), call);
    streams_.erase(number);
  } else if (call == "stream.synchronize" || call == "stream.query") {
    wait(number, "stream.synchronize");
  } else if (call == "stream.flush") {
    check(streams.flush(streams.self, on.stream), call);
  } else if (call == "stream.clear_failure") {
    check(streams.clear_failure(streams.self, on.stream), call);
  } else if (call == "stream.wait_event") {
    const auto waited = line.at("event").get<uint64_t>();
    const Event& for_event = event(waited);
    if (for_event.is_host_signaled && !for_event.is_signaled) held_.insert(waited);
    check(streams.wait_event(streams.self, on.stream, for_event.event), call);
  }
  // The player has no callback of the program, and a callback orders no other work of the stream.
}

void Player::run_event(const json& line, const std::string& call) {
  const auto number = line.at("event").get<uint64_t>();
  if (call == "event.create") {
    check_new(events_, "event", number);
    const auto where = line.at("device").get<uint64_t>();
    const bp_target& target = *device(where).target;
    const auto flags = line.at("flags").get<uint32_t>() & ~uint32_t{BP_EVENT_EXPORTABLE};
    const bp_event_desc desc{
        .struct_size = sizeof(desc), .struct_type = BP_STRUCT_EVENT_DESC, .flags = flags};
    Event made{nullptr, where, (flags & BP_EVENT_HOST_SIGNAL) != 0, false};
    check(target.events->create(target.events->self, target.device, &desc, &made.event), call);
    events_[number] = made;
    return;
  }
  Event& which = event(number);
  const bp_event_ops& events = *device(which.device).target->events;
  if (call == "event.destroy") {
    check(events.destroy(events.self, which.event), call);
    events_.erase(number);
  } else if (call == "event.record") {
    const Stream& on = stream(line.at("stream").get<uint64_t>());
    check(events.record(events.self, which.event, on.stream), call);
  } else if (call == "event.signal") {
    which.is_signaled = true;
    held_.erase(number);
    check(events.signal(events.self, which.event, line.at("signaled").get<bp_status>()), call);
  } else {
    check(events.synchronize(events.self, which.event, kPlayTimeoutNs), "event.synchronize");
  }
}

// ---- Semaphores ---------------------------------------------------------------------------------

void Player::create_semaphore(const json& line) {
  const auto number = line.at("semaphore").get<uint64_t>(),
             where = line.at("device").get<uint64_t>();
  check_new(semaphores_, "semaphore", number);
  const bp_target& target = *device(where).target;
  const bp_semaphore_desc desc{
      .struct_size = sizeof(desc),
      .struct_type = BP_STRUCT_SEMAPHORE_DESC,
      .initial_value = line.at("value").get<uint64_t>(),
      .flags = line.at("flags").get<uint32_t>() & ~uint32_t{BP_SEMAPHORE_EXPORTABLE}};
  Semaphore made{nullptr, where, desc.initial_value, 0};
  const bp_semaphore_ops& semaphores = *target.semaphores;
  check(semaphores.create(semaphores.self, target.device, &desc, &made.semaphore),
        "semaphore.create");
  semaphores_[number] = made;
}

void Player::run_semaphore(const json& line, const std::string& call) {
  if (call == "semaphore.create") return create_semaphore(line);
  const auto number = line.at("semaphore").get<uint64_t>();
  Semaphore& known = semaphore(number);
  bp_semaphore* const which = known.semaphore;
  const bp_semaphore_ops& semaphores = *device(known.device).target->semaphores;
  const auto value = line.value("value", uint64_t{0});
  if (call.ends_with("signal")) known.signalled = std::max(known.signalled, value);
  if (call.ends_with("wait")) known.waited = std::max(known.waited, value);
  if (call == "semaphore.destroy") {
    check(semaphores.destroy(semaphores.self, which), call);
    semaphores_.erase(number);
  } else if (call == "semaphore.signal") {
    check(semaphores.signal(semaphores.self, which, value), call);
  } else if (call == "semaphore.clear_failure") {
    check(semaphores.clear_failure(semaphores.self, which), call);
  } else if (call == "semaphore.submit_signal" || call == "semaphore.submit_wait") {
    const auto submit =
        call == "semaphore.submit_wait" ? semaphores.submit_wait : semaphores.submit_signal;
    const Stream& on = stream(line.at("stream").get<uint64_t>());
    check(submit(semaphores.self, on.stream, which, value), call);
  } else {
    check(semaphores.synchronize(semaphores.self, which, value, kPlayTimeoutNs),
          "semaphore.synchronize");
  }
}

bool Player::is_held() const {
  return !held_.empty() || std::ranges::any_of(semaphores_, [](const auto& each) {
    return each.second.waited > each.second.signalled;
  });
}

// ---- Handles ------------------------------------------------------------------------------------

Player::Device& Player::device(uint64_t number) { return devices_.at(number); }

Player::Buffer& Player::buffer(uint64_t number) { return find_alive(buffers_, "buffer", number); }

Player::Stream& Player::stream(uint64_t number) { return find_alive(streams_, "stream", number); }

Player::Event& Player::event(uint64_t number) { return find_alive(events_, "event", number); }

Player::Semaphore& Player::semaphore(uint64_t number) {
  return find_alive(semaphores_, "semaphore", number);
}

bp_buffer_ref Player::range(const json& range) {
  const auto number = range.at(0).get<uint64_t>();
  const auto offset = range.at(1).get<uint64_t>(), size = range.at(2).get<uint64_t>();
  const Buffer& in = buffer(number);
  if (offset > in.size_bytes || size > in.size_bytes - offset) {
    throw UsageError("bytes " + std::to_string(offset) + " to " + std::to_string(offset + size) +
                     " leave buffer " + std::to_string(number) + " of " +
                     std::to_string(in.size_bytes));
  }
  return {in.buffer, offset, size};
}

void Player::use(uint64_t buffer_number, uint64_t stream_number) {
  if (buffer_number != 0) buffer(buffer_number).streams.insert(stream_number);
}

void Player::note_written(const json& range) {
  const auto begin = range.at(1).get<uint64_t>();
  buffer(range.at(0).get<uint64_t>()).written.insert(begin, begin + range.at(2).get<uint64_t>());
}

// Returns the written bytes of a range, counted from its beginning.
ByteSet Player::written_of(const json& range) {
  const auto offset = range.at(1).get<uint64_t>(), size = range.at(2).get<uint64_t>();
  ByteSet written;
  for (const auto& [begin, end] :
       buffer(range.at(0).get<uint64_t>()).written.within(offset, offset + size)) {
    written.insert(begin - offset, end - offset);
  }
  return written;
}

void Player::wait(uint64_t number, const char* what) {
  const Stream& on = stream(number);
  const bp_stream_ops& streams = *device(on.device).target->streams;
  check(streams.synchronize(streams.self, on.stream, kPlayTimeoutNs), what);
}

// A stream that was destroyed has ended its work, or ends it in the order of later calls.
void Player::wait_for_uses(Buffer& used) {
  for (const uint64_t each : used.streams) {
    if (streams_.count(each) != 0) wait(each, "stream.synchronize");
  }
  used.streams.clear();
}

void Player::check(bp_status status, const std::string& what) const {
  if (status == BP_OK) return;
  const std::string text = bp_error_text();
  bp_error_clear();
  throw Broken{Outcome::kFail,
               {what + " failed: " + bp_status_name(status) + (text.empty() ? "" : ": " + text),
                "call", ""}};
}

}  // namespace bp::conformance
