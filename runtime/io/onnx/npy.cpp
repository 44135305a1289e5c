// The format: "\x93NUMPY", the version (2 bytes), the length of the header (2 bytes in version 1,
// else 4), and a header such as {'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }. Then
// follow the elements.
#include "runtime/io/onnx/npy.hpp"

#include <cctype>
#include <charconv>
#include <cstring>
#include <string_view>

#include "registry/files/read_file.hpp"

namespace bp::onnx {
namespace {

constexpr uint64_t kMaxBytes = uint64_t{1} << 34;

struct DtypeName {
  const char* name;
  bp_dtype dtype;
};
constexpr DtypeName kNames[] = {
    {"|b1", BP_BOOL}, {"|i1", BP_I8},  {"|u1", BP_U8},  {"<i2", BP_I16},
    {"<u2", BP_U16},  {"<i4", BP_I32}, {"<u4", BP_U32}, {"<i8", BP_I64},
    {"<u8", BP_U64},  {"<f2", BP_F16}, {"<f4", BP_F32}, {"<f8", BP_F64},
};

[[noreturn]] void refuse(const std::string& path, const std::string& why) {
  throw Error(BP_INVALID_ARGUMENT, path + ": " + why);
}

// Returns what stands behind 'key': in the header, without spaces before it.
std::string_view value_of(const std::string& path, std::string_view header, const char* key) {
  const size_t place = header.find("'" + std::string(key) + "'");
  const size_t colon = place == std::string_view::npos ? place : header.find(':', place);
  if (colon == std::string_view::npos) refuse(path, std::string("the header has no ") + key);
  const size_t begin = header.find_first_not_of(' ', colon + 1);
  return begin == std::string_view::npos ? std::string_view() : header.substr(begin);
}

bp_dtype read_dtype(const std::string& path, std::string_view header) {
  const std::string_view value = value_of(path, header, "descr");
  for (const DtypeName& row : kNames) {
    if (value.starts_with("'" + std::string(row.name) + "'")) return row.dtype;
  }
  refuse(path, "descr is " + std::string(value.substr(0, value.find(','))) +
                   "; allowed: '|b1', '|i1', '|u1', and '<' with i, u or f of 2 to 8 bytes");
}

std::vector<int64_t> read_shape(const std::string& path, std::string_view header) {
  std::string_view value = value_of(path, header, "shape");
  const size_t end = value.find(')');
  if (!value.starts_with('(') || end == std::string_view::npos) refuse(path, "shape is no tuple");
  value = value.substr(1, end - 1);
  std::vector<int64_t> shape;
  while (!value.empty()) {
    const char first = value.front();
    if (first == ' ' || first == ',') {
      value.remove_prefix(1);
      continue;
    }
    int64_t extent = 0;
    const auto [rest, error] = std::from_chars(value.data(), value.data() + value.size(), extent);
    if (error != std::errc()) refuse(path, "shape has something that is no number");
    shape.push_back(extent);
    value.remove_prefix(static_cast<size_t>(rest - value.data()));
  }
  return shape;
}

// Returns where the header begins and ends.
std::pair<size_t, size_t> find_header(const std::string& path, const std::string& bytes) {
  constexpr size_t kFixed = 8;  // The mark and the version.
  if (bytes.size() < kFixed + 4 || !bytes.starts_with("\x93NUMPY")) {
    refuse(path, "it does not begin as a file of numpy.save() does");
  }
  const size_t length_bytes = bytes[6] == 1 ? 2 : 4;
  uint32_t length = 0;
  std::memcpy(&length, bytes.data() + kFixed, length_bytes);
  const size_t begin = kFixed + length_bytes;
  if (length > bytes.size() - begin) refuse(path, "the header is cut");
  return {begin, begin + length};
}

}  // namespace

HostTensor load_npy(const std::string& path) {
  std::string bytes;
  const std::string defect = read_file(path, kMaxBytes, bytes);
  if (!defect.empty()) throw Error(BP_NOT_FOUND, path + ": " + defect);
  const auto [begin, end] = find_header(path, bytes);
  const std::string_view header(bytes.data() + begin, end - begin);
  if (value_of(path, header, "fortran_order").starts_with("True")) {
    refuse(path, "fortran_order is True; save the array as numpy.ascontiguousarray() gives it");
  }
  HostTensor tensor{read_dtype(path, header), read_shape(path, header), {}};
  const int64_t count = count_or_negative(tensor.shape);
  if (count < 0) refuse(path, "no tensor can have the shape " + to_string(IntList(tensor.shape)));
  const uint64_t needed = static_cast<uint64_t>(count) * bp_dtype_bits(tensor.dtype) / 8;
  if (needed != bytes.size() - end) {
    refuse(path, "the shape " + to_string(IntList(tensor.shape)) + " needs " +
                     std::to_string(needed) + " bytes, but " + std::to_string(bytes.size() - end) +
                     " follow the header");
  }
  tensor.bytes.assign(bytes.begin() + static_cast<std::ptrdiff_t>(end), bytes.end());
  return tensor;
}

}  // namespace bp::onnx
