"""Tests of the gates format, tidy, package and asan: each passes a good tree, and fails on what it
is for. The trees are made here, small enough to build at once."""

import json
import os
import pathlib
import shutil
import subprocess
import tempfile
import unittest

import compile_commands

ROOT = pathlib.Path(__file__).resolve().parent.parent
GOOD = "int add(int a, int b) { return a + b; }\n"


def has(program):
    return shutil.which(program) is not None


class Tree(unittest.TestCase):
    """A repository with the gates and the settings of this one, and nothing else."""

    SETTINGS = (".clang-format", ".clang-tidy", "CMakePresets.json")

    def setUp(self):
        # The gates of this tree may run with a base commit, which the small trees do not have, and
        # with a part of the work.
        for name in ("BACKPLANE_CI_BASE", "BACKPLANE_CI_PART"):
            given = os.environ.pop(name, None)
            if given is not None:
                self.addCleanup(os.environ.__setitem__, name, given)
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.root = pathlib.Path(scratch.name)
        shutil.copytree(ROOT / ".ci", self.root / ".ci")
        for name in self.SETTINGS:
            shutil.copy(ROOT / name, self.root)
        (self.root / "build/ci").mkdir(parents=True)
        self.write(".gitignore", "build/\n")
        self.git("init", "--quiet")
        self.commit()

    def write(self, path, text):
        file = self.root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")

    def git(self, *words):
        # The settings of the user who runs the tests must not count.
        environment = {**os.environ, "GIT_CONFIG_GLOBAL": "/dev/null",
                       "GIT_CONFIG_SYSTEM": "/dev/null"}
        subprocess.run(["git", "-c", "user.name=test", "-c", "user.email=test@invalid", *words],
                       cwd=self.root, env=environment, check=True, capture_output=True)

    def commit(self):
        self.git("add", "--all")
        self.git("commit", "--quiet", "--allow-empty", "--message", "test: change")

    def run_gate(self, name):
        environment = {"BACKPLANE_ASAN_PART": "all", "BACKPLANE_CI_PART": "all", **os.environ,
                       "BACKPLANE_CI_JOBS": "1"}
        return subprocess.run([self.root / ".ci/gates" / name], cwd=self.root, env=environment,
                              capture_output=True, text=True, check=False)

    def gate(self, name):
        done = self.run_gate(name)
        if done.returncode == 77:
            self.skipTest(done.stdout.strip())
        return done

    def assert_passes(self, name):
        done = self.gate(name)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        return done.stdout

    def assert_fails(self, name, *words):
        done = self.gate(name)
        self.assertNotEqual(done.returncode, 0, done.stdout + done.stderr)
        for word in words:
            self.assertIn(word, done.stdout + done.stderr)


class Format(Tree):
    def test_sees_a_file_that_the_formatter_would_change(self):
        self.write("registry/add.cpp", GOOD)
        self.commit()
        self.assert_passes("format")
        self.write("registry/more.hpp", "int  add( int a,int b );\n")
        self.assert_passes("format")  # The file is not yet tracked.
        self.commit()
        self.assert_fails("format", "registry/more.hpp:1:", "clang-format-violations")

    def test_leaves_generated_files_alone(self):
        self.write(".gitattributes", "*.def.h linguist-generated\n")
        self.write("api/ops.def.h", "int  x;\n")
        self.commit()
        self.assert_passes("format")


class CompileCommands(unittest.TestCase):
    def test_begin_with_the_compiler(self):
        for launcher in ("", "ccache ", "distcc ", "/usr/bin/distcc ", "CC=gcc ",
                         "cmake -E env CC=gcc CXX=/usr/bin/g++-12 ccache ",
                         "api/cmake/with_ccache.sh /usr/bin/ccache "):
            for compiler in ("cc", "/usr/bin/c++", "gcc-14", "/usr/bin/x86_64-linux-gnu-g++-12",
                             "clang", "clang++-14", "/usr/local/cuda/bin/nvcc"):
                command = {"file": "add.cpp", "command": f"{launcher}{compiler} -c add.cpp"}
                with self.subTest(command=command["command"]):
                    self.assertEqual(compile_commands.plain_words(command),
                                     [compiler, "-c", "add.cpp"])

    def test_are_refused_without_a_compiler(self):
        for words in ("distcc -c add.cpp", "CC=gcc true", "rustc add.rs"):
            with self.subTest(words=words), self.assertRaises(ValueError) as refused:
                compile_commands.plain_words({"file": "add.cpp", "command": words})
            self.assertIn("no compiler in the command of add.cpp", str(refused.exception))


    def test_name_each_of_united_sources(self):
        with tempfile.TemporaryDirectory() as folder:
            united = pathlib.Path(folder, "x.dir/Unity/unity_x_cxx.cxx")
            united.parent.mkdir(parents=True)
            united.write_text('/* made by CMake */\n#include "/src/a.cpp"\n\n'
                              '#include "/src/b.cpp"\n', encoding="utf-8")
            database = pathlib.Path(folder, "built.json")
            database.write_text(json.dumps([
                {"directory": folder, "file": str(united),
                 "command": f"ccache c++ -O1 -o unity.o -c {united}"},
                {"directory": folder, "file": "/src/c.cpp", "command": "c++ -c /src/c.cpp"}]),
                encoding="utf-8")
            compile_commands.main(database, folder)
            written = json.loads(pathlib.Path(folder, "compile_commands.json").read_text("utf-8"))
        self.assertEqual([(command["file"], command["command"]) for command in written],
                         [("/src/a.cpp", "c++ -O1 -o unity.o -c /src/a.cpp"),
                          ("/src/b.cpp", "c++ -O1 -o unity.o -c /src/b.cpp"),
                          ("/src/c.cpp", "c++ -c /src/c.cpp")])


class Compiled(Tree):
    """A tree with what the build of preset dev leaves behind: the compile commands of its
    sources."""

    def database(self, *paths, compiler="c++ -std=c++20"):
        entries = [{"directory": str(self.root), "file": str(self.root / path),
                    "command": f"{compiler} -o out.o -c {self.root / path}"} for path in paths]
        self.write("build/dev/compile_commands.json", json.dumps(entries, indent=1))


@unittest.skipUnless(has("clang++"), "clang is not installed")
class Clang(Compiled):
    def test_sees_what_clang_alone_refuses_or_warns_of(self):
        self.database("registry/add.cpp", compiler="ccache g++ -std=c++20 -Wall --param=x=1")
        self.write("registry/add.cpp", GOOD)
        self.commit()
        self.assertIn("1 sources compiled, 0 refused", self.assert_passes("clang"))
        self.write("registry/add.cpp", "int x = __clang_major__ ? y : 0;\n")
        self.commit()
        self.assert_fails("clang", "registry/add.cpp: refused", "undeclared identifier 'y'")
        self.write("registry/add.cpp", "static int unused() { return 0; }\n")
        self.commit()
        self.assert_fails("clang", "unused function", "1 of 1 changed sources")

    def test_uses_no_precompiled_header(self):
        self.database("registry/add.cpp", compiler="cmake -E env X=y ccache g++ -std=c++20 "
                      f"-Winvalid-pch -fpch-preprocess -include {self.root}/cmake_pch.hxx")
        self.write("cmake_pch.hxx", "#include <vector>\n")
        self.write("registry/add.cpp", "#include <string>\nstd::string text;\n")
        self.commit()
        self.assertIn("1 sources compiled, 0 refused", self.assert_passes("clang"))
        self.write("registry/add.cpp", "std::vector<int> numbers;\n")
        self.commit()
        self.assert_fails("clang", "undeclared identifier 'std'")

    def test_looks_at_all_commits_since_the_base(self):
        self.database("registry/add.cpp")
        self.write("registry/add.cpp", "int x = y;\n")
        self.commit()
        self.commit()
        self.assertIn("touches no source", self.assert_passes("clang"))
        os.environ["BACKPLANE_CI_BASE"] = "HEAD~2"
        self.addCleanup(os.environ.pop, "BACKPLANE_CI_BASE", None)
        self.assert_fails("clang", "undeclared identifier 'y'")


@unittest.skipUnless(has("clang-tidy"), "clang-tidy is not installed")
class Tidy(Compiled):
    def test_sees_what_the_last_commit_brought(self):
        self.database("registry/add.cpp")
        self.write("registry/add.cpp", GOOD)
        self.commit()
        self.assertIn("1 of 1 changed sources checked", self.assert_passes("tidy"))
        self.write("registry/add.cpp", "int Add(int a, int b) { return a + b; }\n")
        self.commit()
        self.assert_fails("tidy", "registry/add.cpp:1:5", "readability-identifier-naming")
        self.commit()
        self.assertIn("touches no source", self.assert_passes("tidy"))

    def test_fails_where_nothing_is_built(self):
        self.assert_fails("tidy", "run ./test first")


class Package(Tree):
    """In these trees, scripts stand for the parts of the package that the gate runs, and its user
    is small."""

    USER = """cmake_minimum_required(VERSION 3.25)
project(user LANGUAGES C)
find_package(Backplane 0.3 REQUIRED)
add_library(user_chip SHARED user_chip.c)
"""
    CHIP = "int bp_backend_entry(void) { return 0; }\n"

    def setUp(self):
        super().setUp()
        shutil.rmtree(self.root / ".ci/package")
        self.write(".ci/package/CMakeLists.txt", self.USER)
        self.write(".ci/package/user_chip.c", self.CHIP)
        self.install("set(PACKAGE_VERSION 0.3)\nset(PACKAGE_VERSION_COMPATIBLE TRUE)\n")

    def install(self, version, status=0):
        """Writes what `cmake --install` finds: the files of a package."""
        files = self.root / "build/dev/files"
        for path, text in (("lib/cmake/Backplane/BackplaneConfig.cmake", ""),
                           ("lib/cmake/Backplane/BackplaneConfigVersion.cmake", version),
                           ("bin/bp-conformance", f"#!/bin/sh\nexit {status}\n")):
            file = files / path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text)
            file.chmod(0o755)
        self.write("build/dev/cmake_install.cmake",
                   f'file(COPY "{files}/" DESTINATION "${{CMAKE_INSTALL_PREFIX}}")\n')

    def test_accepts_a_package_that_serves_its_user(self):
        self.assertIn("installed 3 files", self.assert_passes("package"))

    def test_sees_a_package_that_is_not_found(self):
        self.install("set(PACKAGE_VERSION 0.0)\nset(PACKAGE_VERSION_COMPATIBLE FALSE)\n")
        self.assert_fails("package", "does not build against the installed package")

    def test_sees_a_plugin_that_exports_more(self):
        self.write(".ci/package/user_chip.c", self.CHIP + "int helper(void) { return 0; }\n")
        self.assert_fails("package", "let other symbols than bp_backend_entry out")

    def test_sees_a_backend_that_is_not_right(self):
        self.install("set(PACKAGE_VERSION 0.3)\nset(PACKAGE_VERSION_COMPATIBLE TRUE)\n", status=1)
        self.assert_fails("package", "the vendor's backend of the examples is not right")


class Asan(Tree):
    """The presets are the real ones. The project has one test, and the targets that the gate
    names."""

    PROJECT = """cmake_minimum_required(VERSION 3.25)
project(small LANGUAGES C)
enable_testing()
foreach(module IN ITEMS registry runtime conformance)
  add_subdirectory(${module})
endforeach()
add_custom_target(backplane_cpu)
"""
    REGISTRY = """add_executable(small ../small.c)
add_test(NAME registry.small COMMAND small)
add_test(NAME conformance.mutants COMMAND false)
"""

    def build(self, body):
        self.write("CMakeLists.txt", self.PROJECT)
        self.write("registry/CMakeLists.txt", self.REGISTRY)
        self.write("runtime/CMakeLists.txt", "")
        self.write("conformance/CMakeLists.txt", "")
        self.write("small.c", "#include <stdlib.h>\n"
                   f"int main(int argc, char **argv) {{ (void)argv; {body} }}\n")

    def test_accepts_a_program_without_faults(self):
        self.build("return argc - 1;")
        self.assertIn("1 passed, 0 failed", self.assert_passes("asan"))

    def test_sees_a_read_behind_the_end(self):
        self.build("char *p = malloc(8); int x = p[7 + argc]; free(p); return x & 0;")
        self.assert_fails("asan", "heap-buffer-overflow", "1 failed")

    def test_sees_undefined_behaviour(self):
        self.build("int most = 2147483647, sum = most + argc; return sum == 5;")
        self.assert_fails("asan", "signed integer overflow", "1 failed")

    def test_runs_one_part_alone(self):
        self.build("return argc - 1;")
        self.addCleanup(os.environ.pop, "BACKPLANE_ASAN_PART", None)
        os.environ["BACKPLANE_ASAN_PART"] = "host"
        self.assertIn("Modules: registry runtime", self.assert_passes("asan"))
        os.environ["BACKPLANE_ASAN_PART"] = "suite"
        self.assert_fails("asan", "Modules: conformance", "No tests were found")
        os.environ["BACKPLANE_ASAN_PART"] = "none"
        self.assert_fails("asan", "allowed: all, host, suite")

    def test_is_skipped_where_other_long_work_was_chosen(self):
        self.build("return argc - 1;")
        self.addCleanup(os.environ.pop, "BACKPLANE_CI_PART", None)
        os.environ["BACKPLANE_CI_PART"] = "cuda"
        done = self.run_gate("asan")
        self.assertEqual(done.returncode, 77, done.stdout)
        self.assertIn("this run does cuda", done.stdout)
        os.environ["BACKPLANE_CI_PART"] = "asan"
        self.assertIn("1 passed, 0 failed", self.assert_passes("asan"))
        os.environ["BACKPLANE_CI_PART"] = "some"
        self.assert_fails("asan", "allowed: all cuda devices mutants asan")

    def test_sees_a_build_that_breaks(self):
        self.build("return nothing;")
        self.assert_fails("asan", "preset asan does not build", "nothing")


if __name__ == "__main__":
    unittest.main()
