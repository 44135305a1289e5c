// Products with a weight in the blocks of ggml, by ggml itself. ggml turns the rows of x into codes
// of i8 (q8_0) in each call, and multiplies integers.
#include <ggml-backend.h>
#include <ggml-cpu.h>
#include <ggml.h>
#include <omp.h>

#include <cmath>
#include <cstring>
#include <memory>
#include <stdexcept>

#include "runtime/bench/peers/worker.hpp"

namespace bp::bench {
namespace {

template <typename T, void (*kFree)(T)>
struct Free {
  void operator()(T object) const { kFree(object); }
};
using Backend = std::unique_ptr<ggml_backend, Free<ggml_backend_t, ggml_backend_free>>;
using Buffer =
    std::unique_ptr<ggml_backend_buffer, Free<ggml_backend_buffer_t, ggml_backend_buffer_free>>;
using Context = std::unique_ptr<ggml_context, Free<ggml_context*, ggml_free>>;

// Returns memory whose weights are put into the order that the loops of this processor prefer.
ggml_backend_buffer_type_t repacking_memory() {
  const ggml_backend_reg_t library = ggml_backend_cpu_reg();
  const auto extra_memory = reinterpret_cast<ggml_backend_dev_get_extra_bufts_t>(
      ggml_backend_reg_get_proc_address(library, "ggml_backend_dev_get_extra_bufts"));
  if (extra_memory != nullptr) {
    for (auto each = extra_memory(ggml_backend_reg_dev_get(library, 0));
         each != nullptr && *each != nullptr; ++each) {
      if (std::strcmp(ggml_backend_buft_name(*each), "CPU_REPACK") == 0) return *each;
    }
  }
  throw std::runtime_error("ggml was built without repacked weights");
}

Context make_context() {
  constexpr size_t kTensors = 8;
  return Context(ggml_init({.mem_size = kTensors * ggml_tensor_overhead() + ggml_graph_overhead(),
                            .mem_buffer = nullptr,
                            .no_alloc = true}));
}

std::vector<float> inputs(int64_t count, int64_t s) {
  std::vector<float> values(static_cast<size_t>(count));
  for (int64_t i = 0; i < count; ++i) values[static_cast<size_t>(i)] = input_value(i, s);
  return values;
}

// y = x weight^T of x (rows, depth) and weight (cols, depth).
class Product {
 public:
  Product(ggml_type type, int64_t rows, int64_t depth, int64_t cols, bool is_repacked)
      : backend_(ggml_backend_cpu_init()), weights_(make_context()), others_(make_context()) {
    ggml_backend_cpu_set_n_threads(backend_.get(), omp_get_max_threads());
    ggml_tensor* const weight = ggml_new_tensor_2d(weights_.get(), type, depth, cols);
    weight_memory_.reset(ggml_backend_alloc_ctx_tensors_from_buft(
        weights_.get(), is_repacked ? repacking_memory() : ggml_backend_cpu_buffer_type()));
    if (is_repacked && weight->extra == nullptr) {
      throw std::runtime_error("ggml has no repacked form of this weight on this processor");
    }
    ggml_tensor* const x = ggml_new_tensor_2d(others_.get(), GGML_TYPE_F32, depth, rows);
    y_ = ggml_mul_mat(others_.get(), weight, x);
    graph_ = ggml_new_graph(others_.get());
    ggml_build_forward_expand(graph_, y_);
    other_memory_.reset(ggml_backend_alloc_ctx_tensors(others_.get(), backend_.get()));
    const std::vector<float> of_x = inputs(rows * depth, 0), of_weight = inputs(cols * depth, 1);
    std::vector<char> blocks(ggml_nbytes(weight));
    ggml_quantize_chunk(type, of_weight.data(), blocks.data(), 0, cols, depth, nullptr);
    ggml_backend_tensor_set(weight, blocks.data(), 0, blocks.size());
    ggml_backend_tensor_set(x, of_x.data(), 0, ggml_nbytes(x));
  }

  void run() const {
    if (ggml_backend_graph_compute(backend_.get(), graph_) != GGML_STATUS_SUCCESS) {
      throw std::runtime_error("ggml_backend_graph_compute failed");
    }
  }

  double mean_abs() const {
    std::vector<float> y(static_cast<size_t>(ggml_nelements(y_)));
    ggml_backend_tensor_get(y_, y.data(), 0, ggml_nbytes(y_));
    double sum = 0;
    for (const float value : y) sum += std::abs(double{value});
    return sum / static_cast<double>(y.size());
  }

 private:
  Backend backend_;
  Context weights_, others_;
  Buffer weight_memory_, other_memory_;
  ggml_tensor* y_ = nullptr;
  ggml_cgraph* graph_ = nullptr;
};

}  // namespace

std::vector<Case> ggml_cases(bool is_repacked) {
  std::vector<Case> cases;
  for (const int64_t rows : kQuantizedRows) {
    for (const char* const name :
         {"linear f32 by q4_0", "linear f32 by q8_0", "matmul_scaled f32 by i4",
          "matmul_scaled i8 by i4", "matmul_scaled f32 by i8", "matmul_scaled i8 by i8"}) {
      const std::string words = name;
      const bool has_four_bits = words.ends_with("q4_0") || words.ends_with("i4");
      const ggml_type type = has_four_bits ? GGML_TYPE_Q4_0 : GGML_TYPE_Q8_0;
      const char* const blocks = words.starts_with("linear") ? "" : ", groups of 32";
      cases.push_back({words + " " + std::to_string(rows) + "x4096x4096" + blocks, 0, 0, [=] {
                         auto made = std::make_shared<Product>(type, rows, 4096, 4096, is_repacked);
                         return Ready{[made] { made->run(); }, [made] { return made->mean_abs(); }};
                       }});
    }
  }
  return cases;
}

}  // namespace bp::bench
