"""`python -m opensrd ...` is `srd ...`."""

import os
import sys

from opensrd import NotUsable, command


def main() -> None:
    try:
        srd = command()
    except NotUsable as error:
        sys.exit(f"opensrd: {error}")
    try:
        os.execv(srd, [str(srd), *sys.argv[1:]])
    except OSError as error:
        # Such as "Exec format error": another architecture, or a C library that has another loader (musl).
        sys.exit(f"opensrd: cannot run {srd}: {error.strerror}; wheels are for Linux with glibc, on the architecture that they name")


if __name__ == "__main__":
    main()
