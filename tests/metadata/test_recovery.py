"""Which of the two files is right: the whole table of decisions."""

from __future__ import annotations

import pytest

from strom.metadata.recovery import Action, Condition, decide, refusal

MISSING = Condition(found=False)


def whole(version: int) -> Condition:
    return Condition(found=True, version=version)


def broken(version: int = 0) -> Condition:
    return Condition(found=True, version=version, damage="a byte flipped")


@pytest.mark.parametrize(
    ("database", "copy", "action", "loud"),
    [
        (MISSING, MISSING, Action.CREATE, False),
        (whole(7), whole(7), Action.KEEP, False),
        (whole(6), whole(7), Action.ROLL_FORWARD, False),
        (whole(3), whole(7), Action.ROLL_FORWARD, True),
        (whole(7), whole(6), Action.REWRITE_COPY, False),
        (whole(7), MISSING, Action.REWRITE_COPY, True),
        (whole(7), broken(7), Action.REWRITE_COPY, True),
        (whole(7), broken(3), Action.REWRITE_COPY, True),
        (whole(0), MISSING, Action.REWRITE_COPY, True),
        (whole(6), broken(7), Action.REFUSE, True),
        (broken(), whole(7), Action.RESTORE, True),
        (MISSING, whole(7), Action.RESTORE, True),
        (broken(), broken(7), Action.REFUSE, True),
        (broken(), MISSING, Action.REFUSE, True),
        (MISSING, broken(7), Action.REFUSE, True),
    ],
)
def test_the_decision_never_goes_back(
    database: Condition, copy: Condition, action: Action, loud: bool
) -> None:
    decision = decide(database, copy)
    assert (decision.action, decision.loud) == (action, loud)
    assert bool(decision.notice) == (action not in (Action.CREATE, Action.KEEP))


def test_a_refusal_names_both_files_and_what_to_do() -> None:
    text = refusal("/d/metadata.db", "/d/metadata.copy", decide(broken(), broken(7)).notice).message
    for part in (
        "/d/metadata.db",
        "/d/metadata.copy",
        "a byte flipped",
        "backup",
        "docs/formats/metadata.md",
    ):
        assert part in text
