#!/usr/bin/env python3
"""Tests that a plugin of backplane_add_backend() with an undefined symbol does not link.

usage: backend_link_test.py CMAKE CMAKE_DIR INCLUDE_DIR
"""
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

CMAKE, CMAKE_DIR, INCLUDE_DIR = sys.argv[1:4]
COMPILERS = [pair for pair in (("gcc", "g++"), ("clang", "clang++"))
             if all(map(shutil.which, pair))]

PROJECT = f"""cmake_minimum_required(VERSION 3.25)
project(vendor LANGUAGES C CXX)
add_library(backplane::api INTERFACE IMPORTED)
target_include_directories(backplane::api INTERFACE {INCLUDE_DIR})
include({CMAKE_DIR}/BackplaneBackend.cmake)
backplane_add_backend(chip SOURCES chip.c LINK ${{CMAKE_DL_LIBS}})
"""
BACKEND = """#include "backplane/backend.h"
{declaration}
bp_status bp_backend_entry(const bp_entry_request* request, bp_entry_reply* out_reply) {{
  (void)request;
  (void)out_reply;
  return {status};
}}
"""
COMPLETE = BACKEND.format(declaration="#include <dlfcn.h>", status="dlerror() != 0")
UNDEFINED = BACKEND.format(declaration="int driver_of_nobody(void);", status="driver_of_nobody()")


def build(source, compilers, flags=""):
    """Returns the exit status of the build, and what it printed. Raises if the configuration
    fails."""
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        (folder / "CMakeLists.txt").write_text(PROJECT, encoding="utf-8")
        (folder / "chip.c").write_text(source, encoding="utf-8")
        subprocess.run([CMAKE, "-S", name, "-B", folder / "build", "-G", "Ninja",
                        f"-DCMAKE_C_COMPILER={compilers[0]}",
                        f"-DCMAKE_CXX_COMPILER={compilers[1]}", f"-DCMAKE_C_FLAGS={flags}"],
                       check=True, capture_output=True)
        result = subprocess.run([CMAKE, "--build", folder / "build"], capture_output=True,
                                text=True, check=False)
        return result.returncode, result.stdout + result.stderr


class BackendLinkTest(unittest.TestCase):
    def test_a_complete_plugin_links(self):
        for compilers in COMPILERS:
            with self.subTest(compilers):
                status, text = build(COMPLETE, compilers)
                self.assertEqual(status, 0, text)

    def test_an_undefined_symbol_is_an_error_that_names_it(self):
        for compilers in COMPILERS:
            with self.subTest(compilers):
                status, text = build(UNDEFINED, compilers)
                self.assertNotEqual(status, 0, text)
                self.assertRegex(text, "undefined.*driver_of_nobody")

    def test_sanitizers_may_leave_symbols_to_the_program(self):
        for compilers in COMPILERS:
            with self.subTest(compilers):
                status, text = build(COMPLETE, compilers, "-fsanitize=address")
                self.assertEqual(status, 0, text)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
