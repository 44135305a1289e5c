// Turns nodes of ggml into launches of ops, or only asks whether a device would take them.
//
// One function per op of ggml (lower.h) says how a node is computed. supports_op() runs it with an
// emitter that asks the library for a kernel for each launch, graph_compute() with one that
// launches. Both therefore agree: an op is supported where every launch has a kernel on the device,
// its own or a decomposition.
#pragma once

#include <deque>
#include <map>
#include <string>
#include <vector>

#include "backplane/ops.h"
#include "device.h"
#include "view.h"

namespace bpg {

class Emitter {
 public:
  // Launches on `stream`.
  Emitter(Device& device, bp_stream* stream) : device_(device), stream_(stream) {}
  // Asks only.
  explicit Emitter(Device& device) : device_(device), is_dry_(true) {}
  ~Emitter();
  Emitter(const Emitter&) = delete;
  Emitter& operator=(const Emitter&) = delete;

  Device& device() const { return device_; }

  // The elements of a tensor of ggml, with 4 axes. Throws Refusal for a type without a dtype.
  View tensor(const ggml_tensor* t) const;
  // The same as bytes of dtype u8: the last axis of a type in blocks has its bytes.
  View bytes(const ggml_tensor* t) const;
  // `rows` of `columns` elements in blocks, which begin at byte `begin` of the tensor.
  View blocks(const ggml_tensor* t, uint64_t begin, const Shape& shape) const;

  // Contiguous bytes as elements of `shape` in the blocks of `type`.
  View in_blocks(const View& bytes, ggml_type type, const Shape& shape) const;

  // Numbers of the host in a temporary, and the numbers of a contiguous tensor of i32 or i64 on the
  // host, for which the call waits. Where nothing is computed, there are none.
  View upload(const std::vector<int32_t>& numbers);
  std::vector<int64_t> read(const View& numbers);

  // Memory until the end of the node.
  View temporary(bp_dtype dtype, const Shape& shape);
  View temporary_blocks(const BlockFormat& format, const Shape& shape);
  // A tensor of numbers that the host knows. It is uploaded once and kept.
  View constant(const std::vector<float>& values);
  View constant(const std::vector<int32_t>& values);

  // Results that several nodes of a graph share, by a name that says what they are.
  using Shared = std::vector<View>;
  const Shared* find_shared(const std::string& key) const;
  void keep_shared(const std::string& key, Shared views);

  // `x` with another dtype or without gaps: itself, or a temporary copy.
  View cast(const View& x, bp_dtype dtype);
  View contiguous(const View& x);
  View reshape(const View& x, const Shape& shape);
  View decoded(const View& x);  // Blocks become f32.

  void copy(const View& x, const View& y);  // Converts.
  void fill(const View& y, double value);
  void convert(const View& x, const View& y);  // Between layouts.

  // Ops of the form y = op(x), and y = op(a, b).
  void unary(uint32_t op, const View& x, const View& y);
  View unary(uint32_t op, const View& x);
  void binary(uint32_t op, const View& a, const View& b, const View& y);
  View binary(uint32_t op, const View& a, const View& b);
  void binary(uint32_t op, const View& a, double b, const View& y);
  View binary(uint32_t op, const View& a, double b);
  View compare(uint32_t op, const View& a, double b);
  View compare(uint32_t op, const View& a, const View& b);
  View where(const View& condition, const View& a, const View& b);

  // The sum over axes, which stay with one element.
  View sum(const View& x, const Shape& axes);
  void sum(const View& x, const Shape& axes, const View& y, bool keeps_axes);
  View cat(const std::vector<View>& parts, int axis);

  // Launches any op. The frame points to tensors that arg() made.
  const bp_tensor* arg(const View& x);
  template <typename Args>
  void launch(uint32_t op, Args& args) {
    args.struct_size = sizeof(Args);
    launch_frame(op, &args);
  }

  // True if launch() would find a kernel on the device.
  template <typename Args>
  bool can_launch(uint32_t op, Args& args) {
    args.struct_size = sizeof(Args);
    return has_kernel(op, &args);
  }

  // Ends the memory of a node, and that of the graph.
  void end_node();
  void end_graph();

 private:
  struct Slot {
    bp_tensor tensor;  // The first member: arg() gives its address, and slot_of() takes it back.
    View view;
  };
  struct Frame;

  static const View& view_of(const bp_tensor* tensor) {
    return reinterpret_cast<const Slot*>(tensor)->view;
  }
  void launch_frame(uint32_t op, void* frame);
  bool has_kernel(uint32_t op, void* frame);
  void ask(const Frame& frame);
  void find_kernel(const Frame& frame);
  void run(const Frame& frame);
  bp_buffer_ref allocate(uint64_t size_bytes);
  View constant_bytes(const void* values, size_t size, bp_dtype dtype, int64_t count);

  Device& device_;
  bp_stream* stream_ = nullptr;
  bool is_dry_ = false;
  uintptr_t next_fake_ = 0;
  std::deque<Slot> slots_;
  std::vector<bp_block*> blocks_;        // Of the node.
  std::vector<bp_block*> graph_blocks_;  // Of the graph.
  std::map<std::string, Shared> shared_;
  std::map<std::string, bp_block*> constants_;
};

}  // namespace bpg
