"""What a follower does."""

from __future__ import annotations

from typing import Any

from replication.specification.messages import Answer, Pull
from replication.specification.records import Base, Mark, OpenGroup, Record
from replication.specification.server_copy import ServerCopy


class Follower(ServerCopy):
    """A server in the role of a follower."""

    def pull(self) -> None:
        following, bucket, disk = self.following, self.bucket, self.disk
        if following is None or following.epoch != bucket.epoch:
            return
        if not bucket.placement(self.id) or bucket.leader == self.id:
            return
        self.ask = self.world.fresh()
        end = self.write_end if self.world.broken == "hw-into-group" else disk.end
        copying = None if following.copying is None else (following.copying_at, len(following.copying))
        stages = following.journal if self.world.durability == "os" else following.journal_synced
        question = Pull(
            following.epoch,
            self.ask,
            self.member,
            self.write_end,
            self.epoch_before(),
            end,
            disk.synced,
            stages,
            following.journal,
            following.barrier,
            copying,
        )
        self.world.send(self.id, bucket.leader, question)

    def epoch_before(self) -> int:
        """Of the record before the next one that is asked for."""
        if self.open and self.open.records:
            return self.open.records[-1].epoch
        return self.disk.epoch_before(self.disk.end)

    def on_answer(self, answer: Answer) -> None:
        """R12: an answer is for the state it was asked from: this epoch, this question, once."""
        following = self.following
        if following is None or answer.epoch != following.epoch:
            return
        if answer.ask != self.ask and self.world.broken != "answer-to-another-question":
            return
        self.ask = 0
        if answer.kind == "copy":
            self.on_piece(*answer.piece)
            return
        following.copying = None
        if answer.kind == "diverging":
            self.on_diverging(*answer.diverging)
            return
        for mark in following.late_marks:
            if mark.end <= self.disk.end and mark.number > self.disk.number:
                self.disk.marks.append(mark)
        following.late_marks.clear()
        for record in answer.records:
            self.take(record, answer.marks)
        self.raise_high(min(answer.high, self.disk.end))
        following.barrier = max(following.barrier, answer.barrier)
        self.mirror(answer)

    def on_diverging(self, epoch: int, end: int) -> None:
        """R8: cut by epochs, never by a watermark."""
        mine = self.disk.end_of_epoch(epoch)
        self.world.count["diverging answers"] += 1
        if mine is None:
            self.following.copying, self.following.copying_at = {}, -1
        else:
            self.truncate(min(end, mine[1]))

    def take(self, record: Record, marks: tuple[Mark, ...]) -> None:
        """R13: the end of a follower, too, moves over a group in one step, and the mark goes with it."""
        offset = self.write_end
        mark = next((one for one in marks if one.start <= offset < one.end), None)
        if mark is None:
            self.append([record])
            return
        if self.world.broken in ("marks-late", "follower-shows-half-a-group"):
            self.append([record])
            if offset + 1 == mark.end:
                late = self.world.broken == "marks-late"
                (self.following.late_marks if late else self.disk.marks).append(mark)
            return
        if self.open is None:
            self.open = OpenGroup(mark.number, mark.start, mark.end)
        self.open.records.append(record)
        if self.write_end == mark.end:
            self.close_group()

    def mirror(self, answer: Answer) -> None:
        """R15: a follower first adds the stages it lacks, then drops those that the leader has not."""
        following, disk = self.following, self.disk
        if following.even_at < 0:
            dropping_first = self.world.broken == "stages-dropped-first"
            following.even_at = 0 if dropping_first else answer.journal_end
        for what, stage in answer.journal:
            following.journal += 1
            if what == "+":
                disk.stages[stage.id] = stage
                following.mirrored.add(stage.id)
            else:
                disk.stages.pop(stage.id, None)
                following.mirrored.discard(stage.id)
        if following.journal >= following.even_at and not following.even:
            following.even = True
            foreign = set(disk.stages) - following.mirrored
            self.world.count["stages dropped as the leader has them not"] += len(foreign)
            disk.stages = {i: stage for i, stage in disk.stages.items() if i in following.mirrored}
        self.drop_at_append()

    def drop_at_append(self) -> None:
        if self.world.broken != "stage-dropped-at-append":
            return
        for number, ids in self.decisions.pending:
            if number <= self.disk.number:
                for stage_id in ids:
                    self.disk.stages.pop(stage_id, None)

    def on_piece(self, at: int, number: int, content: Any) -> None:
        """R18: a base is copied piece by piece, all of one base; then the log from its offset."""
        following = self.following
        another = following.copying_at != at and self.world.broken != "copy-mixes-bases"
        if following.copying is None or another or number != len(following.copying):
            self.world.count["copies begun"] += 1
            following.copying, following.copying_at = {}, at
            if number:
                return
        following.copying[number], following.copying_at = content, at
        if len(following.copying) < 2:
            return
        index, (epoch, writers, newest) = following.copying[0], following.copying[1]
        if self.world.broken == "copy-without-writers":
            writers = {}
        if self.world.broken == "copy-without-number":
            newest = 0
        following.copying = None
        self.install(Base(at, epoch, index, writers, newest))
