"""Runs the cases in eager PyTorch. peers.py talks to this process: torch_peer.py THREADS"""

import sys
import warnings

import torch

from protocol import serve
from pytorch import (attention, convolutions, elementwise, layers, losses, movement, norms, pooling,
                     products, reductions, training)
from pytorch.cases import CASES

if __name__ == "__main__":
    warnings.simplefilter("ignore")  # They say which names of PyTorch will go.
    torch.set_num_threads(int(sys.argv[1]))
    for family in (elementwise, movement, reductions, norms, losses, products, convolutions,
                   pooling, attention, layers, training):
        family.add()
    with torch.no_grad():
        serve(CASES)
