"""One setting: its name, what its values are, and how a value is read from text or from TOML."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any

from strom.runtime.units import format_duration, format_size, parse_duration_ms, parse_size_bytes


class SettingKind(Enum):
    """What a setting's values are. Durations become milliseconds, sizes become bytes."""

    INT = "number"
    BOOL = "true or false"
    STR = "text"
    DURATION = "duration"
    BYTES = "size"
    ENUM = "one of"
    LIST = "list"
    MAP = "map"


@dataclass(frozen=True)
class Setting:
    """One row of the table in ``settings_list.py``. ``default`` is spelled as a user would write it."""

    name: str
    kind: SettingKind
    default: str
    doc: str
    scope: str
    minimum: int | None = None
    maximum: int | None = None
    choices: tuple[str, ...] = ()
    secret: bool = False

    @property
    def env(self) -> str:
        """The environment variable that sets it."""
        return "STROM_" + self.name.upper().replace(".", "_").replace("-", "_")

    def read(self, raw: object) -> Any:
        """The value of ``raw``, which is text or came from TOML. ``ValueError`` says what it should be."""
        value = _READERS[self.kind](raw)
        if isinstance(value, int) and not isinstance(value, bool):
            if self.minimum is not None and value < self.minimum:
                raise ValueError(f"it must be at least {self.show(self.minimum)}")
            if self.maximum is not None and value > self.maximum:
                raise ValueError(f"it must be at most {self.show(self.maximum)}")
        if self.choices and value not in self.choices:
            raise ValueError(f"it must be one of {', '.join(self.choices)}")
        return value

    def show(self, value: Any) -> str:
        """A value as a user would write it; secrets stay hidden."""
        if self.kind is SettingKind.DURATION:
            return format_duration(value)
        if self.kind is SettingKind.BYTES:
            return format_size(value)
        if self.kind is SettingKind.BOOL:
            return "true" if value else "false"
        if self.kind is SettingKind.LIST:
            return ",".join(value)
        if self.kind is SettingKind.MAP:
            return ",".join(f"{key}={'***' if self.secret else found}" for key, found in value.items())
        return "***" if self.secret and value else str(value)


def _read_int(raw: object) -> int:
    if isinstance(raw, int) and not isinstance(raw, bool):
        return raw
    if isinstance(raw, str) and re.fullmatch(r"\s*-?[0-9]{1,18}\s*", raw, re.ASCII):
        return int(raw)
    raise ValueError("it must be a whole number")


def _read_bool(raw: object) -> bool:
    if isinstance(raw, bool):
        return raw
    if isinstance(raw, str) and raw.strip().lower() in ("true", "false"):
        return raw.strip().lower() == "true"
    raise ValueError("it must be true or false")


def _read_str(raw: object) -> str:
    if isinstance(raw, str):
        return raw
    if isinstance(raw, (int, float)) and not isinstance(raw, bool):
        return str(raw)
    raise ValueError("it must be a text")


def _read_list(raw: object) -> tuple[str, ...]:
    if isinstance(raw, str):
        raw = raw.split(",")
    if isinstance(raw, (list, tuple)):
        return tuple(text for one in raw if (text := _read_str(one).strip()))
    raise ValueError('it must be a list: "a,b" or ["a", "b"]')


def _read_map(raw: object) -> Mapping[str, str]:
    if isinstance(raw, Mapping):
        return {str(key): _read_str(value) for key, value in raw.items()}
    if isinstance(raw, str):
        return dict(_read_pair(one) for one in raw.split(",") if one.strip())
    raise ValueError('it must be a map: "a=b,c=d" or a TOML table')


def _read_pair(text: str) -> tuple[str, str]:
    """``name=value``, or ``name:value`` as the peer writes listener maps; the value may hold either sign."""
    found = re.fullmatch(r"\s*([^=:]+?)\s*[=:](.*)", text, re.DOTALL)
    if found is None:
        raise ValueError('it must be a map: "a=b,c=d" or a TOML table')
    return found[1], found[2].strip()


def _quantity(parse: Callable[[str], int]) -> Callable[[object], int]:
    return lambda raw: parse(_read_str(raw))


_READERS: Mapping[SettingKind, Callable[[object], Any]] = {
    SettingKind.INT: _read_int,
    SettingKind.BOOL: _read_bool,
    SettingKind.STR: _read_str,
    SettingKind.DURATION: _quantity(parse_duration_ms),
    SettingKind.BYTES: _quantity(parse_size_bytes),
    SettingKind.ENUM: lambda raw: _read_str(raw).strip().lower(),
    SettingKind.LIST: _read_list,
    SettingKind.MAP: _read_map,
}

_REFERENCE = re.compile(r"\$\{(env|file):([^}]*)\}")


def resolve(raw: object, environ: Mapping[str, str]) -> object:
    """Replace ``${env:NAME}`` and ``${file:path}`` in texts, also inside lists and maps."""
    if isinstance(raw, str):
        return _REFERENCE.sub(lambda found: _referred(found[1], found[2], environ), raw)
    if isinstance(raw, Mapping):
        return {key: resolve(value, environ) for key, value in raw.items()}
    if isinstance(raw, list):
        return [resolve(value, environ) for value in raw]
    return raw


def _referred(kind: str, name: str, environ: Mapping[str, str]) -> str:
    if kind == "env":
        if name not in environ:
            raise ValueError(f"the environment variable {name} is not set")
        return environ[name]
    try:
        return Path(name).read_text(encoding="utf-8").rstrip("\r\n")
    except (OSError, UnicodeDecodeError) as error:
        raise ValueError(f"the file {name} cannot be read: {error}") from error
