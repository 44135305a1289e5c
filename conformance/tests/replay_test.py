#!/usr/bin/env python3
"""Records calls of a backend, replays them on it and on a broken one, and breaks the recordings.

  replay_test.py BP_CONFORMANCE MUTANT GOOD [unittest arguments]

The recorded program is a run of the suite, which launches, copies, waits and reads.
"""
import hashlib
import json
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

PROGRAM = MUTANT = GOOD = ""
CASES = ("op.matmul.f32.random.m17k33n19.dense:op.softmax.f32.random.*.dense:"
         "op.mean.f32.random.5x7_axes*.dense")


def run(*words):
    return subprocess.run([PROGRAM, *words], capture_output=True, text=True, timeout=600,
                          check=False)


def record(folder, cases, *options):
    """Returns the one recording of a run that holds launches: a worker that only looks at the
    backend leaves one too."""
    layer = ",".join([f"record.dir={folder}/%p", *options])
    done = run("run", GOOD, "--layers", "record", "--layer-options", layer, "-k", cases,
               "--isolate", "none", "--out", f"{folder}/run", "-q")
    assert done.returncode == 0, done.stdout + done.stderr
    found = [path.parent for path in pathlib.Path(folder).glob("*/stream.jsonl")
             if "kernel.launch" in path.read_text()]
    assert len(found) == 1, found
    return found[0]


def read_lines(recording):
    return [json.loads(line) for line in (recording / "stream.jsonl").read_text().splitlines()]


def write_lines(recording, lines):
    text = "".join(json.dumps(line) + "\n" for line in lines)
    (recording / "stream.jsonl").write_text(text)


class Replaying(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        scratch = tempfile.TemporaryDirectory()
        cls.addClassCleanup(scratch.cleanup)
        cls.scratch = pathlib.Path(scratch.name)
        cls.recorded = record(cls.scratch / "plain", CASES)
        cls.with_outputs = record(cls.scratch / "outputs", CASES, "record.outputs=1")

    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.folder = pathlib.Path(scratch.name)

    def copy(self, recording):
        return pathlib.Path(shutil.copytree(recording, self.folder / "copy"))

    def replay(self, recording, *options, plugin=None):
        """Returns the exit code, the page, and the final line of each case by its id."""
        shutil.rmtree(self.folder / "out", ignore_errors=True)
        done = run("replay", plugin or GOOD, str(recording), "--out", str(self.folder / "out"),
                   "--color", "never", *options)
        results = self.folder / "out" / "results.jsonl"
        lines = [json.loads(line) for line in results.read_text().splitlines()] \
            if results.exists() else []
        return done, {line["case"]: line for line in lines if "status" in line}

    def test_gives_on_the_same_backend_what_was_recorded(self):
        for recording in (self.recorded, self.with_outputs):
            with self.subTest(recording=recording.parent.name):
                done, cases = self.replay(recording)
                self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
                lines = read_lines(recording)
                for call, kind in (("kernel.launch", "replay.launch."),
                                   ("memory.copy_to_host", "replay.read.")):
                    wanted = sum(line.get("call") == call for line in lines)
                    found = [name for name in cases if name.startswith(kind)]
                    self.assertGreater(wanted, 0)
                    self.assertEqual(len(found), wanted)

    def test_says_how_calls_were_served_and_why(self):
        done, _ = self.replay(self.recorded, "--explain-fallbacks")
        self.assertRegex(done.stdout, r"served: [1-9]\d* cases on kernels of the backend, "
                                      r"0 decomposed, 0 on the host")
        self.assertIn("fallbacks: none", done.stdout)
        done, cases = self.replay(self.recorded, "--layers", "mask", "--layer-options",
                                  "mask.kernels=mean,mask.tables=compiler",
                                  "--explain-fallbacks")
        hidden = sum(name.endswith(".mean") for name in cases)
        self.assertGreater(hidden, 0)
        self.assertIn(f", {hidden} decomposed, 0 on the host", done.stdout)
        self.assertRegex(done.stdout, r"fallback decomposed  replay\.launch\.\d+\.mean")

    def test_judges_by_oracles_and_by_recorded_outputs(self):
        _, cases = self.replay(self.with_outputs)
        checked = {name: line.get("details", {}).get("checked") for name, line in cases.items()}
        products = [word for name, word in checked.items() if name.endswith(".matmul")]
        self.assertEqual(set(products), {"oracle and bits"})
        reads = {word for name, word in checked.items() if name.startswith("replay.read.")}
        self.assertEqual(reads, {"equal"})

    def test_names_the_launch_that_is_wrong(self):
        # Mutant 1 drops the products behind the last whole tile of K.
        broken = ("--option", "mutant=1", "--option", f"wrap={GOOD}")
        for recording in (self.recorded, self.with_outputs):
            done, cases = self.replay(recording, *broken, plugin=MUTANT)
            self.assertEqual(done.returncode, 1, done.stdout + done.stderr)
            failed = [name for name, line in cases.items() if line["status"] == "Fail"]
            launches = sorted(name for name in failed if name.startswith("replay.launch."))
            self.assertTrue(launches and all(name.endswith(".matmul") for name in launches), failed)
            reads = [cases[name] for name in failed if name.startswith("replay.read.")]
            number = int(launches[0].split(".")[2])
            self.assertTrue(reads)
            for read in reads:
                self.assertIn(f"the first launch that is wrong is launch {number} (matmul)",
                              read["message"])
            self.assertIn(f"bp-conformance replay {MUTANT} {recording} --case ", done.stdout)

    def test_runs_one_case_alone(self):
        last = [line for line in read_lines(self.with_outputs)
                if line.get("call") == "kernel.launch"][-1]
        name = f"replay.launch.{last['launch']:05}.{last['op']}"
        done, cases = self.replay(self.with_outputs, "--case", name)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertEqual(list(cases), [name])

    def test_seeds_what_was_copied_in(self):
        recording = self.copy(self.recorded)
        done, cases = self.replay(recording, "--seed-weights")
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        reads = {line["status"] for name, line in cases.items() if name.startswith("replay.read.")}
        self.assertEqual(reads, {"Skip"})
        products = {line["status"] for name, line in cases.items() if name.endswith(".matmul")}
        self.assertEqual(products, {"Pass"})

    def test_finds_bytes_that_differ(self):
        recording = self.copy(self.with_outputs)
        lines = read_lines(recording)
        read = next(line for line in lines if line.get("call") == "memory.copy_to_host")
        payload = recording / "payloads" / read["payload"]
        changed = bytearray(payload.read_bytes())
        changed[0] ^= 0x40
        name = hashlib.sha256(changed).hexdigest()
        (recording / "payloads" / name).write_bytes(changed)
        read["payload"] = name
        write_lines(recording, lines)
        done, cases = self.replay(recording)
        case = cases[f"replay.read.{read['read']:05}"]
        self.assertEqual((done.returncode, case["status"]), (1, "Fail"), done.stdout)
        self.assertIn("differs: 1 of", case["message"])
        self.assertIn("every launch before gave the recorded bits", case["message"])

    def refuse(self, recording, words, *options):
        done, _ = self.replay(recording, *options)
        self.assertEqual(done.returncode, 2, done.stdout + done.stderr)
        self.assertIn(words, done.stderr)

    def test_refuses_what_is_no_recording(self):
        self.refuse(self.folder / "none", "none: cannot be read")
        (self.folder / "empty").mkdir()
        (self.folder / "empty" / "stream.jsonl").write_text("")
        self.refuse(self.folder / "empty", "stream.jsonl: is empty")
        (self.folder / "empty" / "stream.jsonl").write_text("{}\n")
        self.refuse(self.folder / "empty", "is no recording: its first line has no format")

    def test_refuses_recordings_that_are_damaged(self):
        lines = read_lines(self.recorded)
        upload = next(i for i, line in enumerate(lines)
                      if line.get("call") == "memory.copy_from_host")
        launch = next(i for i, line in enumerate(lines) if line.get("call") == "kernel.launch")

        def changed(index, **members):
            return [{**line, **members} if i == index else line for i, line in enumerate(lines)]

        args = lines[launch]["args"]
        tensor = next(name for name, value in args.items() if isinstance(value, dict)
                      and "dtype" in value)
        trials = (
            (changed(0, version=2), "is of version 2; this build reads version 1"),
            (changed(upload, call="memory.polish"), f":{upload + 1}: has the call 'memory.polish'"),
            (changed(upload, dst=[1, 2]), "has no range 'dst' of buffer, offset and size"),
            (lines + [{"call": "memory.fill", "stream": 1, "dst": [1, 0, 4], "pattern": "0x0"}],
             "fills with '0x0'; allowed are 1 to 16 bytes"),
            (changed(upload, payload="../secret"), "the payload '../secret' is no SHA-256"),
            (changed(upload, payload="0" * 64), "0000 is not there"),
            (changed(launch, op="polish"), "launches 'polish', which is no op of this build"),
            (changed(launch, args={"polish": 1}), "has no argument 'polish'"),
            (changed(launch, args={**args, tensor: {**args[tensor], "dtype": "f33"}}),
             f"'{tensor}' has the dtype \"f33\", which is not known"),
            (changed(launch, args={**args, tensor: {**args[tensor], "shape": [-1]}}), "extent"),
            (lines + [{"call": "unrecorded", "what": "graph.launch"}],
             "graph.launch was not recorded; what follows may differ; --partial replays the rest"),
        )
        for damaged, words in trials:
            with self.subTest(words=words):
                shutil.rmtree(self.folder / "copy", ignore_errors=True)
                recording = self.copy(self.recorded)
                write_lines(recording, damaged)
                self.refuse(recording, words)
        done, _ = self.replay(recording, "--partial")
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)

        (recording / "stream.jsonl").write_text(json.dumps(lines[0]) + "\n{\"call\": \n")
        self.refuse(recording, ":2: the text is not valid JSON")
        write_lines(recording, lines)
        payload = recording / "payloads" / lines[upload]["payload"]
        payload.write_bytes(payload.read_bytes() + b"x")
        self.refuse(recording, "has other bytes than were recorded")

    def test_ends_where_a_call_cannot_be_run(self):
        recording = self.copy(self.recorded)
        lines = read_lines(recording)
        launch = next(line for line in lines if line.get("call") == "kernel.launch")
        tensor = next(value for value in launch["args"].values() if isinstance(value, dict)
                      and "buffer" in value)
        tensor["byte_offset"] = 1 << 40
        write_lines(recording, lines)
        done, cases = self.replay(recording)
        self.assertEqual(done.returncode, 1, done.stdout + done.stderr)
        statuses = [line["status"] for line in cases.values()]
        self.assertEqual(statuses.count("Fail"), 1, statuses)
        failed = next(line for line in cases.values() if line["status"] == "Fail")
        self.assertIn("leaves buffer", failed["message"])
        self.assertGreater(statuses.count("Skip"), 0)

    def test_goes_on_where_an_op_decomposes_and_says_where_none_does(self):
        def without(op):
            return self.replay(self.recorded, "--layers", "mask",
                               "--layer-options", f"mask.kernels={op},mask.tables=compiler")
        _, cases = without("mean")
        served = {line["status"] for name, line in cases.items() if name.endswith(".mean")}
        self.assertEqual(served, {"Fallback"})
        others = [line["status"] for name, line in cases.items()
                  if name.startswith("replay.launch.") and not name.endswith(".mean")]
        self.assertEqual(set(others), {"Pass"})
        done, cases = without("matmul")
        self.assertEqual(done.returncode, 1, done.stdout + done.stderr)
        missing = [line for line in cases.values() if line["status"] == "Missing"]
        self.assertEqual(len(missing), 1)
        self.assertRegex(missing[0]["message"], r"stream\.jsonl:\d+: launch \d+ \(matmul\): "
                         "nothing on .* runs it, and the replay ends here: ")
        self.assertIn("decomposition: the op has a decomposition only where it is given ",
                      missing[0]["message"])

    def test_repeats_a_saved_failure(self):
        broken = ("--option", "mutant=1", "--option", f"wrap={GOOD}")
        _, cases = self.replay(self.recorded, *broken, plugin=MUTANT)
        failed = next(name for name, line in cases.items() if line["status"] == "Fail")
        done = run("repro", str(self.folder / "out" / "repro" / failed))
        self.assertEqual(done.returncode, 1, done.stdout + done.stderr)
        self.assertIn("repeats: the same cause", done.stdout)


if __name__ == "__main__":
    PROGRAM, MUTANT, GOOD = sys.argv[1:4]
    unittest.main(argv=[sys.argv[0], *sys.argv[4:]])
