"""A disk of a few hundred megabytes that can be filled: a file system in memory, mounted where a folder is."""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
from pathlib import Path

SIZE_MB = 384
FILLER = "filler"
PAGE = 4096


class SmallDisk:
    """Mounted from the start on; ``fill`` takes its room, ``free`` gives it back."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True)
        self.folder = folder
        _command("mount", "-t", "tmpfs", "-o", f"size={SIZE_MB}m", "strom-campaign", str(folder))

    def fill(self, leave_bytes: int) -> None:
        """Leave only so much; a server that writes meanwhile may leave less, or free some.

        What the file system shows as free it need not give at once, so less and less is asked for, down to a page.
        """
        with (self.folder / FILLER).open("wb") as file:
            part = 1.0
            while (room := int((self._room() - leave_bytes) * part) // PAGE * PAGE) > 0:
                try:
                    os.posix_fallocate(file.fileno(), os.fstat(file.fileno()).st_size, room)
                except OSError as error:
                    if error.errno != errno.ENOSPC:
                        raise
                    part /= 2

    def _room(self) -> int:
        found = os.statvfs(self.folder)
        return found.f_bavail * found.f_frsize

    def free(self) -> None:
        """Give the room back."""
        (self.folder / FILLER).unlink(missing_ok=True)

    def close(self, evidence: Path | None) -> None:
        """Unmount it; what is on it goes, or is copied."""
        self.free()
        if evidence is not None:
            shutil.copytree(self.folder, evidence)
        _command("umount", str(self.folder))


def disks_can_be_mounted() -> bool:
    """Whether this user may mount something."""
    return os.geteuid() == 0 and _can_unshare()


def _can_unshare() -> bool:
    tried = ["unshare", "-m", "mount", "-t", "tmpfs", "none", "/mnt"]
    try:
        return subprocess.run(tried, capture_output=True, check=False).returncode == 0
    except OSError:
        return False


def _command(*words: str) -> None:
    subprocess.run(words, check=True, capture_output=True)
