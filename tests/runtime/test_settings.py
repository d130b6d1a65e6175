"""Settings: where they come from, what is refused, and what is shown."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from strom.errors import InvalidSetting
from strom.runtime.settings import SETTINGS, load, reference_markdown


def write(folder: Path, text: str) -> Path:
    path = folder / "strom.toml"
    path.write_text(text, encoding="utf-8")
    return path


def test_every_default_is_valid_and_in_its_own_unit() -> None:
    settings = load()
    assert set(settings) == {setting.name for setting in SETTINGS}
    assert settings["bind.listeners"] == ("CLIENT://127.0.0.1:9123",)
    assert settings["log.segment.file-size"] == 1 << 30
    assert settings["log.segment.roll-age"] == 7 * 86_400_000
    assert settings["durability"] == "group"
    assert settings["security.sasl.plain.credentials"] == {}
    assert settings.source("durability") == "default"


def test_names_and_variables_are_one_to_one() -> None:
    assert len({setting.name for setting in SETTINGS}) == len(SETTINGS)
    assert len({setting.env for setting in SETTINGS}) == len(SETTINGS)


def test_a_later_source_wins(tmp_path: Path) -> None:
    path = write(tmp_path, 'durability = "os"\n[log.segment]\nfile-size = "2 mb"\nroll-age = 1000\n')
    environ = {"STROM_LOG_SEGMENT_FILE_SIZE": "3mb", "STROM_LOG_SEGMENT_ROLL_AGE": "5 s"}
    settings = load(path, environ, {"log.segment.roll-age": "6 s"})
    assert settings["durability"] == "os"
    assert settings["log.segment.file-size"] == 3 << 20
    assert settings["log.segment.roll-age"] == 6000
    assert [
        settings.source(name) for name in ("durability", "log.segment.file-size", "log.segment.roll-age")
    ] == [
        str(path),
        "STROM_LOG_SEGMENT_FILE_SIZE",
        "a flag",
    ]


def test_toml_may_use_its_own_types(tmp_path: Path) -> None:
    path = write(
        tmp_path,
        'bind.listeners = ["CLIENT://127.0.0.1:0", "SASL://0.0.0.0:9124"]\n'
        'security.protocol.map = { SASL = "sasl" }\n'
        '[security.sasl.plain.credentials]\nalice = "a=1,b"\n"bob.smith" = "p:w"\n'
        "[max]\nbucket.num = 12\n",
    )
    settings = load(path)
    assert settings["bind.listeners"] == ("CLIENT://127.0.0.1:0", "SASL://0.0.0.0:9124")
    assert settings["security.protocol.map"] == {"SASL": "sasl"}
    assert settings["security.sasl.plain.credentials"] == {"alice": "a=1,b", "bob.smith": "p:w"}
    assert settings["max.bucket.num"] == 12


def test_maps_and_lists_are_texts_in_variables() -> None:
    environ = {
        "STROM_SECURITY_PROTOCOL_MAP": "SASL:sasl, OPEN:plaintext",
        "STROM_SECURITY_SASL_PLAIN_CREDENTIALS": "alice=se:c=ret,bob=x",
        "STROM_ADVERTISED_LISTENERS": " CLIENT://a:1 , ,SASL://b:2",
    }
    settings = load(None, environ)
    assert settings["security.protocol.map"] == {"SASL": "sasl", "OPEN": "plaintext"}
    assert settings["security.sasl.plain.credentials"] == {"alice": "se:c=ret", "bob": "x"}
    assert settings["advertised.listeners"] == ("CLIENT://a:1", "SASL://b:2")


def test_a_value_may_stand_in_the_environment_or_in_a_file(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("from the file\n")
    path = write(
        tmp_path,
        f'[security.sasl.plain.credentials]\nalice = "${{env:ALICE}}"\nbob = "${{file:{tmp_path}/secret}}"\n',
    )
    settings = load(path, {"ALICE": "from the environment"})
    assert settings["security.sasl.plain.credentials"] == {
        "alice": "from the environment",
        "bob": "from the file",
    }


def test_references_stand_for_what_they_name_wherever_they_stand(tmp_path: Path) -> None:
    (tmp_path / "port").write_text("7\n")
    listeners = ["A://${env:WHERE}:${file:%s/port}", "B://${env:WHERE}:8"]
    path = tmp_path / "strom.toml"
    path.write_text(f"bind.listeners = {json.dumps(listeners)}\n".replace("%s", str(tmp_path)))
    assert load(path, {"WHERE": "here"})["bind.listeners"] == ("A://here:7", "B://here:8")
    text = {"bind.listeners": "A://${env:WHERE}:7,B://${env:WHERE}:8"}
    assert load(None, {"WHERE": "here"}, text)["bind.listeners"] == ("A://here:7", "B://here:8")
    credentials = {"security.sasl.plain.credentials": "ann=${env:WHERE}"}
    assert load(None, {"WHERE": "here"}, credentials)["security.sasl.plain.credentials"] == {"ann": "here"}


@pytest.mark.parametrize(
    ("raw", "found"),
    [("true", True), (" True ", True), ("FALSE", False), ("false", False), (True, True), (False, False)],
)
def test_true_and_false_are_read_as_they_are_written(raw: object, found: bool) -> None:
    assert load(None, {}, {"http.open-to-network": raw})["http.open-to-network"] is found


def test_values_are_shown_as_people_write_them() -> None:
    said = {
        "http.open-to-network": True,
        "log.segment.file-size": "2048 kb",
        "log.segment.roll-age": "3600 s",
        "bind.listeners": ["A://h:1", "B://h:2"],
        "http.port": 7,
    }
    shown = [
        f"{name}={value!r}"
        for name, value in zip(said, ("true", "2 mb", "1 h", "A://h:1,B://h:2", "7"), strict=True)
    ]
    assert repr(load(None, {}, said)) == f"Settings({', '.join(shown)})"


@pytest.mark.parametrize("raw", ["yes", "1", "", 1, 0])
def test_what_is_neither_true_nor_false_is_refused(raw: object) -> None:
    with pytest.raises(InvalidSetting, match="true or false"):
        load(None, {}, {"http.open-to-network": raw})


@pytest.mark.parametrize("reference", ["${env:NOT_SET}", "${file:/no/such/file}"])
def test_a_reference_to_nothing_is_refused(reference: str) -> None:
    with pytest.raises(InvalidSetting, match=r"data\.dir"):
        load(None, {}, {"data.dir": reference})


def test_flags_may_be_spelled_as_python_arguments() -> None:
    assert load(None, {}, {"log_segment_file_size": "2mb"})["log.segment.file-size"] == 2 << 20


@pytest.mark.parametrize(
    ("name", "near"),
    [
        ("log.segment.filesize", "log.segment.file-size"),
        ("Durability", "durability"),
        ("http_prot", "http.port"),
    ],
)
def test_an_unknown_name_gets_the_nearest_as_a_hint(name: str, near: str) -> None:
    with pytest.raises(InvalidSetting, match=f"did you mean {near}"):
        load(None, {}, {name: "1"})


def test_an_unknown_name_in_the_file_names_the_file(tmp_path: Path) -> None:
    path = write(tmp_path, "[log.segment]\nsize = 1\n")
    with pytest.raises(InvalidSetting) as caught:
        load(path)
    assert "log.segment.size" in str(caught.value)
    assert str(path) in str(caught.value)


def test_asking_for_a_setting_that_does_not_exist_is_refused() -> None:
    with pytest.raises(InvalidSetting):
        load()["no.such.thing"]


def test_a_misspelled_variable_is_refused_and_a_strange_one_is_left_alone() -> None:
    with pytest.raises(InvalidSetting, match="STROM_DURABILITY"):
        load(None, {"STROM_DURABILTY": "os"})
    assert load(None, {"STROM_ADDRESS": "localhost:9123", "OTHER": "x"})["durability"] == "group"


@pytest.mark.parametrize(
    ("name", "value", "advice"),
    [
        ("max.bucket.num", "many", "whole number"),
        ("max.bucket.num", "0", "at least 1"),
        ("max.bucket.num", True, "whole number"),
        ("http.port", 70_000, "at most 65535"),
        ("durability", "paper", "one of os, group"),
        ("shutdown.timeout", "soon", "a duration looks like"),
        ("log.segment.file-size", "big", "a size looks like"),
        ("log.segment.file-size", "3 gb", "at most"),
        ("security.protocol.map", "SASL", "must be a map"),
        ("security.protocol.map", 1, "must be a map"),
        ("bind.listeners", 1, "must be a list"),
        ("data.dir", ["a"], "must be a text"),
    ],
)
def test_a_value_that_is_not_allowed_is_refused_with_what_is(name: str, value: Any, advice: str) -> None:
    with pytest.raises(InvalidSetting) as caught:
        load(None, {}, {name: value})
    assert name in str(caught.value)
    assert advice in str(caught.value)
    assert caught.value.facts == {"setting": name, "source": "a flag"}


def test_a_file_that_is_missing_or_no_toml_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidSetting, match="No such file"):
        load(tmp_path / "none.toml")
    with pytest.raises(InvalidSetting, match="not valid TOML"):
        load(write(tmp_path, "durability = "))
    (tmp_path / "latin.toml").write_bytes(b'durability = "\xfc"')
    with pytest.raises(InvalidSetting, match="not valid TOML"):
        load(tmp_path / "latin.toml")


def test_passwords_are_never_shown() -> None:
    settings = load(None, {}, {"security.sasl.plain.credentials": "alice=hunter2", "durability": "os"})
    assert repr(settings) == "Settings(security.sasl.plain.credentials='alice=***', durability='os')"
    with pytest.raises(InvalidSetting) as caught:
        load(None, {}, {"security.sasl.plain.credentials": "hunter2"})
    assert "hunter2" not in str(caught.value)


def test_the_reference_names_every_setting_with_its_default() -> None:
    page = reference_markdown()
    for setting in SETTINGS:
        assert f"| `{setting.name}` |" in page
        assert setting.doc in page
