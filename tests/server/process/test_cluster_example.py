"""The example of a cluster on three machines: its settings, its units, its ports and its commands are real ones."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
from typer.testing import CliRunner

from strom.cli.main import app
from strom.metadata.zookeeper.options import options_of
from strom.runtime.settings import Settings, load
from strom.server.process.cluster_parts import ClusterPlace

ROOT = Path(__file__).parents[3]
EXAMPLE = ROOT / "examples" / "cluster"
OPERATING = (ROOT / "docs" / "operating.md").read_text()
MACHINES = ("db1", "db2", "db3")
UNITS = ("zookeeper", "coordinator", "tablet")


def unit(name: str, machine: str = "db1") -> str:
    """As systemd reads it on a machine."""
    return (EXAMPLE / f"strom-{name}.service").read_text().replace("%H", machine)


def words_of(name: str) -> list[str]:
    """What a unit starts, without the program."""
    (command,) = re.findall(r"^ExecStart=/opt/strom/bin/strom (.*)$", unit(name), re.MULTILINE)
    return shlex.split(command)


def settings_of(text: str, folder: Path, environment: dict[str, str] | None = None) -> Settings:
    config = folder / "strom.toml"
    config.write_text(re.sub(r"\$\{file:[^}]*\}", "password", text))
    return load(config, environment)


def role(name: str, machine: str, folder: Path) -> Settings:
    """The settings of a role on a machine: the file with what the unit adds."""
    environment = dict(re.findall(r"(STROM_[A-Z_]+)=(\S+)", unit(name, machine)))
    return settings_of((EXAMPLE / f"{machine}.toml").read_text(), folder, environment)


@pytest.mark.parametrize("name", UNITS)
def test_units_start_commands_that_exist_with_options_that_they_have(name: str) -> None:
    command, *words = words_of(name)
    assert command == name
    told = CliRunner().invoke(app, [command, "--help"])
    assert told.exit_code == 0
    options = [word for word in words if word.startswith("--")]
    assert options
    assert [one for one in options if one not in told.output.split()] == []


@pytest.mark.parametrize("machine", MACHINES)
def test_each_machine_has_a_number_of_its_own_and_takes_calls_where_the_others_look_for_it(
    machine: str, tmp_path: Path
) -> None:
    coordinator, tablet = (role(name, machine, tmp_path) for name in ("coordinator", "tablet"))
    assert tablet["server.id"] == 1 + MACHINES.index(machine)
    assert tablet["data.dirs"] == ("/disk1/strom", "/disk2/strom")
    assert options_of(tablet).addresses == options_of(coordinator).addresses
    places = [ClusterPlace.of(one) for one in (coordinator, tablet)]
    assert [one.inner_at(one.inner[1]) for one in places] == [(machine, 9300), (machine, 9301)]
    assert [one.address for found in places for one in found.endpoints] == [
        f"{machine}:9123",
        f"{machine}:9124",
    ]
    assert all(one.sasl for found in places for one in found.endpoints)
    assert coordinator["http.port"] != tablet["http.port"]


def test_the_machines_differ_in_nothing_but_number_and_rack(tmp_path: Path) -> None:
    found = [role("tablet", machine, tmp_path) for machine in MACHINES]
    assert len({one["server.rack"] for one in found}) == len(MACHINES)
    texts = {re.sub(r"(id|rack) = .*|on db\d", "", (EXAMPLE / f"{one}.toml").read_text()) for one in MACHINES}
    assert len(texts) == 1


def test_the_settings_that_the_page_shows_are_those_of_the_first_machine(tmp_path: Path) -> None:
    (shown,) = [
        text for text in re.findall(r"```toml\n(.*?)```", OPERATING, re.DOTALL) if "[cluster]" in text
    ]
    first = settings_of((EXAMPLE / "db1.toml").read_text(), tmp_path)
    page = settings_of(shown, tmp_path)
    names = ("metadata.store", "zookeeper.addresses", "cluster.secret-file", "server.id", "server.rack")
    for name in (*names, "data.dir", "data.dirs", "security.protocol.map"):
        assert page[name] == first[name]


def test_the_ports_of_the_firewall_are_those_that_somebody_listens_on(tmp_path: Path) -> None:
    table = re.findall(r"^\| ([\d, ]+) \|", (EXAMPLE / "README.md").read_text(), re.MULTILINE)
    opened = {int(one) for row in table for one in row.split(",")}
    roles = [role(name, "db1", tmp_path) for name in ("coordinator", "tablet")]
    listening = {ClusterPlace.of(one).inner[1] for one in roles} | {one["http.port"] for one in roles}
    listening |= {
        int(one.address.split(":")[1]) for found in roles for one in ClusterPlace.of(found).endpoints
    }
    keepers = " ".join(words_of("zookeeper"))
    listening |= {int(one) for one in re.findall(r":(\d+)", keepers)}
    listening |= {int(one.split(":")[1]) for one in str(roles[0]["zookeeper.addresses"]).split(",")}
    assert opened == listening


def test_what_the_example_installs_has_what_each_role_needs() -> None:
    (installed,) = re.findall(r"pip install '\.\[([\w,]+)\]'", (EXAMPLE / "README.md").read_text())
    assert {"server", "cluster", "spark"} <= set(installed.split(","))


@pytest.mark.parametrize("name", UNITS)
def test_units_start_their_process_again_however_often_it_ends(name: str) -> None:
    text = unit(name)
    assert re.search(r"^Restart=always$", text, re.MULTILINE)
    assert re.search(r"^RestartSec=\d+$", text, re.MULTILINE)
    assert re.search(r"^StartLimitIntervalSec=0$", text, re.MULTILINE)


def test_every_metric_of_the_table_of_alarms_is_one_that_servers_have() -> None:
    (table,) = re.findall(r"\| metric \| alarm \|.*?\n\n", OPERATING, re.DOTALL)
    rung = set(re.findall(r"`(strom_\w+)`", table))
    known = set(re.findall(r"`(strom_\w+)`", (ROOT / "docs" / "metrics.md").read_text()))
    assert len(rung) >= 20
    assert rung <= known


def test_the_settings_for_a_zookeeper_with_passwords_and_encryption_are_read_as_they_stand(
    tmp_path: Path,
) -> None:
    (shown,) = [text for text in re.findall(r"```toml\n(.*?)```", OPERATING, re.DOTALL) if "zk1" in text]
    found = settings_of(shown, tmp_path)
    assert (found["zookeeper.root"], found["zookeeper.user"]) == ("/strom-prod", "strom")
    assert found["zookeeper.tls"] is True
    assert found["zookeeper.tls.ca"] == "/etc/strom/zookeeper-ca.pem"
    assert found["zookeeper.tls.key"] == "/etc/strom/this-server.key"
