"""Makes a copy of data-apis/array-api-tests that runs without complex dtypes: prepare.py FROM TO.

FROM is a checkout with its submodule array-api. Two lines of the suite take the widest complex
dtype at import, although it can skip complex dtypes. This program gives both a value for none, and
changes nothing else.
"""

import pathlib
import shutil
import sys

_CHANGES = (
    ("array_api_tests/dtype_helpers.py",
     "for dt in complex_dtypes], key=lambda x: x[1]\n",
     "for dt in complex_dtypes], key=lambda x: x[1], default=(None, 0)\n"),
    ("array_api_tests/test_signatures.py",
     "cmplx_name = dh.dtype_to_name[dh.widest_complex_dtype]\n",
     "cmplx_name = dh.dtype_to_name.get(dh.widest_complex_dtype, 'complex128')\n"),
)


def main(source, target):
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(source, target, ignore=shutil.ignore_patterns(".git"))
    for name, old, new in _CHANGES:
        path = pathlib.Path(target) / name
        text = path.read_text(encoding="utf-8")
        if text.count(old) != 1:
            print(f"{path}: the line to change is not there once: {old.strip()}", file=sys.stderr)
            return 1
        path.write_text(text.replace(old, new), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
