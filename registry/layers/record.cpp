#include "registry/layers/record.hpp"

#include <unistd.h>

#include <algorithm>
#include <chrono>

#include "backplane/host.h"
#include "registry/boundary/deadline.hpp"
#include "registry/boundary/fail.hpp"
#include "registry/boundary/served_abi.hpp"
#include "registry/layers/list.hpp"
#include "registry/layers/words.hpp"

namespace bp::layers {
namespace {

constexpr const char* kDefaultFolder = "backplane_record.%b.%p";
constexpr uint64_t kEndTimeoutNs = 10'000'000'000;  // For copies that nobody has waited for.

// The calls that are not written, because a replay does not need them.
constexpr Slot kSilent[] = {
    Slot::device_probe,
    Slot::device_enumerate,
    Slot::device_properties,
    Slot::device_memory_info,
    Slot::device_generation,
    Slot::memory_address,
    Slot::memory_buffer_info,
    Slot::memory_peer_info,
    Slot::memory_address_info,
    Slot::stream_status,
    Slot::stream_is_capturing,
    Slot::event_elapsed_ns,
    Slot::event_on_complete,
    Slot::guard_exchange,
    Slot::guard_is_initialized,
    Slot::virtual_memory_granularity,
    Slot::layout_preferred,
    Slot::layout_from_blob,
    Slot::layout_from_desc,
    Slot::layout_equal,
    Slot::layout_retain,
    Slot::layout_release,
    Slot::graph_capture_info,
    Slot::graph_dump,
    Slot::compiler_formats,
    Slot::compiler_query,
    Slot::compiler_fingerprint,
    Slot::compiler_compile,
    Slot::compiler_executable_kernel,
    Slot::compiler_executable_info,
    Slot::compiler_serialize,
    Slot::compiler_deserialize,
    Slot::compiler_validate,
    Slot::compiler_release,
    Slot::collective_supports,
    Slot::collective_status,
    Slot::profiler_start,
    Slot::profiler_stop,
    Slot::profiler_flush,
    Slot::profiler_push_correlation,
    Slot::profiler_pop_correlation,
    Slot::profiler_calibrate,
};

}  // namespace

bp_status RecordLayer::check() { return options().number("record", "outputs", 1, wants_outputs_); }

// Adds a number to the default name if the program has loaded the backend more than once.
std::string RecordLayer::folder_name() const {
  if (options().has("dir")) return with_names(options().text("dir"), backend_name());
  const std::string name = with_names(kDefaultFolder, backend_name());
  std::string folder = name;
  for (int n = 2; access(folder.c_str(), F_OK) == 0; ++n) folder = name + "." + std::to_string(n);
  return folder;
}

bp_status RecordLayer::begin(const bp_backend& next) {
  backend_version_ = next.version == nullptr ? "" : next.version;
  const bp_status status = recording_.open(folder_name());
  if (status == BP_OK) at_exit_.emplace([this] { write_end(); });
  return status;
}

// Runs once: with the instance, or when the process exits.
void RecordLayer::write_end() {
  const std::lock_guard lock(mutex_);
  if (is_ended_) return;
  is_ended_ = true;
  append({{"call", "end"}, {"launches", launch_count_}, {"unrecorded", unrecorded_count_.load()}});
}

void RecordLayer::on_table(AnyTable table) {
  directory_.add(table);
  if (auto* const* devices = std::get_if<Wrapped<bp_device_ops>*>(&table)) {
    devices_ = &(*devices)->next;
  }
  std::visit(
      [this](auto* wrapped) {
        surround_all<RecordLayer>(*wrapped);
        const auto surrounded = wrapped->table;
        record_slots(wrapped->table);
        note_unrecorded(surrounded, wrapped->table);
      },
      table);
}

void RecordLayer::record_slots(bp_device_ops& t) {
  replace<&RecordLayer::synchronize_device>(t.synchronize);
  replace<&RecordLayer::reset_device>(t.reset);
}

void RecordLayer::record_slots(bp_allocator_ops& t) {
  replace<&RecordLayer::allocate>(t.allocate);
  replace<&RecordLayer::deallocate>(t.deallocate);
  replace<&RecordLayer::map>(t.map);
  replace<&RecordLayer::unmap>(t.unmap);
  replace<&RecordLayer::flush>(t.flush);
  replace<&RecordLayer::invalidate>(t.invalidate);
  replace<&RecordLayer::copy>(t.copy);
  replace<&RecordLayer::copy_peer>(t.copy_peer);
  replace<&RecordLayer::copy_from_host>(t.copy_from_host);
  replace<&RecordLayer::copy_to_host>(t.copy_to_host);
  replace<&RecordLayer::fill>(t.fill);
  replace<&RecordLayer::register_host>(t.register_host);
  replace<&RecordLayer::unregister_host>(t.unregister_host);
}

void RecordLayer::record_slots(bp_stream_ops& t) {
  replace<&RecordLayer::create_stream>(t.create);
  replace<&RecordLayer::lend_stream>(t.default_stream);
  replace<&RecordLayer::destroy_stream>(t.destroy);
  replace<&RecordLayer::synchronize_stream>(t.synchronize);
  replace<&RecordLayer::query_stream>(t.query);
  replace<&RecordLayer::flush_stream>(t.flush);
  replace<&RecordLayer::clear_failure>(t.clear_failure);
  replace<&RecordLayer::wait_event>(t.wait_event);
  replace<&RecordLayer::add_callback>(t.add_callback);
}

void RecordLayer::record_slots(bp_event_ops& t) {
  replace<&RecordLayer::create_event>(t.create);
  replace<&RecordLayer::destroy_event>(t.destroy);
  replace<&RecordLayer::record_event>(t.record);
  replace<&RecordLayer::query_event>(t.query);
  replace<&RecordLayer::synchronize_event>(t.synchronize);
  replace<&RecordLayer::signal_event>(t.signal);
}

void RecordLayer::record_slots(bp_semaphore_ops& t) {
  replace<&RecordLayer::create_semaphore>(t.create);
  replace<&RecordLayer::destroy_semaphore>(t.destroy);
  replace<&RecordLayer::query_semaphore>(t.query);
  replace<&RecordLayer::signal_semaphore>(t.signal);
  replace<&RecordLayer::synchronize_semaphore>(t.synchronize);
  replace<&RecordLayer::submit_signal>(t.submit_signal);
  replace<&RecordLayer::submit_wait>(t.submit_wait);
  replace<&RecordLayer::clear_semaphore>(t.clear_failure);
}

// Calls that are only surrounded are not recorded.
template <typename Entry>
void RecordLayer::note_unrecorded(Slot slot, Entry surrounded, Entry entry) {
  if (entry == nullptr || entry != surrounded || is_silent(slot)) return;
  not_recorded_.insert(std::string(slot_name(slot)));
}

template <typename Table>
void RecordLayer::note_unrecorded(const Table& surrounded, const Table& table) {
#define BP_SLOT(slot_table, noun, slot, presence, gone)                \
  if constexpr (std::is_same_v<Table, slot_table>) {                   \
    note_unrecorded(Slot::noun##_##slot, surrounded.slot, table.slot); \
  }
#include "registry/boundary/slots.def"
}

bool RecordLayer::on_kernel(WrappedKernel& kernel) {
  replace<&RecordLayer::launch>(kernel.kernel.launch);
  return true;
}

bp_status RecordLayer::shut_down(const bp_backend& next, uint64_t timeout_ns) {
  const auto begin = std::chrono::steady_clock::now();
  for (bp_device* device : known_devices_) {
    if (pending_count_.load() == 0 || devices_->synchronize == nullptr) break;
    static_cast<void>(devices_->synchronize(
        devices_->self, device, std::min(kEndTimeoutNs, core::left_ns(begin, timeout_ns))));
  }
  std::call_once(header_, [&] { write_header(); });
  const uint64_t missing = pending_count_.load();
  const bp_status status = next.shutdown(next.self, core::left_ns(begin, timeout_ns));
  if (status == BP_TIMEOUT) return status;
  if (missing != 0) {
    report(std::to_string(missing) + " copies to the host had not ended: '" + recording_.folder() +
           "' lacks their bytes");
  }
  write_end();
  bool has_failed = false;
  std::string summary;
  {
    const std::lock_guard lock(mutex_);
    has_failed = recording_.has_failed();
    summary = std::to_string(launch_count_) + " launches in " + std::to_string(line_count_) +
              " lines are recorded in '" + recording_.folder() + "', " +
              std::to_string(unrecorded_count_.load()) + " calls could not be recorded";
  }
  if (has_failed) {
    report("'" + recording_.folder() + "' is not complete: it could not be written");
  }
  log(BP_LOG_INFO, summary);
  return status;
}

bool RecordLayer::is_silent(Slot slot) {
  return std::ranges::find(kSilent, slot) != std::end(kSilent);
}

// ---- Lines --------------------------------------------------------------------------------------

// Asks the backend, so it must not run under the lock.
void RecordLayer::write_header() {
  Json devices = Json::array();
  uint64_t count = 0;
  if (devices_ != nullptr && devices_->enumerate != nullptr &&
      devices_->enumerate(devices_->self, 0, nullptr, &count) == BP_OK && count != 0) {
    known_devices_.resize(count);
    static_cast<void>(devices_->enumerate(devices_->self, count, known_devices_.data(), &count));
  }
  for (bp_device* device : known_devices_) {
    const bp_device_properties* properties = nullptr;
    const bp_status status = devices_->properties(devices_->self, device, &properties);
    const bool has_name = status == BP_OK && properties != nullptr && properties->name != nullptr;
    devices.push_back(has_name ? properties->name : "");
  }
  const std::lock_guard lock(mutex_);
  recording_.write({{"format", kRecordingFormat},
                    {"version", kRecordingVersion},
                    {"abi", core::abi_text(core::kServedAbi.major, core::kServedAbi.minor)},
                    {"backend", backend_name()},
                    {"backend_version", backend_version_},
                    {"devices", devices},
                    {"has_outputs", wants_outputs_ != 0},
                    {"not_recorded", not_recorded_}});
}

void RecordLayer::append(const Json& line) {
  ++line_count_;
  recording_.write(line);
}

// Writes a call. A call that failed did nothing, and is written without arguments.
void RecordLayer::write(std::string_view call, bp_status status,
                        const std::function<void(Json&)>& make) {
  std::call_once(header_, [&] { write_header(); });
  try {
    const std::lock_guard lock(mutex_);
    Json line = {{"call", call}};
    if (status == BP_OK) {
      make(line);
    } else {
      line["status"] = status_words(status);
    }
    append(line);
  } catch (const Unknown& unknown) {
    write_unrecorded(call, unknown.what);
  }
}

void RecordLayer::write_unrecorded(std::string_view call, const std::string& why) {
  std::call_once(header_, [&] { write_header(); });
  Json line = {{"call", "unrecorded"}, {"what", call}};
  if (!why.empty()) line["why"] = why;
  if (unrecorded_count_.fetch_add(1) == 0) {
    report("the recording is not complete: " + std::string(call) + " is not recorded" +
           (why.empty() ? "" : ": " + why) +
           "; further such calls are only noted in the recording");
  }
  const std::lock_guard lock(mutex_);
  append(line);
}

// ---- Numbers ------------------------------------------------------------------------------------

uint64_t RecordLayer::number_of(bp_device* device) {
  const auto found = std::ranges::find(known_devices_, device);
  if (found == known_devices_.end()) throw Unknown{"a device that the backend does not list"};
  return static_cast<uint64_t>(found - known_devices_.begin());
}

uint64_t RecordLayer::number_of(bp_stream* stream) {
  const uint64_t number = streams_.number(stream);
  if (number == 0) throw Unknown{"a stream that the recording does not know"};
  return number;
}

uint64_t RecordLayer::number_of(bp_event* event) {
  const uint64_t number = events_.number(event);
  if (number == 0) throw Unknown{"an event that the recording does not know"};
  return number;
}

uint64_t RecordLayer::number_of(bp_semaphore* semaphore) {
  const uint64_t number = semaphores_.number(semaphore);
  if (number == 0) throw Unknown{"a semaphore that the recording does not know"};
  return number;
}

Json RecordLayer::range(const bp_buffer_ref& range) {
  const uint64_t number = buffers_.number(range.buffer);
  if (number == 0) throw Unknown{"memory that the recording does not know"};
  return {number, range.byte_offset, range.size_bytes};
}

void RecordLayer::note_stream(Json& line, bp_stream* stream) {
  if (stream != nullptr) line["stream"] = number_of(stream);
}

void RecordLayer::note_written(bp_buffer* buffer) {
  if (RecordedBuffer* facts = buffers_.find(buffer)) facts->is_written = true;
}

// The count rises before the call, so that what another thread submits meanwhile does not count as
// done.
bp_status RecordLayer::begin_capture(const std::function<bp_status()>& next, bp_stream* stream) {
  capture_count_.fetch_add(1);
  const bp_status status = next();
  if (status != BP_OK) {
    capture_count_.fetch_sub(1);
    return status;
  }
  {
    const std::lock_guard lock(mutex_);
    captures_.insert(stream);
  }
  write_unrecorded(slot_name(Slot::graph_begin_capture), "");
  return status;
}

// [GRAPH-3] The capture that began on the stream is gone, also if this call fails.
bp_status RecordLayer::end_capture(const std::function<bp_status()>& next, bp_stream* stream) {
  const bp_status status = next();
  if (status == BP_OK) write_unrecorded(slot_name(Slot::graph_end_capture), "");
  const std::lock_guard lock(mutex_);
  if (captures_.erase(stream) != 0) capture_count_.fetch_sub(1);
  return status;
}

bool RecordLayer::is_captured(bp_stream* stream) {
  if (capture_count_.load() == 0) return false;
  bp_device* device = nullptr;
  {
    const std::lock_guard lock(mutex_);
    if (const RecordedStream* facts = streams_.find(stream)) device = facts->device;
  }
  const bp_stream_ops* streams = device == nullptr ? nullptr : directory_.streams(device);
  // If the backend cannot be asked, nothing counts as done.
  uint32_t is_capturing = 1;
  if (streams == nullptr || streams->is_capturing == nullptr) return true;
  const bp_status status = streams->is_capturing(streams->self, stream, &is_capturing);
  return status != BP_OK || is_capturing != 0;
}

namespace {

constexpr OptionInfo kRecordOptions[] = {
    {"dir",
     "the folder, with %b for the backend and %p for the process; default backplane_record.%b.%p"},
    {"outputs", "1: what each launch has written too, for which it is waited; default 0"}};

}  // namespace

constinit const LayerInfo kRecordLayer{"record", "writes a stream of calls that replay runs again",
                                       kRecordOptions, make_layer<RecordLayer>};

}  // namespace bp::layers
