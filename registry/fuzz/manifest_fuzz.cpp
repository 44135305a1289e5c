// Fuzzes manifests. Each is read, or listed with its problem, and its texts can be printed.
#include <string>

#include "api/fuzz/fuzz.hpp"
#include "api/fuzz/scratch.hpp"
#include "registry/boundary/plugin_text.hpp"
#include "registry/plugins/manifest.hpp"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using bp::fuzz::check;
  static const bp::fuzz::Scratch scratch;
  const std::string file = scratch.write("fuzz.json", bp::fuzz::text_of(data, size));
  const bp::core::Manifests found = bp::core::discover(file);
  check(!found.empty(), "each file in the search path is listed");
  const bp_manifest& m = *found.back();
  check(m.file == file, "with its path", m.file);
  check(m.problem == nullptr || *m.problem != '\0', "a problem has words");
  // Its library does not exist, so it can never be loaded.
  check(m.problem != nullptr || m.library != nullptr, "what can be used has a library");
  for (const char* text : {m.name, m.problem}) {
    if (text == nullptr) continue;
    check(bp::clean_text(text, bp::LineBreaks::kEscape) == text, "its texts can be printed", text);
  }
  return 0;
}
