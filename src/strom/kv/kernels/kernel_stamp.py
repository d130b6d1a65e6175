"""A digest of everything a kernel's machine code depends on: equal digests mean equal code.

Numba trusts cached code as long as the one *file* of its function has not changed, although the code contains other
kernels and the values of globals. This digest covers the function's own code, the kernels it calls, the values it
names, the compiler and the processor. So unchanged kernels are found again after an upgrade, and changed ones never
are.
"""

from __future__ import annotations

import builtins
import hashlib
import platform
import types as python_types
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any

import llvmlite
import numba
import numpy as np
from numba.core.dispatcher import Dispatcher
from numba.core.extending import _Intrinsic  # type: ignore[attr-defined,unused-ignore]
from numba.core.registry import cpu_target
from numba.core.types import Type

Code = python_types.CodeType

_PLAIN = (bool, int, float, complex, str, bytes, np.generic, Type, type(None), type(Ellipsis))
_FOREIGN = ("numpy", "numba", "llvmlite", "math", "builtins", "operator", "typing")
"""Packages identified by their version alone."""


def stamp_of(made: Any, *, options: object) -> str:
    """The digest of a kernel. ``options``: how it is compiled, and for which signatures."""
    stamp = getattr(made, "strom_stamp", None)
    if stamp is None:
        made.strom_stamp = stamp = _digest([_compiler(), repr(options), *_function(made.py_func)])
    return str(stamp)


def _digest(parts: Iterable[str]) -> str:
    digest = hashlib.blake2b(digest_size=16)
    for part in parts:
        digest.update(f"{len(part)}:{part}".encode())
    return digest.hexdigest()


@cache
def _compiler() -> str:
    versions = (numba.__version__, llvmlite.__version__, np.__version__, platform.python_version())
    own = _text(
        str(Path(__file__).with_name("compile.py"))
    )  # the words of kernels, and how they are compiled
    return repr((versions, cpu_target.target_context.codegen().magic_tuple(), own))


def _function(function: Any) -> list[str]:
    """Everything that the code of a Python function depends on."""
    cells = [_value(cell.cell_contents, function) for cell in function.__closure__ or ()]
    named = [f"{name}={_named(name, function)}" for name in _names(function.__code__)]
    return [*_code(function.__code__), _value(function.__defaults__, function), *cells, *named]


def _code(code: Code) -> list[str]:
    """Its instructions, without line numbers."""
    constants = ["\n".join(_code(one)) if isinstance(one, Code) else _constant(one) for one in code.co_consts]
    names = (code.co_names, code.co_varnames, code.co_freevars, code.co_cellvars)
    return [code.co_code.hex(), repr(names), repr((code.co_argcount, code.co_flags)), *constants]


def _constant(value: object) -> str:
    return repr(sorted(map(repr, value))) if isinstance(value, frozenset) else repr(value)


def _names(code: Code) -> list[str]:
    inner = [name for part in code.co_consts if isinstance(part, Code) for name in _names(part)]
    return sorted({*code.co_names, *inner})


def _named(name: str, function: Any) -> str:
    """The value of a global name. Attribute names look the same and have none."""
    if name in function.__globals__:
        return _value(function.__globals__[name], function)
    return f"builtin {name}" if hasattr(builtins, name) else "no global"


def _value(value: Any, function: Any) -> str:
    if isinstance(value, Dispatcher):
        stamp = getattr(value, "strom_made", None)
        return stamp() if stamp is not None else _digest(_function(value.py_func))
    if isinstance(value, tuple | list):
        return f"({', '.join(_value(one, function) for one in value)})"
    if isinstance(value, _PLAIN):
        return f"{type(value).__name__} {value!r}"
    if isinstance(value, np.ndarray):
        return f"array {value.dtype} {value.shape} {value.tobytes().hex()}"
    if isinstance(value, _Intrinsic):
        return f"{_digest(_function(value._defn))} of {_text(value._defn.__code__.co_filename)}"
    if isinstance(value, python_types.ModuleType):
        return _module(value, function)
    if str(getattr(value, "__module__", "")).partition(".")[0] in _FOREIGN:
        return f"{value.__module__}.{getattr(value, '__qualname__', value)}"
    if isinstance(value, python_types.FunctionType):
        return _digest(_function(value))
    raise TypeError(
        f"kernel {function.__qualname__} names a {type(value).__name__}, which cannot be digested: "
        "name only numbers, tuples and other kernels"
    )


def _module(module: python_types.ModuleType, function: Any) -> str:
    if module.__name__.partition(".")[0] in _FOREIGN:
        return module.__name__
    used = [name for name in _names(function.__code__) if name in vars(module)]
    return ", ".join(f"{name}={_value(vars(module)[name], function)}" for name in used)


@cache
def _text(path: str) -> str:
    return hashlib.blake2b(Path(path).read_bytes(), digest_size=16).hexdigest()
