"""The exceptions of the library: a class for each status, and the library's own sentence."""


class Error(Exception):
    """A failure of Backplane. `status` is the number that the library gave, and str() its text."""

    status = 0

    def __init__(self, message, status=None):
        super().__init__(message)
        if status is not None:
            self.status = status


class InvalidArgument(Error, ValueError):
    """The call broke a rule: the text names the argument, what was given and what is allowed."""


class Unsupported(Error, NotImplementedError):
    """The call is legal, but nobody here offers it."""


class OutOfMemory(Error, MemoryError):
    """There is no memory left on the device."""


class DeviceLost(Error):
    """Calls on the device fail until it is reset."""


class Timeout(Error):
    """The given time passed; the work may still complete."""


class Aborted(Error):
    """The work was stopped before it completed."""


class Incompatible(Error):
    """Two sides cannot agree on an ABI, or on the members of a struct."""


class NotFound(Error, LookupError):
    """There is no such name, file or entry."""


class AlreadyExists(Error):
    """The name is taken."""


class InternalError(Error):
    """A bug of the library or of a backend."""


class DataFailure(Error):
    """A check on the device failed, such as that of an index."""


class StreamFailed(Error):
    """Earlier work of the stream failed."""


_CLASSES = {
    1: InvalidArgument,
    2: Unsupported,
    3: OutOfMemory,
    4: DeviceLost,
    5: Timeout,
    6: Aborted,
    7: Incompatible,
    8: NotFound,
    9: AlreadyExists,
    10: InternalError,
    11: DataFailure,
    12: StreamFailed,
}


def make(status, text):
    """Returns the exception for a status. A status below zero is a vendor's, and is an Error."""
    return _CLASSES.get(status, Error)(text, status)
