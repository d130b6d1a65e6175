"""What a follower does with an answer."""

from __future__ import annotations

from itertools import count

import pytest

from strom.replication.base_copy import next_of_base
from strom.replication.divergence import EpochEnd, EpochHistory
from strom.replication.followership import (
    BeginBase,
    CutTo,
    Followership,
    InstallBase,
    Late,
    TakeBatches,
    TakePiece,
)
from strom.replication.member import CopyIdentity, CopyPromise, Member
from strom.replication.pulls import (
    NO_BASE,
    AnswerContent,
    BaseListing,
    BasePiece,
    BaseProgress,
    BatchesFrom,
    CopyFacts,
    PullAnswer,
    PullQuestion,
)
from strom.replication.stage_journal import StageJournal

HISTORY = EpochHistory(4, 12, [(2, 3), (5, 10)])
FACTS = CopyFacts(at=14, epoch_before=5, end=12, synced=11)


def _following() -> Followership:
    return Followership(6, Member(2, CopyIdentity("d", 1)), CopyPromise("group", 2), count(1))


def _answer(
    question: PullQuestion, content: AnswerContent | None = None, *, epoch: int = 6, barrier: int = 0
) -> PullAnswer:
    return PullAnswer(epoch, question.ask, content or BatchesFrom(), 13, 11, barrier, 0)


def test_a_question_says_where_the_copy_goes_on_and_what_it_has() -> None:
    follower = _following()
    question = follower.question(FACTS)
    assert (question.epoch, question.at, question.epoch_before) == (6, 14, 5)
    assert (question.report.end, question.report.synced) == (12, 11)
    assert question.copying is None


def test_only_the_answer_to_the_newest_question_is_taken_and_only_once() -> None:
    follower = _following()
    first, second = follower.question(FACTS), follower.question(FACTS)
    assert follower.take(_answer(first), HISTORY) == Late()
    assert follower.take(_answer(second, epoch=5), HISTORY) == Late()
    assert follower.take(_answer(second), HISTORY) == TakeBatches(13, 11)
    assert follower.take(_answer(second), HISTORY) == Late()
    nobody = PullQuestion(6, 0, follower.member, 0, -1, second.report, 0, 0)
    assert follower.take(_answer(nobody), HISTORY) == Late()


def test_a_barrier_is_echoed_in_the_next_question() -> None:
    follower = _following()
    follower.take(_answer(follower.question(FACTS), barrier=3), HISTORY)
    follower.take(_answer(follower.question(FACTS), barrier=2), HISTORY)
    assert follower.question(FACTS).report.barrier == 3


@pytest.mark.parametrize(
    ("leader", "cut"),
    [(EpochEnd(5, 11), 11), (EpochEnd(5, 99), 12), (EpochEnd(2, 8), 8), (EpochEnd(3, 10), 10)],
)
def test_a_follower_cuts_to_the_lower_end_of_the_epoch(leader: EpochEnd, cut: int) -> None:
    follower = _following()
    assert follower.take(_answer(follower.question(FACTS), leader), HISTORY) == CutTo(cut)


def test_a_follower_whose_log_does_not_reach_back_so_far_asks_for_a_base() -> None:
    follower = _following()
    assert follower.take(_answer(follower.question(FACTS), EpochEnd(1, 2)), HISTORY) == Late()
    assert follower.question(FACTS).copying == BaseProgress(NO_BASE, 0, 0)


def test_stages_are_reported_when_they_are_as_durable_as_promised() -> None:
    follower = _following()
    journal = StageJournal([b"a"], durable=True)
    follower.stages.take(journal.read(0, 0, 9), ())
    question = follower.question(FACTS)
    assert (question.report.stages, question.journal) == (0, 1)
    follower.stages.synced(1)
    assert follower.question(FACTS).report.stages == 1


# --- copying a base --------------------------------------------------------------------------------------------------


def _copy(follower: Followership, *bases: BaseListing, bytes_max: int = 4) -> list[object]:
    """Ask until the base is installed; the leader holds another base for each question, then the last."""
    follower.copying = BaseProgress()
    steps: list[object] = []
    held = list(bases)
    for _ in range(30):
        question = follower.question(FACTS)
        base = held.pop(0) if len(held) > 1 else held[0]
        steps.append(
            follower.take(_answer(question, next_of_base(question.copying, base, bytes_max)), HISTORY)
        )
        if isinstance(steps[-1], InstallBase):
            return steps
    raise AssertionError(steps)


def test_a_base_is_copied_file_by_file_and_empty_files_are_skipped() -> None:
    follower = _following()
    base = BaseListing(40, (0, 6, 0, 3, 0))
    assert _copy(follower, base) == [
        BeginBase(base),
        TakePiece(BasePiece(40, 1, 0, 4)),
        TakePiece(BasePiece(40, 1, 4, 2)),
        InstallBase(40, BasePiece(40, 3, 0, 3)),
    ]
    assert follower.question(FACTS).copying is None


def test_a_base_without_bytes_is_installed_at_once() -> None:
    assert _copy(_following(), BaseListing(40, ())) == [InstallBase(40, None)]
    assert _copy(_following(), BaseListing(40, (0, 0))) == [InstallBase(40, None)]


def test_another_base_begins_anew() -> None:
    old, new = BaseListing(40, (8,)), BaseListing(50, (2,))
    assert _copy(_following(), old, old, new) == [
        BeginBase(old),
        TakePiece(BasePiece(40, 0, 0, 4)),
        BeginBase(new),
        InstallBase(50, BasePiece(50, 0, 0, 2)),
    ]


@pytest.mark.parametrize(
    "piece",
    [
        BasePiece(50, 0, 0, 4),
        BasePiece(40, 1, 0, 4),
        BasePiece(40, 0, 4, 4),
        BasePiece(40, 0, 0, 9),
        BasePiece(40, 0, 0, 0),
    ],
)
def test_a_piece_that_does_not_fit_ends_the_copy(piece: BasePiece) -> None:
    follower = _following()
    follower.copying = BaseProgress()
    follower.take(_answer(follower.question(FACTS), BaseListing(40, (8, 8))), HISTORY)
    assert follower.take(_answer(follower.question(FACTS), piece), HISTORY) == Late()
    assert follower.question(FACTS).copying == BaseProgress()


def test_batches_end_a_copy() -> None:
    follower = _following()
    follower.copying = BaseProgress()
    follower.take(_answer(follower.question(FACTS), BaseListing(40, (8,))), HISTORY)
    assert follower.take(_answer(follower.question(FACTS)), HISTORY) == TakeBatches(13, 11)
    assert follower.question(FACTS).copying is None


@pytest.mark.parametrize(
    "asked",
    [
        None,
        BaseProgress(),
        BaseProgress(39, 0, 0),
        BaseProgress(40, 2, 0),
        BaseProgress(40, 0, 8),
        BaseProgress(40, -1, 0),
        BaseProgress(40, 0, -1),
    ],
)
def test_a_question_for_what_is_not_there_is_answered_with_the_listing(asked: BaseProgress | None) -> None:
    base = BaseListing(40, (8, 8))
    assert next_of_base(asked, base, 4) == base
