"""Something that whoever runs a server or a cluster should know: what, how bad, and what to do about it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Literal, NamedTuple


class Concern(NamedTuple):
    """``bad``: something cannot be read or written, or was lost. ``note``: all of it works, with less in reserve."""

    level: Literal["bad", "note"]
    kind: str
    """One word for programs."""
    what: str
    advice: str


def as_data(concerns: Iterable[Concern]) -> list[dict[str, Any]]:
    """Plain data, so that it can be sent."""
    return [one._asdict() for one in concerns]
