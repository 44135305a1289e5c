"""The file that an emitter writes."""

import pathlib
import sys


def path():
    """Returns the path that the command line gives, or ends with the usage if it gives none."""
    arguments = sys.argv[1:]
    if len(arguments) == 1 and not arguments[0].startswith("-"):
        target = pathlib.Path(arguments[0])
        target.parent.mkdir(parents=True, exist_ok=True)
        return target
    script = pathlib.Path(sys.argv[0])
    text = f"usage: {script.name} FILE\n\n{sys.modules['__main__'].__doc__ or ''}".rstrip()
    if arguments in (["-h"], ["--help"]):
        print(text)
        raise SystemExit(0)
    print(text, file=sys.stderr)
    raise SystemExit(2)


def write(target, text):
    """Writes text to the file `target`, unless the file has it already: then what was made from the
    file stays newer than it, and is not built again."""
    if not target.exists() or target.read_text(encoding="utf-8") != text:
        target.write_text(text, encoding="utf-8")
