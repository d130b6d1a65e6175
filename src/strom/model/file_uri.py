"""Files of a disk as URIs. Every character stands for itself, percent signs and blanks as well.

So Hadoop, PyIceberg, Polars and DuckDB all read them: a URI that was escaped would name another file to them.
"""

from __future__ import annotations

SCHEME = "file:"
ENDS_PATH = "#?"
"""What a local warehouse cannot have in its name: to some readers a URI's path ends there."""


def file_uri(path: str) -> str:
    """The URI of an absolute path."""
    return f"{SCHEME}//{path}"


def local_path(uri: str) -> str | None:
    """The path that ``file:///a/file`` names, or ``file:/a/file`` as Hadoop has it, or a plain path; None: no file."""
    path = uri
    if uri.startswith(SCHEME):
        path = uri.removeprefix(SCHEME).removeprefix("//")  # a host would follow: there is none
    return path if path.startswith("/") else None
