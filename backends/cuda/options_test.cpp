#include "backends/cuda/options.hpp"

#include "backends/shell/options_test.hpp"

namespace bp::cuda {
namespace {

Options read(Values values) { return read_options(host_with(values)); }

TEST(CudaOptions, HaveDefaults) {
  const Options options = read({});
  EXPECT_TRUE(options.devices.has(7));
  EXPECT_TRUE(options.has_pool);
  EXPECT_FALSE(options.allows_tf32);
  EXPECT_TRUE(options.rounds_weights);
  EXPECT_FALSE(options.has_library_attention);
  EXPECT_TRUE(options.libraries.folders.empty());
  EXPECT_EQ(options.libraries.toolkit, "/usr/local/cuda");
  EXPECT_EQ(options.libraries.python, "");
}

TEST(CudaOptions, ChooseDevicesAllocatorAndArithmetic) {
  const Options options = read({{"devices", "1"},
                                {"allocator", "plain"},
                                {"tf32", "yes"},
                                {"rounded_weights", "no"},
                                {"attention", "cudnn"}});
  EXPECT_FALSE(options.devices.has(0));
  EXPECT_FALSE(options.has_pool);
  EXPECT_TRUE(options.allows_tf32);
  EXPECT_FALSE(options.rounds_weights);
  EXPECT_TRUE(options.has_library_attention);
}

TEST(CudaOptions, SayWhereToLookForLibraries) {
  const LibrarySearch search =
      read({{"library_path", "/a::/b"}, {"toolkit_path", "/t"}, {"python_path", "/p"}}).libraries;
  EXPECT_EQ(search.folders, (std::vector<std::string>{"/a", "/b"}));
  EXPECT_EQ(search.toolkit, "/t");
  EXPECT_EQ(search.python, "/p");
}

TEST(CudaOptions, AreRefusedWithWhatIsAllowed) {
  EXPECT_EQ(refusal_of([] {
              read({{"allocator", "arena"}});
            }),
            "option allocator: \"arena\" is not pool or plain");
  EXPECT_EQ(refusal_of([] { read({{"tf32", "on"}}); }), "option tf32: \"on\" is not yes or no");
}

}  // namespace
}  // namespace bp::cuda
