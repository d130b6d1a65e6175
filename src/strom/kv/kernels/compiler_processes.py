"""Separate processes that compile kernels, so that the interpreter and the loop of this one stay free.

``python -m strom.kv.kernels.compile`` compiles all kernels before the first server starts; after an upgrade, those that
changed.

Each process gets one kernel at a time, by name, and stores its code where this process finds it. Of several servers on
one machine only one compiles; the others wait for the result.
"""

from __future__ import annotations

import logging
import os
import selectors
import subprocess
import sys
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from typing import IO, Any, TextIO

from numba.core.dispatcher import Dispatcher

from strom.errors import COMPILING
from strom.kv.kernels.kernel_code import DECLARED, Declared
from strom.kv.kernels.kernel_groups import import_all, kernels_of
from strom.kv.kernels.kernel_needs import GROUPS
from strom.runtime.clock import sleep
from strom.runtime.compiling import Progress

PROCESSES_MAX = 2
"""Each takes 200 MB while it compiles."""
WATCH_S = 0.2
QUARTERS = 4
NICENESS = 5
"""Reads and writes of log tables go first."""

logger = logging.getLogger(__name__)


class Compilers:
    """Compiles kernels; used by one thread, except for ``stop``."""

    def __init__(self, pause: Callable[[float], None], processes: int = 0) -> None:
        """``pause`` sleeps for a number of seconds."""
        self._pause = pause
        self._count = processes or min(PROCESSES_MAX, os.cpu_count() or 1)
        self._running: list[_Compiler] = []
        self._stopped = False

    def compile(self, kernels: Sequence[Declared], progress: Progress) -> None:
        """Compile and store the code of all of these; ``progress`` gets the number done and the total."""
        while not self._stopped:
            missing = [one for one in kernels if not one.kept]
            progress(len(kernels) - len(missing), len(kernels))
            if self._stopped or not missing or not kernels[0].cache.keeps:
                return  # with no place to store the code, the first call of a kernel compiles it
            with kernels[0].cache.alone() as alone:
                if alone:
                    self._share_out(missing, lambda left: progress(len(kernels) - left, len(kernels)))
                    return
            self._pause(WATCH_S)

    def stop(self) -> None:
        """End the processes, from any thread: ``compile`` returns."""
        self._stopped = True
        for one in list(self._running):
            one.kill()

    def _share_out(self, missing: Sequence[Declared], left: Callable[[int], None]) -> None:
        waiting = _Waiting(missing)
        unfinished = len(missing)
        with selectors.DefaultSelector() as selector:
            try:
                for _ in range(min(self._count, len(missing))):
                    self._start(selector, waiting)
                while selector.get_map() and not self._stopped:
                    for key, _events in selector.select():
                        compiler: _Compiler = key.data
                        if compiler.answered():
                            unfinished -= 1
                            left(unfinished)
                            compiler.next(waiting)
                        else:
                            selector.unregister(key.fileobj)
            finally:
                self._end()

    def _start(self, selector: selectors.DefaultSelector, waiting: _Waiting) -> None:
        try:
            compiler = _Compiler()
        except OSError as error:
            logger.warning("kernels are compiled in this process, no other could be started: %s", error)
            return
        self._running.append(compiler)
        selector.register(compiler.answers, selectors.EVENT_READ, compiler)
        compiler.next(waiting)

    def _end(self) -> None:
        running, self._running = self._running, []
        for one in running:
            if self._stopped:
                one.kill()
            one.close()


class KernelCompiling:
    """The groups of kernels (``kernel_needs``), compiled in other processes and loaded into this one."""

    def __init__(self) -> None:
        self._compilers = Compilers(sleep)

    def missing(self, groups: Collection[str]) -> bool:
        """Whether any of these has to be compiled."""
        return not all(one.bound or one.kept for one in kernels_of(groups))

    def compile(self, groups: Collection[str], progress: Progress) -> None:
        """Have them compiled."""
        self._compilers.compile(kernels_of(groups), progress)

    def load(self, groups: Collection[str]) -> None:
        """Load them; a kernel that could not be compiled elsewhere is compiled here."""
        for one in kernels_of(groups):
            one.bind()

    def stop(self) -> None:
        """Compile no more."""
        self._compilers.stop()


class _Compiler:
    """One process."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", "strom.kv.kernels.compiler_processes"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._tasks: IO[bytes] = self._process.stdin
        self.answers: IO[bytes] = self._process.stdout

    def next(self, waiting: _Waiting) -> None:
        """Give it the next kernel, or let it end."""
        kernel = waiting.take_for(self)
        with suppress(OSError):  # it is gone: the selector says so
            if kernel is None:
                self._tasks.close()
            else:
                self._tasks.write(f"{kernel.name}\n".encode())
                self._tasks.flush()

    def answered(self) -> bool:
        """Whether it has finished a kernel; False when the process has ended."""
        return bool(self.answers.readline())

    def kill(self) -> None:
        """End it at once: files are written whole or not at all."""
        self._process.kill()

    def close(self) -> None:
        """Wait for its end, which is imminent."""
        with suppress(OSError):
            self._tasks.close()
        self.answers.close()
        self._process.wait()


class _Waiting:
    """The kernels not yet handed out, with the parts that go into each and roughly how long these take."""

    def __init__(self, kernels: Sequence[Declared]) -> None:
        self._kernels = {one.name: one for one in kernels}
        self._parts = {one.name: _parts_of(one.made) for one in kernels}
        self._compiled: dict[_Compiler, set[int]] = {}

    def take_for(self, compiler: _Compiler) -> Declared | None:
        """The heaviest one, so that no process is left with a long one at the end. Prefers kernels whose parts this
        process has compiled over those whose parts another process has."""
        own = self._compiled.setdefault(compiler, set())
        others = set().union(*(parts for one, parts in self._compiled.items() if one is not compiler)) - own
        name = max(self._kernels, key=lambda one: self._worth(one, own, others), default=None)
        if name is None:
            return None
        own.update(self._parts[name])
        return self._kernels.pop(name)

    def _worth(self, name: str, own: set[int], others: set[int]) -> int:
        parts = self._parts[name]
        known = sum(weight for part, weight in parts.items() if part in own)
        elsewhere = sum(weight for part, weight in parts.items() if part in others)
        return sum(parts.values()) + known - elsewhere


def _parts_of(made: Any) -> dict[int, int]:
    """The functions compiled into a kernel, each with the length of its bytecode."""
    found: dict[int, int] = {}
    ahead = [made]
    while ahead:
        one = ahead.pop()
        if id(one) not in found:
            code = one.py_func.__code__
            found[id(one)] = len(code.co_code)
            named = map(one.py_func.__globals__.get, code.co_names)
            ahead += [other for other in named if isinstance(other, Dispatcher)]
    return found


def compile_ahead() -> None:
    """Compile all kernels that are missing, and report progress."""
    Compilers(sleep).compile(kernels_of(GROUPS), ProgressLines(sys.stdout))


class ProgressLines:
    """Reports how far compiling is: on a terminal in one line that changes, elsewhere at the start and each quarter."""

    def __init__(self, out: TextIO) -> None:
        self._out = out
        self._terminal = out.isatty()
        self._reported: int | None = None

    def __call__(self, done: int, total: int) -> None:
        """Report that ``done`` of ``total`` are compiled, unless the last report said nearly the same."""
        step = done if self._terminal else done * QUARTERS // total
        if self._reported is None and done == total:
            self._out.write(f"all {total} kernels of primary-key tables are compiled\n")
        elif self._reported is None or step > self._reported:
            end = "\n" if done == total or not self._terminal else ""
            begin = "\r" if self._terminal else ""
            self._out.write(f"{begin}{COMPILING}: {done} of {total}{end}")
        self._reported = max(step, self._reported or 0)
        self._out.flush()


def _compile_named() -> None:
    """The main function of a compiling process."""
    with suppress(OSError):
        os.nice(NICENESS)
    import_all()
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # anything else that prints must not reach the answers
    for line in sys.stdin:
        DECLARED[line.strip()].bind()
        answers.write(line)
        answers.flush()


if __name__ == "__main__":
    _compile_named()
