// Reads the expressions that select cases. The first byte chooses a filter, a regular expression or
// an exclusion. The selected cases must be a part of the list, without repetitions.
#include <algorithm>
#include <string>

#include "api/fuzz/fuzz.hpp"
#include "conformance/cases/selection.hpp"
#include "conformance/pattern.hpp"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace bp::conformance;  // NOLINT: the target tests this module alone.
  using bp::fuzz::check;
  static const CaseList cases = [] {
    std::vector<Case> all(5);
    const char* const ids[] = {"a", "stream.new_stream_is_idle", "op.add.f32.random.2x3.dense",
                               "op.add.bf16.edges.2x3.dense", "event.signal"};
    for (size_t i = 0; i < all.size(); ++i) {
      all[i].id = ids[i];
      all[i].run = [](Context&) {};
    }
    return CaseList(std::move(all));
  }();
  const std::string text(bp::fuzz::text_of(data, size));
  if (text.empty()) return 0;
  const std::string expression = text.substr(1);
  SelectionQuery query;
  (text[0] == 'r' ? query.regexes : text[0] == 'x' ? query.excludes : query.filters) = {expression};
  try {
    std::vector<size_t> selected = select_cases(cases, query);
    check(!selected.empty() && selected.size() <= cases.size(), "a part of the list is selected");
    std::ranges::sort(selected);
    check(std::ranges::adjacent_find(selected) == selected.end(), "no case is selected twice");
    if (text[0] != 'r') return 0;
    const Pattern pattern(expression);
    for (size_t i = 0; i < cases.size(); ++i) {
      const bool is_selected = std::ranges::binary_search(selected, i);
      check(is_selected == pattern.matches(cases[i].id),
            "a case is selected if and only if it matches", cases[i].id);
    }
  } catch (const UsageError&) {
  } catch (const NothingMatched&) {
  }
  return 0;
}
