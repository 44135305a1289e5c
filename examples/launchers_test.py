#!/usr/bin/env python3
"""Runs 11_train_gpt_distributed with two bp-launch that stand for two machines, with two ranks
each. One of them is killed with its ranks, and the other goes on with the latest checkpoint. A
third one comes, and the run has four ranks again. The losses are those of 04_train_gpt on one
device."""
import pathlib
import signal
import socket
import subprocess
import sys
import tempfile
import time

LAUNCH, DISTRIBUTED, ALONE = sys.argv[1:]
MODEL = ("--layers 2 --width 32 --heads 2 --context 32 --batch 8 --warmup 5 --lr 0.005 "
         "--eval-batches 2").split()
STEPS, LIMIT_S = 150, 240


def losses(path):
    """Returns the losses by step. Steps behind the latest checkpoint are done again."""
    lines = path.read_text(encoding="utf-8").splitlines()[1:]
    return {int(line.split(",")[0]): float(line.split(",")[1]) for line in lines}


def wait_until(holds, what, text_of):
    end = time.monotonic() + LIMIT_S
    while not holds():
        assert time.monotonic() < end, f"{what} did not come: {text_of()}"
        time.sleep(0.01)


class Launcher:
    """One bp-launch. Its output goes to a file."""

    def __init__(self, scratch, name, port, program):
        self.output = scratch / f"{name}.txt"
        command = [LAUNCH, "-n", "2", "--nnodes", "1:2", "--max-restarts", "3", "--rdzv-endpoint",
                   f"127.0.0.1:{port}", "--rdzv-heartbeat", "2", *program]
        with open(self.output, "w", encoding="utf-8") as file:
            self.job = subprocess.Popen(command, stdout=file, stderr=subprocess.STDOUT)

    def text(self):
        return self.output.read_text(encoding="utf-8")

    def wait_for(self, part):
        wait_until(lambda: part in self.text() or self.job.poll() is not None, part, self.text)
        assert part in self.text(), self.text()


def train(scratch, port):
    """Returns the losses of a run that goes from 4 ranks to 2 and back."""
    log, folder = scratch / "log.csv", scratch / "saves"
    program = [DISTRIBUTED, *MODEL, "--steps", str(STEPS), "--strategy", "fsdp", "--checkpoint",
               f"{folder}/", "--save-every", "5", "--log", str(log)]
    first = Launcher(scratch, "first", port, program)
    launchers = [first]
    try:
        wait_until(lambda: is_served(port), "the store", first.text)
        second = Launcher(scratch, "second", port, program)
        launchers.append(second)
        first.wait_for("start 1: 4 ranks of 2 launchers")
        wait_for_steps(folder, 5, first)
        second.job.send_signal(signal.SIGKILL)
        second.job.wait()
        first.wait_for("start 2: 2 ranks of 1 launcher")
        wait_for_steps(folder, latest(folder) + 10, first)
        third = Launcher(scratch, "third", port, program)
        launchers.append(third)
        first.wait_for("start 3: 4 ranks of 2 launchers")
        for launcher in (first, third):
            assert launcher.job.wait(timeout=LIMIT_S) == 0, launcher.text()
    finally:
        for launcher in launchers:
            if launcher.job.poll() is None:
                launcher.job.kill()
    text = first.text()
    assert "continues behind step" in text, text
    assert "launcher 2 on 127.0.0.1 is lost: it has given no sign of life for 2 s" in text, text
    assert "all ranks end: launcher 3 on 127.0.0.1 has come" in text, text
    return losses(log)


def latest(folder):
    return max((int(path.name.removeprefix("step_")) for path in folder.glob("step_*")
                if (path / "index.json").exists()), default=0)


def wait_for_steps(folder, step, launcher):
    def holds():
        assert launcher.job.poll() is None, launcher.text()
        return latest(folder) >= step
    wait_until(holds, f"step {step}", launcher.text)


def is_served(port):
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def main():
    with tempfile.TemporaryDirectory() as name, socket.socket() as reserved:
        scratch = pathlib.Path(name)
        alone = scratch / "alone.csv"
        subprocess.run([ALONE, *MODEL, "--steps", str(STEPS), "--sample", "0", "--log", str(alone)],
                       check=True, capture_output=True, timeout=LIMIT_S)
        # A bound port is given to nobody else, and the first launcher can still listen there.
        reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        reserved.bind(("127.0.0.1", 0))
        ours, theirs = train(scratch, reserved.getsockname()[1]), losses(alone)
        assert sorted(ours) == sorted(theirs) == list(range(1, STEPS + 1)), len(ours)
        worst = max(abs(ours[step] - theirs[step]) / theirs[step] for step in theirs)
        assert worst < 2e-5, f"the losses differ by {worst:.2e}"
        print(f"4 ranks, 2 that were left, 4 again: at most {worst:.1e} apart in {STEPS} steps")


main()
