"""Where the lake is, as servers tell it."""

from __future__ import annotations

import pytest

from strom.errors import InvalidSetting
from strom.model.document import Document
from strom.model.lake.lake import UNKNOWN, LakeConfig, bounds_from_json, bounds_to_json


def test_a_config_comes_back_as_it_was() -> None:
    config = LakeConfig("s3://lake/strom/", "rest", "http://localhost:8181", {"s3.region": "eu"})
    assert config.warehouse == "s3://lake/strom"
    assert LakeConfig.from_json(config.to_json()) == config


def test_a_local_warehouse_has_its_catalog_inside() -> None:
    assert LakeConfig("file:///data/lake").catalog_uri == "/data/lake/catalog.db"


@pytest.mark.parametrize(
    "wrong",
    [
        {"warehouse": "/data/lake", "catalog": "sqlite"},
        {"warehouse": "file:///data", "catalog": "hive"},
        {"warehouse": "file:///data", "catalog": "rest"},
        {"warehouse": "s3://lake", "catalog": "sqlite"},
        {"catalog": "sqlite"},
        [],
    ],
)
def test_a_config_that_cannot_be_is_refused(wrong: object) -> None:
    with pytest.raises(InvalidSetting):
        LakeConfig.from_json(wrong)


def test_bounds_come_back_as_they_were() -> None:
    bounds = {0: ("1", "99"), 3: None, 7: UNKNOWN}
    doc = Document({"bounds": bounds_to_json(bounds)}, "record", InvalidSetting)
    assert bounds_from_json(doc, "bounds") == bounds


@pytest.mark.parametrize("wrong", [{"x": None}, {"1": ["a"]}, {"1": [1, 2]}, {"1": "a"}])
def test_bounds_that_cannot_be_are_refused(wrong: object) -> None:
    with pytest.raises(InvalidSetting):
        bounds_from_json(Document({"bounds": wrong}, "record", InvalidSetting), "bounds")
