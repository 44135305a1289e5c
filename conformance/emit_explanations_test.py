#!/usr/bin/env python3
"""Tests of emit_explanations.py, and that docs/failures.md has each cause of the sources."""
import pathlib
import re
import sys
import tempfile
import unittest

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
import emit_explanations  # noqa: E402

# A cause is the second member of a Finding, or is assigned to a member `cause`.
CAUSES = (
    re.compile(r'(?:fail|add|child_fails|Finding)\s*[({][^;]{0,600}?,\s*"([a-z_]+)",\s*'
               r'(?:"[A-Z0-9-]*"|[a-z_.]+)\s*[})]'),
    re.compile(r'cause\s*=\s*"([a-z_]+)"'),
    re.compile(r'cause\s*=[^;"]*\?\s*"([a-z_]+)"'),
)
RETURNED = re.compile(r'return "([a-z_]+)";')
PAGE = """# Title

| class | is for | B |
|---|---|---|
| `R1`, `R2` | sums of `x` | |
| no name | nothing | 0 |

| other | table |
|---|---|
| `x` | y |

## R1 and more

The **text** of `R1`.

## End

Else.
"""


class Emit(unittest.TestCase):
    def rows(self, text):
        with tempfile.TemporaryDirectory() as folder:
            page = pathlib.Path(folder, "page.md")
            page.write_text(text, encoding="utf-8")
            return emit_explanations.rows_of(page)

    def test_a_row_has_its_cells_by_their_titles_and_the_section_of_its_class(self):
        self.assertEqual(self.rows(PAGE), [
            ("class of errors", "R1", "is for: sums of x\n\nThe text of R1.\n"),
            ("class of errors", "R2", "is for: sums of x\n")])

    def test_a_row_of_another_width_is_refused(self):
        with self.assertRaisesRegex(SystemExit, "page.md: .*: 2 cells below 3 titles"):
            self.rows("| cause | a | b |\n|---|---|---|\n| `y` | 1 |\n")

    def test_a_page_without_a_table_is_refused(self):
        with self.assertRaisesRegex(SystemExit, "there is no table whose first title is one of"):
            self.rows("# Title\n\n| other |\n|---|\n| `x` |\n")


class Causes(unittest.TestCase):
    def test_the_page_has_each_cause_of_the_sources(self):
        page = emit_explanations.rows_of(HERE / "docs" / "failures.md")
        known = {name for kind, name, _ in page if kind == "cause"}
        found = {}
        for source in sorted(HERE.rglob("*.[ch]pp")):
            if source.name.endswith("_test.cpp"):
                continue
            text = source.read_text(encoding="utf-8")
            # Diagnosis returns causes.
            returned = (RETURNED,) if source.name == "op_diagnosis.cpp" else ()
            for pattern in CAUSES + returned:
                for match in pattern.finditer(text):
                    found.setdefault(match.group(1), source.name)
        self.assertGreater(len(found), 25, "the patterns do not find the causes any more")
        # Diagnosis replaces `misplaced`, which no report shows.
        self.assertEqual({cause: name for cause, name in found.items()
                          if cause not in known and cause != "misplaced"}, {})


if __name__ == "__main__":
    unittest.main()
