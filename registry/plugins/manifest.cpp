#include "registry/plugins/manifest.hpp"

#include <dlfcn.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>

#include "registry/boundary/plugin_text.hpp"
#include "registry/boundary/served_abi.hpp"
#include "registry/files/json_depth.hpp"
#include "registry/files/read_file.hpp"
#include "registry/plugins/static_backends.hpp"

namespace bp::core {
namespace {

namespace fs = std::filesystem;

// Returns the folder that holds this library, or the program if the library is linked in.
fs::path own_folder() {
  Dl_info info{};
  if (dladdr(reinterpret_cast<const void*>(&own_folder), &info) == 0) return {};
  std::error_code error;
  const fs::path file = fs::canonical(info.dli_fname, error);
  return error ? fs::path(info.dli_fname).parent_path() : file.parent_path();
}

// Returns the folders of an installation and of the build tree that exist. A folder of which this
// cannot be told is returned too, and add_files() says why it cannot be read.
std::string default_search_path() {
  const fs::path folder = own_folder();
  std::string path;
  for (const fs::path& part :
       {folder / "backplane" / "backends.d", folder.parent_path() / "backends.d"}) {
    std::error_code error;
    const fs::file_type type = fs::status(part, error).type();
    if (type == fs::file_type::not_found || (!error && type != fs::file_type::directory)) continue;
    path += (path.empty() ? "" : ":") + part.string();
  }
  return path;
}

std::vector<std::string> split(const std::string& path) {
  std::vector<std::string> parts;
  std::istringstream stream(path);
  for (std::string part; std::getline(stream, part, ':');) {
    if (!part.empty()) parts.push_back(part);
  }
  return parts;
}

// A file that may be a manifest, or a folder that cannot be read, with the reason.
struct Found {
  fs::path path;
  std::string problem;
};

// Adds the manifests that one part of the search path stands for: the part itself unless it is a
// folder.
void add_files(const fs::path& part, std::vector<Found>& files) {
  std::error_code error;
  const fs::file_type type = fs::status(part, error).type();
  if (type == fs::file_type::none) {
    return files.push_back({part, "it cannot be looked at: " + error.message()});
  }
  if (type != fs::file_type::directory) return files.push_back({part, ""});
  fs::directory_iterator entry(part, error);
  for (; !error && entry != fs::directory_iterator(); entry.increment(error)) {
    if (entry->path().extension() == ".json") files.push_back({entry->path(), ""});
  }
  if (error) files.push_back({part, "the folder cannot be read: " + error.message()});
}

bool is_served(const Manifest& m) {
  return serves_abi({.major_min = m.abi_major_min,
                     .major = m.abi_major,
                     .minor_min = m.abi_minor_min,
                     .minor = m.abi_minor});
}

std::string served_range(const Manifest& m) {
  const bool has_one = m.abi_major_min == m.abi_major;
  return abi_text(m.abi_major_min, has_one ? m.abi_minor_min : 0) + " to " +
         abi_text(m.abi_major, m.abi_minor);
}

constexpr uint64_t kMaxManifestBytes = 1 << 20;

// Returns a number of a version. A number of more than 32 bits is refused, as it would wrap around.
uint32_t version_number(const nlohmann::json& abi, const std::string& member) {
  const nlohmann::json& number = abi.at(member);
  if (!number.is_number_unsigned() || number.get<uint64_t>() > UINT32_MAX) {
    throw std::runtime_error("abi." + member + " must be an integer from 0 to 4294967295");
  }
  return number.get<uint32_t>();
}

// Fills `m` from its file. Throws if the file does not have the form of a manifest.
void read(const fs::path& file, Manifest& m) {
  std::string text;
  std::string defect = read_file(file.string(), kMaxManifestBytes, text);
  if (defect.empty()) defect = json_depth_defect(text);
  if (!defect.empty()) throw std::runtime_error(defect);
  const nlohmann::json json = nlohmann::json::parse(text);
  m.own_name = clean_text(json.at("name").get<std::string>(), LineBreaks::kEscape, kMaxPluginName);
  const nlohmann::json& abi = json.at("abi");
  m.abi_major = m.abi_major_min = version_number(abi, "major");
  if (abi.contains("major_min")) m.abi_major_min = version_number(abi, "major_min");
  if (m.abi_major_min > m.abi_major) throw std::runtime_error("abi.major_min is above abi.major");
  m.abi_minor_min = version_number(abi, "minor_min");
  m.abi_minor = version_number(abi, "minor");
  const fs::path library = file.parent_path() / json.at("library").get<std::string>();
  m.own_library = library.lexically_normal().string();
}

std::unique_ptr<Manifest> read_manifest(const Found& found) {
  auto m = std::make_unique<Manifest>();
  std::error_code error;
  const fs::path file = fs::absolute(found.path, error).lexically_normal();
  m->own_file = file.string();
  m->own_problem = found.problem;
  if (!found.problem.empty()) return m;
  if (!fs::exists(file, error)) {
    m->own_problem = "no such file or folder";
    return m;
  }
  try {
    read(file, *m);
    if (!fs::exists(m->own_library, error)) {
      m->own_problem =
          "its library does not exist: " + clean_text(m->own_library, LineBreaks::kEscape);
    } else if (!is_served(*m)) {
      m->own_problem = "it serves ABI " + served_range(*m) + ", this host " + served_abi_text();
    }
  } catch (const std::exception& problem) {
    m->own_problem =
        "not a manifest: " + clean_text(std::string_view(problem.what()), LineBreaks::kEscape);
  }
  return m;
}

void add_static_backends(Manifests& manifests) {
  for (size_t i = 0; i < kStaticBackendCount; ++i) {
    auto m = std::make_unique<Manifest>();
    m->own_name = kStaticBackends[i].name;
    m->own_file = "(static)";
    m->entry = kStaticBackends[i].entry;
    m->abi_major = m->abi_major_min = kServedAbi.major;
    m->abi_minor_min = m->abi_minor = kServedAbi.minor;
    manifests.push_back(std::move(m));
  }
}

}  // namespace

void Manifest::seal() {
  struct_size = sizeof(bp_manifest);
  struct_type = BP_STRUCT_MANIFEST;
  name = own_name.c_str();
  library = own_library.empty() ? nullptr : own_library.c_str();
  file = own_file.c_str();
  problem = own_problem.empty() ? nullptr : own_problem.c_str();
}

std::string effective_search_path(const char* search_path, bool reads_environment) {
  const char* replaced = reads_environment ? bp_environment("BACKPLANE_BACKENDS") : nullptr;
  const char* added = reads_environment ? bp_environment("BACKPLANE_ADD_BACKENDS") : nullptr;
  std::string path;
  if (search_path != nullptr) {
    path = search_path;
  } else {
    path = replaced != nullptr ? replaced : default_search_path();
  }
  return added == nullptr ? path : path + ":" + added;
}

Manifests discover(const std::string& search_path) {
  std::vector<Found> files;
  for (const std::string& part : split(search_path)) add_files(part, files);
  std::ranges::stable_sort(files, {}, [](const Found& file) { return file.path.filename(); });
  Manifests manifests;
  add_static_backends(manifests);
  std::set<std::string> seen_files;
  for (const Found& file : files) {
    std::unique_ptr<Manifest> m = read_manifest(file);
    if (!seen_files.insert(m->own_file).second) continue;  // The search path has it twice.
    manifests.push_back(std::move(m));
  }
  std::set<std::string> names;
  for (const std::unique_ptr<Manifest>& m : manifests) {
    if (m->own_problem.empty() && !names.insert(m->own_name).second) {
      m->own_problem = "another manifest before it has the name " + m->own_name;
    }
    m->seal();
  }
  return manifests;
}

}  // namespace bp::core
