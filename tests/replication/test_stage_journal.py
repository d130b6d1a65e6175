"""A leader's stages reach its followers, whatever they held before and however often they begin again."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from strom.replication.stage_journal import StageJournal, StageMirror


def _read_all(journal: StageJournal, mirror: StageMirror, held: set[bytes], count_max: int = 2) -> None:
    while mirror.position < journal.end or mirror.position == 0:
        step = mirror.take(journal.read(mirror.position, mirror.began, count_max), held)
        held |= set(step.install)
        held -= set(step.drop)
        if journal.end == 0:
            return


def test_a_follower_first_adds_what_it_lacks_and_then_drops_what_the_leader_has_not() -> None:
    journal, mirror = StageJournal([b"a", b"b"], durable=True), StageMirror()
    held = {b"b", b"x"}
    step = mirror.take(journal.read(0, 0, 1), held)
    assert (step.install, step.drop) == ((b"a",), ())
    step = mirror.take(journal.read(1, mirror.began, 1), held | {b"a"})
    assert (step.install, step.drop) == ((), (b"x",))


def test_what_was_added_and_dropped_again_is_not_read_by_who_begins_later() -> None:
    journal = StageJournal([], durable=True)
    journal.add(b"a")
    journal.drop(b"a")
    journal.add(b"b")
    read = journal.read(0, 0, 10)
    assert [(one.stage, one.added) for one in read.entries] == [(b"a", False), (b"b", True)]
    assert (read.position, read.end) == (3, 3)


def test_a_seal_is_acknowledged_at_the_position_that_includes_it_also_when_it_is_said_again() -> None:
    journal = StageJournal([b"a"], durable=False)
    assert (journal.add(b"b"), journal.durable) == (2, 0)
    journal.synced(2)
    assert (journal.add(b"c"), journal.add(b"b"), journal.durable) == (3, 3, 2)
    assert StageJournal([b"a"], durable=True).durable == 1


def test_a_follower_that_missed_forgotten_drops_begins_again_and_gets_through() -> None:
    journal = StageJournal([b"a", b"b", b"c", b"d", b"e"], durable=True, drops_kept_max=1)
    mirror, held = StageMirror(), set[bytes]()
    held |= set(mirror.take(journal.read(0, 0, 3), held).install)
    for stage in (b"a", b"b", b"c"):
        journal.drop(stage)
    journal.add(b"f")
    _read_all(journal, mirror, held, count_max=1)
    assert held == {b"d", b"e", b"f"}


def test_who_begins_again_syncs_again() -> None:
    journal, mirror = StageJournal([b"a", b"b", b"c"], durable=True, drops_kept_max=0), StageMirror()
    mirror.take(journal.read(0, 0, 2), ())
    mirror.synced(2)
    journal.drop(b"a")
    mirror.take(journal.read(mirror.position, mirror.began, 1), (b"a", b"b"))
    assert (mirror.position, mirror.durable) == (2, 0), "from the beginning: the entry of b"


def test_an_answer_from_elsewhere_in_the_journal_changes_nothing() -> None:
    journal, mirror = StageJournal([b"a", b"b"], durable=True), StageMirror()
    step = mirror.take(journal.read(1, 1, 1), {b"x"})
    assert (step.install, step.drop, mirror.position) == ((), (), 0)


def test_only_what_was_read_before_a_sync_is_durable_after_it() -> None:
    journal, mirror = StageJournal([b"a", b"b"], durable=True), StageMirror()
    mirror.take(journal.read(0, 0, 1), ())
    began = mirror.position
    mirror.take(journal.read(1, mirror.began, 1), ())
    mirror.synced(began)
    assert (mirror.position, mirror.durable) == (2, 1)


STAGES = [b"%d" % number for number in range(6)]


@given(
    st.sets(st.sampled_from(STAGES)),
    st.sets(st.sampled_from([*STAGES, b"x", b"y"])),
    st.lists(
        st.one_of(
            st.tuples(st.just("toggle"), st.sampled_from(STAGES)),
            st.tuples(st.just("read"), st.integers(1, 3)),
            st.tuples(st.just("restart"), st.none()),
        ),
        max_size=40,
    ),
    st.integers(0, 3),
)
def test_a_mirror_never_lacks_what_it_has_read_and_ends_equal(
    leader: set[bytes], follower: set[bytes], actions: list[tuple[str, object]], kept: int
) -> None:
    """Whatever a follower has read up to, it holds every stage that the leader had there and still has."""
    journal, mirror = StageJournal(sorted(leader), durable=True, drops_kept_max=kept), StageMirror()
    added_at = {stage: number for number, stage in enumerate(sorted(leader), 1)}
    held = set(follower)
    for what, value in actions:
        if what == "toggle":
            assert isinstance(value, bytes)
            if value in added_at:
                journal.drop(value)
                del added_at[value]
            else:
                added_at[value] = journal.add(value)
        elif what == "restart":
            mirror = StageMirror()
        else:
            assert isinstance(value, int)
            step = mirror.take(journal.read(mirror.position, mirror.began, value), held)
            held |= set(step.install)
            held -= set(step.drop)
        assert {stage for stage, at in added_at.items() if at <= mirror.position} <= held
    _read_all(journal, mirror, held)
    assert held == set(added_at)
