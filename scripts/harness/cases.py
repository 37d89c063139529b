"""A test program of cases: functions that are well unless they raise `Wrong`, or `Skipped`."""

import argparse
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from harness import layout


class Wrong(Exception):
    """What is not as it should be."""


class Skipped(Exception):
    """Why a case cannot be tried here."""


def expect(condition: bool, what: str) -> None:
    if not condition:
        raise Wrong(what)


def main(what: str | None, cases: Sequence[Callable[[], None]], at_once: int = 1) -> int:
    """Runs those that the command line names, or all, so many at once. The exit code."""
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
    chosen = [case for case in cases if not options.names or case.__name__ in options.names]
    failed = 0
    with ThreadPoolExecutor(at_once) as pool:
        for case, (said, is_well) in zip(chosen, pool.map(outcome, chosen)):
            print(f"  {case.__name__:12}  {said}", flush=True)
            if not is_well:
                print(f"    again: {program} {case.__name__}")
                failed += 1
    print(f"{len(chosen) - failed} passed, {failed} failed")
    return 1 if failed else 0


def outcome(case: Callable[[], None]) -> tuple[str, bool]:
    """What is to be said of it, and whether it is well. What is skipped counts as passed, as cargo has it, and as skipped."""
    began = time.monotonic()
    try:
        case()
    except Skipped as why:
        return f"\nSKIPPED {case.__name__}: {why}", True
    except (Wrong, subprocess.SubprocessError, OSError) as error:
        return f"FAILED  {error}", False
    return f"ok  {time.monotonic() - began:5.1f} s", True
