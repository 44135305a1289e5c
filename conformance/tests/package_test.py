#!/usr/bin/env python3
"""Packages the results of runs, checks them, and damages them: each change must be found.

  package_test.py BP_CONFORMANCE PLUGIN_FOLDER [unittest arguments]
"""
import hashlib
import io
import json
import pathlib
import shutil
import subprocess
import tarfile
import unittest

import mock_run
from mock_run import Folder, plugin, run


class Packages(Folder):
    def setUp(self):
        super().setUp()
        self.run_mock(code=0)
        self.package = pathlib.Path(self.folder.name) / "p.tar"
        done = run("package", str(self.out), "--out", str(self.package), "--state", "vendor=Acme")
        self.assertEqual(done.returncode, 0, done.stderr)

    def verify(self, code, *words):
        done = run("verify", str(self.package), *words)
        self.assertEqual(done.returncode, code, done.stdout + done.stderr)
        return done.stdout + done.stderr

    def files(self):
        with tarfile.open(self.package) as archive:
            return {pathlib.PurePath(member.name).name: archive.extractfile(member).read()
                    for member in archive}

    def write(self, files, mends_manifest=True):
        """Writes a package of these files, as somebody who wants to deceive would."""
        if mends_manifest:
            files["MANIFEST"] = "".join(
                f"{hashlib.sha256(text).hexdigest()}  {len(text)}  {name}\n"
                for name, text in files.items() if name != "MANIFEST").encode()
        with tarfile.open(self.package, "w", format=tarfile.USTAR_FORMAT) as archive:
            for name, text in files.items():
                member = tarfile.TarInfo(f"conformance/{name}")
                member.size = len(text)
                archive.addfile(member, io.BytesIO(text))
        # Python fills the last record of 10 KiB up.
        data = self.package.read_bytes()
        self.package.write_bytes(data.rstrip(b"\0") + bytes(-len(data.rstrip(b"\0")) % 512 + 1024))

    def test_a_package_is_an_archive_that_others_can_read(self):
        files = self.files()
        self.assertEqual(set(files), {"STATEMENT.json", "MANIFEST", "results.jsonl", "info.json",
                                      "summary.json"})
        self.assertEqual(files["results.jsonl"], (self.out / "results.jsonl").read_bytes())
        statement = json.loads(files["STATEMENT.json"])
        self.assertEqual(statement["statements"], {"vendor": "Acme"})
        self.assertEqual(statement["plugin"]["size_bytes"],
                         pathlib.Path(plugin("none")).stat().st_size)
        self.assertTrue(statement["environment"]["kernel"])

    def test_a_right_package_is_sound(self):
        said = self.verify(0)
        self.assertIn("holds        files", said)
        self.assertIn("holds        verdict", said)
        self.assertIn("not checked  cases       the run had a selection of its own", said)
        self.assertIn("not checked  signature", said)
        self.assertIn("verdict: SOUND: CLEAN", said)

    def test_cases_run_again_with_the_plugin(self):
        said = self.verify(0, "--plugin", plugin("none"), "--samples", "2")
        self.assertIn("holds        plugin", said)
        self.assertIn("holds        samples     2 results ended as in the package", said)
        other = pathlib.Path(self.folder.name) / "other.so"
        shutil.copy(plugin("none"), other)
        with other.open("ab") as file:
            file.write(b"x")
        self.assertIn("FAILS        plugin", self.verify(1, "--plugin", str(other)))

    def test_any_changed_file_is_found(self):
        for name in self.files():
            if name == "MANIFEST":
                continue
            with self.subTest(name=name):
                good = self.package.read_bytes()
                files = self.files()
                # Each file can still be read: a line comes twice, or a blank follows.
                lines = files[name].splitlines(keepends=True)
                files[name] += lines[-1] if name == "results.jsonl" else b" "
                self.write(files, mends_manifest=False)
                self.assertIn(f"FAILS        files       {name} is not", self.verify(1))
                self.package.write_bytes(good)

    def test_a_result_that_was_mended_is_found(self):
        """A failure that is written over changes the counts, or the verdict."""
        self.run_mock(*("--option", "stream=segfault"), code=1)
        self.assertEqual(run("package", str(self.out), "--out", str(self.package)).returncode, 0)
        self.assertIn("SOUND: NOT CONFORMANT", self.verify(0))
        files = self.files()
        files["results.jsonl"] = files["results.jsonl"].replace(b'"Crash"', b'"Pass"')
        self.write(files)
        self.assertIn("FAILS        verdict", self.verify(1))
        summary = json.loads(files["summary.json"])
        summary |= {"passed": summary["passed"] + 1, "failed": 0, "verdict": "CONFORMANT"}
        files["summary.json"] = json.dumps(summary).encode()
        self.write(files)
        said = self.verify(1)
        self.assertIn("FAILS        verdict     the results give", said)
        self.assertIn("FAILS        statement", said)

    def test_a_result_that_does_not_repeat_is_found(self):
        files = self.files()
        files["results.jsonl"] = files["results.jsonl"].replace(b'"Pass"', b'"QualityWarning"')
        self.write(files)
        said = self.verify(1, "--plugin", plugin("none"))
        self.assertIn("FAILS        samples", said)
        self.assertIn("ended as QualityWarning in the package, and ends as Pass now", said)

    def test_what_is_no_package_is_refused(self):
        for text in (b"", b"text", b"\0" * 1024, self.package.read_bytes()[:-1]):
            self.package.write_bytes(text)
            self.assertIn("p.tar", self.verify(2))
        self.write({"STATEMENT.json": b"{}"})
        self.assertIn("has no file", self.verify(2))

    def test_a_run_that_did_not_end_is_not_packaged(self):
        (self.out / "summary.json").unlink()
        done = run("package", str(self.out), "--out", str(self.package))
        self.assertEqual(done.returncode, 2)
        self.assertIn("--resume", done.stderr)

    @unittest.skipUnless(shutil.which("ssh-keygen"), "there is no ssh-keygen")
    def test_a_signature_names_its_key(self):
        folder = pathlib.Path(self.folder.name)
        keys = {}
        for name in ("good", "bad"):
            keys[name] = str(folder / name)
            subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", keys[name]],
                           check=True)
        signers = folder / "signers"
        signers.write_text("acme " + pathlib.Path(keys["good"] + ".pub").read_text())
        allowed = ("--allowed-signers", str(signers), "--signer", "acme")
        self.assertIn("FAILS        signature", self.verify(1, *allowed))
        for name, code in (("good", 0), ("bad", 1)):
            done = run("package", str(self.out), "--out", str(self.package), "--sign", keys[name])
            self.assertEqual(done.returncode, 0, done.stderr)
            said = self.verify(code, *allowed)
            self.assertIn(("holds      " if code == 0 else "FAILS      ") + "  signature", said)
            self.assertIn("not compared with a list", self.verify(0))
        self.write(self.files() | {"perf.json": b"{}"})
        self.assertIn("FAILS        signature", self.verify(1))
        done = run("package", str(self.out), "--out", str(self.package), "--sign", "/no/such/key")
        self.assertEqual(done.returncode, 2)


class Stress(Folder):
    def test_a_steady_backend_is_steady(self):
        samples = pathlib.Path(self.folder.name) / "s.json"
        heat = pathlib.Path(self.folder.name) / "t"
        heat.write_text("51000\n")
        done = run("stress", plugin("none"), "--case", mock_run.STREAM_CASE, "--hours", "0.0003",
                   "--json", str(samples), "--temperature", str(heat), "-q")
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertIn("verdict: STEADY", done.stdout)
        self.assertIn("51.0 C at most", done.stdout)
        self.assertIn("device memory  not told", done.stdout)
        self.assertGreater(len(json.loads(samples.read_text())["samples"]), 16)

    def test_memory_of_the_device_that_grows_is_found(self):
        samples = pathlib.Path(self.folder.name) / "s.json"
        done = run("stress", plugin("none"), "--case", mock_run.STREAM_CASE, "--hours", "0.0003",
                   "--json", str(samples), "--option", "memory=leaks", "-q")
        self.assertEqual(done.returncode, 1, done.stdout + done.stderr)
        self.assertIn("finding: bytes of memory in use on the device grow from", done.stdout)
        told = [sample["device_bytes"] for sample in json.loads(samples.read_text())["samples"]]
        self.assertEqual(told, sorted(set(told)))

    def test_a_failure_ends_it(self):
        done = run("stress", plugin("none"), "--case", mock_run.STREAM_CASE, "--hours", "1",
                   "--option", "stream=segfault", "-q")
        self.assertEqual(done.returncode, 1, done.stdout + done.stderr)
        self.assertIn("finding: " + mock_run.STREAM_CASE + " failed in round 1: Crash",
                      done.stdout)
        self.assertIn("verdict: NOT STEADY", done.stdout)

    def test_a_temperature_that_cannot_be_read_is_refused(self):
        done = run("stress", plugin("none"), "--temperature", "/no/such/file")
        self.assertEqual(done.returncode, 2)
        self.assertIn("/no/such/file holds no number", done.stderr)


if __name__ == "__main__":
    mock_run.main()
