#include "conformance/perf/yardstick.hpp"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <optional>

#include "conformance/perf/spread.hpp"

namespace bp::conformance {
namespace {

using Clock = std::chrono::steady_clock;

constexpr double kLongEnough = 1e-3;  // The seconds that are long enough to be timed.
constexpr int kMostPieces = 1024;
constexpr int64_t kPieces = 8;  // The number of pieces of the copied buffer.
constexpr int64_t kPart = 8;
constexpr int64_t kSide = 512;

double since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// Returns the kernel of the backend; NULL if it has none.
const bp_kernel* find_kernel(Context& t, uint32_t op, const Frame& frame) {
  bp_kernel_choice choice{};
  const bp_status status =
      bp_kernel_find(&t.target(), 0, BP_KERNEL_NATIVE, op, frame.data(), &choice);
  bp_error_clear();
  return status == BP_OK ? choice.kernel : nullptr;
}

// Fills the tensor with numbers of one bit pattern, which is neither zero nor slow to compute with.
void fill_with_number(Context& t, const Dense& tensor, bp_dtype dtype, bp_stream* stream) {
  std::byte number[8];
  store_element(dtype, round_to(dtype, 0.7), number);
  const bp_allocator_ops& memory = *t.target().allocator;
  const bp_buffer_ref whole = tensor.ref();
  t.require_ok(memory.fill(memory.self, stream, &whole, number, element_size(dtype)),
               "memory.fill");
}

class CopyYardstick final : public Yardstick {
 public:
  // Each side has half the size of the cache. Between two copies of one piece come the copies of
  // all other pieces and the launches of the call, which together exceed the cache.
  CopyYardstick(Context& t, int64_t count, bp_stream* stream)
      : Yardstick(t, stream),
        from_(t, BP_F32, {count}),
        to_(t, BP_F32, {count}),
        piece_{count / kPieces} {
    fill_with_number(t, from_, BP_F32, stream);
    fill_with_number(t, to_, BP_F32, stream);
    x_ = *from_.view();
    y_ = *to_.view();
    x_.shape = y_.shape = piece_.data();
    Frame frame = next();
    const bp_kernel* const kernel = find_kernel(t, BP_OP_COPY, frame);
    if (kernel != nullptr) launcher_.emplace(t, *kernel, frame, stream);
  }

 private:
  Frame next() {
    const auto size = static_cast<uint64_t>(piece_[0]) * sizeof(float);
    x_.byte_offset = y_.byte_offset = static_cast<uint64_t>(number_++ % kPieces) * size;
    Frame frame(BP_OP_COPY);
    frame.set_tensor("x", &x_);
    frame.set_tensor("y", &y_);
    return frame;
  }

  void submit() override {
    const Frame frame = next();
    if (launcher_) return launcher_->launch(frame);
    const bp_allocator_ops& memory = *t_.target().allocator;
    const auto size = static_cast<uint64_t>(piece_[0]) * sizeof(float);
    const bp_buffer_ref source{x_.buffer, x_.byte_offset, size},
        target{y_.buffer, y_.byte_offset, size};
    t_.require_ok(memory.copy(memory.self, stream_, &target, &source), "memory.copy");
  }

  Dense from_, to_;
  Shape piece_;
  bp_tensor x_{}, y_{};
  int64_t number_ = 0;
  std::optional<Launcher> launcher_;
};

class ProductYardstick final : public Yardstick {
 public:
  ProductYardstick(Context& t, bp_dtype dtype, bp_stream* stream)
      : Yardstick(t, stream),
        a_(t, dtype, {kSide, kSide}),
        b_(t, dtype, {kSide, kSide}),
        y_(t, dtype, {kSide, kSide}),
        frame_(BP_OP_MATMUL) {
    fill_with_number(t, a_, dtype, stream);
    fill_with_number(t, b_, dtype, stream);
    frame_.set_tensor("a", a_.view());
    frame_.set_tensor("b", b_.view());
    frame_.set_tensor("y", y_.view());
    const bp_kernel* const kernel = find_kernel(t, BP_OP_MATMUL, frame_);
    if (kernel != nullptr) launcher_.emplace(t, *kernel, frame_, stream);
  }

  bool has_kernel() const { return launcher_.has_value(); }

 private:
  void submit() override { launcher_->launch(frame_); }

  Dense a_, b_, y_;
  Frame frame_;
  std::optional<Launcher> launcher_;
};

// Returns the elements of f32 on each side.
int64_t copied_count(Context& t, const PerfOptions& options) {
  const bp_heap& heap = *t.target().properties->heaps;
  const uint64_t wanted = std::max<uint64_t>(8u << 20, options.cache_bytes / 2);
  const uint64_t room = std::min(heap.max_allocation_bytes, heap.size_bytes / 8);
  const auto count = static_cast<int64_t>(std::min(wanted, room) / sizeof(float));
  return std::max(count / kPieces, int64_t{1}) * kPieces;
}

}  // namespace

double Yardstick::seconds() {
  const auto time = [&](int count) {
    const Clock::time_point start = Clock::now();
    for (int i = 0; i < count; ++i) submit();
    finish(t_, stream_);
    return since(start);
  };
  for (int count = 1; count_ == 0; count *= 2) {
    if (time(count) >= kLongEnough || count >= kMostPieces) count_ = count;
  }
  return time(count_) / count_;
}

std::unique_ptr<Yardstick> copy_yardstick(Context& t, const PerfOptions& options,
                                          bp_stream* stream) {
  return std::make_unique<CopyYardstick>(t, copied_count(t, options), stream);
}

double part_seconds(Context& t, const PerfOptions& options, bp_stream* stream) {
  CopyYardstick yardstick(t, std::max(copied_count(t, options) / kPart, kPieces), stream);
  std::vector<double> seconds(5);
  for (double& each : seconds) each = yardstick.seconds();
  return spread_of(std::move(seconds)).median;
}

std::unique_ptr<Yardstick> product_yardstick(Context& t, bp_dtype dtype, bp_stream* stream) {
  auto yardstick = std::make_unique<ProductYardstick>(t, dtype, stream);
  if (!yardstick->has_kernel()) return nullptr;
  return yardstick;
}

}  // namespace bp::conformance
