"""Says in a sentence why the extension could not be loaded."""


def explain(error):
    """Returns the ImportError that the import of backplane raises."""
    text = str(error)
    if "undefined symbol" in text or "version `" in text:
        reason = ("the library that was found is another version than the one that this package "
                  "was built with; install both from one release")
    elif "libbackplane" in text and "cannot open" in text:
        reason = ("libbackplane was not found; it lies in the folder `lib` of the installed "
                  "Backplane that this package was built with. Put it back, or name its folder in "
                  "LD_LIBRARY_PATH")
    elif "was built for ABI" in text:
        return ImportError(text)
    else:
        reason = "the package is not built for this Python, or its installation is not complete"
    return ImportError(f"backplane cannot be loaded: {reason}. The loader says: {text}")
