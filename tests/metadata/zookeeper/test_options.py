"""Where ZooKeeper is: wrong settings are refused at the start, in words."""

from __future__ import annotations

from pathlib import Path

import pytest

from strom.errors import InvalidSetting
from strom.metadata.zookeeper.options import ZooKeeperOptions, ZooKeeperTls, options_of
from strom.runtime.settings import load


@pytest.mark.parametrize(
    "addresses", ["", "a", "a:", "a:0", "a:70000", "a:1,", "a:1/chroot", "http://a:1", "::1:2181"]
)
def test_an_address_that_is_none_is_refused(addresses: str) -> None:
    with pytest.raises(InvalidSetting, match="host:port"):
        ZooKeeperOptions(addresses)


@pytest.mark.parametrize("addresses", ["a:1", "10.0.0.1:2181,zk-2.example:2182", "[::1]:2181", "a:1, b:2"])
def test_addresses_are_hosts_with_ports(addresses: str) -> None:
    assert ZooKeeperOptions(addresses).addresses == addresses


@pytest.mark.parametrize(
    "root", ["", "/", "strom", "/strom/", "/a//b", "/a/../b", "/zookeeper", "/zookeeper/x", "/a b"]
)
def test_a_root_that_is_none_is_refused(root: str) -> None:
    with pytest.raises(InvalidSetting, match="such as /strom"):
        ZooKeeperOptions("a:1", root=root)


def test_a_user_needs_a_password_and_has_no_colon() -> None:
    with pytest.raises(InvalidSetting, match="both"):
        ZooKeeperOptions("a:1", user="u")
    with pytest.raises(InvalidSetting, match="both"):
        ZooKeeperOptions("a:1", password="p")
    with pytest.raises(InvalidSetting, match="no colon"):
        ZooKeeperOptions("a:1", user="u:v", password="p")


def test_passwords_do_not_show() -> None:
    options = ZooKeeperOptions("a:1", user="u", password="hunter2", tls=ZooKeeperTls(key_password="hunter3"))
    assert "hunter" not in repr(options)


def test_the_options_come_from_the_settings(tmp_path: Path) -> None:
    for name in ("ca", "certificate", "key"):
        (tmp_path / f"{name}.pem").touch()
    flags = {
        "zookeeper.addresses": "a:1,b:2",
        "zookeeper.root": "/clusters/one",
        "zookeeper.session-timeout": "4 s",
        "zookeeper.request-timeout": "1500 ms",
        "zookeeper.user": "u",
        "zookeeper.password": "p",
        "zookeeper.tls": "true",
        "zookeeper.tls.key-password": "k",
        "zookeeper.tls.verify": "false",
        **{f"zookeeper.tls.{name}": str(tmp_path / f"{name}.pem") for name in ("ca", "certificate", "key")},
    }
    assert options_of(load(None, {}, flags)) == ZooKeeperOptions(
        "a:1,b:2",
        root="/clusters/one",
        session_timeout_s=4.0,
        request_timeout_s=1.5,
        user="u",
        password="p",
        tls=ZooKeeperTls(
            ca=str(tmp_path / "ca.pem"),
            certificate=str(tmp_path / "certificate.pem"),
            key=str(tmp_path / "key.pem"),
            key_password="k",
            verify=False,
        ),
    )


def test_by_default_nobody_logs_in_and_nothing_is_encrypted() -> None:
    assert options_of(load(None, {}, {"zookeeper.addresses": "a:1"})) == ZooKeeperOptions("a:1")


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        ({}, "zookeeper.addresses"),
        (
            {"zookeeper.addresses": "a:1", "zookeeper.tls": "true", "zookeeper.tls.ca": "/no/such"},
            "cannot be read",
        ),
    ],
)
def test_settings_that_lack_something_are_refused(flags: dict[str, object], words: str) -> None:
    with pytest.raises(InvalidSetting, match=words):
        options_of(load(None, {}, flags))


def test_a_certificate_needs_its_key(tmp_path: Path) -> None:
    (tmp_path / "own.pem").touch()
    flags = {"zookeeper.addresses": "a:1", "zookeeper.tls": "true"}
    with pytest.raises(InvalidSetting, match="needs its key"):
        options_of(load(None, {}, {**flags, "zookeeper.tls.certificate": str(tmp_path / "own.pem")}))
