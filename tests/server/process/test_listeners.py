"""Listeners are read from the settings, and an open door is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from strom.errors import InvalidSetting
from strom.runtime.settings import load
from strom.server.process.listeners import check_http, endpoints, is_loopback, tablet_endpoints
from strom.server.process.local import LocalServer


def read(**flags: str) -> list[tuple[str, str, int, str, int, bool]]:
    names = {"bind": "bind.listeners", "advertised": "advertised.listeners", "map": "security.protocol.map"}
    given = {names[key]: value for key, value in flags.items() if key in names}
    if "users" in flags:
        given["security.sasl.plain.credentials"] = flags["users"]
    return [
        (one.name, one.host, one.port, one.advertised_host, one.advertised_port, one.sasl)
        for one in endpoints(load(None, {}, given))
    ]


def test_the_default_is_loopback_without_a_password() -> None:
    assert read() == [("CLIENT", "127.0.0.1", 9123, "127.0.0.1", 9123, False)]


def test_a_listener_with_sasl_may_be_reached_from_elsewhere_and_advertises_its_own_address() -> None:
    found = read(
        bind="CLIENT://127.0.0.1:9123, SASL://0.0.0.0:9124",
        advertised="SASL://db.example:19124",
        map="SASL:sasl",
        users="alice=secret",
    )
    assert found == [
        ("CLIENT", "127.0.0.1", 9123, "127.0.0.1", 9123, False),
        ("SASL", "0.0.0.0", 9124, "db.example", 19124, True),
    ]


@pytest.mark.parametrize("host", ["0.0.0.0", "192.168.0.7", "db.example", "[::]"])
def test_an_open_door_is_refused(host: str) -> None:
    with pytest.raises(InvalidSetting, match="without a password"):
        read(bind=f"CLIENT://{host}:9123")


def test_sasl_without_users_is_refused() -> None:
    with pytest.raises(InvalidSetting, match="names no user"):
        read(map="CLIENT:sasl")


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ({"bind": "127.0.0.1:9123"}, "NAME://host:port"),
        ({"bind": "CLIENT://127.0.0.1"}, "NAME://host:port"),
        ({"bind": "CLIENT://127.0.0.1:99999"}, "NAME://host:port"),
        ({"bind": "CLIENT://127.0.0.1:1/x"}, "NAME://host:port"),
        ({"bind": "A://127.0.0.1:1,A://127.0.0.1:2"}, "twice"),
        ({"advertised": "OTHER://h:1"}, "names OTHER"),
        ({"map": "OTHER:sasl"}, "names OTHER"),
        ({"map": "CLIENT:tls"}, "plaintext or sasl"),
    ],
)
def test_what_cannot_be_meant_is_refused(flags: dict[str, str], message: str) -> None:
    with pytest.raises(InvalidSetting, match=message):
        read(**flags)


def test_flags_replace_host_and_port_of_the_first_listener() -> None:
    found = endpoints(load(None, {}, {}), host="localhost", port=0)
    assert (found[0].host, found[0].port) == ("localhost", 0)


def test_a_bound_port_is_the_advertised_one_unless_another_was_given() -> None:
    any_port = endpoints(load(None, {}, {}), port=0)[0]
    assert any_port.bound(4711).address == "127.0.0.1:4711"
    mapped = endpoints(load(None, {}, {"advertised.listeners": "CLIENT://db.example:80"}))[0]
    assert mapped.bound(9123).address == "db.example:80"


def test_tablet_servers_listen_beside_the_coordinator() -> None:
    two = endpoints(
        load(
            None,
            {},
            {
                "bind.listeners": "A://127.0.0.1:9123,B://127.0.0.1:9124",
                "advertised.listeners": "B://db.example:5001",
            },
        )
    )
    assert [(one.port, one.advertised_port) for one in tablet_endpoints(two, 0)] == [
        (9125, 9125),
        (9126, 5003),
    ]
    assert [one.port for one in tablet_endpoints(two, 1)] == [9127, 9128]
    free = endpoints(load(None, {}, {}), port=0)
    assert [one.port for one in tablet_endpoints(free, 3)] == [0]


def test_loopback_is_recognised() -> None:
    assert is_loopback("localhost")
    assert is_loopback("::1")
    assert is_loopback("127.8.9.1")
    assert not is_loopback("0.0.0.0")
    assert not is_loopback("localhost.example")


@pytest.mark.parametrize("host", ["0.0.0.0", "", "::", "192.168.1.5", "example.org"])
def test_pages_without_a_password_are_not_for_everybody_unless_somebody_says_so(host: str) -> None:
    with pytest.raises(InvalidSetting, match=r"http\.host.*http\.open-to-network"):
        check_http(load(None, {}, {"http.host": host}))
    check_http(load(None, {}, {"http.host": host, "http.open-to-network": "true"}))
    check_http(load(None, {}, {"http.host": host, "http.port": -1}))


@pytest.mark.parametrize("host", ["127.0.0.1", "::1", "localhost"])
def test_pages_for_this_machine_alone_need_no_word(host: str) -> None:
    settings = load(None, {}, {"http.host": host})
    check_http(settings)
    assert not settings["http.open-to-network"]


def test_a_server_does_not_start_with_pages_for_everybody(tmp_path: Path) -> None:
    with pytest.raises(InvalidSetting, match=r"http\.open-to-network"):
        LocalServer(tmp_path / "data", {"http.host": "0.0.0.0", "http.port": 0}).start()
    assert not (tmp_path / "data").exists()
