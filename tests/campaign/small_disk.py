"""A small disk that can be full: a file system in memory, mounted where a folder is, which is made smaller."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

SIZE_MB = 384
ATTEMPTS = 20


class SmallDisk:
    """Mounted from the start on; ``fill`` takes its room, ``free`` gives it back."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True)
        self.folder = folder
        _command("mount", "-t", "tmpfs", "-o", f"size={SIZE_MB}m", "strom-campaign", str(folder))

    def fill(self, leave_bytes: int) -> None:
        """Leave only so much; a server that frees some while it is measured has a little more."""
        for _ in range(ATTEMPTS):
            found = os.statvfs(self.folder)
            used = (found.f_blocks - found.f_bfree) * found.f_frsize
            try:
                return self._resize(used + leave_bytes)
            except subprocess.CalledProcessError:
                continue  # more is used by now
        raise RuntimeError(f"{self.folder} grows faster than it can be filled")

    def free(self) -> None:
        """Give the room back."""
        self._resize(SIZE_MB << 20)

    def _resize(self, size_bytes: int) -> None:
        _command("mount", "-o", f"remount,size={size_bytes}", str(self.folder))

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
