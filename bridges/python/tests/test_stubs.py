"""The type stubs that are written from the descriptions."""

import ast
import pathlib
import subprocess
import sys

import pytest

import backplane as bp
from backplane import ops


@pytest.fixture(scope="module")
def stubs():
    path = pathlib.Path(bp.__file__).with_name("ops.pyi")
    if not path.exists():
        pytest.skip("the package was built without stubs")
    return ast.parse(path.read_text(encoding="ascii"))


def test_every_op_of_the_library_has_one(stubs):
    written = {f.name for f in stubs.body if isinstance(f, ast.FunctionDef)}
    assert written >= {n for n in ops.names() if "." not in n}


def test_they_have_the_parameters_of_the_functions(stubs):
    functions = {f.name: f for f in stubs.body if isinstance(f, ast.FunctionDef)}
    for name in ops.names():
        if "." in name:
            continue
        arguments = functions[name].args
        written = [a.arg for a in arguments.args + arguments.kwonlyargs]
        assert written == [p[0] for p in ops.describe(name)["parameters"]], name


def test_a_type_checker_finds_wrong_calls(stubs, tmp_path):
    pytest.importorskip("mypy")
    program = tmp_path / "use.py"
    program.write_text("""import backplane as bp
x = bp.asarray([1.0, 2.0])
y = bp.ops.softmax(x, axis=-1) + x * 2
z = bp.ops.gelu(y, approximation="tanh")
s: str = z
bp.ops.gelu(y, approximation="tan")
bp.ops.softmax("x", axis=1)
""")
    command = [sys.executable, "-m", "mypy", "--follow-imports", "silent", "--cache-dir",
               tmp_path / "cache", program]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    lines = [line.split(":")[1] for line in done.stdout.splitlines() if ": error: " in line]
    assert lines == ["5", "6", "7"], done.stdout + done.stderr
