"""What one rank of test_distributed.py does: python ranks.py PLUGIN RANK SIZE FILE."""

import sys

import torch
import torch.distributed as dist

import torch_backplane


def check_collectives(rank, size):
    def own(count=6):
        return torch.arange(float(count), device="bp") + 10 * rank

    ranks = [torch.arange(6.0) + 10 * r for r in range(size)]
    x = own()
    dist.all_reduce(x)
    assert x.cpu().equal(sum(ranks)), x
    x = own()
    dist.all_reduce(x, dist.ReduceOp.MAX)
    assert x.cpu().equal(ranks[-1])
    x = own()
    dist.broadcast(x, 1)
    assert x.cpu().equal(ranks[1])
    x = own()
    dist.reduce(x, 0)
    assert rank != 0 or x.cpu().equal(sum(ranks))
    parts = [torch.empty(6, device="bp") for _ in range(size)]
    dist.all_gather(parts, own())
    assert all(a.cpu().equal(b) for a, b in zip(parts, ranks))
    whole = torch.empty(6 * size, device="bp")
    dist.all_gather_into_tensor(whole, own())
    assert whole.cpu().equal(torch.cat(ranks))
    part = torch.empty(3, device="bp")
    dist.reduce_scatter_tensor(part, torch.arange(3.0 * size, device="bp"))
    assert part.cpu().equal(size * torch.arange(3.0 * size)[3 * rank : 3 * rank + 3])
    dist.gather(own(), parts if rank == 0 else None)
    assert rank != 0 or parts[1].cpu().equal(ranks[1])
    dist.scatter(part, [torch.full((3,), float(r), device="bp") for r in range(size)]
                 if rank == 0 else None)
    assert part.tolist() == [rank] * 3
    swapped = torch.empty(2 * size, device="bp")
    dist.all_to_all_single(swapped, torch.full((2 * size,), float(rank), device="bp"))
    assert swapped.tolist() == [float(r) for r in range(size) for _ in range(2)]
    if rank == 0:
        dist.send(own(), 1)
    elif rank == 1:
        dist.recv(x, 0)
        assert x.cpu().equal(ranks[0])
    dist.barrier()
    work = dist.all_reduce(own(), async_op=True)
    work.wait()


def check_data_parallel(rank, size):
    """The gradients of two halves of a batch are those of the whole batch on one device."""
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.GELU(), torch.nn.Linear(8, 1))
    x = torch.rand(4 * size, 4)
    model(x).square().mean().backward()
    expected = [p.grad.clone() for p in model.parameters()]
    model.zero_grad()
    parallel = torch.nn.parallel.DistributedDataParallel(model.to("bp"))
    parallel(x[4 * rank : 4 * rank + 4].to("bp")).square().mean().backward()
    for p, wanted in zip(model.parameters(), expected):
        torch.testing.assert_close(p.grad.cpu(), wanted)


def main():
    plugin, rank, size, path = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
    torch_backplane.load(plugin)
    torch_backplane.set_fallback("error")
    dist.init_process_group("backplane", store=dist.FileStore(path, size), rank=rank,
                            world_size=size)
    try:
        dist.all_reduce(torch.ones(1, device="bp"))
    except NotImplementedError as error:
        print("UNSUPPORTED", str(error).splitlines()[0])
        return
    check_collectives(rank, size)
    check_data_parallel(rank, size)
    dist.destroy_process_group()
    print("RIGHT")


if __name__ == "__main__":
    main()
