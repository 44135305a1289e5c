// The index of a checkpoint: what it holds, and where. Reads and writes it as text.
//
//   {"checksum": "1c9f...",
//    "content": {
//      "format": "backplane.checkpoint", "version": 1, "step": 12, "block_bytes": 1048576,
//      "metadata": {"seed": "1"},
//      "files": [{"name": "rank_0.ID.safetensors", "bytes": 1234}],
//      "tensors": {"model.weight": {"dtype": "F32", "shape": [4, 6], "pieces": [
//          {"file": 0, "begin": 120, "offsets": [0, 0], "extents": [2, 6], "checksums": [7,
//          8]}]}}}}
//
// A piece lies in its file from byte `begin` on, row by row. Each of its checksums is that of a
// block of `block_bytes`; the last block may be shorter. The checksum of the index is that of
// `content` as dump() of the JSON library writes it.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "backplane/runtime/safetensors.hpp"
#include "runtime/distributed/box.hpp"

namespace bp::distributed {

inline constexpr uint64_t kBlockBytes = uint64_t{1} << 20;
inline constexpr const char* kIndexName = "index.json";

struct StoredFile {
  std::string name;
  uint64_t bytes;
};

struct StoredPiece {
  size_t file;     // In CheckpointIndex::files.
  uint64_t begin;  // In the file.
  Box box;
  std::vector<uint32_t> checksums;
};

struct StoredTensor {
  bp_dtype dtype;
  std::vector<int64_t> shape;
  std::vector<StoredPiece> pieces;
};

struct CheckpointIndex {
  int64_t step = 0;
  uint64_t block_bytes = kBlockBytes;
  Metadata metadata;
  std::vector<StoredFile> files;
  std::map<std::string, StoredTensor> tensors;
};

// Throws Error if a text is no UTF-8.
std::string write_index(const CheckpointIndex& index);

// Everything is checked: the checksum, the fields, that pieces lie within their files, and that
// they have each element of their tensor once. Throws Error, which names the file `path`.
CheckpointIndex read_index(const std::string& path, const std::string& text);

// Returns the sentence for a tensor of the checkpoint in `folder` that nobody asks for.
std::string unasked_text(const std::string& folder, const std::string& name);

// Returns the bytes of `count` elements. The dtype has whole bytes.
uint64_t bytes_of(int64_t count, bp_dtype dtype);

// Returns the checksums of the blocks of a piece.
std::vector<uint32_t> checksums_of(const char* bytes, uint64_t size);

}  // namespace bp::distributed
