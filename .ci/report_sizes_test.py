"""Tests of report_sizes.py: a function is measured from its signature to its closing brace."""

import contextlib
import io
import tempfile
import unittest

import report_sizes

SOURCE = """namespace bp {
struct Options {
  int jobs = 1;
};

Log::Log(const char* path)
    : path_(path),
      lines_(0) {
  open();
}

int add(int first,
        int second) {
  if (first == 0) {
    return second;
  }
  return first + second;
}

class Counter {
 public:
  void count() {
    ++count_;
  }
};
}  // namespace bp"""


class ReportSizes(unittest.TestCase):
    def test_measures_from_the_signature_to_the_brace(self):
        self.assertEqual(
            list(report_sizes.functions_in(SOURCE.splitlines(), "a.cpp")),
            [
                (5, "a.cpp", 6, "Log::Log"),
                (7, "a.cpp", 12, "add"),
                (3, "a.cpp", 22, "count"),
            ],
        )

    def test_a_budget_is_kept_up_to_its_last_line(self):
        with tempfile.NamedTemporaryFile("w", suffix=".c") as file:
            file.write("int x;\n" * 11)
            file.flush()
            with contextlib.redirect_stdout(io.StringIO()):
                self.assertTrue(report_sizes.budget("eleven", [file.name], 11))
                self.assertFalse(report_sizes.budget("eleven", [file.name], 10))


if __name__ == "__main__":
    unittest.main()
