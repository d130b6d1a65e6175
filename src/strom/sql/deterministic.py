"""Whether a query means the same every time it runs: only then can its plan be reused.

DuckDB folds now(), random() and the like into the plan, so yesterday's plan has yesterday's filter. Functions that are
known to be deterministic are listed by name; anything else (other functions, macros, table functions) is assumed to
change.
"""

from __future__ import annotations

from typing import Any

_WORDS = """
+ - * / // % ^ ** & | << >> ~ || @ ~~ !~~ ~~* !~~* ~~~ like_escape not_like_escape ilike_escape not_ilike_escape
count count_star sum min max avg mean median mode stddev stddev_samp stddev_pop variance var_samp var_pop first
last any_value arg_min arg_max min_by max_by bool_and bool_or string_agg list array_agg quantile quantile_cont
quantile_disc approx_count_distinct approx_quantile corr covar_pop covar_samp product count_if
row_number rank dense_rank percent_rank cume_dist ntile lag lead first_value last_value nth_value
abs ceil ceiling floor round trunc sign sqrt ln log log2 log10 exp pow power greatest least mod isnan isfinite
isinf lower upper length strlen trim ltrim rtrim substring substr left right replace concat concat_ws contains
prefix suffix starts_with ends_with strpos position lpad rpad reverse regexp_matches
regexp_full_match regexp_replace regexp_extract md5 hash ascii chr
date_part datepart date_trunc datetrunc date_diff datediff date_sub year month day hour minute second
quarter week weekday dayofweek dayofmonth dayofyear isodow isoyear yearweek epoch epoch_ms epoch_us epoch_ns
millisecond microsecond strftime strptime make_date make_timestamp to_timestamp time_bucket last_day monthname
dayname to_years to_months to_weeks to_days to_hours to_minutes to_seconds to_milliseconds to_microseconds
list_value struct_pack row struct_extract array_extract list_extract map_extract element_at list_contains
array_contains len cardinality map_keys map_values
"""
FUNCTIONS = frozenset(_WORDS.split())
"""Deterministic functions, as a syntax tree names them; a test checks that DuckDB calls each of them consistent."""

_UNBRACKETED = ("current_", "localtime")
_NAMES = frozenset({"session_user", "user", "today", "now"})
"""Functions that can be called without parentheses, and then look like a column: by prefix, or by name."""
_TABLES = frozenset({"BASE_TABLE", "JOIN", "SUBQUERY", "EMPTY"})
"""Sources of rows that are deterministic."""


def is_deterministic(tree: Any) -> bool:
    """Whether nothing in DuckDB's syntax tree depends on when, where or by whom it runs."""
    waiting = [tree]
    while waiting:
        node = waiting.pop()
        if isinstance(node, list):
            waiting.extend(node)
        elif isinstance(node, dict):
            if not _is_constant(node):
                return False
            waiting.extend(node.values())
    return True


def _is_constant(node: dict[str, Any]) -> bool:
    names = node.get("column_names")
    if names and (str(names[-1]).lower().startswith(_UNBRACKETED) or str(names[-1]).lower() in _NAMES):
        return False
    if "sample" in node:
        return False
    name = node.get("function_name")
    if name is not None:
        path = node.get("qualified_name", {}).get("path", ())
        return len(path) <= 1 and str(name).lower() in FUNCTIONS
    return node.get("type") not in ("TABLE_FUNCTION", "SHOW_REF", "PIVOT") and (
        "from_table" not in node or node["from_table"].get("type") in _TABLES
    )
