"""Paths of a warehouse that was moved."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from strom.model.file_uri import SCHEME, local_path


class Moved:
    """Maps paths below old folders to paths below new ones; other paths stay the same."""

    def __init__(self, before: Sequence[str], now: str) -> None:
        """Paths, not URIs. If one contains another, the longer one counts."""
        self._before = sorted((one for one in before if one != now), key=len, reverse=True)
        self._now = now

    def uri(self, uri: str) -> str:
        """A file's new name, in the spelling it had."""
        path = local_path(uri)
        if path is None:
            return uri
        for folder in self._before:
            if path == folder or path.startswith(folder + "/"):
                # A copy into the folder itself: paths within the copy are right already.
                if self._now.startswith(folder + "/") and (path + "/").startswith(self._now + "/"):
                    return uri
                head = uri[: len(uri) - len(path)] if uri.startswith(SCHEME) else ""
                return head + self._now + path.removeprefix(folder)
        return uri

    def anything(self, value: Any) -> Any:
        """The new value of something that may be a file's name."""
        return self.uri(value) if isinstance(value, str) else value
