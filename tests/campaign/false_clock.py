"""A clock of one process that jumps: libfaketime, where it is installed (Debian's package ``faketime``)."""

from __future__ import annotations

from pathlib import Path

LIBRARIES = sorted(Path("/usr/lib").glob("*/faketime/libfaketimeMT.so.1"))


class FalseClock:
    """The wall clock of a process; time that only passes is not touched."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self.jump(0)

    def jump(self, seconds: int) -> None:
        """Be so far from the real time, from now on."""
        self._file.write_text(f"{seconds:+d}")

    @property
    def environment(self) -> dict[str, str]:
        """What makes a process that is started with it see this clock."""
        return {
            "LD_PRELOAD": str(LIBRARIES[0]),
            "FAKETIME_TIMESTAMP_FILE": str(self._file),
            "FAKETIME_CACHE_DURATION": "1",
            "DONT_FAKE_MONOTONIC": "1",
        }


def clocks_can_jump() -> bool:
    """Whether libfaketime is here."""
    return bool(LIBRARIES)
