#include <algorithm>
#include <charconv>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <map>
#include <numeric>

#include "backplane/runtime/data.hpp"
#include "registry/files/read_file.hpp"

namespace bp {
namespace {

// The generator SplitMix64 is small and gives the same numbers on every machine. std::shuffle does
// not.
class SplitMix {
 public:
  explicit SplitMix(uint64_t seed) : state_(seed) {}

  uint64_t next() {
    uint64_t z = state_ += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
  }

  // Returns a uniform number below `bound`. The bias is at most bound / 2^64.
  uint64_t below(uint64_t bound) {
    __extension__ using Wide = unsigned __int128;
    return static_cast<uint64_t>((static_cast<Wide>(next()) * bound) >> 64);
  }

 private:
  uint64_t state_;
};

// Shuffles `list` by the method of Fisher and Yates.
void shuffle(std::vector<int64_t>& list, SplitMix& random) {
  for (size_t i = list.size(); i > 1; --i) std::swap(list[i - 1], list[random.below(i)]);
}

[[noreturn]] void refuse(const std::string& path, int64_t line, const std::string& what) {
  throw Error(BP_INVALID_ARGUMENT, path + ":" + std::to_string(line) + ": " + what);
}

// Returns the numbers of one line, which must have `expected` of them.
std::vector<float> parse_line(const std::string& path, int64_t line, const std::string& text,
                              size_t expected) {
  std::vector<float> numbers;
  const char* at = text.data();
  const char* const end = at + text.size();
  while (at <= end) {
    float number = 0;
    const auto [stop, error] = std::from_chars(at, end, number);
    if (error != std::errc() || (stop != end && *stop != ',')) {
      refuse(path, line, "column " + std::to_string(numbers.size() + 1) + " is not a number");
    }
    numbers.push_back(number);
    at = stop + 1;
  }
  if (numbers.size() != expected) {
    refuse(path, line,
           std::to_string(numbers.size()) + " columns; expected " + std::to_string(expected));
  }
  return numbers;
}

}  // namespace

int64_t Dataset::sample_size() const {
  return std::accumulate(sample_shape.begin(), sample_shape.end(), int64_t{1}, std::multiplies());
}

Dataset Dataset::subset(const std::vector<int64_t>& indices) const {
  Dataset part{{}, sample_shape, {}};
  const int64_t size = sample_size();
  if (static_cast<int64_t>(inputs.size()) != count() * size) {
    throw Error(BP_INVALID_ARGUMENT, "Dataset: there are " + std::to_string(inputs.size()) +
                                         " inputs; allowed: " + std::to_string(size) +
                                         " for each of " + std::to_string(count()) + " targets");
  }
  for (const int64_t index : indices) {
    if (index < 0 || index >= count()) {
      throw Error(BP_INVALID_ARGUMENT, "Dataset: there is no sample " + std::to_string(index) +
                                           "; allowed: 0 to " + std::to_string(count() - 1));
    }
    const auto first = inputs.begin() + index * size;
    part.inputs.insert(part.inputs.end(), first, first + size);
    part.targets.push_back(targets[static_cast<size_t>(index)]);
  }
  return part;
}

Dataset read_csv(const std::string& path, std::vector<int64_t> sample_shape) {
  // Opening a FIFO would wait for a writer for ever, and a device may have no end.
  std::error_code error;
  if (std::filesystem::exists(path, error)) {
    const std::string defect = regular_file_defect(path);
    if (!defect.empty()) throw Error(BP_INVALID_ARGUMENT, path + ": " + defect);
  }
  std::ifstream file(path);
  if (!file) throw Error(BP_NOT_FOUND, path + ": cannot be read");
  Dataset dataset{{}, std::move(sample_shape), {}};
  const auto columns = static_cast<size_t>(dataset.sample_size()) + 1;
  std::string text;
  std::getline(file, text);
  for (int64_t line = 2; std::getline(file, text); ++line) {
    if (!text.empty() && text.back() == '\r') text.pop_back();
    if (text.empty()) continue;
    const std::vector<float> numbers = parse_line(path, line, text, columns);
    const float target = numbers.back();
    if (!(target >= 0 && target < 0x1p63F) || target != std::floor(target)) {
      refuse(path, line, "the class, in the last column, is not a whole number from 0 on");
    }
    dataset.inputs.insert(dataset.inputs.end(), numbers.begin(), numbers.end() - 1);
    dataset.targets.push_back(static_cast<int64_t>(target));
  }
  if (dataset.targets.empty()) refuse(path, 1, "there are no samples behind the header");
  return dataset;
}

std::pair<Dataset, Dataset> stratified_split(const Dataset& all, int64_t second_count,
                                             uint64_t seed) {
  if (second_count < 0 || second_count > all.count()) {
    throw Error(BP_INVALID_ARGUMENT, "stratified_split: second_count is " +
                                         std::to_string(second_count) + "; allowed: 0 to " +
                                         std::to_string(all.count()));
  }
  SplitMix random(seed);
  std::map<int64_t, std::vector<int64_t>> classes;
  for (int64_t i = 0; i < all.count(); ++i) {
    classes[all.targets[static_cast<size_t>(i)]].push_back(i);
  }
  // Each class first gets its share, rounded down. The samples that are left go to the classes with
  // the largest remainders.
  struct Share {
    std::vector<int64_t>* members;
    int64_t whole, remainder;
  };
  std::vector<Share> shares;
  int64_t left = second_count;
  for (auto& [target, members] : classes) {
    shuffle(members, random);
    const auto product = static_cast<int64_t>(members.size()) * second_count;
    shares.push_back({&members, product / all.count(), product % all.count()});
    left -= shares.back().whole;
  }
  std::ranges::stable_sort(shares, std::greater(), &Share::remainder);
  for (Share& share : shares) share.whole += left-- > 0 ? 1 : 0;

  std::vector<int64_t> first, second;
  for (const Share& share : shares) {
    const auto middle = share.members->begin() + share.whole;
    second.insert(second.end(), share.members->begin(), middle);
    first.insert(first.end(), middle, share.members->end());
  }
  std::ranges::sort(first);
  std::ranges::sort(second);
  return {all.subset(first), all.subset(second)};
}

DataLoader::DataLoader(const Dataset& dataset, Device device, const DataLoaderOptions& options)
    : dataset_(dataset), device_(device), options_(options) {
  if (options.batch_size < 1) {
    throw Error(BP_INVALID_ARGUMENT, "DataLoader: batch_size is " +
                                         std::to_string(options.batch_size) + "; allowed: from 1");
  }
  begin(0);
}

void DataLoader::begin(int64_t epoch) {
  position_ = 0;
  order_.resize(static_cast<size_t>(dataset_.count()));
  std::iota(order_.begin(), order_.end(), 0);
  if (!options_.shuffles) return;
  SplitMix random(options_.seed ^ SplitMix(static_cast<uint64_t>(epoch)).next());
  shuffle(order_, random);
}

int64_t DataLoader::batch_count() const {
  const int64_t count = dataset_.count(), size = options_.batch_size;
  return count / size + (options_.drops_last || count % size == 0 ? 0 : 1);
}

bool DataLoader::next(Batch& batch) {
  // After a smaller last batch, the position is the end and no multiple of the batch size.
  const int64_t left = dataset_.count() - position_;
  if (left == 0 || (options_.drops_last && left < options_.batch_size)) return false;
  const int64_t end = position_ + std::min(options_.batch_size, left);
  const Dataset part = dataset_.subset({order_.begin() + position_, order_.begin() + end});
  std::vector<int64_t> shape{end - position_};
  shape.insert(shape.end(), part.sample_shape.begin(), part.sample_shape.end());
  batch.inputs = from_host(part.inputs, shape, device_);
  batch.targets = from_host(part.targets, {end - position_}, device_);
  position_ = end;
  return true;
}

}  // namespace bp
