// Tests loading files: plugins of every kind, and files that only look like plugins.
#include "registry/lifetime/loader.hpp"

#include <dlfcn.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <iterator>

#include "registry/tests/fake_backend.hpp"

namespace bp::core {
namespace {

// Returns the path of a plugin of registry/tests/plugins, as CMake builds it.
std::string plugin(const std::string& name) {
  return std::string(BP_TEST_PLUGINS) + "/" + name + ".so";
}

TEST(Loader, LoadsAPluginAndClosesItsLibraryAgain) {
  TestRegistry r;
  const std::string path = plugin("good");
  for (int i = 0; i < 100; ++i) {
    const bp_plugin* loaded = nullptr;
    ASSERT_EQ(bp_registry_load(r.registry, path.c_str(), 0, nullptr, &loaded), BP_OK)
        << bp_error_text();
    EXPECT_STREQ(loaded->name, "test.good");
    EXPECT_EQ(loaded->path, path);
    ASSERT_EQ(bp_registry_unload(r.registry, loaded, UINT64_MAX), BP_OK) << bp_error_text();
  }
  EXPECT_EQ(dlopen(path.c_str(), RTLD_NOLOAD | RTLD_NOW), nullptr) << "the library is still open";
}

TEST(Loader, SaysWhyAFileIsNotLoaded) {
  const std::filesystem::path text =
      std::filesystem::temp_directory_path() / "bp_loader_test_text.so";
  std::ofstream(text) << "not a library";
  struct Row {
    std::string path;
    bp_status status;
    std::string words;
  };
  const Row rows[] = {
      {plugin("missing"), BP_NOT_FOUND, ": no such file"},
      {text.string(), BP_INCOMPATIBLE, ": not a plugin: it is not a shared library"},
      {plugin("no_entry"), BP_INCOMPATIBLE, ": not a plugin: it does not export bp_backend_entry"},
      {plugin("other_major"), BP_INCOMPATIBLE,
       ": this backend serves ABI 7.0 to 8.3 (this host serves " BP_TEST_SERVED
       "; the backend is for the majors 7 to 8)"},
      {plugin("empty_yes"), BP_INTERNAL, ": its entry returned BP_OK, but no backend"},
  };
  for (const Row& row : rows) {
    TestRegistry r;
    EXPECT_EQ(bp_registry_load(r.registry, row.path.c_str(), 0, nullptr, nullptr), row.status);
    EXPECT_EQ(bp_error_text(), row.path + row.words);
    EXPECT_EQ(bp_registry_plugin_count(r.registry), 0);
    EXPECT_EQ(dlopen(row.path.c_str(), RTLD_NOLOAD | RTLD_NOW), nullptr) << row.path;
  }
  std::filesystem::remove(text);
}

TEST(Loader, ClosesTheLibraryWhenTheRegistrationFails) {
  TestRegistry r;
  const std::string path = plugin("no_register");
  EXPECT_EQ(bp_registry_load(r.registry, path.c_str(), 0, nullptr, nullptr), BP_INTERNAL);
  EXPECT_STREQ(bp_error_text(),
               "test.no_register: register_all failed: the firmware does not answer");
  EXPECT_EQ(dlopen(path.c_str(), RTLD_NOLOAD | RTLD_NOW), nullptr);
}

TEST(Loader, ServesTwoRegistriesFromOneFile) {
  TestRegistry first, second;
  const std::string path = plugin("good");
  ASSERT_EQ(bp_registry_load(first.registry, path.c_str(), 0, nullptr, nullptr), BP_OK);
  ASSERT_EQ(bp_registry_load(second.registry, path.c_str(), 0, nullptr, nullptr), BP_OK);
  EXPECT_EQ(bp_registry_load(first.registry, path.c_str(), 0, nullptr, nullptr), BP_ALREADY_EXISTS);
  EXPECT_EQ(bp_registry_target_count(second.registry), 1);
}

TEST(Loader, SaysWhatAPathIsThatIsNoRegularFile) {
  const std::filesystem::path folder =
      std::filesystem::temp_directory_path() / ("bp_loader_" + std::to_string(getpid()));
  std::filesystem::create_directories(folder / "folder.so");
  ASSERT_EQ(mkfifo((folder / "fifo.so").c_str(), 0600), 0);
  for (const char* kind : {"FIFO", "folder"}) {
    const std::string path = folder / (kind == std::string("FIFO") ? "fifo.so" : "folder.so");
    TestRegistry r;
    EXPECT_EQ(bp_registry_load(r.registry, path.c_str(), 0, nullptr, nullptr), BP_INCOMPATIBLE);
    EXPECT_EQ(bp_error_text(), path + ": not a plugin: it is a " + kind + ", not a regular file");
  }
  std::filesystem::remove_all(folder);
}

TEST(Loader, SaysWhatTheSystemSaysOfALibraryThatIsDamaged) {
  const std::filesystem::path folder =
      std::filesystem::temp_directory_path() / ("bp_damaged_" + std::to_string(getpid()));
  std::filesystem::create_directories(folder);
  std::ifstream in(plugin("good"), std::ios::binary);
  const std::string whole{std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
  for (const size_t size : {size_t{4}, size_t{64}, size_t{200}}) {
    const std::string path = folder / (std::to_string(size) + ".so");
    std::ofstream(path, std::ios::binary) << whole.substr(0, size);
    TestRegistry r;
    EXPECT_EQ(bp_registry_load(r.registry, path.c_str(), 0, nullptr, nullptr), BP_INCOMPATIBLE);
    EXPECT_EQ(std::string(bp_error_text()).find(path + ": not loaded: "), 0u) << bp_error_text();
    EXPECT_EQ(bp_registry_plugin_count(r.registry), 0);
  }
  for (const size_t size : {size_t{0}, size_t{3}}) {
    const std::string path = folder / (std::to_string(size) + ".so");
    std::ofstream(path, std::ios::binary) << whole.substr(0, size);
    TestRegistry r;
    EXPECT_EQ(bp_registry_load(r.registry, path.c_str(), 0, nullptr, nullptr), BP_INCOMPATIBLE);
    EXPECT_EQ(bp_error_text(), path + ": not a plugin: it is not a shared library");
  }
  std::filesystem::remove_all(folder);
}

TEST(Loader, TakesOnlyNamesOfAVendorAndABackend) {
  for (const char* name : {"acme", "acme.", ".npu", "acme.npu.x", "Acme.npu", "acme npu.x", "",
                           "acme.n-pu", "acme.\x1b[2J"}) {
    TestRegistry r;
    FakeBackend fake(name);
    EXPECT_EQ(fake.load(r.registry), BP_INTERNAL) << name;
    const std::string words = bp_error_text();
    EXPECT_NE(words.find("not vendor.backend with both in [a-z0-9_]+"), words.npos) << words;
    EXPECT_EQ(words.find('\x1b'), words.npos) << "it is shown as an escape";
    EXPECT_EQ(bp_registry_plugin_count(r.registry), 0) << name;
  }
  TestRegistry r;
  FakeBackend fake("acme_2.npu_3");
  EXPECT_EQ(fake.load(r.registry), BP_OK) << bp_error_text();
}

TEST(Loader, EndsAnInstanceOfAnAbiThatWasNotOfferedWithoutACall) {
  uint32_t major = 99, served = 99;
  ASSERT_EQ(bp_abi_version(&major, &served), BP_OK);
  EXPECT_EQ(major, uint32_t{BP_ABI_MAJOR});
  EXPECT_EQ(served, uint32_t{BP_ABI_MINOR});
  for (const uint32_t minor : {uint32_t{0}, uint32_t{BP_ABI_MINOR + 1}}) {
    TestRegistry r;
    FakeBackend fake;
    fake.abi_minor = minor;
    EXPECT_EQ(fake.load(r.registry), BP_INCOMPATIBLE);
    EXPECT_NE(std::string(bp_error_text()).find("which was not offered; this host serves ABI "),
              std::string::npos)
        << bp_error_text();
    EXPECT_EQ(fake.shutdowns, 0) << "its table may have another shape";
  }
}

TEST(Loader, NamesTheStatusOfARefusalWithoutWords) {
  for (const char* words : {static_cast<const char*>(nullptr), "the driver is too old"}) {
    TestRegistry r;
    FakeBackend fake;
    fake.entry_status = BP_DEVICE_LOST;
    fake.entry_words = words;
    EXPECT_EQ(fake.load(r.registry), BP_DEVICE_LOST);
    const std::string expected = words == nullptr ? "refused without a reason, " +
                                                        std::string(bp_status_name(BP_DEVICE_LOST))
                                                  : words;
    EXPECT_EQ(std::string(bp_error_text()), "acme.npu: " + expected);
    fake.entry_status = BP_OK;
    EXPECT_EQ(fake.load(r.registry), BP_OK) << "a refusal leaves nothing: " << bp_error_text();
  }
}

}  // namespace
}  // namespace bp::core
