// The options of one layer, as text that was checked against the list of its keys.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "backplane/base.h"

namespace bp::layers {

class Options {
 public:
  void set(std::string key, std::string value) { values_[std::move(key)] = std::move(value); }

  bool has(std::string_view key) const { return values_.find(key) != values_.end(); }

  // "" where it is not given.
  const std::string& text(std::string_view key) const;

  // Leaves `out` alone where it is not given; BP_INVALID_ARGUMENT where it is no number up to
  // `largest`. `layer` is for the text.
  bp_status number(std::string_view layer, std::string_view key, uint64_t largest,
                   uint64_t& out) const;

  // The parts of "a:b:c".
  std::vector<std::string> list(std::string_view key) const;

 private:
  std::map<std::string, std::string, std::less<>> values_;
};

// Whether `text` fits `pattern`, in which * stands for any characters and ? for one.
bool fits_glob(std::string_view text, std::string_view pattern);

// `pattern` with the name of the backend for %b and the process for %p.
std::string with_names(const std::string& pattern, const std::string& backend);

}  // namespace bp::layers
