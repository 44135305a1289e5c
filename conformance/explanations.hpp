// What the pages of the documentation say about a word, as emit_explanations.py finds it.
#pragma once

#include <span>
#include <string_view>

namespace bp::conformance {

struct ExplanationRow {
  std::string_view kind;  // "class of errors", "status", "outcome" or "cause".
  std::string_view name;  // The word, such as "E2c" or "BP_DATA_FAILURE".
  std::string_view text;  // Lines "title: text" of the row, and for a class its section.
  std::string_view page;  // The page, relative to the folder of the documentation.
};

std::span<const ExplanationRow> explanation_rows();

}  // namespace bp::conformance
