// The normative sentences of the public headers, as emit_tags.py finds them.
#pragma once

#include <span>
#include <string_view>

namespace bp::conformance {

struct TagRow {
  std::string_view tag;     // "STREAM-3"
  std::string_view header;  // "backplane/stream.h"
  int line;
  std::string_view sentence;  // With the tag removed and its lines joined.
};

std::span<const TagRow> tag_rows();

}  // namespace bp::conformance
