"""SQL over tables: DuckDB on what the lake and the servers hold, each row once. There is no engine of our own.

A query is read twice. First on empty stand-ins of its tables (``stand_ins.py``), which tells what it asks of each one:
columns, and a filter that every row it uses passes (``table_needs.py``). With that the tables are planned, all at one
moment, and the parts that cannot matter are never touched. Then it runs (``running.py``): lake files are read by
DuckDB itself, hot rows stream into it as Arrow.

Promise: a query sees every table at one instant, each row exactly once, and changes nothing.
Read first: query.py. DuckDB is imported when the first query is made, and nowhere else in Strom.
"""
