"""Compiled kernels: how this package turns loops over rows into machine code, and the words they are written in.

A kernel is compiled for the signatures it names and no others. That happens at its first call, unless this process or
an earlier one has done it (``kernel_code``). Servers do not wait for that call: other processes compile what a table
needs first (``kernel_needs``, ``compiler_processes``). ``python -m strom.kv.kernels.compile`` compiles everything
ahead.

Rules for kernels: no data may crash them (validate first); division follows NumPy; integers wrap. Arrays are declared
``ro`` (read-only and writable ones are accepted) or ``rw``. A buffer known only by its address is accessed by
``load_*`` and ``store_*``, which need no alignment; the caller keeps its owner alive.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import numba
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from strom.kv.kernels.kernel_code import declare, part

__all__ = [
    "boolean",
    "float32",
    "float64",
    "fold_multiply",
    "int8",
    "int16",
    "int32",
    "int64",
    "kernel",
    "load_f32",
    "load_f64",
    "load_i8",
    "load_i16",
    "load_i32",
    "load_i64",
    "load_u8",
    "load_u16",
    "load_u32",
    "load_u64",
    "ones",
    "prefetch",
    "ro",
    "rw",
    "store_f32",
    "store_f64",
    "store_i8",
    "store_i16",
    "store_i32",
    "store_i64",
    "store_u8",
    "store_u16",
    "store_u32",
    "store_u64",
    "uint8",
    "uint16",
    "uint32",
    "uint64",
    "void",
]

boolean, void = types.boolean, types.void
int8, int16, int32, int64 = types.int8, types.int16, types.int32, types.int64
uint8, uint16, uint32, uint64 = types.uint8, types.uint16, types.uint32, types.uint64
float32, float64 = types.float32, types.float64

Kernel = TypeVar("Kernel", bound=Callable[..., Any])


def ro(dtype: Any, dimensions: int = 1) -> Any:
    """The type of a contiguous array that the kernel only reads."""
    return types.Array(dtype, dimensions, "C", readonly=True)


def rw(dtype: Any, dimensions: int = 1) -> Any:
    """The type of a contiguous array that the kernel writes to."""
    return types.Array(dtype, dimensions, "C")


def kernel(*signatures: Any, inline: bool = False, nogil: bool = True) -> Callable[[Kernel], Kernel]:
    """Compile a function for these signatures, at its first call at the latest. It runs without the interpreter's lock.

    Without a signature the function is a part of other kernels and compiled into them (``inline``: at Numba's level,
    which only matters where a loop must see the body). It must not call itself. ``nogil=False`` is for kernels that
    take a microsecond: a thread that releases the interpreter may wait milliseconds to get it back when others are
    busy.

    Nothing calls a kernel from C, or a part from Python: those wrappers would take a quarter of the compile time.
    """

    def compiled(function: Kernel) -> Kernel:
        njit: Any = numba.njit
        made: Any = njit(
            nogil=nogil,
            error_model="numpy",
            inline="always" if inline else "never",
            no_cfunc_wrapper=True,
            no_cpython_wrapper=not signatures,
        )(function)
        if signatures:
            declare(made, signatures, options=(nogil, inline))
        else:
            part(made, options=(nogil, inline))
        return made  # type: ignore[no-any-return]

    return compiled


def _loader(value_type: Any) -> Any:
    def load(typing_context: Any, address: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            shape = context.get_value_type(value_type)
            pointer = builder.inttoptr(arguments[0], ir.PointerType(shape))
            return builder.load(pointer, align=1)

        return value_type(types.int64), generate

    return intrinsic(load)


def _storer(value_type: Any) -> Any:
    def store(typing_context: Any, address: Any, value: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            shape = context.get_value_type(value_type)
            pointer = builder.inttoptr(arguments[0], ir.PointerType(shape))
            builder.store(arguments[1], pointer, align=1)
            return context.get_dummy_value()

        return types.void(types.int64, value_type), generate

    return intrinsic(store)


load_i8, load_i16, load_i32, load_i64 = _loader(int8), _loader(int16), _loader(int32), _loader(int64)
load_u8, load_u16, load_u32, load_u64 = _loader(uint8), _loader(uint16), _loader(uint32), _loader(uint64)
load_f32, load_f64 = _loader(float32), _loader(float64)
store_i8, store_i16, store_i32, store_i64 = _storer(int8), _storer(int16), _storer(int32), _storer(int64)
store_u8, store_u16, store_u32, store_u64 = _storer(uint8), _storer(uint16), _storer(uint32), _storer(uint64)
store_f32, store_f64 = _storer(float32), _storer(float64)


def _prefetch(typing_context: Any, address: Any) -> Any:
    """Prefetch the cache line of an address that will be read soon; any address is allowed."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        number, pointer = ir.IntType(32), ir.PointerType(ir.IntType(8))
        shape = ir.FunctionType(ir.VoidType(), [pointer, number, number, number])
        declare: Any = cgutils.get_or_insert_function
        function = declare(builder.module, shape, "llvm.prefetch.p0")
        read, keep, data = (ir.Constant(number, value) for value in (0, 3, 1))
        builder.call(function, [builder.inttoptr(arguments[0], pointer), read, keep, data])
        return context.get_dummy_value()

    return types.void(types.int64), generate


def _fold_multiply(typing_context: Any, left: Any, right: Any) -> Any:
    """The 128-bit product of two 64-bit numbers, its halves combined by exclusive or."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        wide, word = ir.IntType(128), ir.IntType(64)
        product = builder.mul(*(builder.zext(argument, wide) for argument in arguments))
        high = builder.trunc(builder.lshr(product, ir.Constant(wide, 64)), word)
        return builder.xor(builder.trunc(product, word), high)

    return types.uint64(types.uint64, types.uint64), generate


def _ones(typing_context: Any, word: Any) -> Any:
    """The number of bits set."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.ctpop(arguments[0])

    return types.int64(types.uint64), generate


def _trailing_zeros(typing_context: Any, word: Any) -> Any:
    """The position of the lowest bit set, 64 when none is."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.cttz(arguments[0], ir.Constant(ir.IntType(1), 0))

    return types.int64(types.uint64), generate


prefetch: Any = intrinsic(_prefetch)
ones: Any = intrinsic(_ones)
trailing_zeros: Any = intrinsic(_trailing_zeros)
fold_multiply: Any = intrinsic(_fold_multiply)


if __name__ == "__main__":
    from strom.kv.kernels.compiler_processes import compile_ahead

    compile_ahead()
