#!/usr/bin/env python3
"""Writes coverage.md: how each backend serves each operator, by dtype.

usage: backends/coverage_page.py NAME=FILE... > backends/coverage.md

Each FILE was written by `bp-conformance coverage PLUGIN --sample 1 --exclude '*.long.*'
--allow-decompositions --json FILE`, and NAME heads its column. Without --exclude the first case of
some operators has a million rows, which takes a device that is emulated too long.
"""
import json
import pathlib
import sys

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "ops_spec"))

import spec  # noqa: E402

# The outcomes of a cell of the file, as the page names them, and the words from best to worst.
WORDS = {"native": "native", "fallback": "by the host", "refused": "absent", "missing": "absent",
         "not_run": "absent", "unclaimed": "unclaimed", "wrong": "wrong", "crash": "crashed"}
RANK = ["native", "by the host", "absent", "unclaimed", "wrong", "crashed"]


def served(path):
    """Returns {op: {dtype: a word of RANK}}. A kernel that takes some of the calls is native."""
    try:
        run = json.loads(path.read_text(encoding="utf-8"))
        is_complete = run["is_complete"]
    except (OSError, ValueError, KeyError) as error:
        sys.exit(f"{path}: not a file of bp-conformance coverage --json: {error!r}")
    if not is_complete:
        sys.exit(f"{path}: the run was interrupted, so cases are missing; repeat it")
    counts = {}
    for cell in run["cells"]:
        words = counts.setdefault(cell["op"], {}).setdefault(cell["dtype"], {})
        for key, word in WORDS.items():
            words[word] = words.get(word, 0) + cell.get(key, 0)
    return {op: {dtype: word_of(words) for dtype, words in dtypes.items()}
            for op, dtypes in counts.items()}


def word_of(words):
    worst = [word for word in RANK[3:] if words.get(word)]
    return worst[-1] if worst else next((word for word in RANK if words.get(word)), "absent")


def cell_text(dtypes):
    """Returns "native", or the words with their dtypes if they differ."""
    by_word = {word: [d for d, own in dtypes.items() if own == word] for word in RANK}
    by_word = {word: names for word, names in by_word.items() if names}
    if len(by_word) == 1:
        return next(iter(by_word))
    most = max(by_word, key=lambda word: len(by_word[word]))
    rest = [f"{word}: {' '.join(names)}" for word, names in by_word.items() if word != most]
    return f"{most}; {'; '.join(rest)}"


def page(backends):
    names = list(backends)
    out = ["# Coverage", "",
           "How each backend serves each operator: with a kernel of its own (native), through the",
           "host, which decomposes the call or moves elements by their width (by the host), or not",
           "at all (absent). Where the dtypes of an operator differ, those that differ from the",
           "first word are named. The page is made by `backends/coverage_page.py` from calls that",
           "ran and whose results were right.", ""]
    totals = {word: [] for word in RANK}
    for own in backends.values():
        words = [word for dtypes in own.values() for word in dtypes.values()]
        for word, counts in totals.items():
            counts.append(words.count(word))
    out += ["| operators x dtypes | " + " | ".join(names) + " |", "|---" * (1 + len(names)) + "|"]
    out += [f"| {word} | " + " | ".join(map(str, counts)) + " |"
            for word, counts in totals.items() if any(counts)]
    out += ["", "| operator | dtypes | " + " | ".join(names) + " |",
            "|---" * (2 + len(names)) + "|"]
    for op in spec.load():
        dtypes = list(dict.fromkeys(d for own in backends.values() for d in own.get(op.name, {})))
        cells = [cell_text({d: own.get(op.name, {}).get(d, "absent") for d in dtypes})
                 for own in backends.values()] if dtypes else ["no case"] * len(names)
        out.append(f"| `{op.name}` | {' '.join(dtypes)} | " + " | ".join(cells) + " |")
    return "\n".join(out) + "\n"


if __name__ == "__main__":
    if len(sys.argv) < 2 or any("=" not in word for word in sys.argv[1:]):
        sys.exit(__doc__)
    given = dict(word.split("=", 1) for word in sys.argv[1:])
    print(page({name: served(pathlib.Path(path)) for name, path in given.items()}), end="")
