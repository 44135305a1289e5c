#include "backends/cuda/fake/cudnn_graph.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>
#include <stdexcept>

#include "backends/cuda/fake/floats.hpp"

namespace bp::cuda::fake {
namespace {

using Shape = std::array<int64_t, 4>;

int64_t count_of(const Shape& shape) { return shape[0] * shape[1] * shape[2] * shape[3]; }

// Calls fn(index) for each element of a shape, in row-major order.
template <typename Fn>
void for_each(const Shape& shape, const Fn& fn) {
  Shape at{};
  for (at[0] = 0; at[0] < shape[0]; ++at[0]) {
    for (at[1] = 0; at[1] < shape[1]; ++at[1]) {
      for (at[2] = 0; at[2] < shape[2]; ++at[2]) {
        for (at[3] = 0; at[3] < shape[3]; ++at[3]) fn(at);
      }
    }
  }
}

int64_t place(const Shape& strides, const Shape& at) {
  int64_t sum = 0;
  for (size_t axis = 0; axis < 4; ++axis) sum += strides[axis] * at[axis];
  return sum;
}

// ---- Reading descriptors ------------------------------------------------------------------------

struct Names {
  int how, mode;  // The part that describes the operation, and its mode there, or -1.
  std::vector<int> from;
  int to;
};

Names names_of(cudnnBackendDescriptorType_t type) {
  switch (type) {
    case CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR:
      return {CUDNN_ATTR_OPERATION_MATMUL_DESC,
              -1,
              {CUDNN_ATTR_OPERATION_MATMUL_ADESC, CUDNN_ATTR_OPERATION_MATMUL_BDESC},
              CUDNN_ATTR_OPERATION_MATMUL_CDESC};
    case CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR:
      return {CUDNN_ATTR_OPERATION_REDUCTION_DESC,
              CUDNN_ATTR_REDUCTION_OPERATOR,
              {CUDNN_ATTR_OPERATION_REDUCTION_XDESC},
              CUDNN_ATTR_OPERATION_REDUCTION_YDESC};
    default:
      return {CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR,
              CUDNN_ATTR_POINTWISE_MODE,
              {CUDNN_ATTR_OPERATION_POINTWISE_XDESC, CUDNN_ATTR_OPERATION_POINTWISE_BDESC,
               CUDNN_ATTR_OPERATION_POINTWISE_TDESC},
              CUDNN_ATTR_OPERATION_POINTWISE_YDESC};
  }
}

GraphTensor graph_tensor(const Descriptor& d) {
  GraphTensor t{.id = d.word(CUDNN_ATTR_TENSOR_UNIQUE_ID),
                .alignment = d.word(CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT),
                .type = type_of(d.word(CUDNN_ATTR_TENSOR_DATA_TYPE)),
                .is_virtual = d.is_set(CUDNN_ATTR_TENSOR_IS_VIRTUAL),
                .is_number = d.is_set(CUDNN_ATTR_TENSOR_IS_BY_VALUE)};
  for (size_t axis = 0; axis < 4; ++axis) {
    t.shape[axis] = d.words.at(CUDNN_ATTR_TENSOR_DIMENSIONS).at(axis);
    t.strides[axis] = d.words.at(CUDNN_ATTR_TENSOR_STRIDES).at(axis);
  }
  return t;
}

}  // namespace

bool is_graph_operation(cudnnBackendDescriptorType_t type) {
  return type == CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR ||
         type == CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR ||
         type == CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR;
}

Graph graph_of(const std::vector<std::shared_ptr<Descriptor>>& operations) {
  Graph graph;
  for (const auto& d : operations) {
    const Names names = names_of(d->type);
    const Descriptor& how = d->part(names.how);
    GraphOperation operation{.type = d->type, .from = {}};
    if (names.mode >= 0) operation.mode = how.word(names.mode);
    if (how.words.contains(CUDNN_ATTR_POINTWISE_AXIS)) {
      operation.axis = how.word(CUDNN_ATTR_POINTWISE_AXIS);
    }
    const auto add = [&](int name) {
      const GraphTensor t = graph_tensor(d->part(name));
      graph.tensors.emplace(t.id, t);
      return t.id;
    };
    for (const int name : names.from) {
      if (d->parts.contains(name)) operation.from.push_back(add(name));
    }
    operation.to = add(names.to);
    graph.operations.push_back(std::move(operation));
  }
  return graph;
}

namespace {

// ---- Checks -------------------------------------------------------------------------------------

bool fits_product(const Shape& a, const Shape& b, const Shape& c) {
  return a[0] == b[0] && a[0] == c[0] && a[1] == c[1] && b[1] > 0 && a[1] % b[1] == 0 &&
         a[2] == c[2] && a[3] == b[2] && b[3] == c[3];
}

// Returns whether each extent of `part` is that of `whole`, or 1.
bool is_part(const Shape& part, const Shape& whole) {
  for (size_t axis = 0; axis < 4; ++axis) {
    if (part[axis] != whole[axis] && part[axis] != 1) return false;
  }
  return true;
}

size_t inputs_of(int64_t mode) {
  switch (mode) {
    case CUDNN_POINTWISE_EXP:
    case CUDNN_POINTWISE_LOG:
    case CUDNN_POINTWISE_GEN_INDEX:
      return 1;
    case CUDNN_POINTWISE_BINARY_SELECT:
      return 3;
    default:
      return 2;
  }
}

bool fits(const Graph& graph, const GraphOperation& operation) {
  const auto shape = [&](int64_t id) { return graph.tensors.at(id).shape; };
  const Shape to = shape(operation.to);
  switch (operation.type) {
    case CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR:
      return operation.from.size() == 2 &&
             fits_product(shape(operation.from[0]), shape(operation.from[1]), to);
    case CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR:
      return operation.from.size() == 1 && is_part(to, shape(operation.from[0]));
    default:
      return operation.from.size() == inputs_of(operation.mode) &&
             std::ranges::all_of(operation.from,
                                 [&](int64_t id) { return is_part(shape(id), to); });
  }
}

}  // namespace

bool fits(const Graph& graph) {
  std::set<int64_t> written;
  for (const GraphOperation& operation : graph.operations) {
    for (const int64_t id : operation.from) {
      if (graph.tensors.at(id).is_virtual && !written.contains(id)) return false;
    }
    if (!fits(graph, operation)) return false;
    written.insert(operation.to);
  }
  return true;
}

namespace {

// ---- Computation --------------------------------------------------------------------------------

// The values of a tensor, in row-major order.
struct Values {
  Shape shape{};
  std::vector<double> at;

  // Reads an element; the index along an axis of extent 1 does not count.
  double operator()(const Shape& index) const {
    int64_t sum = 0;
    for (size_t axis = 0; axis < 4; ++axis) {
      sum = sum * shape[axis] + (shape[axis] == 1 ? 0 : index[axis]);
    }
    return at[static_cast<size_t>(sum)];
  }
};

Values product(const Values& a, const Values& b, const Shape& shape) {
  Values c{shape, {}};
  const int64_t group = a.shape[1] / b.shape[1];
  for_each(shape, [&](const Shape& at) {
    double sum = 0;
    for (int64_t k = 0; k < a.shape[3]; ++k) {
      sum += a({at[0], at[1], at[2], k}) * b({at[0], at[1] / group, k, at[3]});
    }
    c.at.push_back(sum);
  });
  return c;
}

Values reduced(const Values& x, int64_t mode, const Shape& shape, bool is_broken) {
  const bool is_max = mode == CUDNN_REDUCE_TENSOR_MAX;
  Values y{shape, {}};
  for_each(shape, [&](const Shape& to) {
    Shape left{};  // The extents that are reduced.
    for (size_t axis = 0; axis < 4; ++axis) left[axis] = shape[axis] == 1 ? x.shape[axis] : 1;
    double result = is_max ? -std::numeric_limits<double>::infinity() : 0;
    int64_t remaining = count_of(left) - (is_broken && !is_max ? 1 : 0);
    for_each(left, [&](const Shape& step) {
      if (remaining-- <= 0) return;
      const double value = x({to[0] + step[0], to[1] + step[1], to[2] + step[2], to[3] + step[3]});
      result = is_max ? std::fmax(result, value) : result + value;
    });
    y.at.push_back(result);
  });
  return y;
}

// NOLINTNEXTLINE(readability-function-size): a table of operations.
double mapped(int64_t mode, double x, double b, double t) {
  switch (mode) {
    case CUDNN_POINTWISE_ADD:
      return x + b;
    case CUDNN_POINTWISE_SUB:
      return x - b;
    case CUDNN_POINTWISE_MUL:
      return x * b;
    case CUDNN_POINTWISE_DIV:
      return x / b;
    case CUDNN_POINTWISE_EXP:
      return std::exp(x);
    case CUDNN_POINTWISE_LOG:
      return std::log(x);
    case CUDNN_POINTWISE_CMP_GE:
      return x >= b ? 1 : 0;
    case CUDNN_POINTWISE_CMP_GT:
      return x > b ? 1 : 0;
    case CUDNN_POINTWISE_BINARY_SELECT:
      return t != 0 ? x : b;
    default:
      throw std::invalid_argument("the fake cuDNN has no such mode");
  }
}

class Run {
 public:
  Run(const Graph& graph, const std::map<int64_t, std::byte*>& memory,
      const std::map<int64_t, double>& numbers, bool is_broken)
      : graph_(graph), memory_(memory), numbers_(numbers), is_broken_(is_broken) {}

  void operator()(const GraphOperation& operation) {
    const GraphTensor& to = graph_.tensors.at(operation.to);
    std::vector<Values> from;
    for (const int64_t id : operation.from) from.push_back(values(id));
    if (operation.type == CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR) {
      store(to, product(from[0], from[1], to.shape));
    } else if (operation.type == CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR) {
      store(to, reduced(from[0], operation.mode, to.shape, is_broken_));
    } else {
      store(to, pointwise(operation, from, to.shape));
    }
  }

 private:
  static Values pointwise(const GraphOperation& operation, const std::vector<Values>& from,
                          const Shape& shape) {
    Values y{shape, {}};
    for_each(shape, [&](const Shape& at) {
      if (operation.mode == CUDNN_POINTWISE_GEN_INDEX) {
        y.at.push_back(static_cast<double>(at[static_cast<size_t>(operation.axis)]));
      } else {
        y.at.push_back(mapped(operation.mode, from[0](at), from.size() > 1 ? from[1](at) : 0,
                              from.size() > 2 ? from[2](at) : 0));
      }
    });
    return y;
  }

  Values values(int64_t id) const {
    const GraphTensor& t = graph_.tensors.at(id);
    if (t.is_virtual) return between_.at(id);
    if (t.is_number) return {t.shape, {numbers_.at(id)}};
    Values v{t.shape, {}};
    for_each(t.shape, [&](const Shape& at) {
      v.at.push_back(load(memory_.at(id), t.type, place(t.strides, at)));
    });
    return v;
  }

  // Keeps or writes the result of an operation, rounded to its type.
  void store(const GraphTensor& t, Values v) {
    if (t.is_virtual) {
      for (double& value : v.at) value = rounded(t.type, value);
      between_[t.id] = std::move(v);
      return;
    }
    for_each(t.shape, [&](const Shape& at) {
      fake::store(memory_.at(t.id), t.type, place(t.strides, at), v(at));
    });
  }
  static double rounded(cudaDataType_t type, double value) {
    if (type == CUDA_R_32I || type == CUDA_R_8U) return value;
    std::byte bytes[sizeof(double)];
    fake::store(bytes, type, 0, value);
    return load(bytes, type, 0);
  }

  const Graph& graph_;
  const std::map<int64_t, std::byte*>& memory_;
  const std::map<int64_t, double>& numbers_;
  const bool is_broken_;
  std::map<int64_t, Values> between_;
};

}  // namespace

void compute(const Graph& graph, const std::map<int64_t, std::byte*>& memory,
             const std::map<int64_t, double>& numbers, bool is_broken) {
  Run run(graph, memory, numbers, is_broken);
  for (const GraphOperation& operation : graph.operations) run(operation);
}

}  // namespace bp::cuda::fake
