"""The text of public headers, for tests that change it."""
import pathlib
import re
import sys

import boundary


class HeaderText:
    """The text of each header. Its methods edit structs and members."""

    def __init__(self, *includes: pathlib.Path):
        self.known = boundary.read(*includes)
        self.texts = {path.name: path.read_text(encoding="utf-8")
                      for folder in includes for path in sorted(folder.glob("backplane/*"))}

    def substitute(self, header: str, pattern: str, replacement: str):
        """Replaces exactly one place, or stops the program."""
        text, count = re.subn(pattern, replacement, self.texts[header], flags=re.M)
        if count != 1:
            sys.exit(f"{header}: {count} places are like {pattern}, expected 1")
        self.texts[header] = text

    def struct(self, name: str) -> boundary.Struct:
        if name not in self.known.structs:
            sys.exit(f"no header has a struct {name}")
        return self.known.structs[name]

    def append_member(self, struct: boundary.Struct, text: str):
        self.substitute(struct.header, rf"^\}} {struct.name};", f"  {text};\n}} {struct.name};")

    def write_members(self, struct: boundary.Struct, texts: list[str]):
        """Replaces the whole body. Only a compiler reads it, so it needs no comments."""
        text = self.texts[struct.header]
        begin = text.index(f"typedef struct {struct.name} {{")
        end = text.index(f"\n}} {struct.name};", begin)
        body = f"typedef struct {struct.name} {{\n" + "".join(f"  {t};\n" for t in texts)
        self.texts[struct.header] = text[:begin] + body.rstrip("\n") + text[end:]

    def write(self, folder: pathlib.Path):
        (folder / "backplane").mkdir(parents=True, exist_ok=True)
        for name, text in self.texts.items():
            (folder / "backplane" / name).write_text(text, encoding="utf-8")
