"""The end of the interpreter, and forks."""

import atexit
import os
import sys

from backplane import _core


_PATIENCE_S = 60.0


def _finish():
    """Waits for work in flight: backends and their threads end with the process. A device that does
    not end its work must not keep the process for ever."""
    if _core.is_forked():
        return
    for device in _core.devices():
        try:
            device.synchronize(_PATIENCE_S)
        except Exception as error:
            print(f"backplane: {device} did not end its work: {error}", file=sys.stderr)


_had_plugins = False


def _before_fork():
    """Remembers whether a backend is loaded: the child is cut off from it."""
    global _had_plugins
    _had_plugins = bool(_core.plugins())


def _after_fork():
    """Makes uses of a device fail in the child, if a backend was loaded before the fork."""
    if _had_plugins:
        _core._set_forked()


def register():
    atexit.register(_finish)
    os.register_at_fork(before=_before_fork, after_in_child=_after_fork)
