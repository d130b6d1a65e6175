"""A server of the specification whose decisions ``strom.replication`` takes.

The disk, the network, clients and the oracle are the specification's. Calls go through modules, so that a test can
plant a bug in any function.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

from replication.driven import translation as to
from replication.specification.messages import Waiting
from replication.specification.node import Node
from replication.specification.records import Base, Mark, OpenGroup, Record, Stage
from strom.replication import base_copy, role
from strom.replication.bucket_entry import BucketEntry
from strom.replication.divergence import NO_EPOCH, BaseNeeded, EpochEnd, LogsAgree
from strom.replication.followership import BeginBase, CutTo, Followership, InstallBase, TakeBatches, TakePiece
from strom.replication.leadership import Leadership, NewerEpoch
from strom.replication.pulls import (
    AnswerContent,
    BaseListing,
    BasePiece,
    BatchesFrom,
    CopyFacts,
    PullAnswer,
    PullQuestion,
)
from strom.replication.registration import Registrations
from strom.replication.reports import Report
from strom.replication.role import FollowEpoch, LeadEpoch, NoCopy, Standing, StepDown
from strom.replication.stage_journal import JournalRead, StageJournal

DROPS_KEPT = 2
"""So few that followers have to begin again."""


class DrivenAnswer(NamedTuple):
    """An answer, and what travels beside it."""

    head: PullAnswer
    records: tuple[Record, ...] = ()
    marks: tuple[Mark, ...] = ()
    bodies: tuple[Stage, ...] = ()
    piece: Any = None


@dataclass
class DrivenLeading(Waiting):
    """What a leader keeps beside its ``Leadership``."""

    leadership: Leadership = None  # type: ignore[assignment]
    journal: StageJournal = None  # type: ignore[assignment]
    holds: dict[int, int] = field(default_factory=dict)

    @property
    def epoch(self) -> int:
        return self.leadership.epoch


def stage_name(stage_id: int) -> bytes:
    return b"%d" % stage_id


class DrivenNode(Node):
    """A server."""

    leading: DrivenLeading | None
    following: Followership | None

    @property
    def entry(self) -> BucketEntry:
        return to.entry_of(self.bucket)

    @property
    def registrations(self) -> Registrations:
        return {
            node.id: to.registration_of(node.id, self.view["server", node.id].value)
            for node in self.world.nodes
        }

    # --- roles -------------------------------------------------------------------------------------------------------

    def learn(self) -> None:
        self.world.store.refresh(self.view, None if self.world.calm else self.rng)
        entry, version = self.entry, self.view["bucket"].version
        standing = Standing(
            server_id=self.id,
            incarnation=self.incarnation,
            placement=self.disk.placement,
            losses=self.losses,
            led=self.epoch_led,
            heard=self.epoch_heard,
            leading=self.leading is not None,
            following=self.following.epoch if self.following else 0,
        )
        change = role.role_in(entry, standing)
        if change.forget_watermarks:
            self.losses, self.open = entry.losses, None
            self.rebuild()
        if change.drop_copy:
            self.drop_copy(entry.placement_of(self.id))
        self.disk.placement = entry.placement_of(self.id)
        self.take_role(change.step)
        if self.leading:
            self.leading.leadership.entry_read(entry, version)

    def take_role(self, step: role.RoleStep) -> None:
        if isinstance(step, LeadEpoch):
            self.lead(step.epoch)
        elif isinstance(step, FollowEpoch):
            if self.leading:
                self.step_down()
            self.follow(step.epoch)
        elif isinstance(step, StepDown | NoCopy):
            if self.leading:
                self.step_down()
            self.following = self.open = None

    def lead(self, epoch: int) -> None:
        self.following = None
        again = self.leading is not None
        self.cut_open_group()
        self.epoch_led = epoch
        self.leading = DrivenLeading(
            leadership=Leadership(
                self.entry,
                self.view["bucket"].version,
                to.member_of(self.id, self.disk, self.world.durability),
                self.world.promise,
                start=self.disk.end,
                high=self.high,
                stable=self.stable,
            ),
            journal=StageJournal(
                map(stage_name, self.disk.stages),
                durable=set(self.disk.stages) <= self.disk.synced_stages,
                drops_kept_max=DROPS_KEPT,
            ),
        )
        self.began_to_lead(again)

    def follow(self, epoch: int) -> None:
        self.open = None
        self.pieces: dict[int, Any] = {}
        self.following = Followership(
            epoch,
            to.member_of(self.id, self.disk, self.world.durability),
            self.world.promise,
            iter(self.world.fresh, 0),
        )

    def synced_journals(self) -> None:
        if self.leading:
            self.leading.journal.synced(self.leading.journal.end)
        if self.following:
            self.following.stages.synced(self.following.stages.position)

    # --- following ---------------------------------------------------------------------------------------------------

    def pull(self) -> None:
        following = self.following
        if following is None or following.epoch != self.bucket.epoch:
            return
        history = to.history_of(self.disk)
        before = history.epoch_before(self.disk.end)
        if self.open and self.open.records:
            before = self.open.records[-1].epoch
        facts = CopyFacts(
            self.write_end, NO_EPOCH if before is None else before, self.disk.end, self.disk.synced
        )
        self.world.send(self.id, self.bucket.leader, following.question(facts))

    def on_driven_answer(self, answer: DrivenAnswer) -> None:
        if self.following is None:
            return
        step = self.following.take(answer.head, to.history_of(self.disk))
        if isinstance(step, CutTo):
            self.world.count["diverging answers"] += 1
            self.truncate(step.offset)
        elif isinstance(step, BeginBase):
            self.world.count["copies begun"] += 1
            self.pieces = {}
        elif isinstance(step, TakePiece):
            self.pieces[step.piece.file] = answer.piece
        elif isinstance(step, InstallBase):
            self.install_pieces(step, answer.piece)
        elif isinstance(step, TakeBatches):
            for record in answer.records:
                self.take(record, answer.marks)
            self.raise_high(min(step.high, self.disk.end))
            assert answer.head.journal is not None
            self.mirror_stages(answer.head.journal, answer.bodies)

    def install_pieces(self, step: InstallBase, last: Any) -> None:
        if step.piece is not None:
            self.pieces[step.piece.file] = last
        epoch, writers, number = self.pieces[1]
        self.install(Base(step.offset, epoch, self.pieces[0], writers, number))

    def take(self, record: Record, marks: tuple[Mark, ...]) -> None:
        offset = self.write_end
        mark = next((one for one in marks if one.start <= offset < one.end), None)
        if mark is None:
            self.append([record])
            return
        if self.open is None:
            self.open = OpenGroup(mark.number, mark.start, mark.end)
        self.open.records.append(record)
        if self.write_end == mark.end:
            self.close_group()

    def mirror_stages(self, read: JournalRead, bodies: tuple[Stage, ...]) -> None:
        assert self.following is not None
        stages = self.disk.stages
        if read.begin == 0 and self.following.stages.position > 0:
            self.world.count["journals read from the beginning again"] += 1
        step = self.following.stages.take(read, set(map(stage_name, stages)))
        for body in bodies:
            if stage_name(body.id) in step.install:
                stages[body.id] = body
        for name in step.drop:
            del stages[int(name)]
        if self.world.durability == "os":
            self.following.stages.synced(self.following.stages.position)  # as durable as promised

    # --- leading -----------------------------------------------------------------------------------------------------

    def on_question(self, follower: int, question: PullQuestion) -> None:
        lead = self.leading
        if lead is None:
            return
        verdict = lead.leadership.asked(question, to.history_of(self.disk))
        if isinstance(verdict, NewerEpoch):
            self.world.count["leaders deposed by a pull"] += 1
            self.epoch_heard = max(self.epoch_heard, verdict.epoch)
            self.step_down()
        elif isinstance(verdict, BaseNeeded):
            self.send_base(follower, question)
        elif isinstance(verdict, EpochEnd):
            lead.holds.pop(follower, None)
            self.answer(follower, question, verdict)
        elif isinstance(verdict, LogsAgree):
            lead.holds.pop(follower, None)
            self.send_batches(follower, question)

    def answer(
        self,
        follower: int,
        question: PullQuestion,
        content: AnswerContent,
        *,
        beside: Any = None,
        **more: Any,
    ) -> None:
        assert self.leading is not None
        head = PullAnswer(
            epoch=self.leading.epoch,
            ask=question.ask,
            content=content,
            high=self.high,
            stable=self.stable,
            barrier=self.leading.leadership.barrier,
            losses=self.losses,
            journal=more.pop("journal", None),
        )
        self.world.send(self.id, follower, DrivenAnswer(head, piece=beside, **more))

    def send_base(self, follower: int, question: PullQuestion) -> None:
        """R18: the base stays as long as somebody copies it. Its files: the index, and all that is beside it."""
        assert self.leading is not None
        base = self.disk.base
        self.leading.holds[follower] = base.offset
        content = base_copy.next_of_base(question.copying, BaseListing(base.offset, (1, 1)), 1)
        beside = None
        if isinstance(content, BasePiece):
            beside = base.index if content.file == 0 else (base.epoch, base.writers, base.number)
        self.answer(follower, question, content, beside=beside)

    def send_batches(self, follower: int, question: PullQuestion) -> None:
        assert self.leading is not None
        disk, world = self.disk, self.world
        count = world.rng.randint(0, 3) if world.calm else world.rng.randint(0, 2)
        records = tuple(disk.log[question.at - disk.base.offset :][:count])
        behind = question.at + len(records)
        journal = self.leading.journal.read(question.journal, question.journal_began, 1)
        self.answer(
            follower,
            question,
            BatchesFrom(),
            records=records,
            marks=tuple(one for one in disk.marks if one.start < behind and question.at < one.end),
            journal=journal,
            bodies=tuple(disk.stages[int(one.stage)] for one in journal.entries if one.added),
        )

    def advance(self) -> None:
        lead = self.leading
        assert lead is not None
        journal = lead.journal
        stages = journal.end if self.world.durability == "os" else journal.durable
        own = Report(self.disk.end, self.disk.synced, stages, lead.leadership.barrier)
        found = lead.leadership.watermarks(own)
        self.raise_high(found.high)
        self.stable = found.stable
        self.answer_waiting(found.enough, found.stages, found.barrier)

    @property
    def serving(self) -> bool:
        return self.leading is not None and self.leading.leadership.serving

    def propose(self) -> None:
        lead, world = self.leading, self.world
        assert lead is not None
        proposal = lead.leadership.proposal(
            self.entry, self.registrations, journal_end=lead.journal.end, lagging=self.lagging()
        )
        if proposal is None:
            return
        version = self.view["bucket"].version
        lead.leadership.offered(proposal, version)
        grows = len(proposal.in_sync) >= len(self.entry.in_sync)
        world.count["proposed joins" if grows else "proposed shrinks"] += 1
        changed = to.bucket_of(proposal, world.durability)
        world.commit(self.id, {"bucket": version}, {"bucket": changed})

    def lagging(self) -> list[int]:
        """Anybody, at times; once the faults have stopped, who has not been heard of."""
        assert self.leading is not None
        found = []
        for one in self.entry.in_sync:
            silent = self.leading.leadership.report_of(one) is None
            if self.rng.random() < (0.05 if self.world.calm else 0.25) and (silent or not self.world.calm):
                found.append(one.server_id)
        return found

    def journal_adds(self, stage: Stage) -> None:
        assert self.leading is not None
        self.leading.journal.add(stage_name(stage.id))

    def journal_drops(self, stage: Stage) -> None:
        assert self.leading is not None
        self.leading.journal.drop(stage_name(stage.id))

    @property
    def journal_end(self) -> int:
        assert self.leading is not None
        return self.leading.journal.end

    def raise_barrier(self) -> int:
        assert self.leading is not None
        return self.leading.leadership.raise_barrier()
