// The normative sentences of the public headers, as emit_tags.py finds them.
#pragma once

#include <span>
#include <string_view>

namespace bp::conformance {

struct TagRow {
  std::string_view tag;     // The tag, such as "STREAM-3".
  std::string_view header;  // The header, such as "backplane/stream.h".
  int line;
  std::string_view sentence;  // The sentence without its tag, on one line.
};

std::span<const TagRow> tag_rows();

}  // namespace bp::conformance
