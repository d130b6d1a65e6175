"""Paths of a warehouse that lies elsewhere now."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from strom.model.file_uri import SCHEME, local_path


class Moved:
    """What lay below one of several folders lies below another one; everything else is where it was."""

    def __init__(self, before: Sequence[str], now: str) -> None:
        """Paths, not URIs. Of two that lie in each other the longer one counts."""
        self._before = sorted((one for one in before if one != now), key=len, reverse=True)
        self._now = now

    def uri(self, uri: str) -> str:
        """A file's name as it is now, in the spelling it had."""
        path = local_path(uri)
        if path is None:
            return uri
        for folder in self._before:
            if path == folder or path.startswith(folder + "/"):
                # A copy into the folder itself: what lies in the copy is named right already.
                if self._now.startswith(folder + "/") and (path + "/").startswith(self._now + "/"):
                    return uri
                head = uri[: len(uri) - len(path)] if uri.startswith(SCHEME) else ""
                return head + self._now + path.removeprefix(folder)
        return uri

    def anything(self, value: Any) -> Any:
        """A value that may be a file's name."""
        return self.uri(value) if isinstance(value, str) else value
