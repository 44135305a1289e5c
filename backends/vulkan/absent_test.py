#!/usr/bin/env python3
"""A machine on which something is missing: bp-conformance says in a sentence what, and what to do.

  absent_test.py BP_CONFORMANCE PLUGIN
"""
import os
import pathlib
import subprocess
import sys
import tempfile

CONFORMANCE, PLUGIN = sys.argv[1:3]


def refusal(**variables):
    done = subprocess.run([CONFORMANCE, "info", PLUGIN], capture_output=True, text=True,
                          check=False, env={**os.environ, **variables})
    assert done.returncode == 3, f"{variables}: exit {done.returncode}\n{done.stdout}{done.stderr}"
    return done.stdout + done.stderr


def main():
    with tempfile.TemporaryDirectory() as scratch:
        folder = pathlib.Path(scratch)
        # Searched first, and nothing that can be opened.
        (folder / "libvulkan.so.1").write_bytes(b"")
        text = refusal(LD_LIBRARY_PATH=str(folder))
        assert "there is no Vulkan loader (" in text, text
        assert "install libvulkan1 or the driver of the device" in text, text

        missing = folder / "driver.json"
        missing.write_text('{"file_format_version": "1.0.0", "ICD": {"library_path": '
                           f'"{folder}/no_such_driver.so", "api_version": "1.2.0"}}}}')
        for drivers in (folder / "nonexistent.json", missing):
            text = refusal(VK_ICD_FILENAMES=str(drivers), VK_DRIVER_FILES=str(drivers))
            assert "install" in text and "mesa-vulkan-drivers" in text, text
            print(text)


main()
