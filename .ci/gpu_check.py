"""The parts of .ci/gpu-check, which has the manual: what runs on a machine with a GPU, within which
time, and how the results are reported."""

import argparse
import collections
import datetime
import glob
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[1]
BENCH = ROOT / "runtime/bench/device"
PASSED, FAILED, SKIPPED = "passed", "FAILED", "skipped"
NO_GPU = 3  # The exit code if there is no GPU.
# The number of workers of the suite at a time. Each has a context on the device, of some 500 MiB.
JOBS = max(1, min(8, (os.cpu_count() or 2) // 2))
# The number of cases of a worker. A new worker loads the driver and the libraries again, which
# takes seconds.
BATCH = 1000
# Folders with programs of the toolkit that are not on the path.
TOOLKIT_PROGRAMS = "/usr/local/cuda/bin:/usr/local/cuda/compute-sanitizer"
# Products and convolutions that may round their factors, which option tf32 allows.
TF32 = "op.matmul*.f32.*:op.linear*.f32.*:op.convolution*.f32.*"
# Attention that cuDNN may compute, which option attention=cudnn allows.
ATTENTION = "op.sdpa.f16.*:op.sdpa.bf16.*"
# Files that describe drivers of Vulkan. The loader looks in the usual places by itself; containers
# have the driver's files in the mounted ones.
VULKAN_USUAL = ("/etc/vulkan/icd.d/*.json", "/usr/share/vulkan/icd.d/*.json",
                "/usr/local/share/vulkan/icd.d/*.json")
VULKAN_MOUNTED = ("/usr/local/nvidia/share/vulkan/icd.d/nvidia_icd*.json",
                  "/usr/local/nvidia/vulkan/icd.d/nvidia_icd*.json",
                  "/run/nvidia/driver/etc/vulkan/icd.d/nvidia_icd*.json")

# The words of the line with which compute-sanitizer ends.
SANITIZER_SUMMARY = "ERROR SUMMARY"
# The cases that run under compute-sanitizer, which makes launches some 20 times slower: one case of
# each kind of kernel, and what the host side does with memory and streams.
SANITIZED = ":".join((
    "memory.*", "stream.*", "event.*", "graph.*", "op.add.f32.*", "op.copy.f32.*",
    "op.sum.f32.*", "op.softmax.f32.*", "op.layer_norm.f32.*", "op.matmul.f32.*",
    "op.linear.f32.*", "op.convolution.f32.*", "op.max_pool*.f32.*", "op.embedding*.f32.*",
    "op.scatter*.f32.*", "op.sdpa*.f32.*", "op.adamw_step.f32.*", "op.sort.f32.*"))

NEEDS = """To build here (without --prebuilt), besides nvcc, CMake, Ninja and a C++20 compiler:
  nlohmann-json 3.10, CLI11 2.1       headers        Debian: nlohmann-json3-dev libcli11-dev
  yaml-cpp 0.6                        library        Debian: libyaml-cpp-dev
  PyYAML, jsonschema                  for python3    pip: pyyaml jsonschema
  cublasLt.h, cudnn_graph.h, nccl.h   headers        the toolkit, or the wheels of PyTorch
To bring a tree built elsewhere instead, on x86-64 Linux with the toolkit (--prebuilt DIR):
  cmake --preset release -D BACKPLANE_BUILD_CPU=OFF -D BACKPLANE_BUILD_SIM=OFF
  cmake --build --preset release --target bp-conformance backplane_cuda backplane_vulkan \\
    device_worker
  mkdir -p DIR/bin DIR/lib
  cp build/release/bin/{bp-conformance,device_worker} DIR/bin
  cp build/release/lib/libbackplane.so* build/release/lib/libbackplane_{cuda,vulkan}.* DIR/lib
  cp /usr/lib/x86_64-linux-gnu/lib{yaml-cpp.so.0.*,vulkan.so.1} DIR/lib
  git rev-parse HEAD >DIR/commit
It has some 50 MB, and needs glibc and libstdc++ no older than those of the machine that built it.
To run, wherever it was built:
  the NVIDIA driver                   else nothing runs, and the exit code is 3
  cuBLASLt, cuDNN 9, NCCL             the toolkit, or PyTorch's wheels; without them matmul and
                                      convolution run on slower kernels, and there are no groups
  PyTorch with CUDA                   without it the bench has no peer
  compute-sanitizer                   of the toolkit; without it that part is skipped
  libvulkan.so.1                      Debian: libvulkan1; without it vulkan is skipped. NVIDIA's
                                      driver of Vulkan opens libEGL.so.1 (Debian: libegl1)"""


class Runner:
    """Runs commands within a budget of seconds. A command that takes too long is killed with all
    that it started."""

    def __init__(self, budget, logs, environment=None):
        self.end = time.monotonic() + budget
        self.logs = logs
        self.environment = environment or os.environ.copy()

    def left(self):
        return max(0.0, self.end - time.monotonic())

    def run(self, name, command, limit, environment=None):
        """Returns (exit code, or None if the time passed; the output, which is also in a log)."""
        limit = min(limit, self.left())
        self.logs.mkdir(parents=True, exist_ok=True)
        log = self.logs / f"{name}.log"
        with log.open("w", encoding="utf-8") as file:
            process = subprocess.Popen(
                [str(word) for word in command], stdout=file, stderr=subprocess.STDOUT,
                stdin=subprocess.DEVNULL, start_new_session=True, cwd=ROOT,
                env=self.environment | (environment or {}))
            try:
                code = process.wait(timeout=limit)
            except subprocess.TimeoutExpired:
                code = None
            finally:  # This also happens if a signal ends this check.
                try:
                    os.killpg(process.pid, signal.SIGKILL)
                except ProcessLookupError:
                    pass
                process.wait()
        return code, log.read_text(encoding="utf-8", errors="replace")


class Part:
    """One line of the table. `needs` are parts, none of which may have failed."""

    def __init__(self, name, limit, least, needs=()):
        self.name, self.limit, self.least, self.needs = name, limit, least, needs
        self.status, self.text, self.seconds, self.details = SKIPPED, "", 0.0, {}

    def finish(self, status, text, **details):
        self.status, self.text, self.details = status, text, details


def last_line(text):
    lines = [line for line in text.splitlines() if line.strip()]
    return lines[-1].strip() if lines else "no output"


def cases_so_far(folder):
    """Returns what a run of the suite found before it was ended: "812 Pass, 2 Fail"."""
    path, last = folder / "results.jsonl", {}
    for line in path.read_text(encoding="utf-8").splitlines() if path.exists() else ():
        try:
            attempt = json.loads(line)
        except json.JSONDecodeError:  # This line was being written.
            continue
        last[attempt.get("case")] = attempt.get("status")
    counts = collections.Counter(status for status in last.values() if status)
    return ", ".join(f"{count} {status}" for status, count in counts.most_common())


def outcome(part, code, output, so_far="", **details):
    """Finishes a part whose command reports success by 0, and in its last line what it did."""
    if code is None:
        part.finish(FAILED, f"no end within {part.limit:.0f} s: {so_far or last_line(output)}",
                    **details)
    else:
        text = last_line(output) + ("" if code == 0 else f" (exit code {code})")
        part.finish(PASSED if code == 0 else FAILED, text, **details)


class Check:
    """The data and functions that the parts share. The programs are found on the path, so that
    tests can bring their own."""

    def __init__(self, options, runner):
        self.options, self.runner = options, runner
        self.tree = options.prebuilt
        self.report = {"date": datetime.datetime.now(datetime.timezone.utc).isoformat(),
                       "command": options.command, "commit": self.commit()}

    def commit(self):
        """Returns the commit of the tree that is checked. A tree that was built elsewhere brings
        its commit."""
        if self.tree is not None:
            path = self.tree / "commit"
            return path.read_text(encoding="utf-8").strip() if path.exists() else "unknown"
        if shutil.which("git") is None:
            return "unknown"
        result = subprocess.run(["git", "rev-parse", "HEAD"], capture_output=True, text=True,
                                check=False, cwd=ROOT)
        return result.stdout.strip() or "unknown"

    def program(self, name):
        return self.tree / "bin" / name

    def plugin(self, backend):
        for folder in ("lib", "lib/backplane"):
            path = self.tree / folder / f"libbackplane_{backend}.so"
            if path.exists():
                return path
        return None

    def environment(self):
        """Returns an environment in which the tree's libraries come first: a moved tree does not
        find them itself."""
        paths = [str(self.tree / "lib"), os.environ.get("LD_LIBRARY_PATH", "")]
        return {"LD_LIBRARY_PATH": ":".join(filter(None, paths))}

    def vulkan_environment(self):
        """Returns environment(), with the driver if the loader of Vulkan would not find it."""
        known = os.environ.get("VK_DRIVER_FILES") or os.environ.get("VK_ICD_FILENAMES")
        if known or any(glob.glob(pattern) for pattern in VULKAN_USUAL):
            return self.environment()
        mounted = [path for pattern in VULKAN_MOUNTED for path in sorted(glob.glob(pattern))]
        drivers = {"VK_DRIVER_FILES": mounted[0], "VK_ICD_FILENAMES": mounted[0]} if mounted else {}
        return self.environment() | drivers

    def python_option(self):
        """Returns the option that names the wheels of PyTorch's environment, if there is one."""
        path = self.report.get("versions", {}).get("site_packages")
        return [f"python_path={path}"] if path else []

    # ---- The parts ------------------------------------------------------------------------------

    def machine(self, part):
        """Returns why nothing can run here, or ""."""
        if shutil.which("nvidia-smi") is None:
            return "there is no nvidia-smi here, and so no NVIDIA driver"
        code, output = self.runner.run("machine", [
            "nvidia-smi", "--query-gpu=name,driver_version,memory.total,compute_cap",
            "--format=csv,noheader"], part.limit)
        rows = [line for line in output.splitlines() if line.count(",") == 3]
        if code != 0 or not rows:
            return f"nvidia-smi finds no GPU: {last_line(output)}"
        name, driver, memory, capability = (cell.strip() for cell in rows[0].split(","))
        self.report["device"] = {"name": name, "driver": driver, "memory": memory,
                                 "compute_capability": capability, "count": len(rows)}
        self.report["versions"] = self.versions()
        part.finish(PASSED, f"{name}, driver {driver}, {memory}, sm_{capability.replace('.', '')}")
        return ""

    def versions(self):
        # The wheels of NVIDIA's libraries lie beside PyTorch, which may be anywhere.
        ask = ("import json, pathlib, torch; print(json.dumps({'torch': torch.__version__, "
               "'torch_cuda': torch.version.cuda, 'cudnn': torch.backends.cudnn.version(), "
               "'site_packages': str(pathlib.Path(torch.__file__).parents[1])}))")
        code, output = self.runner.run("torch", [self.options.python, "-c", ask], 60)
        versions = {}
        if code == 0:
            versions = json.loads(last_line(output))
        else:
            versions["torch"] = f"missing: {last_line(output)}"
        if shutil.which("nvcc"):
            _, output = self.runner.run("nvcc", ["nvcc", "--version"], 20)
            versions["nvcc"] = last_line(output)
        return versions

    def build(self, part):
        if self.options.prebuilt:
            missing = [str(path) for path in (self.program("bp-conformance"),)
                       if not path.exists()]
            if self.plugin("cuda") is None:
                missing.append("libbackplane_cuda.so")
            if missing:
                part.finish(FAILED, f"{self.tree} has no {', '.join(missing)}; see --needs")
            else:
                part.finish(PASSED, f"prebuilt: {self.tree}")
            return
        self.tree = ROOT / "build/gpu-check"
        site = self.report["versions"].get("site_packages", "")
        configure = ["cmake", "-S", ROOT, "-B", self.tree, "-G", "Ninja",
                     "-DCMAKE_BUILD_TYPE=Release", "-DBACKPLANE_BUILD_TESTS=OFF",
                     "-DBACKPLANE_BUILD_CPU=OFF", "-DBACKPLANE_BUILD_SIM=OFF",
                     "-DBACKPLANE_BUILD_CUDA=ON", "-DCMAKE_CUDA_ARCHITECTURES=native",
                     f"-DBACKPLANE_CUDA_PYTHON={site}"]
        code, output = self.runner.run("configure", configure, 60)
        if code != 0:
            errors = [line for line in output.splitlines() if "missing" in line or "Error" in line]
            part.finish(FAILED, f"configure: {(errors or [last_line(output)])[-1].strip()}; "
                                "see --needs")
            return
        targets = ["bp-conformance", "backplane_cuda", "device_worker"]
        if "vulkan backend with" in output:
            targets.append("backplane_vulkan")
        code, output = self.runner.run(
            "build", ["cmake", "--build", self.tree, "--target", *targets], part.limit)
        outcome(part, code, output)

    def info(self, part):
        code, output = self.runner.run(
            "info", [self.program("bp-conformance"), "info", self.plugin("cuda")], part.limit,
            self.environment())
        if code == 0:
            part.finish(PASSED, "the plugin loads and finds the device")
        else:
            outcome(part, code, output)

    def conformance(self, part, backend, tier, *arguments):
        plugin = self.plugin(backend)
        if plugin is None:
            part.finish(SKIPPED, f"the tree has no libbackplane_{backend}.so")
            return
        name = part.name.replace(" ", "_")
        folder = self.runner.logs / name
        shutil.rmtree(folder, ignore_errors=True)  # An earlier check may have left it.
        command = [self.program("bp-conformance"), "run", plugin, "--tier", tier, "--quiet",
                   "--color", "never", "--jobs", JOBS, "--batch", BATCH, "--out", folder,
                   *arguments]
        waivers = ROOT / f"backends/{backend}/waivers.yaml"
        if waivers.exists():
            command += ["--waivers", waivers]
        environment = self.environment()
        if backend == "cuda":
            for option in self.python_option():
                command += ["--option", option]
        else:
            environment = self.vulkan_environment()
        code, output = self.runner.run(name, command, part.limit, environment)
        if code == 3 and backend == "vulkan":
            part.finish(SKIPPED, f"the backend does not load here: {last_line(output)}")
            return
        outcome(part, code, output, cases_so_far(folder), folder=name)

    # Only kernels of this backend run: without the wheels their libraries are not found.
    def sanitizer(self, part):
        tool = shutil.which("compute-sanitizer") or shutil.which("compute-sanitizer",
                                                                 path=TOOLKIT_PROGRAMS)
        if tool is None:
            part.finish(SKIPPED, "there is no compute-sanitizer, on the path or in the toolkit")
            return
        # Failed calls of CUDA are not reported: cases want some to fail, and judge what follows.
        watch = [tool, "--tool", "memcheck", "--error-exitcode", "86", "--target-processes", "all",
                 "--report-api-errors", "no", self.program("bp-conformance")]
        # A machine may forbid what the tool needs (a container without ptrace, a GPU shared by
        # MIG): then even a program that only opens the device ends without a summary.
        _, output = self.runner.run("sanitizer_info", [*watch, "info", self.plugin("cuda")],
                                    part.limit, self.environment())
        if SANITIZER_SUMMARY not in output:
            part.finish(SKIPPED, "compute-sanitizer does not work on this machine: over "
                                 f"bp-conformance info it says '{last_line(output)}'")
            return
        command = [*watch, "run", self.plugin("cuda"), "--tier", "smoke",
                   "--filter", SANITIZED, "--isolate", "none", "--timeout", "120",
                   "--quiet", "--color", "never", "--out", self.runner.logs / "sanitizer"]
        code, output = self.runner.run("sanitizer", command, part.limit, self.environment())
        errors = [line for line in output.splitlines() if SANITIZER_SUMMARY in line]
        if code == 86 or any("SUMMARY: 0 errors" not in line for line in errors):
            part.finish(FAILED, last_line("\n".join(errors) or output))
        elif code is None:
            part.finish(FAILED, f"no end within {part.limit:.0f} s")
        elif not errors:
            part.finish(FAILED, f"compute-sanitizer gave no summary: {last_line(output)}")
        else:
            counts = [line for line in output.splitlines() if line.endswith("skipped")]
            outcome(part, code, f"{(counts or ['no counts'])[-1]}; 0 errors of memcheck")

    def bench(self, part):
        if not self.program("device_worker").exists():
            part.finish(SKIPPED, "the tree has no device_worker")
            return
        figures = self.runner.logs / "bench.json"
        command = [self.options.python, BENCH / "compare.py", "--worker",
                   self.program("device_worker"), "--plugin", self.plugin("cuda"), "--device",
                   "cuda:0", "--seconds", int(min(part.limit, self.runner.left())), "--json",
                   figures]
        for option in self.python_option():
            command += ["--option", option]
        code, output = self.runner.run("bench", command, part.limit + 10, self.environment())
        document = json.loads(figures.read_text(encoding="utf-8")) if figures.exists() else {}
        outcome(part, code, output, rows=document.get("rows", []),
                peer=document.get("peer", "none"))
        if part.status == PASSED and document.get("peer", "none").startswith("none"):
            part.text += "; PyTorch is missing"
        for library in ("cuBLASLt", "cuDNN"):
            if f"{library} is missing: " in output:
                part.text += f"; {library} is missing, see bench.log"


def plan(check):
    """Returns (part, what it does), of those that --only names. The most valuable parts come first,
    because the limits together exceed the budget, which then cuts the last parts. Every part needs
    the build, which is in all plans."""
    every = all_parts(check)
    only = check.options.only
    return every if only is None else tuple(
        (part, body) for part, body in every if part.name in ("build", *only))


def all_parts(check):
    loaded = ("build", "info")
    return (
        (Part("build", 260, 30), check.build),
        (Part("info", 30, 5, ("build",)), check.info),
        (Part("cuda smoke", 120, 20, loaded), lambda p: check.conformance(p, "cuda", "smoke")),
        (Part("bench", 120, 30, loaded), check.bench),
        (Part("vulkan smoke", 240, 20, ("build",)),
         lambda p: check.conformance(p, "vulkan", "smoke")),
        (Part("cuda tf32", 40, 15, loaded),
         lambda p: check.conformance(p, "cuda", "smoke", "--option", "tf32=yes", "--filter", TF32)),
        (Part("cuda cudnn", 60, 15, loaded),
         lambda p: check.conformance(p, "cuda", "quick", "--option", "attention=cudnn",
                                     "--filter", ATTENTION)),
        (Part("sanitizer", 90, 30, loaded), check.sanitizer),
        (Part("cuda quick", 300, 30, loaded), lambda p: check.conformance(p, "cuda", "quick")),
    )


def run_parts(parts, runner, say, done):
    """Runs one part after the other, and calls done(parts so far) after each. A part is skipped,
    with the reason, if a part that it needs failed or if the budget has no time for it. Returns the
    parts."""
    finished = []
    for part, body in parts:
        broken = [p.name for p in finished if p.name in part.needs and p.status == FAILED]
        if broken:
            part.finish(SKIPPED, f"behind {broken[0]}, which failed")
        elif runner.left() < part.least:
            part.finish(SKIPPED, f"{runner.left():.0f} s are left of the budget, and it needs "
                                 f"{part.least} s")
        else:
            part.limit = min(part.limit, runner.left())
            begin = time.monotonic()
            try:
                body(part)
            except (OSError, ValueError, KeyError) as error:  # The other parts still count.
                part.finish(FAILED, f"gpu-check itself failed: {type(error).__name__}: {error}")
            part.seconds = time.monotonic() - begin
        finished.append(part)
        say(f"{part.name}: {part.status}: {part.text}")
        done(finished)
    return finished


def table(parts):
    lines = [f"{'part':14} {'result':8} {'seconds':>7}  what"]
    lines += [f"{p.name:14} {p.status:8} {p.seconds:7.1f}  {p.text}" for p in parts]
    for part in parts:
        for row in part.details.get("rows", []):
            if "failed" in row:
                lines.append(f"  {row['case']:44} failed: {row['failed']}")
                continue
            ratio = "-" if row["ratio"] is None else f"{row['ratio']:.2f}"
            lines.append(f"  {row['case']:44} {row['seconds']['Backplane'] * 1e6:12.1f} us  "
                         f"PyTorch/Backplane {ratio:>6}  {row['missing']}".rstrip())
    return lines


def write_results(folder, report, parts):
    report = report | {"parts": [
        {"name": p.name, "status": p.status, "seconds": round(p.seconds, 2), "what": p.text}
        | p.details for p in parts]}
    path = folder / "gpu-check.json"
    unfinished = folder / "gpu-check.json.new"
    unfinished.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    return unfinished.replace(path)


def parse(arguments, manual):
    parser = argparse.ArgumentParser(
        prog="gpu-check", description=manual,
        formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--prebuilt", type=pathlib.Path, metavar="DIR",
                        help="a tree built elsewhere: bin/ and lib/, as --needs says")
    parser.add_argument("--results", type=pathlib.Path, metavar="DIR",
                        help="write JSON and logs here; default: bp-results/gpu-check")
    parser.add_argument("--needs", action="store_true",
                        help="list what has to be on the machine, or brought along; then end")
    parser.add_argument("--only", metavar="PARTS",
                        help="run these parts alone, split by commas, as in 'cuda quick,bench'")
    parser.add_argument("--budget", type=float, default=540, metavar="SECONDS",
                        help="for all of it; default: 540")
    parser.add_argument("--python", default="python3", metavar="PROGRAM",
                        help="the Python that has PyTorch; default: python3")
    options = parser.parse_args(arguments)
    options.command = ["gpu-check", *arguments]
    if options.only is not None:
        options.only = [name.strip() for name in options.only.split(",")]
        names = [part.name for part, _ in all_parts(Check(options, None))]
        unknown = [name for name in options.only if name not in names]
        if unknown:
            parser.error(f"--only: no part is called '{unknown[0]}'; the parts are "
                         f"{', '.join(names)}")
    if options.budget <= 0:
        parser.error("--budget takes seconds above 0")
    if options.prebuilt is not None:
        options.prebuilt = options.prebuilt.resolve()
        if not options.prebuilt.is_dir():
            parser.error(f"--prebuilt: {options.prebuilt} is not a folder")
    options.results = (options.results or ROOT / "bp-results/gpu-check").resolve()
    return options


def main(arguments, manual, say=print):
    options = parse(arguments, manual)
    if options.needs:
        say(NEEDS)
        return 0
    options.results.mkdir(parents=True, exist_ok=True)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    begin = time.monotonic()
    runner = Runner(options.budget, options.results)
    check = Check(options, runner)
    machine = Part("machine", 60, 1)
    reason = check.machine(machine)
    if reason:
        say(f"gpu-check: nothing ran: {reason}")
        machine.finish(FAILED, reason)
        write_results(options.results, check.report, [machine])
        return NO_GPU
    machine.seconds = time.monotonic() - begin
    say(f"machine: {machine.text}")

    def done(finished):  # A check that is cut off leaves what it found.
        write_results(options.results, check.report, [machine, *finished])

    done([])
    parts = [machine, *run_parts(plan(check), runner, say, done)]
    for line in ["", *table(parts)]:
        say(line)
    say(f"results: {write_results(options.results, check.report, parts)}")
    counts = {status: sum(p.status == status for p in parts)
              for status in (PASSED, FAILED, SKIPPED)}
    say(f"{counts[PASSED]} passed, {counts[FAILED]} failed, {counts[SKIPPED]} skipped, "
        f"{time.monotonic() - begin:.0f} s")
    return 1 if counts[FAILED] else 0
