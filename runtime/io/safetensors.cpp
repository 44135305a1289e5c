#include "backplane/runtime/safetensors.hpp"

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "registry/files/read_file.hpp"
#include "registry/files/whole_file.hpp"
#include "runtime/io/safetensors_header.hpp"
#include "runtime/tensor/tensor_impl.hpp"

namespace bp {
namespace {

using safetensors::Entry;
using safetensors::Header;

[[noreturn]] void refuse(const std::string& path, const std::string& what) {
  throw Error(BP_INVALID_ARGUMENT, path + ": " + what);
}

std::ifstream open_checked(const std::string& path, uint64_t& out_file_bytes) {
  std::error_code error;
  if (std::filesystem::exists(path, error)) {
    const std::string defect = regular_file_defect(path);
    if (!defect.empty()) refuse(path, defect);
  }
  out_file_bytes = std::filesystem::file_size(path, error);
  std::ifstream file(path, std::ios::binary);
  if (error || !file) {
    throw Error(BP_NOT_FOUND, path + ": cannot be read" + (error ? ": " + error.message() : ""));
  }
  return file;
}

std::string read_header_text(const std::string& path, std::ifstream& file, uint64_t file_bytes) {
  if (file_bytes < 8) {
    refuse(path, "the file has " + std::to_string(file_bytes) + " bytes; a header needs 8");
  }
  uint64_t length = 0;
  file.read(reinterpret_cast<char*>(&length), sizeof(length));
  if (length > safetensors::kMaxHeaderBytes || length > file_bytes - 8) {
    refuse(path, "the header's length is " + std::to_string(length) + ", but the file has " +
                     std::to_string(file_bytes) + " bytes (truncated, or not a safetensors file)");
  }
  std::string text(length, '\0');
  file.read(text.data(), static_cast<std::streamsize>(length));
  if (!file) refuse(path, "the header cannot be read");
  return text;
}

uint64_t bytes_of(const Tensor& tensor) { return tensor.size_bytes(); }

Header make_header(const TensorMap& tensors, const Metadata& metadata) {
  Header header{metadata, {}};
  uint64_t offset = 0;
  for (const auto& [name, tensor] : tensors) {
    if (!tensor) {
      throw Error(BP_INVALID_ARGUMENT, "save_safetensors: '" + name + "' is an empty tensor");
    }
    if (static_cast<uint64_t>(tensor.numel()) * tensor.element_bits() % 8 != 0) {
      throw Error(BP_INVALID_ARGUMENT, "save_safetensors: '" + name + "' is " +
                                           detail::describe(tensor) +
                                           ", whose last element ends within a byte");
    }
    const uint64_t end = offset + bytes_of(tensor);
    header.entries.push_back({name, tensor.dtype(), tensor.shape().to_vector(), offset, end});
    offset = end;
  }
  return header;
}

}  // namespace

void save_safetensors(const std::string& path, const TensorMap& tensors, const Metadata& metadata) {
  const std::string header = write_header(make_header(tensors, metadata));
  WholeFile file(path);
  const uint64_t length = header.size();
  file.write(&length, sizeof(length));
  file.write(header);
  std::vector<char> bytes;
  for (const auto& [name, tensor] : tensors) {
    bytes.resize(bytes_of(tensor));
    tensor.copy_to_host(bytes.data(), bytes.size());
    file.write(bytes.data(), bytes.size());
  }
  const std::string problem = file.commit();
  if (!problem.empty()) throw Error(BP_INVALID_ARGUMENT, problem);
}

LoadedTensors load_safetensors(const std::string& path, Device device) {
  uint64_t file_bytes = 0;
  std::ifstream file = open_checked(path, file_bytes);
  const std::string text = read_header_text(path, file, file_bytes);
  const Header header = safetensors::read_header(path, text, file_bytes - 8 - text.size());

  LoadedTensors loaded;
  loaded.metadata = header.metadata;
  std::vector<char> bytes;
  for (const Entry& entry : header.entries) {
    bytes.resize(entry.end - entry.begin);
    file.seekg(static_cast<std::streamoff>(8 + text.size() + entry.begin));
    file.read(bytes.data(), static_cast<std::streamsize>(bytes.size()));
    if (!file) refuse(path, "'" + entry.name + "': the elements cannot be read");
    loaded.tensors[entry.name] = from_host(bytes.data(), entry.shape, entry.dtype, device);
  }
  return loaded;
}

}  // namespace bp
