"""The blocking calls hand on whatever they are given: no argument is lost or takes the place of another."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from strom.api.database import Database
from strom.api.table import Table

ELSEWHERE = {
    "Database.sql": "the query is read for the tables it names",
    "Database.table": "the name is read for where it leads",
    "Table.lookup_prefix": "the prefix is read for its columns",
}


class Given:
    """What stands for one argument."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __repr__(self) -> str:
        return f"<{self.name}>"


class Core:
    """Takes any call, and notes it."""

    def __init__(self, calls: list[tuple[tuple[Any, ...], dict[str, Any]]]) -> None:
        self._calls = calls

    def __getattr__(self, name: str) -> Core:
        if name.startswith("__"):
            raise AttributeError(name)
        return Core(self._calls)

    def __call__(self, *arguments: Any, **named: Any) -> Core:
        self._calls.append((arguments, named))
        return Core(self._calls)

    def __iter__(self) -> Iterator[Any]:
        return iter(())


class Session:
    def __init__(self) -> None:
        self.calls: list[tuple[tuple[Any, ...], dict[str, Any]]] = []
        self.face = self.target = Core(self.calls)

    @property
    def background(self) -> Session:
        return self

    def run(self, work: Any, *_: Any) -> Any:
        return asyncio.run(work) if inspect.iscoroutine(work) else Core(self.calls)

    def __getattr__(self, name: str) -> Core:
        return Core(self.calls)


class BareTable(Table):
    """A table of such a session."""

    _face = None  # type: ignore[assignment]
    _known = None  # type: ignore[assignment]

    def __init__(self, session: Session) -> None:
        self._session = session  # type: ignore[assignment]
        self._face = self._known = session.face  # type: ignore[assignment]


def methods() -> Iterator[tuple[str, Callable[..., Any]]]:
    for kind in (Database, Table):
        for name, method in inspect.getmembers(kind, inspect.isfunction):
            if not name.startswith("_") and len(inspect.signature(method).parameters) > 1:
                yield f"{kind.__name__}.{name}", method


def found_in(value: Any) -> Iterator[Given]:
    if isinstance(value, Given):
        yield value
    elif isinstance(value, dict):
        yield from found_in([*value, *value.values()])
    elif isinstance(value, list | tuple | set):
        for one in value:
            yield from found_in(one)
    elif hasattr(value, "__dataclass_fields__"):
        yield from found_in([getattr(value, field) for field in value.__dataclass_fields__])


@pytest.mark.parametrize("method", [name for name, _ in methods() if name not in ELSEWHERE])
def test_every_argument_reaches_the_core(method: str) -> None:
    call = dict(methods())[method]
    session = Session()
    on: Any = Database(session) if method.startswith("Database.") else BareTable(session)  # type: ignore[arg-type]
    arguments: list[Given] = []
    named: dict[str, Given] = {}
    parameters = list(inspect.signature(call).parameters.values())[1:]
    for one in parameters:
        if one.kind is one.KEYWORD_ONLY:
            named[one.name] = Given(one.name)
        else:
            assert one.kind is not one.VAR_KEYWORD
            arguments.append(Given(one.name))
    call(on, *arguments, **named)
    reached = {given.name for given in found_in(session.calls)}
    assert reached == {one.name for one in parameters}
    for _, keywords in session.calls:
        for name, value in keywords.items():
            assert not isinstance(value, Given) or value.name == name or name not in reached
