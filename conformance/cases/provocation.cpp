#include "conformance/cases/provocation.hpp"

#include <cstring>

#include "backplane/ops.h"

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

}  // namespace

Provocation::Provocation(Context& t)
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
  const bp_status launched = launch(stream.get());
  if (launched == BP_UNSUPPORTED) t.not_supported("the backend has no kernel for gather.f32");
  t.require_ok(launched, "launch of gather");
  const bp_stream_ops& streams = *t.target().streams;
  failure_ = streams.synchronize(streams.self, stream.get(), kTimeoutNs);
  bp_error_clear();
  if (failure_ == BP_OK) t.not_supported("the device does not check the indices of gather");
  t.require(failure_ != BP_TIMEOUT, "a kernel that fails comes to an end");
}

bp_status Provocation::launch(bp_stream* stream) {
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

void Provocation::submit(bp_stream* stream) {
  context_.require_ok(launch(stream), "launch of a gather with an index out of range");
}

}  // namespace bp::conformance
