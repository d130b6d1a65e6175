"""Words of the form key=value."""

from __future__ import annotations

import pytest
import typer

from strom.cli.terminal.words import pairs


def test_a_value_is_everything_behind_the_first_sign_and_a_key_has_no_blanks_around_it() -> None:
    assert pairs(["a=1", " b =  x = y ", "c="]) == {"a": "1", "b": "  x = y ", "c": ""}


@pytest.mark.parametrize("word", ["", "a", "=1"])
def test_what_is_no_pair_is_refused(word: str) -> None:
    with pytest.raises(typer.BadParameter, match="key=value"):
        pairs(["a=1", word])
