#include "conformance/streams/addition.hpp"

#include <cstring>

#include "backplane/ops.h"

namespace bp::conformance {
namespace {

// A dense tensor of rank 1.
struct Line {
  Line(const bp_buffer_ref& range, bp_dtype dtype)
      : extent(static_cast<int64_t>(range.size_bytes / Addition::kElementBytes)) {
    view.buffer = range.buffer;
    view.byte_offset = range.byte_offset;
    view.shape = &extent;
    view.strides = &stride;
    view.ndim = 1;
    view.dtype = dtype;
  }
  Line(const Line&) = delete;

  int64_t extent;
  int64_t stride = 1;
  bp_tensor view{};
};

bp_add_args frame_of(const Line& y, const Line& a, const Line& b) {
  bp_add_args args{};
  args.struct_size = sizeof(args);
  args.a = &a.view;
  args.b = &b.view;
  args.y = &y.view;
  return args;
}

}  // namespace

std::vector<uint8_t> Addition::numbers(uint64_t count, int32_t factor) const {
  std::vector<uint8_t> bytes(count * kElementBytes);
  for (uint64_t i = 0; i < count; ++i) {
    const int32_t integer = static_cast<int32_t>(i % 7 + 1) * factor;
    const auto real = static_cast<float>(integer);
    const void* const from = dtype == BP_I32 ? static_cast<const void*>(&integer) : &real;
    std::memcpy(bytes.data() + i * kElementBytes, from, kElementBytes);
  }
  return bytes;
}

bp_status Addition::submit(const bp_target& target, bp_stream* stream, const bp_buffer_ref& y,
                           const bp_buffer_ref& a, const bp_buffer_ref& b) const {
  const Line line_y(y, dtype), line_a(a, dtype), line_b(b, dtype);
  const bp_add_args args = frame_of(line_y, line_a, line_b);
  return bp_op_launch(&target, stream, 0, BP_OP_ADD, &args);
}

void Addition::launch(Context& t, bp_stream* stream, const bp_buffer_ref& y, const bp_buffer_ref& a,
                      const bp_buffer_ref& b) const {
  t.require_ok(submit(t.target(), stream, y, a, b), "launch of an addition");
}

bool has_addition(const bp_target& target, bp_dtype dtype) {
  const bp_buffer_ref nowhere{nullptr, 0, 64 * Addition::kElementBytes};
  const Line y(nowhere, dtype), a(nowhere, dtype), b(nowhere, dtype);
  const bp_add_args args = frame_of(y, a, b);
  bp_kernel_choice choice{};
  const bp_status found = bp_kernel_find(&target, 0, BP_KERNEL_NATIVE, BP_OP_ADD, &args, &choice);
  bp_error_clear();
  return found == BP_OK;
}

Addition find_addition(Context& t) {
  for (const bp_dtype dtype : {BP_I32, BP_F32}) {
    if (has_addition(t.target(), dtype)) return {dtype};
  }
  t.not_supported("the backend has no kernel for add.i32 and none for add.f32");
}

}  // namespace bp::conformance
