"""Answers to the catalog's calls without a Spark: an error travels as its kind and one sentence."""

from __future__ import annotations

import json

import pytest

from strom.spark.catalog.catalog_calls import answer


def error_of(**options: str) -> dict[str, str]:
    """The error in the answer to a call."""
    said = {"_op": "databases", "_request": "7", **options}
    found = json.loads(answer(said)["answer"].metadata["answer"])
    assert found["request"] == "7"
    error: dict[str, str] = found["error"]
    return error


@pytest.mark.parametrize("asked", ["databases", "drop"])
def test_a_server_that_is_not_there_is_named_by_its_address(asked: str) -> None:
    arguments = json.dumps({"table": "shop.orders"})
    error = error_of(_op=asked, _args=arguments, **{"bootstrap.servers": "localhost:1"})
    assert error["kind"] == "Disconnected"
    assert error["message"].startswith("the server at localhost:1 cannot be reached: ")


def test_a_call_that_names_no_server_is_told_what_is_missing() -> None:
    assert "bootstrap.servers" in error_of()["message"]
