"""The places of functions in ONNX Runtime's tables, checked by what the functions do."""

import ctypes
import os
import pathlib
import re

import onnxruntime as ort
import pytest
from conftest import HERE, LIBRARY

ROWS = {
    (kind, name): (int(index), int(since))
    for kind, index, since, name in re.findall(
        r"^ORT_(API|EP_API)\((\d+), (\d+), [^,]+, (\w+),",
        (HERE.parent / "src" / "ort_slots.def").read_text(), re.M)
}
VERSION = min(29, int(ort.__version__.split(".")[1]))


class Base(ctypes.Structure):
    GET_API = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_uint32)
    GET_VERSION = ctypes.CFUNCTYPE(ctypes.c_char_p)
    _fields_ = [("get_api", GET_API), ("get_version", GET_VERSION)]


@pytest.fixture(scope="module")
def call():
    """Calls a function of OrtApi by its row."""
    folder = pathlib.Path(ort.__file__).parent / "capi"
    files = [*folder.glob("libonnxruntime.so*"), *folder.glob("onnxruntime_pybind11_state*.so")]
    libraries = [library for library in map(ctypes.CDLL, map(str, files))
                 if hasattr(library, "OrtGetApiBase")]
    if not libraries:
        pytest.skip("this wheel exports no OrtGetApiBase")
    get_base = libraries[0].OrtGetApiBase
    get_base.restype = ctypes.POINTER(Base)
    table = ctypes.cast(get_base().contents.get_api(VERSION), ctypes.POINTER(ctypes.c_void_p))

    def call_row(name, result, *arguments):
        index, since = ROWS["API", name]
        assert since <= VERSION
        kinds = [type(argument) for argument in arguments]
        return ctypes.CFUNCTYPE(result, *kinds)(table[index])(*arguments)

    return call_row


def text(value):
    return ctypes.c_char_p(value.encode())


def test_statuses(call):
    status = call("CreateStatus", ctypes.c_void_p, ctypes.c_int32(2), text("a sentence"))
    assert call("GetErrorMessage", ctypes.c_char_p, ctypes.c_void_p(status)) == b"a sentence"
    call("ReleaseStatus", None, ctypes.c_void_p(status))


def test_pairs(call):
    pairs = ctypes.c_void_p()
    call("CreateKeyValuePairs", None, ctypes.pointer(pairs))
    call("AddKeyValuePair", None, pairs, text("key"), text("value"))
    assert call("GetKeyValue", ctypes.c_char_p, pairs, text("key")) == b"value"
    assert call("GetKeyValue", ctypes.c_char_p, pairs, text("other")) is None
    keys, values = ctypes.POINTER(ctypes.c_char_p)(), ctypes.POINTER(ctypes.c_char_p)()
    count = ctypes.c_size_t()
    call("GetKeyValuePairs", None, pairs, ctypes.pointer(keys), ctypes.pointer(values),
         ctypes.pointer(count))
    assert (count.value, keys[0], values[0]) == (1, b"key", b"value")
    call("ReleaseKeyValuePairs", None, pairs)


def test_all_rows_against_a_public_header():
    """ORT_HEADERS names a folder with onnxruntime_c_api.h and onnxruntime_ep_c_api.h of 1.29."""
    folder = os.environ.get("ORT_HEADERS")
    if folder is None:
        pytest.skip("ORT_HEADERS names no folder with ONNX Runtime's headers")
    source = "".join((pathlib.Path(folder) / name).read_text()
                     for name in ("onnxruntime_c_api.h", "onnxruntime_ep_c_api.h"))
    source = re.sub(r"/\*.*?\*/|//[^\n]*", "", source, flags=re.S)
    for (kind, name), (index, _) in ROWS.items():
        assert slots_of(source, {"API": "OrtApi", "EP_API": "OrtEpApi"}[kind])[index] == name


def slots_of(source, struct):
    """The names of a table's functions, in order."""
    begin = re.search(rf"struct {struct} {{", source).end()
    names = []
    for entry in source[begin : source.index("\n};", begin)].split(";"):
        released = re.search(r"ORT_CLASS_RELEASE\((\w+)\)", entry)
        other = re.search(r"ORT_API2_STATUS\(\s*(\w+)|ORT_API_T\([^,]+,\s*(\w+)"
                          r"|ORT_API_CALL\s*\*\s*(\w+)", entry)
        if released:
            names.append("Release" + released[1])
        elif other:
            names.append(next(group for group in other.groups() if group))
    return names


def test_a_host_that_is_too_old_is_refused_in_words():
    """A table of 1.23, of which CreateStatus alone is called."""
    library = ctypes.CDLL(LIBRARY)
    kept = []

    def create_status(_, message):
        kept.append(message)
        return 1

    create = ctypes.CFUNCTYPE(ctypes.c_size_t, ctypes.c_int32, ctypes.c_char_p)(create_status)
    text_of_version = ctypes.c_char_p(b"1.23.2")
    get_version = ctypes.CFUNCTYPE(ctypes.c_void_p)(
        lambda: ctypes.cast(text_of_version, ctypes.c_void_p).value)
    version = ctypes.cast(get_version, ctypes.c_void_p)
    table = (ctypes.c_void_p * 1)(ctypes.cast(create, ctypes.c_void_p))
    address = ctypes.addressof(table)
    base = Base(Base.GET_API(lambda version: address if version <= 23 else None),
                ctypes.cast(version, Base.GET_VERSION))
    library.CreateEpFactories.restype = ctypes.c_size_t
    status = library.CreateEpFactories(b"x", ctypes.byref(base), None, None, ctypes.c_size_t(1),
                                       None)
    assert status == 1
    assert kept[0].startswith(b"this is ONNX Runtime 1.23.2; ") and b"1.24 or newer" in kept[0]
