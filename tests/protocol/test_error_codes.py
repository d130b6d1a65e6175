"""The number of an error on the wire: one to one, and for ever."""

from __future__ import annotations

from pathlib import Path

import pytest

from strom import errors
from strom.errors import StromError
from strom.protocol.error_codes import (
    CODES,
    MESSAGE_CHARACTERS_MAX,
    OWN_CODES_FROM,
    code_of,
    error_of,
    message_of,
)

PINNED = Path(__file__).with_name("error_codes.txt")

NEVER_TRAVEL = {
    errors.InvalidSetting,
    errors.FolderInUse,
    errors.PortInUse,
    errors.NewerFormat,
    errors.ForeignMetadata,
    errors.ConnectionClosed,
    errors.InvalidQuery,
    errors.ReadOnlyQuery,
    errors.NotInstalled,
    errors.LagUnknown,
    errors.NotCaughtUp,
    errors.StoreUnavailable,
    errors.StoreRefused,
}
AS_ANCESTOR = {errors.KernelsCompiling, errors.NotCoordinator, errors.RemoteLogUnavailable}
"""Travel as what makes the peer's clients, and ours, do the right thing."""
KINDS = {errors.Retry, errors.Refused, errors.Fenced, errors.Corrupt, errors.Closed}
ALL = {kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, StromError)}


def test_every_number_belongs_to_one_error() -> None:
    assert len(set(CODES.values())) == len(CODES)
    assert 0 not in CODES.values(), "0 means that there is no error"


def test_every_error_that_travels_has_a_number() -> None:
    assert set(CODES) == ALL - NEVER_TRAVEL - AS_ANCESTOR - KINDS


def test_no_number_ever_changed() -> None:
    pinned = dict(line.split() for line in PINNED.read_text().splitlines())
    assert {kind.__name__: str(code) for kind, code in CODES.items()} == pinned


@pytest.mark.parametrize("kind", sorted(CODES, key=CODES.__getitem__), ids=lambda kind: kind.__name__)
def test_an_error_arrives_as_what_it_was(kind: type[StromError]) -> None:
    sent = kind("what happened")
    found = error_of(code_of(sent), message_of(sent))
    assert type(found) is kind
    assert found.message == "what happened"


def test_a_wait_for_kernels_is_a_leader_to_wait_for_and_our_clients_know_it() -> None:
    sent = errors.KernelsCompiling(f"{errors.COMPILING}: 3 of 40")
    assert code_of(sent) == CODES[errors.LeaderNotAvailable]
    found = error_of(code_of(sent), message_of(sent))
    assert type(found) is errors.KernelsCompiling
    assert type(error_of(code_of(sent), "somebody is compiling")) is errors.LeaderNotAvailable


def test_a_coordinator_that_is_not_the_active_one_is_a_leader_to_look_for() -> None:
    """The peer has the number 65 for it, after which its clients give up."""
    assert code_of(errors.NotCoordinator("another took over")) == CODES[errors.LeaderNotAvailable]
    assert 65 not in CODES.values()


def test_an_error_without_a_number_travels_as_its_ancestor() -> None:
    class Local(errors.TableNotFound):
        """Known on one side only."""

    assert code_of(Local("gone")) == 7
    assert code_of(errors.Corrupt("odd")) == -1


def test_what_is_not_our_error_tells_only_its_kind() -> None:
    secret = ValueError("password=hunter2")
    assert code_of(secret) == -1
    assert message_of(secret) == "internal error (ValueError); the server's log has the details"


def test_a_long_sentence_is_cut() -> None:
    assert len(message_of(errors.InvalidTable("x" * 10_000))) == MESSAGE_CHARACTERS_MAX


def test_a_number_nobody_knows_is_still_an_error() -> None:
    found = error_of(4711, None)
    assert type(found) is StromError
    assert found.facts == {"code": 4711}


def test_the_peer_knows_every_number_below_ours() -> None:
    assert max(code for code in CODES.values() if code < OWN_CODES_FROM) <= 72
