// What a backend with layouts of its own puts in front of the host: the table of layouts, and
// functions of kernels that also take arguments in such layouts.
//
//   offer_layouts<LayoutTraits>(instance, "backplane.sim 0.1.0, tiles 1");
//   LayoutKernel<TiledTraits>::put(kernel);
#pragma once

#include <algorithm>
#include <exception>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "backplane/ops.h"
#include "backplane/shell/block_layout.hpp"
#include "backplane/shell/capture.hpp"
#include "backplane/shell/entry.hpp"
#include "backplane/shell/frame.hpp"
#include "backplane/shell/layout.hpp"
#include "backplane/shell/shape.hpp"

namespace bp {

// ---- The table ----------------------------------------------------------------------------------

// What preferred() asks. The frame `args` is one of `kernel`, which the instance registered.
struct LayoutQuestion {
  const bp_kernel& kernel;
  uint32_t argument;
  const bp_tensor* tensor;  // The argument; NULL if it is not given, or is a list.
  const void* args;
};

// The table of layouts. `Traits` describes the layouts of a backend. It has these types and static
// members:
//   Instance                             the self of the table; it has host, kernels, captures,
//                                        layouts and layout_table
//   kMostItemBytes                       the size of the largest element that is converted
//   kConvertsPacked                      whether elements of less than a byte are converted too
//   device_of(instance, handle, call)    as in device_ops.hpp
//   stream_of(handle, call)              as in stream_ops.hpp
//   facts_of(instance, form)             as in layout.hpp
//   preferred_form(instance, question)   the form that the kernel prefers, if it prefers one
//   described_form(instance, desc)       the form of a description that read_layout_desc() gave, if
//                                        the backend has such a layout
//   described_layouts(instance)          the layouts that it has, for a text
//   convert(instance, stream, conversion)
//                                        submits a conversion, which may have no elements
template <typename Traits>
class LayoutOps {
 public:
  static constexpr bp_layout_ops table() {
    return {.struct_size = sizeof(bp_layout_ops),
            .struct_type = BP_STRUCT_LAYOUT_OPS,
            .preferred = preferred,
            .from_blob = from_blob,
            .equal = equal,
            .retain = retain,
            .release = release,
            .convert = convert,
            .from_desc = from_desc};
  }

  // Returns the kernel, without its state, that stands for a conversion in a capture. The host
  // never sees it.
  static constexpr bp_kernel conversion() {
    return {.struct_size = sizeof(bp_kernel),
            .struct_type = BP_STRUCT_KERNEL,
            .name = "layout.convert",
            .op = BP_OP_COPY,
            .args_size_bytes = sizeof(bp_copy_args),
            .flags = BP_KERNEL_CAPTURABLE,
            .launch = replay};
  }

 private:
  using Instance = typename Traits::Instance;

  static Layouts& layouts_of(void* self) { return *static_cast<Instance*>(self)->layouts; }

  static bp_status preferred(void* self, bp_device* device, const bp_kernel* kernel,
                             uint32_t argument, const void* args, const bp_layout** out_layout) {
    return entry<Instance>(self, [&](const Instance& i) -> bp_status {
      static_cast<void>(Traits::device_of(i, device, "layout.preferred"));
      require(kernel, "layout.preferred: kernel");
      require(args, "layout.preferred: args");
      require(out_layout, "layout.preferred: out_layout");
      const bp_layout* layout = nullptr;
      // A kernel that was not registered here is the kernel of a compiled program, which takes
      // strides.
      const bool is_own =
          std::ranges::any_of(i.kernels, [&](const bp_kernel& own) { return &own == kernel; });
      if (is_own) {
        const bp_tensor* const tensor =
            tensor_argument(kernel->op, args, argument, "layout.preferred");
        const std::optional<LayoutForm> form =
            Traits::preferred_form(i, LayoutQuestion{*kernel, argument, tensor, args});
        if (form) layout = i.layouts->make(*form);
      }
      *out_layout = layout;
      return BP_OK;
    });
  }

  static bp_status from_blob(void* self, bp_device* device, const void* blob,
                             uint64_t blob_size_bytes, const bp_layout** out_layout) {
    return entry<Instance>(self, [&](const Instance& i) {
      static_cast<void>(Traits::device_of(i, device, "layout.from_blob"));
      return i.layouts->from_blob(blob, blob_size_bytes, out_layout);
    });
  }

  static bp_status from_desc(void* self, bp_device* device, const bp_layout_desc* desc,
                             const bp_layout** out_layout) {
    return entry<Instance>(self, [&](const Instance& i) -> bp_status {
      static_cast<void>(Traits::device_of(i, device, "layout.from_desc"));
      require(out_layout, "layout.from_desc: out_layout");
      *out_layout = i.layouts->from_desc(desc, "layout.from_desc: desc");
      return BP_OK;
    });
  }

  static bp_status equal(void* self, const bp_layout* a, const bp_layout* b, uint32_t* out_equal) {
    return layouts_of(self).equal(a, b, out_equal);
  }
  static bp_status retain(void* self, const bp_layout* layout) {
    return layouts_of(self).retain(layout);
  }
  static bp_status release(void* self, const bp_layout* layout) {
    return layouts_of(self).release(layout);
  }

  static bp_status convert(void* self, bp_stream* handle, const bp_tensor* dst,
                           const bp_tensor* src) {
    return entry<Instance>(self, [&](const Instance& i) -> bp_status {
      auto& stream = Traits::stream_of(handle, "layout.convert");
      const Conversion conversion = read_conversion(i, dst, src);
      if (i.captures->is_capturing(handle)) return capture(i, handle, dst, src);
      return Traits::convert(i, stream, conversion);
    });
  }

  static Conversion read_conversion(const Instance& i, const bp_tensor* dst, const bp_tensor* src) {
    const Conversion conversion = i.layouts->read_conversion(dst, src);
    const int64_t item_bits = dtype_size_bits(dst->dtype);
    const int64_t least = Traits::kConvertsPacked ? 1 : 8, most = 8 * Traits::kMostItemBytes;
    if (item_bits < least || item_bits > most) {
      refuse(BP_UNSUPPORTED, "layout.convert: dtype " + std::to_string(dst->dtype) +
                                 " is not converted; allowed are dtypes whose elements have " +
                                 (least == 1 ? "at most " : "1 to ") +
                                 std::to_string(Traits::kMostItemBytes) + " bytes");
    }
    return conversion;
  }

  // Keeps a conversion in the capture, as a launch of Layouts::conversion_kernel.
  static bp_status capture(const Instance& i, bp_stream* stream, const bp_tensor* dst,
                           const bp_tensor* src) {
    const bp_copy_args args{.struct_size = sizeof(args), .x = src, .y = dst};
    const bp_launch launch{.stream = stream};
    return i.captures->launch(i.layouts->conversion_kernel, launch, &args, [] { return BP_OK; });
  }

  // Replays a conversion that a capture has kept.
  static bp_status replay(const bp_kernel* self, const bp_launch* launch, const void* args) {
    const auto& frame = *static_cast<const bp_copy_args*>(args);
    return convert(self->state, launch->stream, frame.y, frame.x);
  }
};

// Makes the layouts of an instance, and fills their table. `identity` is as in LayoutBackend.
template <typename Traits>
void offer_layouts(typename Traits::Instance& i, const std::string& identity) {
  i.layouts = std::make_unique<Layouts>(LayoutBackend{
      .host = i.host,
      .identity = identity,
      .facts_of = [&i](const LayoutForm& form) { return Traits::facts_of(i, form); },
      .described_form = [&i](const bp_layout_desc& d) { return Traits::described_form(i, d); },
      .described_layouts = [&i] { return Traits::described_layouts(i); }});
  i.layout_table = LayoutOps<Traits>::table();
  i.layout_table.self = &i;
  i.layouts->conversion_kernel = LayoutOps<Traits>::conversion();
  i.layouts->conversion_kernel.state = &i;
}

// ---- Kernels ------------------------------------------------------------------------------------

// The functions of a kernel that passes calls by strides to the functions of a plain kernel.
// `Traits` serves calls that have layouts. It has these types and static members, where `self` is
// the kernel and `self.state` an Instance:
//   Instance                                 has fail() of HostedInstance
//   plain_kernel(self)                       the kernel by strides
//   has_layouts(self, args)                  whether an argument of the call has a layout
//   launch(self, launch, args)               a bp_status
//   workspace_size_bytes(self, device, flags, args)
//                                            may throw StatusError
//   supports(self, device, flags, args)      a bp_reason; throws StatusError if the kernel does not
//                                            take a layout of the call
template <typename Traits>
class LayoutKernel {
 public:
  // Replaces the functions of a kernel. Functions that the kernel lacks stay absent, except for
  // workspace_size(), and for supports() of a kernel that takes layouts alone: no claim says that a
  // layout is for the shape of its tensor. If the claims of a kernel are complete, the host calls
  // supports() only for layouts.
  static void put(bp_kernel& kernel, bool takes_layouts_alone = false) {
    kernel.launch = launch;
    kernel.workspace_size = workspace_size;
    if (kernel.supports != nullptr || takes_layouts_alone) kernel.supports = supports;
    if (kernel.prepare != nullptr) kernel.prepare = prepare;
  }

 private:
  using Instance = typename Traits::Instance;

  static bp_status launch(const bp_kernel* self, const bp_launch* launch, const void* args) {
    if (launch == nullptr || args == nullptr || !Traits::has_layouts(*self, args)) {
      return Traits::plain_kernel(*self).launch(self, launch, args);
    }
    return Traits::launch(*self, *launch, args);
  }

  static bp_status workspace_size(const bp_kernel* self, bp_device* device, bp_launch_flags flags,
                                  const void* args, uint64_t* out_required,
                                  uint64_t* out_preferred) {
    const auto give = [&](uint64_t size_bytes) -> bp_status {
      if (out_required != nullptr) *out_required = size_bytes;
      if (out_preferred != nullptr) *out_preferred = size_bytes;
      return BP_OK;
    };
    if (!Traits::has_layouts(*self, args)) {
      const bp_kernel& plain = Traits::plain_kernel(*self);
      if (plain.workspace_size == nullptr) return give(0);
      return plain.workspace_size(self, device, flags, args, out_required, out_preferred);
    }
    return entry<Instance>(self->state, [&](const Instance&) {
      return give(Traits::workspace_size_bytes(*self, device, flags, args));
    });
  }

  static bp_reason supports(const bp_kernel* self, bp_device* device, bp_launch_flags flags,
                            const void* args) {
    if (!Traits::has_layouts(*self, args)) {
      return Traits::plain_kernel(*self).supports(self, device, flags, args);
    }
    // supports() returns a reason and sets no error text, so the exception is caught here.
    try {
      return Traits::supports(*self, device, flags, args);
    } catch (const std::exception&) {
      return "the layout of an argument is not one that the kernel takes in this call";
    }
  }

  static bp_status prepare(const bp_kernel* self, bp_device* device, const bp_prepare_desc* desc,
                           const void* args, bp_plan** out_plan) {
    if (args == nullptr || !Traits::has_layouts(*self, args)) {
      return Traits::plain_kernel(*self).prepare(self, device, desc, args, out_plan);
    }
    return static_cast<const Instance*>(self->state)
        ->fail(BP_UNSUPPORTED, "no plan is of use: an argument has a layout");
  }
};

}  // namespace bp
