#include "backplane/runtime/safetensors.hpp"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>

namespace bp {
namespace {

using Json = nlohmann::json;

constexpr uint64_t kMaxHeaderBytes = 100'000'000;  // What other readers of the format accept.
constexpr uint64_t kAlignment = 8;                 // Of the elements behind the header.
constexpr const char* kMetadata = "__metadata__";

struct DtypeName {
  const char* name;
  bp_dtype dtype;
};
constexpr DtypeName kDtypeNames[] = {
    {"BOOL", BP_BOOL},      {"U8", BP_U8},
    {"I8", BP_I8},          {"U16", BP_U16},
    {"I16", BP_I16},        {"U32", BP_U32},
    {"I32", BP_I32},        {"U64", BP_U64},
    {"I64", BP_I64},        {"F16", BP_F16},
    {"BF16", BP_BF16},      {"F32", BP_F32},
    {"F64", BP_F64},        {"F8_E4M3", BP_F8E4M3FN},
    {"F8_E5M2", BP_F8E5M2},
};

[[noreturn]] void refuse(const std::string& path, const std::string& what) {
  throw Error(BP_INVALID_ARGUMENT, path + ": " + what);
}

// One tensor of a header that has been checked.
struct Entry {
  std::string name;
  bp_dtype dtype;
  std::vector<int64_t> shape;
  uint64_t begin, end;
};

const Json& member(const std::string& path, const std::string& name, const Json& entry,
                   const char* key) {
  if (!entry.is_object()) refuse(path, "'" + name + "' is not a JSON object");
  const auto found = entry.find(key);
  if (found == entry.end()) refuse(path, "'" + name + "' has no " + key);
  return *found;
}

bp_dtype read_dtype(const std::string& path, const std::string& name, const Json& entry) {
  const Json& value = member(path, name, entry, "dtype");
  std::string allowed;
  for (const DtypeName& row : kDtypeNames) {
    if (value == row.name) return row.dtype;
    allowed += allowed.empty() ? row.name : std::string(", ") + row.name;
  }
  refuse(path, "'" + name + "'.dtype is " + value.dump() + "; allowed: " + allowed);
}

std::vector<int64_t> read_shape(const std::string& path, const std::string& name,
                                const Json& entry) {
  const Json& value = member(path, name, entry, "shape");
  const auto is_extent = [](const Json& n) {
    return n.is_number_unsigned() && n.get<uint64_t>() <= INT64_MAX;
  };
  if (!value.is_array() || value.size() > BP_MAX_RANK || !std::ranges::all_of(value, is_extent)) {
    refuse(path, "'" + name + "'.shape is " + value.dump() + "; allowed: a list of up to " +
                     std::to_string(BP_MAX_RANK) + " extents from 0 on");
  }
  return value.get<std::vector<int64_t>>();
}

// The bytes of a tensor, or false if they do not fit in 64 bits.
bool size_of(const Entry& entry, uint64_t& out_bytes) {
  uint64_t bytes = bp_dtype_bits(entry.dtype) / 8;
  for (const int64_t extent : entry.shape) {
    if (__builtin_mul_overflow(bytes, static_cast<uint64_t>(extent), &bytes)) return false;
  }
  out_bytes = bytes;
  return true;
}

Entry read_entry(const std::string& path, const std::string& name, const Json& json,
                 uint64_t data_bytes) {
  Entry entry{name, read_dtype(path, name, json), read_shape(path, name, json), 0, 0};
  const Json& offsets = member(path, name, json, "data_offsets");
  const bool is_pair = offsets.is_array() && offsets.size() == 2 &&
                       offsets[0].is_number_unsigned() && offsets[1].is_number_unsigned();
  if (!is_pair) {
    refuse(path, "'" + name + "'.data_offsets is " + offsets.dump() + "; allowed: [begin, end]");
  }
  entry.begin = offsets[0].get<uint64_t>();
  entry.end = offsets[1].get<uint64_t>();
  if (entry.begin > entry.end || entry.end > data_bytes) {
    refuse(path, "'" + name + "'.data_offsets is " + offsets.dump() + ", but the file has " +
                     std::to_string(data_bytes) + " bytes of elements (is it truncated?)");
  }
  uint64_t bytes = 0;
  if (!size_of(entry, bytes) || bytes != entry.end - entry.begin) {
    refuse(path, "'" + name + "'.data_offsets span " + std::to_string(entry.end - entry.begin) +
                     " bytes, but its dtype and shape " + to_string(IntList(entry.shape)) +
                     " need " + std::to_string(bytes));
  }
  return entry;
}

// Parses, and refuses a name that stands twice: a plain parse would keep one and drop the other.
Json parse_header(const std::string& path, const std::string& text) {
  std::set<std::string> names;
  std::string twice;
  const auto watch = [&](int depth, Json::parse_event_t event, Json& value) {
    if (depth == 1 && event == Json::parse_event_t::key) {
      const auto name = value.get<std::string>();
      if (!names.insert(name).second) twice = name;
    }
    return true;
  };
  Json header;
  try {
    header = Json::parse(text, watch);
  } catch (const Json::exception& e) {
    refuse(path, std::string("the header is not JSON: ") + e.what());
  }
  if (!header.is_object()) refuse(path, "the header is not a JSON object");
  if (!twice.empty()) refuse(path, "the header names '" + twice + "' twice");
  return header;
}

Metadata read_metadata(const std::string& path, const Json& header) {
  Metadata metadata;
  if (!header.contains(kMetadata)) return metadata;
  const Json& json = header[kMetadata];
  if (!json.is_object()) refuse(path, "__metadata__ is not a JSON object");
  for (const auto& [key, value] : json.items()) {
    if (!value.is_string()) refuse(path, "__metadata__." + key + " is not a string");
    metadata[key] = value.get<std::string>();
  }
  return metadata;
}

// The elements must lie one behind the other and fill the file.
void check_cover(const std::string& path, std::vector<Entry> entries, uint64_t data_bytes) {
  std::ranges::sort(entries, {}, [](const Entry& e) { return std::pair(e.begin, e.end); });
  uint64_t expected = 0;
  for (const Entry& entry : entries) {
    if (entry.begin != expected) {
      refuse(path, "'" + entry.name + "'.data_offsets begin at " + std::to_string(entry.begin) +
                       ", but the tensor before it ends at " + std::to_string(expected));
    }
    expected = entry.end;
  }
  if (expected != data_bytes) {
    refuse(path, "the tensors end at byte " + std::to_string(expected) + " of " +
                     std::to_string(data_bytes) + " bytes of elements");
  }
}

std::ifstream open_checked(const std::string& path, uint64_t& out_file_bytes) {
  std::error_code error;
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
  if (length > kMaxHeaderBytes || length > file_bytes - 8) {
    refuse(path, "the header's length is " + std::to_string(length) + ", but the file has " +
                     std::to_string(file_bytes) + " bytes (truncated, or not a safetensors file)");
  }
  std::string text(length, '\0');
  file.read(text.data(), static_cast<std::streamsize>(length));
  if (!file) refuse(path, "the header cannot be read");
  return text;
}

const char* dtype_name(const std::string& name, bp_dtype dtype) {
  const auto* row = std::ranges::find(kDtypeNames, dtype, &DtypeName::dtype);
  if (row != std::end(kDtypeNames)) return row->name;
  throw Error(BP_UNSUPPORTED, "save_safetensors: '" + name + "' is " + dtype_text(dtype) +
                                  ", which the format has not");
}

// The header, padded with spaces so that the elements are aligned.
std::string make_header(const TensorMap& tensors, const Metadata& metadata) {
  Json header = Json::object();
  if (!metadata.empty()) header[kMetadata] = metadata;
  uint64_t offset = 0;
  for (const auto& [name, tensor] : tensors) {
    if (name == kMetadata) {
      throw Error(BP_INVALID_ARGUMENT, "save_safetensors: no tensor can be named __metadata__");
    }
    const uint64_t bytes = static_cast<uint64_t>(tensor.numel()) * tensor.element_bytes();
    header[name] = {{"dtype", dtype_name(name, tensor.dtype())},
                    {"shape", tensor.shape().to_vector()},
                    {"data_offsets", {offset, offset + bytes}}};
    offset += bytes;
  }
  std::string text = header.dump();
  text.append((kAlignment - text.size() % kAlignment) % kAlignment, ' ');
  return text;
}

}  // namespace

void save_safetensors(const std::string& path, const TensorMap& tensors, const Metadata& metadata) {
  const std::string header = make_header(tensors, metadata);
  const std::string partial = path + ".partial";
  std::ofstream file(partial, std::ios::binary | std::ios::trunc);
  const uint64_t length = header.size();
  file.write(reinterpret_cast<const char*>(&length), sizeof(length));
  file.write(header.data(), static_cast<std::streamsize>(length));
  std::vector<char> bytes;
  for (const auto& [name, tensor] : tensors) {
    bytes.resize(static_cast<uint64_t>(tensor.numel()) * tensor.element_bytes());
    tensor.copy_to_host(bytes.data(), bytes.size());
    file.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  }
  file.close();
  if (file) {
    std::error_code error;
    std::filesystem::rename(partial, path, error);
    if (!error) return;
  }
  const std::string why = std::strerror(errno);
  std::error_code ignored;  // The failure of the write is what counts.
  std::filesystem::remove(partial, ignored);
  throw Error(BP_INVALID_ARGUMENT, path + ": cannot be written: " + why);
}

LoadedTensors load_safetensors(const std::string& path, Device device) {
  uint64_t file_bytes = 0;
  std::ifstream file = open_checked(path, file_bytes);
  const std::string text = read_header_text(path, file, file_bytes);
  const uint64_t data_bytes = file_bytes - 8 - text.size();
  const Json header = parse_header(path, text);

  LoadedTensors loaded;
  loaded.metadata = read_metadata(path, header);
  std::vector<Entry> entries;
  for (const auto& [name, json] : header.items()) {
    if (name != kMetadata) entries.push_back(read_entry(path, name, json, data_bytes));
  }
  check_cover(path, entries, data_bytes);

  std::vector<char> bytes;
  for (const Entry& entry : entries) {
    bytes.resize(entry.end - entry.begin);
    file.seekg(static_cast<std::streamoff>(8 + text.size() + entry.begin));
    file.read(bytes.data(), static_cast<std::streamsize>(bytes.size()));
    if (!file) refuse(path, "'" + entry.name + "': the elements cannot be read");
    loaded.tensors[entry.name] = from_host(bytes.data(), entry.shape, entry.dtype, device);
  }
  return loaded;
}

}  // namespace bp
