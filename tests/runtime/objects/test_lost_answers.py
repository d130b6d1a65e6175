"""A real store whose answer to a conditional put is lost: nobody takes his own object for another one's."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from urllib.parse import urlsplit

import pytest

from lake.s3_place import BUCKET, KEY, SECRET, S3Server
from strom.lake.files.object_store import ACCESS_KEY, SECRET_KEY, ObjectStore
from strom.model.lake.lake import LakeConfig
from strom.runtime.clock import SystemClock
from strom.runtime.objects.blocking_objects import BlockingObjects
from strom.runtime.objects.object_place import ObjectPlace
from strom.runtime.objects.object_store import PutOutcome
from strom.runtime.objects.obstore_objects import ObstoreObjects
from strom.runtime.objects.patient_objects import PatientObjects
from strom.runtime.random import SystemRandomness
from strom.testing.cut_proxy import CutProxy
from waiting import until_blocking

pytestmark = pytest.mark.slow


@pytest.fixture
def proxy(s3: S3Server) -> Iterator[CutProxy]:
    with CutProxy(urlsplit(s3.endpoint).port or 0) as between:
        yield between


def with_the_first_answer_lost(proxy: CutProxy, put: Callable[[], object]) -> object:
    """What ``put`` returns when the answer to its first attempt never comes."""
    proxy.lose_answers()
    with ThreadPoolExecutor(1) as threads:
        answer = threads.submit(put)
        until_blocking(lambda: proxy.answers_lost > 0)
        proxy.heal()
        proxy.cut()
        return answer.result(30)


def test_the_outcome_is_unknown_and_the_object_is_there(s3: S3Server, proxy: CutProxy) -> None:
    place = ObjectPlace.of(f"s3://{BUCKET}/lost", s3.options() | {"s3.endpoint": f"http://{proxy.address}"})
    patient = PatientObjects(ObstoreObjects(place), clock=SystemClock(), randomness=SystemRandomness())
    store = BlockingObjects(patient)
    outcome = with_the_first_answer_lost(proxy, lambda: store.put_if_absent("mine", b"my own"))
    assert outcome is PutOutcome.UNKNOWN
    assert store.get("mine") == b"my own"
    assert store.put_if_absent("mine", b"another") is PutOutcome.TAKEN


def test_the_lake_finds_that_it_was_its_own(proxy: CutProxy) -> None:
    options = {"s3.endpoint": f"http://{proxy.address}"}
    config = LakeConfig(f"s3://{BUCKET}/lost-lake", "sqlite", "unused", options)
    lake = ObjectStore(config, {ACCESS_KEY: KEY, SECRET_KEY: SECRET})
    found = with_the_first_answer_lost(proxy, lambda: lake.put_if_absent("lost-lake/mine", b"my own"))
    assert found is True
    assert lake.put_if_absent("lost-lake/mine", b"another") is False
    proxy.answers_lost = 0
    found = with_the_first_answer_lost(proxy, lambda: lake.put_if_absent("lost-lake/mine", b"another"))
    assert found is False
