// Features of texts whose words are numbers.
#include <algorithm>
#include <map>

#include "runtime/io/onnx/composed.hpp"
#include "runtime/io/onnx/op_table.hpp"

namespace bp::onnx {
namespace {

using Ints = std::vector<int64_t>;

// The sequences of words that are counted, and which column of the result each has.
struct Pool {
  std::map<Ints, size_t> grams;  // To the number of the gram.
  Ints columns;                  // Of each gram.
  int64_t width = 0;
};

// The grams of one word come first, then those of two, and so on; `counts` says where they begin.
Pool read_pool(const Call& call) {
  const Ints words = call.integers("pool_int64s", {});
  const Ints counts = call.integers("ngram_counts", {});
  Pool pool{{}, call.integers("ngram_indexes", {}), 0};
  for (size_t i = 0; i < counts.size(); ++i) {
    const int64_t length = static_cast<int64_t>(i) + 1;
    const int64_t end = i + 1 < counts.size() ? counts[i + 1] : static_cast<int64_t>(words.size());
    if (counts[i] < 0 || end < counts[i] || end > static_cast<int64_t>(words.size()) ||
        (end - counts[i]) % length != 0) {
      call.refuse("attribute 'ngram_counts' is " + bp::to_string(IntList(counts)) +
                  ", which does not divide the " + std::to_string(words.size()) +
                  " words of the pool");
    }
    for (int64_t begin = counts[i]; begin < end; begin += length) {
      const Ints gram(words.begin() + begin, words.begin() + begin + length);
      pool.grams.emplace(gram, pool.grams.size());
    }
  }
  if (pool.columns.size() != pool.grams.size()) {
    call.refuse("there are " + std::to_string(pool.columns.size()) + " ngram_indexes for " +
                std::to_string(pool.grams.size()) + " grams");
  }
  for (const int64_t column : pool.columns) {
    if (column < 0 || column > INT32_MAX) call.refuse("a number of ngram_indexes is wrong");
    pool.width = std::max(pool.width, column + 1);
  }
  return pool;
}

struct Lengths {
  int64_t least, most, skips;
};

// Counts the grams of one text. Their words lie one behind the other, or up to `skips` words apart.
std::vector<double> count_grams(const Ints& text, const Pool& pool, const Lengths& lengths) {
  std::vector<double> counts(pool.grams.size());
  const auto size = static_cast<int64_t>(text.size());
  for (int64_t length = lengths.least; length <= lengths.most; ++length) {
    for (int64_t skip = 0; skip <= (length == 1 ? 0 : lengths.skips); ++skip) {
      const int64_t reach = (length - 1) * (skip + 1) + 1;
      for (int64_t begin = 0; begin + reach <= size; ++begin) {
        Ints gram;
        for (int64_t i = 0; i < length; ++i) {
          gram.push_back(text[static_cast<size_t>(begin + i * (skip + 1))]);
        }
        const auto found = pool.grams.find(gram);
        if (found != pool.grams.end()) counts[found->second] += 1;
      }
    }
  }
  return counts;
}

// Adds the row of one text to `out`: counts (TF), weights (IDF), or their products (TFIDF).
void add_row(const Call& call, const Pool& pool, const std::vector<double>& counts,
             std::vector<double>& out) {
  const std::string mode = call.text("mode", "TF");
  const std::vector<double> weights =
      call.numbers("weights", std::vector<double>(counts.size(), 1));
  if (weights.size() != counts.size()) call.refuse("there are not as many weights as grams");
  if (mode != "TF" && mode != "IDF" && mode != "TFIDF") {
    call.refuse("attribute 'mode' is '" + mode + "'; allowed: TF, IDF and TFIDF");
  }
  const size_t begin = out.size();
  out.resize(begin + static_cast<size_t>(pool.width));
  for (size_t i = 0; i < counts.size(); ++i) {
    const double count = mode == "IDF" ? std::min(counts[i], 1.0) : counts[i];
    out[begin + static_cast<size_t>(pool.columns[i])] = mode == "TF" ? count : count * weights[i];
  }
}

Values tf_idf_vectorizer(const Call& call) {
  if (call.has("pool_strings")) call.unsupported("the words of the pool are strings");
  const Ints shape = call.value(0).shape();
  const Ints words = call.ints(0);
  if (shape.empty() || shape.size() > 2) call.refuse("input 0 has no axis, or more than two");
  const Pool pool = read_pool(call);
  const Lengths lengths{call.required_integer("min_gram_length"),
                        call.required_integer("max_gram_length"),
                        call.required_integer("max_skip_count")};
  if (lengths.least < 1) call.refuse("attribute 'min_gram_length' is less than 1");
  const int64_t texts = shape.size() == 2 ? shape[0] : 1;
  const int64_t size = shape.back();
  // A gram that is longer than the text, or skips more words than it has, is not in it.
  const Lengths used{lengths.least, std::min(lengths.most, size), std::min(lengths.skips, size)};
  std::vector<double> features;
  for (int64_t i = 0; i < texts; ++i) {
    const Ints text(words.begin() + i * size, words.begin() + (i + 1) * size);
    add_row(call, pool, count_grams(text, pool, used), features);
  }
  const Ints result = shape.size() == 2 ? Ints{texts, pool.width} : Ints{pool.width};
  return {floats_on(call.device(), features, result, BP_F32)};
}

constexpr OpRow kRows[] = {
    {"TfIdfVectorizer", 9, tf_idf_vectorizer,
     "max_gram_length max_skip_count min_gram_length mode ngram_counts ngram_indexes pool_int64s "
     "pool_strings weights",
     OnnxRoute::kHost},
};

}  // namespace

std::span<const OpRow> text_ops() { return kRows; }

}  // namespace bp::onnx
