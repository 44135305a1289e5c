// Fuzzes the layers, in the first line of the input, and their options, in the rest. A refusal has
// a text that can be printed.
#include <string>

#include "api/fuzz/fuzz.hpp"
#include "registry/boundary/error_slot.hpp"
#include "registry/boundary/plugin_text.hpp"
#include "registry/layers/stack.hpp"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using bp::fuzz::check;
  const std::string_view text = bp::fuzz::text_of(data, size);
  const size_t line = text.find('\n');
  bp::layers::Choice choice{std::string(text.substr(0, line)), ""};
  if (line != text.npos) choice.options = text.substr(line + 1);
  static_cast<void>(bp::core::take_error());
  const bp_status status = bp::layers::check_choice(choice);
  const std::string words = bp::core::take_error();
  check(status == BP_OK || !words.empty(), "a refusal has a text");
  check(bp::clean_text(words, bp::LineBreaks::kKeep, words.size()) == words,
        "the text can be printed", words);
  check(bp::layers::check_choice(choice) == status, "a second look gives the same answer");
  return 0;
}
