#include "registry/layers/json_text.hpp"

#include <algorithm>
#include <cstdio>

#include "registry/boundary/plugin_text.hpp"
#include "registry/layers/footprint.hpp"
#include "registry/layers/words.hpp"

namespace bp::layers {

std::string JsonText::quoted(std::string_view text) {
  std::string out = "\"";
  while (!text.empty()) {
    uint32_t code = 0;
    const size_t length = utf8_length(text, code);
    if (length == 0) {
      out += "\xEF\xBF\xBD";
    } else if (code < 0x20) {
      char escaped[8];
      std::snprintf(escaped, sizeof(escaped), "\\u%04x", static_cast<unsigned>(code));
      out += escaped;
    } else {
      if (code == '"' || code == '\\') out += '\\';
      out += text.substr(0, length);
    }
    text.remove_prefix(std::max<size_t>(1, length));
  }
  return out + "\"";
}

void JsonText::add_raw(std::string_view key, std::string_view value) {
  if (text_.size() > 1) text_ += ',';
  text_ += quoted(key);
  text_ += ':';
  text_ += value;
}

std::string_view ArgumentText::next_name() {
  const size_t end = std::min(names_.find(", "), names_.size());
  const std::string_view name = names_.substr(0, end);
  names_.remove_prefix(std::min(end + 2, names_.size()));
  return name;
}

void ArgumentText::add_handle(std::string_view name, const void* handle) {
  out_.add(name, words(handle));
}

void ArgumentText::add(const char* text) {
  out_.add(next_name(), std::string_view(text == nullptr ? "NULL" : text));
}

void ArgumentText::add(const bp_buffer_ref* range) {
  out_.add(next_name(), range == nullptr ? "NULL" : words(*range));
}

void ArgumentText::add(const bp_allocate_desc* desc) {
  static_cast<void>(next_name());
  // A struct that is too short was refused, and the bytes after its end must not be read.
  if (desc != nullptr && desc->struct_size >= sizeof(*desc)) {
    out_.add("size_bytes", requested_bytes(*desc));
  }
}

void ArgumentText::add(const bp_prepare_desc* desc) {
  static_cast<void>(next_name());
  if (desc == nullptr || desc->struct_size < sizeof(*desc)) return;
  std::string numbers;
  for (uint64_t i = 0; desc->constant_args != nullptr && i < desc->constant_arg_count; ++i) {
    numbers += (i == 0 ? "" : ", ") + std::to_string(desc->constant_args[i]);
  }
  out_.add("constant_args", numbers);
}

void ArgumentText::add(const bp_launch* launch) {
  static_cast<void>(next_name());
  if (launch == nullptr) return;
  add_handle("stream", launch->stream);
  if (launch->workspace.buffer != nullptr) out_.add("workspace", words(launch->workspace));
  if (launch->plan != nullptr) add_handle("plan", launch->plan);
}

void ArgumentText::add(const void* handle) {
  const std::string_view name = next_name();
  if (op_ != 0 && name == "args") {
    out_.add("tensors", frame_words(op_, handle));
    const std::string attributes = attribute_words(op_, handle);
    if (!attributes.empty()) out_.add("attributes", attributes);
  } else {
    add_handle(name, handle);
  }
}

}  // namespace bp::layers
