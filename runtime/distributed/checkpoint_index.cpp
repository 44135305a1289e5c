#include "runtime/distributed/checkpoint_index.hpp"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "backplane/runtime/error.hpp"
#include "registry/files/json_depth.hpp"
#include "runtime/distributed/checksum.hpp"
#include "runtime/io/safetensors_header.hpp"
#include "runtime/tensor/tensor_impl.hpp"

namespace bp::distributed {
namespace {

using Json = nlohmann::json;

constexpr const char* kFormat = "backplane.checkpoint";
constexpr int64_t kVersion = 1;

[[noreturn]] void refuse(const std::string& path, const std::string& what) {
  throw Error(BP_INVALID_ARGUMENT, path + ": " + what);
}

uint64_t block_count(uint64_t bytes, uint64_t block_bytes) {
  return (bytes + block_bytes - 1) / block_bytes;
}

StoredPiece read_piece(const Json& json) {
  return {json.at("file").get<size_t>(),
          json.at("begin").get<uint64_t>(),
          {json.at("offsets").get<std::vector<int64_t>>(),
           json.at("extents").get<std::vector<int64_t>>()},
          json.at("checksums").get<std::vector<uint32_t>>()};
}

StoredTensor read_tensor(const std::string& path, const std::string& name, const Json& json) {
  const auto dtype_name = json.at("dtype").get<std::string>();
  const auto dtype = safetensors::dtype_of_name(dtype_name);
  if (!dtype || bp_dtype_bits(*dtype) % 8 != 0) {
    refuse(path, "'" + name + "' has the dtype '" + dtype_name + "', which checkpoints have not");
  }
  StoredTensor tensor{*dtype, json.at("shape").get<std::vector<int64_t>>(), {}};
  try {
    bp::detail::count_elements(tensor.shape);
  } catch (const Error& e) {
    refuse(path, "'" + name + "'.shape: " + e.what());
  }
  for (const Json& piece : json.at("pieces")) tensor.pieces.push_back(read_piece(piece));
  return tensor;
}

// Returns what is wrong with the pieces of a tensor, or "".
std::string problem_of(const CheckpointIndex& index, const StoredTensor& tensor) {
  std::vector<Box> boxes;
  for (const StoredPiece& piece : tensor.pieces) {
    const std::string text = text_of(piece.box);
    if (!is_within(piece.box, tensor.shape)) return "the piece " + text + " is not within it";
    if (piece.file >= index.files.size()) return "the piece " + text + " is in no file";
    const uint64_t bytes = bytes_of(piece.box.count(), tensor.dtype);
    const uint64_t file_bytes = index.files[piece.file].bytes;
    if (piece.begin > file_bytes || bytes > file_bytes - piece.begin) {
      return "the piece " + text + " ends behind its file";
    }
    if (piece.checksums.size() != block_count(bytes, index.block_bytes)) {
      return "the piece " + text + " has " + std::to_string(piece.checksums.size()) + " checksums";
    }
    boxes.push_back(piece.box);
  }
  return tiling_problem(tensor.shape, std::move(boxes));
}

void check_pieces(const std::string& path, const std::string& name, const CheckpointIndex& index,
                  const StoredTensor& tensor) {
  const std::string problem = problem_of(index, tensor);
  if (!problem.empty()) refuse(path, "'" + name + "': " + problem);
}

void check_name(const std::string& path, const std::string& name) {
  if (!name.empty() && name.find('/') == std::string::npos) return;
  refuse(path, "a file has the name '" + name + "'; allowed: names without a folder");
}

CheckpointIndex read_content(const std::string& path, const Json& content) {
  CheckpointIndex index;
  index.step = content.at("step").get<int64_t>();
  index.block_bytes = content.at("block_bytes").get<uint64_t>();
  if (index.block_bytes == 0 || index.block_bytes > uint64_t{1} << 30) {
    refuse(path, "block_bytes is " + std::to_string(index.block_bytes) + "; allowed: 1 to 2^30");
  }
  index.metadata = content.at("metadata").get<Metadata>();
  for (const Json& file : content.at("files")) {
    index.files.push_back({file.at("name").get<std::string>(), file.at("bytes").get<uint64_t>()});
    check_name(path, index.files.back().name);
  }
  for (const auto& [name, json] : content.at("tensors").items()) {
    const StoredTensor& tensor = index.tensors[name] = read_tensor(path, name, json);
    check_pieces(path, name, index, tensor);
  }
  return index;
}

}  // namespace

uint64_t bytes_of(int64_t count, bp_dtype dtype) {
  return static_cast<uint64_t>(count) * bp_dtype_bits(dtype) / 8;
}

std::vector<uint32_t> checksums_of(const char* bytes, uint64_t size) {
  std::vector<uint32_t> sums;
  for (uint64_t begin = 0; begin < size; begin += kBlockBytes) {
    sums.push_back(crc32c(bytes + begin, std::min(kBlockBytes, size - begin)));
  }
  return sums;
}

std::string write_index(const CheckpointIndex& index) {
  Json tensors = Json::object(), files = Json::array();
  for (const StoredFile& file : index.files) {
    files.push_back({{"name", file.name}, {"bytes", file.bytes}});
  }
  for (const auto& [name, tensor] : index.tensors) {
    Json pieces = Json::array();
    for (const StoredPiece& piece : tensor.pieces) {
      pieces.push_back({{"file", piece.file},
                        {"begin", piece.begin},
                        {"offsets", piece.box.offsets},
                        {"extents", piece.box.extents},
                        {"checksums", piece.checksums}});
    }
    tensors[name] = {{"dtype", safetensors::name_of_dtype(tensor.dtype)},
                     {"shape", tensor.shape},
                     {"pieces", std::move(pieces)}};
  }
  const Json content = {{"format", kFormat},
                        {"version", kVersion},
                        {"step", index.step},
                        {"block_bytes", index.block_bytes},
                        {"metadata", Json(index.metadata)},
                        {"files", std::move(files)},
                        {"tensors", std::move(tensors)}};
  std::string text;
  try {
    text = content.dump();
  } catch (const Json::exception&) {
    throw Error(BP_INVALID_ARGUMENT, "the metadata of the checkpoint are no UTF-8");
  }
  return Json{{"checksum", crc32c(text.data(), text.size())}, {"content", content}}.dump(1) + "\n";
}

CheckpointIndex read_index(const std::string& path, const std::string& text) {
  const std::string defect = json_depth_defect(text);
  if (!defect.empty()) refuse(path, defect);
  try {
    const Json json = Json::parse(text);
    const Json& content = json.at("content");
    if (content.at("format") != kFormat) refuse(path, "it is not the index of a checkpoint");
    const std::string dumped = content.dump();
    if (json.at("checksum") != crc32c(dumped.data(), dumped.size())) {
      refuse(path, "its content does not have its checksum: the file is damaged");
    }
    if (content.at("version") != kVersion) {
      refuse(path, "it has version " + content.at("version").dump() +
                       "; allowed: " + std::to_string(kVersion));
    }
    return read_content(path, content);
  } catch (const Json::exception& e) {
    refuse(path, std::string("it is not the index of a checkpoint, or it is damaged: ") + e.what());
  }
}

}  // namespace bp::distributed
