// Fuzzes the content of the index of a checkpoint, to which it adds the right checksum. Either the
// index is refused with a text that names the file, or all its pieces lie in their files, and
// writing and reading it again gives the same index.
#include <nlohmann/json.hpp>
#include <string>

#include "api/fuzz/fuzz.hpp"
#include "backplane/runtime/error.hpp"
#include "registry/files/json_depth.hpp"
#include "runtime/distributed/checkpoint_index.hpp"
#include "runtime/distributed/checksum.hpp"

namespace {

using Json = nlohmann::json;

// Returns the content with its checksum, or as it is if it is no JSON.
std::string with_checksum(const std::string& content) {
  const Json json =
      bp::json_depth_defect(content).empty() ? Json::parse(content, nullptr, false) : Json();
  if (json.is_discarded() || !json.is_object()) return content;
  const std::string text = json.dump(-1, ' ', false, Json::error_handler_t::replace);
  const uint32_t sum = bp::distributed::crc32c(text.data(), text.size());
  return R"({"checksum": )" + std::to_string(sum) + R"(, "content": )" + content + "}";
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using bp::fuzz::check;
  namespace bd = bp::distributed;
  const std::string text = with_checksum(std::string(bp::fuzz::text_of(data, size)));
  bd::CheckpointIndex index;
  try {
    index = bd::read_index("i.json", text);
  } catch (const bp::Error& e) {
    const std::string_view words = e.what();
    check(words.starts_with("i.json: ") && words.size() > 10,
          "a refusal names the file and says why", words);
    return 0;
  }
  for (const auto& [name, tensor] : index.tensors) {
    for (const bd::StoredPiece& piece : tensor.pieces) {
      const uint64_t bytes = bd::bytes_of(piece.box.count(), tensor.dtype);
      check(bd::is_within(piece.box, tensor.shape), "a piece lies in its tensor", name);
      check(bytes <= index.files.at(piece.file).bytes - piece.begin, "and in its file", name);
    }
  }
  const std::string written = bd::write_index(index);
  check(bd::write_index(bd::read_index("i.json", written)) == written,
        "an index that is written reads as the same", written);
  return 0;
}
