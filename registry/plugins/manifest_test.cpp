// Tests discovery: manifests in folders, and the faults of some of them.
#include "registry/plugins/manifest.hpp"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string>

#include "registry/tests/fake_backend.hpp"

namespace bp::core {
namespace {

namespace fs = std::filesystem;

class Discovery : public ::testing::Test {
 protected:
  Discovery() : folder(fs::temp_directory_path() / ("bp_manifest_" + std::to_string(getpid()))) {
    fs::create_directories(folder / "backends.d");
    fs::copy_file(fs::path(BP_TEST_PLUGINS) / "good.so", folder / "good.so",
                  fs::copy_options::overwrite_existing);
  }
  ~Discovery() override {
    fs::remove_all(folder);
    unsetenv("BACKPLANE_BACKENDS");
    unsetenv("BACKPLANE_ADD_BACKENDS");
  }

  std::string write(const std::string& file, const std::string& content) {
    const fs::path path = folder / "backends.d" / file;
    std::ofstream(path) << content;
    return path.string();
  }

  static std::string manifest(const std::string& name, const std::string& library = "../good.so",
                              int minor = BP_ABI_MINOR) {
    return R"({"name": ")" + name + R"(", "library": ")" + library +
           R"(", "abi": {"major": 0, "minor_min": )" + std::to_string(minor) + R"(, "minor": )" +
           std::to_string(minor) + "}}";
  }

  std::string search_path() const { return (folder / "backends.d").string(); }

  // Makes a registry that looks only into the folder of this test.
  bp_registry* make_registry() {
    const std::string path = search_path();
    const bp_registry_desc desc{.struct_size = sizeof(desc),
                                .struct_type = BP_STRUCT_REGISTRY_DESC,
                                .flags = BP_REGISTRY_IGNORE_ENVIRONMENT,
                                .search_path = path.c_str()};
    EXPECT_EQ(bp_registry_create(&desc, &registry.registry), BP_OK);
    return registry.registry;
  }

  struct Owner {
    bp_registry* registry = nullptr;
    ~Owner() { bp_registry_destroy(registry); }
  };

  fs::path folder;
  Owner registry;
};

TEST_F(Discovery, ListsManifestsByFileNameWithTheProblemOfEach) {
  write("a_good.json", manifest("test.good"));
  write("b_bad.json", "{");
  write("c_missing.json", manifest("test.missing", "nowhere.so"));
  write("d_foreign.json", manifest("test.foreign", "../good.so", 9));
  write("e_twice.json", manifest("test.good"));
  write("f_half.json", R"({"name": "test.half"})");
  write("ignored.txt", "not looked at");
  const Manifests found = discover(search_path() + ":" + search_path());
  ASSERT_EQ(found.size(), 6);
  EXPECT_STREQ(found[0]->name, "test.good");
  EXPECT_EQ(found[0]->library, (folder / "good.so").string());
  EXPECT_EQ(found[0]->problem, nullptr);
  EXPECT_TRUE(std::string(found[1]->problem).starts_with("not a manifest: ")) << found[1]->problem;
  EXPECT_STREQ(found[1]->name, "");
  EXPECT_TRUE(std::string(found[2]->problem).starts_with("its library does not exist: "));
  EXPECT_STREQ(found[3]->problem, "it serves ABI 0.9 to 0.9, this host " BP_TEST_SERVED);
  EXPECT_STREQ(found[4]->problem, "another manifest before it has the name test.good");
  EXPECT_TRUE(std::string(found[5]->problem).starts_with("not a manifest: "));
}

TEST_F(Discovery, ListsAPartOfTheSearchPathThatDoesNotExist) {
  const Manifests found = discover((folder / "nowhere").string());
  ASSERT_EQ(found.size(), 1);
  EXPECT_STREQ(found[0]->problem, "no such file or folder");
}

TEST_F(Discovery, LoadsByFullAndByShortName) {
  write("good.json", manifest("test.good"));
  bp_registry* r = make_registry();
  const bp_plugin* plugin = nullptr;
  for (const char* name : {"test.good", "good"}) {
    ASSERT_EQ(bp_registry_load(r, name, 0, nullptr, &plugin), BP_OK) << bp_error_text();
    EXPECT_EQ(plugin->path, (folder / "good.so").string());
    ASSERT_EQ(bp_registry_unload(r, plugin, UINT64_MAX), BP_OK);
  }
  EXPECT_EQ(bp_registry_load(r, "better", 0, nullptr, &plugin), BP_NOT_FOUND);
  EXPECT_STREQ(bp_error_text(), "better: no manifest has this name; found are test.good");
}

TEST_F(Discovery, RefusesAShortNameOfTwoBackends) {
  write("one.json", manifest("test.good"));
  write("two.json", manifest("other.good"));
  EXPECT_EQ(bp_registry_load(make_registry(), "good", 0, nullptr, nullptr), BP_NOT_FOUND);
  EXPECT_STREQ(bp_error_text(),
               "good: the name fits several backends; found are test.good, other.good; "
               "give the full name");
}

TEST_F(Discovery, SaysWhatIsWrongWithTheManifestThatWasAskedFor) {
  const std::string file = write("good.json", manifest("test.good", "nowhere.so"));
  EXPECT_EQ(bp_registry_load(make_registry(), "good", 0, nullptr, nullptr), BP_NOT_FOUND);
  EXPECT_TRUE(std::string(bp_error_text())
                  .starts_with("good: its manifest " + file +
                               " cannot be used: its library does not exist: "))
      << bp_error_text();
}

TEST_F(Discovery, RefusesABackendOfAnotherNameThanItsManifest) {
  write("good.json", manifest("test.better"));
  EXPECT_EQ(bp_registry_load(make_registry(), "better", 0, nullptr, nullptr), BP_INCOMPATIBLE);
  EXPECT_STREQ(bp_error_text(),
               "test.better: its manifest says test.better, the backend calls itself test.good");
}

TEST_F(Discovery, LendsWhatItFound) {
  write("good.json", manifest("test.good"));
  bp_registry* r = make_registry();
  uint64_t count = 0;
  ASSERT_EQ(bp_registry_discover(r, &count), BP_OK);
  ASSERT_EQ(count, 1);
  const bp_manifest* found = nullptr;
  ASSERT_EQ(bp_registry_manifest(r, 0, &found), BP_OK);
  EXPECT_STREQ(found->name, "test.good");
  EXPECT_EQ(bp_registry_manifest(r, 1, &found), BP_NOT_FOUND);
  EXPECT_STREQ(bp_error_text(),
               "manifest: index is 1; allowed: below 1, the number of manifests that were found");
}

TEST_F(Discovery, LetsTheEnvironmentReplaceAndExtendTheDefault) {
  const std::string standard = effective_search_path(nullptr, false);
  EXPECT_NE(standard.find("backends.d"), std::string::npos);
  setenv("BACKPLANE_ADD_BACKENDS", "/b", 1);
  EXPECT_EQ(effective_search_path(nullptr, true), standard + ":/b");
  setenv("BACKPLANE_BACKENDS", "/a", 1);
  EXPECT_EQ(effective_search_path(nullptr, true), "/a:/b");
  EXPECT_EQ(effective_search_path("/own", true), "/own:/b");
  EXPECT_EQ(effective_search_path(nullptr, false), standard);
}

TEST_F(Discovery, ReadsOnlyVariablesOfItsOwn) {
  setenv("BACKPLANE_BACKENDS", "/a", 1);
  EXPECT_STREQ(bp_environment("BACKPLANE_BACKENDS"), "/a");
  EXPECT_EQ(bp_environment("PATH"), nullptr);
  EXPECT_EQ(bp_environment(nullptr), nullptr);
}

TEST_F(Discovery, RefusesAManifestThatNestsWithoutEnd) {
  std::string deep = R"({"name": )" + std::string(100'000, '[') + std::string(100'000, ']') + "}";
  write("a_deep.json", deep);
  const Manifests found = discover(search_path());
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0]->own_problem,
            "not a manifest: the JSON nests deeper than 64 levels at byte 72; write it with fewer "
            "levels");
}

TEST_F(Discovery, RefusesVersionsThatAreNoNumbersOf32Bits) {
  for (const char* minor : {"-1", "4294967298", "2.0", "\"2\"", "null"}) {
    write("a_wrong.json", R"({"name": "test.wrong", "library": "../good.so",)"
                          R"("abi": {"major": 0, "minor_min": 1, "minor": )" +
                              std::string(minor) + "}}");
    const Manifests found = discover(search_path());
    ASSERT_EQ(found.size(), 1u);
    EXPECT_EQ(found[0]->own_problem,
              "not a manifest: abi.minor must be an integer from 0 to 4294967295")
        << minor;
  }
}

TEST_F(Discovery, SaysWhichMajorsAManifestIsFor) {
  const struct {
    const char* abi;
    const char* problem;
  } rows[] = {
      {R"({"major_min": 1, "major": 2, "minor_min": 0, "minor": 4})",
       "it serves ABI 1.0 to 2.4, this host " BP_TEST_SERVED},
      {R"({"major_min": 0, "major": 1, "minor_min": 0, "minor": 9})",
       "it serves ABI 0.0 to 1.9, this host " BP_TEST_SERVED},
      {R"({"major": 1, "minor_min": 0, "minor": 4})",
       "it serves ABI 1.0 to 1.4, this host " BP_TEST_SERVED},
      {R"({"major_min": 2, "major": 1, "minor_min": 0, "minor": 4})",
       "not a manifest: abi.major_min is above abi.major"},
  };
  for (const auto& [abi, problem] : rows) {
    write("a.json",
          R"({"name": "test.a", "library": "../good.so", "abi": )" + std::string(abi) + "}");
    const Manifests found = discover(search_path());
    ASSERT_EQ(found.size(), 1u);
    EXPECT_EQ(found[0]->own_problem, problem);
  }
}

TEST_F(Discovery, ListsWhatIsNoRegularFileWithoutWaitingForIt) {
  ASSERT_EQ(mkfifo((folder / "backends.d" / "a_fifo.json").c_str(), 0600), 0);
  fs::create_directories(folder / "backends.d" / "b_folder.json");
  fs::create_symlink("/dev/zero", folder / "backends.d" / "c_device.json");
  write("d_large.json", std::string(2 << 20, ' ') + manifest("test.good"));
  const Manifests found = discover(search_path());
  ASSERT_EQ(found.size(), 4u);
  EXPECT_EQ(found[0]->own_problem, "not a manifest: it is a FIFO, not a regular file");
  EXPECT_EQ(found[1]->own_problem, "not a manifest: it is a folder, not a regular file");
  EXPECT_EQ(found[2]->own_problem, "not a manifest: it is a device, not a regular file");
  EXPECT_NE(found[3]->own_problem.find("bytes; allowed are at most 1048576"), std::string::npos)
      << found[3]->own_problem;
}

// Returns what is found at `path` while nobody may use `closed`. A superuser may use every folder,
// so the search runs as another user. Returns nothing if that is not possible.
std::optional<Manifests> discover_behind(const fs::path& closed, const fs::path& path) {
  const bool is_root = geteuid() == 0;
  fs::permissions(closed, fs::perms::none);
  std::optional<Manifests> found;
  if (!is_root || seteuid(65534) == 0) found = discover(path.string());
  if (is_root) {
    EXPECT_EQ(seteuid(0), 0);
  }
  fs::permissions(closed, fs::perms::owner_all);
  return found;
}

TEST_F(Discovery, ListsAFolderThatCannotBeReadWithTheReason) {
  const fs::path closed = folder / "backends.d";
  const std::optional<Manifests> found = discover_behind(closed, closed);
  if (!found) GTEST_SKIP() << "cannot give up the rights of a superuser";
  ASSERT_EQ(found->size(), 1u);
  EXPECT_EQ(found->front()->own_file, closed.string());
  EXPECT_EQ(found->front()->own_problem, "the folder cannot be read: Permission denied");
}

TEST_F(Discovery, ListsAFolderInAFolderThatMayNotBeSearched) {
  const fs::path closed = folder / "closed", inner = closed / "backends.d";
  fs::create_directories(inner);
  const std::optional<Manifests> found = discover_behind(closed, inner);
  if (!found) GTEST_SKIP() << "cannot give up the rights of a superuser";
  ASSERT_EQ(found->size(), 1u);
  EXPECT_EQ(found->front()->own_problem, "it cannot be looked at: Permission denied");
}

TEST_F(Discovery, ShowsControlCharactersOfAManifestAsEscapes) {
  write("a.json", manifest("test.\\u001b[2Jgood"));
  const Manifests found = discover(search_path());
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0]->own_name, "test.\\x1b[2Jgood");
}

TEST_F(Discovery, PrefersTheFolderThatStandsFirst) {
  const fs::path other = folder / "other.d";
  fs::create_directories(other);
  write("a.json", manifest("test.good"));
  std::ofstream(other / "a.json") << manifest("test.good");
  for (const bool is_swapped : {false, true}) {
    const std::string first = is_swapped ? other.string() : search_path();
    const std::string second = is_swapped ? search_path() : other.string();
    std::string path = ":";
    path.append(first).append("::").append(second).append(":");
    const Manifests found = discover(path);
    ASSERT_EQ(found.size(), 2u);
    EXPECT_EQ(found[0]->own_file, first + "/a.json");
    EXPECT_EQ(found[0]->problem, nullptr);
    EXPECT_STREQ(found[1]->problem, "another manifest before it has the name test.good");
  }
}

TEST_F(Discovery, LetsAManifestThatCannotBeUsedTakeNoName) {
  write("a.json", manifest("test.good", "nowhere.so"));
  write("b.json", manifest("test.good"));
  const Manifests found = discover(search_path());
  ASSERT_EQ(found.size(), 2u);
  EXPECT_NE(found[0]->problem, nullptr);
  EXPECT_EQ(found[1]->problem, nullptr) << found[1]->problem;
  const bp_plugin* plugin = nullptr;
  ASSERT_EQ(bp_registry_load(make_registry(), "test.good", 0, nullptr, &plugin), BP_OK)
      << bp_error_text();
}

TEST_F(Discovery, FindsALibraryFromTheFolderOfTheManifestOrByItsWholePath) {
  const std::string path = (folder / "good.so").string();
  write("a.json", manifest("test.good", path));
  write("b.json", manifest("test.beside", "../backends.d/.././good.so"));
  const Manifests found = discover(search_path());
  ASSERT_EQ(found.size(), 2u);
  for (const auto& m : found) {
    EXPECT_EQ(m->problem, nullptr) << m->problem;
    EXPECT_EQ(m->library, path);
  }
}

TEST_F(Discovery, TakesAFileInThePlaceOfAFolder) {
  const std::string file = write("only.json", manifest("test.good"));
  write("other.json", manifest("test.other"));
  const Manifests found = discover(file);
  ASSERT_EQ(found.size(), 1u);
  EXPECT_STREQ(found[0]->name, "test.good");
}

TEST_F(Discovery, SaysWhichMemberOfAManifestIsMissingOrWrong) {
  const struct {
    const char* content;
    const char* words;
  } rows[] = {
      {R"({"library": "../good.so", "abi": {"major": 0, "minor_min": 1, "minor": 1}})", "name"},
      {R"({"name": 5, "library": "../good.so", "abi": {"major": 0, "minor_min": 1, "minor": 1}})",
       "type must be string"},
      {R"({"name": "test.a", "abi": {"major": 0, "minor_min": 1, "minor": 1}})", "library"},
      {R"({"name": "test.a", "library": "../good.so"})", "abi"},
      {R"({"name": "test.a", "library": "../good.so", "abi": {"minor_min": 1, "minor": 1}})",
       "major"},
      {R"(["test.a"])", "array"},
      {"", "parse error at line 1, column 1"},
      {"\xff", "invalid"},
  };
  for (const auto& [content, words] : rows) {
    write("a.json", content);
    const Manifests found = discover(search_path());
    ASSERT_EQ(found.size(), 1u);
    EXPECT_EQ(found[0]->own_problem.find("not a manifest: "), 0u) << content;
    EXPECT_NE(found[0]->own_problem.find(words), std::string::npos) << found[0]->own_problem;
  }
}

TEST_F(Discovery, SeesAManifestThatComesLater) {
  bp_registry* r = make_registry();
  const bp_plugin* plugin = nullptr;
  EXPECT_EQ(bp_registry_load(r, "good", 0, nullptr, &plugin), BP_NOT_FOUND);
  write("good.json", manifest("test.good"));
  EXPECT_EQ(bp_registry_load(r, "good", 0, nullptr, &plugin), BP_OK) << bp_error_text();
}

}  // namespace
}  // namespace bp::core
