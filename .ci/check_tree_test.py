"""Tests of check_tree.py: each rule refuses what it is for, and accepts the nearest correct
text."""

import unittest
from pathlib import Path

import check_tree

HEADERS = {
    "backplane/base.h": "api",
    "backplane/host.h": "registry",
}


def findings(path, text):
    return list(check_tree.check_file(Path(path), text, HEADERS))


class CheckTree(unittest.TestCase):
    def test_refuses_an_include_against_the_direction(self):
        host = '#include "backplane/host.h"\n'
        self.assertEqual(findings("runtime/tensor/tensor.cpp", host), [])
        self.assertEqual(
            findings("backends/mychip/backend.cpp", host),
            ["backends/mychip/backend.cpp: backends must not include backplane/host.h of registry"],
        )
        runtime = "#include <backplane/runtime/a.hpp>"
        self.assertEqual(len(findings("conformance/a.cpp", runtime)), 1)

    def test_lets_released_headers_of_two_modules_lie_together(self):
        host = '#include "backplane/host.h"\n'
        self.assertEqual(findings("api/released/0.7/include/backplane/dlpack.h", host), [])
        self.assertEqual(len(findings("api/include/backplane/dlpack.h", host)), 1)

    def test_refuses_the_private_header_of_another_module(self):
        private = '#include "registry/calls/claims.hpp"\n'
        self.assertEqual(findings("registry/calls/claims.cpp", private), [])
        self.assertEqual(
            findings("runtime/a.cpp", private),
            ["runtime/a.cpp: registry/calls/claims.hpp is private to registry"],
        )

    def test_lets_the_modules_above_share_headers_without_a_library(self):
        shared = '#include "registry/files/json_depth.hpp"\n'
        self.assertEqual(findings("runtime/io/a.cpp", shared), [])
        self.assertEqual(findings("conformance/a.cpp", shared), [])
        self.assertEqual(len(findings("backends/mychip/a.cpp", shared)), 1)

    def test_lets_the_modules_above_share_a_source(self):
        shared = '#include "registry/files/sha256.hpp"\n'
        self.assertEqual(findings("conformance/a.cpp", shared), [])
        self.assertEqual(len(findings("backends/mychip/a.cpp", shared)), 1)

    def test_takes_seeds_of_fuzz_targets_for_bytes(self):
        self.assertFalse(check_tree.is_text(Path("registry/fuzz/corpus/manifest/whole")))
        self.assertFalse(check_tree.is_text(Path("backends/mychip/fuzz/corpus/file/whole")))
        self.assertTrue(check_tree.is_text(Path("registry/fuzz/manifest_fuzz.cpp")))

    def test_holds_sources_compiled_into_a_library_to_its_rules(self):
        private = '#include "registry/boundary/fail.hpp"\n'
        self.assertEqual(findings("ops_spec/checks.cpp", private), [])
        runtime = '#include "backplane/runtime/tensor.hpp"\n'
        self.assertEqual(len(findings("ops_spec/checks.cpp", runtime)), 1)

    def test_holds_examples_that_are_backends_to_the_rules_of_backends(self):
        shell = '#include "backplane/shell/queue.hpp"\n'
        self.assertEqual(findings("examples/12_opencl/stream.hpp", shell), [])
        self.assertEqual(len(findings("examples/04_train_gpt/model.hpp", shell)), 1)
        host = '#include "backplane/host.h"\n'
        self.assertEqual(len(findings("examples/12_opencl/stream.hpp", host)), 1)

    def test_keeps_what_backends_share_free_of_backends(self):
        own = '#include "backends/host_kernels/loop.hpp"\n#include "backplane/shell/queue.hpp"\n'
        self.assertEqual(findings("backends/host_kernels/unary.cpp", own), [])
        chip = '#include "backends/mychip/stream.hpp"\n'
        self.assertEqual(
            findings("backends/shell/queue.cpp", chip),
            ["backends/shell/queue.cpp: knows no backend, and includes backends/mychip/stream.hpp"],
        )

    def test_keeps_the_rooms_of_the_cases_in_order(self):
        text = '#include "conformance/cases/rules/rules.hpp"\n'
        for name, found in (("engine/a.cpp", 1), ("layouts/a.cpp", 0), ("rules/a.cpp", 0),
                            ("engine/a_test.cpp", 0), ("op_cases.cpp", 0)):
            with self.subTest(name=name):
                path = Path("conformance/cases") / name
                self.assertEqual(len(list(check_tree.check_rooms(path, text))), found)

    def test_refuses_folders_that_include_each_other_in_a_circle(self):
        texts = {
            Path("conformance/perf/a.cpp"): '#include "conformance/report/a.hpp"\n',
            Path("conformance/report/a.hpp"): '#include "conformance/runner/a.hpp"\n',
            Path("conformance/report/a_test.cpp"): '#include "conformance/perf/a.hpp"\n',
            Path("conformance/fuzz/a.cpp"): '#include "conformance/perf/a.hpp"\n',
        }
        self.assertEqual(list(check_tree.check_cycles("conformance", texts)), [])
        texts[Path("conformance/runner/a.cpp")] = '#include "conformance/perf/b.hpp"\n'
        self.assertEqual(
            list(check_tree.check_cycles("conformance", texts)),
            [
                "conformance: its folders include each other in a circle: "
                "conformance/perf/a.cpp includes conformance/report/a.hpp; "
                "conformance/report/a.hpp includes conformance/runner/a.hpp; "
                "conformance/runner/a.cpp includes conformance/perf/b.hpp"
            ],
        )
        self.assertEqual(list(check_tree.check_cycles("registry", texts)), [])

    def test_refuses_a_header_that_nobody_has(self):
        self.assertEqual(len(findings("api/a.c", '#include "backplane/gone.h"\n')), 1)

    def test_refuses_a_link_against_the_direction(self):
        link = "target_link_libraries(x PRIVATE backplane::runtime backplane::warnings)\n"
        self.assertEqual(findings("examples/CMakeLists.txt", link), [])
        self.assertEqual(
            findings("conformance/CMakeLists.txt", link),
            ["conformance/CMakeLists.txt: conformance must not link backplane::runtime"],
        )

    def test_refuses_a_vendor_in_the_core_alone(self):
        vendor = "// Works around " + "Vulk" + "an.\n"
        self.assertEqual(len(findings("registry/a.cpp", vendor)), 1)
        self.assertEqual(findings("backends/a/a.cpp", vendor), [])
        self.assertEqual(findings("runtime/bench/a.cpp", vendor), [])
        self.assertEqual(findings("registry/a.cpp", "// Intelligent.\n"), [])

    def test_refuses_the_version_of_the_abi_in_other_sources_of_the_host(self):
        version = "return BP_ABI_MINOR_MIN;\n"
        self.assertEqual(
            findings("registry/plugins/a.cpp", version),
            ["registry/plugins/a.cpp:1: BP_ABI_MINOR_MIN is for registry/boundary/served_abi.cpp "
             "alone"],
        )
        self.assertEqual(len(findings("ops_spec/a.cpp", version)), 1)
        for path in ("registry/boundary/served_abi.cpp", "registry/plugins/a_test.cpp",
                     "registry/tests/a.hpp", "backends/mychip/a.cpp"):
            self.assertEqual(findings(path, version), [])

    def test_refuses_text_that_is_not_plain(self):
        for line in ("caf\u00e9", "a\tb", "end ", "x" * 101, "TO" + "DO: later"):
            self.assertEqual(len(findings(".ci/a.py", line)), 1, line)
        self.assertEqual(findings(".ci/a.py", "TO" + "DO(#12): later"), [])

    def test_refuses_a_path_of_one_machine_also_in_documents(self):
        self.assertEqual(len(findings("README.md", "see /" + "tmp/x")), 1)
        self.assertEqual(findings("README.md", "see build/" + "tmp/x"), [])

    def test_refuses_versions_that_differ(self):
        files = {
            "api/include/backplane/base.h": "#define BP_ABI_MAJOR 0\n#define BP_ABI_MINOR 2\n",
            "api/cmake/BackplaneBackend.cmake": (
                "set(BACKPLANE_ABI_MAJOR 0)\nset(BACKPLANE_ABI_MINOR 2)\n"
            ),
            "CMakeLists.txt": "project(backplane VERSION 0.2.0",
            "CHANGELOG.md": "## 0.2.0\n",
        }
        files |= {name: "find_package(Backplane 0.2 REQUIRED)" for name in check_tree.FIND_PACKAGE}
        self.assertEqual(list(check_tree.check_versions(files.get)), [])
        for name, text, words in (
            (
                "api/cmake/BackplaneBackend.cmake",
                "set(BACKPLANE_ABI_MAJOR 0)\nset(BACKPLANE_ABI_MINOR 1)\n",
                "ABI minor is 2 in base.h, 1 in",
            ),
            ("CHANGELOG.md", "## 0.1.0\n", "no section for version 0.2.0"),
            ("README.md", "find_package(Backplane 0.1 REQUIRED)", "asks for Backplane 0.1"),
        ):
            found = list(check_tree.check_versions((files | {name: text}).get))
            self.assertEqual(len(found), 1, found)
            self.assertIn(words, found[0])
        files["CMakeLists.txt"] = "project(backplane VERSION 0.3.0"
        files["CHANGELOG.md"] = "## 0.3.0\n"
        self.assertIn("begins with that of the ABI", *check_tree.check_versions(files.get))


if __name__ == "__main__":
    unittest.main()
