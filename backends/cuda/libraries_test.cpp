// Tests how libraries are found, and what is reported if one is missing. The file system is made up
// by each test.
#include "backends/cuda/libraries.hpp"

#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <set>

namespace bp::cuda {
namespace {

// One library file, with its version and the functions that it lacks.
struct File {
  int version = 0;
  std::set<std::string> lacks;
  std::string broken;  // Why the file cannot be opened; empty if it can.
};

File of_version(int version) { return {version, {}, ""}; }

constexpr size_t kCudartVersion = 12080;  // The runtime with which cuDNN was built.
size_t give_cudart_version() { return kCudartVersion; }

// The version of the file whose version function was looked up last. It is global because a C
// function has no state.
int asked_version = 0;
int give_nvrtc_version(int* major, int* minor) {
  *major = asked_version / 10000;
  *minor = asked_version / 100 % 100;
  return 0;
}
size_t give_version() { return static_cast<size_t>(asked_version); }
ncclResult_t give_nccl_version(int* version) {
  *version = asked_version;
  return ncclSuccess;
}

struct World {
  std::map<std::string, File> files;   // By path, or by name if the loader finds it on its path.
  std::map<std::string, File> loaded;  // The libraries that the process has loaded, by name.
  std::map<std::string, std::vector<std::string>> matches;
  std::vector<std::string> opened, notes;

  LibraryLoader loader() {
    LibraryLoader l;
    l.open_loaded = [this](const std::string& name) -> void* {
      const auto at = loaded.find(name);
      return at == loaded.end() ? nullptr : &at->second;
    };
    l.open = [this](const std::string& path, std::string& out_reason) -> void* {
      opened.push_back(path);
      const auto at = files.find(path);
      if (at == files.end()) return nullptr;
      out_reason = at->second.broken;
      return out_reason.empty() ? &at->second : nullptr;
    };
    l.find_symbol = [](void* handle, const char* symbol) -> void* {
      const File& file = *static_cast<File*>(handle);
      if (file.lacks.contains(symbol)) return nullptr;
      asked_version = file.version;
      if (std::string(symbol) == "ncclGetVersion") {
        return reinterpret_cast<void*>(&give_nccl_version);
      }
      if (std::string(symbol) == "nvrtcVersion") {
        return reinterpret_cast<void*>(&give_nvrtc_version);
      }
      if (std::string(symbol) == "cudnnGetCudartVersion") {
        return reinterpret_cast<void*>(&give_cudart_version);
      }
      return reinterpret_cast<void*>(&give_version);
    };
    l.exists = [this](const std::string& path) { return files.contains(path); };
    l.match = [this](const std::string& pattern) { return matches[pattern]; };
    return l;
  }

  LibraryNote note() {
    return [this](bool is_found, const std::string& line) {
      notes.push_back((is_found ? "" : "missing: ") + line);
    };
  }
};

TEST(Libraries, TakesWhatTheProcessHasLoaded) {
  World w;
  w.loaded["libcublasLt.so.13"] = of_version(130100);
  w.files["/mine/libcublasLt.so.13"] = of_version(130200);
  Libraries libraries({{"/mine"}, "", ""}, w.loader(), w.note());
  EXPECT_NE(libraries.cublaslt(), nullptr);
  EXPECT_EQ(w.opened.size(), 0u);
  EXPECT_EQ(w.notes.back(), "cuBLASLt 13.1.0 (libcublasLt.so.13)");
}

TEST(Libraries, PrefersTheFolderOfTheOptionToTheLoadersPath) {
  World w;
  w.files["libcudnn.so.9"] = of_version(91000);
  w.files["/mine/libcudnn.so.9"] = of_version(91900);
  Libraries libraries({{"/other", "/mine"}, "", ""}, w.loader(), w.note());
  EXPECT_NE(libraries.cudnn(), nullptr);
  EXPECT_EQ(w.notes.back(), "cuDNN 9.19.0 (/mine/libcudnn.so.9)");
}

TEST(Libraries, LooksInTheToolkitAndThenInWheels) {
  World w;
  w.matches["/env/lib/python3*/site-packages/nvidia/*/lib"] = {"/env/s/nvidia/nccl/lib"};
  w.files["/env/s/nvidia/nccl/lib/libnccl.so.2"] = of_version(22809);
  w.files["/toolkit/lib64/libcublasLt.so.12"] = of_version(120400);
  Libraries libraries({{}, "/toolkit", "/env"}, w.loader(), w.note());
  EXPECT_NE(libraries.cublaslt(), nullptr);
  EXPECT_NE(libraries.nccl(), nullptr);
  EXPECT_EQ(w.notes,
            (std::vector<std::string>{"cuBLASLt 12.4.0 (/toolkit/lib64/libcublasLt.so.12)",
                                      "NCCL 2.28.9 (/env/s/nvidia/nccl/lib/libnccl.so.2)"}));
}

// cuDNN opens NVRTC by its name when it compiles an engine. The loader finds no wheels.
TEST(Libraries, OpensTheCompilerThatCudnnNeedsInTheSameFolders) {
  const std::string cudnn = "/env/s/nvidia/cudnn/lib", nvrtc = "/env/s/nvidia/cuda_nvrtc/lib";
  World w;
  w.matches["/env/lib/python3*/site-packages/nvidia/*/lib"] = {cudnn, nvrtc};
  w.files[cudnn + "/libcudnn.so.9"] = of_version(91900);
  w.files[nvrtc + "/libnvrtc.so.12"] = of_version(120800);
  w.files[nvrtc + "/libnvrtc.so.13"] = of_version(130000);  // It is for another cuDNN.
  w.files[nvrtc + "/libnvrtc-builtins.so.12.8"] = {};
  Libraries libraries({{}, "", "/env"}, w.loader(), w.note());
  ASSERT_NE(libraries.cudnn(), nullptr);
  EXPECT_EQ(w.notes, (std::vector<std::string>{"NVRTC 12.8.0 (" + nvrtc + "/libnvrtc.so.12)",
                                               "cuDNN 9.19.0 (" + cudnn + "/libcudnn.so.9)"}));
  EXPECT_EQ(w.opened.back(), nvrtc + "/libnvrtc-builtins.so.12.8");
}

TEST(Libraries, SaysThatCudnnLacksItsCompilerOrThePartsOfIt) {
  World w;
  w.files["libcudnn.so.9"] = of_version(91900);
  Libraries without({{}, "", ""}, w.loader(), w.note());
  ASSERT_NE(without.cudnn(), nullptr);
  ASSERT_EQ(w.notes.size(), 2u);
  EXPECT_TRUE(w.notes[0].starts_with("missing: NVRTC is missing: no libnvrtc.so.12 "))
      << w.notes[0];
  w.files["/toolkit/lib64/libnvrtc.so.12"] = of_version(120800);
  Libraries with_half({{}, "/toolkit", ""}, w.loader(), w.note());
  ASSERT_NE(with_half.cudnn(), nullptr);
  EXPECT_EQ(w.notes[3],
            "missing: NVRTC lacks its builtins: /toolkit/lib64/libnvrtc-builtins.so.12.8 does not "
            "open: there is no such file");
}

TEST(Libraries, SaysWhatToDoWhereOneIsMissing) {
  World w;
  Libraries libraries({{}, "/usr/local/cuda", ""}, w.loader(), w.note());
  EXPECT_EQ(libraries.nccl(), nullptr);
  EXPECT_EQ(
      libraries.nccl_reason(),
      "NCCL is missing: no libnccl.so.2 is loaded, on the loader's path or in the folders of "
      "options library_path, toolkit_path and python_path; install NCCL 2.18 or newer (or the "
      "wheel nvidia-nccl-cu13), or name its folder in option library_path; without it there "
      "are no process groups");
}

TEST(Libraries, PassesOverOneThatIsTooOld) {
  World w;
  w.files["libnccl.so.2"] = of_version(21102);
  w.files["/mine/libnccl.so.2"] = of_version(22000);
  Libraries none({{}, "", ""}, w.loader(), w.note());
  EXPECT_EQ(none.nccl(), nullptr);
  EXPECT_NE(none.nccl_reason().find("libnccl.so.2 is 2.11.2, and 2.18.0 or newer is needed"),
            std::string::npos)
      << none.nccl_reason();
  Libraries newer({{"/mine"}, "", ""}, w.loader(), w.note());
  EXPECT_NE(newer.nccl(), nullptr);
}

TEST(Libraries, SaysWhyAFileDoesNotOpenAndGoesOn) {
  World w;
  w.files["/mine/libcudnn.so.9"] = {0, {}, "wrong ELF class"};
  Libraries none({{"/mine"}, "", ""}, w.loader(), w.note());
  EXPECT_EQ(none.cudnn(), nullptr);
  EXPECT_NE(none.cudnn_reason().find("/mine/libcudnn.so.9 does not open: wrong ELF class"),
            std::string::npos);
  w.files["/toolkit/lib/libcudnn.so.9"] = of_version(90100);
  Libraries second({{"/mine"}, "/toolkit", ""}, w.loader(), w.note());
  EXPECT_NE(second.cudnn(), nullptr);
}

TEST(Libraries, NamesTheFunctionThatALibraryLacks) {
  World w;
  w.files["libcublasLt.so.13"] = {130100, {"cublasLtMatmulAlgoGetHeuristic"}, ""};
  Libraries libraries({{}, "", ""}, w.loader(), w.note());
  EXPECT_EQ(libraries.cublaslt(), nullptr);
  EXPECT_NE(libraries.cublaslt_reason().find(
                "libcublasLt.so.13 (13.1.0) has no cublasLtMatmulAlgoGetHeuristic"),
            std::string::npos);
}

TEST(Libraries, TakesALibraryWithoutAVersionForTooOld) {
  World w;
  w.files["libcudnn.so.9"] = {91900, {"cudnnGetVersion"}, ""};
  Libraries libraries({{}, "", ""}, w.loader(), w.note());
  EXPECT_EQ(libraries.cudnn(), nullptr);
  EXPECT_NE(libraries.cudnn_reason().find("of an unknown version"), std::string::npos);
}

TEST(Libraries, LooksOnce) {
  World w;
  Libraries libraries({{}, "", ""}, w.loader(), w.note());
  EXPECT_EQ(libraries.cudnn(), nullptr);
  const size_t opened = w.opened.size();
  EXPECT_EQ(libraries.cudnn(), nullptr);
  EXPECT_EQ(w.opened.size(), opened);
  EXPECT_EQ(w.notes, std::vector<std::string>{"missing: " + libraries.cudnn_reason()});
}

struct Host {
  bp_host table{};
  std::vector<std::string> log;
};

TEST(Libraries, TellsTheHostsLogWhatIsMissing) {
  Host host;
  host.table.self = &host;
  host.table.log_line = [](void* self, bp_log_level level, const char* message) -> bp_status {
    const char* const weight = level == BP_LOG_WARNING ? "warning: " : "info: ";
    static_cast<Host*>(self)->log.push_back(std::string(weight) + message);
    return BP_OK;
  };
  Libraries libraries(host.table, {.folders = {}, .toolkit = "/no/such/folder", .python = {}});
  const bool is_found = libraries.cudnn() != nullptr;
  static_cast<void>(libraries.cudnn());
  ASSERT_EQ(host.log.size(), is_found ? 2u : 1u);  // One is about NVRTC.
  EXPECT_TRUE(
      host.log.back().starts_with(is_found ? "info: cuDNN 9." : "warning: cuDNN is missing: "))
      << host.log.back();
}

// The real loader opens a library that every machine has.
TEST(Libraries, OpensFilesOfTheSystem) {
  const LibraryLoader loader = system_loader();
  std::string reason;
  void* const library = loader.open("libdl.so.2", reason);
  ASSERT_NE(library, nullptr) << reason;
  EXPECT_NE(loader.open_loaded("libdl.so.2"), nullptr);
  EXPECT_EQ(loader.open("/no/such/library.so", reason), nullptr);
  EXPECT_NE(reason.find("/no/such/library.so"), std::string::npos);
  EXPECT_TRUE(loader.exists("/"));
  EXPECT_FALSE(loader.match("/*").empty());
}

// Finds every function of the tables by its name in the libraries that are installed here.
TEST(Libraries, BindsWhatIsInstalled) {
  std::vector<std::string> lines;
  Libraries libraries({{}, "/usr/local/cuda", ""}, system_loader(),
                      [&](bool, const std::string& line) { lines.push_back(line); });
  const bool has_some = libraries.cublaslt() != nullptr || libraries.cudnn() != nullptr ||
                        libraries.nccl() != nullptr;
  for (const std::string& line : lines) {
    EXPECT_EQ(line.find(" has no "), std::string::npos) << line;
  }
  if (!has_some) GTEST_SKIP() << "none of the libraries is installed here";
}

// ---- Failures -----------------------------------------------------------------------------------

template <typename Table, typename Status>
bp_status thrown(const Table& table, Status status, std::string& text) {
  try {
    check(table, status, "theCall");
  } catch (const StatusError& e) {
    text = e.what();
    return e.status();
  }
  return BP_OK;
}

TEST(LibraryErrors, AreClassedAndNamed) {
  CublasLt lt{};
  lt.status_name = [](cublasStatus_t) -> const char* { return "CUBLAS_NAME"; };
  Cudnn dnn{};
  dnn.error_string = [](cudnnStatus_t) -> const char* { return "CUDNN_NAME"; };
  Nccl nccl{};
  nccl.error_string = [](ncclResult_t) -> const char* { return "nccl name"; };
  std::string text;
  EXPECT_EQ(thrown(lt, CUBLAS_STATUS_SUCCESS, text), BP_OK);
  EXPECT_EQ(thrown(lt, CUBLAS_STATUS_ALLOC_FAILED, text), BP_OUT_OF_MEMORY);
  EXPECT_EQ(text, "theCall failed: CUBLAS_NAME");
  EXPECT_EQ(thrown(lt, CUBLAS_STATUS_NOT_SUPPORTED, text), BP_UNSUPPORTED);
  EXPECT_THROW(check(lt, CUBLAS_STATUS_EXECUTION_FAILED, "theCall"), ExecutionFailed);
  EXPECT_EQ(thrown(lt, CUBLAS_STATUS_INVALID_VALUE, text), BP_INTERNAL);
  EXPECT_EQ(thrown(dnn, CUDNN_STATUS_SUCCESS, text), BP_OK);
  EXPECT_EQ(thrown(dnn, CUDNN_STATUS_NOT_SUPPORTED_SHAPE, text), BP_UNSUPPORTED);
  EXPECT_EQ(text, "theCall failed: CUDNN_NAME");
  EXPECT_EQ(thrown(dnn, CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED, text),
            BP_OUT_OF_MEMORY);
  EXPECT_THROW(check(dnn, CUDNN_STATUS_EXECUTION_FAILED_CUDART, "theCall"), ExecutionFailed);
  EXPECT_EQ(thrown(dnn, CUDNN_STATUS_BAD_PARAM_NULL_POINTER, text), BP_INTERNAL);
  EXPECT_EQ(thrown(nccl, ncclInProgress, text), BP_OK);
  EXPECT_EQ(thrown(nccl, ncclRemoteError, text), BP_ABORTED);
  EXPECT_EQ(text, "theCall failed: nccl name");
  EXPECT_EQ(thrown(nccl, ncclInvalidUsage, text), BP_INVALID_ARGUMENT);
  EXPECT_EQ(thrown(nccl, ncclUnhandledCudaError, text), BP_INTERNAL);
}

}  // namespace
}  // namespace bp::cuda
