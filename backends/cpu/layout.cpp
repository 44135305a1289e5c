// bp_layout_ops of the CPU backend: weights in the blocks that oneDNN reads, and the blocks that
// files hold. A conversion goes through dense rows, in host memory that the task allocates for
// itself.
#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <new>
#include <optional>
#include <string>

#include "backends/cpu/blocked_weight.hpp"
#include "backends/cpu/device.hpp"
#include "backends/cpu/full_instance.hpp"
#include "backends/cpu/memory.hpp"
#include "backends/cpu/profiler.hpp"
#include "backends/host_kernels/block_codec.hpp"
#include "backends/host_kernels/inner_product.hpp"
#include "backends/host_kernels/strided.hpp"
#include "backplane/shell/frame.hpp"
#include "backplane/shell/layout_front.hpp"
#include "backplane/shell/lookup.hpp"
#include "backplane/shell/shape.hpp"

namespace bp::cpu {
namespace {

using kernels::View;

constexpr uint64_t kAlignmentBytes = 64;

// ---- Conversions --------------------------------------------------------------------------------

struct FreeHost {
  void operator()(std::byte* memory) const { std::free(memory); }
};
using HostMemory = std::unique_ptr<std::byte, FreeHost>;

HostMemory take_host_memory(uint64_t size_bytes) {
  const uint64_t rounded = (size_bytes + kAlignmentBytes) / kAlignmentBytes * kAlignmentBytes;
  HostMemory memory(static_cast<std::byte*>(std::aligned_alloc(kAlignmentBytes, rounded)));
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}

void run_reorder(const kernels::Program& program, std::byte* from, std::byte* to) {
  const HostMemory workspace = take_host_memory(program.workspace_size_bytes());
  void* const externals[] = {from, to};
  program.run(externals, workspace.get());
}

// One side of a conversion. Its elements lie by strides, in the blocks of oneDNN or in those of a
// file. `reorder` then converts between oneDNN's blocks and dense rows.
struct Side {
  View view;  // If the side has blocks, only shape and address are used.
  std::shared_ptr<const kernels::Program> reorder;
  const BlockFormat* format = nullptr;

  bool has_strides() const { return reorder == nullptr && format == nullptr; }
  bool is_dense() const { return has_strides() && kernels::is_contiguous(view); }

  void write_dense(std::byte* dense, int64_t item_bytes, int thread_count) const {
    if (reorder != nullptr) {
      run_reorder(*reorder, view.address, dense);
    } else if (format != nullptr) {
      kernels::decode_blocks(*format, view.address, reinterpret_cast<float*>(dense),
                             kernels::element_count(view), thread_count);
    } else {
      kernels::copy_elements(view, kernels::dense_view(view, dense), item_bytes, thread_count);
    }
  }

  void read_dense(std::byte* dense, int64_t item_bytes, int thread_count) const {
    if (reorder != nullptr) {
      run_reorder(*reorder, dense, view.address);
    } else if (format != nullptr) {
      kernels::encode_blocks(*format, reinterpret_cast<const float*>(dense), view.address,
                             kernels::element_count(view), thread_count);
    } else {
      kernels::copy_elements(kernels::dense_view(view, dense), view, item_bytes, thread_count);
    }
  }
};

// What the task of a conversion holds.
struct Job {
  Side dst, src;
  int64_t item_bytes;
  int thread_count;

  void run() const {
    if (dst.has_strides() && src.has_strides()) {
      kernels::copy_elements(src.view, dst.view, item_bytes, thread_count);
      return;
    }
    const int64_t count = kernels::element_count(src.view);
    if (src.format != nullptr && src.format == dst.format) {
      const int64_t size_bytes = count / src.format->elements * src.format->bytes;
      std::memmove(dst.view.address, src.view.address, static_cast<size_t>(size_bytes));
      return;
    }
    if (dst.is_dense()) {
      src.write_dense(dst.view.address, item_bytes, thread_count);
      return;
    }
    HostMemory staging;
    std::byte* dense = src.view.address;
    if (!src.is_dense()) {
      staging = take_host_memory(static_cast<uint64_t>(count * item_bytes));
      dense = staging.get();
      src.write_dense(dense, item_bytes, thread_count);
    }
    dst.read_dense(dense, item_bytes, thread_count);
  }
};

// Returns the address of `tensor`. Throws StatusError unless all bytes that it spans lie in its
// buffer.
std::byte* checked_address(const bp_tensor& tensor, const char* what) {
  const std::string name = std::string("layout.convert: ") + what;
  if (tensor.buffer == nullptr) return nullptr;
  const Buffer* const b = buffer(tensor.buffer);
  if (b == nullptr) refuse(BP_INVALID_ARGUMENT, name + ": buffer is not one of this backend");
  extent_in_buffer(tensor, b->size_bytes, name.c_str());
  return b->address + tensor.byte_offset;
}

// Makes one side. If `is_dst` is true, the reorder writes dense rows into the blocks, else it
// writes the blocks to dense rows.
Side make_side(const FullInstance& i, const bp_tensor& tensor,
               const std::optional<LayoutForm>& form, bool is_dst) {
  Side side;
  side.view.address = checked_address(tensor, is_dst ? "dst" : "src");
  side.view.ndim = tensor.ndim;
  std::copy_n(tensor.shape, tensor.ndim, side.view.shape);
  if (!form) {
    std::copy_n(tensor.strides, tensor.ndim, side.view.strides);
    return side;
  }
  if (form->kind == BP_LAYOUT_KIND_QUANTIZED) {
    side.format = find_block_format(form->variant);
    return side;
  }
  const dnnl::memory::desc blocks = blocks_of(i, *form);
  // The shape of a weight is (columns, depth); the weight of matmul has (depth, columns).
  const bool is_linear = form->variant == kWeightOfLinear;
  const int64_t rows = form->shape[0], cols = form->shape[1];
  const dnnl::memory::desc dense =
      is_linear ? dnnl::memory::desc({rows, cols}, dnnl::memory::data_type::f32,
                                     dnnl::memory::dims{cols, 1})
                : dnnl::memory::desc({cols, rows}, dnnl::memory::data_type::f32,
                                     dnnl::memory::dims{1, cols});
  const int thread_count = i.device->thread_count();
  side.reorder = is_dst ? kernels::make_packer(dense, blocks, thread_count)
                        : kernels::make_packer(blocks, dense, thread_count);
  return side;
}

struct LayoutTraits : Cards<FullInstance, Device> {
  static constexpr int64_t kMostItemBytes = 8;  // copy_elements() takes no larger ones.
  static constexpr bool kConvertsPacked = false;

  static const Stream& stream_of(bp_stream* handle, const char* call) {
    return cpu::stream_of(handle, call);
  }

  static LayoutFacts facts_of(const FullInstance& i, const LayoutForm& form) {
    if (form.kind == BP_LAYOUT_KIND_QUANTIZED) return block_facts(form);
    return {"blocks of a weight", blocks_of(i, form).get_size(), kAlignmentBytes};
  }

  static std::optional<LayoutForm> described_form(const FullInstance&, const bp_layout_desc& desc) {
    if (desc.kind != BP_LAYOUT_KIND_QUANTIZED) return std::nullopt;
    return block_form(desc);
  }

  static std::string described_layouts(const FullInstance&) { return block_format_names(); }

  static std::optional<LayoutForm> preferred_form(const FullInstance& i,
                                                  const LayoutQuestion& question) {
    if (question.argument != 1) return std::nullopt;
    return find_preferred_form(i, question.kernel, question.args);
  }

  static bp_status convert(const FullInstance& i, const Stream& stream,
                           const Conversion& conversion) {
    const auto& [dst, src, dst_form, src_form] = conversion;
    kernels::check_encodes(dst_form, src_form);
    if (element_count(dst) == 0) {
      return submit_work(i, stream, {BP_ACTIVITY_COPY, "convert"}, {}, [] {});
    }
    const int64_t item_bytes = dtype_size_bytes(dst.dtype);
    const Job job{make_side(i, dst, dst_form, true), make_side(i, src, src_form, false), item_bytes,
                  i.device->thread_count()};
    const auto bytes = static_cast<uint64_t>(2 * element_count(dst) * item_bytes);
    return submit_work(i, stream, {BP_ACTIVITY_COPY, "convert", bytes}, {}, [job] { job.run(); });
  }
};

// Names the version of oneDNN and the processor, because both decide which blocks are chosen.
std::string identity() {
  const dnnl_version_t& version = *dnnl_version();
  return "backplane.cpu 0.1.0, blocks 1, oneDNN " + std::to_string(version.major) + "." +
         std::to_string(version.minor) + "." + std::to_string(version.patch) + " " +
         std::string(version.hash).substr(0, 12) + ", instructions " +
         std::to_string(static_cast<int>(dnnl::get_effective_cpu_isa()));
}

}  // namespace

void make_layouts(FullInstance& i) {
  i.weights = std::make_unique<BlockedWeights>();
  offer_layouts<LayoutTraits>(i, identity());
  put_blocked_products(i);
}

}  // namespace bp::cpu
