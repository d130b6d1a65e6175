"""``strom demo``: one story through everything Strom does, on a made-up shop, each answer checked.

The chapters that need no Spark come first, so that something is on the screen while Spark is still being installed.
"""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path
from typing import Annotated

import typer

from strom.cli.demo.story import Story

HELP = """Show what Strom does, on a made-up shop, in a few minutes; every answer is checked.

It starts its own server in a folder, which stays afterwards: `strom up --data FOLDER/data` starts it again.

\b
Examples:
  strom demo
  strom demo --fast
  strom demo --rows 5000000 --folder /tmp/shop
  strom demo --no-spark
"""

FAST_ROWS = 60_000


def demo(
    rows: Annotated[int, typer.Option(min=1000, help="How many clicks to write.")] = 1_200_000,
    fast: Annotated[bool, typer.Option("--fast", help="A small run, as in the tests.")] = False,
    spark: Annotated[bool, typer.Option(help="Include the chapters that need Spark.")] = True,
    folder: Annotated[Path, typer.Option(help="Where to put the data; replaces what is there.")] = Path(
        "demo-data"
    ),
) -> None:
    """Run the story; exit 1 when a check fails."""
    folder = folder.resolve()
    _clear(folder)
    held = _told(folder, min(rows, FAST_ROWS) if fast else rows, spark)
    raise typer.Exit(0 if held else 1)


def _clear(folder: Path) -> None:
    """Make room. A folder that no demo made is left alone."""
    mark = folder / "strom-demo"
    if folder.exists() and any(folder.iterdir()) and not mark.exists():
        raise typer.BadParameter(f"{folder} holds something other than a demo: choose another --folder")
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    mark.write_text("made by `strom demo`\n")


def _told(folder: Path, rows: int, with_spark: bool) -> bool:
    import strom
    from strom.cli.demo import crash, keyed, logs
    from strom.cli.demo.own_server import OwnServer
    from strom.cli.demo.shop import Shop

    story = Story()
    server = OwnServer(folder)
    try:
        took = server.start()
        story.watch.lap()
        where = min(str(folder / "data"), os.path.relpath(folder / "data"), key=len)
        story.note(f"a server is up after {took:.1f} s at {server.address}; its data lies in {where}")
        with strom.connect(server.address) as database:
            shop = Shop(database)
            shop.create_log()
            logs.tell(story, shop, rows)
            keyed.tell(story, shop, max(1000, rows // 5), folder)
            shop.open(max(1000, rows // 100))
            if with_spark:
                _spark_chapters(story, shop, server.address, folder)
            crash.tell(story, shop, server)
        held = story.end()
    finally:
        server.stop()
    if held:
        _next(folder)
        _quiet_end()
    return held


def _spark_chapters(story: Story, shop: object, address: str, folder: Path) -> None:
    from strom.cli.demo.installing import wait_for
    from strom.cli.demo.shop import Shop

    assert isinstance(shop, Shop)
    wait_for("spark", "the next chapters need Spark, which is still being installed (400 MB, once)", story)
    from strom.cli.demo import sparked

    story.note("a Spark session starts: a JVM and its Python workers, some fifteen seconds")
    with sparked.session(address, folder) as spark:
        story.say("Spark is ready")
        sparked.tell_stream(story, shop, spark, folder)
        sparked.tell_lake(story, shop, spark, address)
        sparked.tell_join(story, shop, spark, folder)


def _next(folder: Path) -> None:
    data = os.path.relpath(folder / "data")
    own = Path(sys.executable).with_name("activate")
    lines = [
        (f"strom up --data {data}", "the server again, on port 9123; in another terminal:"),
        ("strom scan shop.customers --limit 5", "rows; --where, --columns, --help"),
        ('strom sql "SELECT state, count(*) FROM shop.orders GROUP BY state"', ""),
        ("strom changelog shop.orders --limit 5 -o json", "every change, with the row before it"),
        ("strom lake status", "what the lake holds"),
        ("strom tier --once", "bring the rest into the lake"),
    ]
    if shutil.which("strom") is None and own.exists():
        lines.insert(0, (f". {os.path.relpath(own)}", "once in every terminal"))
    print("\nWhat to try next, on the data of this demo:\n")
    for command, words in lines:
        print(f"  {command}" + (f"\n      {words}" if words else ""))
    print("\nThe README has ten lines of Python and of PySpark, docs/start.md more.", flush=True)


def _quiet_end() -> None:
    """Exit at once, so that libraries (DuckDB's) cannot complain while the interpreter ends."""
    sys.stdout.flush()
    with open(os.devnull, "w") as nowhere:
        os.dup2(nowhere.fileno(), 2)
