"""A test program of cases: functions that are well unless they raise `Wrong`."""

import argparse
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from harness import layout


class Wrong(Exception):
    """What is not as it should be."""


def expect(condition: bool, what: str) -> None:
    if not condition:
        raise Wrong(what)


def main(what: str | None, cases: Sequence[Callable[[], None]]) -> int:
    """Runs those that the command line names, or all. The exit code."""
    parser = argparse.ArgumentParser(description=what, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--list", action="store_true", help="list the cases")
    parser.add_argument("names", nargs="*", help="cases to run (default: all)")
    options = parser.parse_args()
    if options.list:
        for case in cases:
            print(f"{case.__name__:12} {(case.__doc__ or '').partition(chr(10))[0]}")
        return 0
    if unknown := set(options.names) - {case.__name__ for case in cases}:
        parser.error(f"no such case: {', '.join(sorted(unknown))} (--list shows them)")
    program = Path(sys.argv[0]).resolve().relative_to(layout.ROOT)
    passed = failed = 0
    for case in cases:
        if options.names and case.__name__ not in options.names:
            continue
        print(f"  {case.__name__:12}", end="", flush=True)
        began = time.monotonic()
        try:
            case()
        except (Wrong, subprocess.SubprocessError, OSError) as wrong:
            print(f"  FAILED  {wrong}\n    again: {program} {case.__name__}")
            failed += 1
            continue
        print(f"  ok  {time.monotonic() - began:5.1f} s")
        passed += 1
    print(f"{passed} passed, {failed} failed")
    return 1 if failed else 0
