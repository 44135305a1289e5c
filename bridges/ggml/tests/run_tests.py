#!/usr/bin/env python3
"""Tests the library through ggml's public interface, on plugins of an installed package.

usage: run_tests.py FOLDER PREFIX

FOLDER has libggml-backplane.so, libggml-backplane-other.so and probe; PREFIX has the plugins. Each
test is a process of its own, as ggml loads a library once. BACKPLANE_GGML_OPENCL is the path of the
plugin of examples/12_opencl, which the package does not have; its test is skipped without it.
"""
import os
import pathlib
import subprocess
import sys
import tempfile

FOLDER, PREFIX = (pathlib.Path(argument).resolve() for argument in sys.argv[1:3])
PLUGINS = PREFIX / "lib" / "backplane"
LIBRARY = FOLDER / "libggml-backplane.so"

GGML = "ggml-backplane: "

# Options of the layer "mask": a device without the kernels that write rows by their numbers, and
# one on which the decomposition of roll lacks a part.
NO_ROWS = "mask.kernels=kv_cache_append*:scatter*"
HALF_ROLL = "mask.kernels=roll*:arange*"


def probe(action, device=None, library=LIBRARY, **environment):
    """Runs probe and returns its status and everything that it printed."""
    clean = {key: value for key, value in os.environ.items() if not key.startswith("BACKPLANE_")}
    clean.update(environment, LP_NUM_THREADS="0", OMP_WAIT_POLICY="passive")
    command = [FOLDER / "probe", library, action] + ([device] if device else [])
    done = subprocess.run(command, env=clean, capture_output=True, text=True, timeout=300)
    return done.returncode, done.stdout + done.stderr


def expect(condition, output):
    if not condition:
        raise AssertionError(output)


class Skipped(Exception):
    """Says why a test cannot run here."""


def expect_ok(result, *sentences):
    status, output = result
    expect(status == 0 and "\nok\n" in output, f"status {status}\n{output}")
    for sentence in sentences:
        expect(sentence in output, f"no \"{sentence}\" in\n{output}")


def has(plugin):
    return (PLUGINS / f"libbackplane_{plugin}.so").exists()


# ---- What works ---------------------------------------------------------------------------------


def test_lists_the_device_of_a_plugin():
    expect_ok(probe("devices", BACKPLANE_GGML_PLUGINS="cpu"), "library Backplane",
              "device backplane.cpu:0 type 1 total 1 async 1")


def test_lists_devices_of_paths_and_names():
    status, output = probe("devices",
                           BACKPLANE_GGML_PLUGINS=f"{PLUGINS / 'libbackplane_sim.so'},cpu")
    expect_ok((status, output), "device backplane.sim:0", "device backplane.cpu:0")
    expect(output.index("backplane.sim:0") < output.index("backplane.cpu:0"), output)


def test_leaves_host_devices_out_that_nobody_named():
    result = probe("devices")
    expect_ok(result, "library Backplane")
    expect("backplane.cpu:0" not in result[1] and "backplane.sim:0" not in result[1], result[1])


def on_each_plugin(action, *sentences, **environment):
    for plugin in ("cpu", "sim", "vulkan"):
        if has(plugin):
            expect_ok(probe(action, f"backplane.{plugin}:0", BACKPLANE_GGML_PLUGINS=plugin,
                            **environment), *sentences)


def test_moves_bytes():
    on_each_plugin("bytes")


def test_orders_streams_by_events():
    on_each_plugin("events")


def test_frees_buffers_that_work_still_uses():
    on_each_plugin("free-early")


# The memory of a device that is one with the host's, on the simulated accelerator.
INTEGRATED = "heaps=integrated"


def test_says_which_memory_of_the_host_a_device_takes():
    for plugin, options, claims in (("cpu", "threads=1", "host memory 1, pinned 0"),
                                    ("sim", "device_count=1", "host memory 0, pinned 0"),
                                    ("sim", INTEGRATED, "host memory 1, pinned 0"),
                                    ("sim", INTEGRATED + ",host_registration=no", "host memory 0"),
                                    ("sim", INTEGRATED + ",offset_alignment_bytes=64",
                                     "host memory 1")):
        expect_ok(probe("devices", BACKPLANE_GGML_PLUGINS=plugin, BACKPLANE_GGML_OPTIONS=options),
                  claims)
    if has("vulkan"):
        expect_ok(probe("devices", BACKPLANE_GGML_PLUGINS="vulkan"), "host memory 0")


def test_computes_in_memory_of_the_host():
    for action in ("host-memory", "shared-memory"):
        expect_ok(probe(action, "backplane.cpu:0", BACKPLANE_GGML_PLUGINS="cpu"))
        for options in (INTEGRATED, INTEGRATED + ",offset_alignment_bytes=64"):
            expect_ok(probe(action, "backplane.sim:0", BACKPLANE_GGML_PLUGINS="sim",
                            BACKPLANE_GGML_OPTIONS=options))


def test_ends_memory_of_the_host_by_the_rules():
    for layer, sentence in (("validate", "validate"), ("leak", "leak")):
        result = probe("host-memory", "backplane.sim:0", BACKPLANE_GGML_PLUGINS="sim",
                       BACKPLANE_GGML_OPTIONS=INTEGRATED, BACKPLANE_LAYERS=layer)
        expect_ok(result)
        expect(sentence not in result[1], result[1])


def test_says_that_memory_of_the_host_is_not_taken():
    expect_ok(probe("host-refused", "backplane.sim:0", BACKPLANE_GGML_PLUGINS="sim",
                    BACKPLANE_GGML_OPTIONS=INTEGRATED + ",device_count=1",
                    BACKPLANE_LAYERS="fault",
                    BACKPLANE_LAYER_OPTIONS="fault.fail=memory.register_host@2"),
              "backplane.sim:0 does not take 4096 bytes of the host's memory", "--load-mode none")


def test_copies_through_pinned_memory():
    if not has("vulkan"):
        raise Skipped("the package has no plugin vulkan, whose heap is pinned memory")
    expect_ok(probe("devices", BACKPLANE_GGML_PLUGINS="vulkan"), "pinned 1")
    expect_ok(probe("pinned", "backplane.vulkan:0", BACKPLANE_GGML_PLUGINS="vulkan"),
              "there is no buffer of 1125899906842624 bytes of backplane.vulkan:0 pinned")


def test_writes_rows_by_their_numbers():
    on_each_plugin("set-rows")


def test_loads_the_opencl_backend():
    """A backend of a vendor, with few kernels and no layouts, as it was built for every host."""
    plugin = os.environ.get("BACKPLANE_GGML_OPENCL")
    if not plugin:
        raise Skipped("BACKPLANE_GGML_OPENCL does not name the plugin of examples/12_opencl")
    expect(pathlib.Path(plugin).exists(), f"BACKPLANE_GGML_OPENCL={plugin} does not exist")
    output = probe("devices", BACKPLANE_GGML_PLUGINS=plugin)[1]
    if "found no device" in output:
        raise Skipped("OpenCL finds no device; pocl-opencl-icd has one for processors")
    for action in ("bytes", "events", "free-early", "set-rows", "missing-row"):
        expect_ok(probe(action, "acme.opencl:0", BACKPLANE_GGML_PLUGINS=plugin))
    expect_ok(probe("half-served", "acme.opencl:0", BACKPLANE_GGML_PLUGINS=plugin), "arange")


def test_copies_rows_where_no_kernel_writes_them():
    expect_ok(probe("set-rows", "backplane.cpu:0", BACKPLANE_GGML_PLUGINS="cpu",
                    BACKPLANE_LAYERS="mask", BACKPLANE_LAYER_OPTIONS=NO_ROWS))


def test_keeps_the_rules_of_the_abi():
    for action in ("bytes", "events", "free-early", "missing-row", "set-rows"):
        result = probe(action, "backplane.sim:0", BACKPLANE_GGML_PLUGINS="sim",
                       BACKPLANE_LAYERS="validate")
        expect_ok(result)
        expect("validate" not in result[1], result[1])


# ---- What is refused ----------------------------------------------------------------------------


def test_says_that_a_plugin_is_missing():
    expect_ok(probe("devices", BACKPLANE_GGML_PLUGINS="/nowhere/libacme.so"),
              GGML + "the plugin /nowhere/libacme.so is not loaded: not found: ",
              'BACKPLANE_GGML_PLUGINS="/nowhere/libacme.so" gives no device')


def test_says_that_a_file_is_no_plugin():
    expect_ok(probe("devices", BACKPLANE_GGML_PLUGINS=str(LIBRARY)),
              f"the plugin {LIBRARY} is not loaded: incompatible: ")


def test_goes_on_with_the_plugins_that_load():
    expect_ok(probe("devices", BACKPLANE_GGML_PLUGINS="nothing.here,cpu"),
              "the plugin nothing.here is not loaded", "device backplane.cpu:0")


def test_says_that_no_plugin_was_found():
    with tempfile.TemporaryDirectory() as empty:
        expect_ok(probe("devices", BACKPLANE_BACKENDS=empty),
                  GGML + "no plugin of an accelerator was found. BACKPLANE_GGML_PLUGINS names")


def test_passes_options_on():
    expect_ok(probe("bytes", "backplane.cpu:0", BACKPLANE_GGML_PLUGINS="cpu",
                    BACKPLANE_GGML_OPTIONS="threads=1"))
    expect_ok(probe("devices", BACKPLANE_GGML_PLUGINS="cpu", BACKPLANE_GGML_OPTIONS="wheels=4"),
              "it did not ask for these options; check their names: wheels")


def test_refuses_an_option_without_a_value():
    expect_ok(probe("devices", BACKPLANE_GGML_PLUGINS="cpu", BACKPLANE_GGML_OPTIONS="threads"),
              "library refused", 'has "threads", which is not of the form key=value')


def test_refuses_another_version_of_ggml():
    expect_ok(probe("devices", library=FOLDER / "libggml-backplane-other.so",
                    BACKPLANE_GGML_PLUGINS="cpu"),
              "library refused", "this library was built for ggml 9.99, and this program has ggml",
              "Build bridges/ggml against the llama.cpp that loads it")


# ---- What fails ---------------------------------------------------------------------------------


def test_fails_a_graph_that_it_does_not_support():
    expect_ok(probe("unsupported", "backplane.cpu:0", BACKPLANE_GGML_PLUGINS="cpu"),
              GGML + "backplane.cpu:0 does not compute MUL_MAT",
              "Backplane has no layout for iq2_xxs")


def test_does_not_support_what_lacks_a_part():
    expect_ok(probe("half-served", "backplane.cpu:0", BACKPLANE_GGML_PLUGINS="cpu",
                    BACKPLANE_LAYERS="mask", BACKPLANE_LAYER_OPTIONS=HALF_ROLL),
              "backplane.cpu:0 did not compute ROLL", "arange")


def test_names_the_row_that_copies_do_not_find():
    expect_ok(probe("set-missing-row", "backplane.cpu:0", BACKPLANE_GGML_PLUGINS="cpu",
                    BACKPLANE_LAYERS="mask", BACKPLANE_LAYER_OPTIONS=NO_ROWS),
              "the number of a row is 20, and there are 20")


def test_gives_no_buffer_that_is_too_large():
    on_each_plugin("too-much", "there is no buffer of 1125899906842624 bytes on ",
                   "out of memory")


def test_says_that_memory_ran_out_in_a_graph():
    expect_ok(probe("out-of-memory", "backplane.cpu:0", BACKPLANE_GGML_PLUGINS="cpu",
                    BACKPLANE_LAYERS="fault",
                    BACKPLANE_LAYER_OPTIONS=f"fault.memory={20 << 20}"),
              "backplane.cpu:0 did not compute GELU_QUICK", "out of memory")


def test_says_that_the_device_was_lost():
    expect_ok(probe("lost", "backplane.sim:0", BACKPLANE_GGML_PLUGINS="sim",
                    BACKPLANE_LAYERS="fault",
                    BACKPLANE_LAYER_OPTIONS="fault.lost=kernel.launch/add*@2"),
              "backplane.sim:0 did not compute ADD", "device lost")


def test_names_the_index_that_is_out_of_range():
    on_each_plugin("missing-row", "failed in a graph: data failure: ", "embedding")


def main():
    tests = [(name, test) for name, test in globals().items() if name.startswith("test_")]
    failed = skipped = 0
    for name, test in tests:
        try:
            test()
        except Skipped as reason:
            skipped += 1
            print(f"skipped {name}: {reason}")
        except (AssertionError, subprocess.TimeoutExpired) as error:
            failed += 1
            print(f"FAILED {name}: {error}")
    print(f"{len(tests) - failed - skipped} passed, {failed} failed, {skipped} skipped")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
