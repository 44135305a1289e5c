// Prints tensors as numbers in aligned columns and nested brackets, and leaves out the middle of
// long axes.
//
//   [[ 1.0000, -2.5000],
//    [ 0.3333,  4.0000]]  f32 (2, 2) on vendor.backend:0
#include <algorithm>
#include <cmath>
#include <ostream>

#include "registry/boundary/number_text.hpp"
#include "registry/tensors/floats.hpp"
#include "runtime/tensor/tensor_impl.hpp"

namespace bp {
namespace {

// How the shown numbers are written: whole ones without digits, very large or small ones with an
// exponent, and all in one way.
class FloatFormat {
 public:
  FloatFormat(const std::vector<double>& values, int precision) : precision_(precision) {
    double low = INFINITY;
    double high = 0;
    for (const double value : values) {
      if (!std::isfinite(value)) continue;
      if (value != std::floor(value)) is_whole_ = false;
      if (value != 0) low = std::min(low, std::fabs(value));
      high = std::max(high, std::fabs(value));
    }
    is_scientific_ = high >= 1e8 || (high != 0 && !is_whole_ && (low < 1e-4 || high / low > 1e3));
  }

  std::string operator()(double value) const {
    if (!std::isfinite(value)) return std::isnan(value) ? "nan" : value < 0 ? "-inf" : "inf";
    if (is_scientific_) return scientific_text(value, precision_);
    return is_whole_ ? fixed_text(value, 0) + "." : fixed_text(value, precision_);
  }

 private:
  int precision_;
  bool is_whole_ = true;
  bool is_scientific_ = false;
};

// Returns the indices along an axis that are shown; -1 stands for those between.
std::vector<int64_t> shown(int64_t extent, bool is_cut, int64_t edge) {
  std::vector<int64_t> result;
  for (int64_t i = 0; i < extent; ++i) {
    if (!is_cut || extent <= 2 * edge || i < edge || i >= extent - edge) {
      result.push_back(i);
    } else if (i == edge) {
      result.push_back(-1);
    }
  }
  return result;
}

class Printer {
 public:
  Printer(const Tensor& tensor, const PrintOptions& options)
      : dtype_(tensor.dtype()),
        tensor_(detail::is_coded(dtype_) ? detail::decoded(tensor) : tensor),
        options_(options),
        is_cut_(tensor.numel() > options.threshold) {}

  std::string text() {
    visit(tensor_, [this](const Tensor& row) { read_row(row); });
    if (tensors::is_plain_float(tensor_.dtype())) {
      const FloatFormat to_text(floats_, options_.precision);
      for (const double value : floats_) texts_.push_back(to_text(value));
    }
    for (const std::string& item : texts_) width_ = std::max(width_, item.size());
    std::string body;
    write(0, body);
    return body + "  " + dtype_text(dtype_) + " " + to_string(tensor_.shape()) + " on " +
           tensor_.device().name();
  }

 private:
  // Calls row(part) for the shown parts along the last axis, or once for a tensor without axes.
  template <typename Row>
  void visit(const Tensor& part, const Row& row) {
    if (part.ndim() <= 1) return row(part);
    for (const int64_t i : shown(part.shape(0), is_cut_, options_.edge_items)) {
      if (i >= 0) visit(part.select(0, i), row);
    }
  }

  // Reads the shown elements of a row.
  void read_row(const Tensor& row) {
    if (row.ndim() == 0) return read(row);
    const int64_t extent = row.shape(0);
    const int64_t edge = options_.edge_items;
    if (!is_cut_ || extent <= 2 * edge) return read(row);
    read(row.slice(0, 0, edge));
    read(row.slice(0, extent - edge, extent));
  }

  void read(const Tensor& part) {
    if (tensors::is_plain_float(part.dtype())) {
      const std::vector<double> values = part.to(BP_F64).to_vector<double>();
      floats_.insert(floats_.end(), values.begin(), values.end());
    } else if (part.dtype() == BP_BOOL) {
      for (const uint8_t value : part.to_vector<uint8_t>()) {
        texts_.emplace_back(value != 0 ? "true" : "false");
      }
    } else if (part.dtype() == BP_U64) {
      for (const uint64_t value : part.to_vector<uint64_t>()) {
        texts_.push_back(std::to_string(value));
      }
    } else {
      for (const int64_t value : part.to(BP_I64).to_vector<int64_t>()) {
        texts_.push_back(std::to_string(value));
      }
    }
  }

  void write(int64_t axis, std::string& out) {
    if (axis == tensor_.ndim()) {
      const std::string& item = texts_[next_++];
      out += std::string(width_ - item.size(), ' ') + item;
      return;
    }
    const bool is_last = axis == tensor_.ndim() - 1;
    const std::string indent(static_cast<size_t>(axis) + 1, ' ');
    const std::string apart(static_cast<size_t>(tensor_.ndim() - axis - 1), '\n');
    size_t column = indent.size();
    out += '[';
    bool is_first = true;
    for (const int64_t i : shown(tensor_.shape(axis), is_cut_, options_.edge_items)) {
      const size_t item_width = i < 0 ? 3 : width_;
      const bool breaks = is_last && !is_first &&
                          column + item_width + 2 > static_cast<size_t>(options_.line_width);
      if (!is_first) out += is_last && !breaks ? ", " : ",";
      if (breaks) out += "\n" + indent;
      if (breaks) column = indent.size();
      if (!is_first && !is_last) out += apart + indent;
      if (i < 0) {
        out += "...";
      } else {
        write(axis + 1, out);
      }
      column += item_width + 2;
      is_first = false;
    }
    out += ']';
  }

  bp_dtype dtype_;
  Tensor tensor_;  // Of numbers that a host has.
  PrintOptions options_;
  bool is_cut_;
  std::vector<double> floats_;
  std::vector<std::string> texts_;
  size_t width_ = 0;
  size_t next_ = 0;
};

}  // namespace

std::string to_string(const Tensor& tensor, const PrintOptions& options) {
  if (!tensor) return "(empty)";
  return Printer(tensor.detach(), options).text();
}

std::ostream& operator<<(std::ostream& out, const Tensor& tensor) {
  return out << to_string(tensor);
}

std::string to_string(IntList list) {
  std::string text = "(";
  for (size_t i = 0; i < list.size(); ++i) {
    text += (i == 0 ? "" : ", ") + std::to_string(list[i]);
  }
  return text + (list.size() == 1 ? ",)" : ")");
}

std::string dtype_text(bp_dtype dtype) {
  const char* name = bp_dtype_name(dtype);
  return name != nullptr ? name : "dtype " + std::to_string(dtype);
}

}  // namespace bp
