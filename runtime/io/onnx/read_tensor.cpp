#include "runtime/io/onnx/read_tensor.hpp"

#include <charconv>
#include <climits>
#include <cstring>

#include "registry/files/read_file.hpp"
#include "registry/tensors/strides.hpp"
#include "runtime/io/onnx/external_data.hpp"

namespace bp {
namespace {

struct DtypeRow {
  int32_t data_type;
  bp_dtype dtype;
  const char* name;
};
// The numbers of TensorProto.DataType. Strings have no dtype here.
constexpr DtypeRow kDtypes[] = {
    {1, BP_F32, "FLOAT"},
    {2, BP_U8, "UINT8"},
    {3, BP_I8, "INT8"},
    {4, BP_U16, "UINT16"},
    {5, BP_I16, "INT16"},
    {6, BP_I32, "INT32"},
    {7, BP_I64, "INT64"},
    {8, 0, "STRING"},
    {9, BP_BOOL, "BOOL"},
    {10, BP_F16, "FLOAT16"},
    {11, BP_F64, "DOUBLE"},
    {12, BP_U32, "UINT32"},
    {13, BP_U64, "UINT64"},
    {14, BP_C64, "COMPLEX64"},
    {15, BP_C128, "COMPLEX128"},
    {16, BP_BF16, "BFLOAT16"},
    {17, BP_F8E4M3FN, "FLOAT8E4M3FN"},
    {18, BP_F8E4M3FNUZ, "FLOAT8E4M3FNUZ"},
    {19, BP_F8E5M2, "FLOAT8E5M2"},
    {20, BP_F8E5M2FNUZ, "FLOAT8E5M2FNUZ"},
    {21, BP_U4, "UINT4"},
    {22, BP_I4, "INT4"},
    {23, BP_F4E2M1, "FLOAT4E2M1"},
    {24, BP_F8E8M0FNU, "FLOAT8E8M0"},
    {25, BP_U2, "UINT2"},
    {26, BP_I2, "INT2"},
};

}  // namespace

bp_dtype onnx_dtype(int32_t data_type) {
  for (const DtypeRow& row : kDtypes) {
    if (row.data_type == data_type) return row.dtype;
  }
  return 0;
}

namespace onnx {
namespace {

using ::onnx::TensorProto;

constexpr uint64_t kMaxFileBytes = INT_MAX;  // Protobuf allows no more.

[[noreturn]] void refuse(const std::string& what, const std::string& why) {
  throw Error(BP_INVALID_ARGUMENT, what + ": " + why);
}

bp_dtype dtype_of(const TensorProto& proto, const std::string& what) {
  const bp_dtype dtype = onnx_dtype(proto.data_type());
  if (dtype != 0) return dtype;
  if (proto.data_type() == TensorProto::STRING) {
    throw Error(BP_UNSUPPORTED, what + ": its data_type is STRING; tensors hold numbers alone");
  }
  refuse(what, "its data_type is " + std::to_string(proto.data_type()) + "; allowed: 1 to 26");
}

uint64_t parse_number(const std::string& text, const char* key, const std::string& what) {
  uint64_t number = 0;
  const char* const end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, number);
  if (error != std::errc() || rest != end || number > INT64_MAX) {
    refuse(what, std::string("its external data has the ") + key + " '" + text +
                     "'; allowed: a number of bytes from 0 on");
  }
  return number;
}

ExternalPlace place_of(const TensorProto& proto, const std::string& what) {
  ExternalPlace place;
  for (const auto& entry : proto.external_data()) {
    if (entry.key() == "location") place.location = entry.value();
    if (entry.key() == "offset") place.offset = parse_number(entry.value(), "offset", what);
    if (entry.key() == "length") {
      place.length = parse_number(entry.value(), "length", what);
      place.has_length = true;
    }
  }
  return place;
}

[[noreturn]] void refuse_count(const HostTensor& tensor, const char* field, int64_t given,
                               const std::string& what) {
  refuse(what, "its dims " + to_string(IntList(tensor.shape)) + " have " +
                   std::to_string(tensor.numel()) + " elements, but " + field + " has " +
                   std::to_string(given));
}

// Copies a field of `count` numbers, each converted to `To`.
template <typename To, typename Field>
void copy_numbers(const Field& field, const char* name, int64_t count, HostTensor& out,
                  const std::string& what) {
  if (field.size() != count) refuse_count(out, name, field.size(), what);
  out.bytes.resize(static_cast<size_t>(field.size()) * sizeof(To));
  for (int i = 0; i < field.size(); ++i) {
    const auto element = static_cast<To>(field.Get(i));
    std::memcpy(out.bytes.data() + static_cast<size_t>(i) * sizeof(To), &element, sizeof(To));
  }
}

// Does the same for a dtype of the bits of `To`.
template <typename To, typename Field>
void copy_field(const Field& field, const char* name, int64_t per_element, HostTensor& out,
                const std::string& what) {
  copy_numbers<To>(field, name, out.numel() * per_element, out, what);
}

// A number has a byte of elements of 2 or 4 bits, the first one in its low bits.
void read_int32_field(const TensorProto& proto, HostTensor& out, const std::string& what) {
  const uint32_t bits = bp_dtype_bits(out.dtype);
  const auto& field = proto.int32_data();
  if (bits == 32) return copy_field<int32_t>(field, "int32_data", 1, out, what);
  if (bits == 16) return copy_field<uint16_t>(field, "int32_data", 1, out, what);
  if (bits == 8) return copy_field<uint8_t>(field, "int32_data", 1, out, what);
  if (bits < 8) {
    const uint64_t bytes = tensors::packed_bytes(static_cast<uint64_t>(out.numel()), bits);
    return copy_numbers<uint8_t>(field, "int32_data", static_cast<int64_t>(bytes), out, what);
  }
  refuse(what, "elements of " + std::to_string(bits) + " bits are not in raw_data; use raw_data");
}

void read_typed_field(const TensorProto& proto, HostTensor& out, const std::string& what) {
  switch (out.dtype) {
    case BP_F32:
      return copy_field<float>(proto.float_data(), "float_data", 1, out, what);
    case BP_C64:
      return copy_field<float>(proto.float_data(), "float_data", 2, out, what);
    case BP_F64:
      return copy_field<double>(proto.double_data(), "double_data", 1, out, what);
    case BP_C128:
      return copy_field<double>(proto.double_data(), "double_data", 2, out, what);
    case BP_I64:
      return copy_field<int64_t>(proto.int64_data(), "int64_data", 1, out, what);
    case BP_U64:
      return copy_field<uint64_t>(proto.uint64_data(), "uint64_data", 1, out, what);
    case BP_U32:
      return copy_field<uint32_t>(proto.uint64_data(), "uint64_data", 1, out, what);
    default:
      return read_int32_field(proto, out, what);
  }
}

bool has_typed_field(const TensorProto& proto) {
  return proto.float_data_size() + proto.int32_data_size() + proto.int64_data_size() +
             proto.double_data_size() + proto.uint64_data_size() + proto.string_data_size() >
         0;
}

// Any byte but 0 is true in a file; a kernel may take 0 and 1 alone.
void normalise_bools(HostTensor& tensor) {
  if (tensor.dtype != BP_BOOL) return;
  for (uint8_t& byte : tensor.bytes) byte = byte != 0 ? 1 : 0;
}

}  // namespace

HostTensor read_tensor(const TensorProto& proto, const DataFolder& folder,
                       const std::string& what) {
  HostTensor out{dtype_of(proto, what), {proto.dims().begin(), proto.dims().end()}, {}};
  const int64_t count = count_or_negative(out.shape);
  if (count < 0) {
    refuse(what, "its dims are " + to_string(IntList(out.shape)) + "; allowed: up to " +
                     std::to_string(BP_MAX_RANK) + " extents from 0 on, whose product no tensor " +
                     "exceeds");
  }
  if (proto.has_segment()) refuse(what, "it is a segment of a tensor; allowed: a whole one");
  const uint64_t needed =
      tensors::packed_bytes(static_cast<uint64_t>(count), bp_dtype_bits(out.dtype));
  if (proto.data_location() == TensorProto::EXTERNAL) {
    if (folder.path.empty()) {
      refuse(what, "it has external data, which only a model that is loaded from a file may have");
    }
    if (proto.has_raw_data() || has_typed_field(proto)) {
      refuse(what, "it has external data and elements of its own; allowed: one of them");
    }
    out.bytes = read_external(folder.path, place_of(proto, what), needed, what);
  } else if (proto.has_raw_data()) {
    if (has_typed_field(proto)) {
      refuse(what, "it has raw_data and another field of elements; allowed: one of them");
    }
    if (proto.raw_data().size() != needed) {
      refuse(what, "its dims " + to_string(IntList(out.shape)) + " of " + dtype_text(out.dtype) +
                       " need " + std::to_string(needed) + " bytes, but raw_data has " +
                       std::to_string(proto.raw_data().size()));
    }
    out.bytes.assign(proto.raw_data().begin(), proto.raw_data().end());
  } else {
    read_typed_field(proto, out, what);
  }
  normalise_bools(out);
  return out;
}

void parse_message(google::protobuf::MessageLite& message, std::string_view bytes,
                   const std::string& name, const char* kind) {
  if (bytes.size() > kMaxFileBytes) {
    refuse(name, "it has " + std::to_string(bytes.size()) + " bytes; allowed are at most " +
                     std::to_string(kMaxFileBytes) + " (larger models have external data)");
  }
  if (!message.ParseFromArray(bytes.data(), static_cast<int>(bytes.size()))) {
    refuse(name, std::string("it cannot be read as ") + kind +
                     ": it is cut, nests deeper than 100 levels, or has another format");
  }
}

std::string read_whole(const std::string& path) {
  std::string bytes;
  const std::string defect = read_file(path, kMaxFileBytes, bytes);
  if (!defect.empty()) {
    throw Error(defect == std::strerror(ENOENT) ? BP_NOT_FOUND : BP_INVALID_ARGUMENT,
                path + ": " + defect);
  }
  return bytes;
}

}  // namespace onnx

Tensor load_onnx_tensor(const std::string& path, Device device) {
  ::onnx::TensorProto proto;
  onnx::parse_message(proto, onnx::read_whole(path), path, "a tensor of ONNX");
  return onnx::to_device(onnx::read_tensor(proto, {}, path), device);
}

}  // namespace bp
