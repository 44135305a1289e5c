"""Proves that released.py and .ci/snapshot fail where they must, on copies of the real headers."""
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parent.parent


class Tree(unittest.TestCase):
    """Each test has a copy of the files that the gate reads. The minor of now is released in the
    copy."""

    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.root = pathlib.Path(scratch.name)
        for folder in (".ci", "api/include", "registry/include", "backends/template"):
            shutil.copytree(ROOT / folder, self.root / folder)
        (self.root / "api/released").mkdir()
        self.set_minor(7)
        self.assertEqual(self.snapshot("0.7").returncode, 0)

    def set_minor(self, minor: int):
        base = self.root / "api/include/backplane/base.h"
        lines = [f"#define BP_ABI_MINOR {minor}" if line.startswith("#define BP_ABI_MINOR ")
                 else line for line in base.read_text().splitlines()]
        base.write_text("\n".join(lines) + "\n")

    def snapshot(self, version: str) -> subprocess.CompletedProcess:
        return subprocess.run([self.root / ".ci/snapshot", version], capture_output=True,
                              text=True, check=False)

    def change(self, path: str, old: str, new: str):
        file = self.root / path
        text = file.read_text()
        self.assertIn(old, text)
        file.write_text(text.replace(old, new, 1))

    def gate(self) -> subprocess.CompletedProcess:
        command = [sys.executable, ROOT / "api/tests/released.py", "cc", self.root / "api/released",
                   self.root / "api/include", self.root / "registry/include"]
        return subprocess.run(command, capture_output=True, text=True, check=False)

    def assert_broken(self, *words: str):
        result = self.gate()
        self.assertEqual(result.returncode, 1, result.stdout + result.stderr)
        for word in words:
            self.assertIn(word, result.stdout)

    def assert_whole(self):
        result = self.gate()
        self.assertEqual(result.returncode, 0, result.stdout + result.stderr)


class Released(Tree):
    def test_accepts_what_was_just_released(self):
        self.assert_whole()

    def test_sees_a_released_file_that_changed(self):
        self.change("api/released/0.7/include/backplane/stream.h", "flags", "flags ")
        self.assert_broken("0.7/include/backplane/stream.h: changed after its release")

    def test_sees_a_released_file_that_went(self):
        (self.root / "api/released/0.7/template/device.c").unlink()
        self.assert_broken("0.7/template/device.c: is gone")

    def test_sees_a_released_file_that_changed_before_the_next_release(self):
        self.change("api/released/0.7/include/backplane/stream.h", "flags", "flags ")
        self.set_minor(8)
        self.assertEqual(self.snapshot("0.8").returncode, 0)
        self.assert_broken("0.7/include/backplane/stream.h: changed after its release")

    def test_sees_a_file_that_came_without_a_release(self):
        (self.root / "api/released/0.7/template/more.c").write_text("\n")
        self.assert_broken("0.7/template/more.c: is not in sha256sums")

    def test_sees_a_folder_with_headers_of_another_minor(self):
        (self.root / "api/released/0.7").rename(self.root / "api/released/0.6")
        self.assert_broken("0.6: its headers say that they are 0.7")

    def test_fails_where_nothing_is_released(self):
        shutil.rmtree(self.root / "api/released/0.7")
        (self.root / "api/released/sha256sums").write_text("")
        self.assertEqual(self.gate().returncode, 1)


class Headers(Tree):
    PRIORITY = "  int32_t priority;"

    def test_lets_a_later_minor_append(self):
        self.set_minor(8)
        self.change("api/include/backplane/stream.h", self.PRIORITY,
                    self.PRIORITY + "\n  uint64_t appended;\n")
        self.assert_whole()

    def test_refuses_to_append_to_a_released_minor(self):
        self.change("api/include/backplane/stream.h", self.PRIORITY,
                    self.PRIORITY + "\n  uint64_t appended;\n")
        self.assert_broken("0.7 is released, and has not: extensible bp_stream_desc.appended",
                           "raise the minor")

    def test_sees_a_member_that_moved(self):
        self.set_minor(8)
        self.change("api/include/backplane/memory.h", "  uint64_t size_bytes;", "")
        self.change("api/include/backplane/memory.h", "  bp_stream* stream; ",
                    "  uint64_t size_bytes;\n  bp_stream* stream; ")
        self.assert_broken("0.7 promised: extensible bp_allocate_desc.size_bytes at 16 size 8")

    def test_sees_a_member_that_was_renamed(self):
        self.set_minor(8)
        self.change("api/include/backplane/tensor.h", "uint64_t bits;", "uint64_t value;")
        self.assert_broken("0.7 promised: frozen bp_scalar.bits at 8 size 8")

    def test_sees_a_constant_of_another_value(self):
        self.set_minor(8)
        self.change("api/include/backplane/base.h", "BP_TIMEOUT = 5,", "BP_TIMEOUT = 50,")
        self.assert_broken("0.7 promised: BP_TIMEOUT is 5")

    def test_sees_a_slot_that_went(self):
        self.set_minor(8)
        self.change("api/include/backplane/stream.h",
                    "  bp_status (*flush)(void* self, bp_stream* stream);\n", "")
        self.assert_broken("0.7 promised: extensible bp_stream_ops.flush")

    def test_sees_a_function_of_the_library_that_changed(self):
        self.set_minor(8)
        self.change("registry/include/backplane/host.h", "bp_error_clear(void)",
                    "bp_error_clear(int32_t all)")
        self.assert_broken("0.7 promised: function void bp_error_clear(void)")


class Snapshot(Tree):
    def test_never_writes_a_release_twice(self):
        result = self.snapshot("0.7")
        self.assertEqual(result.returncode, 1)
        self.assertIn("what was released never changes", result.stderr)

    def test_refuses_another_version_than_that_of_the_headers(self):
        result = self.snapshot("0.9")
        self.assertEqual(result.returncode, 1)
        self.assertIn("says that the ABI is 0.7, not 0.9", result.stderr)

    def test_adds_a_release_beside_the_earlier_ones(self):
        self.set_minor(8)
        self.assertEqual(self.snapshot("0.8").returncode, 0)
        self.assert_whole()


if __name__ == "__main__":
    unittest.main()
