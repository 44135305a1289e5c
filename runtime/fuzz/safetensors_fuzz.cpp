// Fuzzes the header of a file of weights. The first 8 bytes of the input say how many bytes of
// elements follow the header. Either the header is refused with a text that names the file, or
// writing and reading it again gives the same header.
#include <cstring>
#include <string>

#include "api/fuzz/fuzz.hpp"
#include "runtime/io/safetensors_header.hpp"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using bp::fuzz::check;
  uint64_t data_bytes = 0;
  if (size < sizeof(data_bytes)) return 0;
  std::memcpy(&data_bytes, data, sizeof(data_bytes));
  const std::string text(bp::fuzz::text_of(data, size).substr(sizeof(data_bytes)));
  bp::safetensors::Header header;
  try {
    header = bp::safetensors::read_header("w.safetensors", text, data_bytes);
  } catch (const bp::Error& e) {
    const std::string_view words = e.what();
    check(words.find("w.safetensors: ") != words.npos && words.size() > 16,
          "a refusal names the file and says why", words);
    return 0;
  }
  uint64_t end = 0;
  for (const bp::safetensors::Entry& entry : header.entries) {
    check(entry.begin <= entry.end && entry.end <= data_bytes, "elements lie in the file",
          entry.name);
    end += entry.end - entry.begin;
  }
  check(end == data_bytes, "and fill it");
  const std::string again = bp::safetensors::write_header(header);
  check(again.size() % bp::safetensors::kAlignment == 0, "a header that is written is aligned");
  const auto second = bp::safetensors::read_header("w.safetensors", again, data_bytes);
  check(second.entries == header.entries && second.metadata == header.metadata,
        "a header that is written reads as the same", again);
  return 0;
}
