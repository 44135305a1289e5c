// Tests backends that are linked in. The build compiles one of the test plugins into this program,
// and leaves out the table that CMake wrote: the table in this file replaces it.
#include "registry/plugins/static_backends.hpp"

#include <gtest/gtest.h>

#include "backplane/registry.hpp"

const bp_static_backend kStaticBackends[] = {{"test.good", bp_backend_entry}, {nullptr, nullptr}};
const size_t kStaticBackendCount = 1;

namespace bp {
namespace {

// Without a search path, only linked-in backends can be found.
Registry make_registry() {
  const bp_registry_desc desc{.struct_size = sizeof(desc),
                              .struct_type = BP_STRUCT_REGISTRY_DESC,
                              .flags = BP_REGISTRY_IGNORE_ENVIRONMENT,
                              .search_path = ""};
  return Registry(&desc);
}

TEST(StaticBackends, AreDiscoveredWithoutAFile) {
  const Registry registry = make_registry();
  uint64_t count = 0;
  ASSERT_EQ(bp_registry_discover(registry.get(), &count), BP_OK) << bp_error_text();
  ASSERT_EQ(count, 1);
  const bp_manifest* manifest = nullptr;
  ASSERT_EQ(bp_registry_manifest(registry.get(), 0, &manifest), BP_OK) << bp_error_text();
  EXPECT_STREQ(manifest->name, "test.good");
  EXPECT_STREQ(manifest->file, "(static)");
  EXPECT_EQ(manifest->library, nullptr);
  EXPECT_EQ(manifest->problem, nullptr);
}

TEST(StaticBackends, LoadByNameAndAgainAfterAnUnload) {
  Registry registry = make_registry();
  for (const char* name : {"test.good", "good"}) {
    const bp_plugin* plugin = nullptr;
    const Status loaded = registry.load(name, {}, &plugin);
    ASSERT_TRUE(loaded.ok()) << loaded.message;
    EXPECT_STREQ(plugin->path, "(static)");
    ASSERT_EQ(registry.targets().size(), 1);
    EXPECT_STREQ(registry.targets()[0]->name, "test.good:0");
    const Status unloaded = registry.unload(plugin);
    EXPECT_TRUE(unloaded.ok()) << unloaded.message;
    EXPECT_TRUE(registry.targets().empty());
  }
}

}  // namespace
}  // namespace bp
