"""Whether what clients were told about one register can be explained: a search for an order (Wing and Gong, 1993).

A history is *linearizable* if every operation can be given one moment between its call and its answer so that, done one
after the other at these moments, each read gives what was written last. Operations on different keys are judged key
by key: a history is linearizable if and only if those of its keys are.

A write that was never answered may have happened at any moment after its call, or never. A read that was never
answered says nothing; leave it out.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Operation:
    """What one client did to the register, and when."""

    writes: bool
    value: Hashable
    """What was written, or read."""
    began: float
    ended: float | None
    """None: never answered."""
    by: str = ""

    def __str__(self) -> str:
        until = "never answered" if self.ended is None else f"{self.ended:.4f}"
        return f"{self.began:.4f} to {until}: {self.by} {'writes' if self.writes else 'reads'} {self.value}"


class _Moment:
    """A call or an answer, in a list from which both are taken while their operation is done."""

    __slots__ = ("after", "answer", "before", "number")

    def __init__(self, number: int, answer: _Moment | None) -> None:
        self.number = number
        self.answer = answer
        """Of a call; an answer itself has None."""
        self.before: _Moment
        self.after: _Moment | None = None

    def do(self) -> None:
        """Take the call and its answer out."""
        assert self.answer is not None
        self._take_out()
        self.answer._take_out()

    def undo(self) -> None:
        """Put both back, the last one first."""
        assert self.answer is not None
        self.answer._put_back()
        self._put_back()

    def _take_out(self) -> None:
        self.before.after = self.after
        if self.after is not None:
            self.after.before = self.before

    def _put_back(self) -> None:
        self.before.after = self
        if self.after is not None:
            self.after.before = self


def unexplained(operations: Sequence[Operation], initial: Hashable = None) -> str | None:
    """None if the history is linearizable; otherwise the longest part of it that is, and where it ends."""
    search = _Search(operations)
    if search.succeeds(initial):
        return None
    return search.told()


class _Search:
    def __init__(self, operations: Sequence[Operation]) -> None:
        read = {one.value for one in operations if not one.writes}
        self._operations = [one for one in operations if one.ended is not None or one.value in read]
        """Without writes that were never answered and whose value nobody read: those explain nothing."""
        self._head = _Moment(-1, None)
        self._furthest = (0, -1)
        """How many operations were explained at best, and the one whose answer could not be."""
        self._link()

    def _link(self) -> None:
        moments: list[tuple[float, int, _Moment]] = []
        for number, one in enumerate(self._operations):
            answer = _Moment(number, None)
            moments.append((one.began, 0, _Moment(number, answer)))
            moments.append((math.inf if one.ended is None else one.ended, 1, answer))
        last = self._head
        for _, _, moment in sorted(moments, key=lambda one: one[:2]):
            last.after, moment.before = moment, last
            last = moment

    def succeeds(self, state: Hashable) -> bool:
        """Try to do the operations one after the other; go back where an answer comes too early for its operation."""
        done = 0
        seen: set[tuple[int, Hashable]] = set()
        trail: list[tuple[_Moment, Hashable]] = []
        moment = self._head.after
        while moment is not None:
            if moment.answer is not None:
                step = (done | 1 << moment.number, self._followed(moment.number, state))
                if step[1] is _REFUSED or step in seen:
                    moment = moment.after
                    continue
                seen.add(step)
                trail.append((moment, state))
                done, state = step
                moment.do()
                moment = self._head.after
            elif self._operations[moment.number].ended is None:
                return True  # only writes are left that nobody has to explain
            else:
                self._furthest = max(self._furthest, (len(trail), moment.number))
                back = self._back(trail)
                if back is None:
                    return False
                for undone, _ in back:
                    done &= ~(1 << undone.number)
                moment, state = back[-1][0].after, back[-1][1]
        return True

    def _back(self, trail: list[tuple[_Moment, Hashable]]) -> list[tuple[_Moment, Hashable]] | None:
        """Undo everything down to the last write. A read that fits is never wrong where it is: it changes nothing."""
        back = []
        while trail:
            moment, state = trail.pop()
            moment.undo()
            back.append((moment, state))
            if self._operations[moment.number].writes:
                return back
        return None

    def _followed(self, number: int, state: Hashable) -> Hashable:
        one = self._operations[number]
        if one.writes:
            return one.value
        return state if one.value == state else _REFUSED

    def told(self) -> str:
        """How far it came."""
        count, number = self._furthest
        stuck = self._operations[number]
        near = [
            one
            for one in self._operations
            if one.began <= (stuck.ended or math.inf) and (one.ended or math.inf) >= stuck.began - NEAR_S
        ]
        lines = "\n".join(f"  {one}" for one in sorted(near, key=lambda one: one.began))
        return (
            f"{count} of {len(self._operations)} operations have an explanation; then there is none for\n"
            f"  {stuck}\namong\n{lines}"
        )


NEAR_S = 2.0
"""How much of what came before is shown."""
_REFUSED = object()
