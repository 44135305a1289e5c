#include "train_gpt/text.hpp"

#include <filesystem>
#include <fstream>
#include <iterator>
#include <stdexcept>

namespace {

[[noreturn]] void fail(const std::string& what) { throw std::runtime_error(what); }

}  // namespace

uint64_t hashed(uint64_t seed, uint64_t index) {
  uint64_t z = seed * 0xD1B54A32D192ED03 + (index + 1) * 0x9E3779B97F4A7C15;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EB;
  return z ^ (z >> 31);
}

std::vector<int64_t> Text::encode(const std::string& text) const {
  std::vector<int64_t> tokens;
  for (const char c : text) {
    const size_t place = vocabulary.find(c);
    if (place == std::string::npos) {
      fail(std::string("the prompt has the character '") + c + "', which the text does not have");
    }
    tokens.push_back(static_cast<int64_t>(place));
  }
  return tokens;
}

Text read_text(const Options& options) {
  // Opening a FIFO would wait for a writer for ever, and a device may have no end.
  std::error_code error;
  const std::filesystem::file_status found = std::filesystem::status(options.data, error);
  if (std::filesystem::exists(found) && !std::filesystem::is_regular_file(found)) {
    fail(options.data + ": it is not a regular file; --data needs a file of text");
  }
  std::ifstream file(options.data, std::ios::binary);
  if (!file) fail(options.data + ": cannot be read");
  const std::string all{std::istreambuf_iterator<char>(file), {}};
  Text text;
  bool occurs[256] = {};
  for (const char c : all) occurs[static_cast<uint8_t>(c)] = true;
  for (int c = 0; c < 256; ++c) {
    if (occurs[c]) text.vocabulary += static_cast<char>(c);
  }
  const std::vector<int64_t> tokens = text.encode(all);
  const auto cut = tokens.begin() + static_cast<int64_t>(tokens.size() * 9 / 10);
  text.training.assign(tokens.begin(), cut);
  text.validation.assign(cut, tokens.end());
  if (static_cast<int64_t>(text.validation.size()) <= options.context + 1) {
    fail(options.data + ": has " + std::to_string(all.size()) + " characters; a context of " +
         std::to_string(options.context) + " needs more than " +
         std::to_string(10 * (options.context + 2)));
  }
  return text;
}

Windows to_device(const Tokens& tokens, int64_t context) {
  const auto count = static_cast<int64_t>(tokens.inputs.size());
  return {bp::from_host<int64_t>(tokens.inputs, {count / context, context}),
          bp::from_host<int64_t>(tokens.targets, {count})};
}

Tokens cut(const std::vector<int64_t>& tokens, const std::vector<int64_t>& starts,
           int64_t context) {
  Tokens windows;
  for (const int64_t start : starts) {
    const auto first = tokens.begin() + start;
    windows.inputs.insert(windows.inputs.end(), first, first + context);
    windows.targets.insert(windows.targets.end(), first + 1, first + context + 1);
  }
  return windows;
}

Tokens training_batch(const Text& text, const Options& o, int64_t step) {
  const auto places =
      static_cast<uint64_t>(text.training.size()) - static_cast<uint64_t>(o.context);
  std::vector<int64_t> starts;
  for (int64_t row = 0; row < o.batch; ++row) {
    const auto index = static_cast<uint64_t>(step * o.batch + row);
    starts.push_back(static_cast<int64_t>(hashed(static_cast<uint64_t>(o.seed), index) % places));
  }
  return cut(text.training, starts, o.context);
}
