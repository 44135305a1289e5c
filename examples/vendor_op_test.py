#!/usr/bin/env python3
"""Tests 05_vendor_op: its ops run on the vendor's chip by kernels and elsewhere as other ops, the
suite accepts the plugin, and a recording of the calls is replayed on both.

Mistakes in the chip's kernels are found by the cases for described ops.

  vendor_op_test.py VENDOR_OP BP_CONFORMANCE CHIP OTHER CC INCLUDE
"""
import json
import os
import pathlib
import subprocess
import sys
import tempfile

PROGRAM, CONFORMANCE, CHIP, OTHER, CC, INCLUDE = sys.argv[1:7]
FOLDER = pathlib.Path(__file__).resolve().parent
CASES = "described_op.*"
DECOMPOSITION = "described_op.kernels_give_the_results_of_the_decomposition"
PROGRAMS = "described_op.programs_hold_described_ops"
LAYOUTS = "described_op.kernels_take_every_layout_of_their_claims"
# Mistakes: (what kernels.c has, what the mutant has, the case that fails, a word of its message).
MUTANTS = [
    ("0, 255)", "0, 254)", DECOMPOSITION, "254.0"),
    ("exp(-left)", "exp(left)", DECOMPOSITION, "acme.swiglu_linear: y"),
    ("BP_LAYOUT_CONTIGUOUS", "BP_LAYOUT_ANY", LAYOUTS, "a call of contiguous tensors"),
    ("i < count; ++i) {", "i < count + 1; ++i) {", LAYOUTS, "changed bytes of y"),
    ("if (f->a->dtype == BP_U8) {", "y[count - 1 - i] = 0;\n    if (f->a->dtype == BP_U8) {",
     "described_op.kernels_write_into_inputs_where_they_may", "memory of its own"),
    ("double sum = 0;", "static double drift = 0;\n  double sum = drift++;",
     "described_op.deterministic_kernels_repeat_their_bits", "equal bits"),
    ("!known_flags(launch->flags)", "launch == NULL",
     "described_op.unknown_launch_flags_are_refused", "unknown flag"),
]
OPS = ("acme.saturating_add", "acme.swiglu_linear")


def run(*words, code=0, **variables):
    done = subprocess.run(words, capture_output=True, text=True, check=False,
                          env={**os.environ, **variables})
    assert done.returncode == code, f"{words}: exit {done.returncode}\n{done.stdout}{done.stderr}"
    return done.stdout


def results(*words, folder, code=0):
    """Returns {case: status} of a run of the suite or of a replay."""
    run(CONFORMANCE, *words, "--out", str(folder), "-q", code=code)
    lines = [json.loads(line) for line in (folder / "results.jsonl").read_text().splitlines()]
    return {line["case"]: line for line in lines}


def call_ops(folder):
    text = run(PROGRAM, CHIP, OTHER, BACKPLANE_LAYERS="record,trace",
               BACKPLANE_LAYER_OPTIONS=f"record.dir={folder}/recording.%b,record.outputs=1,"
                                       f"trace.file={folder}/trace.%b.json")
    for op in OPS:
        lines = [line for line in text.splitlines() if f": {op}:" in line]
        assert len(lines) >= 2, text
        assert lines[0].startswith("acme.chip:0:") and "(1 native, 0 decomposed" in lines[0], text
        for line in lines[1:]:
            assert "(0 native, 1 decomposed, 0 on the host)" in line, text
    trace = (folder / "trace.acme.chip.json").read_text(encoding="utf-8")
    for op in OPS:
        assert op in trace, f"{op} is not in the trace"


def replay(folder):
    recording = folder / "recording.acme.chip"
    calls = [json.loads(line) for line in (recording / "stream.jsonl").read_text().splitlines()]
    described = [line["op"] for line in calls if line.get("call") == "op.describe"]
    assert described == list(OPS), described
    finals = results("replay", CHIP, str(recording), folder=folder / "on_chip")
    assert len(finals) == 5 and {line["status"] for line in finals.values()} == {"Pass"}, finals
    # Other devices run the decompositions, which the recording holds: no plugin of the vendor is
    # loaded. Integers are the same everywhere. Floats may differ by half of their bits.
    finals = results("replay", OTHER, str(recording), folder=folder / "on_other")
    for case, line in finals.items():
        is_launch = case.startswith("replay.launch")
        assert line["status"] == ("Fallback" if is_launch else "Pass"), line
        assert not is_launch or "decomposed" in line["message"], line
    finals = results("replay", OTHER, str(recording), "--seed-weights", folder=folder / "seeded")
    for number, op in enumerate(OPS, 1):
        line = finals[f"replay.launch.{number:05}.{op}"]
        assert line["details"]["kernel"] == "decomposition", line


def replay_wrong_results(folder):
    """A result that differs by more than rounding is found."""
    plugin = build(folder, (FOLDER / "05_vendor_op" / "kernels.c").read_text(
        encoding="utf-8").replace("exp(-left)", "exp(-1.01 * left)"))
    finals = results("replay", plugin, str(folder / "recording.acme.chip"), code=1,
                     folder=folder / "wrong")
    line = finals["replay.launch.00002.acme.swiglu_linear"]
    assert line["status"] == "Fail" and "elements differ" in line["message"], line


def replay_without_a_decomposition(folder):
    """A recording whose op has no decomposition names the op that is missing elsewhere."""
    recording = folder / "recording.acme.chip"
    stream = recording / "stream.jsonl"
    lines = [json.loads(line) for line in stream.read_text().splitlines()]
    for line in lines:
        line.get("description", {}).pop("decomposition", None)
    stream.write_text("".join(json.dumps(line) + "\n" for line in lines))
    finals = results("replay", OTHER, str(recording), folder=folder / "missing", code=1)
    text = json.dumps(list(finals.values()))
    assert "launch 1 (acme.saturating_add): nothing on" in text, text
    described = [line for line in lines if line.get("call") != "op.describe"]
    stream.write_text("".join(json.dumps(line) + "\n" for line in described))
    done = subprocess.run([CONFORMANCE, "replay", OTHER, str(recording)], capture_output=True,
                          text=True, check=False)
    assert done.returncode == 2 and "launches 'acme.saturating_add', which is no op" in \
        done.stderr + done.stdout, done


def build(folder, kernels):
    """Builds the chip with this kernels.c."""
    (folder / "kernels.c").write_text(kernels, encoding="utf-8")
    chip, npu = FOLDER / "05_vendor_op", FOLDER / "02_vendor_backend"
    plugin = folder / "mutant.so"
    run(CC, "-shared", "-fPIC", f"-I{INCLUDE}", f"-I{npu}", f"-I{chip}", "-o", str(plugin),
        str(folder / "kernels.c"), str(chip / "backend.c"), str(chip / "ops.c"),
        *(str(npu / name) for name in ("device.c", "memory.c", "stream.c", "kernels/softmax.c")),
        "-lm")
    return str(plugin)


def suite(folder):
    finals = results("run", CHIP, "-k", CASES, folder=folder / "suite")
    assert finals.pop(PROGRAMS)["message"] == "the device has no compiler", finals
    assert len(finals) == 6 and {line["status"] for line in finals.values()} == {"Pass"}, finals
    whole = (FOLDER / "05_vendor_op" / "kernels.c").read_text(encoding="utf-8")
    for number, (before, after, case, word) in enumerate(MUTANTS):
        assert before in whole, f"kernels.c has no '{before}' any more"
        plugin = build(folder, whole.replace(before, after))
        finals = results("run", plugin, "-k", CASES, "--retries", "0", code=1,
                         folder=folder / f"mutant{number}")
        assert finals[case]["status"] == "Fail" and word in finals[case]["message"], finals


def main():
    with tempfile.TemporaryDirectory() as scratch:
        folder = pathlib.Path(scratch)
        call_ops(folder)
        suite(folder)
        replay(folder)
        replay_wrong_results(folder)
        replay_without_a_decomposition(folder)


main()
