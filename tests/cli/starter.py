"""Forks commands from a process that has imported what they need, and reports how each ended."""

from __future__ import annotations

import json
import os
import socket
import struct
import sys
from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import Any

LENGTH = struct.Struct("!I")
STREAMS = 3
PRELOADED = (
    "pyarrow.csv",
    "pyarrow.json",
    "pyarrow.parquet",
    "strom.api.database",
    "strom.client.show.row_text",
)


def ask(
    starter: socket.socket, words: Sequence[str], environment: Mapping[str, str], streams: list[int]
) -> None:
    """Have a command started with these words and streams, in the folder where the caller is now."""
    body = json.dumps({"words": words, "environment": dict(environment), "folder": os.getcwd()}).encode()
    socket.send_fds(starter, [LENGTH.pack(len(body))], streams)
    starter.sendall(body)


def answered(starter: socket.socket) -> int:
    """The exit code, as ``subprocess`` counts it: of a command that a signal ended, the signal's negative number."""
    return os.waitstatus_to_exitcode(LENGTH.unpack(_exactly(starter, LENGTH.size))[0])


def start_commands(asked: socket.socket) -> bool:
    """Fork a command for each question. True in such a command, False when nobody asks any more."""
    while True:
        first, streams, _, _ = socket.recv_fds(asked, LENGTH.size, STREAMS)
        if not first:
            return False
        told = json.loads(_exactly(asked, LENGTH.unpack(first)[0]))
        child = os.fork()
        if child == 0:
            asked.close()
            _become(told, streams)
            return True
        for stream in streams:
            os.close(stream)
        asked.sendall(LENGTH.pack(os.waitpid(child, 0)[1]))


def _become(told: dict[str, Any], streams: list[int]) -> None:
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    os.chdir(told["folder"])
    os.environ.clear()
    os.environ.update(told["environment"])
    sys.argv = ["strom", *told["words"]]


def _exactly(connection: socket.socket, size: int) -> bytes:
    found = b""
    while len(found) < size:
        part = connection.recv(size - len(found))
        if not part:
            raise EOFError("the other side is gone")
        found += part
    return found


if __name__ == "__main__":
    from strom.cli.main import main

    for imported_by_most in PRELOADED:
        import_module(imported_by_most)
    with socket.socket(fileno=int(sys.argv[1])) as questions:
        is_command = start_commands(questions)
    if is_command:
        main()
