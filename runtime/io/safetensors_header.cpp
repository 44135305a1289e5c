#include "runtime/io/safetensors_header.hpp"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "registry/files/json_depth.hpp"
#include "registry/tensors/strides.hpp"
#include "runtime/tensor/tensor_impl.hpp"

namespace bp::safetensors {
namespace {

using Json = nlohmann::json;

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
    {"F8_E5M2", BP_F8E5M2}, {"F8_E8M0", BP_F8E8M0FNU},
    {"F6_E2M3", BP_F6E2M3}, {"F6_E3M2", BP_F6E3M2},
    {"F4", BP_F4E2M1},
};

[[noreturn]] void refuse(const std::string& path, const std::string& what) {
  throw Error(BP_INVALID_ARGUMENT, path + ": " + what);
}

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

// Returns the bytes of a tensor. No tensor has more elements than count_elements() takes.
uint64_t size_of(const std::string& path, const Entry& entry) {
  try {
    const auto count = static_cast<uint64_t>(detail::count_elements(entry.shape));
    const uint32_t bits = bp_dtype_bits(entry.dtype);
    if (count * bits % 8 != 0) {
      refuse(path, "'" + entry.name + "' has " + std::to_string(count) + " elements of " +
                       std::to_string(bits) + " bits, which are not whole bytes");
    }
    return tensors::packed_bytes(count, bits);
  } catch (const Error& e) {
    refuse(path, "'" + entry.name + "'.shape: " + e.what());
  }
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
  const uint64_t bytes = size_of(path, entry);
  if (bytes != entry.end - entry.begin) {
    refuse(path, "'" + name + "'.data_offsets span " + std::to_string(entry.end - entry.begin) +
                     " bytes, but its dtype and shape " + to_string(IntList(entry.shape)) +
                     " need " + std::to_string(bytes));
  }
  return entry;
}

// Parses the header, and refuses a name that occurs twice. A plain parse would keep one tensor of
// that name and drop the other.
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
  const std::string defect = json_depth_defect(text);
  if (!defect.empty()) refuse(path, "the header: " + defect);
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

// Checks that the elements lie one behind the other and fill the file.
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

const char* dtype_name(const std::string& name, bp_dtype dtype) {
  if (const char* const found = name_of_dtype(dtype)) return found;
  throw Error(BP_UNSUPPORTED, "save_safetensors: '" + name + "' is " + dtype_text(dtype) +
                                  ", which the format has not");
}

}  // namespace

std::optional<bp_dtype> dtype_of_name(const std::string& name) {
  const auto* row = std::ranges::find(kDtypeNames, name, &DtypeName::name);
  if (row == std::end(kDtypeNames)) return std::nullopt;
  return row->dtype;
}

const char* name_of_dtype(bp_dtype dtype) {
  const auto* row = std::ranges::find(kDtypeNames, dtype, &DtypeName::dtype);
  return row == std::end(kDtypeNames) ? nullptr : row->name;
}

Header read_header(const std::string& path, const std::string& text, uint64_t data_bytes) {
  const Json json = parse_header(path, text);
  Header header;
  header.metadata = read_metadata(path, json);
  for (const auto& [name, entry] : json.items()) {
    if (name != kMetadata) header.entries.push_back(read_entry(path, name, entry, data_bytes));
  }
  check_cover(path, header.entries, data_bytes);
  return header;
}

std::string write_header(const Header& header) {
  Json json = Json::object();
  if (!header.metadata.empty()) json[kMetadata] = header.metadata;
  for (const Entry& entry : header.entries) {
    if (entry.name == kMetadata) {
      throw Error(BP_INVALID_ARGUMENT, "save_safetensors: no tensor can be named __metadata__");
    }
    json[entry.name] = {{"dtype", dtype_name(entry.name, entry.dtype)},
                        {"shape", entry.shape},
                        {"data_offsets", {entry.begin, entry.end}}};
  }
  std::string text;
  try {
    text = json.dump();
  } catch (const Json::exception& e) {
    throw Error(BP_INVALID_ARGUMENT,
                std::string("save_safetensors: a name or a text is no UTF-8: ") + e.what());
  }
  text.append((kAlignment - text.size() % kAlignment) % kAlignment, ' ');
  return text;
}

}  // namespace bp::safetensors
