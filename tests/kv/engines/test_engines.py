"""Every merge engine compared with one change at a time, and the resulting changelog."""

from __future__ import annotations

import struct
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kv import fold_model as model
from strategies import values
from strom.errors import DeletionDisabled, InvalidConfig, InvalidTargets, RecordTooLarge, SchemaMismatch
from strom.kv.changelog.changelog import plan
from strom.kv.changes import Changes
from strom.kv.engines import bitmaps, engine_of
from strom.kv.engines import listing as listing_module
from strom.kv.engines.bitmaps import read_bitmap, write_bitmap
from strom.kv.engines.selection import comparable
from strom.model.aggregation import FUNCTIONS, check_aggregates, with_aggregates
from strom.model.schema import Schema

NUMBERS = (
    pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.float32(), pa.float64(), pa.decimal128(5, 2),
    pa.decimal128(18, 4), pa.decimal128(38, 10), pa.decimal128(38, 0),
)  # fmt: skip
ORDERED = (
    *NUMBERS, pa.string(), pa.date32(), pa.time32("s"), pa.time32("ms"), pa.time64("us"), pa.timestamp("s"),
    pa.timestamp("us"), pa.timestamp("ms", "UTC"),
)  # fmt: skip
ANY = (*ORDERED, pa.bool_(), pa.binary(), pa.binary(3), pa.list_(pa.int32()), pa.struct([("x", pa.int8())]))
KINDS: dict[str, tuple[pa.DataType, ...]] = {
    "sum": NUMBERS,
    "product": NUMBERS,
    "max": ORDERED,
    "min": ORDERED,
    "last_value": ANY,
    "last_value_ignore_nulls": ANY,
    "first_value": ANY,
    "first_value_ignore_nulls": ANY,
    "listagg": (pa.string(),),
    "string_agg": (pa.string(),),
    "bool_and": (pa.bool_(),),
    "bool_or": (pa.bool_(),),
    "count": (pa.int32(), pa.int64()),
}
PAIRS = [(function, kind) for function, kinds in KINDS.items() for kind in kinds]
KEYS = st.integers(0, 3)


def raw(batch: pa.RecordBatch) -> list[dict[str, Any]]:
    """Rows with times and timestamps as whole numbers: Python's have fewer digits."""
    columns = []
    for array in batch.columns:
        plain = pa.types.is_temporal(array.type)
        columns.append(
            array.view(pa.int32() if array.type.bit_width == 32 else pa.int64()) if plain else array
        )
    return list(pa.RecordBatch.from_arrays(columns, names=batch.schema.names).to_pylist())


@st.composite
def histories(draw: st.DrawFn, schema: pa.Schema, deletes: bool = True) -> tuple[Any, ...]:
    """Rows, deletes, keys, and the rows that were there before."""
    count = draw(st.integers(0, 12))
    keys = draw(st.lists(KEYS, min_size=count, max_size=count))
    gone = [deletes and draw(st.integers(0, 3)) == 0 for _ in range(count)]
    cells = {field.name: values(field.type, field.nullable) for field in schema if field.name != "id"}
    make = st.fixed_dictionaries(cells)
    rows = [{"id": key, **draw(make)} for key in keys]
    old = {key: {"id": key, **draw(make)} for key in draw(st.sets(KEYS))}
    plain = raw(pa.RecordBatch.from_pylist([*rows, *old.values()], schema=schema))
    return plain[:count], gone, keys, dict(zip(old, plain[count:], strict=True))


def same_changes(
    schema: Schema, properties: dict[str, str], history: tuple[Any, ...], steps: list[model.Step],
    targets: tuple[int, ...] | None = None,
) -> bool:  # fmt: skip
    """Whether the engine's changelog is that of the steps, in both forms; its positions have to hang together."""
    rows, deletes, keys, old = history
    arrow = schema.to_arrow()
    changes, before = model.changes_of(arrow, rows, deletes, keys, old, targets)
    engine = engine_of(schema, properties, targets)
    found = model.folded(engine, changes, before)
    found.images.validate(full=True)
    plain_before, plain_images = raw(before), raw(found.images)
    for image in ("FULL", "WAL"):
        planned = plan(changes, found, image)
        words = {1: "+I", 2: "-U", 3: "+U", 4: "-D"}
        sources = (plain_before, plain_images)
        log = [
            (words[kind], sources[source][row])
            for kind, source, row in zip(planned.kinds, planned.from_, planned.row, strict=True)
        ]
        expected = model.records(steps, image)
        assert planned.records == len(expected)
        check_positions(changes, planned)
        if not model.alike(log, expected):
            print(f"{image}: {log} instead of {expected}")
            return False
    return True


def check_positions(changes: Changes, planned: Any) -> None:
    newest: dict[int, int] = {}
    for position in range(planned.records):
        group = int(planned.group[position])
        arrival = int(planned.arrival[position])
        assert arrival in changes.order[changes.starts[group] : changes.starts[group + 1]]
        assert bool(planned.stored[position]) == (planned.kinds[position] != 2)
        if planned.stored[position]:
            assert planned.previous[position] == newest.get(group, -1)
            newest[group] = position
    assert planned.newest.tolist() == [newest.get(group, -1) for group in range(changes.groups)]
    assert planned.arrival.tolist() == sorted(planned.arrival.tolist())


def table(kinds: dict[str, pa.DataType], functions: dict[str, str] | None = None) -> Schema:
    fields = [pa.field("id", pa.int32(), False), *[pa.field(name, kind) for name, kind in kinds.items()]]
    schema = with_aggregates(Schema.from_arrow(pa.schema(fields), ["id"]), functions or {})
    check_aggregates(schema)
    return schema


PLAIN = table({"a": pa.int32(), "b": pa.string(), "c": pa.list_(pa.int32())})


@settings(max_examples=100, deadline=None)
@given(histories(PLAIN.to_arrow()), st.sampled_from(["allow", "ignore"]))
def test_the_last_row_wins(history: tuple[Any, ...], behavior: str) -> None:
    delete = (lambda before: None) if behavior == "allow" else None
    steps = model.follow(*history, lambda before, row: row, delete)
    assert same_changes(PLAIN, {"table.delete.behavior": behavior}, history, steps)


@settings(max_examples=100, deadline=None)
@given(
    histories(PLAIN.to_arrow()),
    st.sets(st.sampled_from(["a", "b", "c"])),
    st.sampled_from(["allow", "ignore"]),
)
def test_a_partial_update_touches_its_columns_only(
    history: tuple[Any, ...], names: set[str], behavior: str
) -> None:
    rows, deletes, keys, old = history
    sent = {"id", *names}
    rows = [{name: value if name in sent else None for name, value in row.items()} for row in rows]
    steps = model.follow(rows, deletes, keys, old, *partial(sent, PLAIN, behavior))
    targets = tuple(sorted(PLAIN.position(name) for name in sent))
    assert same_changes(
        PLAIN, {"table.delete.behavior": behavior}, (rows, deletes, keys, old), steps, targets
    )


def partial(sent: set[str], schema: Schema, behavior: str) -> tuple[Any, Any]:
    def upsert(before: model.Row | None, row: model.Row) -> model.Row:
        return {name: row[name] if name in sent else (before or row)[name] for name in schema.names}

    def delete(before: model.Row) -> model.Row | None:
        if all(before[name] is None for name in schema.names if name not in sent):
            return None
        return {name: None if name in sent and name != "id" else before[name] for name in schema.names}

    return upsert, delete if behavior == "allow" else None


@settings(max_examples=50, deadline=None)
@given(histories(PLAIN.to_arrow()))
def test_the_first_row_stays(history: tuple[Any, ...]) -> None:
    steps = model.follow(*history, lambda before, row: row if before is None else None, None)
    assert same_changes(PLAIN, {"table.merge-engine": "first_row"}, history, steps)


@pytest.mark.parametrize(
    "kind", [pa.int32(), pa.int64(), pa.timestamp("us"), pa.timestamp("ms", "UTC")], ids=str
)
def test_the_highest_version_stays(kind: pa.DataType) -> None:
    schema = table({"v": kind, "b": pa.string()})

    @settings(max_examples=40, deadline=None)
    @given(histories(schema.to_arrow()))
    def check(history: tuple[Any, ...]) -> None:
        def upsert(before: model.Row | None, row: model.Row) -> model.Row | None:
            if before is None or (row["v"] is not None and (before["v"] is None or row["v"] >= before["v"])):
                return row
            return None

        steps = model.follow(*history, upsert, None)
        properties = {"table.merge-engine": "versioned", "table.merge-engine.versioned.ver-column": "v"}
        assert same_changes(schema, properties, history, steps)

    check()


AGGREGATION = {"table.merge-engine": "aggregation"}


@pytest.mark.parametrize(
    ("function", "kind"), PAIRS, ids=[f"{function} of {kind}" for function, kind in PAIRS]
)
def test_an_aggregate_is_what_one_change_after_the_other_gives(function: str, kind: pa.DataType) -> None:
    parameters = {"fields.x.agg": function}
    delimiter = ","
    if function == "string_agg":
        delimiter = "; "
        parameters["fields.x.string_agg.delimiter"] = delimiter
    schema = table({"x": kind, "other": pa.string()}, parameters)
    combine = model.aggregate(function, kind, delimiter)
    default = model.aggregate("last_value_ignore_nulls", pa.string(), "")

    def value(before: model.Row | None, row: model.Row) -> Any:
        return model.first(function, row["x"]) if before is None else combine(before["x"], row["x"])

    def upsert(before: model.Row | None, row: model.Row) -> model.Row:
        other = row["other"] if before is None else default(before["other"], row["other"])
        return {"id": row["id"], "x": value(before, row), "other": other}

    @settings(max_examples=15, deadline=None)
    @given(histories(schema.to_arrow()), st.sampled_from(["allow", "ignore"]))
    def check(history: tuple[Any, ...], behavior: str) -> None:
        properties = {**AGGREGATION, "table.delete.behavior": behavior}
        if function == "count":  # counts are never huge, and Python's do not wrap
            history = (
                *history[:3],
                {key: {**row, "x": abs(row["x"] or 0) % 1000} for key, row in history[3].items()},
            )
        try:
            steps = model.follow(*history, upsert, (lambda before: None) if behavior == "allow" else None)
        except model.TooLarge:
            with pytest.raises(SchemaMismatch):
                same_changes(schema, properties, history, [])
            return
        assert same_changes(schema, properties, history, steps)

    check()


@settings(max_examples=60, deadline=None)
@given(st.data(), st.sets(st.sampled_from(["s", "m", "t"])), st.sampled_from(["allow", "ignore"]))
def test_aggregates_of_some_columns_leave_the_others(
    draw: st.DataObject, names: set[str], behavior: str
) -> None:
    functions = {"s": "sum", "m": "max", "t": "first_value"}
    schema = table(
        {"s": pa.int64(), "m": pa.int32(), "t": pa.string()},
        {f"fields.{name}.agg": function for name, function in functions.items()},
    )
    rows, deletes, keys, old = draw.draw(histories(schema.to_arrow()))
    sent = {"id", *names}
    rows = [{name: value if name in sent else None for name, value in row.items()} for row in rows]
    combine = {
        name: model.aggregate(f, schema.to_arrow().field(name).type, "") for name, f in functions.items()
    }
    _, delete = partial(sent, schema, behavior)

    def upsert(before: model.Row | None, row: model.Row) -> model.Row:
        return {
            name: (before or dict.fromkeys(schema.names))[name] if name not in sent
            else row[name] if before is None or name == "id"
            else combine[name](before[name], row[name])
            for name in schema.names
        }  # fmt: skip

    steps = model.follow(rows, deletes, keys, old, upsert, delete)
    targets = tuple(sorted(schema.position(name) for name in sent))
    properties = {**AGGREGATION, "table.delete.behavior": behavior}
    assert same_changes(schema, properties, (rows, deletes, keys, old), steps, targets)


# --- averages -------------------------------------------------------------------------------------------------


def averaged(kind: pa.DataType, total: pa.DataType) -> Schema:
    functions = {"fields.x.agg": "avg", "fields.x.avg.sum": "x_sum", "fields.x.avg.count": "x_count"}
    return table({"x": kind, "x_sum": total, "x_count": pa.int64()}, functions)


def averaging(kind: pa.DataType, total: pa.DataType) -> Callable[[model.Row | None, model.Row], model.Row]:
    """What an upsert makes of a row with an average, its sum and its count."""
    exact = pa.types.is_decimal(kind)

    def upsert(before: model.Row | None, row: model.Row) -> model.Row:
        state = before or {"x_sum": None, "x_count": 0}
        came, there = row["x"], state["x_sum"]
        count = (state["x_count"] or 0) + int(came is not None)
        there = (
            there if came is None else came if there is None else model._computed("sum", total, there, came)
        )
        mean: Any = None
        if there is not None and exact:
            mean = model.rounded(model.EXACT.divide(there, Decimal(count)), kind)
        elif there is not None:
            mean = float(there / count)
            mean = float(np.float32(mean)) if kind.bit_width == 32 else mean
        return {"id": row["id"], "x": mean, "x_sum": there, "x_count": count}

    return upsert


def test_a_sum_may_have_more_digits_than_the_values_whose_average_it_gives() -> None:
    kind, total = pa.decimal128(5, 2), pa.decimal128(38, 2)
    rows = [{"id": 1, "x": Decimal("999.99"), "x_sum": None, "x_count": None}] * 3
    deletes, keys = [False] * 3, [1] * 3
    steps = model.follow(rows, deletes, keys, {}, averaging(kind, total), None)
    assert steps[-1].after == {"id": 1, "x": Decimal("999.99"), "x_sum": Decimal("2999.97"), "x_count": 3}
    assert same_changes(averaged(kind, total), AGGREGATION, (rows, deletes, keys, {}), steps)


@pytest.mark.parametrize(
    ("kind", "total"),
    [
        (pa.decimal128(10, 2), pa.decimal128(38, 2)),
        (pa.decimal128(38, 0), pa.decimal128(38, 0)),
        (pa.float64(), pa.float64()),
        (pa.float32(), pa.float64()),
    ],
    ids=str,
)
def test_an_average_is_exact_whatever_the_batches_were(kind: pa.DataType, total: pa.DataType) -> None:
    schema, upsert = averaged(kind, total), averaging(kind, total)

    @settings(max_examples=40, deadline=None)
    @given(histories(schema.to_arrow()), st.sampled_from(["allow", "ignore"]))
    def check(history: tuple[Any, ...], behavior: str) -> None:
        properties = {**AGGREGATION, "table.delete.behavior": behavior}
        rows, deletes, keys, _ = history
        delete = (lambda before: None) if behavior == "allow" else None
        try:
            with np.errstate(all="ignore"):
                steps = model.follow(rows, deletes, keys, {}, upsert, delete)
        except model.TooLarge:
            with pytest.raises(SchemaMismatch):
                same_changes(schema, properties, (rows, deletes, keys, {}), [])
            return
        assert same_changes(schema, properties, (rows, deletes, keys, {}), steps)
        cut = len(rows) // 2  # the same in two batches: the state is in the row
        state = {key: step.after for key, step in zip(keys[:cut], steps[:cut], strict=True) if step.effect}
        there = {key: row for key, row in state.items() if row is not None}
        assert same_changes(schema, properties, (rows[cut:], deletes[cut:], keys[cut:], there), steps[cut:])

    check()


@pytest.mark.parametrize(
    ("function", "was", "came", "becomes"),
    [
        ("sum", "999.98", "0.01", "999.99"),
        ("sum", "999.99", "0.01", None),
        ("sum", "-999.99", "-0.01", None),
        ("sum", "-999.99", "0.01", "-999.98"),
        ("product", "99.99", "10.00", "999.90"),
        ("product", "100.00", "10.00", None),
        ("product", "-100.00", "10.00", None),
        ("product", "999.99", "999.99", None),
    ],
)
@pytest.mark.parametrize("before", [0, 1])
def test_a_decimal_is_exact_up_to_its_last_digit_or_refused(
    function: str, was: str, came: str, becomes: str | None, before: int
) -> None:
    """In whatever row of a batch it happens, also the first."""
    schema = table({"x": pa.decimal128(5, 2)}, {"fields.x.agg": function})
    rows = [{"id": number, "x": Decimal("1.00")} for number in range(2, 2 + before)]
    rows.append({"id": 1, "x": Decimal(came)})
    keys = [row["id"] for row in rows]
    old = {1: {"id": 1, "x": Decimal(was)}}
    changes, images = model.changes_of(schema.to_arrow(), rows, [False] * len(rows), keys, old, None)
    engine = engine_of(schema, AGGREGATION)
    if becomes is None:
        with pytest.raises(SchemaMismatch, match=f"row {before} has more digits"):
            model.folded(engine, changes, images)
    else:
        assert str(model.folded(engine, changes, images).images.to_pylist()[before]["x"]) == becomes


def test_a_third_of_two_is_rounded_from_the_exact_sum() -> None:
    schema = averaged(pa.decimal128(10, 2), pa.decimal128(38, 2))
    rows = [
        {"id": 1, "x": Decimal(text), "x_sum": None, "x_count": None} for text in ("1.00", "0.50", "0.50")
    ]
    changes, before = model.changes_of(schema.to_arrow(), rows, [False] * 3, [1, 1, 1], {}, None)
    found = model.folded(engine_of(schema, AGGREGATION), changes, before)
    assert [str(row["x"]) for row in found.images.to_pylist()] == ["1.00", "0.75", "0.67"]
    assert [str(row["x_sum"]) for row in found.images.to_pylist()] == ["1.00", "1.50", "2.00"]


@pytest.mark.parametrize(
    ("functions", "kinds"),
    [
        ({"fields.x.agg": "avg"}, {"x": pa.float64()}),
        ({"fields.x.agg": "avg", "fields.x.avg.sum": "s"}, {"x": pa.float64(), "s": pa.float64()}),
        (
            {"fields.x.agg": "avg", "fields.x.avg.sum": "s", "fields.x.avg.count": "nowhere"},
            {"x": pa.float64(), "s": pa.float64()},
        ),
        (
            {"fields.x.agg": "avg", "fields.x.avg.sum": "id", "fields.x.avg.count": "n"},
            {"x": pa.float64(), "n": pa.int64()},
        ),
        (
            {"fields.x.agg": "avg", "fields.x.avg.sum": "s", "fields.x.avg.count": "s"},
            {"x": pa.float64(), "s": pa.float64()},
        ),
        (
            {"fields.x.agg": "avg", "fields.x.avg.sum": "s", "fields.x.avg.count": "n"},
            {"x": pa.decimal128(5, 2), "s": pa.decimal128(38, 3), "n": pa.int64()},
        ),
        ({"fields.x.agg": "avg"}, {"x": pa.int32()}),
    ],
)
def test_an_average_without_proper_columns_is_refused(
    functions: dict[str, str], kinds: dict[str, pa.DataType]
) -> None:
    with pytest.raises(InvalidConfig):
        table(kinds, functions)


# --- bitmaps --------------------------------------------------------------------------------------------------


def bitmap(numbers: set[int], wide: bool) -> bytes:
    containers: dict[int, Any] = {}
    for number in numbers:
        flags = containers.setdefault(number >> 16, np.zeros(65536, bool))
        flags[number & 0xFFFF] = True
    packed = {key: np.packbits(flags, bitorder="little") for key, flags in containers.items()}
    return write_bitmap(packed, wide)


def numbers_in(data: bytes, wide: bool) -> set[int]:
    return {
        key << 16 | int(low)
        for key, bits in read_bitmap(data, wide).items()
        for low in np.flatnonzero(np.unpackbits(bits, bitorder="little"))
    }


@pytest.mark.parametrize("function", ["rbm32", "rbm64"])
def test_bitmaps_are_united(function: str) -> None:
    wide = function == "rbm64"
    schema = table({"x": pa.binary()}, {"fields.x.agg": function})
    largest = 2**64 - 1 if wide else 2**32 - 1
    numbers = st.sets(st.one_of(st.integers(0, 300), st.integers(0, largest)), max_size=6)

    @settings(max_examples=40, deadline=None)
    @given(
        st.lists(st.tuples(KEYS, st.one_of(st.none(), numbers)), max_size=8), st.dictionaries(KEYS, numbers)
    )
    def check(came: list[tuple[int, set[int] | None]], was: dict[int, set[int]]) -> None:
        rows = [{"id": key, "x": None if some is None else bitmap(some, wide)} for key, some in came]
        old = {key: {"id": key, "x": bitmap(some, wide)} for key, some in was.items()}
        keys = [key for key, _ in came]
        changes, before = model.changes_of(schema.to_arrow(), rows, [False] * len(rows), keys, old, None)
        found = model.folded(engine_of(schema, AGGREGATION), changes, before)
        state: dict[int, set[int] | None] = dict(was)
        for (key, some), row in zip(came, found.images.to_pylist(), strict=True):
            there = state.get(key)
            state[key] = there if some is None else some if there is None else there | some
            assert (None if row["x"] is None else numbers_in(row["x"], wide)) == state[key]

    check()


def test_a_wide_bitmap_that_would_fill_the_memory_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    spread = bitmap({high << 32 | low << 16 for high in range(2) for low in range(5)}, True)
    assert len(read_bitmap(spread, True)) == 10
    monkeypatch.setattr(bitmaps, "_CONTAINERS_MAX", 8)
    with pytest.raises(RecordTooLarge, match="stretches"):
        read_bitmap(spread, True)


def test_a_bitmap_written_by_others_is_read() -> None:
    # The public format's own forms: a run container, an array container, a container of bits.
    runs = struct.pack("<IB", 12347 | 0 << 16, 1) + struct.pack("<HH", 0, 9) + struct.pack("<HHH", 1, 5, 9)
    assert numbers_in(runs, False) == set(range(5, 15))
    array = (
        struct.pack("<II", 12346, 1)
        + struct.pack("<HH", 2, 1)
        + struct.pack("<I", 16)
        + struct.pack("<HH", 3, 7)
    )
    assert numbers_in(array, False) == {2 << 16 | 3, 2 << 16 | 7}
    many = set(range(0, 20000, 2))
    assert numbers_in(bitmap(many, False), False) == many
    assert bitmap({2 << 16 | 3, 2 << 16 | 7}, False) == array


@settings(max_examples=100, deadline=None)
@given(st.binary(max_size=60), st.booleans(), st.data())
def test_bytes_that_are_no_bitmap_are_refused(data: bytes, wide: bool, draw: st.DataObject) -> None:
    whole = bytearray(bitmap({1, 70000, 70001}, wide))
    whole[draw.draw(st.integers(0, len(whole) - 1))] ^= draw.draw(st.integers(1, 255))
    for some in (data, bytes(whole)):
        try:
            found = read_bitmap(some, wide)
        except SchemaMismatch:
            continue
        assert len(found) <= len(some)


# --- refusals -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("engine", [None, "first_row", "versioned", "aggregation"])
def test_deletes_are_refused_where_the_table_says_so(engine: str | None) -> None:
    properties = {"table.delete.behavior": "disable", "table.merge-engine.versioned.ver-column": "a"}
    if engine:
        properties["table.merge-engine"] = engine
    rows = [{"id": 1, "a": None, "b": None, "c": None}]
    for gone in (False, True):
        changes, before = model.changes_of(PLAIN.to_arrow(), rows, [gone], [1], {}, None)
        made = engine_of(PLAIN, properties)
        if not gone:
            assert model.folded(made, changes, before).effect.tolist() == [1]
            continue
        with pytest.raises(DeletionDisabled):
            model.folded(made, changes, before)


def test_targets_that_cannot_be_are_refused() -> None:
    with pytest.raises(InvalidTargets, match="'id'"):
        engine_of(PLAIN, {}, (1,))
    with pytest.raises(InvalidTargets, match="whole rows"):
        engine_of(PLAIN, {"table.merge-engine": "first_row"}, (0, 1))
    fields = [pa.field("id", pa.int32(), False), pa.field("a", pa.int32(), False), pa.field("b", pa.int32())]
    strict = Schema.from_arrow(pa.schema(fields), ["id"])
    with pytest.raises(InvalidTargets, match="NOT NULL"):
        engine_of(strict, {}, (0, 2))
    assert engine_of(PLAIN, {"table.merge-engine": "first_row"}, (0, 1, 2, 3)).old_columns == ()


def test_lists_that_grow_without_end_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    schema = table({"x": pa.string()}, {"fields.x.agg": "listagg"})
    rows = [{"id": 1, "x": "abcdefgh"}] * 20
    changes, before = model.changes_of(schema.to_arrow(), rows, [False] * 20, [1] * 20, {}, None)
    engine = engine_of(schema, AGGREGATION)
    assert len(model.folded(engine, changes, before).images.column("x")[19].as_py()) == 20 * 9 - 1
    monkeypatch.setattr(listing_module, "TEXT_MAX", 100)
    with pytest.raises(RecordTooLarge, match="list of"):
        model.folded(engine, changes, before)
    monkeypatch.setattr(listing_module, "TEXT_MAX", 10**6)
    monkeypatch.setattr(listing_module, "BATCH_MAX", 1000)
    with pytest.raises(RecordTooLarge, match="smaller batches"):
        model.folded(engine, changes, before)


def test_every_function_of_the_model_is_tested() -> None:
    assert set(FUNCTIONS) == {*KINDS, "avg", "rbm32", "rbm64"}


def test_whole_numbers_wrap_around() -> None:
    schema = table({"x": pa.int8()}, {"fields.x.agg": "sum"})
    rows = [{"id": 1, "x": 127}, {"id": 1, "x": 1}]
    changes, before = model.changes_of(schema.to_arrow(), rows, [False] * 2, [1, 1], {}, None)
    found = model.folded(engine_of(schema, AGGREGATION), changes, before)
    assert found.images.column("x").to_pylist() == [127, -128]


@pytest.mark.parametrize("width", [32, 64])
def test_nan_is_the_largest_number_whatever_its_sign(width: int) -> None:
    """Processors make NaN with its sign set: as bits it would be the smallest."""
    kind, bits = (np.float32, "<u4") if width == 32 else (np.float64, "<u8")
    negative = np.array([-1], np.int64).astype(bits).view(kind)  # all bits set
    values = np.concatenate([negative, np.array([np.nan, np.inf, 0.0, -np.inf], kind)])
    ranks = comparable(pa.array(values, from_pandas=False)).tolist()
    assert ranks[0] == ranks[1] == max(ranks)
    assert ranks[1:] == sorted(ranks[1:], reverse=True)
