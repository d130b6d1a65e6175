"""``make demo``: the story begins when log tables can be served; what later chapters need is installed beside it.

A log table needs six packages. Numba, Spark and the libraries of the lake are four fifths of the download, so they come
while the first chapter is told; a mark in ``.venv/demo`` says what is there, and the chapters wait for theirs
(``strom.cli.demo.installing``). Nothing but the standard library is used here: it runs before anything is installed.

The exit code is the story's. Whoever interrupts it, or finds it failed, leaves no process behind.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib.util
import os
import signal
import subprocess
import sys
import threading
import time
import tomllib
import venv
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
VENV = ROOT / ".venv"
PYTHON = VENV / "bin" / "python"
MARKS = VENV / "demo"
EVERYTHING = VENV / ".installed"
"""`make setup` has been here."""
LIGHT, KEYS, SPARK = "light", "keys", "spark"
LIFE_S = 10.0
"""Between two signs of life."""
ENDINGS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
Command = Sequence[str | Path]


# --- what is installed ------------------------------------------------------------------------------------------------


def needs(*extras: str) -> list[str]:
    """Requirements of Strom itself, or of some of its extras."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    if not extras:
        return list(project["dependencies"])
    return [one for extra in extras for one in project["optional-dependencies"][extra]]


def light() -> list[str]:
    """What a server of log tables needs."""
    return [*needs(), *(one for one in needs("server") if not one.startswith("numba"))]


def version() -> str:
    """Another one, and everything is looked at again."""
    told = hashlib.sha256(sys.version.encode())
    for name in ("pyproject.toml", "constraints.txt"):
        told.update((ROOT / name).read_bytes())
    return told.hexdigest()


def mark(name: str) -> Path:
    """There as soon as a part is installed."""
    return MARKS / name


def is_there(name: str) -> bool:
    """Whether a part was installed, as it is wanted now."""
    return mark(name).exists() and mark(name).read_text() == version()


def everything_is_there() -> bool:
    """Whether `make setup` has installed all of it, as it is wanted now."""
    wanted = max((ROOT / name).stat().st_mtime for name in ("pyproject.toml", "constraints.txt"))
    return EVERYTHING.exists() and EVERYTHING.stat().st_mtime >= wanted


# --- commands ---------------------------------------------------------------------------------------------------------


def pip(*arguments: str | Path) -> list[str | Path]:
    """The pip of this Python where it has one: an environment without its own is made in no time."""
    outer: list[str | Path] = [sys.executable, "-m", "pip", "--python", PYTHON]
    chosen: list[str | Path] = outer if lends_pip() else [PYTHON, "-m", "pip"]
    options: list[str | Path] = [
        "--disable-pip-version-check",
        "--progress-bar",
        "off",
        "-c",
        ROOT / "constraints.txt",
    ]
    return [*chosen, "install", *options, *arguments]


def lends_pip() -> bool:
    """Whether the pip of this Python can install for another one."""
    if importlib.util.find_spec("pip") is None:
        return False
    import pip

    return tuple(int(part) for part in pip.__version__.split(".")[:2]) >= (22, 3)


def environment() -> dict[str, str]:
    """Of the story, and of all that is run here: Strom is taken from the source until it is installed."""
    found = {**os.environ, "PYTHONUNBUFFERED": "1", "STROM_DEMO_WAITS_FOR": str(MARKS)}
    path = [str(ROOT / "src"), os.environ.get("PYTHONPATH", "")]
    return found | {"PYTHONPATH": os.pathsep.join(part for part in path if part)}


def shown(command: Command) -> None:
    """Run it and show what it downloads; all it said when it fails."""
    said: list[str] = []
    with (
        subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment()
        ) as running,
        signs_of_life(),
    ):
        assert running.stdout is not None
        for line in running.stdout:
            said.append(line)
            if ("Downloading " in line and " MB)" in line) or line.startswith("Installing collected"):
                print(f"    {line.strip()[:76]}", flush=True)
    if running.returncode:
        print("".join(said[-30:]), file=sys.stderr)
        sys.exit(f"make demo: {' '.join(map(str, command))} failed")


@contextmanager
def signs_of_life() -> Iterator[None]:
    """A line every few seconds."""
    over, began = threading.Event(), time.monotonic()

    def tell() -> None:
        while not over.wait(LIFE_S):
            print(f"    … {time.monotonic() - began:,.0f} s", flush=True)

    teller = threading.Thread(target=tell, daemon=True)
    teller.start()
    try:
        yield
    finally:
        over.set()


# --- before and beside the story --------------------------------------------------------------------------------------


def before() -> None:
    """What the first chapter needs."""
    MARKS.mkdir(parents=True, exist_ok=True)
    for name in (KEYS, SPARK):
        mark(f"{name}.failed").unlink(missing_ok=True)
        if not is_there(name):
            mark(name).unlink(missing_ok=True)
    if everything_is_there():
        for name in (LIGHT, KEYS, SPARK):
            mark(name).write_text(version())
    if is_there(LIGHT):
        return
    print(f"==> Python environment in {VENV.name}: what log tables need (once; half a minute)", flush=True)
    if not PYTHON.exists():
        venv.create(VENV, with_pip=not lends_pip(), symlinks=True)
        MARKS.mkdir(parents=True, exist_ok=True)
    shown(pip("--no-compile", *light()))
    mark(LIGHT).write_text(version())


def beside() -> int:
    """The rest, in a process of its own and politely: the story is watched."""
    os.nice(10)
    try:
        if not is_there(KEYS):
            quiet(pip(*needs("server")))
            mark(KEYS).write_text(version())
        if not is_there(SPARK):
            if not (VENV / "bin" / "pip").exists():
                quiet([PYTHON, "-m", "ensurepip", "--default-pip"])
            quiet(pip(*needs("spark", "lake")))
            quiet([PYTHON, "-m", "strom.runtime.java.java_home"])
            quiet(pip("--no-deps", "-e", ROOT))
            mark(SPARK).write_text(version())
        quiet(
            [PYTHON, "-m", "compileall", "-q", ROOT / "src", *VENV.glob("lib/python*/site-packages")],
            must=False,
        )
    except (subprocess.CalledProcessError, OSError) as error:
        for name in (KEYS, SPARK):
            if not is_there(name):
                mark(f"{name}.failed").write_text(f"{error}; see {VENV.name}/demo/beside.log")
        return 1
    return 0


def quiet(command: Command, *, must: bool = True) -> None:
    """Run it; what it says goes where this process's words go."""
    print("+", *command, flush=True)
    subprocess.run(command, check=must, env=environment())


# --- the story --------------------------------------------------------------------------------------------------------


def tell(arguments: Sequence[str]) -> int:
    """The story, with the rest beside it."""
    rest = None
    if not (is_there(KEYS) and is_there(SPARK)):
        where = f"{VENV.name}/demo/beside.log"
        print(f"==> installing Numba, Spark and the lake meanwhile (see {where})", flush=True)
        with (MARKS / "beside.log").open("wb") as log:
            rest = subprocess.Popen(
                [sys.executable, __file__, "--beside"], stdout=log, stderr=log, start_new_session=True
            )
    code = 1
    try:
        code = told([PYTHON, "-m", "strom.cli.main", "demo", *arguments])
    finally:
        if rest is not None:
            finish(rest, wait=code == 0)
    return code


def told(command: Command) -> int:
    """Its exit code. Whoever ends this process interrupts the story, which then stops what it has started."""
    ended_by: list[int] = []
    story: subprocess.Popen[bytes] | None = None

    def end(number: int, frame: object) -> None:
        ended_by.append(number)
        if story is not None:
            with suppress(ProcessLookupError):
                os.killpg(story.pid, signal.SIGINT)

    # Before the story is started: a signal that is ignored here, as in a shell's background, would be ignored there.
    for number in ENDINGS:
        signal.signal(number, end)
    story = subprocess.Popen(command, env=environment(), start_new_session=True)
    if ended_by:  # before there was a story to interrupt
        end(ended_by[0], None)
    code = story.wait()
    for number in ENDINGS:
        signal.signal(number, signal.default_int_handler)
    return 128 + ended_by[0] if ended_by else abs(code)


def finish(rest: subprocess.Popen[bytes], *, wait: bool) -> None:
    """Let it end, or end it and whatever it started."""
    try:
        if wait:
            rest.wait()
    finally:
        if rest.poll() is None:
            os.killpg(rest.pid, signal.SIGTERM)
            rest.wait()


def main() -> int:
    parser = argparse.ArgumentParser(prog="make demo", description=__doc__)
    parser.add_argument("--beside", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--fast", action="store_true", help="the small form")
    asked = parser.parse_args()
    if asked.beside:
        return beside()
    try:
        before()
        return tell(["--fast"] if asked.fast else [])
    except KeyboardInterrupt:
        return 128 + signal.SIGINT


if __name__ == "__main__":
    sys.exit(main())
