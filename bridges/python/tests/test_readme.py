"""The examples of the README run, in their order."""

import pathlib
import re

import pytest

README = pathlib.Path(__file__).parent.parent / "README.md"


def test_the_examples_of_the_readme_run(on_host):
    pytest.importorskip("numpy")
    blocks = re.findall(r"```python\n(.*?)```", README.read_text(encoding="ascii"), re.DOTALL)
    assert len(blocks) >= 4
    scope = {}
    for block in blocks:
        exec(compile(block, str(README), "exec"), scope)  # The blocks of our own page.
    assert scope["a"].tolist() == [1, 0, 0] and scope["w"].grad is not None
