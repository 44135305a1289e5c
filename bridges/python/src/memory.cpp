// Elements to and from memory of Python: the buffer protocol, and copies.
#include <cstring>
#include <memory>

#include "backplane/blocks.h"
#include "backplane/dlpack.h"
#include "binding.hpp"
#include "buffer.hpp"

namespace bp::python {
namespace {

// What a view of the buffer protocol keeps.
struct View {
  Tensor tensor;
  std::vector<Py_ssize_t> shape, strides;
  void* data = nullptr;
};

constexpr int32_t kDlpackHost = 1;

// Returns the address of the first element of a tensor in memory of the process.
void* address_of(const Tensor& tensor) {
  const bp_target& target = tensor.device().target();
  const bp_dlpack_export_desc desc{.struct_size = sizeof(bp_dlpack_export_desc),
                                   .struct_type = BP_STRUCT_DLPACK_EXPORT_DESC,
                                   .next = nullptr,
                                   .tensor = tensor.get(),
                                   .flags = 0,
                                   .release = nullptr,
                                   .user_data = nullptr};
  bp_dlpack_managed* managed = nullptr;
  check_host(bp_dlpack_export(&target, &desc, &managed));
  void* const data = static_cast<char*>(managed->tensor.data) + managed->tensor.byte_offset;
  managed->deleter(managed);
  return data;
}

void check_buffer(const Tensor& t) {
  const auto refuse = [](const std::string& message) { raise(PyExc_BufferError, message); };
  if (t.requires_grad()) refuse("the tensor requires a gradient; use tensor.detach() first");
  if (t.device().target().properties->dlpack_device_type != kDlpackHost) {
    refuse("the tensor is on " + std::string(t.device().name()) +
           ", whose memory is not that of the process; use numpy.asarray(tensor), which copies");
  }
  if (format_of(t.dtype()) == nullptr) {
    refuse("the buffer protocol has no format for " + dtype_text(t.dtype()) +
           "; use tensor.to('f32') first");
  }
}

std::unique_ptr<View> make_view(const Tensor& t) {
  check_process();
  check_buffer(t);
  auto view = std::make_unique<View>();
  view->tensor = t;
  const auto item_bytes = static_cast<Py_ssize_t>(t.element_bits() / 8);
  for (const int64_t extent : t.shape()) view->shape.push_back(extent);
  for (const int64_t stride : t.strides()) view->strides.push_back(stride * item_bytes);
  const Released released;
  synchronize_stream(t.device());
  view->data = address_of(t);
  return view;
}

bool is_allowed(const Tensor& t, int flags) {
  const bool takes_strides = (flags & PyBUF_STRIDES) == PyBUF_STRIDES;
  const bool wants_rows = (flags & PyBUF_C_CONTIGUOUS) == PyBUF_C_CONTIGUOUS || !takes_strides;
  return !wants_rows || t.is_contiguous();
}

int get_buffer(PyObject* self, Py_buffer* out, int flags) {
  out->obj = nullptr;
  try {
    const Tensor& t = tensor_of(self);
    if (!is_allowed(t, flags)) {
      raise(PyExc_BufferError, "the elements do not lie row-major; use tensor.contiguous() first");
    }
    std::unique_ptr<View> view = make_view(t);
    out->buf = view->data;
    out->len = static_cast<Py_ssize_t>(t.size_bytes());
    out->itemsize = static_cast<Py_ssize_t>(t.element_bits() / 8);
    out->readonly = 0;
    out->ndim = static_cast<int>(t.ndim());
    out->format = (flags & PyBUF_FORMAT) != 0 ? const_cast<char*>(format_of(t.dtype())) : nullptr;
    out->shape = (flags & PyBUF_ND) != 0 ? view->shape.data() : nullptr;
    out->strides = (flags & PyBUF_STRIDES) == PyBUF_STRIDES ? view->strides.data() : nullptr;
    out->suboffsets = nullptr;
    out->internal = view.release();
    out->obj = Py_NewRef(self);
    return 0;
  } catch (...) {
    set_python_error();
    return -1;
  }
}

void release_buffer(PyObject*, Py_buffer* buffer) { delete static_cast<View*>(buffer->internal); }

// ---- Copies -------------------------------------------------------------------------------------

Tensor from_bytes(nb::handle source, nb::handle shape, nb::handle dtype, nb::handle device) {
  const std::vector<int64_t> extents = to_ints(shape, "shape");
  const bp_dtype of = to_dtype(dtype, "dtype");
  const Device on = to_device(device, "device");
  Py_buffer view;
  if (PyObject_GetBuffer(source.ptr(), &view, PyBUF_C_CONTIGUOUS) != 0) throw nb::python_error();
  const std::unique_ptr<Py_buffer, void (*)(Py_buffer*)> held(&view, PyBuffer_Release);
  const Released released;
  Tensor tensor = empty(extents, of, on);
  tensor.copy_from_host(view.buf, static_cast<uint64_t>(view.len));
  return tensor;
}

nb::object to_bytes(const Tensor& t) {
  check_process();
  PyObject* bytes = PyByteArray_FromStringAndSize(nullptr, static_cast<Py_ssize_t>(t.size_bytes()));
  if (bytes == nullptr) throw nb::python_error();
  nb::object result = nb::steal(bytes);
  char* const data = PyByteArray_AS_STRING(bytes);
  const Released released;
  t.copy_to_host(data, t.size_bytes());
  return result;
}

// ---- Bits ---------------------------------------------------------------------------------------

void release_base(void* base) { delete static_cast<Tensor*>(base); }

// Returns the bytes of the tensor as elements of another dtype. It shares the memory.
Tensor reinterpret(const Tensor& t, nb::handle dtype) {
  check_process();
  const bp_dtype of = to_dtype(dtype, "dtype");
  if (bp_dtype_bits(of) != t.element_bits() || !t.is_contiguous() || t.requires_grad()) {
    throw Error(
        BP_INVALID_ARGUMENT,
        "reinterpret: allowed are a row-major tensor that requires no gradient, and a dtype "
        "of as many bits; use contiguous() and detach()");
  }
  bp_tensor view = *t.get();
  view.dtype = of;
  if (t.numel() == 0) return empty(t.shape(), of, t.device());
  auto base = std::make_unique<Tensor>(t);
  bp_block_wrap_desc desc{};
  desc.struct_size = sizeof(desc);
  desc.struct_type = BP_STRUCT_BLOCK_WRAP_DESC;
  desc.ref = {view.buffer, view.byte_offset, t.size_bytes()};
  desc.release = &release_base;
  desc.user_data = base.get();
  const bp_target& target = t.device().target();
  bp_block* block = nullptr;
  check_host(bp_block_wrap(&target, current_stream(target), &desc, &block));
  static_cast<void>(base.release());  // The block ends it.
  return from_block(block, view, t.device());
}

}  // namespace

PyType_Slot buffer_slots[] = {
    {Py_bf_getbuffer, reinterpret_cast<void*>(&get_buffer)},
    {Py_bf_releasebuffer, reinterpret_cast<void*>(&release_buffer)},
    {0, nullptr},
};

const char* format_of(bp_dtype dtype) {
  static constexpr struct {
    bp_dtype dtype;
    const char* format;
  } kFormats[] = {{BP_BOOL, "?"}, {BP_I8, "b"},  {BP_I16, "h"}, {BP_I32, "i"},
                  {BP_I64, "q"},  {BP_U8, "B"},  {BP_U16, "H"}, {BP_U32, "I"},
                  {BP_U64, "Q"},  {BP_F16, "e"}, {BP_F32, "f"}, {BP_F64, "d"}};
  for (const auto& row : kFormats) {
    if (row.dtype == dtype) return row.format;
  }
  return nullptr;
}

void bind_memory(nb::module_& module) {
  module.def("from_bytes", &from_bytes, nb::arg("source"), nb::arg("shape"), nb::arg("dtype"),
             nb::arg("device"),
             "Copies row-major elements from an object with a buffer, such as bytes.");
  module.def(
      "to_bytes", &to_bytes, nb::arg("tensor"),
      "Copies the elements, row-major, to a bytearray. It waits for the work on the tensor.");
  module.def("reinterpret", &reinterpret, nb::arg("tensor"), nb::arg("dtype"),
             "The bits of the elements as another dtype of as many bits. It shares the memory.");
  module.def(
      "empty",
      [](nb::handle shape, nb::handle dtype, nb::handle device) {
        const std::vector<int64_t> extents = to_ints(shape, "shape");
        const bp_dtype of = to_dtype(dtype, "dtype");
        const Device on = to_device(device, "device");
        const Released released;
        return empty(extents, of, on);
      },
      nb::arg("shape"), nb::arg("dtype"), nb::arg("device"),
      "A tensor whose elements are undefined.");
}

}  // namespace bp::python
