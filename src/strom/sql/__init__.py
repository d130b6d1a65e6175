"""SQL over tables: DuckDB runs on what the lake and the servers hold, each row once. Strom has no SQL engine.

A query is planned twice. DuckDB first plans it on empty stand-ins of its tables (``stand_ins.py``), which shows what it
needs of each: columns, and a filter that every row it uses passes (``table_needs.py``). With that, all tables are
planned at one instant, and parts that cannot matter are never touched. Then the query runs (``query.py``): DuckDB reads
lake files itself, hot rows stream into it as Arrow.

Promise: a query sees every table at one instant, each row exactly once, and changes nothing.
Read ``query.py`` first. DuckDB is imported when the first query is created, and nowhere else in Strom.
"""
