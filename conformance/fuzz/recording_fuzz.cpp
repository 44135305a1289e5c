// Reads a recording. It must be accepted, or refused with a text that names its file.
#include <string>

#include "api/fuzz/fuzz.hpp"
#include "api/fuzz/scratch.hpp"
#include "conformance/recordings/recording.hpp"
#include "conformance/usage_error.hpp"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using bp::fuzz::check;
  static const bp::fuzz::Scratch scratch;
  const std::string path = scratch.write("stream.jsonl", bp::fuzz::text_of(data, size));
  for (const bool is_partial : {false, true}) {
    bp::conformance::RecordingSource source;
    source.path = path;
    source.is_partial = is_partial;
    source.seeds_weights = is_partial;
    try {
      const bp::conformance::Recording recording(source);
      for (size_t i = 0; i < recording.lines().size(); ++i) {
        check(recording.lines()[i].contains("call"), "each line has a call");
        static_cast<void>(recording.is_judged(i));
      }
    } catch (const bp::conformance::UsageError& e) {
      const std::string_view words = e.what();
      check(words.find("stream.jsonl") != words.npos, "a refusal names the file", words);
    }
  }
  return 0;
}
