#include "conformance/cases/provocation.hpp"

#include <cstring>
#include <string>

#include "backplane/ops.h"
#include "backplane/test_fault.h"
#include "conformance/cases/test_host.hpp"

namespace bp::conformance {
namespace {

constexpr int64_t kCount = 16;

struct Line {
  Line(bp_buffer* buffer, bp_dtype dtype) {
    view.buffer = buffer;
    view.shape = &extent;
    view.strides = &stride;
    view.ndim = 1;
    view.dtype = dtype;
  }
  Line(const Line&) = delete;

  int64_t extent = kCount;
  int64_t stride = 1;
  bp_tensor view{};
};

class WrongIndex : public Provocation {
 public:
  explicit WrongIndex(Context& t)
      : context_(t),
        source_(make_buffer(t, kCount * sizeof(float))),
        indices_(make_buffer(t, kCount * sizeof(int64_t))),
        result_(make_buffer(t, kCount * sizeof(float))) {
    const OwnedStream stream = make_stream(t);
    std::vector<uint8_t> indices(kCount * sizeof(int64_t), 0);
    const int64_t wrong = kCount;
    std::memcpy(indices.data() + 5 * sizeof(int64_t), &wrong, sizeof(wrong));
    write(t, stream.get(), range(indices_, 0, indices.size()), indices);
    write(t, stream.get(), range(source_, 0, kCount * sizeof(float)),
          std::vector<uint8_t>(kCount * sizeof(float), 0));
    try_once(stream.get());
  }

  // Why this is no way; "" if it is one.
  const std::string& problem() const { return problem_; }

  const char* name() const override { return "an index out of range"; }

  void submit(bp_stream* stream) override {
    context_.require_ok(launch(stream), "launch of a gather with an index out of range");
  }

 private:
  void try_once(bp_stream* stream) {
    const bp_status launched = launch(stream);
    if (launched == BP_UNSUPPORTED) {
      problem_ = "the backend has no kernel for gather.f32";
      return;
    }
    context_.require_ok(launched, "launch of a gather with an index out of range");
    const bp_stream_ops& streams = *context_.target().streams;
    failure_ = streams.synchronize(streams.self, stream, kTimeoutNs);
    bp_error_clear();
    context_.require(failure_ != BP_TIMEOUT, "a kernel that fails comes to an end");
    if (failure_ == BP_OK) problem_ = "the device does not check the indices of gather";
  }

  bp_status launch(bp_stream* stream) {
    const Line x(source_.get(), BP_F32), indices(indices_.get(), BP_I64), y(result_.get(), BP_F32);
    bp_gather_args args{};
    args.struct_size = sizeof(args);
    args.x = &x.view;
    args.indices = &indices.view;
    args.y = &y.view;
    const bp_target& target = context_.target();
    bp_kernel_choice choice{};
    const bp_status found =
        bp_kernel_find(&target, 0, BP_KERNEL_NATIVE, BP_OP_GATHER, &args, &choice);
    if (found != BP_OK) return bp_error_clear(), bp_status{BP_UNSUPPORTED};
    return bp_kernel_launch(&target, stream, 0, choice.kernel, &args);
  }

  Context& context_;
  OwnedBuffer source_, indices_, result_;
  std::string problem_;
};

// The extension, asked of an instance of its own: handles of one instance are valid in another.
struct Faults {
  explicit Faults(Context& t)
      : host(t.subject().options), entry(t.target().plugin->path), instance(nullptr) {
    if (entry.get() == nullptr) return;
    instance = std::make_unique<RawInstance>(entry, host);
    if (!instance->problem().empty()) return;
    const bp_backend& backend = instance->backend();
    const void* found = nullptr;
    if (backend.get_extension != nullptr &&
        backend.get_extension(backend.self, BP_TEST_FAULT_NAME, BP_TEST_FAULT_VERSION, &found) ==
            BP_OK) {
      ops = static_cast<const bp_test_fault_ops*>(found);
    }
    bp_error_clear();
  }

  TestHost host;
  PluginEntry entry;
  std::unique_ptr<RawInstance> instance;
  const bp_test_fault_ops* ops = nullptr;  // NULL where the backend has none.
};

class Order : public Provocation {
 public:
  Order(Context& t, std::shared_ptr<Faults> faults, bp_test_fault_kind kind)
      : context_(t), faults_(std::move(faults)), kind_(kind), buffer_(make_buffer(t, 64)) {
    failure_ = BP_ABORTED;
  }

  const char* name() const override {
    return stops_the_queue() ? "a submission that was ordered to fail"
                             : "work that was ordered to fail on its data";
  }

  bool stops_the_queue() const override { return kind_ == BP_TEST_FAULT_SUBMISSION; }

  void submit(bp_stream* stream) override {
    const bp_test_fault_ops& ops = *faults_->ops;
    const bp_allocator_ops& memory = *context_.target().allocator;
    const bp_buffer_ref whole = range(buffer_, 0, 64);
    const uint8_t value = 1;
    if (ops.fail_next(ops.self, stream, kind_, failure_) != BP_OK) {
      context_.fail("bp.test.fault: fail_next: " + faults_->host.take_text());
    }
    context_.require_ok(memory.fill(memory.self, stream, &whole, &value, 1),
                        "a fill that was ordered to fail");
  }

 private:
  Context& context_;
  std::shared_ptr<Faults> faults_;
  bp_test_fault_kind kind_;
  OwnedBuffer buffer_;
};

}  // namespace

std::vector<std::unique_ptr<Provocation>> provocations(Context& t) {
  std::vector<std::unique_ptr<Provocation>> ways;
  auto wrong_index = std::make_unique<WrongIndex>(t);
  const std::string problem = wrong_index->problem();
  if (problem.empty()) ways.push_back(std::move(wrong_index));
  auto faults = std::make_shared<Faults>(t);
  if (faults->ops != nullptr) {
    for (const bp_test_fault_kind kind : {BP_TEST_FAULT_SUBMISSION, BP_TEST_FAULT_DATA}) {
      ways.push_back(std::make_unique<Order>(t, faults, kind));
    }
  }
  if (ways.empty()) {
    t.not_supported(problem + ", and the backend has no extension bp.test.fault");
  }
  return ways;
}

}  // namespace bp::conformance
