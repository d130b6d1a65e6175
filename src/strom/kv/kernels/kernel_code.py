"""The machine code of kernels: loaded from the cache, or compiled and stored there.

A kernel is declared when its module is imported, which costs nothing. It gets its code for all signatures at once, at
its first call or by ``Declared.bind``.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

from numba.core import serialize
from numba.core.compiler import CompileResult
from numba.core.compiler_lock import global_compiler_lock
from numba.core.dispatcher import Dispatcher

from strom.kv.kernels.kernel_stamp import stamp_of
from strom.runtime.code_cache import CodeCache

DECLARED: dict[str, Declared] = {}
"""Every kernel whose module is imported, by its name (``module:function``), in order of import."""


class Declared:
    """One kernel: what it is compiled for, and where its code is kept."""

    def __init__(self, made: Any, signatures: Sequence[Any], options: tuple[object, ...]) -> None:
        self.made = made
        self.compiled = False
        """Whether its code was compiled here rather than loaded."""
        self._signatures = signatures
        self._options = (*options, [str(one) for one in signatures])
        self.name = f"{made.py_func.__module__}:{made.py_func.__qualname__}"

    @cached_property
    def cache(self) -> CodeCache:
        """Where its code is kept."""
        return CodeCache(Path(self.made.py_func.__code__.co_filename).parent)

    @property
    def bound(self) -> bool:
        """Whether it has its code."""
        return not self.made._can_compile

    @property
    def kept(self) -> bool:
        """Whether its code can be loaded from the cache."""
        return self.cache.find(self._file) is not None

    def stamp(self) -> str:
        """The digest of everything its code depends on."""
        return stamp_of(self.made, options=self._options)

    def bind(self) -> None:
        """Load or compile its code. Any thread."""
        with global_compiler_lock:
            if self.bound:
                return
            if not self._take():
                self._compile()
            self.made.disable_compile()

    def _take(self) -> bool:
        content = self.cache.read(self._file)
        if content is None:
            return False
        made, context = self.made, self.made.targetctx
        try:
            context.refresh()
            rebuild: Any = CompileResult._rebuild
            results = [rebuild(context, *one) for one in pickle.loads(content)]
        except Exception:  # truncated, or written by another Numba with the same version number
            return False
        for result in results:
            context.insert_user_function(result.entry_point, result.fndesc, [result.library])
            made.add_overload(result)
        return True

    def _compile(self) -> None:
        self.compiled = True
        for signature in self._signatures:
            self.made.compile(signature)
        results = [one._reduce() for one in self.made.overloads.values()]
        dumps: Any = serialize.dumps
        self.cache.write(self._family, self._file, dumps(results))

    @property
    def _family(self) -> str:
        return self.name.replace(":", ".").replace("<", "").replace(">", "")

    @property
    def _file(self) -> str:
        return f"{self._family}-{self.stamp()}.kernel"


def declare(made: Any, signatures: Sequence[Any], *, options: tuple[object, ...]) -> None:
    """Declare a kernel, which gets its code when Python or another kernel first calls it."""
    declared = DECLARED[_name(made)] = Declared(made, signatures, options)
    call_template: Callable[..., Any] = made.get_call_template

    def first_call(*_arguments: Any, **_named: Any) -> Dispatcher:
        declared.bind()
        return made  # type: ignore[no-any-return]  # and Numba calls it again

    def called_by_kernel(arguments: Any, named: Any) -> Any:
        declared.bind()
        return call_template(arguments, named)

    made._compile_for_args = first_call
    made.get_call_template = called_by_kernel
    made.strom_made = declared.stamp
    made.strom = declared


def part(made: Any, *, options: tuple[object, ...]) -> None:
    """Declare a function that is compiled into kernels."""
    made.strom_made = lambda: stamp_of(made, options=options)


def _name(made: Any) -> str:
    return f"{made.py_func.__module__}:{made.py_func.__qualname__}"
