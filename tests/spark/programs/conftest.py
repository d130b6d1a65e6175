"""Programs with a Spark of their own may run beside both sessions; one that took a session would start a third."""

from __future__ import annotations

import pytest


@pytest.fixture(scope="session")
def spark() -> None:
    pytest.fail("tests of programs start a Spark of their own; this one belongs beside this folder")
