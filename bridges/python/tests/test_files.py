"""safetensors files."""

import json
import struct

import pytest

import backplane as bp


def test_tensors_come_back(tmp_path):
    path = tmp_path / "weights.safetensors"
    tensors = {"a": bp.asarray([[1.0, 2.0]]), "b": bp.asarray([3, 4], dtype="u16"),
               "c": bp.asarray([0.5]).to("bf16")}
    bp.safetensors.save(path, tensors, {"made by": "a test"})
    loaded, texts = bp.safetensors.load_with_metadata(path)
    assert {n: t.tolist() for n, t in loaded.items()} == {n: t.tolist() for n, t in tensors.items()}
    assert {n: t.dtype for n, t in loaded.items()} == {n: t.dtype for n, t in tensors.items()}
    assert texts == {"made by": "a test"}


def test_the_package_safetensors_reads_them(tmp_path):
    numpy_files = pytest.importorskip("safetensors.numpy")
    path = tmp_path / "weights.safetensors"
    bp.safetensors.save(path, {"w": bp.asarray([[1.0, 2.0]])})
    assert numpy_files.load_file(path)["w"].tolist() == [[1, 2]]
    other = tmp_path / "other.safetensors"
    numpy = pytest.importorskip("numpy")
    numpy_files.save_file({"w": numpy.arange(3, dtype="i4")}, other)
    assert bp.safetensors.load(other)["w"].tolist() == [0, 1, 2]


def test_a_broken_file_is_refused(tmp_path):
    path = tmp_path / "broken.safetensors"
    header = json.dumps({"a": {"dtype": "F32", "shape": [4], "data_offsets": [0, 8]}}).encode()
    path.write_bytes(struct.pack("<Q", len(header)) + header + b"\0" * 8)
    with pytest.raises(bp.Error, match="broken.safetensors"):
        bp.safetensors.load(path)
    with pytest.raises(bp.Error, match="none.safetensors"):
        bp.safetensors.load(tmp_path / "none.safetensors")
    with pytest.raises(TypeError, match="allowed: a str with a backplane.Tensor"):
        bp.safetensors.save(path, {"a": 1})
