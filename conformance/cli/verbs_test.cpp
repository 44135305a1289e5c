// The verbs on stored results, and new. The program also has the main() of all tests of verbs: the
// workers of the verbs are this program once more.
#include "conformance/cli/verbs.hpp"

#include <gtest/gtest.h>
#include <signal.h>

#include <cstring>

#include "conformance/cli/scaffold.hpp"
#include "conformance/runner/scripted_worker.hpp"
#include "conformance/tests/verbs_fixture.hpp"

namespace bp::conformance {

// The files of a backend that `new` writes in these tests.
static const ScaffoldFile kPlainFiles[] = {
    {"backend.c", "#include \"template.h\"\n// The template backend, acme.template.\n"},
    {"kernels/add.c", "#include \"template.h\"\n"},
    {"template.h", "#ifndef TEMPLATE_H_\n// Acme template: libmychip.so, template.h\n"},
};
static const ScaffoldFile kAsyncFiles[] = {
    {"backend.cpp", "namespace acme_async {\n  add_kernels(all_kernels());\n  \"acme.async\"\n}\n"},
    {"driver.hpp", "namespace acme_async {}\n"},
};
const Scaffold kPlainScaffold = {kPlainFiles, 3};
const Scaffold kAsyncScaffold = {kAsyncFiles, 2};

std::vector<std::string>& complaints() {
  static std::vector<std::string> all;
  return all;
}

void complain(const std::string& text) { complaints().push_back(text); }
int interrupt_descriptor() { return -1; }

namespace {

using nlohmann::json;
namespace fs = std::filesystem;

class StoredVerbs : public Verbs {
 protected:
  // The folder of a run that has ended.
  std::string stored(const std::string& name, const std::vector<json>& lines) const {
    fs::create_directories(folder_ / name);
    std::string text;
    for (const json& line : lines) text += line.dump() + "\n";
    write(name + "/results.jsonl", text);
    write(name + "/summary.json", "{}");
    return at(name);
  }
  static json line(const std::string& id, const char* status) {
    return {{"case", id}, {"status", status}, {"attempt", 1}};
  }
};

TEST_F(StoredVerbs, DiffEndsWithCodeOneForNewFailuresAlone) {
  const std::string good = stored("good", {line("a", "Pass"), line("b", "Pass")});
  const std::string bad = stored("bad", {line("a", "Pass"), line("b", "Fail")});
  EXPECT_EQ(call(diff_verb, {"diff", good, bad}), kExitFailures);
  EXPECT_TRUE(has_printed("NEW FAILURES  1\n  b\n")) << printed_;
  EXPECT_EQ(call(diff_verb, {"diff", bad, good}), kExitOk) << "what is mended is no failure";
  EXPECT_EQ(call(diff_verb, {"diff", bad, good, "--strict"}), kExitFailures);
  EXPECT_EQ(call(diff_verb, {"diff", bad, bad, "--strict"}), kExitOk);
}

TEST_F(StoredVerbs, DiffCountsChangesOfAKindUnlessAskedForAll) {
  std::vector<json> before, after;
  for (int i = 0; i < 21; ++i) {
    before.push_back(line("case_" + std::to_string(100 + i), "Pass"));
    after.push_back(line("case_" + std::to_string(100 + i), "Fail"));
  }
  const std::string a = stored("a", before), b = stored("b", after);
  call(diff_verb, {"diff", a, b});
  EXPECT_TRUE(has_printed("  21 x Pass -> Fail: ")) << printed_;
  EXPECT_TRUE(has_printed("case_100\n      Pass -> Fail")) << printed_;
  EXPECT_FALSE(has_printed("case_120\n")) << printed_;
  call(diff_verb, {"diff", a, b, "-v"});
  EXPECT_TRUE(has_printed("case_120")) << printed_;
}

TEST_F(StoredVerbs, ReportWritesTheDocumentsOfTheFolderUnlessOneIsNamed) {
  const std::string folder = stored("run", {line("a", "Fail")});
  EXPECT_EQ(call(report_verb, {"report", folder, "--md", at("own.md")}), kExitFailures);
  EXPECT_TRUE(has("own.md"));
  EXPECT_FALSE(has("run/report.md") || has("run/report.html") || has("run/junit.xml"));
  EXPECT_EQ(call(report_verb, {"report", folder}), kExitFailures);
  EXPECT_TRUE(has("run/report.md") && has("run/report.html") && has("run/junit.xml"));
  EXPECT_TRUE(has_printed("0 passed, 1 failed, 0 skipped")) << printed_;
}

TEST_F(StoredVerbs, ReportShowsThePageAlsoWhereADocumentCannotBeWritten) {
  const std::string folder = stored("run", {line("a", "Pass")});
  EXPECT_EQ(call(report_verb, {"report", folder, "--md", at("none/x.md"), "--junit", at("x.xml")}),
            kExitHarness);
  EXPECT_TRUE(has("x.xml")) << "one document does not need the other";
  EXPECT_TRUE(has_printed("1 passed, 0 failed, 0 skipped")) << printed_;
  ASSERT_EQ(complaints().size(), 1u);
  EXPECT_NE(complaints()[0].find("none/x.md"), std::string::npos) << complaints()[0];
}

TEST_F(StoredVerbs, OutputsThatFailHideNoInterruption) {
  Outputs failed;
  failed.attempt([] { throw OutputError("x: the disk is full"); });
  EXPECT_EQ(with_outputs_checked(kExitOk, failed), kExitHarness);
  EXPECT_EQ(with_outputs_checked(kExitFailures, failed), kExitHarness);
  EXPECT_EQ(with_outputs_checked(kExitInterrupted, failed), kExitInterrupted);
  EXPECT_EQ(complaints().size(), 3u);
  complaints().clear();
  EXPECT_EQ(with_outputs_checked(kExitTooSlow, Outputs()), kExitTooSlow);
  EXPECT_TRUE(complaints().empty());
}

TEST_F(StoredVerbs, RefuseAFolderWithoutARun) {
  EXPECT_NE(error_of<UsageError>(report_verb, {"report", at("none")}).find("none"),
            std::string::npos);
  fs::create_directories(folder_ / "empty");
  EXPECT_NE(error_of<UsageError>(diff_verb, {"diff", at("empty"), at("empty")})
                .find("holds no results.jsonl"),
            std::string::npos);
}

// ---- new ------------------------------------------------------------------------------------- //

using Scaffolds = Verbs;

TEST_F(Scaffolds, HaveTheNameOfTheBackendEverywhere) {
  EXPECT_EQ(call(new_verb, {"new", "vend0r.my_npu", at("made")}), kExitOk);
  EXPECT_EQ(read("made/backend.c"),
            "#include \"my_npu.h\"\n// The backend vend0r.my_npu, vend0r.my_npu.\n");
  EXPECT_EQ(read("made/kernels/add.c"), "#include \"my_npu.h\"\n");
  EXPECT_EQ(read("made/my_npu.h"),
            "#ifndef MY_NPU_H_\n// Vend0r my_npu: libvend0r_my_npu.so, my_npu.h\n");
  EXPECT_FALSE(has("made/template.h"));
  const std::string project = read("made/CMakeLists.txt");
  EXPECT_NE(project.find("backplane_add_backend(vend0r_my_npu\n"
                         "  SOURCES backend.c kernels/add.c\n"
                         "  MANIFEST vend0r.my_npu)\n"),
            std::string::npos)
      << project;
  EXPECT_TRUE(has_printed("wrote 4 files of vend0r.my_npu to " + at("made"))) << printed_;
}

TEST_F(Scaffolds, OfAsynchronousDevicesLinkTheShell) {
  EXPECT_EQ(call(new_verb, {"new", "--async", "vend0r.my_npu", at("made")}), kExitOk);
  EXPECT_EQ(read("made/backend.cpp"),
            "namespace vend0r_my_npu {\n  add_kernels(all_kernels());\n  \"vend0r.my_npu\"\n}\n");
  EXPECT_EQ(read("made/driver.hpp"), "namespace vend0r_my_npu {}\n");
  const std::string project = read("made/CMakeLists.txt");
  EXPECT_NE(project.find("project(vend0r_my_npu LANGUAGES C CXX)"), std::string::npos) << project;
  EXPECT_NE(project.find("backplane_add_backend(vend0r_my_npu\n"
                         "  SOURCES backend.cpp\n"
                         "  LINK backplane::shell\n"
                         "  MANIFEST vend0r.my_npu)\n"),
            std::string::npos)
      << project;
}

TEST_F(Scaffolds, OfCompilersOfferNoKernels) {
  EXPECT_EQ(call(new_verb, {"new", "--compiler", "vend0r.my_npu", at("made")}), kExitOk);
  EXPECT_NE(read("made/backend.cpp")
                .find("add_kernels(all_kernels());\n  offers_kernels = false;  // Only programs"),
            std::string::npos)
      << read("made/backend.cpp");
}

TEST_F(Scaffolds, KeepTheNameOfTheTemplateIfItIsAsked) {
  EXPECT_EQ(call(new_verb, {"new", "acme.template", at("made")}), kExitOk);
  EXPECT_EQ(read("made/template.h"),
            "#ifndef TEMPLATE_H_\n// Acme template: libacme_template.so, template.h\n");
}

TEST_F(Scaffolds, RefuseNamesThatAreNoTwoWords) {
  const std::string longest = "a." + std::string(98, 'b');
  for (const std::string& name :
       {std::string("acme"), std::string("acme."), std::string(".npu"), std::string("a.b.c"),
        std::string("Acme.npu"), std::string("acme.1npu"), std::string("acme._npu"),
        std::string("acme.n-pu"), std::string("../x.npu"), longest + "b"}) {
    const std::string text = error_of<UsageError>(new_verb, {"new", name, at("made")});
    EXPECT_TRUE(text.starts_with("new: NAME is '" + name.substr(0, 100) + "'; allowed: ")) << text;
    EXPECT_FALSE(has("made")) << name;
  }
  EXPECT_EQ(call(new_verb, {"new", longest, at("made")}), kExitOk);
}

TEST_F(Scaffolds, OverwriteNothing) {
  write("file", "mine");
  EXPECT_TRUE(error_of<UsageError>(new_verb, {"new", "acme.npu", at("file")})
                  .ends_with("', which is a file"));
  fs::create_directories(folder_ / "full");
  write("full/.hidden", "mine");
  EXPECT_TRUE(error_of<UsageError>(new_verb, {"new", "acme.npu", at("full")})
                  .ends_with("', which is not an empty folder"));
  EXPECT_EQ(std::distance(fs::directory_iterator(folder_ / "full"), fs::directory_iterator()), 1);
  fs::create_directories(folder_ / "empty");
  EXPECT_EQ(call(new_verb, {"new", "acme.npu", at("empty")}), kExitOk);
}

}  // namespace
}  // namespace bp::conformance

int main(int argc, char** argv) {
  if (argc == 3 && std::strcmp(argv[1], "--worker") == 0) {
    return bp::conformance::run_scripted_worker(argv[2]);
  }
  signal(SIGPIPE, SIG_IGN);  // As in bp-conformance, a write to a worker that is gone must not end
                             // the process.
  testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
