// The verb new: writes a backend that a vendor can fill in. It builds against the installed package
// and loads.
#include "conformance/cli/scaffold.hpp"

#include <algorithm>
#include <filesystem>
#include <iostream>
#include <stdexcept>
#include <string_view>

#include "backplane/base.h"
#include "conformance/cli/verbs.hpp"
#include "conformance/report/files.hpp"

namespace bp::conformance {
namespace {

namespace fs = std::filesystem;

constexpr size_t kMaxNameBytes = 100;  // The name becomes part of file names.

struct Name {
  std::string vendor, backend;

  [[nodiscard]] std::string full() const { return vendor + "." + backend; }
  [[nodiscard]] std::string target() const { return vendor + "_" + backend; }
};

Name parse_name(const std::string& text) {
  // The check uses no regular expression, because a name may be long.
  const auto is_word = [](std::string_view word) {
    const auto is_lower = [](char c) { return c >= 'a' && c <= 'z'; };
    return !word.empty() && is_lower(word[0]) && std::ranges::all_of(word, [&](char c) {
      return is_lower(c) || (c >= '0' && c <= '9') || c == '_';
    });
  };
  const size_t dot = std::min(text.find('.'), text.size());
  const Name name{text.substr(0, dot), dot == text.size() ? "" : text.substr(dot + 1)};
  if (!is_word(name.vendor) || !is_word(name.backend) || text.size() > kMaxNameBytes) {
    throw UsageError("new: NAME is '" + text.substr(0, kMaxNameBytes) +
                     "'; allowed: vendor.backend in lower case letters, digits and _, such as "
                     "acme.npu, of at most " +
                     std::to_string(kMaxNameBytes) + " bytes");
  }
  return name;
}

std::string upper(std::string text) {
  std::ranges::transform(text, text.begin(), [](unsigned char c) { return std::toupper(c); });
  return text;
}

std::string capitalized(std::string text) {
  text[0] = static_cast<char>(std::toupper(static_cast<unsigned char>(text[0])));
  return text;
}

void replace_all(std::string& text, const std::string& from, const std::string& to) {
  for (size_t at = 0; (at = text.find(from, at)) != std::string::npos; at += to.size()) {
    text.replace(at, from.size(), to);
  }
}

// What is written, and for which kind of backend.
struct Kind {
  const Scaffold& scaffold;
  const char* language;  // As CMake names it.
  const char* link;      // The libraries besides those of the ABI.
  const char* language_level;
};

Kind kind_of(const CommandLine& line) {
  if (!line.is_async && !line.is_compiler) {
    return {kPlainScaffold, "C", "", "set_target_properties(@ PROPERTIES C_STANDARD 11)\n"};
  }
  return {kAsyncScaffold, "C CXX", "  LINK backplane::shell\n",
          "target_compile_features(@ PRIVATE cxx_std_20)\n"};
}

std::string renamed(std::string text, const Name& name) {
  replace_all(text, "acme.template", name.full());
  replace_all(text, "acme.async", name.full());
  replace_all(text, "acme_async", name.target());
  replace_all(text, "Acme template", capitalized(name.vendor) + " " + name.backend);
  replace_all(text, "template.h", name.backend + ".h");
  replace_all(text, "TEMPLATE_H_", upper(name.backend) + "_H_");
  replace_all(text, "The template backend", "The backend " + name.full());
  replace_all(text, "libmychip.so", "lib" + name.target() + ".so");
  return text;
}

// Makes the backend one whose kernels run in compiled programs alone.
std::string without_kernels(const std::string& path, std::string text) {
  if (path != "backend.cpp") return text;
  static constexpr const char* kAfter = "  add_kernels(all_kernels());\n";
  const size_t at = text.find(kAfter);
  if (at == std::string::npos) {
    throw std::logic_error("the scaffold of --compiler has no line 'add_kernels(all_kernels());'");
  }
  text.insert(
      at + std::string_view(kAfter).size(),
      "  offers_kernels = false;  // Only programs run them: make_compiler() in shell.cpp.\n");
  return text;
}

std::string project_file(const Name& name, const Kind& kind) {
  std::string sources;
  for (const ScaffoldFile& file : kind.scaffold.all()) {
    const std::string path = file.path;
    if (path.ends_with(".c") || path.ends_with(".cpp")) {
      sources += (sources.empty() ? "" : " ") + path;
    }
  }
  std::string text =
      "# Builds alone, against an installed Backplane.\n"
      "cmake_minimum_required(VERSION 3.25)\n"
      "project(@ LANGUAGES " +
      std::string(kind.language) +
      ")\n\n"
      "find_package(Backplane " +
      std::to_string(BP_ABI_MAJOR) + "." + std::to_string(BP_ABI_MINOR) +
      " REQUIRED)\n\n"
      "backplane_add_backend(@\n"
      "  SOURCES " +
      sources + "\n" + kind.link + "  MANIFEST " + name.full() +
      ")\n"
      "target_include_directories(@ PRIVATE ${CMAKE_CURRENT_SOURCE_DIR})\n" +
      kind.language_level;
  replace_all(text, "@", name.target());
  return text;
}

// Throws UsageError if a file would be overwritten.
void check_folder(const fs::path& folder) {
  std::error_code error;
  if (!fs::exists(folder, error)) return;
  if (!fs::is_directory(folder, error)) {
    throw UsageError("new: DIR is '" + folder.string() + "', which is a file");
  }
  if (!fs::is_empty(folder, error) || error) {
    throw UsageError("new: DIR is '" + folder.string() + "', which is not an empty folder");
  }
}

void write(const fs::path& path, const std::string& text) {
  fs::create_directories(path.parent_path());
  write_file(path, text);
}

}  // namespace

int new_verb(const CommandLine& line) {
  const Name name = parse_name(line.plugin);
  const Kind kind = kind_of(line);
  const fs::path folder = line.folder;
  check_folder(folder);
  write(folder / "CMakeLists.txt", project_file(name, kind));
  for (const ScaffoldFile& file : kind.scaffold.all()) {
    std::string path = file.path;
    std::string text = renamed(file.text, name);
    if (line.is_compiler) text = without_kernels(path, std::move(text));
    replace_all(path, "template.h", name.backend + ".h");
    write(folder / path, text);
  }
  const std::string where = folder.string();
  std::cout << "wrote " << kind.scaffold.count + 1 << " files of " << name.full() << " to " << where
            << "\n\nNext: build it, and see that it loads.\n\n"
            << "  cmake -S " << where << " -B " << where << "/build && cmake --build " << where
            << "/build\n"
            << "  bp-conformance info " << where << "/build/lib" << name.target() << ".so\n"
            << "  bp-conformance run " << where << "/build/lib" << name.target() << ".so\n\n"
            << "If CMake does not find Backplane: -DCMAKE_PREFIX_PATH=<its prefix>. Then put your\n"
            << "driver behind one file after the other; README.md of the folder names them.\n";
  return kExitOk;
}

}  // namespace bp::conformance
