"""Which Arrow types fit which, and how a column becomes the table's type without losing anything.

Only casts that keep every value are made: another width of integer (a value that does not fit is an error),
integer to float or decimal, a finer or coarser time unit when it is exact, layout variants (large, view,
dictionary). Nothing is parsed and no time zone is guessed; ``advice`` says what the caller can do instead.
Double to float rounds, as it must, but never to infinity.
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

INTEGER_DIGITS_MAX = 20
"""Digits of the largest 64-bit integer, signed or not."""

_FITTING = {
    ("integer", "float"),
    ("integer", "decimal"),
    ("float", "integer"),
}

_ADVICE = {
    ("float", "decimal"): "round it yourself: column.cast(pa.{want})",
    ("timestamp", "instant"): "say which zone it is in: pc.assume_timezone(column, 'UTC')",
    ("instant", "timestamp"): "choose a zone for it: pc.local_timestamp(column)",
    ("timestamp", "date"): "cut the time off: column.cast(pa.date32(), safe=False)",
    ("instant", "date"): "cut the time off: column.cast(pa.date32(), safe=False)",
    ("text", "bytes"): "encode it: column.cast(pa.binary())",
    ("bytes", "text"): "decode it: column.cast(pa.string())",
}


def advice(have: pa.DataType, want: pa.DataType) -> str | None:
    """None when a column of type ``have`` may become ``want`` (value by value); else what to do about it."""
    have = _plain(have)
    sort, wanted = _family(have), _family(want)
    if sort == "null":
        return None
    if sort != wanted and (sort, wanted) not in _FITTING:
        return _ADVICE.get((sort, wanted), "cast it first: column.cast(pa.{want})").format(want=_spell(want))
    if wanted == "array":
        return advice(have.value_type, want.value_type)
    if wanted == "map":
        return advice(have.key_type, want.key_type) or advice(have.item_type, want.item_type)
    if wanted == "row":
        return _row_advice(have, want)
    return None


def _row_advice(have: pa.StructType, want: pa.StructType) -> str | None:
    given = {have.field(i).name: have.field(i).type for i in range(have.num_fields)}
    for i in range(want.num_fields):
        field = want.field(i)
        if field.name not in given:
            if not field.nullable:
                return f"give its field {field.name!r} a value"
            continue
        found = advice(given.pop(field.name), field.type)
        if found is not None:
            return f"in its field {field.name!r}: {found}"
    if given:
        return f"take out its field {next(iter(given))!r}, which the table's column does not have"
    return None


def cast(column: pa.Array, want: pa.DataType) -> pa.Array:
    """The column as ``want``; ``pa.ArrowInvalid`` when a value does not fit. ``advice`` was None before."""
    column = _plain_column(column)
    have = column.type
    if have.equals(want):
        return column
    if pa.types.is_integer(have) and pa.types.is_decimal(want):
        return column.cast(pa.decimal128(INTEGER_DIGITS_MAX, 0)).cast(want)
    if pa.types.is_list_view(have) or pa.types.is_large_list_view(have):
        # Arrow 26 builds a broken list from a view: go by values, views are rare.
        return pa.array(column.to_pylist(), want)
    result = column.cast(want, safe=True)
    if pa.types.is_floating(have) and pa.types.is_floating(want) and want.bit_width < have.bit_width:
        _refuse_new_infinities(column, result)
    return result


def _refuse_new_infinities(before: pa.Array, after: pa.Array) -> None:
    grown = pc.and_(pc.is_inf(after), pc.invert(pc.is_inf(before)))
    if pc.any(grown).as_py():
        raise pa.ArrowInvalid(f"a value is too large for {after.type}")


def _plain(arrow: pa.DataType) -> pa.DataType:
    """The type below dictionary, run-end and extension wrappers."""
    while True:
        if pa.types.is_dictionary(arrow) or pa.types.is_run_end_encoded(arrow):
            arrow = arrow.value_type
        elif isinstance(arrow, pa.BaseExtensionType):
            arrow = arrow.storage_type
        else:
            return arrow


def _plain_column(column: pa.Array) -> pa.Array:
    while True:
        if pa.types.is_dictionary(column.type):
            column = _takeable(column).dictionary_decode()
        elif pa.types.is_run_end_encoded(column.type):
            column = pc.run_end_decode(column)
        elif isinstance(column.type, pa.BaseExtensionType):
            column = column.storage
        else:
            return column


def _takeable(column: pa.DictionaryArray) -> pa.DictionaryArray:
    """Arrow cannot pick values out of a string view, which is what polars' categories are."""
    views = {pa.string_view(): pa.large_string(), pa.binary_view(): pa.large_binary()}
    plain = views.get(column.type.value_type)
    if plain is None:
        return column
    return pa.DictionaryArray.from_arrays(column.indices, column.dictionary.cast(plain))


_FAMILIES = (
    ("null", pa.types.is_null),
    ("boolean", pa.types.is_boolean),
    ("integer", pa.types.is_integer),
    ("float", pa.types.is_floating),
    ("decimal", pa.types.is_decimal),
    ("text", lambda arrow: "string" in str(arrow) and not pa.types.is_nested(arrow)),
    ("bytes", lambda arrow: "binary" in str(arrow) and not pa.types.is_nested(arrow)),
    ("date", pa.types.is_date),
    ("time", pa.types.is_time),
    ("timestamp", lambda arrow: pa.types.is_timestamp(arrow) and arrow.tz is None),
    ("instant", pa.types.is_timestamp),
    ("map", pa.types.is_map),
    ("row", pa.types.is_struct),
    ("array", lambda arrow: "list" in str(arrow).partition("<")[0]),
)


def _family(arrow: pa.DataType) -> str:
    for name, belongs in _FAMILIES:
        if belongs(arrow):
            return name
    return str(arrow)


_CALLS = {
    "bool": "bool_()",
    "float": "float32()",
    "double": "float64()",
    "date32[day]": "date32()",
}


def _spell(arrow: pa.DataType) -> str:
    """How a Python program writes the type, after ``pa.``."""
    text = str(arrow)
    if text in _CALLS:
        return _CALLS[text]
    if "[" in text:
        name, _, rest = text.partition("[")
        arguments = [repr(part.split("=")[-1].strip()) for part in rest.rstrip("]").split(",")]
        return (
            f"{name}({', '.join(arguments)})"
            if name != "fixed_size_binary"
            else f"binary({rest.rstrip(']')})"
        )
    return text if "(" in text or "<" in text else f"{text}()"
