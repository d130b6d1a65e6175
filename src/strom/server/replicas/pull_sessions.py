"""The questions of all followers, at the leader of their buckets.

A question is judged when it arrives: whether this server leads in its epoch, whether the logs agree (R8). What it
reports counts then (R5). If this server does not lead yet, the question waits a moment: followers often hear of an
election first.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from strom.errors import OffsetOutOfRange, StromError
from strom.model.bucket import BucketId
from strom.protocol.messages.replication import PullRequest, PullResponse, WireAnswer, WireQuestion
from strom.replication.divergence import BaseNeeded, EpochEnd, LogsAgree
from strom.replication.leadership import NewerEpoch
from strom.rpc.call import Answer
from strom.runtime.clock import Clock
from strom.runtime.tasks import Offload, Tasks
from strom.server.replicas.bucket_replica import BucketReplica
from strom.server.replicas.leading import LeadingBucket
from strom.server.replicas.pull_answers import (
    ALONE_BYTES_MAX,
    AT_ONCE_BYTES_MAX,
    INLINE_BYTES_MAX,
    AnswerPlan,
    StandingQuestion,
    copy_base,
    diverging,
    plan_answer,
    share_of,
    size_of_answer,
)
from strom.server.replicas.pull_session import PullSession, WaitingCall
from strom.server.replicas.wire import bucket_of, not_leader, question_of, refused

NOT_LED_S = 0.1
"""How long a question waits for this server to lead in its epoch."""
WAIT_S_MAX = 60.0
BETWEEN_CALLS_S = 1.0
"""How long after an answer the next call may take: a server that died in between ends no call."""

logger = logging.getLogger(__name__)

FindReplica = Callable[[BucketId], BucketReplica | None]


class PullSessions:
    """Answers pulls. Belongs to the loop."""

    def __init__(
        self,
        find: FindReplica,
        readers: Offload,
        tasks: Tasks,
        clock: Clock,
        small_calls_about: Callable[[], bool],
        *,
        bytes_max: int,
    ) -> None:
        self._find = find
        self._readers = readers
        self._tasks = tasks
        self._clock = clock
        self._small_calls_about = small_calls_about
        self._bytes_max = bytes_max
        self._sessions: dict[int, PullSession] = {}
        self._askers: dict[BucketId, dict[int, PullSession]] = {}
        """Whose questions about a bucket stand here, by server."""
        self._heard_at: dict[int, float] = {}
        self._stopping = False

    def heard_at(self, server_id: int) -> float:
        """When a server last asked for anything, or until when nothing was expected of it because a call waited."""
        heard = self._heard_at.get(server_id, float("-inf"))
        session = self._sessions.get(server_id)
        if session is None:
            return heard
        if session.waiting is None:
            return max(heard, session.answered_at)
        return min(self._clock.monotonic(), heard + session.waiting.wait_s)

    def asks(self, server_id: int) -> bool:
        """Whether questions of a server stand here: a call of it waits, or the next one is on its way."""
        session = self._sessions.get(server_id)
        if session is None:
            return False
        return session.waiting is not None or self._clock.monotonic() < session.answered_at + BETWEEN_CALLS_S

    def stop(self) -> None:
        """End all sessions: the server stops."""
        self._stopping = True
        for session in list(self._sessions.values()):
            session.end()
        self._sessions.clear()
        self._askers.clear()

    # --- a call ----------------------------------------------------------------------------------------------

    def pull(self, request: PullRequest) -> Answer:
        """Take new questions and reports; answer when there is something to say."""
        session = self._session(request)
        if session is None:
            return PullResponse(unknown_session=True)
        self._heard_at[session.server_id] = self._clock.monotonic()
        for gone in request.given_up:
            self._forget(session, bucket_of(gone))
        for question in request.questions:
            self._hear(session, question)
        wait_s = min(max(request.wait_ms, 0) / 1000, WAIT_S_MAX)
        call = WaitingCall(max(1, min(request.max_bytes, self._bytes_max)), wait_s)
        session.wait(call)
        call.promise.add_done_callback(lambda promise: self._ended(session, call, promise.cancelled()))
        return call.promise

    def _session(self, request: PullRequest) -> PullSession | None:
        """The session of a call; None if it is unknown, or the call is not the next one of it."""
        known = self._sessions.get(request.server_id)
        place = (request.incarnation, request.session)
        if request.number == 0 and not self._stopping:
            if (
                known is not None
                and known.incarnation == request.incarnation
                and request.session < known.number
            ):
                return None  # of an older connection, which took long
            if known is not None:
                self._end(known)
            known = PullSession(request.server_id, request.incarnation, request.session, self._pump)
            self._sessions[request.server_id] = known
        if known is None or place != (known.incarnation, known.number) or request.number != known.calls:
            return None
        known.calls += 1
        return known

    def _ended(self, session: PullSession, call: WaitingCall, disconnected: bool) -> None:
        if session.waiting is call:
            session.waiting, session.answered_at = None, self._clock.monotonic()
        if disconnected and self._sessions.get(session.server_id) is session:
            self._end(session)  # what was answered may be lost: the follower begins anew

    def _end(self, session: PullSession) -> None:
        del self._sessions[session.server_id]
        for bucket in list(session.standing):
            self._forget(session, bucket)
        session.end()

    def _forget(self, session: PullSession, bucket: BucketId) -> None:
        session.forget(bucket)
        askers = self._askers.get(bucket)
        if askers is not None and askers.get(session.server_id) is session:
            del askers[session.server_id]
            if not askers:
                del self._askers[bucket]

    # --- questions -------------------------------------------------------------------------------------------

    def _hear(self, session: PullSession, message: WireQuestion) -> None:
        bucket, question = bucket_of(message), question_of(message, session.server_id)
        standing = StandingQuestion(bucket, question, message.high)
        if question.ask:
            session.standing[bucket] = standing
            session.ready.pop(bucket, None)
            self._askers.setdefault(bucket, {})[session.server_id] = session
        self._judge(session, standing)

    def _judge(self, session: PullSession, standing: StandingQuestion) -> None:
        bucket, question = standing.bucket, standing.question
        replica = self._find(bucket)
        if replica is not None:
            replica.heard_of(question.epoch)  # deposes a leader of an older epoch (R2)
        leading = None if replica is None else replica.leading
        if replica is None or leading is None:
            if question.ask:
                asyncio.get_running_loop().call_later(NOT_LED_S, self._not_led, session, standing)
            return
        verdict = leading.asked(question, self._clock.monotonic())
        if not question.ask:
            return
        match verdict:
            case LogsAgree():
                if standing.has_news(leading):
                    session.news(bucket, urgent=True)
            case EpochEnd() as end:
                self._tell(session, standing, diverging(standing, leading.epoch, end))
            case BaseNeeded():
                self._tell(session, standing, copy_base(standing, leading.epoch, leading.tablet.start_offset))
            case NewerEpoch(epoch):
                self._tell(session, standing, not_leader(bucket, question, epoch))
            case _:
                self._tell(session, standing, not_leader(bucket, question, leading.epoch))

    def _tell(self, session: PullSession, standing: StandingQuestion, answer: WireAnswer) -> None:
        self._forget(session, standing.bucket)
        session.tell(answer, standing.bucket)

    def _not_led(self, session: PullSession, standing: StandingQuestion) -> None:
        """Nobody led here in time: the follower looks who does."""
        if session.standing.get(standing.bucket) is not standing:
            return
        replica = self._find(standing.bucket)
        if replica is None or replica.leading is None:
            epoch = -1 if replica is None else replica.epoch_known
            self._tell(session, standing, not_leader(standing.bucket, standing.question, epoch))

    # --- what buckets say ------------------------------------------------------------------------------------

    def moved(self, bucket: BucketId, urgent: bool) -> None:
        """There is something new in a bucket that is led here."""
        for session in list(self._askers.get(bucket, {}).values()):
            session.news(bucket, urgent=urgent)

    def led(self, bucket: BucketId) -> None:
        """This server leads a bucket from now on: judge the questions that wait for it."""
        for session in list(self._askers.get(bucket, {}).values()):
            self._judge(session, session.standing[bucket])

    def left(self, bucket: BucketId) -> None:
        """This server does not lead a bucket any more: its followers look who does."""
        replica = self._find(bucket)
        epoch = -1 if replica is None else replica.epoch_known
        for session in list(self._askers.get(bucket, {}).values()):
            standing = session.standing[bucket]
            self._tell(session, standing, not_leader(bucket, standing.question, epoch))

    # --- answering -------------------------------------------------------------------------------------------

    def _pump(self, session: PullSession) -> None:
        """Answer the waiting call with what is ready; what is long to read is read by a thread first."""
        call = session.waiting
        if call is None or not (session.ready or session.told):
            return
        plans, long = self._plans(session)
        if long:
            session.building = True
            self._tasks.spawn(self._answer_aside(session, plans, call.max_bytes), "read for a follower")
            return
        answers, session.told = session.told, []
        room, share = call.max_bytes, min(share_of(call.max_bytes, len(plans)), AT_ONCE_BYTES_MAX)
        for plan in plans:
            if room <= 0:
                self._put_back(session, plan)
                continue
            answer = self._read(session, plan, min(room, share))
            if answer is not None:
                room -= size_of_answer(answer)
                answers.append(answer)
        if answers:
            call.answer(answers)

    def _plans(self, session: PullSession) -> tuple[list[AnswerPlan], bool]:
        """What is to be answered, in the order of ``ready``; and whether some of it is long."""
        plans, long = [], False
        limit = INLINE_BYTES_MAX if self._small_calls_about() else ALONE_BYTES_MAX
        ready, session.ready = session.ready, {}
        for bucket in ready:
            standing = session.standing.get(bucket)
            leading = self._leading(bucket)
            if standing is None or leading is None or not standing.has_news(leading[0]):
                continue
            long = long or standing.is_long(leading[0], limit)
            plans.append(plan_answer(standing, *leading))
        return plans, long

    def _leading(self, bucket: BucketId) -> tuple[LeadingBucket, int] | None:
        replica = self._find(bucket)
        if replica is None or replica.leading is None:
            return None
        return replica.leading, replica.entry[0].losses

    async def _answer_aside(self, session: PullSession, plans: list[AnswerPlan], max_bytes: int) -> None:
        answers: list[WireAnswer] = []
        room, share = max_bytes, share_of(max_bytes, len(plans))
        try:
            for plan in plans:
                if room <= 0:
                    self._put_back(session, plan)
                    continue
                answer = await self._read_aside(session, plan, min(room, share))
                if answer is not None:
                    room -= size_of_answer(answer)
                    answers.append(answer)
        finally:
            session.building = False
            session.told += answers
            session.pump_soon()

    async def _read_aside(self, session: PullSession, plan: AnswerPlan, room: int) -> WireAnswer | None:
        replica = self._find(plan.standing.bucket)
        if replica is None:
            return None
        replica.slot.readers += 1
        try:
            answer = await self._readers.run(plan.read, room)
        except (StromError, OSError) as error:
            self._unreadable(session, plan, error)
            return None
        finally:
            replica.slot.readers -= 1
        return self._answered(session, plan, answer)

    def _read(self, session: PullSession, plan: AnswerPlan, room: int) -> WireAnswer | None:
        try:
            answer = plan.read(room)
        except (StromError, OSError) as error:
            self._unreadable(session, plan, error)
            return None
        return self._answered(session, plan, answer)

    def _answered(self, session: PullSession, plan: AnswerPlan, answer: WireAnswer) -> WireAnswer | None:
        """The answer, unless the follower asked something else meanwhile, or this server does not lead any more."""
        standing = plan.standing
        leading = self._leading(standing.bucket)
        if session.standing.get(standing.bucket) is not standing:
            return None
        if leading is None or leading[0].epoch != answer.leader_epoch:
            return None
        self._forget(session, standing.bucket)
        return answer

    def _put_back(self, session: PullSession, plan: AnswerPlan) -> None:
        session.ready[plan.standing.bucket] = None

    def _unreadable(self, session: PullSession, plan: AnswerPlan, error: BaseException) -> None:
        """The log cannot be read there. If it was cut or expired meanwhile, the question is judged anew."""
        standing = plan.standing
        if session.standing.get(standing.bucket) is not standing:
            return
        if isinstance(error, OffsetOutOfRange):
            self._judge(session, standing)
            return
        logger.error("bucket %s cannot be read for a follower: %s", standing.bucket, error)
        self._tell(
            session, standing, refused(standing.bucket, standing.question, plan.facts.leader_epoch, error)
        )
