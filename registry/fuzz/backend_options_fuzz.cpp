// Fuzzes BACKPLANE_OPTIONS: a refusal has a text, and what is taken was in the input.
#include <algorithm>
#include <string>

#include "api/fuzz/fuzz.hpp"
#include "registry/boundary/error_slot.hpp"
#include "registry/plugins/backend_options.hpp"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using bp::fuzz::check;
  const std::string_view text = bp::fuzz::text_of(data, size);
  bp::core::BackendOptions options = {{"given", "by the program"}};
  bp_error_clear();
  const bp_status status = bp::core::add_environment_options(text, "acme.npu", options);
  const std::string words = bp::core::take_error();
  check((status == BP_OK) == words.empty(), "a refusal, and nothing else, has a text", words);
  check(options.front().second == "by the program", "options of the program come first");
  for (size_t i = 1; i < options.size(); ++i) {
    const auto& [key, value] = options[i];
    check(text.find(key + "=" + value) != text.npos, "an option is one of the input", key);
    check(!key.empty(), "an option has a key");
    check(std::ranges::count(options, key, &std::pair<std::string, std::string>::first) == 1,
          "each option is there once", key);
  }
  // Cut in two at a comma, the text has the same options: the first one of a key counts.
  const size_t comma = text.find(',', text.size() / 2);
  if (status != BP_OK || comma == text.npos) return 0;
  bp::core::BackendOptions halves = {{"given", "by the program"}};
  for (const std::string_view half : {text.substr(0, comma), text.substr(comma + 1)}) {
    check(bp::core::add_environment_options(half, "acme.npu", halves) == BP_OK,
          "each half of a list that is taken is taken");
  }
  check(halves == options, "two halves give the options of the whole");
  return 0;
}
