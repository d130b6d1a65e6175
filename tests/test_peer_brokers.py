"""The brokers that benchmarks run beside Strom: how they are fetched, set up and shown; none is fetched or run here."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ElementTree
from pathlib import Path
from typing import Any

import pytest
from benchmarks import figures, fluss_process, kafka_process, peer_jars, peer_java
from benchmarks.__main__ import questions
from benchmarks.harness import Bench
from benchmarks.packed_rows import packed, unpacked
from benchmarks.plot import TIMES
from benchmarks.workload import small_batch


def java_that(folder: Path, script: str) -> str:
    """A program that stands where Java would."""
    path = folder / "java"
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return str(path)


def test_ivy_is_asked_for_the_broker_and_what_it_needs_to_run() -> None:
    for peer in peer_jars.PEERS:
        wanted = ElementTree.fromstring(peer_jars.ivy_file(peer)).findall("dependencies/dependency")
        assert [(one.get("org"), one.get("name"), one.get("rev")) for one in wanted] == [
            (one.group, one.name, one.version) for one in peer.modules
        ]
        assert all(one.get("conf") == "default->default" for one in wanted)


def test_a_mirror_is_named_by_ivys_own_settings(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(peer_jars, "java", lambda: "java")
    monkeypatch.delenv("IVY_SETTINGS", raising=False)
    assert "-settings" not in peer_jars.command(tmp_path / "ivy.xml", tmp_path, tmp_path)
    monkeypatch.setenv("IVY_SETTINGS", "/etc/ivy.xml")
    assert peer_jars.command(tmp_path / "ivy.xml", tmp_path, tmp_path)[-2:] == ["-settings", "/etc/ivy.xml"]


def test_jars_that_are_there_are_not_fetched_again(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    there = tmp_path / f"kafka-{peer_jars.KAFKA.version}"
    there.mkdir()
    monkeypatch.setattr(peer_jars, "java", lambda: java_that(tmp_path, "exit 1"))
    assert peer_jars.class_path(peer_jars.KAFKA, tmp_path) == f"{there}/*"


def test_a_fetch_that_fails_leaves_nothing_and_says_what_to_change(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(peer_jars, "java", lambda: java_that(tmp_path, "echo UNRESOLVED; exit 0"))
    with pytest.raises(peer_jars.NotFetched, match=r"(?s)IVY_SETTINGS.*UNRESOLVED"):
        peer_jars.fetched(peer_jars.FLUSS, tmp_path / "peers")
    assert list((tmp_path / "peers").iterdir()) == []


def test_what_is_fetched_is_there_whole(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    main = peer_jars.KAFKA.modules[0]
    script = (
        'for word do case "$word" in */jars/*) where=${word%/*};; esac; done; mkdir -p "$where"; '
        f'touch "$where/{main.name}-{main.version}.jar"'
    )
    monkeypatch.setattr(peer_jars, "java", lambda: java_that(tmp_path, script))
    found = peer_jars.fetched(peer_jars.KAFKA, tmp_path / "peers")
    assert [one.name for one in found.iterdir()] == [f"{main.name}-{main.version}.jar"]
    assert [one.name for one in (tmp_path / "peers").iterdir()] == [found.name]


def test_the_brokers_listen_on_the_loopback_only(tmp_path: Path) -> None:
    written = {
        **kafka_process.settings(tmp_path, 1001, 1002),
        **fluss_process.settings(tmp_path, 1003, 1004),
    }
    hosts = re.findall(r"(?://|@|^)([^/@:,\n]+):\d+", "\n".join(map(str, written.values())), re.MULTILINE)
    assert len(hosts) == 6
    assert set(hosts) == {peer_java.LOOPBACK}
    assert fluss_process.zookeeper_settings(tmp_path, 1)["clientPortAddress"] == peer_java.LOOPBACK


def test_a_settings_file_has_one_setting_a_line(tmp_path: Path) -> None:
    path = peer_java.written(tmp_path / "server.yaml", {"a.b": 1, "c": tmp_path}, ": ")
    assert path.read_text() == f"a.b: 1\nc: {tmp_path}\n"


def test_a_broker_that_ends_at_its_start_says_why(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / f"kafka-{peer_jars.KAFKA.version}").mkdir()
    monkeypatch.setattr(peer_jars, "home", lambda: tmp_path)
    monkeypatch.setattr(peer_jars, "java", lambda: java_that(tmp_path, "echo no such disk; exit 3"))
    broker = peer_java.JavaProcess(peer_jars.KAFKA, "kafka.Kafka", [], tmp_path)
    with pytest.raises(peer_java.NotStarted, match=r"(?s)Kafka ended with code 3.*no such disk"):
        peer_java.await_true(lambda: False, [broker])
    broker.end()


def test_ports_are_free_and_differ() -> None:
    ports = peer_java.free_ports(5)
    assert len(set(ports)) == 5
    assert not any(map(peer_java.accepts, ports))


@pytest.mark.parametrize("columns", [None, ("id", "price"), ("page", "flag", "at")])
def test_packed_rows_come_back(columns: tuple[str, ...] | None) -> None:
    batch = small_batch(500, start=77)
    messages = packed(batch)
    assert len(messages) == 500
    assert len({len(one) for one in messages}) == 1
    assert unpacked(messages, columns).equals(batch.select(list(columns)) if columns else batch)


def test_every_string_fits_into_its_packed_row() -> None:
    batch = small_batch(2000)
    found = unpacked(packed(batch), ["page"])
    assert set(found.column("page").to_pylist()) == set(batch.column("page").to_pylist())


def test_the_quick_form_of_everything_needs_no_broker() -> None:
    assert not [name for name in questions(quick=True) if name.startswith("peers")]
    assert (
        set(questions("peers", quick=True))
        == {name for name in questions() if name.startswith("peers")}
        != set()
    )


def test_ways_take_turns_after_a_warm_up(tmp_path: Path) -> None:
    calls: list[str] = []

    def way(name: str) -> float:
        calls.append(name)
        return float(len(calls))

    found = Bench(tmp_path).take_turns(
        {name: lambda name=name: way(name) for name in "abc"}, "rows/s", repeats=2
    )
    assert calls == list("abc" * 3)
    assert found["a"].values == (4.0, 7.0)
    assert found["c"].unit == "rows/s"


def test_the_comparison_says_where_the_brokers_are_better() -> None:
    section = figures.comparison_section(
        {"peers_append": kept(0.4), "peers_scan": kept(2.0, "full scan")}, set()
    )
    assert "Kafka 9.8.7" in section
    assert f"| append | 4 rows/s | Kafka, row messages: 10 rows/s | **0.4 {TIMES}** |" in section
    assert f"| full scan to Arrow | 20 rows/s | Kafka, row messages: 10 rows/s | 2 {TIMES} |" in section
    assert section.index("full scan to Arrow") < section.index("| append")


def kept(gain: float, words: str = "append 10 k-row batches") -> dict[str, Any]:
    """A run with one answer."""
    answer = {
        "question": f"{words}: Strom beside Kafka, a message per row",
        "figure": {"median": 10 * gain, "unit": "rows/s"},
        "reference": {"median": 10, "unit": "rows/s"},
        "notes": {"kafka": "9.8.7", "fluss": "0.1"},
    }
    return {"answers": [answer]}
