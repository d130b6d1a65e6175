"""A command's connection to the server: opened late, always closed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    from strom.api import Database


@dataclass(frozen=True)
class Connection:
    """Address and user, as the command line gave them."""

    server: str
    user: str | None
    password: str | None

    def __repr__(self) -> str:
        return f"Connection({self.server!r}, user={self.user!r})"


@contextmanager
def connected(context: typer.Context, database: str | None = None) -> Iterator[Database]:
    """The database of this command; closed, with everything written, when the block ends."""
    import strom
    from strom.model.table import DEFAULT_DATABASE

    connection = context.find_object(Connection)
    assert connection is not None
    with strom.connect(
        connection.server,
        user=connection.user,
        password=connection.password,
        database=database or DEFAULT_DATABASE,
    ) as found:
        yield found
