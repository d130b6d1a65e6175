"""Where a server listens and which addresses clients get: ``bind.listeners``, ``advertised.listeners`` and SASL.

Several listeners have names; an answer given on one names the addresses of that one, so a client that came through SASL
is sent on through SASL. The tablet servers of one machine listen beside the coordinator: on ports that follow its own,
or on any free ones when it does the same.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from urllib.parse import urlsplit

from strom.errors import InvalidSetting
from strom.runtime.settings import Settings

PLAINTEXT = "plaintext"
SASL = "sasl"


@dataclass(frozen=True)
class Endpoint:
    """One listener: where it binds, and the address that clients get."""

    name: str
    host: str
    port: int
    advertised_host: str
    advertised_port: int
    sasl: bool

    def bound(self, port: int) -> Endpoint:
        """The same with the port that was actually taken (for port 0)."""
        advertised = port if self.advertised_port in (0, self.port) else self.advertised_port
        return replace(self, port=port, advertised_port=advertised)

    @property
    def address(self) -> str:
        """``host:port`` for clients."""
        return f"{self.advertised_host}:{self.advertised_port}"


def endpoints(
    settings: Settings, *, host: str | None = None, port: int | None = None
) -> tuple[Endpoint, ...]:
    """All listeners of the settings, checked. ``host`` and ``port`` (from flags) replace those of the first."""
    bound = [_parse(text, "bind.listeners") for text in settings["bind.listeners"]]
    if not bound:
        raise InvalidSetting("bind.listeners is empty; give at least one, e.g. CLIENT://127.0.0.1:9123")
    if host is not None or port is not None:
        name, old_host, old_port = bound[0]
        bound[0] = (name, old_host if host is None else host, old_port if port is None else port)
    names = [name for name, _, _ in bound]
    if len(set(names)) != len(names):
        raise InvalidSetting(f"bind.listeners names a listener twice: {', '.join(names)}")
    advertised = {name: (host, port) for name, host, port in _advertised(settings, names)}
    protocols = _protocols(settings, names)
    found = tuple(_endpoint(one, advertised, protocols) for one in bound)
    _refuse_open_doors(found)
    if any(one.sasl for one in found) and not settings["security.sasl.plain.credentials"]:
        raise InvalidSetting("a listener asks for SASL, but security.sasl.plain.credentials names no user")
    return found


def tablet_endpoints(coordinator: Sequence[Endpoint], index: int) -> tuple[Endpoint, ...]:
    """The listeners of the tablet server with this index, where it is a process of its own."""
    step = (index + 1) * len(coordinator)

    def beside(one: Endpoint) -> Endpoint:
        if one.port == 0:
            return replace(one, advertised_port=0)
        return replace(one, port=one.port + step, advertised_port=one.advertised_port + step)

    return tuple(beside(one) for one in coordinator)


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach an address."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _endpoint(
    one: tuple[str, str, int], advertised: Mapping[str, tuple[str, int]], protocols: Mapping[str, str]
) -> Endpoint:
    name, host, port = one
    shown_host, shown_port = advertised.get(name, (reachable(host), port))
    return Endpoint(name, host, port, shown_host, shown_port, sasl=protocols.get(name, PLAINTEXT) == SASL)


def reachable(host: str) -> str:
    """The default advertised address: for a listener bound to every address, this machine."""
    return "127.0.0.1" if host in ("", "0.0.0.0") else "::1" if host == "::" else host


def _advertised(settings: Settings, names: Sequence[str]) -> list[tuple[str, str, int]]:
    found = [_parse(text, "advertised.listeners") for text in settings["advertised.listeners"]]
    for name, _, _ in found:
        if name not in names:
            raise InvalidSetting(
                f"advertised.listeners names {name}, bind.listeners has {', '.join(names)}", listener=name
            )
    return found


def _protocols(settings: Settings, names: Sequence[str]) -> dict[str, str]:
    found = {name: str(protocol).lower() for name, protocol in settings["security.protocol.map"].items()}
    for name, protocol in found.items():
        if name not in names:
            raise InvalidSetting(
                f"security.protocol.map names {name}, bind.listeners has {', '.join(names)}", listener=name
            )
        if protocol not in (PLAINTEXT, SASL):
            raise InvalidSetting(
                f"security.protocol.map gives {name} the protocol {protocol}; it is plaintext or sasl",
                listener=name,
            )
    return found


def check_http(settings: Settings) -> None:
    """Refuse to show pages to everybody without a password, unless the operator asked for that by name."""
    host = settings["http.host"]
    if settings["http.port"] >= 0 and not is_loopback(host) and not settings["http.open-to-network"]:
        raise InvalidSetting(
            f"http.host = {host or 'every address'} would show tables and metrics to anyone who reaches it, without a "
            "password; leave it at 127.0.0.1 (and put a proxy with a password before it), or say "
            "http.open-to-network=true",
            setting="http.host",
        )


def _refuse_open_doors(found: Sequence[Endpoint]) -> None:
    for one in found:
        if not one.sasl and not is_loopback(one.host):
            raise InvalidSetting(
                f"listener {one.name} would let anyone on {one.host or 'every address'}:{one.port} in without a "
                f"password; bind it to 127.0.0.1, or set security.protocol.map={one.name}:sasl and "
                "security.sasl.plain.credentials",
                listener=one.name,
            )


def _parse(text: str, setting: str) -> tuple[str, str, int]:
    try:
        parts = urlsplit(text.strip())
        name, _, rest = text.strip().partition("://")
        port = parts.port
        host = parts.hostname or ""
    except ValueError:
        name, rest, port, host = "", "", None, ""
    if not name or not rest or port is None or parts.path or parts.query or parts.username is not None:
        raise InvalidSetting(
            f"{setting} holds {text!r}; a listener is written NAME://host:port, e.g. CLIENT://127.0.0.1:9123",
            setting=setting,
        )
    return name, host, port
