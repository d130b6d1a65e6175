"""Local files as URIs, without escaping: every character stands for itself, percent signs and blanks too.

Hadoop, PyIceberg, Polars and DuckDB read them that way: an escaped URI would name another file to them.
"""

from __future__ import annotations

SCHEME = "file:"
ENDS_PATH = "#?"
"""Characters not allowed in a local warehouse's path, because some readers end a URI's path there."""


def file_uri(path: str) -> str:
    """The URI of an absolute path."""
    return f"{SCHEME}//{path}"


def local_path(uri: str) -> str | None:
    """The path of ``file:///a/file``, of ``file:/a/file`` (Hadoop's form) or of a plain path; None for other URIs."""
    path = uri
    if uri.startswith(SCHEME):
        path = uri.removeprefix(SCHEME).removeprefix("//")  # no host follows
    return path if path.startswith("/") else None
