// Terms are taken together from left to right. Two terms are multiplied as a batch of matrices:
// axes that both have and that are still needed are the batch, and those that only they have are
// summed up by the product.
#include "runtime/io/onnx/einsum.hpp"

#include <algorithm>
#include <map>

#include "runtime/io/onnx/composed.hpp"

namespace bp::onnx {
namespace {

using Ints = std::vector<int64_t>;

// A tensor whose axes have names. Axes of an ellipsis are named by digits from the last one on.
struct Term {
  std::string names;
  Tensor tensor;
};

std::string without_spaces(std::string text) {
  std::erase(text, ' ');
  return text;
}

// Puts digits in place of "...", so many that there is a name for each of `ndim` axes.
std::string expand_ellipsis(const Call& call, const std::string& names, int64_t ndim) {
  const size_t dots = names.find("...");
  if (dots == std::string::npos) return names;
  const int64_t count = ndim - static_cast<int64_t>(names.size()) + 3;
  if (count < 0) call.refuse("the term '" + names + "' has more letters than its input has axes");
  std::string digits;
  for (int64_t i = count; i-- > 0;) digits += static_cast<char>('0' + i);
  return names.substr(0, dots) + digits + names.substr(dots + 3);
}

// Takes the diagonal of axes that have one name, as a view.
Term diagonal_of(const Call& call, const Term& term) {
  Term result;
  Ints shape, strides;
  for (size_t i = 0; i < term.names.size(); ++i) {
    const auto axis = static_cast<int64_t>(i);
    const size_t place = result.names.find(term.names[i]);
    if (place == std::string::npos) {
      result.names += term.names[i];
      shape.push_back(term.tensor.shape(axis));
      strides.push_back(term.tensor.strides()[i]);
    } else if (shape[place] == term.tensor.shape(axis)) {
      strides[place] += term.tensor.strides()[i];
    } else {
      call.refuse("the axes '" + std::string(1, term.names[i]) + "' have different extents");
    }
  }
  result.tensor = term.tensor.as_strided(shape, strides);
  return result;
}

Term read_term(const Call& call, const std::string& names, const Tensor& tensor) {
  const std::string all = expand_ellipsis(call, names, tensor.ndim());
  if (static_cast<int64_t>(all.size()) != tensor.ndim()) {
    call.refuse("the term '" + names + "' does not have a letter for each axis of its input " +
                bp::to_string(tensor.shape()));
  }
  return diagonal_of(call, {all, tensor});
}

// Sums up the axes that nobody needs.
Term reduce(const Term& term, const std::string& needed) {
  Ints axes;
  Term result{"", term.tensor};
  for (size_t i = 0; i < term.names.size(); ++i) {
    if (needed.find(term.names[i]) == std::string::npos) {
      axes.push_back(static_cast<int64_t>(i));
    } else {
      result.names += term.names[i];
    }
  }
  if (!axes.empty()) result.tensor = sum(term.tensor, axes, false, term.tensor.dtype());
  return result;
}

// Returns the tensor with its axes in the order of `names`; axes that it lacks have the extent 1.
Tensor arrange(const Term& term, const std::string& names) {
  Ints order;
  for (const char name : names) {
    const size_t place = term.names.find(name);
    if (place != std::string::npos) order.push_back(static_cast<int64_t>(place));
  }
  Tensor result = term.tensor.permute(order);
  for (size_t i = 0; i < names.size(); ++i) {
    if (term.names.find(names[i]) == std::string::npos) {
      result = result.unsqueeze(static_cast<int64_t>(i));
    }
  }
  return result;
}

using Extents = std::map<char, int64_t>;

Tensor as_matrices(const Term& term, const std::string& batch, const std::string& rows,
                   const std::string& columns, const Extents& extents) {
  const auto shape_of = [&](const std::string& names) {
    Ints shape;
    for (const char name : names) shape.push_back(extents.at(name));
    return shape;
  };
  const auto count_of = [&](const std::string& names) {
    int64_t count = 1;
    for (const int64_t extent : shape_of(names)) count *= extent;
    return count;
  };
  const std::string all = batch + rows + columns;
  return arrange(term, all)
      .expand(shape_of(all))
      .reshape({count_of(batch), count_of(rows), count_of(columns)});
}

// `needed` has the names that later terms or the result need.
Term multiply(const Term& a, const Term& b, const std::string& needed, const Extents& extents) {
  std::string batch, rows, columns, summed;
  for (const char name : a.names) {
    const bool is_in_b = b.names.find(name) != std::string::npos;
    const bool is_needed = needed.find(name) != std::string::npos;
    (is_in_b ? (is_needed ? batch : summed) : rows) += name;
  }
  for (const char name : b.names) {
    if (a.names.find(name) == std::string::npos) columns += name;
  }
  const Tensor y = matmul(as_matrices(a, batch, rows, summed, extents),
                          as_matrices(b, batch, summed, columns, extents));
  Term result{batch + rows + columns, y};
  Ints shape;
  for (const char name : result.names) shape.push_back(extents.at(name));
  result.tensor = y.reshape(shape);
  return result;
}

std::string implicit_result(const std::vector<Term>& terms) {
  std::map<char, int> counts;
  std::string digits, letters;
  for (const Term& term : terms) {
    for (const char name : term.names) ++counts[name];
  }
  for (const auto& [name, count] : counts) {
    if (name >= '0' && name <= '9') digits.insert(digits.begin(), name);
    if (count == 1 && (name < '0' || name > '9')) letters += name;
  }
  return digits + letters;
}

std::vector<Term> read_terms(const Call& call, const std::string& left,
                             const std::vector<Tensor>& inputs) {
  std::vector<Term> terms;
  size_t begin = 0;
  for (const Tensor& input : inputs) {
    if (begin > left.size()) call.refuse("the equation has fewer terms than there are inputs");
    const size_t end = std::min(left.find(',', begin), left.size());
    terms.push_back(read_term(call, left.substr(begin, end - begin), input));
    begin = end + 1;
  }
  if (begin <= left.size()) call.refuse("the equation has more terms than there are inputs");
  return terms;
}

Extents extents_of(const Call& call, const std::vector<Term>& terms) {
  Extents extents;
  for (const Term& term : terms) {
    for (size_t i = 0; i < term.names.size(); ++i) {
      int64_t& extent = extents.emplace(term.names[i], 1).first->second;
      const int64_t given = term.tensor.shape(static_cast<int64_t>(i));
      if (extent != 1 && given != 1 && extent != given) {
        call.refuse("the axes '" + std::string(1, term.names[i]) + "' have different extents");
      }
      if (given != 1) extent = given;
    }
  }
  return extents;
}

}  // namespace

Tensor einsum(const Call& call, const std::string& equation, const std::vector<Tensor>& inputs) {
  const std::string text = without_spaces(equation);
  const size_t arrow = text.find("->");
  const std::vector<Term> terms = read_terms(call, text.substr(0, arrow), inputs);
  const Extents extents = extents_of(call, terms);
  int64_t ellipsis_axes = 0;
  for (const auto& [name, extent] : extents) ellipsis_axes += name >= '0' && name <= '9' ? 1 : 0;
  std::string result = implicit_result(terms);
  if (arrow != std::string::npos) {
    const std::string right = text.substr(arrow + 2);
    const bool has_dots = right.find("...") != std::string::npos;
    const auto letters = static_cast<int64_t>(right.size()) - (has_dots ? 3 : 0);
    result = expand_ellipsis(call, right, letters + ellipsis_axes);
  }
  const auto needed_after = [&](size_t i) {
    std::string needed = result;
    for (size_t j = i; j < terms.size(); ++j) needed += terms[j].names;
    return needed;
  };
  Term total = reduce(terms[0], needed_after(1));
  for (size_t i = 1; i < terms.size(); ++i) {
    const Term next = reduce(terms[i], needed_after(i + 1) + total.names);
    total = reduce(multiply(total, next, needed_after(i + 1), extents), needed_after(i + 1));
  }
  for (const char name : result) {
    if (total.names.find(name) == std::string::npos) {
      call.refuse("the result of the equation has the axis '" + std::string(1, name) +
                  "', which no term has, or has it twice");
    }
  }
  return arrange(total, result);
}

}  // namespace bp::onnx
