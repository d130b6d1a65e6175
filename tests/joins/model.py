"""A model of the delta join: two tables that change, their changelogs, micro-batches in parallel tasks, restarts.

Every ``yield`` is a point where another task goes on, or a table changes. An algorithm gets the changes of a batch and
writes the result; at the end the inputs rest, the last batch has seen everything, and the result has to be the join.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

KEYS, JOIN_KEYS, ROUNDS, BATCH = 6, 4, 12, 30
LEFT, RIGHT = "L", "R"
SIDES = (LEFT, RIGHT)

Image = tuple[Any, int]
"""The join key, and a value."""
Table = dict[int, Image]
Change = tuple[str, int, Image | None, Image | None]
"""The side, the key, the image before and after."""
Pair = tuple[Any, Any]
"""The keys of the rows that belong together; None for no row."""


def joined(left: Table, right: Table, how: str) -> dict[Pair, tuple[Any, Any, Any]]:
    """What the result should be."""
    by_key: dict[Any, list[tuple[int, int]]] = defaultdict(list)
    for other, (key, value) in right.items():
        by_key[key].append((other, value))
    found: dict[Pair, tuple[Any, Any, Any]] = {}
    used = set()
    for one, (key, value) in left.items():
        partners = by_key.get(key, []) if key is not None else []
        for other, their_value in partners:
            found[one, other] = (key, value, their_value)
            used.add(other)
        if not partners and how in ("left", "full"):
            found[one, None] = (key, value, None)
    if how in ("right", "full"):
        found |= {
            (None, other): (key, None, value) for other, (key, value) in right.items() if other not in used
        }
    return found


@dataclass
class World:
    """Two tables, their logs, and the result as somebody keeps it."""

    chance: random.Random
    tables: dict[str, Table] = field(default_factory=lambda: {side: {} for side in SIDES})
    logs: dict[str, list[Change]] = field(default_factory=lambda: {side: [] for side in SIDES})
    result: dict[Any, Any] = field(default_factory=dict)

    def mutate(self) -> None:
        """One change of one row: inserted, updated (its join key too) or deleted."""
        side = self.chance.choice(SIDES)
        table, key = self.tables[side], self.chance.randrange(KEYS)
        old = table.get(key)
        if old is not None and self.chance.random() < 0.35:
            del table[key]
            self.logs[side].append((side, key, old, None))
            return
        new = (self.chance.choice([*range(JOIN_KEYS), None]), self.chance.randrange(1000))
        table[key] = new
        self.logs[side].append((side, key, old, new))

    def look(self, side: str, key: Any) -> Table:
        """A lookup by the join key, as the table is now."""
        if key is None:
            return {}
        return {own: image for own, image in self.tables[side].items() if image[0] == key}

    def run(self, tasks: Iterable[Iterator[None]], *, live: bool) -> None:
        """Tasks in any order, step by step; while they are at work the tables may change."""
        left = list(tasks)
        while left:
            task = self.chance.choice(left)
            try:
                next(task)
            except StopIteration:
                left.remove(task)
            if live and self.chance.random() < 0.3:
                self.mutate()


Algorithm = Callable[[World, str, list[Change], int, bool], None]


# --- the obvious algorithm, which is wrong -------------------------------------------------------------------------


def pairwise(world: World, how: str, changes: list[Change], tasks: int, live: bool) -> None:
    """Each change looks up the other side, takes its old pairs back and writes its new ones."""
    shares: list[list[Change]] = [[] for _ in range(tasks)]
    for change in changes:
        shares[world.chance.randrange(tasks)].append(change)
    world.run([_pairwise(world, how, share) for share in shares], live=live)


def _pairwise(world: World, how: str, changes: list[Change]) -> Iterator[None]:
    for side, key, old, new in changes:
        other = RIGHT if side == LEFT else LEFT

        def pair(mine: Any, theirs: Any, side: str = side) -> Pair:
            return (mine, theirs) if side == LEFT else (theirs, mine)

        if old is not None:
            for theirs in [*world.look(other, old[0]), None]:
                world.result.pop(pair(key, theirs), None)
            yield
        if new is not None:
            partners = world.look(other, new[0])
            yield
            for theirs, image in partners.items():
                values = (new[1], image[1]) if side == LEFT else (image[1], new[1])
                world.result[pair(key, theirs)] = (new[0], *values)
                world.result.pop(pair(None, theirs), None)
            if not partners and how in (("left", "full") if side == LEFT else ("right", "full")):
                world.result[pair(key, None)] = (
                    new[0],
                    *((new[1], None) if side == LEFT else (None, new[1])),
                )
        yield


# --- the one that is used ------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Rules:
    """What the algorithm rests on; each can be broken."""

    old_images: bool = True
    """The join key before an update counts as touched."""
    key_in_result: bool = True
    """The join key is part of the result's key: a pair that moved to another key is another row."""
    null_groups: bool = True
    """A row whose join key is NULL is a group of its own; else all of them are one, and none is looked up."""
    deletes_absent: bool = True
    """What is not in the join any more is deleted."""
    at_least: bool = True
    """A lookup sees the changes of its batch."""
    settled: bool = True
    """The batch before is applied when the result is looked at."""
    trusts_inserts: bool = True
    """Where rows of a key were only inserted, the result is not looked at: nothing of it can be wrong."""
    doubts_paddings: bool = True
    """Unless an insert gives a partner to rows that have none: what stood for them has to go."""
    doubts_changes: bool = True
    """Unless a row was changed or deleted."""


SOUND = Rules()


def by_key(
    world: World, how: str, changes: list[Change], tasks: int, live: bool, rules: Rules = SOUND
) -> None:
    """The result's rows of every join key that was touched become the join of what both sides hold of it."""
    shares: list[dict[Hashable, bool]] = [{} for _ in range(tasks)]
    for side, key, old, new in changes:
        for image in (old, new) if rules.old_images else (new or old,):
            if image is not None:
                group = _group(side, key, image, rules)
                # Images of a key, even those of one change, may be in several tasks: each recomputes it.
                for share in world.chance.sample(shares, world.chance.randint(1, tasks)):
                    share[group] = share.get(group, False) or _doubtful(how, side, old, rules)
    before = dict(world.result)
    stale = {side: dict(table) for side, table in world.tables.items()}
    if not rules.at_least:
        for side, key, old, _ in reversed(changes):  # a replica that has not heard of this batch
            stale[side].pop(key, None) if old is None else stale[side].__setitem__(key, old)
    staged: list[Callable[[], None]] = []
    seen = before if rules.settled else {}
    world.run([_by_key(world, how, share, rules, seen, staged, stale) for share in shares], live=live)
    world.chance.shuffle(staged)
    for change in staged:  # the decision: all at once, tasks in any order
        change()


def _doubtful(how: str, side: str, old: Image | None, rules: Rules) -> bool:
    """Whether rows of the result may be wrong after this change: then they are looked at."""
    if not rules.trusts_inserts:
        return True
    if old is not None:
        return rules.doubts_changes
    return rules.doubts_paddings and how in (("right", "full") if side == LEFT else ("left", "full"))


def _group(side: str, key: int, image: Image, rules: Rules) -> Hashable:
    if image[0] is not None or not rules.null_groups:
        return ("key", image[0])
    return (side, key)


def _by_key(
    world: World,
    how: str,
    groups: dict[Hashable, bool],
    rules: Rules,
    seen: dict[Any, Any],
    staged: list[Callable[[], None]],
    stale: dict[str, Table],
) -> Iterator[None]:
    for group, doubtful in groups.items():
        assert isinstance(group, tuple)
        kind, key = group
        old = {name: row for name, row in seen.items() if doubtful and _group_of(name, row, rules) == group}
        yield
        sides = {}
        for side in SIDES:
            if not rules.at_least:
                found = {
                    own: image for own, image in stale[side].items() if kind == "key" and image[0] == key
                }
            elif kind == "key":
                found = world.look(side, key)
            else:
                image = world.tables[side].get(key) if kind == side else None
                found = {key: image} if image is not None and image[0] is None else {}
            sides[side] = found
            yield
        new = {
            ((group, *pair) if rules.key_in_result else pair): row
            for pair, row in joined(sides[LEFT], sides[RIGHT], how).items()
        }
        gone = [name for name in old if name not in new] if rules.deletes_absent else []
        written = {name: row for name, row in new.items() if old.get(name) != row}
        staged.append(lambda gone=gone, written=written: _apply(world, gone, written))  # type: ignore[misc]
        yield


def _apply(world: World, gone: list[Any], written: dict[Any, Any]) -> None:
    for name in gone:
        world.result.pop(name, None)
    world.result.update(written)


def _group_of(name: Any, row: tuple[Any, Any, Any], rules: Rules) -> Hashable:
    if rules.key_in_result:
        return name[0]
    left, right = name
    if row[0] is not None or not rules.null_groups:
        return ("key", row[0])
    return (LEFT, left) if left is not None else (RIGHT, right)


# --- a history -----------------------------------------------------------------------------------------------------


def ends_right(
    algorithm: Algorithm, how: str, seed: int, *, tasks: int = 3, restarts: bool = True, live: bool = True
) -> bool:
    """One random history; whether the result is the join in the end."""
    world = World(random.Random(seed))
    at = dict.fromkeys(SIDES, 0)
    for number in range(ROUNDS):
        for _ in range(world.chance.randrange(8)):
            world.mutate()
        last = number == ROUNDS - 1
        while True:
            end = {
                side: len(log) if last else min(len(log), at[side] + world.chance.randrange(BATCH))
                for side, log in world.logs.items()
            }
            changes = [change for side in SIDES for change in world.logs[side][at[side] : end[side]]]
            if restarts and world.chance.random() < 0.4:  # killed before its decision: the batch comes again
                lost = World(world.chance, world.tables, world.logs, dict(world.result))
                algorithm(lost, how, changes, tasks, live and not last)
            algorithm(world, how, changes, tasks, live and not last)
            at = end
            if not last or all(at[side] == len(world.logs[side]) for side in SIDES):
                break
    expected = joined(world.tables[LEFT], world.tables[RIGHT], how)
    named = {(name[-2], name[-1]): row for name, row in world.result.items()}
    return named == expected and len(named) == len(world.result)
