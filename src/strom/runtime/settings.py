"""The settings of a server: defaults, a TOML file, ``STROM_…`` variables, flags; the last one wins.

``load`` either returns settings that are all valid or raises InvalidSetting with the name, where the value
came from and what it should be; a name that does not exist gets the nearest one as a hint. Values are read
once: durations are milliseconds, sizes bytes, lists tuples, maps dicts. Secrets never show in ``repr``.

``reference_markdown`` is the page docs/settings.md, which ``make docs`` writes.
"""

from __future__ import annotations

import difflib
import tomllib
from collections.abc import Iterator, Mapping
from itertools import groupby
from os import PathLike
from pathlib import Path
from typing import Any

from strom.errors import InvalidSetting
from strom.runtime.setting import Setting, SettingKind, resolve
from strom.runtime.settings_list import SETTINGS

__all__ = ["SETTINGS", "Setting", "SettingKind", "Settings", "load", "reference_markdown"]

BY_NAME = {setting.name: setting for setting in SETTINGS}
BY_ENV = {setting.env: setting for setting in SETTINGS}
_BY_ARGUMENT = {variable.removeprefix("STROM_").lower(): setting for variable, setting in BY_ENV.items()}


class Settings(Mapping[str, Any]):
    """All settings by name, each with the source its value came from."""

    def __init__(self, values: Mapping[str, Any], sources: Mapping[str, str]) -> None:
        self._values = dict(values)
        self._sources = dict(sources)

    def __getitem__(self, name: str) -> Any:
        if name not in BY_NAME:
            raise _unknown(name, "the program")
        return self._values[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __repr__(self) -> str:
        shown = (f"{name}={BY_NAME[name].show(self[name])!r}" for name in self._sources)
        return f"Settings({', '.join(shown)})"

    def source(self, name: str) -> str:
        """Where a value came from: ``default``, a file, a variable or a flag."""
        return self._sources.get(name, "default")


def load(
    toml_path: str | PathLike[str] | None = None,
    environ: Mapping[str, str] | None = None,
    flags: Mapping[str, object] | None = None,
) -> Settings:
    """Read all settings. Flags may be spelled with underscores, as Python arguments are."""
    environ = environ or {}
    values = {setting.name: setting.read(setting.default) for setting in SETTINGS}
    sources: dict[str, str] = {}
    for setting, raw, source in [
        *_from_file(toml_path),
        *_from_environ(environ),
        *_from_flags(flags or {}),
    ]:
        values[setting.name] = _read(setting, raw, source, environ)
        sources[setting.name] = source
    return Settings(values, sources)


def _read(setting: Setting, raw: object, source: str, environ: Mapping[str, str]) -> Any:
    try:
        return setting.read(resolve(raw, environ))
    except ValueError as error:
        shown = "" if setting.secret else f" = {raw!r}"
        raise InvalidSetting(
            f"{setting.name}{shown} (from {source}): {error}", setting=setting.name, source=source
        ) from error


Found = tuple[Setting, object, str]


def _from_file(path: str | PathLike[str] | None) -> Iterator[Found]:
    if path is None:
        return
    try:
        tree = tomllib.loads(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise InvalidSetting(f"cannot read {path}: {error.strerror}", source=str(path)) from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InvalidSetting(f"{path} is not valid TOML: {error}", source=str(path)) from error
    for name, raw in _flattened(tree, ""):
        if name not in BY_NAME:
            raise _unknown(name, str(path))
        yield BY_NAME[name], raw, str(path)


def _flattened(tree: Mapping[str, object], prefix: str) -> Iterator[tuple[str, object]]:
    """TOML tables are dots in names, except where a setting is a map itself."""
    for key, value in tree.items():
        name = prefix + key
        if isinstance(value, Mapping) and name not in BY_NAME:
            yield from _flattened(value, name + ".")
        else:
            yield name, value


def _from_environ(environ: Mapping[str, str]) -> Iterator[Found]:
    for variable in sorted(environ):
        if variable in BY_ENV:
            yield BY_ENV[variable], environ[variable], variable
        elif variable.startswith("STROM_"):
            # Others may use the prefix too (the client's address), so only what looks like a slip is refused.
            near = difflib.get_close_matches(variable, BY_ENV, n=1, cutoff=0.9)
            if near:
                raise InvalidSetting(f"unknown variable {variable}; did you mean {near[0]}?", source=variable)


def _from_flags(flags: Mapping[str, object]) -> Iterator[Found]:
    for name, raw in flags.items():
        setting = BY_NAME.get(name) or _BY_ARGUMENT.get(name)
        if setting is None:
            raise _unknown(name, "a flag")
        yield setting, raw, "a flag"


def _unknown(name: str, source: str) -> InvalidSetting:
    near = difflib.get_close_matches(name.lower().replace("_", "-"), BY_NAME, n=1)
    hint = f"; did you mean {near[0]}?" if near else "; see docs/settings.md for all of them"
    return InvalidSetting(f"unknown setting {name} (from {source}){hint}", setting=name, source=source)


def reference_markdown() -> str:
    """The page docs/settings.md."""
    lines = [
        "# Settings",
        "",
        "A server takes its settings from a TOML file (`strom up --config strom.toml`), from environment",
        "variables and from flags (`--set name=value`); a later one wins over an earlier one. In TOML, a dot",
        'in a name may be a table: `[log.segment]` and `file-size = "256 mb"`. Durations are written `100 ms`,',
        "`30 s`, `5 min`, `1 h`, `7 d`; sizes `64 kb`, `100 mb`, `1 gb` (powers of 1024). `${env:NAME}` and",
        "`${file:path}` inside a value stand for what is found there.",
        "",
        "Written by `make docs` from the settings themselves.",
    ]
    for scope, group in groupby(SETTINGS, key=lambda setting: setting.scope):
        lines += ["", f"## {scope}", "", "| Name | Type | Default | Meaning |", "|---|---|---|---|"]
        lines += [_reference_row(setting) for setting in group]
    lines += [
        "",
        "The environment variable of a setting is `STROM_` and its name in capitals, with `_` for dots and",
        "dashes: `log.segment.file-size` is `STROM_LOG_SEGMENT_FILE_SIZE`.",
        "",
    ]
    return "\n".join(lines)


def _reference_row(setting: Setting) -> str:
    kind = (
        f"one of {', '.join(f'`{one}`' for one in setting.choices)}"
        if setting.choices
        else setting.kind.value
    )
    default = f"`{setting.default}`" if setting.default else "(empty)"
    return f"| `{setting.name}` | {kind} | {default} | {setting.doc} |"
