"""``strom spark``: what Spark needs to know of Strom."""

from __future__ import annotations

from strom.cli.terminal.group import group

app = group(
    "Spark: where its jar and its tiering job are.",
    "strom spark jar",
    'spark-submit "$(strom spark tiering)" --bootstrap-servers db1:9123',
)

JAR_HELP = """Print where the jar of the SQL catalog is, for spark-submit, spark-sql and ADD JAR.

A session made by strom.spark.session() has it already. Settings are in docs/spark.md.

\b
Examples:
  strom spark jar
  spark-sql --jars $(strom spark jar) \\
      --conf spark.sql.catalog.strom=strom.spark.StromCatalog \\
      --conf spark.sql.catalog.strom.bootstrap.servers=localhost:9123
"""

TIERING_HELP = """Print where the tiering service's program is, for spark-submit.

Its options are those of `strom tier`.

\b
Example:
  spark-submit --master spark://boss:7077 "$(strom spark tiering)" \\
      --bootstrap-servers db1:9123
"""


@app.callback()
def spark() -> None:
    """Spark."""


@app.command("jar", help=JAR_HELP)
def jar() -> None:
    """Print the jar's path."""
    from strom.spark.engine import jar as package

    print(package.path())


@app.command("tiering", help=TIERING_HELP)
def tiering() -> None:
    """Print the program's path."""
    from importlib.util import find_spec

    found = find_spec("strom.cli.tier_submit")
    assert found is not None
    print(found.origin)
