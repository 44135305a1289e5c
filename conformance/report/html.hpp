// The parts that all HTML pages of the suite share. A page is one file: it loads nothing, and runs
// no script. It has a light and a dark scheme, fits a phone, and can be printed.
#pragma once

#include <cstddef>
#include <string>
#include <utility>
#include <vector>

namespace bp::conformance {

// Returns the text with the characters of markup as entities.
std::string escaped(const std::string& text);

// A part of a page, to which the list at its beginning links.
struct PagePart {
  const char* id;
  const char* title;
};

// Returns the beginning of a page, up to its first part.
std::string page_begin(const std::string& title);
std::string page_links(const std::vector<PagePart>& parts);
std::string page_end();

// Returns the heading of a part.
std::string heading(const PagePart& part);

// Returns a cell of a table. The class colors it, and the words say the same without colors.
std::string cell(const std::string& escaped_text, const char* css_class = "");
// Returns a cell that names its column where a narrow screen shows no columns.
std::string labelled_cell(const std::string& label, const std::string& escaped_text,
                          const std::string& css_class);

// Returns a bar for a share from 0 to 1.
std::string bar(double share, const std::string& escaped_text);

// Returns a row of thin bars, whose heights are `counts`. `words` say the same.
std::string histogram(const std::vector<size_t>& counts, const std::string& words);

}  // namespace bp::conformance
