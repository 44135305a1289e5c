"""torch.distributed over the process groups of the plugin: two processes."""

import pathlib
import subprocess
import sys

import pytest
from conftest import PLUGIN

RANKS = pathlib.Path(__file__).parent / "ranks.py"


def test_collectives_and_data_parallel(tmp_path):
    store = str(tmp_path / "store")
    ranks = [
        subprocess.Popen([sys.executable, str(RANKS), PLUGIN, str(rank), "2", store],
                         stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        for rank in range(2)
    ]
    try:
        texts = [process.communicate(timeout=120)[0] for process in ranks]
    finally:
        for process in ranks:
            process.kill()
    if all("UNSUPPORTED" in text for text in texts):
        pytest.skip(f"the device has no process groups between processes: {texts[0].strip()}")
    assert [process.returncode for process in ranks] == [0, 0], "\n".join(texts)
    assert all("RIGHT" in text for text in texts)
