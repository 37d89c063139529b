"""Watches, while a sealed job runs, whether its key shows where others could see it."""

import shutil
import threading
from dataclasses import replace
from pathlib import Path

from harness.processes import Command


# Often: MPICH has started, run and ended its job after a third of a second.
LOOK_S = 0.01


class Watch:
    """The key of a job that runs with `directory` as its runtime directory."""

    def __init__(self, directory: Path):
        self.directory = directory
        self.keys_seen: set[str] = set()
        self.ranks_seen = 0
        self.shown: set[str] = set()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._look_until_over)

    def wrap(self, command: Command) -> Command:
        environment = {**command.environment, "XDG_RUNTIME_DIR": str(self.directory)}
        return replace(command, environment=environment)

    def __enter__(self):
        shutil.rmtree(self.directory, ignore_errors=True)
        self.directory.mkdir(mode=0o700, parents=True)
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._over.set()
        self._thread.join()

    def problem(self) -> str | None:
        if not self.keys_seen:
            return "no key was seen while the job ran"
        if not self.ranks_seen:
            return "no process was seen that knows the key's file"
        if self.shown:
            return f"the key was seen in {', '.join(sorted(self.shown))}"
        left = list((self.directory / "srd").glob("job-*"))
        return f"{left[0]} is still there" if left else None

    def _look_until_over(self) -> None:
        while not self._over.wait(LOOK_S):
            for file in (self.directory / "srd").glob("job-*.key"):
                try:
                    digits = file.read_text().strip()
                except OSError:
                    continue  # the job has ended
                if digits:
                    self.keys_seen.add(digits)
                    self._look_for(digits, str(file))

    def _look_for(self, digits: str, name: str) -> None:
        secrets = (digits.encode(), bytes.fromhex(digits))
        for process in Path("/proc").glob("[0-9]*"):
            for part in ("cmdline", "environ"):
                try:
                    shown = (process / part).read_bytes()
                except OSError:
                    continue  # it has ended, or is another user's
                self.ranks_seen += name.encode() in shown
                if any(secret in shown for secret in secrets):
                    self.shown.add(f"{process.name}/{part}: {shown[:80]!r}")
