"""Tests of the gate exports, on libraries made here: the gate fails on each fault that it is
for."""

import json
import pathlib
import re
import subprocess
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parent.parent
ENTRY = "int bp_backend_entry(void) { return 0; }\n"


class Exports(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.build = pathlib.Path(scratch.name)
        (self.build / "lib").mkdir()
        (self.build / "backends.d").mkdir()
        headers = (ROOT / "registry/include/backplane").glob("*.h")
        text = "".join(header.read_text(encoding="utf-8") for header in headers)
        self.functions = re.findall(r"^BP_API .*\b(bp_\w+)\(", text, re.M)
        self.assertGreater(len(self.functions), 30)
        self.compile("lib/libbackplane.so", self.library())
        self.plugin(ENTRY)

    def library(self, *more):
        return "".join(f"int {name}(void) {{ return 0; }}\n" for name in [*self.functions, *more])

    def compile(self, name, source, *flags):
        command = ["cc", "-shared", "-fPIC", "-x", "c", "-", "-o", self.build / name, *flags]
        subprocess.run(command, input=source, text=True, check=True)

    def plugin(self, source, *flags):
        self.compile("lib/chip.so", source, *flags)
        manifest = {"name": "acme.chip", "library": "../lib/chip.so"}
        (self.build / "backends.d/acme_chip.json").write_text(json.dumps(manifest, indent=2))

    def gate(self):
        return subprocess.run([ROOT / ".ci/gates/exports", self.build], capture_output=True,
                              text=True, check=False)

    def assert_fails(self, *words):
        result = self.gate()
        self.assertEqual(result.returncode, 1, result.stdout + result.stderr)
        for word in words:
            self.assertIn(word, result.stdout + result.stderr)

    def test_accepts_a_plugin_with_its_entry_alone(self):
        result = self.gate()
        self.assertEqual(result.returncode, 0, result.stdout + result.stderr)
        self.assertIn("1 plugins checked", result.stdout)

    def test_sees_a_plugin_that_exports_more(self):
        self.plugin(ENTRY + "int acme_helper(void) { return 0; }\n")
        self.assert_fails("exports: acme_helper bp_backend_entry")

    def test_sees_a_plugin_without_its_entry(self):
        self.plugin("static int nothing;\nint *unused(void) { return &nothing; }\n",
                    "-fvisibility=hidden")
        self.assert_fails("exports: ")

    def test_sees_a_plugin_that_takes_a_function_of_the_host(self):
        self.plugin("int bp_error_clear(void);\nint bp_backend_entry(void) "
                    "{ return bp_error_clear(); }\n")
        self.assert_fails("needs the host's library: bp_error_clear")

    def test_sees_a_plugin_that_links_the_host(self):
        self.plugin(ENTRY, "-Wl,--no-as-needed", f"-L{self.build}/lib", "-lbackplane")
        self.assert_fails("needs the host's library")

    def test_sees_a_library_that_exports_more_than_its_header(self):
        self.compile("lib/libbackplane.so", self.library("bp_secret"))
        self.assert_fails("> bp_secret")

    def test_sees_a_library_that_lost_a_function(self):
        self.functions.remove("bp_cache_empty")
        self.compile("lib/libbackplane.so", self.library())
        self.assert_fails("< bp_cache_empty")

    def test_fails_where_there_is_no_plugin(self):
        (self.build / "backends.d/acme_chip.json").unlink()
        self.assert_fails("no manifest")


if __name__ == "__main__":
    unittest.main()
