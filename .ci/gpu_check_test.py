"""Tests of gpu-check and of the comparison that it runs, on a machine without a GPU. Programs of
the test stand for nvidia-smi, the suite, compute-sanitizer and the peers."""

import io
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time
import unittest
from unittest import mock

import gpu_check

HERE = pathlib.Path(__file__).resolve().parent
COMPARE = HERE.parent / "runtime/bench/device/compare.py"

SMI = 'echo "Fast GPU, 580.1, 81559 MiB, 9.0"'
SUITE = """case $1 in
  info) echo "device cuda:0" ;;
  *) echo "verdict: CLEAN"; echo "10 passed, 0 failed, 1 skipped" ;;
esac"""
SANITIZER = 'shift 8; "$@"; code=$?; echo "========= ERROR SUMMARY: 0 errors"; exit $code'
# The worker answers as device_worker and torch_peer.py do. $RATE is the time of a call.
WORKER = """while read -r verb rest; do
  case $verb in
    name) echo "cuda:0" ;;
    list) printf 'add f32 4\\t48\\t4\\nmatmul tf32 8^3\\t768\\t1024\\n\\n' ;;
    prepare) [[ $rest != "${FAILS:-}" ]] && echo ok || printf 'error\\tno kernel\\n' ;;
    check) echo "${MEAN:-1}" ;;
    run) echo "${RATE:-0.001}" ;;
  esac
done"""
PYTHON = """if [[ $1 == -c ]]; then
  echo '{"torch": "2.11", "torch_cuda": "13.0", "cudnn": 91900, "site_packages": "/nowhere"}'
else
  exec REAL "$@"
fi""".replace("REAL", sys.executable)


class Machine:
    """A folder with programs on the path, and a tree such as --prebuilt takes."""

    def __init__(self, folder):
        self.root = pathlib.Path(folder)
        self.path, self.tree = self.root / "path", self.root / "tree"
        for program, text in (("nvidia-smi", SMI), ("compute-sanitizer", SANITIZER)):
            self.put(self.path / program, text)
        self.put(self.path / "python", PYTHON)
        self.put(self.tree / "bin/bp-conformance", SUITE)
        self.put(self.tree / "bin/device_worker", WORKER)
        for backend in ("cuda", "vulkan"):
            self.put(self.tree / f"lib/libbackplane_{backend}.so", "")

    @staticmethod
    def put(path, text):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"#!/usr/bin/env bash\n{text}\n", encoding="utf-8")
        path.chmod(0o755)

    def check(self, *arguments, say=None):
        """Returns (exit code, the printed lines, the JSON)."""
        lines, results = [], self.root / "results"
        path = f"{self.path}:/usr/bin:/bin"
        with mock.patch.dict(os.environ, {"PATH": path}):
            code = gpu_check.main(
                ["--prebuilt", str(self.tree), "--results", str(results), "--python",
                 str(self.path / "python"), *arguments], "manual",
                say or (lambda text: lines.extend(text.splitlines() or [""])))
        report = json.loads((results / "gpu-check.json").read_text(encoding="utf-8"))
        return code, lines, report


def is_running(state):
    """Returns whether the process of this /proc/PID/stat is there, and no zombie."""
    try:
        return state.read_text(encoding="utf-8").split()[2] != "Z"
    except OSError:
        return False


def status_of(report):
    return {part["name"]: part["status"] for part in report["parts"]}


def what_of(report, name):
    return next(part["what"] for part in report["parts"] if part["name"] == name)


class GpuCheck(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.machine = Machine(folder.name)

    @staticmethod
    def plan_with_limit(name, limit):
        plan = gpu_check.plan

        def short_plan(check):
            parts = plan(check)
            for part, _ in parts:
                if name in (part.name, "all"):
                    part.limit = limit
            return parts

        return short_plan

    def test_says_that_there_is_no_driver(self):
        (self.machine.path / "nvidia-smi").unlink()
        with mock.patch("shutil.which", return_value=None):
            code, lines, report = self.machine.check()
        self.assertEqual(code, gpu_check.NO_GPU)
        self.assertEqual(lines, ["gpu-check: nothing ran: there is no nvidia-smi here, and so no "
                                 "NVIDIA driver"])
        self.assertEqual(status_of(report), {"machine": "FAILED"})

    def test_says_that_there_is_no_gpu(self):
        self.machine.put(self.machine.path / "nvidia-smi", 'echo "No devices were found"; exit 6')
        code, lines, _ = self.machine.check()
        self.assertEqual(code, gpu_check.NO_GPU)
        self.assertIn("nvidia-smi finds no GPU: No devices were found", lines[0])

    def test_runs_every_part_and_tells_it_in_one_table(self):
        code, lines, report = self.machine.check()
        self.assertEqual(code, 0, lines)
        self.assertEqual(set(status_of(report).values()), {"passed"}, lines)
        self.assertEqual(report["device"]["name"], "Fast GPU")
        self.assertEqual(report["versions"]["torch"], "2.11")
        self.assertRegex(report["date"], r"^20\d\d-\d\d-\d\dT")
        self.assertEqual(what_of(report, "cuda quick"), "10 passed, 0 failed, 1 skipped")
        start = lines.index(next(line for line in lines if line.startswith("part  ")))
        names = [line.split("  ")[0].strip() for line in lines[start + 1:start + 11]]
        self.assertEqual(names, ["machine", "build", "info", "cuda smoke", "bench", "vulkan smoke",
                                 "cuda tf32", "cuda cudnn", "sanitizer", "cuda quick"])
        self.assertRegex(lines[-1], r"^10 passed, 0 failed, 0 skipped, \d+ s$")

    def test_gives_the_suite_the_tiers_and_the_wheels(self):
        self.machine.put(self.machine.tree / "bin/bp-conformance",
                         f'echo "$*" >>{self.machine.root}/calls; {SUITE}')
        self.machine.check()
        calls = (self.machine.root / "calls").read_text(encoding="utf-8")
        for words in ("libbackplane_cuda.so --tier smoke", "libbackplane_cuda.so --tier quick",
                      "libbackplane_vulkan.so --tier smoke", "--option python_path=/nowhere",
                      "--option tf32=yes --filter op.matmul",
                      "--option attention=cudnn --filter op.sdpa"):
            self.assertIn(words, calls)

    def test_runs_the_named_parts_alone(self):
        code, lines, report = self.machine.check("--only", "cuda quick, bench")
        self.assertEqual(code, 0, lines)
        self.assertEqual(list(status_of(report)), ["machine", "build", "bench", "cuda quick"])

    def test_names_the_parts_if_one_is_unknown(self):
        with mock.patch("sys.stderr", io.StringIO()) as said, self.assertRaises(SystemExit) as end:
            self.machine.check("--only", "cuda quik")
        self.assertEqual(end.exception.code, 2)
        self.assertRegex(said.getvalue(), "no part is called 'cuda quik'; .*cuda smoke, bench")

    def test_a_failing_tier_fails_the_check(self):
        self.machine.put(self.machine.tree / "bin/bp-conformance",
                         f'[[ $* != *quick* ]] || {{ echo "9 passed, 1 failed, 1 skipped"; exit 1; '
                         f'}}\n{SUITE}')
        code, lines, report = self.machine.check()
        self.assertEqual(code, 1)
        self.assertEqual(status_of(report)["cuda quick"], "FAILED")
        self.assertEqual(what_of(report, "cuda quick"),
                         "9 passed, 1 failed, 1 skipped (exit code 1)")
        self.assertIn("8 passed, 2 failed, 0 skipped", lines[-1])

    def test_a_check_that_is_cut_off_leaves_what_it_found(self):
        def say(text):
            if text.startswith("bench: "):
                raise KeyboardInterrupt

        with self.assertRaises(KeyboardInterrupt):
            self.machine.check(say=say)
        report = json.loads((self.machine.root / "results/gpu-check.json").read_text("utf-8"))
        self.assertEqual(status_of(report)["cuda smoke"], "passed")
        self.assertNotIn("cuda quick", status_of(report))

    def test_counts_the_cases_of_a_tier_that_did_not_end(self):
        lines = [{"case": "a", "status": "Fail"}, {"case": "a", "status": "Pass"},
                 {"case": "b", "status": "Pass"}, {"case": "c", "status": "NotSupported"}]
        text = "\n".join(json.dumps(line) for line in lines)
        self.machine.put(
            self.machine.tree / "bin/bp-conformance",
            f"""[[ $* == *quick* ]] && {{ while [[ $1 != --out ]]; do shift; done; mkdir -p "$2"
            echo '{text}\n{{"case": "d", "sta' >"$2/results.jsonl"; sleep 60; }}\n{SUITE}""")
        with mock.patch("gpu_check.plan", self.plan_with_limit("cuda quick", 1)):
            _, _, report = self.machine.check()
        self.assertEqual(what_of(report, "cuda quick"), "no end within 1 s: 2 Pass, 1 NotSupported")

    def test_a_part_that_breaks_leaves_the_others(self):
        with mock.patch("gpu_check.Check.bench", side_effect=ValueError("odd figures")):
            code, _, report = self.machine.check()
        self.assertEqual(code, 1)
        self.assertEqual(what_of(report, "bench"),
                         "gpu-check itself failed: ValueError: odd figures")
        self.assertEqual(status_of(report)["cuda quick"], "passed")

    def test_names_the_driver_of_vulkan_that_the_loader_does_not_find(self):
        self.machine.put(self.machine.tree / "bin/bp-conformance",
                         f'[[ $* != *vulkan* ]] || echo "$VK_DRIVER_FILES" '
                         f'>{self.machine.root}/driver; {SUITE}')
        driver = self.machine.root / "nvidia_icd.json"
        driver.write_text("{}", encoding="utf-8")
        with mock.patch("gpu_check.VULKAN_USUAL", ()), \
                mock.patch("gpu_check.VULKAN_MOUNTED", (str(self.machine.root / "nv*.json"),)):
            self.machine.check()
        self.assertEqual((self.machine.root / "driver").read_text("utf-8").strip(), str(driver))

    def test_tells_the_commit_of_the_tree(self):
        _, _, report = self.machine.check()
        self.assertEqual(report["commit"], "unknown")
        (self.machine.tree / "commit").write_text("abc\n", encoding="utf-8")
        _, _, report = self.machine.check()
        self.assertEqual(report["commit"], "abc")

    def test_a_plugin_that_does_not_load_stops_what_needs_it(self):
        self.machine.put(self.machine.tree / "bin/bp-conformance",
                         'echo "does not load: driver too old"; exit 3')
        code, _, report = self.machine.check()
        self.assertEqual(code, 1)
        self.assertIn("driver too old", what_of(report, "info"))
        self.assertEqual(what_of(report, "bench"), "behind info, which failed")
        self.assertNotIn("behind", what_of(report, "vulkan smoke"))

    def test_a_tree_without_the_plugin_is_told(self):
        (self.machine.tree / "lib/libbackplane_cuda.so").unlink()
        code, _, report = self.machine.check()
        self.assertEqual(code, 1)
        self.assertIn("has no libbackplane_cuda.so; see --needs", what_of(report, "build"))

    def test_skips_what_is_not_there_in_words(self):
        (self.machine.tree / "lib/libbackplane_vulkan.so").unlink()
        (self.machine.tree / "bin/device_worker").unlink()
        (self.machine.path / "compute-sanitizer").unlink()
        code, _, report = self.machine.check()
        self.assertEqual(code, 0)
        self.assertEqual(what_of(report, "vulkan smoke"), "the tree has no libbackplane_vulkan.so")
        self.assertEqual(what_of(report, "bench"), "the tree has no device_worker")
        self.assertEqual(what_of(report, "sanitizer"),
                         "there is no compute-sanitizer, on the path or in the toolkit")

    def test_vulkan_that_does_not_load_is_skipped(self):
        self.machine.put(self.machine.tree / "bin/bp-conformance",
                         f'[[ $* != *vulkan* ]] || {{ echo "no libvulkan.so.1"; exit 3; }}\n'
                         f'{SUITE}')
        _, _, report = self.machine.check()
        self.assertEqual(what_of(report, "vulkan smoke"),
                         "the backend does not load here: no libvulkan.so.1")

    def test_errors_of_the_sanitizer_fail(self):
        self.machine.put(self.machine.path / "compute-sanitizer",
                         'echo "========= ERROR SUMMARY: 2 errors"; exit 86')
        code, _, report = self.machine.check()
        self.assertEqual(code, 1)
        self.assertEqual(what_of(report, "sanitizer"), "========= ERROR SUMMARY: 2 errors")

    def test_a_sanitizer_that_says_nothing_of_the_suite_has_not_passed(self):
        self.machine.put(self.machine.path / "compute-sanitizer",
                         f'[[ $* == *" run "* ]] || {{ {SANITIZER}; exit; }}; echo "Killed"')
        _, _, report = self.machine.check()
        self.assertEqual(status_of(report)["sanitizer"], "FAILED")
        self.assertEqual(what_of(report, "sanitizer"), "compute-sanitizer gave no summary: Killed")

    def test_a_machine_that_forbids_the_sanitizer_skips_it_and_says_why(self):
        self.machine.put(self.machine.path / "compute-sanitizer", 'echo "Device not supported"')
        code, _, report = self.machine.check()
        self.assertEqual(code, 0)
        self.assertEqual(status_of(report)["sanitizer"], "skipped")
        self.assertEqual(what_of(report, "sanitizer"),
                         "compute-sanitizer does not work on this machine: over bp-conformance "
                         "info it says 'Device not supported'")

    def test_ends_what_takes_too_long_with_all_its_children(self):
        self.machine.put(self.machine.tree / "bin/bp-conformance",
                         f'[[ $* == *smoke* ]] && {{ sleep 60 & '
                         f'echo $! >{self.machine.root}/child; wait; }}\n{SUITE}')
        with mock.patch("gpu_check.plan", self.plan_with_limit("all", 1)):
            code, lines, report = self.machine.check("--budget", "29")
        self.assertEqual(code, 1)
        self.assertIn("no end within", what_of(report, "cuda smoke"))
        self.assertIn("of the budget, and it needs 30 s", what_of(report, "cuda quick"))
        child = (self.machine.root / "child").read_text(encoding="utf-8").strip()
        state = pathlib.Path(f"/proc/{child}/stat")
        ends = time.monotonic() + 30  # The signal may take a moment to arrive.
        while is_running(state) and time.monotonic() < ends:
            time.sleep(0.01)
        self.assertFalse(is_running(state), lines)

    def test_lists_what_it_needs(self):
        lines = []
        self.assertEqual(gpu_check.main(["--needs"], "manual", lines.append), 0)
        for word in ("yaml-cpp", "jsonschema", "compute-sanitizer", "--prebuilt DIR"):
            self.assertIn(word, lines[0])

    def test_a_wrong_command_line_ends_with_2(self):
        for arguments in (["--prebuilt", "/no/such/folder"], ["--budget", "0"], ["--nonsense"]):
            result = subprocess.run([sys.executable, HERE / "gpu-check", *arguments],
                                    capture_output=True, text=True, check=False)
            self.assertEqual(result.returncode, 2, arguments)
            self.assertIn("gpu-check: error:", result.stderr)


class Compare(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name)
        Machine.put(self.root / "worker", WORKER)
        Machine.put(self.root / "peer", "RATE=0.002\n" + WORKER)

    def run_it(self, *arguments, environment=None):
        figures = self.root / "figures.json"
        result = subprocess.run(
            [sys.executable, COMPARE, "--worker", self.root / "worker", "--plugin", "p.so",
             "--device", "cuda:0", "--ms", "1", "--json", figures, "--torch-peer",
             self.root / "peer", *arguments],
            capture_output=True, text=True, check=False, env=os.environ | (environment or {}))
        document = json.loads(figures.read_text(encoding="utf-8")) if figures.exists() else {}
        return result, document

    def test_gives_the_ratio_of_each_row(self):
        result, document = self.run_it()
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertEqual([row["ratio"] for row in document["rows"]], [2.0, 2.0])
        self.assertEqual(result.stdout.splitlines()[-1],
                         "2 rows, 2 with PyTorch: geometric mean 2.00, least 2.00")

    def test_gives_no_ratio_for_other_results(self):
        Machine.put(self.root / "peer", "MEAN=3\n" + WORKER)
        result, document = self.run_it()
        self.assertEqual([row["ratio"] for row in document["rows"]], [None, None])
        self.assertIn("mean |y| is 3 in PyTorch, and 1 in Backplane", result.stdout)

    def test_goes_on_without_the_peer(self):
        Machine.put(self.root / "peer", "exit 1")
        result, document = self.run_it()
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertTrue(document["peer"].startswith("none: PyTorch ended with code 1"))
        self.assertIn("none with PyTorch", result.stdout)

    def test_a_case_that_fails_fails_the_run(self):
        result, document = self.run_it(environment={"FAILS": "add f32 4"})
        self.assertEqual(result.returncode, 1)
        self.assertEqual(document["rows"][0]["failed"], "no kernel")

    def test_goes_on_with_a_new_worker_where_one_died(self):
        Machine.put(self.root / "worker", f"""[[ -e {self.root}/died ]] || DIES=yes
            {WORKER.replace('matmul tf32', 'matmul f32').replace(
                'prepare)', f'prepare) [[ -n $DIES ]] && touch {self.root}/died && exit 9;')}""")
        result, document = self.run_it()
        self.assertEqual(result.returncode, 1)
        self.assertIn("Backplane ended with code 9", document["rows"][0]["failed"])
        self.assertEqual(document["rows"][1]["ratio"], 2.0)

    def test_rows_of_tf32_run_with_the_option(self):
        Machine.put(self.root / "worker", f'[[ $* == *tf32=yes* ]] && RATE=0.0005\n{WORKER}')
        _, document = self.run_it()
        self.assertEqual([row["seconds"]["Backplane"] for row in document["rows"]],
                         [0.001, 0.0005])

    def test_ends_when_its_time_is_over(self):
        Machine.put(self.root / "worker", 'read -r line; sleep 60')
        begin = time.monotonic()
        result, _ = self.run_it("--seconds", "1")
        self.assertLess(time.monotonic() - begin, 30)
        self.assertEqual(result.returncode, 1)
        self.assertIn("did not answer in time", result.stderr)

    def test_names_the_same_cases_as_the_worker(self):
        text = (COMPARE.parent / "device_cases.cpp").read_text(encoding="utf-8")
        peer = (COMPARE.parent / "torch_peer.py").read_text(encoding="utf-8")
        for name in ("copy f32 67108864", "eager add f32 64", "x64x56x56, 64 of 3x3",
                     " 16384x4096", " 67108864"):
            self.assertIn(name, text)
            self.assertIn(name, peer)


if __name__ == "__main__":
    unittest.main()
