"""Plant a bug in a module that is loaded already: the code of its functions is changed, and back again.

Functions keep their identity, so whoever imported one has the bug too. Nothing is written to disk.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import CodeType, FunctionType, ModuleType


@contextmanager
def planted(module: ModuleType, old: str, new: str) -> Iterator[None]:
    """While the block runs, ``module`` says ``new`` where it says ``old``, which must be in exactly one place."""
    path = str(module.__file__)
    source = Path(path).read_text(encoding="utf-8")
    found = source.count(old)
    assert found == 1, f"{path} has {old!r} {found} times: plant the bug where the rule is now"
    wrong = dict(_codes(compile(source.replace(old, new), path, "exec", dont_inherit=True)))
    right = dict(_codes(compile(source, path, "exec", dont_inherit=True)))
    changed = [one for one in _functions(module) if wrong[one.__qualname__] != right[one.__qualname__]]
    assert changed, f"{old!r} is in no function of {path}"
    codes = [(one, one.__code__) for one in changed]
    for one in changed:
        one.__code__ = wrong[one.__qualname__]
    try:
        yield
    finally:
        for one, code in codes:
            one.__code__ = code


def _codes(code: CodeType) -> Iterator[tuple[str, CodeType]]:
    """The functions of a module and of its classes, by qualified name."""
    for one in code.co_consts:
        if isinstance(one, CodeType):
            yield one.co_qualname, one
            if "<locals>" not in one.co_qualname:
                yield from _codes(one)


def _functions(module: ModuleType) -> Iterator[FunctionType]:
    for value in [*vars(module).values()]:
        if isinstance(value, type) and value.__module__ == module.__name__:
            for one in vars(value).values():
                inner = getattr(one, "__func__", getattr(one, "fget", one))
                if isinstance(inner, FunctionType) and inner.__code__.co_filename == module.__file__:
                    yield inner
        elif isinstance(value, FunctionType) and value.__module__ == module.__name__:
            yield value
