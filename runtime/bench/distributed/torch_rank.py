#!/usr/bin/env python3
"""One rank of PyTorch, which compare.py starts with bp-launch: torch.distributed reads the same
variables. It prints what distributed_rank prints, over PyTorch's own Gloo, or the seconds of a step
of training of the model of 04_train_gpt, with DistributedDataParallel or fully_shard().

usage: torch_rank.py allreduce BYTES... | torch_rank.py ddp|fsdp STEPS NAME=VALUE...
"""

import os
import pathlib
import statistics
import sys
import time
import types

import torch
import torch.distributed as dist

GROUP_SECONDS, GROUPS = 0.05, 7  # As in rank.cpp.
WARM_UP_CALLS, WARM_UP_ELEMENTS = 1000, 1 << 18
EXAMPLES = pathlib.Path(__file__).resolve().parents[3] / "examples"


def seconds_of(tensor, calls):
    dist.barrier()
    start = time.perf_counter()
    for _ in range(calls):
        dist.all_reduce(tensor)
    return (time.perf_counter() - start) / calls


def allreduce(sizes):
    seconds_of(torch.zeros(WARM_UP_ELEMENTS), WARM_UP_CALLS)
    for size in sizes:
        tensor = torch.zeros(max(1, size // 4))
        calls = torch.tensor([int(min(max(GROUP_SECONDS / seconds_of(tensor, 3), 2), 2000))])
        dist.broadcast(calls, 0)
        seconds = statistics.median(seconds_of(tensor, calls.item()) for _ in range(GROUPS))
        if dist.get_rank() == 0:
            print(size, f"{seconds:.9g}", flush=True)


def parallel(strategy, model):
    if strategy == "ddp":
        return torch.nn.parallel.DistributedDataParallel(model)
    from torch.distributed.fsdp import fully_shard  # pylint: disable=import-outside-toplevel
    mesh = dist.device_mesh.init_device_mesh("cpu", (dist.get_world_size(),))
    for block in model.blocks:
        fully_shard(block, mesh=mesh)
    return fully_shard(model, mesh=mesh)


def train(strategy, steps, settings):
    sys.path.insert(0, str(EXAMPLES))
    import gpt_against_pytorch as gpt  # pylint: disable=import-outside-toplevel
    options = types.SimpleNamespace(seed=1, **settings)
    windows = gpt.Windows(options)
    model = parallel(strategy, gpt.Gpt(75, options))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)
    part = options.batch // dist.get_world_size()
    first, samples = dist.get_rank() * part, []
    for step in range(1, steps + 1):
        start = time.perf_counter()
        inputs, targets = windows.batch(step)
        inputs = inputs[first:first + part]
        targets = targets.reshape(options.batch, -1)[first:first + part].reshape(-1)
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(model(inputs).flatten(0, 1), targets)
        loss.backward()
        optimizer.step()
        mean = loss.detach().clone()
        dist.all_reduce(mean)
        mean.item()
        samples.append(time.perf_counter() - start)
    if dist.get_rank() == 0:
        print(f"{statistics.median(samples[len(samples) // 4:]):.9g}")


def main():
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    if sys.argv[1] == "allreduce":
        allreduce([int(word) for word in sys.argv[2:]])
    else:
        train(sys.argv[1], int(sys.argv[2]),
              {name: int(value) for name, value in (word.split("=") for word in sys.argv[3:])})
    dist.barrier()
    dist.destroy_process_group()
    # With PyTorch 2.15 a thread that is left over may end the interpreter by std::terminate().
    sys.stdout.flush()
    os._exit(0)


main()
