"""``strom --help``: the commands in the order in which a newcomer meets them, as ``docs/contents.md`` is ordered.

Each has one short line here that is never cut; other commands are listed under "More".
"""

from __future__ import annotations

from typing import Any

from typer.core import TyperGroup

SECTIONS: dict[str, dict[str, str]] = {
    "Begin": {
        "demo": "One story through everything, each answer checked",
        "up": "Run a server on this machine",
        "doctor": "What is wrong, and what to do about it",
        "backup": "Copy all that a server holds at one instant",
        "restore": "Make a data folder of a backup",
    },
    "Tables": {
        "database": "Create, list, drop databases",
        "table": "Create, list, describe, alter, drop tables",
        "partition": "Create, list, drop partitions of a table",
        "index": "Create, list, drop secondary indexes",
    },
    "Write and read": {
        "append": "Append the rows of a file to a log table",
        "scan": "Print rows: --columns, --where, --limit",
        "count": "How many rows there are, or pass a filter",
        "tail": "Print the newest rows, with -f those to come",
        "sql": "Ask in SQL, over lake and log together",
    },
    "Rows by key": {
        "upsert": "Insert or update the rows of a file",
        "delete": "Delete rows by their keys",
        "lookup": "Print rows by key, prefix or index",
        "changelog": "Print every change: +I -U +U -D",
    },
    "Spark and the lake": {
        "tier": "Bring tables into the lake, on PySpark",
        "lake": "How far the lake is behind, and its upkeep",
        "sink": "What streams and transactions published last",
        "spark": "Where the jar and the tiering job are",
    },
    "Clusters": {
        "cluster": "How a cluster is: servers, copies, leaders",
        "coordinator": "Run a coordinator of a cluster",
        "tablet": "Run a tablet server of a cluster",
        "zookeeper": "Run a ZooKeeper for the metadata of a cluster",
        "migrate-metadata": "Move them to ZooKeeper, or back",
    },
    "Look inside": {
        "log": "Show what a segment file holds",
        "remote": "What the object store has, every byte checked",
    },
}


class Contents(TyperGroup):
    """The top command, with its commands by subject."""

    def list_commands(self, ctx: Any) -> list[str]:
        """By section."""
        named = [name for section in SECTIONS.values() for name in section]
        return [name for name in named if name in self.commands] + [
            name for name in self.commands if name not in named
        ]

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """A heading for each section, a line for each command."""
        width = max(map(len, self.commands))
        left = dict(self.commands)
        for title, section in SECTIONS.items():
            rows = [
                (name.ljust(width), line)
                for name, line in section.items()
                if left.pop(name, None) is not None
            ]
            if rows:
                with formatter.section(title):
                    formatter.write_dl(rows)
        if left:
            with formatter.section("More"):
                formatter.write_dl(
                    [(name.ljust(width), one.get_short_help_str(60)) for name, one in left.items()]
                )
