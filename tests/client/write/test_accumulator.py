"""Rows on their way: gathered, sent in order, sent again in order."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from strom.client.cluster.options import WriterOptions
from strom.client.write.accumulator import Accumulator, Outgoing
from strom.model.bucket import BucketId

A = BucketId(1, None, 0)
B = BucketId(1, None, 1)
OPTIONS = WriterOptions(batch_bytes_max=1024, linger_ms=100, memory_bytes_max=2**20)


def rows(count: int = 1) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict({"id": list(range(count))})


def add(
    accumulator: Accumulator, bucket: BucketId = A, *, size: int = 10, now: float = 0.0, form: int = 1
) -> list[Outgoing]:
    sealed = accumulator.add(bucket, rows(), size_bytes=size, form=form, now=now)
    for batch in sealed:
        batch.encoded = bytearray(b"x")
    return sealed


def new() -> Accumulator:
    return Accumulator(OPTIONS, writer_id=7)


def test_the_first_rows_leave_at_once() -> None:
    accumulator = new()
    [batch] = add(accumulator)
    assert accumulator.take(now=0.0) == [batch]
    assert (batch.writer_id, batch.sequence, batch.attempts) == (7, 0, 1)


def test_the_first_rows_of_a_patient_writer_wait_for_company() -> None:
    accumulator = Accumulator(replace(OPTIONS, patient=True), writer_id=7)
    assert add(accumulator, now=0.0) == []
    assert accumulator.seal_due(now=0.05) == []
    assert accumulator.next_due(now=0.05) == 0.1
    [batch] = accumulator.seal_due(now=0.1)
    assert batch.rows == 1
    assert [one.rows for one in add(accumulator, size=1024, now=0.2)] == [1], "full"


def test_rows_wait_for_company_while_a_batch_is_on_its_way() -> None:
    accumulator = new()
    [first] = add(accumulator)
    accumulator.take(now=0.0)
    assert add(accumulator, now=0.01) == []
    assert add(accumulator, now=0.02) == []
    assert accumulator.seal_due(now=0.05) == []
    accumulator.acknowledged(first)
    [second] = accumulator.seal_due(now=0.05)
    assert (second.rows, second.sequence) == (2, 1)


def test_waiting_rows_leave_when_they_waited_long_enough() -> None:
    accumulator = new()
    add(accumulator)
    accumulator.take(now=0.0)
    add(accumulator, now=1.0)
    assert accumulator.next_due(now=1.0) == 1.1
    assert accumulator.seal_due(now=1.09) == []
    assert len(accumulator.seal_due(now=1.1)) == 1


def test_a_full_batch_leaves_although_another_is_on_its_way() -> None:
    accumulator = new()
    add(accumulator)
    accumulator.take(now=0.0)
    for _ in range(5):
        assert add(accumulator, size=200) == []
    [full] = add(accumulator, size=200)
    assert full.size_bytes == 1000, "a batch does not grow past its size"
    for _ in range(3):
        add(accumulator, size=200)
    assert add(accumulator, size=224)[0].size_bytes == 1024


def test_a_large_piece_goes_alone_behind_the_rows_that_waited() -> None:
    accumulator = new()
    add(accumulator)
    accumulator.take(now=0.0)
    assert add(accumulator, size=10) == []
    small, large = add(accumulator, size=300)
    assert (small.size_bytes, large.size_bytes) == (10, 300)
    assert small.sequence < large.sequence


def test_rows_of_a_new_schema_begin_a_new_batch() -> None:
    accumulator = new()
    add(accumulator)
    accumulator.take(now=0.0)
    add(accumulator, form=1)
    [old] = add(accumulator, form=2)
    assert old.form == 1


def test_buckets_do_not_wait_for_each_other() -> None:
    accumulator = new()
    [a], [b] = add(accumulator, A), add(accumulator, B)
    assert accumulator.take(now=0.0) == [a, b]
    assert (a.sequence, b.sequence) == (0, 0)


def test_no_batch_is_sent_that_lies_five_behind_an_unacknowledged_one() -> None:
    accumulator = new()
    batches = [batch for _ in range(9) for batch in add(accumulator, size=1024)]
    taken = [batch for _ in range(9) for batch in accumulator.take(now=0.0)]
    assert taken == batches[:5]
    accumulator.acknowledged(batches[2])
    assert accumulator.take(now=0.0) == [], "the server must still know the first when it comes again"
    accumulator.acknowledged(batches[0])
    assert accumulator.take(now=0.0) == [batches[5]]


def test_a_batch_is_not_sent_before_the_one_ahead_of_it_is_encoded() -> None:
    accumulator = new()
    [first] = accumulator.add(A, rows(), size_bytes=1024, form=1, now=0.0)
    [second] = add(accumulator, size=1024)
    assert accumulator.take(now=0.0) == []
    first.encoded = bytearray(b"y")
    assert [accumulator.take(now=0.0), accumulator.take(now=0.0)] == [[first], [second]]


def test_after_a_delay_everything_unacknowledged_is_sent_again_in_order() -> None:
    accumulator = new()
    batches = [batch for _ in range(4) for batch in add(accumulator, size=1024)]
    for _ in range(3):
        accumulator.take(now=0.0)
    queue = accumulator.bucket(A)
    queue.delayed(batches[1], retry_at=5.0)
    assert accumulator.take(now=9.0) == [], "two answers are missing"
    queue.delayed(batches[0], retry_at=5.0)
    accumulator.acknowledged(batches[2])
    queue.retry_at = 5.0
    assert accumulator.take(now=4.9) == [], "the delay is not over"
    assert accumulator.next_due(now=4.9) == 5.0
    taken = [batch for _ in range(3) for batch in accumulator.take(now=5.0)]
    assert taken == [batches[0], batches[1], batches[3]]
    assert [batch.attempts for batch in taken] == [2, 2, 1]


def test_the_longest_delay_counts_whichever_answer_comes_last() -> None:
    """Batches behind one that was put off are refused for their order, without a pause of their own."""
    accumulator = new()
    batches = [batch for _ in range(2) for batch in add(accumulator, size=1024)]
    for _ in range(2):
        accumulator.take(now=0.0)
    queue = accumulator.bucket(A)
    queue.delayed(batches[0], retry_at=5.0)
    queue.delayed(batches[1], retry_at=0.0)
    assert accumulator.take(now=4.9) == []
    assert accumulator.next_due(now=4.9) == 5.0
    assert accumulator.take(now=5.0) == batches[:1]


def test_an_acknowledgement_ends_the_delay() -> None:
    accumulator = new()
    batches = [batch for _ in range(3) for batch in add(accumulator, size=1024)]
    for _ in range(2):
        accumulator.take(now=0.0)
    queue = accumulator.bucket(A)
    queue.delayed(batches[1], retry_at=5.0)
    accumulator.acknowledged(batches[0])
    assert queue.delays == 0
    assert accumulator.take(now=1.0) == [batches[1]], "the server takes rows again"


def test_one_disturbance_counts_once_however_many_batches_it_hits() -> None:
    accumulator = new()
    batches = [batch for _ in range(3) for batch in add(accumulator, size=1024)]
    for _ in range(3):
        accumulator.take(now=0.0)
    queue = accumulator.bucket(A)
    for batch in batches:
        queue.delayed(batch, retry_at=1.0)
    assert queue.delays == 1


def test_a_fenced_bucket_begins_again_from_zero_with_a_new_writer_id() -> None:
    accumulator = new()
    first, second, third = (batch for _ in range(3) for batch in add(accumulator, size=1024))
    for _ in range(3):
        accumulator.take(now=0.0)
    accumulator.acknowledged(first)
    queue = accumulator.bucket(A)
    assert queue.is_oldest(second)
    assert not queue.is_oldest(third)
    queue.fenced = True
    queue.delayed(second, retry_at=0.0)
    assert accumulator.fenced() == [], "one answer is missing"
    queue.delayed(third, retry_at=0.0)
    assert accumulator.take(now=1.0) == []
    [found] = accumulator.fenced()
    assert found.begin_again(99) == [second, third]
    assert [(batch.writer_id, batch.sequence) for batch in (second, third)] == [(99, 0), (99, 1)]
    assert add(accumulator, size=1024)[0].sequence == 2
    assert accumulator.take(now=1.0) == [second]


def test_a_flush_can_tell_when_everything_before_it_is_acknowledged() -> None:
    accumulator = new()
    [a], [b] = add(accumulator, A), add(accumulator, B)
    accumulator.take(now=0.0)
    mark = accumulator.last_number
    accumulator.acknowledged(b)
    assert accumulator.oldest_number() == a.number <= mark
    add(accumulator, B)
    accumulator.acknowledged(a)
    assert accumulator.oldest_number() > mark


def test_clearing_drops_every_batch_and_says_which() -> None:
    accumulator = new()
    add(accumulator)
    accumulator.take(now=0.0)
    add(accumulator)
    assert accumulator.outstanding_rows == 2
    assert [batch.rows for batch in accumulator.clear()] == [1, 1]
    assert accumulator.outstanding_rows == 0
    assert accumulator.take(now=0.0) == []


class FaultyServer:
    """One bucket as the server keeps it: expects the next sequence, remembers the last five."""

    def __init__(self) -> None:
        self.log: list[int] = []

    def receive(self, sequence: int) -> str:
        if sequence in self.log[-5:]:
            return "duplicate"
        if sequence != len(self.log):
            return "out of order"
        self.log.append(sequence)
        return "appended"


@settings(max_examples=100, deadline=None)
@given(st.lists(st.sampled_from(["add", "send", "answer", "lose request", "lose answer"]), max_size=60))
def test_any_pattern_of_lost_requests_and_answers_keeps_order_without_gaps_or_doubles(
    events: list[str],
) -> None:
    accumulator, server = new(), FaultyServer()
    added = 0
    pending: list[tuple[Outgoing, str]] = []

    def answer(outcome: str) -> None:
        batch, result = pending.pop(0)
        queue = accumulator.bucket(A)
        if outcome == "answer" and result != "out of order":
            accumulator.acknowledged(batch)
        else:
            assert result != "out of order" or not queue.is_oldest(batch), "never a real fence"
            queue.delayed(batch, retry_at=0.0)

    def step(event: str) -> None:
        nonlocal added
        if event == "add":
            added += len(add(accumulator, size=1024))
        elif event == "send":
            pending.extend((batch, server.receive(batch.sequence)) for batch in accumulator.take(now=0.0))
        elif event == "lose request":
            pending.extend((batch, "lost") for batch in accumulator.take(now=0.0))
            if pending and pending[-1][1] == "lost":
                batch, _ = pending.pop()
                accumulator.bucket(A).delayed(batch, retry_at=0.0)
        elif pending:
            answer(event)

    for event in events:
        step(event)
    for _ in range(4 * added + 20):
        step("answer")
        step("send")
    assert server.log == list(range(added))
    assert accumulator.outstanding() == []


def test_an_answer_concerns_the_loop_only_where_something_else_waits() -> None:
    accumulator = new()
    [first] = add(accumulator, size=600)
    assert accumulator.take_aside(first, now=0.0)
    [second] = add(accumulator, size=600)
    queue = accumulator.bucket(A)
    accumulator.acknowledged(first)
    assert not queue.waits(sending=second)
    assert queue.waits(sending=None)
    assert accumulator.take_aside(second, now=0.0)
    assert not queue.waits(sending=None)
    add(accumulator, size=10)
    assert queue.open is not None
    assert queue.waits(sending=None)


def test_a_batch_that_came_back_concerns_the_loop() -> None:
    accumulator = new()
    [first] = add(accumulator, size=600)
    [second] = add(accumulator, size=600)
    queue = accumulator.bucket(A)
    assert accumulator.take(now=0.0) == [first]
    queue.delayed(first, retry_at=1.0)
    assert queue.waits(sending=second)
