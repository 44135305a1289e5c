#!/usr/bin/env python3
"""Runs 11_train_gpt_distributed as a user would, with bp-launch and several ranks. Checks that
the losses are those of 04_train_gpt on one device, that a run goes on with another number of ranks,
also after a rank was killed, that bp-launch starts it again, and what wrong calls say.

  distributed_test.py BP_LAUNCH DISTRIBUTED ALONE
  distributed_test.py MPIRUN DISTRIBUTED ALONE --group mpi      # The groups over MPI alone.
  distributed_test.py BP_LAUNCH DISTRIBUTED ALONE --device sim  # The groups of cpu carry its calls.
"""
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time

LAUNCH, DISTRIBUTED, ALONE = sys.argv[1:4]
IS_MPI = sys.argv[4:] == ["--group", "mpi"]
IS_STAGED = sys.argv[4:] == ["--device", "sim"]
TINY = ("--layers 2 --width 32 --heads 2 --context 32 --batch 8 --steps 30 --warmup 5 --lr 0.005 "
        "--eval-batches 2").split()


def run(*command, expect=0):
    result = subprocess.run(command, capture_output=True, text=True, check=False, timeout=240)
    if (result.returncode == 0) != (expect == 0):
        sys.exit(f"{command}: exit {result.returncode}\n{result.stdout}{result.stderr}")
    return result.stdout + result.stderr


def ranks(count, *arguments, expect=0):
    return run(LAUNCH, "-n", str(count), DISTRIBUTED, *TINY, *arguments, expect=expect)


def losses(path):
    lines = path.read_text(encoding="utf-8").splitlines()[1:]
    rows = [line.split(",") for line in lines]
    assert [int(row[0]) for row in rows] == list(range(1, len(rows) + 1)), lines
    return [float(row[1]) for row in rows]


def expect_same(ours, theirs, what):
    assert len(ours) == len(theirs), (what, len(ours), len(theirs))
    worst = max(abs(a - b) / b for a, b in zip(ours, theirs))
    assert worst < 2e-5, f"{what}: the losses differ by {worst:.2e}"
    print(f"{what}: at most {worst:.1e} apart in {len(ours)} steps")


def run_pipelines(scratch, curve):
    """Runs schedules of pp with four blocks, and 3d with eight ranks."""
    deep, log = scratch / "deep.csv", scratch / "pipeline.csv"
    few = ("--stop", "6", "--log")
    run(ALONE, *TINY, "--layers", "4", "--sample", "0", *few, str(deep))
    for name, count, more in (("gpipe", 2, ("--micro-batches", "4")), ("1f1b", 4, ()),
                              ("interleaved", 2, ("--micro-batches", "4")),
                              ("zb", 2, ("--micro-batches", "8"))):
        ranks(count, "--strategy", "pp", "--schedule", name, "--layers", "4", *more, *few, str(log))
        expect_same(losses(log), losses(deep), f"pp, {name}, {count} ranks")
    text = ranks(8, "--strategy", "3d", *few, str(log))
    assert "8 ranks of" in text, text
    expect_same(losses(log), curve[:6], "3d, 8 ranks")
    for count, more in ((8, ("--shard-stage", "1")), (8, ("--shard-stage", "3")),
                        (4, ("--shard-stage", "2", "--tensor-ranks", "1")),
                        (4, ("--shard-stage", "1", "--tensor-ranks", "1", "--schedule", "zb"))):
        ranks(count, "--strategy", "3d", *more, *few, str(log))
        expect_same(losses(log), curve[:6], f"3d, {count} ranks, {' '.join(more)}")


def run_sharded_pipelines(scratch, curve):
    """Saves a 3d that is sharded, as a folder and as a file, and goes on in other layouts."""
    for checkpoint in (f"{scratch / 'both'}/", scratch / "both.safetensors"):
        log = scratch / "both.csv"
        saved = ("--checkpoint", str(checkpoint), "--log", str(log))
        flat = ("--strategy", "3d", "--tensor-ranks", "1")
        ranks(4, *saved, "--stop", "3", *flat, "--shard-stage", "3")
        ranks(4, *saved, "--stop", "5", *flat, "--shard-stage", "1", "--resume")
        ranks(8, *saved, "--stop", "7", "--strategy", "3d", "--shard-stage", "2", "--resume")
        ranks(2, *saved, "--stop", "8", "--strategy", "fsdp", "--resume")
        ranks(8, *saved, "--stop", "10", "--strategy", "3d", "--shard-stage", "3", "--resume")
        expect_same(losses(log), curve[:10], f"3d of several stages, fsdp: {checkpoint}")
    clipped, log = scratch / "clipped3.csv", scratch / "clipped3d.csv"
    few = ("--clip", "0.5", "--stop", "4", "--log")
    run(ALONE, *TINY, "--sample", "0", *few, str(clipped))
    ranks(8, "--strategy", "3d", "--shard-stage", "3", *few, str(log))
    expect_same(losses(log), losses(clipped), "3d, sharded and clipped")


def refuse_pipelines():
    text = ranks(4, "--strategy", "pp", expect=1)
    assert "--layers is 2, for 4 stages; allowed: at least one block for each stage" in text, text
    text = ranks(2, "--strategy", "pp", "--micro-batches", "3", expect=1)
    assert "--micro-batches is 3, for batches of 8; allowed: divisors of this number" in text, text
    text = ranks(2, "--strategy", "pp", "--schedule", "none", expect=1)
    assert "the name is 'none'; allowed: gpipe, 1f1b, interleaved, zb" in text, text
    text = ranks(2, "--schedule", "zb", expect=1)
    assert "--schedule and --micro-batches are for --strategy pp and 3d" in text, text
    sharded = ("--strategy", "3d", "--tensor-ranks", "1", "--shard-stage", "3", "--schedule")
    text = ranks(4, *sharded, "zb", expect=1)
    assert "--shard-stage 3 has given them back; allowed: --shard-stage 1 and 2" in text, text
    text = ranks(4, *sharded, "interleaved", "--micro-batches", "4", expect=1)
    assert "--shard-stage shards one; allowed: gpipe, 1f1b, zb" in text, text
    text = ranks(2, "--strategy", "3d", expect=1)
    assert "for 2 ranks; allowed: a product that divides their number" in text, text


def run_tied(scratch, curve):
    """The head has the weight of the embedding, in each strategy and from one to the next."""
    alone, log = scratch / "tied_alone.csv", scratch / "tied.csv"
    common = ("--tie-weights", "--clip", "0.5", "--layers", "4")
    run(ALONE, *TINY, *common, "--sample", "0", "--stop", "22", "--log", str(alone))
    tied = losses(alone)
    assert abs(tied[0] - curve[0]) > 1e-3, "the weights are not tied"
    for checkpoint in (f"{scratch / 'tied'}/", str(scratch / "tied.safetensors")):
        end, saved = 0, (*common, "--checkpoint", checkpoint, "--log", str(log))
        for name, count, more in (("ddp", 2, ()), ("fsdp", 2, ()), ("tp", 2, ()), ("2d", 4, ()),
                                  ("pp", 2, ()), ("cp", 2, ()), ("3d", 8, ()),
                                  ("pp", 2, ("--schedule", "interleaved")),
                                  ("3d", 4, ("--tensor-ranks", "1", "--schedule", "zb")),
                                  ("fsdp", 2, ("--shard-stage", "1")), ("pp", 4, ())):
            end += 2
            more = (*more, "--resume") if end > 2 else more
            ranks(count, *saved, "--strategy", name, *more, "--stop", str(end))
        expect_same(losses(log), tied, f"tied weights in all strategies, {checkpoint}")
    ranks(2, *common, "--strategy", "ps", "--stop", "4", "--log", str(log))
    expect_same(losses(log), tied[:4], "tied weights, ps with one worker")
    experts, few = scratch / "tied_experts.csv", ("--strategy", "ep", "--stop", "4", "--log")
    ranks(1, *common, *few, str(experts))
    ranks(2, *common, *few, str(log))
    expect_same(losses(log), losses(experts), "tied weights, ep with 2 ranks")
    text = ranks(2, "--layers", "4", "--clip", "0.5", "--checkpoint", checkpoint, "--resume",
                 expect=1)
    assert "head.weight' is missing" in text, text
    sharded = ("--strategy", "3d", "--tensor-ranks", "1", "--shard-stage", "1", "--tie-weights")
    text = ranks(4, *sharded, expect=1)
    assert "--shard-stage shards it on each; allowed: 3d without --shard-stage" in text, text


def run_contexts(scratch, curve):
    """Goes from fsdp to both kinds of cp."""
    saved = ("--checkpoint", str(scratch / "context") + "/", "--log", str(scratch / "context.csv"))
    ranks(2, *saved, "--stop", "2", "--strategy", "fsdp")
    ranks(4, *saved, "--stop", "6", "--strategy", "cp", "--resume")
    ranks(2, *saved, "--stop", "10", "--strategy", "cp", "--context-kind", "all-to-all", "--resume")
    expect_same(losses(scratch / "context.csv"), curve[:10], "fsdp, cp by ring, cp by all-to-all")


def refuse_contexts():
    text = ranks(2, "--strategy", "cp", "--context-kind", "none", expect=1)
    assert "--context-kind is 'none'; allowed: ring, all-to-all" in text, text
    text = ranks(2, "--context-kind", "ring", expect=1)
    assert "--context-kind is for --strategy cp" in text, text
    text = ranks(2, "--strategy", "cp", "--context", "30", expect=1)
    assert "--context is 30, for 2 ranks; allowed: multiples of 4" in text, text
    text = ranks(4, "--strategy", "cp", "--context-kind", "all-to-all", expect=1)
    assert "the heads are 2; allowed: multiples of the number of ranks, which is 4" in text, text


def run_mixtures(scratch):
    """Compares ep with one rank, and goes on with other numbers of ranks."""
    alone, log, saves = scratch / "mixture.csv", scratch / "experts.csv", scratch / "experts"
    common = ("--strategy", "ep", "--experts", "4", "--clip", "0.5")
    ranks(1, *common, "--stop", "6", "--log", str(alone))
    for checkpoint, counts in ((f"{saves}/", (4, 2)), (f"{saves}.safetensors", (2, 1))):
        saved = (*common, "--checkpoint", checkpoint, "--log", str(log))
        ranks(counts[0], *saved, "--stop", "3", "--expert-exchange", "packed")
        ranks(counts[1], *saved, "--stop", "6", "--resume")
        expect_same(losses(log), losses(alone), f"ep with {counts[0]} ranks, then {counts[1]}")
    text = ranks(1, *saved, "--top-k-experts", "1", "--resume", expect=1)
    assert "model is '4 experts, of which each token chooses 2', and here" in text, text


def refuse_mixtures():
    text = ranks(2, "--strategy", "ep", "--experts", "3", expect=1)
    assert "--experts is 3, for 2 ranks; allowed: multiples of their number" in text, text
    text = ranks(2, "--strategy", "ep", "--top-k-experts", "9", expect=1)
    assert "--top-k-experts is 9; allowed: 1 to 8, the number of experts" in text, text
    text = ranks(2, "--strategy", "ep", "--expert-exchange", "some", expect=1)
    assert "--expert-exchange is 'some'; allowed: padded, packed" in text, text
    text = ranks(2, "--experts", "4", expect=1)
    assert "--experts, --top-k-experts and --expert-exchange are for --strategy ep" in text, text


def run_servers(scratch, curve):
    """One worker of ps has the losses of one device. Several servers save for other strategies."""
    log = scratch / "served.csv"
    saved = ("--checkpoint", str(scratch / "served") + "/", "--log", str(log))
    served = ("--strategy", "ps")
    ranks(3, *saved, *served, "--servers", "2", "--stop", "4", "--save-every", "3")
    assert losses(log) == curve[:4], (losses(log), curve[:4])
    ranks(2, *saved, "--stop", "6", "--resume")
    ranks(2, *saved, *served, "--stop", "8", "--resume")
    expect_same(losses(log), curve[:8], "ps with 2 servers, ddp, ps")
    text = ranks(3, *served, "--staleness", "2", "--log", str(log))
    assert "3 ranks of" in text and "joined by gloo" in text, text
    assert len(losses(log)) == 30 and losses(log)[-1] < 0.9 * losses(log)[0], losses(log)


def refuse_servers(scratch):
    text = ranks(2, "--strategy", "ps", "--servers", "2", expect=1)
    assert "--servers is 2, of 2 ranks; allowed: fewer, since the others work" in text, text
    text = ranks(2, "--strategy", "ps", "--staleness", "some", expect=1)
    assert "--staleness is 'some'; allowed: 0 to 999999" in text, text
    text = ranks(2, "--strategy", "ps", "--checkpoint", str(scratch / "one.file"), expect=1)
    assert "has no rank with the whole state; allowed: --checkpoint FOLDER/" in text, text
    text = ranks(2, "--servers", "1", expect=1)
    assert "--servers and --staleness are for --strategy ps" in text, text


def rank_of_job(job, rank):
    """Returns the process of a rank of a launcher, or None if it has not started."""
    children = subprocess.run(["pgrep", "-P", str(job.pid)], capture_output=True, text=True,
                              check=False).stdout.split()
    for child in children:
        try:
            environment = pathlib.Path(f"/proc/{child}/environ").read_bytes()
        except FileNotFoundError:  # It has ended meanwhile.
            continue
        if f"\0RANK={rank}\0".encode() in environment:
            return int(child)
    return None


def run_and_kill_a_rank(launch, *arguments, log):
    """Kills rank 1 in the middle. Returns the exit code of the launcher and all output."""
    command = [LAUNCH, *launch, DISTRIBUTED, *TINY, "--save-every", "3", "--log", str(log),
               *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                          start_new_session=True) as job:
        try:
            end = time.monotonic() + 120
            second = None  # It is found early, because the steps are short.
            while second is None or not log.exists() or log.read_bytes().count(b"\n") < 6:
                assert job.poll() is None and time.monotonic() < end, job.stdout.read()
                second = second or rank_of_job(job, 1)
                time.sleep(0.002)
            os.kill(second, signal.SIGKILL)
            text = job.communicate(timeout=120)[0]
        finally:
            if job.poll() is None:
                os.killpg(job.pid, signal.SIGKILL)
    assert "rank 1 was ended by signal 9" in text, text
    return job.returncode, text


def check_loss_of_a_rank(scratch, curve):
    """The launcher ends the other ranks, and says which rank failed."""
    killed, log = scratch / "killed.safetensors", scratch / "killed.csv"
    code, text = run_and_kill_a_rank(["-n", "2"], "--checkpoint", str(killed), log=log)
    assert code == 128 + signal.SIGKILL, text
    ranks(2, "--checkpoint", str(killed), "--log", str(log), "--resume")
    expect_same(losses(log), curve, "after a rank was killed")


def check_folders(scratch, curve):
    """Each rank writes its part, and other numbers of ranks go on in other ways."""
    folder, log = scratch / "folder", scratch / "folder.csv"
    saved = ("--checkpoint", f"{folder}/", "--log", str(log))
    ranks(4, *saved, "--stop", "5", "--strategy", "fsdp")
    assert len(list((folder / "step_5").glob("rank_*.safetensors"))) == 4
    ranks(2, *saved, "--stop", "12", "--resume", "--async-save", "--save-every", "1")
    ranks(4, *saved, "--stop", "19", "--strategy", "2d", "--resume")
    ranks(2, *saved, "--stop", "21", "--strategy", "pp", "--resume")
    ranks(4, *saved, "--stop", "23", "--strategy", "3d", "--resume")
    ranks(2, *saved, "--stop", "25", "--strategy", "tp", "--resume")
    text = ranks(2, *saved, "--strategy", "fsdp", "--shard-stage", "2", "--resume")
    assert "continues behind step 25" in text, text
    expect_same(losses(log), curve, "folders: fsdp with 4 ranks, ddp with 2, 2d, pp, 3d, tp, fsdp")
    steps = sorted(path.name for path in folder.iterdir())
    assert steps == ["lock", "step_25", "step_30"], steps
    text = ranks(2, *saved, "--resume", "--seed", "2", expect=1)
    assert "step_30: seed is '1', and here '2'; allowed: the same run" in text, text
    (folder / "step_30" / "index.json").unlink()
    (folder / "step_25" / "index.json").write_text("{}")
    text = ranks(2, *saved, "--resume", expect=1)
    assert text.count("step_25/index.json: it is not the index of a checkpoint") == 2, text
    text = ranks(2, "--checkpoint", str(scratch / "none") + "/", "--resume", expect=1)
    assert text.count("none: the folder has no whole checkpoint") == 2, text


def check_restarts(scratch, curve):
    """bp-launch starts the ranks again, or those that are left, and the run goes on."""
    again, log = scratch / "again", scratch / "again.csv"
    code, text = run_and_kill_a_rank(["-n", "2", "--max-restarts", "1"], "--checkpoint",
                                     f"{again}/", "--strategy", "fsdp", log=log)
    assert code == 0 and "restart 1 of 1: starts 2 ranks again" in text, text
    assert "continues behind step" in text, text
    expect_same(losses(log), curve, "after a restart")
    batch = ("--batch", "12")
    alone = scratch / "alone12.csv"
    run(ALONE, *TINY, *batch, "--sample", "0", "--log", str(alone))
    log = scratch / "elastic.csv"
    code, text = run_and_kill_a_rank(["-n", "2:4"], *batch, "--checkpoint",
                                     str(scratch / "elastic") + "/", "--async-save", "--strategy",
                                     "fsdp", log=log)
    assert code == 0 and "restart 1 of 2: starts 3 ranks, where there were 4" in text, text
    assert "continues behind step" in text and "3 ranks of" in text, text
    expect_same(losses(log), losses(alone), "4 ranks, then the 3 that were left")


def run_over_mpi():
    """Trains in processes that mpirun has started. MPI alone knows of the others there."""
    # Open MPI refuses to run as root, and more processes than processors, and binds threads.
    os.environ |= {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
                   "OMPI_MCA_rmaps_base_oversubscribe": "1",
                   "OMPI_MCA_hwloc_base_binding_policy": "none",
                   "LSAN_OPTIONS": "detect_leaks=0"}  # MPI leaves memory behind at its end.
    with tempfile.TemporaryDirectory() as folder:
        scratch = pathlib.Path(folder)
        # One mpirun removes the folder of sessions that another of the same user makes.
        os.environ["TMPDIR"] = folder
        alone = scratch / "alone.csv"
        run(ALONE, *TINY, "--sample", "0", "--log", str(alone))
        for name, count in (("ddp", 2), ("fsdp", 2), ("2d", 4)):
            log = scratch / f"{name}.csv"
            text = ranks(count, "--group", "mpi", "--strategy", name, "--log", str(log))
            assert f"{count} ranks of" in text and "joined by mpi" in text, text
            expect_same(losses(log), losses(alone), f"{name} over MPI, {count} ranks")
        text = ranks(3, "--group", "mpi", expect=1)
        assert "--batch is 8, for 3 ranks; allowed: a multiple of their number" in text, text


def run_staged():
    """Trains on a device without groups between processes, so those of cpu carry its calls."""
    with tempfile.TemporaryDirectory() as folder:
        scratch = pathlib.Path(folder)
        alone, log = scratch / "alone.csv", scratch / "staged.csv"
        run(ALONE, *TINY, "--sample", "0", "--log", str(alone))
        text = ranks(2, "--device", "sim", "--transport", "cpu", "--log", str(log))
        assert "joined by staged" in text, text
        expect_same(losses(log), losses(alone), "2 ranks of sim over cpu")


def main():
    with tempfile.TemporaryDirectory() as folder:
        scratch = pathlib.Path(folder)
        alone = scratch / "alone.csv"
        run(ALONE, *TINY, "--sample", "0", "--log", str(alone))
        curve = losses(alone)
        for count in (2, 4):
            log = scratch / f"{count}.csv"
            text = ranks(count, "--log", str(log))
            assert f"{count} ranks of" in text and "joined by gloo" in text, text
            expect_same(losses(log), curve, f"{count} ranks")
        part, log = scratch / "part.safetensors", scratch / "part.csv"
        saved = ("--checkpoint", str(part), "--log", str(log))
        ranks(4, *saved, "--stop", "11")
        text = ranks(2, *saved, "--resume")
        assert "continues behind step 11" in text, text
        expect_same(losses(log), curve, "4 ranks, then 2")
        for count, stage in ((2, 1), (2, 2), (2, 3), (4, 3)):
            log = scratch / f"fsdp{count}{stage}.csv"
            ranks(count, "--strategy", "fsdp", "--shard-stage", str(stage), "--log", str(log))
            expect_same(losses(log), curve, f"fsdp, {count} ranks, stage {stage}")
        for name, count, more in (("tp", 2, ()), ("2d", 4, ()), ("2d", 4, ("--shard-stage", "1"))):
            log = scratch / f"{name}{count}{len(more)}.csv"
            ranks(count, "--strategy", name, *more, "--log", str(log))
            expect_same(losses(log), curve, f"{name} {' '.join(more)}, {count} ranks")
        run_pipelines(scratch, curve)
        run_sharded_pipelines(scratch, curve)
        run_tied(scratch, curve)
        run_contexts(scratch, curve)
        run_mixtures(scratch)
        run_servers(scratch, curve)
        refuse_servers(scratch)
        part, log = scratch / "sharded.safetensors", scratch / "sharded.csv"
        saved = ("--checkpoint", str(part), "--log", str(log))
        ranks(4, *saved, "--stop", "7", "--strategy", "fsdp")
        ranks(2, *saved, "--stop", "14", "--strategy", "fsdp", "--shard-stage", "2", "--resume")
        ranks(2, *saved, "--stop", "21", "--resume")
        ranks(4, *saved, "--stop", "25", "--strategy", "2d", "--resume")
        ranks(2, *saved, "--stop", "26", "--strategy", "pp", "--schedule", "zb", "--resume")
        ranks(4, *saved, "--stop", "27", "--strategy", "3d", "--resume")
        ranks(2, *saved, "--stop", "28", "--strategy", "tp", "--resume")
        text = ranks(2, *saved, "--strategy", "fsdp", "--resume")
        assert "continues behind step 28" in text, text
        expect_same(losses(log), curve, "fsdp with 4 and 2 ranks, ddp, 2d, pp, 3d, tp, fsdp")
        clipped, log = scratch / "clipped.csv", scratch / "clipped2.csv"
        run(ALONE, *TINY, "--sample", "0", "--clip", "0.5", "--log", str(clipped))
        for name, count in (("fsdp", 2), ("2d", 4), ("3d", 4)):
            ranks(count, "--clip", "0.5", "--strategy", name, "--log", str(log))
            expect_same(losses(log), losses(clipped), f"{name}, clipped")
        check_loss_of_a_rank(scratch, curve)
        check_folders(scratch, curve)
        check_restarts(scratch, curve)
    text = ranks(3, expect=1)
    assert "--batch is 8, for 3 ranks; allowed: a multiple of their number" in text, text
    text = ranks(2, "--strategy", "none", expect=1)
    assert "--strategy is 'none'; allowed: ddp, fsdp, tp, 2d, pp, 3d, cp, ep, ps" in text, text
    text = ranks(2, "--strategy", "fsdp", "--shard-stage", "4", expect=1)
    assert "--shard-stage is '4'; allowed: 1, 2, 3" in text, text
    text = ranks(2, "--shard-stage", "2", expect=1)
    assert "--shard-stage is for --strategy fsdp, 2d and 3d" in text, text
    text = ranks(4, "--strategy", "2d", "--tensor-ranks", "3", expect=1)
    assert "--tensor-ranks is '3', for 4 ranks; allowed: divisors of their number" in text, text
    refuse_pipelines()
    refuse_contexts()
    refuse_mixtures()
    text = ranks(2, "--capture", expect=1)
    assert "--capture and --explain are those of 04_train_gpt" in text, text
    text = ranks(2, "--sample", "9", expect=1)
    assert "--top-k are those of 04_train_gpt" in text, text
    text = ranks(2, "--keep", "3", expect=1)
    assert "--keep and --async-save need --checkpoint FOLDER/" in text, text
    text = ranks(2, "--group", "nccl", expect=1)
    assert "nccl" in text, text


if IS_MPI:
    run_over_mpi()
elif IS_STAGED:
    run_staged()
else:
    main()
