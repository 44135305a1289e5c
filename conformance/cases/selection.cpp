#include "conformance/cases/selection.hpp"

#include <fnmatch.h>

#include <algorithm>
#include <fstream>
#include <iostream>
#include <random>
#include <set>

#include "conformance/cases/op_parts.hpp"
#include "conformance/pattern.hpp"

namespace bp::conformance {
namespace {

std::vector<std::string> split(const std::string& text, char separator) {
  std::vector<std::string> parts;
  size_t begin = 0;
  while (begin <= text.size()) {
    const size_t end = std::min(text.find(separator, begin), text.size());
    if (end > begin) parts.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return parts;
}

std::vector<std::string> read_caselist(const std::string& name) {
  std::ifstream file;
  if (name != "-") {
    file.open(name);
    if (!file) throw UsageError("--caselist " + name + ": cannot be read");
  }
  std::istream& in = name == "-" ? std::cin : file;
  std::vector<std::string> ids;
  for (std::string line; std::getline(in, line);) {
    line.erase(std::min(line.find('#'), line.size()));
    line.erase(line.find_last_not_of(" \t\r") + 1);
    line.erase(0, line.find_first_not_of(" \t"));
    if (!line.empty()) ids.push_back(line);
  }
  return ids;
}

// Marks the cases of the list that flags select.
class Marker {
 public:
  Marker(const CaseList& cases, Tier tier) : cases_(cases), tier_(tier), marks_(cases.size()) {}

  // Marks the cases of the tier for which `matches` is true. `flag` is the option as the user wrote
  // it, for the message.
  template <typename Matches>
  void mark(const std::string& flag, const Matches& matches, bool value = true) {
    size_t found = 0;
    std::optional<Tier> beyond;
    for (size_t i = 0; i < cases_.size(); ++i) {
      if (!matches(cases_[i].id)) continue;
      if (cases_[i].tier > tier_) {
        beyond = std::min(beyond.value_or(cases_[i].tier), cases_[i].tier);
        continue;
      }
      ++found;
      marks_[i] = value;
    }
    if (found > 0) return;
    std::string message = flag + " matches no case";
    if (beyond) {
      message +=
          std::string(" of tier ") + tier_name(tier_) + "; it does at --tier " + tier_name(*beyond);
    }
    throw NothingMatched(message);
  }

  void mark_globs(const std::string& flag, const std::vector<std::string>& globs, bool value) {
    for (const std::string& glob : globs) {
      std::string shown = flag;
      shown.append(" ").append(glob);
      mark(
          shown, [&](const std::string& id) { return matches_glob(glob, id); }, value);
    }
  }

  void mark_id(const std::string& id, const std::string& flag) {
    const Case* which = cases_.find(id);
    if (which == nullptr) throw NothingMatched(flag + " " + id + ": there is no case of this id");
    if (!named_.insert(id).second) {
      throw UsageError(flag + " " + id + ": the case is selected twice; name it once");
    }
    const auto index = static_cast<size_t>(which - cases_.cases().data());
    marks_[index] = true;
    order_.push_back(index);
  }

  void mark_all() {
    for (size_t i = 0; i < cases_.size(); ++i) marks_[i] = cases_[i].tier <= tier_;
  }

  // Returns the cases that were named, in the order of their names, and then the others.
  std::vector<size_t> marked() const {
    std::vector<size_t> indices;
    std::vector<bool> is_listed(marks_.size());
    for (const size_t i : order_) {
      if (marks_[i]) indices.push_back(i);
      is_listed[i] = true;
    }
    for (size_t i = 0; i < marks_.size(); ++i) {
      if (marks_[i] && !is_listed[i]) indices.push_back(i);
    }
    return indices;
  }

 private:
  const CaseList& cases_;
  Tier tier_;
  std::vector<bool> marks_;
  std::set<std::string> named_;
  std::vector<size_t> order_;  // The order of the named cases.
};

// The globs of a filter.
struct Filter {
  std::vector<std::string> wanted, unwanted;

  explicit Filter(const std::string& text) {
    const size_t dash = std::min(text.find('-'), text.size());
    wanted = split(text.substr(0, dash), ':');
    if (wanted.empty() && dash > 0) {
      throw UsageError("--filter is '" + text +
                       "', which has no pattern; allowed: GLOB[:GLOB][-NEG], such as op.add.*");
    }
    if (dash < text.size()) unwanted = split(text.substr(dash + 1), ':');
  }
};

void mark_filter(Marker& marker, const Filter& filter) {
  if (filter.wanted.empty()) marker.mark_all();
  marker.mark_globs("--filter", filter.wanted, true);
  marker.mark_globs("--filter -", filter.unwanted, false);
}

// The parts of the suite that have all cases which some globs can match.
struct NeededParts {
  std::set<OpPart> ops;
  bool has_others = false;  // If true, the cases that belong to no op are needed.

  // Returns false if the whole words in front of a wildcard do not tell the part: those of op.add.*
  // and stream.* do, those of op.a* do not.
  bool add(const std::string& glob) {
    std::string_view words = glob;
    if (const size_t wildcard = words.find_first_of("*?[\\"); wildcard != words.npos) {
      words = words.substr(0, words.substr(0, wildcard).rfind('.') + 1);
    }
    if (is_of_no_op(words)) return has_others = true;
    if (!words.starts_with("op.")) return false;
    const std::vector<OpPart> found = parts_of(words);
    ops.insert(found.begin(), found.end());
    return !found.empty();
  }

 private:
  static bool is_of_no_op(std::string_view id) {
    static const std::set<std::string, std::less<>> families = [] {
      std::set<std::string, std::less<>> names;
      const CaseList others = CaseList::without_ops();
      for (const Case& which : others.cases()) names.insert(which.id.substr(0, which.id.find('.')));
      return names;
    }();
    return families.contains(id.substr(0, id.find('.')));
  }
};

void mark_regex(Marker& marker, const std::string& text) {
  // The message shows at most 200 bytes.
  const std::string shown = text.size() <= 200 ? text : text.substr(0, 200) + "...";
  try {
    const Pattern pattern(text);
    marker.mark("--regex " + shown, [&](const std::string& id) { return pattern.matches(id); });
  } catch (const PatternError& e) {
    throw UsageError("--regex " + shown + ": " + e.what());
  }
}

}  // namespace

const char* tier_name(Tier tier) {
  constexpr const char* kNames[] = {"smoke", "quick", "full"};
  return kNames[static_cast<size_t>(tier)];
}

bool matches_glob(const std::string& pattern, const std::string& id) {
  return fnmatch(pattern.c_str(), id.c_str(), 0) == 0;
}

SharedCases cases_for(const SelectionQuery& query) {
  const bool has_filters_alone =
      query.regexes.empty() && query.ids.empty() && query.caselists.empty();
  const bool has_ids_alone = query.regexes.empty() && query.filters.empty() &&
                             query.caselists.empty() && query.excludes.empty();
  if (!query.ids.empty() && has_ids_alone) {
    return std::make_shared<const CaseList>(CaseList::of(query.ids));
  }
  std::vector<std::string> globs = query.excludes;
  for (const std::string& text : query.filters) {
    const Filter filter(text);
    if (filter.wanted.empty()) return borrowed(CaseList::whole_suite());
    globs.insert(globs.end(), filter.wanted.begin(), filter.wanted.end());
    globs.insert(globs.end(), filter.unwanted.begin(), filter.unwanted.end());
  }
  NeededParts parts;
  const auto adds = [&](const std::string& glob) { return parts.add(glob); };
  if (query.filters.empty() || !has_filters_alone || !std::ranges::all_of(globs, adds)) {
    return borrowed(CaseList::whole_suite());
  }
  return std::make_shared<const CaseList>(CaseList::of(parts.ops, parts.has_others));
}

std::vector<size_t> select_cases(const CaseList& cases, const SelectionQuery& query) {
  Marker marker(cases, query.tier);
  if (query.filters.empty() && query.regexes.empty() && query.ids.empty() &&
      query.caselists.empty()) {
    marker.mark_all();
  }
  for (const std::string& filter : query.filters) mark_filter(marker, Filter(filter));
  for (const std::string& regex : query.regexes) mark_regex(marker, regex);
  for (const std::string& id : query.ids) marker.mark_id(id, "--case");
  for (const std::string& file : query.caselists) {
    for (const std::string& id : read_caselist(file)) marker.mark_id(id, "--caselist " + file);
  }
  marker.mark_globs("--exclude", query.excludes, false);

  std::vector<size_t> selected = marker.marked();
  for (const std::string& dtype : query.dtypes) {
    const auto has_dtype = [&](size_t i) { return cases[i].dtype == dtype; };
    if (std::none_of(selected.begin(), selected.end(), has_dtype)) {
      throw NothingMatched("--dtype " + dtype + " matches no selected case");
    }
  }
  std::erase_if(selected, [&](size_t i) {
    return !query.dtypes.empty() && std::find(query.dtypes.begin(), query.dtypes.end(),
                                              cases[i].dtype) == query.dtypes.end();
  });
  if (query.shard_count > 1) {
    std::vector<size_t> shard;
    for (size_t i = query.shard_index; i < selected.size(); i += query.shard_count) {
      shard.push_back(selected[i]);
    }
    selected = std::move(shard);
  }
  if (selected.empty()) throw NothingMatched("no case is selected");
  if (query.shuffle_seed) {
    std::mt19937_64 random(*query.shuffle_seed);
    // The order of std::shuffle differs between libraries, so it is not used.
    for (size_t i = selected.size(); i > 1; --i) std::swap(selected[i - 1], selected[random() % i]);
  }
  return selected;
}

}  // namespace bp::conformance
