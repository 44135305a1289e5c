#include "emitter.h"

#include <algorithm>
#include <cstring>

#include "backplane/transfers.h"
#include "log.h"
#include "op_info.h"

namespace bpg {
// A frame with what the description of its op says.
struct Emitter::Frame {
  uint32_t op;
  void* args;
  const OpInfo& info;

  template <typename Fn>
  void for_each_input(const Fn& fn) const {
    for (const OpInfo::Argument& argument : info.inputs) {
      const auto* place = static_cast<const std::byte*>(args) + argument.offset;
      if (!argument.is_list) {
        const bp_tensor* tensor = *reinterpret_cast<const bp_tensor* const*>(place);
        if (tensor != nullptr) fn(argument, tensor);
        continue;
      }
      const uint64_t count = *(reinterpret_cast<const uint64_t*>(place) - 1);
      const auto* list = *reinterpret_cast<const bp_tensor* const* const*>(place);
      for (uint64_t i = 0; i < count; ++i) fn(argument, list[i]);
    }
  }

  template <typename Fn>
  void for_each_tensor(const Fn& fn) const {
    for_each_input([&](const OpInfo::Argument&, const bp_tensor* tensor) { fn(tensor); });
    for (const OpInfo::Argument& argument : info.outputs) {
      const auto* place = static_cast<const std::byte*>(args) + argument.offset;
      const bp_tensor* tensor = *reinterpret_cast<const bp_tensor* const*>(place);
      if (tensor != nullptr) fn(tensor);
    }
  }
};

Emitter::~Emitter() {
  end_graph();
  for (const auto& [key, block] : constants_) bp_block_free(block);
}

// ---- Tensors ------------------------------------------------------------------------------------

View Emitter::bytes(const ggml_tensor* t) const {
  View y;
  if (is_dry_) {
    // Nothing has memory yet. Views of one tensor share its name, so that overlaps are found.
    y.buffer = reinterpret_cast<bp_buffer*>(
        const_cast<ggml_tensor*>(t->view_src != nullptr ? t->view_src : t));
    y.byte_offset = t->view_src != nullptr ? t->view_offs : 0;
  } else {
    const bp_buffer_ref place = place_of(t);
    y.buffer = place.buffer;
    y.byte_offset = place.byte_offset;
  }
  y.dtype = BP_U8;
  y.ndim = GGML_MAX_DIMS;
  for (int i = 0; i < GGML_MAX_DIMS; ++i) {
    y.shape[3 - i] = t->ne[i];
    y.strides[3 - i] = static_cast<int64_t>(t->nb[i]);
  }
  y.shape[3] = static_cast<int64_t>(ggml_row_size(t->type, t->ne[0]));
  y.strides[3] = 1;
  return y;
}

View Emitter::tensor(const ggml_tensor* t) const {
  View y = bytes(t);
  y.dtype = dtype_of(t->type);
  if (y.dtype == 0) {
    throw Refusal(std::string("no dtype stands for ") + ggml_type_name(t->type));
  }
  const auto size = static_cast<size_t>(y.element_bytes());
  for (int i = 0; i < GGML_MAX_DIMS; ++i) {
    if (t->ne[i] != 1 && t->nb[i] % size != 0) {
      throw Refusal("a stride is no multiple of the size of an element");
    }
    y.strides[3 - i] = static_cast<int64_t>(t->nb[i] / size);
  }
  y.shape[3] = t->ne[0];
  return y;
}

View Emitter::in_blocks(const View& bytes, ggml_type type, const Shape& shape) const {
  const BlockFormat* const format = block_format(type);
  if (format == nullptr) {
    throw Refusal(std::string("Backplane has no layout for ") + ggml_type_name(type));
  }
  View y = dense(bytes.buffer, bytes.byte_offset, BP_F32, shape);
  y.layout = device_.blocks(*format, shape);
  return y;
}

View Emitter::blocks(const ggml_tensor* t, uint64_t begin, const Shape& shape) const {
  View raw = bytes(t);
  raw.byte_offset += begin;
  return in_blocks(raw, t->type, shape);
}

View Emitter::upload(const std::vector<int32_t>& numbers) {
  const uint64_t size = numbers.size() * sizeof(int32_t);
  const bp_buffer_ref place = allocate(size);
  if (!is_dry_) {
    check(bp_block_upload(blocks_.back(), 0, numbers.data(), size, stream_, nullptr, nullptr),
          "block_upload");
  }
  return dense(place.buffer, place.byte_offset, BP_I32, {static_cast<int64_t>(numbers.size())});
}

std::vector<int64_t> Emitter::read(const View& numbers) {
  if (is_dry_) return {};
  std::vector<int64_t> wide(numbers.count());
  std::vector<int32_t> narrow(numbers.dtype == BP_I32 ? wide.size() : 0);
  void* const to = narrow.empty() ? static_cast<void*>(wide.data()) : narrow.data();
  const bp_buffer_ref from{numbers.buffer, numbers.byte_offset,
                           wide.size() * numbers.element_bytes()};
  const bp_allocator_ops* const memory = device_.target->allocator;
  check(memory->copy_to_host(memory->self, stream_, to, &from, BP_BORROW_DURING_CALL, UINT64_MAX),
        "allocator.copy_to_host");
  std::copy(narrow.begin(), narrow.end(), wide.begin());
  return wide;
}

bp_buffer_ref Emitter::allocate(uint64_t size_bytes) {
  if (is_dry_) {
    // Numbers that no tensor has as its address.
    return {reinterpret_cast<bp_buffer*>(++next_fake_), 0, size_bytes};
  }
  bp_block* block = nullptr;
  check(bp_block_allocate(device_.target, stream_, size_bytes, &block), "block_allocate");
  blocks_.push_back(block);
  return block->ref;
}

View Emitter::temporary(bp_dtype dtype, const Shape& shape) {
  View y = dense(nullptr, 0, dtype, shape);
  const bp_buffer_ref place =
      allocate(std::max<uint64_t>(static_cast<uint64_t>(y.count()) * y.element_bytes(), 1));
  y.buffer = place.buffer;
  y.byte_offset = place.byte_offset;
  return y;
}

View Emitter::temporary_blocks(const BlockFormat& format, const Shape& shape) {
  View y = dense(nullptr, 0, BP_F32, shape);
  y.layout = device_.blocks(format, shape);
  const bp_buffer_ref place = allocate(y.layout->physical_size_bytes);
  y.buffer = place.buffer;
  y.byte_offset = place.byte_offset;
  return y;
}

View Emitter::constant_bytes(const void* values, size_t size, bp_dtype dtype, int64_t count) {
  if (is_dry_) return dense(allocate(size).buffer, 0, dtype, {count});
  bp_block*& block = constants_[std::string(static_cast<const char*>(values), size)];
  if (block == nullptr) {
    check(bp_block_allocate(device_.target, stream_, size, &block), "block_allocate");
    check(bp_block_upload(block, 0, values, size, stream_, nullptr, nullptr), "block_upload");
  }
  return dense(block->ref.buffer, block->ref.byte_offset, dtype, {count});
}

View Emitter::constant(const std::vector<float>& values) {
  return constant_bytes(values.data(), values.size() * sizeof(float), BP_F32,
                        static_cast<int64_t>(values.size()));
}

View Emitter::constant(const std::vector<int32_t>& values) {
  return constant_bytes(values.data(), values.size() * sizeof(int32_t), BP_I32,
                        static_cast<int64_t>(values.size()));
}

const Emitter::Shared* Emitter::find_shared(const std::string& key) const {
  const auto found = shared_.find(key);
  return found == shared_.end() ? nullptr : &found->second;
}

// All memory of the node is kept: the views lie in it.
void Emitter::keep_shared(const std::string& key, Shared views) {
  shared_[key] = std::move(views);
  graph_blocks_.insert(graph_blocks_.end(), blocks_.begin(), blocks_.end());
  blocks_.clear();
}

void Emitter::end_node() {
  for (bp_block* block : blocks_) bp_block_free(block);
  blocks_.clear();
  slots_.clear();
}

void Emitter::end_graph() {
  end_node();
  for (bp_block* block : graph_blocks_) bp_block_free(block);
  graph_blocks_.clear();
  shared_.clear();
}

const bp_tensor* Emitter::arg(const View& x) {
  Slot& slot = slots_.emplace_back();
  slot.view = x;
  bp_tensor& tensor = slot.tensor;
  tensor = bp_tensor{};
  tensor.buffer = x.buffer;
  tensor.byte_offset = x.byte_offset;
  tensor.shape = slot.view.shape.data();
  tensor.strides = slot.view.strides.data();
  tensor.ndim = x.ndim;
  tensor.dtype = x.dtype;
  tensor.layout = x.layout;
  return &tensor;
}

// ---- Launches -----------------------------------------------------------------------------------

void Emitter::launch_frame(uint32_t op, void* args) {
  const Frame frame{op, args, op_info(op)};
  // An output that overlaps an input must be the input, where the op allows that. Else it is
  // written beside, and copied: ggml hands memory on to nodes that read it.
  std::vector<std::pair<View, View>> copies;
  for (const OpInfo::Argument& argument : frame.info.outputs) {
    auto& place =
        *reinterpret_cast<const bp_tensor**>(static_cast<std::byte*>(args) + argument.offset);
    if (place == nullptr) continue;
    const View& out = view_of(place);
    bool is_beside = false;
    frame.for_each_input([&](const OpInfo::Argument& input, const bp_tensor* tensor) {
      const View& in = view_of(tensor);
      if (is_beside || !overlap(out, in)) return;
      const bool may_alias = (argument.may_alias >> input.index & 1) != 0;
      is_beside = !may_alias || !same_elements(out, in);
    });
    if (!is_beside) continue;
    const View beside = temporary(out.dtype, out.dims());
    copies.emplace_back(beside, out);
    place = arg(beside);
  }
  is_dry_ ? ask(frame) : run(frame);
  for (const auto& [from, to] : copies) copy(from, to);
}

void Emitter::ask(const Frame& frame) {
  bool has_layout = false;
  frame.for_each_input([&](const OpInfo::Argument&, const bp_tensor* tensor) {
    has_layout = has_layout || tensor->layout != nullptr;
  });
  // bp_op_check() takes a tensor in a layout for one by strides, whose bytes reach further.
  bp_op_output outputs[8];
  uint32_t count = 0;
  const bp_status legal = has_layout ? bp_op_infer(frame.op, frame.args, 8, outputs, &count)
                                     : bp_op_check(frame.op, frame.args);
  if (legal != BP_OK) throw Refusal(bp_error_text());
  // supports() of a kernel may look into a buffer, and these are no buffers.
  frame.for_each_tensor(
      [](const bp_tensor* tensor) { const_cast<bp_tensor*>(tensor)->buffer = nullptr; });
  const auto give_back = [&] {
    frame.for_each_tensor([](const bp_tensor* tensor) {
      const_cast<bp_tensor*>(tensor)->buffer = view_of(tensor).buffer;
    });
  };
  try {
    find_kernel(frame);
  } catch (const Refusal&) {
    give_back();
    throw;
  }
  give_back();
}

// Throws Refusal if the device does not compute the call, with its own kernel or with others.
void Emitter::find_kernel(const Frame& frame) {
  const bp_target* const target = device_.target;
  if (bp_op_check_kernels(target, 0, 0, frame.op, frame.args) != BP_OK) {
    throw Refusal(bp_error_text());
  }
}

bool Emitter::has_kernel(uint32_t op, void* args) {
  const Frame frame{op, args, op_info(op)};
  try {
    is_dry_ ? ask(frame) : find_kernel(frame);
  } catch (const Refusal&) {
    return false;
  }
  return true;
}

void Emitter::run(const Frame& frame) {
  check(bp_op_launch(device_.target, stream_, 0, frame.op, frame.args), bp_op_name(frame.op));
}

}  // namespace bpg
