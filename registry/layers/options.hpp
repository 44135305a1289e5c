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

  // Returns "" if the option is not given.
  const std::string& text(std::string_view key) const;

  // Does not change `out` if the option is not given. Returns BP_INVALID_ARGUMENT if it is no
  // number up to `largest`. `layer` is for the text.
  bp_status number(std::string_view layer, std::string_view key, uint64_t largest,
                   uint64_t& out) const;

  // Returns the parts of "a:b:c".
  std::vector<std::string> list(std::string_view key) const;

 private:
  std::map<std::string, std::string, std::less<>> values_;
};

// Returns whether `text` fits `pattern`, in which * stands for any characters and ? for one
// character.
bool fits_glob(std::string_view text, std::string_view pattern);

// Returns `pattern` with the name of the backend for %b and the process for %p.
std::string with_names(const std::string& pattern, const std::string& backend);

}  // namespace bp::layers
