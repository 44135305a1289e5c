// Text that a plugin gave, made safe to store, to print on a terminal and to write into a report.
//
// A plugin is foreign code: its names, reasons and messages may hold escape sequences that clear a
// screen, line breaks that forge a line of the host, bytes that are no UTF-8, or no end.
//
//   control characters    a visible escape: \x1b for ESC, \x9b for U+009B, \t and \r
//   line breaks           as LineBreaks says
//   marks that reorder    a visible escape: \u202e, so that a text reads as it is stored
//   bytes of no UTF-8     U+FFFD, one for each byte
//   more than max_bytes   cut, and "... (cut after N bytes)" follows
//
// A backslash stays as it is, so that a text that was cleaned before does not change again.
//
// Header-only: every module that shows what plugins say includes it, also behind libbackplane.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <string>
#include <string_view>

namespace bp {

// The fate of a line break in the text of a plugin.
enum class LineBreaks {
  kEscape,  // \n in the text: for names, and for what stands in one line.
  kIndent,  // It stays, and 4 spaces follow: no line of a plugin begins where those of the host do.
  kKeep,    // It stays: for a text that the host has put together of cleaned parts.
};

// No text of a backend of the project is as long. The longest are logs of compilers.
inline constexpr size_t kMaxPluginText = 16384;

// No name is as long.
inline constexpr size_t kMaxPluginName = 256;

// Returns the number of bytes of the UTF-8 character with which `text` begins, and its code point.
// It is 0 if `text` begins with no such character.
inline size_t utf8_length(std::string_view text, uint32_t& out_code) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char lead = byte(0);
  const size_t length = lead < 0x80             ? 1
                        : (lead & 0xE0) == 0xC0 ? 2
                        : (lead & 0xF0) == 0xE0 ? 3
                        : (lead & 0xF8) == 0xF0 ? 4
                                                : 0;
  if (length == 0 || length > text.size()) return 0;
  uint32_t code = length == 1 ? lead : lead & (0x7Fu >> length);
  for (size_t i = 1; i < length; ++i) {
    if ((byte(i) & 0xC0) != 0x80) return 0;
    code = code << 6 | (byte(i) & 0x3F);
  }
  constexpr uint32_t kSmallest[] = {0, 0, 0x80, 0x800, 0x10000};
  const bool is_surrogate = code >= 0xD800 && code <= 0xDFFF;
  if (code < kSmallest[length] || code > 0x10FFFF || is_surrogate) return 0;
  out_code = code;
  return length;
}

// Appends an escape for a character that is not shown as it is. Returns false for all others.
inline bool append_escape(std::string& out, uint32_t code, LineBreaks breaks) {
  char escape[16] = "";
  const bool reorders = code == 0x061C || code == 0x200E || code == 0x200F ||
                        (code >= 0x2028 && code <= 0x202E) || (code >= 0x2066 && code <= 0x2069);
  if (code == '\n' && breaks != LineBreaks::kEscape) {
    out += breaks == LineBreaks::kIndent ? "\n    " : "\n";
    return true;
  }
  if (code == '\n' || code == '\t' || code == '\r') {
    out += code == '\n' ? "\\n" : code == '\t' ? "\\t" : "\\r";
    return true;
  }
  if (code < 0x20 || (code >= 0x7F && code < 0xA0)) {
    std::snprintf(escape, sizeof(escape), "\\x%02x", static_cast<unsigned>(code));
  } else if (reorders) {
    std::snprintf(escape, sizeof(escape), "\\u%04x", static_cast<unsigned>(code));
  }
  out += escape;
  return escape[0] != '\0';
}

// Returns the first `max_bytes` bytes of `text`, without a character that the end cuts in two.
inline std::string_view cut_text(std::string_view text, size_t max_bytes) {
  text = text.substr(0, max_bytes);
  for (size_t back = 1; back <= 3 && back <= text.size(); ++back) {
    const auto lead = static_cast<unsigned char>(text[text.size() - back]);
    if ((lead & 0xC0) == 0x80) continue;
    const size_t length = lead < 0xC0 ? 1 : lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
    if (length > back) text.remove_suffix(back);
    break;
  }
  return text;
}

// Cleans the first `max_bytes` bytes of `text`, as the table at the top says.
inline std::string clean_text(std::string_view text, LineBreaks breaks,
                              size_t max_bytes = kMaxPluginText) {
  const bool is_cut = text.size() > max_bytes;
  if (is_cut) text = cut_text(text, max_bytes);
  std::string out;
  out.reserve(text.size());
  while (!text.empty()) {
    uint32_t code = 0;
    const size_t length = utf8_length(text, code);
    if (length == 0) {
      out += "\xEF\xBF\xBD";
    } else if (!append_escape(out, code, breaks)) {
      out += text.substr(0, length);
    }
    text.remove_prefix(std::max<size_t>(1, length));
  }
  if (is_cut) out += "... (cut after " + std::to_string(max_bytes) + " bytes)";
  return out;
}

// Cleans a text that ends with a zero byte, or should. At most `max_bytes` and one bytes are read.
// NULL is "".
inline std::string clean_text(const char* text, LineBreaks breaks,
                              size_t max_bytes = kMaxPluginText) {
  if (text == nullptr) return "";
  return clean_text(std::string_view(text, strnlen(text, max_bytes + 1)), breaks, max_bytes);
}

// Returns whether `text` is one or more of [a-z0-9_], and no longer than a name may be.
inline bool is_word(std::string_view text) {
  return !text.empty() && text.size() <= kMaxPluginName &&
         text.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789_") == std::string_view::npos;
}

// Returns whether `text` has the form "vendor.name", which keeps names of two vendors apart.
inline bool is_vendor_name(std::string_view text) {
  const size_t dot = text.find('.');
  return dot != std::string_view::npos && is_word(text.substr(0, dot)) &&
         is_word(text.substr(dot + 1));
}

// Does the same for a text that ends with a zero byte, or should. NULL is no word.
inline bool is_word(const char* text) {
  return text != nullptr && is_word(std::string_view(text, strnlen(text, kMaxPluginName + 1)));
}

// Cleans a name of a plugin: one line of at most kMaxPluginName bytes. NULL is "".
inline std::string clean_name(const char* name) {
  return clean_text(name, LineBreaks::kEscape, kMaxPluginName);
}

}  // namespace bp
