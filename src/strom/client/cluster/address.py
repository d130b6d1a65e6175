"""Addresses of servers: ``host``, ``host:port``, ``[::1]:9123``, or several separated by commas."""

from __future__ import annotations

from typing import NamedTuple

from strom.errors import InvalidSetting

DEFAULT_PORT = 9123


class Address(NamedTuple):
    """A host and a port."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def parse_addresses(text: str) -> tuple[Address, ...]:
    """Parse a list of addresses; any one that answers is enough to find the others."""
    parts = [part.strip() for part in text.split(",")]
    found = tuple(_parse(part) for part in parts if part)
    if not found:
        raise InvalidSetting("an address is needed, for example localhost:9123", found=text)
    return found


def _parse(text: str) -> Address:
    host, port = _split(text)
    if not host or not port.isascii() or not port.isdigit() or not 0 < int(port) < 65536:
        raise InvalidSetting(
            f"{text!r} is no address: write host:port, for example localhost:9123", found=text
        )
    return Address(host, int(port))


def _split(text: str) -> tuple[str, str]:
    if text.startswith("["):
        host, _, rest = text[1:].partition("]")
        return host, rest[1:] if rest.startswith(":") else (str(DEFAULT_PORT) if not rest else "")
    if text.count(":") > 1:
        return text, str(DEFAULT_PORT)  # an IPv6 address without brackets cannot carry a port
    host, colon, port = text.partition(":")
    return host, port if colon else str(DEFAULT_PORT)
