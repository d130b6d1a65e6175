"""What a server writes to standard error: one line per event, for people or (``logging.format = json``) for programs
that collect logs."""

from __future__ import annotations

import datetime as dt
import json
import logging
import sys
from typing import Literal

Form = Literal["text", "json"]


def write_log(form: Form, server: str | None = None) -> None:
    """Log in this format from now on. ``server``: this process's name, where several write to one place."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines(server) if form == "json" else TextLines(server))
    logging.basicConfig(level=logging.INFO, handlers=[handler], force=True)


class TextLines(logging.Formatter):
    """``2026-11-17 21:03:57 INFO created table fluss.events``, in UTC, without control characters."""

    def __init__(self, server: str | None = None) -> None:
        name = "" if server is None else f"{server}: "
        super().__init__(f"%(asctime)s %(levelname)s {name}%(message)s")

    def formatTime(self, record: logging.LogRecord, datefmt: str | None = None) -> str:
        """In UTC."""
        return f"{_moment(record):%Y-%m-%d %H:%M:%S}"

    def formatMessage(self, record: logging.LogRecord) -> str:
        """The line; a name chosen by a user (of a table, say) cannot start another line."""
        line = super().formatMessage(record)
        return line if line.isprintable() else "".join(map(_shown, line))


class JsonLines(logging.Formatter):
    """``{"time": "2026-11-17T21:03:57.1Z", "level": "info", "logger": "strom.server.process.up", "message": "…"}``."""

    def __init__(self, server: str | None = None) -> None:
        super().__init__()
        self._server = {} if server is None else {"server": server}

    def format(self, record: logging.LogRecord) -> str:
        """One object per line; a traceback is its ``error``."""
        entry: dict[str, object] = {
            "time": _moment(record).isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            "level": record.levelname.lower(),
            **self._server,
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info:
            entry["error"] = self.formatException(record.exc_info)
        return json.dumps(entry, ensure_ascii=False)


def _moment(record: logging.LogRecord) -> dt.datetime:
    return dt.datetime.fromtimestamp(record.created, dt.UTC)


def _shown(letter: str) -> str:
    return letter if letter.isprintable() else repr(letter)[1:-1]
