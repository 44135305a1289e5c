#include "conformance/perf/ceilings.hpp"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>
#include <functional>
#include <memory>

#include "conformance/numerics/accept.hpp"
#include "conformance/numerics/bounds.hpp"
#include "conformance/numerics/numerics.hpp"
#include "conformance/perf/dense.hpp"
#include "conformance/perf/preemption.hpp"
#include "conformance/perf/spread.hpp"
#include "conformance/perf/timing.hpp"
#include "conformance/perf/yardstick.hpp"

namespace bp::conformance {
namespace {

using Clock = std::chrono::steady_clock;

constexpr size_t kFewestRuns = 5;
// A ceiling has settled if its kAgreeing best runs lie within kAgreement of the best one.
constexpr size_t kAgreeing = 3;
constexpr double kAgreement = 0.02;
constexpr double kLeastSeconds = 0.2;  // The least measuring time, unless --min-time is shorter.
constexpr size_t kBeside = 9, kMostBeside = 99;  // Turns in which a yardstick and a ceiling run in
                                                 // pairs.
constexpr uint64_t kPeriod = 4096;  // The data of large tensors repeat after this many elements.
constexpr int kBatch = 100;
// One run of a ceiling should take no longer than this, so that a slow device is measured before
// the time limit of a case. Such a device gets less work.
constexpr double kRunSeconds = 0.5;

double since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

double least_seconds(const PerfOptions& options) {
  return std::min(options.min_seconds, kLeastSeconds);
}

// Returns the fewest seconds that `run` reports, of the runs in which the process kept its
// processors. Noise only makes runs slower, so a time is settled once others come close to it.
double best_of(Context& t, const PerfOptions& options, const std::function<double()>& run) {
  static_cast<void>(run());
  std::vector<double> times;
  double any = HUGE_VAL;
  const Clock::time_point start = Clock::now();
  const auto is_settled = [&] {
    if (times.size() < kFewestRuns || since(start) < least_seconds(options)) return false;
    std::ranges::partial_sort(times, times.begin() + kAgreeing);
    return times[kAgreeing - 1] <= (1 + kAgreement) * times.front();
  };
  bool settled = false;
  for (size_t runs = 0; !(settled = is_settled()); ++runs) {
    if (runs >= kFewestRuns && since(start) >= options.patience_seconds()) break;
    const PreemptionWatch watch;
    const double seconds = run();
    any = std::min(any, seconds);
    if (!watch.was_preempted(seconds)) times.push_back(seconds);
  }
  if (!settled) t.metric(kUnsettled, 1);
  return times.empty() ? any : *std::ranges::min_element(times);
}

// Returns the seconds of the yardstick that belong to `best` seconds of `run`, from the ratio of
// the two when they run in turns. The yardstick then finds its data in no cache, as it does beside
// a call.
double beside(const PerfOptions& options, const std::function<double()>& run, double best,
              Yardstick& yardstick) {
  std::vector<double> ratios;
  const Clock::time_point start = Clock::now();
  while (ratios.size() < kBeside ||
         (ratios.size() < kMostBeside && since(start) < least_seconds(options))) {
    const double seconds = run();
    ratios.push_back(yardstick.seconds() / seconds);
  }
  return best * spread_of(std::move(ratios)).median;
}

// A launch over so many bytes takes several times as long as to launch nothing.
constexpr uint64_t kFewestBytes = 16u << 20;

// Returns the seconds that the device needs to fill so many bytes.
double fill_seconds(Context& t, uint64_t size_bytes) {
  const OwnedStream stream = make_stream(t);
  const OwnedBuffer buffer = make_buffer(t, size_bytes);
  const bp_buffer_ref whole = range(buffer, 0, size_bytes);
  const bp_allocator_ops& memory = *t.target().allocator;
  const uint8_t value = 1;
  const Clock::time_point start = Clock::now();
  t.require_ok(memory.fill(memory.self, stream.get(), &whole, &value, 1), "memory.fill");
  finish(t, stream.get());
  return since(start);
}

// Returns the elements of an f32 tensor that is well beyond the cache, or as large as the heap and
// the speed of the device allow.
int64_t large_count(Context& t, const PerfOptions& options) {
  const bp_heap& heap = *t.target().properties->heaps;
  const uint64_t wanted = std::max(kFewestBytes, 2 * options.cache_bytes);
  const uint64_t room = std::min(heap.max_allocation_bytes, heap.size_bytes / 8);
  constexpr uint64_t kRow = kPeriod * sizeof(float);
  uint64_t bytes = std::min(wanted, room);
  const uint64_t trial = std::min<uint64_t>(bytes, 1 << 20);
  const double seconds = trial < kRow ? 0 : fill_seconds(t, trial);
  const double most = kRunSeconds / std::max(seconds, 1e-9) * static_cast<double>(trial);
  if (most < static_cast<double>(bytes)) {
    bytes = std::max(std::min(bytes, 4 * kRow), static_cast<uint64_t>(most));
  }
  const uint64_t count = bytes / kRow * kPeriod;
  if (count == 0) t.not_supported("the first heap has no room for a tensor of 16 KiB");
  return static_cast<int64_t>(count);
}

// Returns small integers, whose sum is exact in any order. The sum of one period is
// `sum_of_period`.
std::vector<uint8_t> small_integers(int64_t count, uint64_t salt, double& sum_of_period) {
  std::vector<float> period(kPeriod);
  uint64_t state = salt;
  sum_of_period = 0;
  for (float& value : period) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    value = static_cast<float>(static_cast<int64_t>(state >> 60) - 7);
    sum_of_period += static_cast<double>(value);
  }
  std::vector<uint8_t> bytes(static_cast<size_t>(count) * sizeof(float));
  for (size_t at = 0; at < bytes.size(); at += kPeriod * sizeof(float)) {
    std::memcpy(&bytes[at], period.data(), kPeriod * sizeof(float));
  }
  return bytes;
}

// ---- Copy ------------------------------------------------------------------------------------ //

using TimedRun = std::function<double()>;

// Returns a timed copy by the op copy, or an empty function if the op has no kernel.
TimedRun copy_by_op(Context& t, const Dense& from, const Dense& to, bp_stream* stream) {
  Frame frame(BP_OP_COPY);
  frame.set_tensor("x", from.view());
  frame.set_tensor("y", to.view());
  bp_kernel_choice choice{};
  const bp_status found =
      bp_kernel_find(&t.target(), 0, BP_KERNEL_NATIVE, BP_OP_COPY, frame.data(), &choice);
  bp_error_clear();
  if (found != BP_OK) return {};
  const auto launcher = std::make_shared<Launcher>(t, *choice.kernel, frame, stream);
  return [launcher, frame] { return launcher->timed(frame); };
}

TimedRun copy_by_allocator(Context& t, const Dense& from, const Dense& to, bp_stream* stream) {
  const bp_buffer_ref source = from.ref(), target = to.ref();
  return [&t, stream, source, target] {
    const bp_allocator_ops& memory = *t.target().allocator;
    const Clock::time_point start = Clock::now();
    t.require_ok(memory.copy(memory.self, stream, &target, &source), "memory.copy");
    finish(t, stream);
    return since(start);
  };
}

void measure_copy(Context& t, const PerfOptions& options) {
  const int64_t count = large_count(t, options);
  const OwnedStream stream = make_stream(t);
  Dense from(t, BP_F32, {count}), to(t, BP_F32, {count});
  double best = HUGE_VAL, sum = 0;
  TimedRun fastest;
  uint64_t salt = t.seed();
  for (const auto& make : {copy_by_op, copy_by_allocator}) {
    const TimedRun copy = make(t, from, to, stream.get());
    if (!copy) continue;
    const std::vector<uint8_t> bytes = small_integers(count, ++salt, sum);
    from.write(stream.get(), bytes);
    const double seconds = best_of(t, options, copy);
    if (to.read(stream.get()) != bytes) {
      t.fail({"the result of a timed copy differs from its source", "values", "KERNEL-8"});
    }
    if (seconds >= best) continue;
    best = seconds;
    fastest = copy;
  }
  t.metric("bytes_per_s", 2 * static_cast<double>(from.size_bytes()) / best);
  t.metric("bytes", 2 * static_cast<double>(from.size_bytes()));
  const auto yardstick = copy_yardstick(t, options, stream.get());
  t.metric(kCopyYardstick, beside(options, fastest, best, *yardstick));
  t.metric(kPartYardstick, part_seconds(t, options, stream.get()));
}

// ---- Read and write -------------------------------------------------------------------------- //

// Returns the seconds for the sum of `x`, viewed as rows, along `axes`.
double time_sum(Context& t, const PerfOptions& options, const Dense& x, Shape shape,
                const Shape& axes, double expected, bp_stream* stream) {
  bp_tensor view = *x.view();
  Shape strides = {shape[1], 1};
  view.shape = shape.data();
  view.strides = strides.data();
  view.ndim = 2;
  const bool is_whole = axes.size() == 2;
  Dense y(t, BP_F32, is_whole ? Shape{} : Shape{shape[0]});
  Frame frame(BP_OP_SUM);
  frame.set_tensor("x", &view);
  frame.set_tensor("y", y.view());
  frame.set_list("axes", axes);
  frame.set_integer("keepdims", 0);
  Launcher launcher(t, native_kernel(t, BP_OP_SUM, frame), frame, stream);
  const double best = best_of(t, options, [&] { return launcher.timed(frame); });
  const std::vector<uint8_t> bytes = y.read(stream);
  double total = 0;
  for (size_t at = 0; at < bytes.size(); at += sizeof(float)) {
    float value = 0;
    std::memcpy(&value, &bytes[at], sizeof(float));
    total += static_cast<double>(value);
  }
  if (total != expected) {
    t.fail({"a timed sum is " + std::to_string(total) + ", not " + std::to_string(expected),
            "values", "KERNEL-8"});
  }
  return best;
}

void measure_read(Context& t, const PerfOptions& options) {
  const int64_t count = large_count(t, options), width = static_cast<int64_t>(kPeriod);
  const OwnedStream stream = make_stream(t);
  Dense x(t, BP_F32, {count});
  double sum = 0, best = HUGE_VAL;
  x.write(stream.get(), small_integers(count, t.seed(), sum));
  const double expected = sum * static_cast<double>(count / width);
  for (const Shape& axes : {Shape{0, 1}, Shape{1}}) {
    best = std::min(best,
                    time_sum(t, options, x, {count / width, width}, axes, expected, stream.get()));
  }
  t.metric("bytes_per_s", static_cast<double>(x.size_bytes()) / best);
  t.metric("bytes", static_cast<double>(x.size_bytes()));
}

void measure_write(Context& t, const PerfOptions& options) {
  const int64_t count = large_count(t, options);
  const OwnedStream stream = make_stream(t);
  Dense y(t, BP_F32, {count}), value(t, BP_F32, {});
  const float three = 3;
  std::vector<uint8_t> bytes(sizeof(float));
  std::memcpy(bytes.data(), &three, sizeof(float));
  value.write(stream.get(), bytes);
  Frame frame(BP_OP_FILL);
  frame.set_tensor("y", y.view());
  frame.set_tensor("value", value.view());
  Launcher launcher(t, native_kernel(t, BP_OP_FILL, frame), frame, stream.get());
  const double best = best_of(t, options, [&] { return launcher.timed(frame); });
  const std::vector<uint8_t> result = y.read(stream.get());
  for (size_t at = 0; at < result.size(); at += sizeof(float)) {
    if (std::memcmp(&result[at], bytes.data(), sizeof(float)) == 0) continue;
    t.fail({"element " + std::to_string(at / sizeof(float)) + " of a timed fill is wrong", "values",
            "KERNEL-8"});
  }
  t.metric("bytes_per_s", static_cast<double>(y.size_bytes()) / best);
  t.metric("bytes", static_cast<double>(y.size_bytes()));
}

// Only the first launch changes the tensor, because relu keeps what is not negative.
void measure_update(Context& t, const PerfOptions& options) {
  const int64_t count = large_count(t, options);
  const OwnedStream stream = make_stream(t);
  Dense x(t, BP_F32, {count});
  double sum = 0;
  std::vector<uint8_t> bytes = small_integers(count, t.seed(), sum);
  x.write(stream.get(), bytes);
  Frame frame(BP_OP_RELU);
  frame.set_tensor("x", x.view());
  frame.set_tensor("y", x.view());
  Launcher launcher(t, native_kernel(t, BP_OP_RELU, frame), frame, stream.get());
  const double best = best_of(t, options, [&] { return launcher.timed(frame); });
  for (size_t at = 0; at < bytes.size(); at += sizeof(float)) {
    float value = 0;
    std::memcpy(&value, &bytes[at], sizeof(float));
    value = std::max(value, 0.0f);
    std::memcpy(&bytes[at], &value, sizeof(float));
  }
  if (x.read(stream.get()) != bytes) {
    t.fail({"a timed relu in place is wrong", "values", "KERNEL-8"});
  }
  t.metric("bytes_per_s", 2 * static_cast<double>(x.size_bytes()) / best);
  t.metric("bytes", 2 * static_cast<double>(x.size_bytes()));
}

// ---- Launch ---------------------------------------------------------------------------------- //

constexpr int kFewestLaunches = 5;

// Returns how many launches of so many seconds each fit into a time, within limits.
int launches_in(double seconds, double of_each, int most) {
  const double count = seconds / std::max(of_each, 1e-9);
  return static_cast<int>(std::clamp<double>(count, kFewestLaunches, most));
}

void measure_launch(Context& t) {
  const OwnedStream stream = make_stream(t);
  Dense x(t, BP_F32, {1}), y(t, BP_F32, {1});
  const std::vector<uint8_t> bytes = random_bytes(t, sizeof(float));
  x.write(stream.get(), bytes);
  Frame frame(BP_OP_COPY);
  frame.set_tensor("x", x.view());
  frame.set_tensor("y", y.view());
  Launcher launcher(t, native_kernel(t, BP_OP_COPY, frame), frame, stream.get());
  std::vector<double> alone, batched;
  static_cast<void>(launcher.timed_batch(frame, kFewestLaunches));
  const int singles = launches_in(4 * kRunSeconds, launcher.timed(frame), 1000);
  const int batch =
      launches_in(kRunSeconds / 4, launcher.timed_batch(frame, kFewestLaunches), kBatch);
  for (int i = 0; i < singles; ++i) alone.push_back(launcher.timed(frame));
  for (int i = 0; i < 20; ++i) batched.push_back(launcher.timed_batch(frame, batch));
  if (y.read(stream.get()) != bytes) {
    t.fail({"a timed copy of one element is wrong", "values", "KERNEL-8"});
  }
  t.metric("launch_s", spread_of(std::move(alone)).median);
  t.metric("batched_s", spread_of(std::move(batched)).median);
}

// ---- Products -------------------------------------------------------------------------------- //

// The values of a matrix as stored in `dtype`, and their bytes.
struct Matrix {
  std::vector<double> values;
  std::vector<uint8_t> bytes;
};

Matrix random_matrix(bp_dtype dtype, int64_t side, uint64_t salt) {
  const auto count = static_cast<size_t>(side * side);
  const size_t size = element_size(dtype);
  Matrix matrix{std::vector<double>(count), std::vector<uint8_t>(count * size)};
  uint64_t state = salt;
  for (size_t i = 0; i < count; ++i) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    auto* at = reinterpret_cast<std::byte*>(&matrix.bytes[i * size]);
    const double value = static_cast<double>(static_cast<int64_t>(state) >> 40) * 0x1p-23;
    store_element(dtype, round_to(dtype, value), at);
    matrix.values[i] = load_element(dtype, at).hi;
  }
  return matrix;
}

// Checks a few whole rows of the product, chosen by the seed, by the rule of `run`: each element
// lies within the bound on a sum of products.
void check_rows(Context& t, const Matrix& a, const Matrix& b, bp_dtype dtype, int64_t side,
                const std::vector<uint8_t>& product, const bp_kernel& kernel) {
  const Numerics numerics = resolve_numerics(kernel.numerics, dtype);
  const auto n = static_cast<size_t>(side);
  for (uint64_t i = 0; i < 4; ++i) {
    const size_t row = (t.seed() * 31 + i * 7919) % n;
    std::vector<double> sums(n), magnitudes(n);
    for (size_t k = 0; k < n; ++k) {
      const double left = a.values[row * n + k];
      for (size_t column = 0; column < n; ++column) {
        const double term = left * b.values[k * n + column];
        sums[column] += term;
        magnitudes[column] += std::fabs(term);
      }
    }
    for (size_t column = 0; column < n; ++column) {
      const size_t at = (row * n + column) * element_size(dtype);
      const double y = load_element(dtype, reinterpret_cast<const std::byte*>(&product[at])).hi;
      // `own` bounds the error of the sum that is computed here in f64.
      const double own = 0x1p-52 * static_cast<double>(n) * magnitudes[column];
      const double bound = sum_bound(magnitudes[column], static_cast<double>(n), numerics) + own;
      if (accept(dtype, y, {sums[column], bound}, numerics)) continue;
      t.fail({"element [" + std::to_string(row) + ", " + std::to_string(column) +
                  "] of a timed product is " + std::to_string(y) + ", not " +
                  std::to_string(sums[column]),
              "values", "KERNEL-8"});
    }
  }
}

// Returns the seconds of the product of two matrices of `side` rows and columns.
double time_product(Context& t, const PerfOptions& options, bp_dtype dtype, int64_t side,
                    bp_stream* stream) {
  const Shape shape = {side, side};
  Dense a(t, dtype, shape), b(t, dtype, shape), y(t, dtype, shape);
  Frame frame(BP_OP_MATMUL);
  frame.set_tensor("a", a.view());
  frame.set_tensor("b", b.view());
  frame.set_tensor("y", y.view());
  const bp_kernel& kernel = native_kernel(t, BP_OP_MATMUL, frame);
  const Matrix left = random_matrix(dtype, side, t.seed());
  const Matrix right = random_matrix(dtype, side, t.seed() + 1);
  a.write(stream, left.bytes);
  b.write(stream, right.bytes);
  Launcher launcher(t, kernel, frame, stream);
  t.progress("time " + std::to_string(side));
  const double best = best_of(t, options, [&] { return launcher.timed(frame); });
  t.progress("verify " + std::to_string(side));
  check_rows(t, left, right, dtype, side, y.read(stream), kernel);
  return best;
}

constexpr int64_t kFirstSide = 512, kSmallestSide = 64;

// Returns the side of the first product: kFirstSide, or less if that takes a slow device too long.
int64_t first_side(Context& t, const PerfOptions& options, bp_dtype dtype, bp_stream* stream) {
  double seconds = time_product(t, options, dtype, kSmallestSide, stream);
  int64_t side = kSmallestSide;
  for (; side < kFirstSide && 8 * seconds <= kRunSeconds; seconds *= 8) side *= 2;
  return side;
}

void measure_product(Context& t, const PerfOptions& options, bp_dtype dtype) {
  const OwnedStream stream = make_stream(t);
  double peak = 0, seconds = 0;
  for (int64_t side = first_side(t, options, dtype, stream.get()); side <= 8192; side *= 2) {
    if (side > 1024 && seconds >= 1e-3) break;
    if (peak > 0 && 8 * seconds > kRunSeconds) break;
    seconds = time_product(t, options, dtype, side, stream.get());
    const double flops = 2 * std::pow(static_cast<double>(side), 3) / seconds;
    if (flops > peak) t.metric("side", static_cast<double>(side));
    peak = std::max(peak, flops);
  }
  t.metric("flops_per_s", peak);
  const auto yardstick = product_yardstick(t, dtype, stream.get());
  t.metric(kProductYardstick, best_of(t, options, [&] { return yardstick->seconds(); }));
}

Case make_ceiling(const std::string& name, uint32_t op, const char* dtype,
                  std::function<void(Context&)> run) {
  Case made;
  made.id = kCeilingPrefix + name;
  made.tags = {"KERNEL-8"};
  made.group = "ceiling";
  made.op = op;
  made.dtype = dtype;
  made.is_exclusive = true;
  made.is_mandatory = false;
  made.run = std::move(run);
  return made;
}

}  // namespace

void add_ceiling_cases(std::vector<Case>& cases, const PerfOptions& options) {
  cases.push_back(make_ceiling("launch", BP_OP_COPY, "f32", measure_launch));
  const auto add = [&](const char* name, uint32_t op, void (*run)(Context&, const PerfOptions&)) {
    cases.push_back(make_ceiling(name, op, "f32", [run, options](Context& t) { run(t, options); }));
  };
  add("copy", BP_OP_COPY, measure_copy);
  add("read", BP_OP_SUM, measure_read);
  add("write", BP_OP_FILL, measure_write);
  add("update", BP_OP_RELU, measure_update);
  for (const bp_dtype dtype : {BP_F32, BP_F64, BP_F16, BP_BF16}) {
    cases.push_back(
        make_ceiling(std::string("matmul.") + dtype_text(dtype), BP_OP_MATMUL, dtype_text(dtype),
                     [dtype, options](Context& t) { measure_product(t, options, dtype); }));
  }
}

}  // namespace bp::conformance
