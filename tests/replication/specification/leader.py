"""What a leader does: for followers, for clients, and with decisions."""

from __future__ import annotations

from typing import Any

from replication.specification.messages import Answer, Pull, Report
from replication.specification.metadata import Bucket, Decisions, Member
from replication.specification.records import OpenGroup, Record, Stage
from replication.specification.server_copy import ServerCopy


class Leader(ServerCopy):
    """A server in the role of a leader."""

    # --- what followers ask ------------------------------------------------------------------------------------------

    def step_down(self) -> None:
        """Whoever waits is not answered, and asks the next leader."""
        if self.open:
            self.world.count["open groups cut by a deposed leader"] += 1
        self.world.count["leaders deposed"] += 1
        self.leading = self.open = None

    def on_pull(self, follower: int, pull: Pull) -> None:
        lead, disk, world = self.leading, self.disk, self.world
        if lead and pull.epoch > lead.epoch:  # R2: somebody knows of a newer leader
            world.count["leaders deposed by a pull"] += 1
            self.epoch_heard = max(self.epoch_heard, pull.epoch)
            self.step_down()
            return
        if lead is None or pull.epoch < lead.epoch:
            return
        if world.broken == "report-before-match":
            self.note(pull)
        answer = Answer(lead.epoch, pull.ask, "records", barrier=lead.barrier, high=self.high)
        below = pull.at < disk.base.offset
        matches = not below and pull.at <= disk.end and disk.epoch_before(pull.at) == pull.epoch_before
        if world.broken == "no-diverging-check":
            matches = not below and pull.at <= disk.end
        end_here = disk.end_of_epoch(pull.epoch_before)
        if pull.copying is not None or below or (not matches and end_here is None):
            piece = self.piece(follower, pull.copying)
            world.send(self.id, follower, answer._replace(kind="copy", piece=piece))
            return
        lead.holds.pop(follower, None)
        if not matches:  # R8: the record before ``at`` must be ours; then all before it is
            assert end_here is not None
            world.send(self.id, follower, answer._replace(kind="diverging", diverging=end_here))
            return
        self.note(pull)
        self.ship(follower, pull, answer)

    def ship(self, follower: int, pull: Pull, answer: Answer) -> None:
        lead, disk, world = self.leading, self.disk, self.world
        count = world.rng.randint(0, 3) if world.calm else world.rng.randint(0, 2)
        records = tuple(disk.log[pull.at - disk.base.offset :][:count])
        behind = pull.at + len(records)
        marks = tuple(one for one in disk.marks if one.start < behind and pull.at < one.end)
        if world.broken == "open-group-shipped" and self.open and behind == disk.end:
            records += tuple(self.open.records)
            for offset, record in enumerate(self.open.records, disk.end):
                world.named(record, offset)
        shipped = answer._replace(
            records=records,
            marks=marks,
            journal_end=len(lead.journal),
            journal=tuple(lead.journal[pull.journal : pull.journal + 1]),
        )
        world.send(self.id, follower, shipped)

    def note(self, pull: Pull) -> None:
        """R5: a report is of one identity, in one epoch, and only of a log that is a prefix of ours."""
        report = self.leading.reports.setdefault(pull.member, Report())
        report.end, report.synced = max(report.end, pull.end), max(report.synced, pull.synced)
        report.stages, report.barrier = max(report.stages, pull.stages), max(report.barrier, pull.barrier)

    def piece(self, follower: int, asked: tuple[int, int] | None) -> tuple[int, int, Any]:
        base = self.disk.base
        self.leading.holds[follower] = base.offset  # R18: the base stays as long as somebody copies it
        known = asked and (asked[0] == base.offset or self.world.broken == "copy-mixes-bases")
        number = asked[1] if asked and known else 0
        return base.offset, number, base.index if number == 0 else (base.epoch, base.writers, base.number)

    # --- watermarks, acknowledgements, the in-sync set ---------------------------------------------------------------

    def promised(self, report: Report) -> int:
        """R6: what counts is what the table promises of an acknowledged row."""
        unsynced = self.world.durability == "os" or self.world.broken == "hw-of-unsynced"
        return report.end if unsynced else report.synced

    def counted(self) -> frozenset[Member]:
        """R7: the largest in-sync set that the metadata may hold by now."""
        if self.world.broken == "hw-of-known-isr":
            return self.bucket.isr
        return self.bucket.isr.union(*(one.isr for one in self.leading.proposals))

    def own(self) -> Report:
        lead = self.leading
        stages = len(lead.journal) if self.world.durability == "os" else lead.journal_synced
        return Report(self.disk.end, self.disk.synced, stages, lead.barrier)

    def heard(self, member: Member) -> Report | None:
        reports: dict[Member, Report] = self.leading.reports
        if self.world.broken == "report-of-any-identity":
            same = [report for one, report in reports.items() if one[0] == member[0]]
            return max(same, key=lambda report: (report.synced, report.end), default=None)
        return reports.get(member)

    def advance(self) -> None:
        """R6: the high watermark is the lowest promise of the counted set; then whoever waits for it is answered."""
        lead, world = self.leading, self.world
        if world.broken == "proposal-forgotten" and world.rng.random() < 0.3:
            lead.proposals = []
        counted = self.counted()
        heard = [self.own() if member[0] == self.id else self.heard(member) or Report() for member in counted]
        promises = sorted(map(self.promised, heard))
        high, stable = promises[0], min(report.synced for report in heard)
        enough = len(counted) >= world.min_insync
        if world.broken == "hw-leader-end":
            high = self.disk.end
        if world.broken == "hw-of-majority":
            high = promises[(len(heard) - 1) // 2]
        if not enough:
            high = min(high, max(lead.start, self.high))  # R9: to the epoch's start only
        if world.broken == "ack-below-min-insync":
            enough = True
        self.raise_high(high)
        self.stable = max(self.stable, min(stable, self.high))
        sealed = min(report.stages for report in heard)
        if world.broken == "seal-acked-by-leader":
            sealed = len(lead.journal)
        echoed = min(report.barrier for report in heard)
        if world.broken == "strong-without-barrier":
            echoed = lead.barrier
        self.answer_waiting(enough, sealed, echoed)

    def answer_waiting(self, enough: bool, sealed: int, echoed: int) -> None:
        lead, world = self.leading, self.world
        for row in [one for one in lead.rows if enough and one[0] <= self.high]:
            lead.rows.remove(row)
            world.acknowledge(self, *row)
        for seal in [one for one in lead.seals if enough and one[0] <= sealed]:
            lead.seals.remove(seal)
            world.acknowledge_seal(self, seal[1])
        for lookup in [one for one in lead.lookups if one[0] <= echoed and self.serving]:
            lead.lookups.remove(lookup)  # R22: all who could have been elected still follow me
            world.looked_up(self, *lookup)

    @property
    def serving(self) -> bool:
        """R11: a reader without a memory is served once the watermark has reached the epoch's start."""
        early = self.world.broken == "read-before-epoch-start"
        return self.leading is not None and (self.high >= self.leading.start or early)

    def propose(self) -> None:
        """Join who has all of it; drop who lags. One commit on the version that was read."""
        lead, world, bucket, version = self.leading, self.world, self.bucket, self.view["bucket"].version
        if bucket.epoch != lead.epoch or bucket.leader != self.id:
            return
        for node, _ in bucket.replicas:
            if node == self.id:
                continue
            # As it is registered (R4).
            member = node, world.identity(self.view["server", node].value, bucket.placement(node))
            report = self.heard(member)
            # Compared in this epoch (R5).
            joins = self.in_sync(report) if report else world.broken == "join-without-report"
            if member not in bucket.isr and joins:
                # R9: replaces an older identity at once.
                isr = frozenset(one for one in bucket.isr if one[0] != node) | {member}
                self.offer(bucket._replace(isr=isr), version, "joins")
                return
        for member in sorted(bucket.isr):
            if member[0] == self.id or world.rng.random() >= (0.05 if world.calm else 0.25):
                continue
            if len(bucket.isr) - 1 >= world.min_insync or world.broken == "isr-below-min-insync":  # R9
                if world.calm and lead.reports.get(member):
                    continue
                self.offer(bucket._replace(isr=bucket.isr - {member}), version, "shrinks")
                return

    def in_sync(self, report: Report) -> bool:
        """R16: a follower joins with all that may be committed, as durable as promised; synced as far as a round of the
        lake may have been; and with all stages. Below the epoch's start nobody here knows either.
        """
        lead, broken = self.leading, self.world.broken
        start = 0 if broken == "join-at-hw" else lead.start
        promised, synced = self.promised(report), report.synced
        if broken == "join-unsynced":
            promised = synced = report.end
        whole = report.stages >= len(lead.journal) or broken == "join-without-stages"
        return promised >= max(self.high, start) and synced >= max(self.stable, start) and whole

    def offer(self, bucket: Bucket, version: int, what: str) -> None:
        lead = self.leading
        lead.proposals.append(bucket)  # R7: counts until the version has moved on, whatever we hear
        lead.proposed_on = version
        self.world.count["proposed " + what] += 1
        self.world.commit(self.id, {"bucket": version}, {"bucket": bucket})

    # --- what clients ask --------------------------------------------------------------------------------------------

    def on_write(self, writer: int, sequence: int, uid: int, key: int) -> None:
        """R20: one sequence is in the log once; a repeated one waits for the watermark as the first did."""
        lead = self.leading
        if lead is None:
            self.world.refused("not the leader")
            return
        if self.open:
            self.world.refused("a group is open")
            return
        known = dict(self.writers.get(writer, ()))
        if sequence in known:
            self.world.count["repeated batches recognised"] += 1
            if self.world.broken == "duplicate-acked-at-once":
                self.world.acknowledge(self, known[sequence] + 1, writer, sequence, uid)
                return
            lead.rows.append((known[sequence] + 1, writer, sequence, uid))
        elif sequence == max(known, default=-1) + 1:
            if self.world.deposed(self):
                self.world.count["rows appended by a deposed leader"] += 1
            self.append([Record(uid, lead.epoch, key, writer, sequence)])
            lead.rows.append((self.disk.end, writer, sequence, uid))
        else:
            self.world.refused("out of order")

    def on_seal(self, stage: Stage) -> None:
        """R14: sealed when every counted copy holds it; said again, it waits again."""
        lead = self.leading
        if lead is None:
            self.world.refused("not the leader")
            return
        if stage.id not in self.disk.stages:
            self.disk.stages[stage.id] = stage
            self.journal_adds(stage)
        lead.seals.append((self.journal_end, stage))

    def journal_adds(self, stage: Stage) -> None:
        self.leading.journal.append(("+", stage))

    def journal_drops(self, stage: Stage) -> None:
        self.leading.journal.append(("-", stage))

    @property
    def journal_end(self) -> int:
        return len(self.leading.journal)

    def on_lookup(self, key: int, expected: int) -> None:
        lead = self.leading
        if lead is None:
            self.world.refused("not the leader")
            return
        lead.lookups.append((self.raise_barrier(), key, expected))

    def raise_barrier(self) -> int:
        self.leading.barrier += 1
        return int(self.leading.barrier)

    # --- decisions ---------------------------------------------------------------------------------------------------

    def publish(self) -> None:
        """R17: each decision becomes one group, in the order of their numbers, from stages that all members hold."""
        lead, disk, world = self.leading, self.disk, self.world
        if self.open is None:
            for number, ids in self.decisions.pending:
                if number > disk.number:
                    self.begin_group(number, ids)
                    return
        elif world.rng.random() < 0.03 and not world.calm:
            self.open = None  # a write failed: it is taken back, nobody has seen it
            world.count["groups taken back"] += 1
        else:
            uid, key = self.open.todo.pop(0)
            self.open.records.append(Record(uid, lead.epoch, key))
            if not self.open.todo:
                self.close_group()

    def begin_group(self, number: int, ids: tuple[int, ...]) -> None:
        disk = self.disk
        rows = [row for one in ids if one in disk.stages for row in disk.stages[one].rows]
        self.world.stages_found(self, number, [one for one in ids if one not in disk.stages])
        self.open = OpenGroup(number, disk.end, -1, [], rows or [(-number, 0)])

    def settle(self) -> None:
        """Applied decisions leave the metadata; then their stages go. Undecided ones: floor, then pins, then away."""
        disk, decisions = self.disk, self.decisions
        ends = {mark.number: mark.end for mark in disk.marks}
        limit = disk.end if self.world.broken == "stage-dropped-at-append" else self.high
        applied = {n for n, _ in decisions.pending if n <= disk.number and ends.get(n, 0) <= limit}
        late = self.drop_stages(decisions, applied)
        committed = {number for number in applied if ends.get(number, 0) <= self.high}
        changed = None
        if committed:
            left = tuple(one for one in decisions.pending if one[0] not in committed)
            changed = decisions._replace(pending=left)
        elif late:
            changed = decisions._replace(floor=max(decisions.floor, *late, 0))
        if changed is not None:
            version = self.view["decisions"].version
            self.world.commit(self.id, {"decisions": version}, {"decisions": changed})

    def drop_stages(self, decisions: Decisions, applied: set[int]) -> list[int]:
        """R17: committed, not only appended. Returns deadlines of stages that nobody decided, at times."""
        late = []
        for stage in list(self.disk.stages.values()):
            listed = next((n for n, ids in decisions.pending if stage.id in ids), 0)
            if listed in applied or (not listed and decisions.floor >= stage.deadline):
                del self.disk.stages[stage.id]
                self.journal_drops(stage)
            elif not listed and self.rng.random() < 0.02:
                late.append(stage.deadline)
        return late
