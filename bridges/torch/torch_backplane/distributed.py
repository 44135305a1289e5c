"""The backend "backplane" of torch.distributed: the process groups of the plugin.

    torch.distributed.init_process_group("backplane", ...)

Each rank makes its device the current one first: torch.bp.set_device(local_rank).
"""

import torch.distributed

from . import _C

_table = ""


def use_process_groups(table):
    """Says which of its process groups a device uses in groups that are made from now on: the name
    of a table, such as "gloo", "mpi" or "nccl"; "" (from the beginning) is the first one."""
    global _table
    _table = table


def _create(store, rank, size, timeout):
    return _C.make_process_group(store, rank, size, timeout, _table)


def register():
    """Registers the backend, if this PyTorch has torch.distributed."""
    if torch.distributed.is_available():
        torch.distributed.Backend.register_backend("backplane", _create, devices=["bp"])
