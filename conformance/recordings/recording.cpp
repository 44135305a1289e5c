#include "conformance/recordings/recording.hpp"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>
#include <string_view>

#include "backplane/host.h"
#include "conformance/json_file.hpp"
#include "conformance/numerics/dtype.hpp"
#include "conformance/recordings/launch_line.hpp"
#include "conformance/usage_error.hpp"
#include "registry/files/sha256.hpp"

namespace bp::conformance {
namespace {

using nlohmann::json;
namespace fs = std::filesystem;

constexpr const char* kFormat = "backplane.recording";
constexpr int kVersion = 1;
constexpr uint64_t kNoDevice = UINT64_MAX;

// The members that a line of each call has: its numbers, its lists and its texts.
struct CallShape {
  const char* call;
  std::vector<const char*> numbers, ranges, texts;
};

const std::vector<CallShape>& call_shapes() {
  static const std::vector<CallShape> shapes = {
      {"memory.allocate", {"device", "buffer", "size_bytes", "alignment_bytes", "usage"}, {}, {}},
      {"memory.deallocate", {"buffer"}, {}, {}},
      {"memory.register_host", {"device", "buffer", "size_bytes"}, {}, {}},
      {"memory.unregister_host", {"buffer"}, {}, {}},
      {"memory.copy", {"stream"}, {"dst", "src"}, {}},
      {"memory.copy_peer", {"stream"}, {"dst", "src"}, {}},
      {"memory.copy_from_host", {"stream"}, {"dst"}, {"payload"}},
      {"memory.copy_to_host", {"stream", "read"}, {"src"}, {}},
      {"memory.fill", {"stream"}, {"dst"}, {"pattern"}},
      {"host.write", {}, {"dst"}, {"payload"}},
      {"host.read", {"read"}, {}, {"payload"}},
      {"stream.create", {"device", "stream", "flags"}, {}, {}},
      {"stream.default_stream", {"device", "stream"}, {}, {}},
      {"stream.destroy", {"stream"}, {}, {}},
      {"stream.synchronize", {"stream"}, {}, {}},
      {"stream.query", {"stream"}, {}, {}},
      {"stream.flush", {"stream"}, {}, {}},
      {"stream.clear_failure", {"stream"}, {}, {}},
      {"stream.wait_event", {"stream", "event"}, {}, {}},
      {"stream.add_callback", {"stream"}, {}, {}},
      {"event.create", {"device", "event", "flags"}, {}, {}},
      {"event.destroy", {"event"}, {}, {}},
      {"event.record", {"event", "stream"}, {}, {}},
      {"event.synchronize", {"event"}, {}, {}},
      {"event.query", {"event"}, {}, {}},
      {"event.signal", {"event", "signaled"}, {}, {}},
      {"semaphore.create", {"device", "semaphore", "value", "flags"}, {}, {}},
      {"semaphore.destroy", {"semaphore"}, {}, {}},
      {"semaphore.query", {"semaphore", "value"}, {}, {}},
      {"semaphore.signal", {"semaphore", "value"}, {}, {}},
      {"semaphore.synchronize", {"semaphore", "value"}, {}, {}},
      {"semaphore.submit_signal", {"stream", "semaphore", "value"}, {}, {}},
      {"semaphore.submit_wait", {"stream", "semaphore", "value"}, {}, {}},
      {"semaphore.clear_failure", {"semaphore"}, {}, {}},
      {"device.synchronize", {"device"}, {}, {}},
      {"kernel.launch", {"launch", "device", "stream", "flags"}, {}, {"op", "kernel"}},
      {"op.describe", {}, {}, {"op"}},
      {"unrecorded", {}, {}, {"what"}},
      {"end", {}, {}, {}},
  };
  return shapes;
}

// Returns whether the value is a number of the right kind. A status may be negative; all others are
// counts, flags and handles.
bool is_number(std::string_view name, const json& value) {
  return name == "signaled" ? value.is_number_integer() : value.is_number_unsigned();
}

// Returns whether the value is a range whose end fits 64 bits.
bool is_range(const json& value) {
  return value.is_array() && value.size() == 3 &&
         std::ranges::all_of(value, [](const json& part) { return part.is_number_unsigned(); }) &&
         value.at(1).get<uint64_t>() <= UINT64_MAX - value.at(2).get<uint64_t>();
}

bool is_pattern(const std::string& text) {
  return !text.empty() && text.size() <= 32 && text.size() % 2 == 0 &&
         text.find_first_not_of("0123456789abcdef") == std::string::npos;
}

// Returns what is wrong with a line; "" if nothing is.
std::string line_defect(const json& line) {
  if (!line.is_object() || !line.contains("call") || !line.at("call").is_string()) {
    return "has no call";
  }
  const std::string call = line.at("call").get<std::string>();
  const auto shape =
      std::ranges::find_if(call_shapes(), [&](const CallShape& s) { return call == s.call; });
  if (shape == call_shapes().end()) return "has the call '" + call + "', which is not known";
  if (line.contains("status")) return "";  // The call failed, and its line has no arguments.
  for (const char* name : shape->numbers) {
    if (!line.contains(name) || !is_number(name, line.at(name))) {
      return call + " has no number '" + name + "'";
    }
  }
  for (const char* name : shape->ranges) {
    if (!line.contains(name) || !is_range(line.at(name))) {
      return call + " has no range '" + name + "' of buffer, offset and size";
    }
  }
  for (const char* name : shape->texts) {
    if (!line.contains(name) || !line.at(name).is_string()) {
      return call + " has no text '" + name + "'";
    }
  }
  if (line.contains("why") && !line.at("why").is_string()) return call + " has a 'why' of no text";
  if (call == "memory.fill" && !is_pattern(line.at("pattern").get<std::string>())) {
    return "fills with '" + line.at("pattern").get<std::string>() +
           "'; allowed are 1 to 16 bytes as pairs of hexadecimal digits";
  }
  if (call == "op.describe" && !line.contains("description")) return call + " has no 'description'";
  if (call != "kernel.launch") return "";
  if (!line.contains("args") || !line.at("args").is_object()) return call + " has no 'args'";
  const std::string op = line.at("op").get<std::string>();
  if (bp_op_from_name(op.c_str()) != 0) return "";
  return "launches '" + op + "', which is no op of this build, and no line before describes it";
}

// Returns whether `name` can be the name of a payload. It becomes part of a path.
bool is_sha256(const std::string& name) {
  return name.size() == 64 && name.find_first_not_of("0123456789abcdef") == std::string::npos;
}

}  // namespace

Recording::Recording(const RecordingSource& source) : source_(source) {
  std::error_code error;
  file_ = fs::is_directory(source.path, error) ? source.path + "/stream.jsonl" : source.path;
  folder_ = fs::path(file_).parent_path().string();
  if (folder_.empty()) folder_ = ".";
  if (!fs::exists(file_, error)) {
    throw UsageError(file_ + ": cannot be read; the layer record writes such a file");
  }
  std::istringstream file(read_regular_file(file_));
  std::string text;
  if (!std::getline(file, text)) throw UsageError(file_ + ": is empty");
  read_header(text);
  while (std::getline(file, text)) read_line(text);
  for (size_t i = 0; i < lines_.size(); ++i) check_launch(i);
  find_seeded();
  for (size_t i = 0; i < lines_.size(); ++i) check_line(i);
  std::ranges::sort(devices_);
}

std::string Recording::place(size_t line) const { return file_ + ":" + std::to_string(line + 2); }

bool Recording::is_judged(size_t line) const {
  const json& each = lines_[line];
  if (each.contains("status")) return false;
  const json& call = each.at("call");
  if (call == "kernel.launch") return true;
  return (call == "host.read" || call == "memory.copy_to_host") && each.contains("payload");
}

void Recording::read_header(const std::string& text) {
  header_ = parse_json(text, file_);
  if (!header_.is_object() || header_.value("format", json()) != kFormat) {
    throw UsageError(file_ + ": is no recording: its first line has no format '" + kFormat + "'");
  }
  const json version = header_.value("version", json());
  if (version != kVersion) {
    throw UsageError(file_ + ": is of version " + json_text(version) +
                     "; this build reads version " + std::to_string(kVersion));
  }
}

void Recording::read_line(const std::string& text) {
  const size_t index = lines_.size();
  json line = parse_json(text, file_, index + 2);
  try {
    const std::string defect = line_defect(line);
    if (!defect.empty()) throw UsageError(place(index) + ": " + defect);
    note_device(line);
    if (line.at("call") == "op.describe" && !line.contains("status")) describe_op(line);
  } catch (const json::exception& e) {
    throw UsageError(place(index) + ": " + e.what());
  }
  lines_.push_back(std::move(line));
}

void Recording::describe_op(const json& line) {
  try {
    ops_->add(line);
  } catch (const UsageError& e) {
    throw UsageError(place(lines_.size()) + ": " + e.what());
  }
}

// A host asks each device for its default stream, and waits for each stream. These calls alone do
// not make the device a used one.
void Recording::note_device(const json& line) {
  uint64_t device = line.value("device", kNoDevice);
  const uint64_t stream = line.value("stream", uint64_t{0});
  const json& call = line.at("call");
  if (call == "stream.default_stream") lent_streams_[stream] = device;
  if (call == "stream.default_stream" || call == "device.synchronize") return;
  const auto lent = lent_streams_.find(stream);
  if (device == kNoDevice && lent != lent_streams_.end()) device = lent->second;
  if (device != kNoDevice && std::ranges::count(devices_, device) == 0) devices_.push_back(device);
}

void Recording::check_launch(size_t index) const {
  const json& line = lines_[index];
  if (line.at("call") != "kernel.launch" || line.contains("status")) return;
  try {
    static_cast<void>(read_launch(line));
  } catch (const UsageError& e) {
    throw UsageError(place(index) + ": " + e.what());
  } catch (const json::exception& e) {
    throw UsageError(place(index) + ": " + e.what());
  }
}

// Throws UsageError unless the line can be played and all of its payloads have the right hash.
void Recording::check_line(size_t index) const {
  const json& line = lines_[index];
  if (line.contains("status")) return;
  if (line.at("call") == "unrecorded" && !source_.is_partial) {
    const std::string why = line.value("why", "");
    throw UsageError(place(index) + ": " + line.at("what").get<std::string>() +
                     " was not recorded" + (why.empty() ? "" : ": " + why) +
                     "; what follows may differ; --partial replays the rest all the same");
  }
  try {
    if (line.contains("payload") && seeded_[index] == 0) static_cast<void>(payload(line));
    if (!line.contains("outputs") || source_.seeds_weights) return;
    for (const auto& [name, output] : line.at("outputs").items()) {
      static_cast<void>(payload(output));
    }
  } catch (const UsageError& e) {
    throw UsageError(place(index) + ": " + e.what());
  } catch (const json::exception& e) {
    throw UsageError(place(index) + ": " + e.what());
  }
}

std::vector<std::byte> Recording::payload(const json& line) const {
  const std::string name = line.at("payload").get<std::string>();
  if (!is_sha256(name)) throw UsageError("the payload '" + name + "' is no SHA-256");
  const std::string path = folder_ + "/payloads/" + name;
  std::error_code error;
  // A pipe could be opened, but its end might never come.
  const bool is_file = fs::is_regular_file(path, error);
  std::ifstream file(is_file ? path : "", std::ios::binary);
  if (!file) throw UsageError("the payload " + path + " is not there");
  std::ostringstream read;
  read << file.rdbuf();
  const std::string text = read.str();
  if (sha256(text) != name) {
    throw UsageError("the payload " + path +
                     " has other bytes than were recorded: its SHA-256 is " + sha256(text));
  }
  std::vector<std::byte> bytes(text.size());
  std::ranges::transform(text, bytes.begin(), [](char c) { return static_cast<std::byte>(c); });
  return bytes;
}

// Goes from the end to the beginning, so that the launch found for a range is the first one behind
// the copy.
void Recording::find_seeded() {
  seeded_.assign(lines_.size(), 0);
  if (!source_.seeds_weights) return;
  std::map<uint64_t, std::map<uint64_t, bp_dtype>> readers;  // The readers by buffer and offset.
  for (size_t i = lines_.size(); i-- > 0;) {
    const json& line = lines_[i];
    if (line.contains("status")) continue;
    const std::string call = line.at("call").get<std::string>();
    if (call == "kernel.launch") {
      for (const RecordedTensor& tensor : read_launch(line).tensors) {
        if (tensor.role == Role::kOutput || tensor.buffer == 0) continue;
        readers[tensor.buffer][span_of(tensor).begin] = tensor.dtype;
      }
    } else if (call == "memory.copy_from_host" || call == "host.write") {
      const json& dst = line.at("dst");
      auto& of_buffer = readers[dst.at(0).get<uint64_t>()];
      const auto begin = dst.at(1).get<uint64_t>(), end = begin + dst.at(2).get<uint64_t>();
      const auto reader = of_buffer.lower_bound(begin);
      if (reader != of_buffer.end() && reader->first < end && is_float(reader->second)) {
        seeded_[i] = reader->second;
      }
      of_buffer.erase(reader, of_buffer.lower_bound(end));
    }
  }
}

}  // namespace bp::conformance
