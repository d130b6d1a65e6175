"""The identity of this machine."""

from __future__ import annotations

_FILES = ("/etc/machine-id", "/var/lib/dbus/machine-id")
_LENGTH_MAX = 64


def machine_id() -> str | None:
    """The system's machine id; None if it has none, as in many containers."""
    for name in _FILES:
        try:
            with open(name, encoding="ascii") as file:
                found = file.read(_LENGTH_MAX).strip()
        except (OSError, UnicodeDecodeError):
            continue
        if found and found != "uninitialized":
            return found
    return None
