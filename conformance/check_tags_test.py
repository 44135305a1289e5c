#!/usr/bin/env python3
"""Tests of emit_tags.py and check_tags.py."""
import pathlib
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import check_tags  # noqa: E402
import emit_tags  # noqa: E402

CASES = [{"id": "stream.is_idle", "tags": ["STREAM-1"]}]


class EmitTags(unittest.TestCase):
    def sentences(self, source):
        return [(tag, sentence) for tag, _, sentence in emit_tags.tags_of("x.h", source)]

    def test_a_sentence_ends_with_its_full_stop_over_lines(self):
        source = "/* Begins. [A-1] One rule\n * of vendor.backend goes on. Another sentence. */"
        self.assertEqual(self.sentences(source), [("A-1", "One rule of vendor.backend goes on.")])

    def test_a_sentence_ends_at_the_next_tag_and_with_the_paragraph(self):
        source = "/* [A-1] First [A-2] second\n *\n * third */\nint x; /* [A-3] End. */"
        self.assertEqual(self.sentences(source),
                         [("A-1", "First"), ("A-2", "second"), ("A-3", "End.")])

    def test_a_tag_that_is_only_spoken_about_is_no_rule(self):
        self.assertEqual(self.sentences("/* A tag such as [A-1] makes a rule. */"), [])

    def test_lines_are_those_of_the_file(self):
        self.assertEqual(emit_tags.tags_of("x.h", "\n\n/* a\n * [A-1] b. */")[0][1], 4)

    def test_quotes_are_escaped_in_the_table(self):
        text = emit_tags.cpp_text([{"tag": "A-1", "header": "x.h", "line": 1, "sentence": 'a "b"'}])
        self.assertIn('"a \\"b\\""', text)


class CheckTags(unittest.TestCase):
    def check(self, tags=("STREAM-1",), cases=None, untestable="", finished_step=0):
        entries, problems = check_tags.read_untestable(untestable)
        cases = CASES if cases is None else cases
        return problems + check_tags.check(set(tags), cases, entries, finished_step)

    def expect(self, words, **arguments):
        problems = self.check(**arguments)
        self.assertEqual(len(problems), 1, problems)
        self.assertIn(words, problems[0])

    def test_a_suite_that_covers_its_tags_is_right(self):
        self.assertEqual(self.check(), [])

    def test_a_tag_without_a_case_needs_an_entry(self):
        self.expect("STREAM-2 has no case", tags=("STREAM-1", "STREAM-2"))
        self.assertEqual(self.check(tags=("STREAM-1", "STREAM-2"),
                                    untestable="- {tag: STREAM-2, reason: the host's duty}"), [])

    def test_a_pending_entry_ends_with_its_step(self):
        arguments = {"tags": ("STREAM-1", "STREAM-2"),
                     "untestable": "- {tag: STREAM-2, kind: pending, step: 2}"}
        self.assertEqual(self.check(**arguments, finished_step=1), [])
        self.expect("finished", **arguments, finished_step=2)

    def test_stale_and_empty_entries_fail(self):
        self.expect("has a case by now", untestable="- {tag: STREAM-1, reason: x}")
        self.expect("in no header any more", untestable="- {tag: STREAM-9, reason: x}")
        self.expect("is allowed", tags=("STREAM-1", "STREAM-2"), untestable="- {tag: STREAM-2}")

    def test_a_case_cites_known_tags_only_and_at_least_one(self):
        self.expect("no header has", cases=[{"id": "a", "tags": ["STREAM-1", "STREAM-7"]}])
        self.expect("cites no tag", cases=[*CASES, {"id": "b", "tags": []}])

    def test_an_empty_suite_fails(self):
        self.assertIn("the suite is empty", self.check(cases=[]))


if __name__ == "__main__":
    unittest.main()
