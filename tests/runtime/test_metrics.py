"""Metrics: counted from any thread, plain data in between, one page in the end."""

from __future__ import annotations

import json
import threading

import pytest
from prometheus_client.parser import text_string_to_metric_families

from strom.runtime.metrics import Metrics, labelled, render


def parsed(page: str) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(page)
        for sample in family.samples
    }


def test_asking_twice_gives_the_same_metric() -> None:
    metrics = Metrics()
    metrics.counter("rows_total", "Rows.", table="a").inc(3)
    metrics.counter("rows_total", "Rows.", table="a").inc()
    metrics.counter("rows_total", "Rows.", table="b").inc()
    assert metrics.counter("rows_total", "Rows.", table="a").value == 4
    assert [sample["value"] for sample in metrics.samples()] == [4, 1]


def test_a_name_has_one_kind() -> None:
    metrics = Metrics()
    metrics.counter("x", "X.")
    with pytest.raises(AssertionError):
        metrics.gauge("x", "X.")
    with pytest.raises(AssertionError):
        metrics.counter("not a name", "X.")
    assert len(metrics.samples()) == 1


def test_a_counter_never_goes_down() -> None:
    counter = Metrics().counter("x", "X.")
    with pytest.raises(AssertionError):
        counter.inc(-1)
    assert counter.value == 0


def test_a_gauge_is_set_or_asked_for() -> None:
    gauge = Metrics().gauge("x", "X.")
    gauge.set(5)
    gauge.set(4)
    assert gauge.value == 4
    gauge.follow(lambda: 17)
    assert gauge.value == 17


def test_no_count_is_lost_between_threads() -> None:
    metrics = Metrics()

    def count() -> None:
        for _ in range(5000):
            metrics.counter("x", "X.").inc()
            metrics.histogram("h", "H.").observe(0.5)

    threads = [threading.Thread(target=count) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert metrics.counter("x", "X.").value == 20_000
    told = {suffix: value for suffix, _, value in metrics.histogram("h", "H.").lines()}
    assert (told["_count"], told["_sum"]) == (20_000, 10_000)


def test_a_histogram_counts_what_is_at_most_each_bound() -> None:
    metrics = Metrics()
    histogram = metrics.histogram("seconds", "Time.", bounds=(0.1, 1, 2.5), api="fetch")
    for value in (0.05, 0.1, 0.5, 2, 99):
        histogram.observe(value)
    found = parsed(render(metrics.samples()))
    buckets = {labels: value for (name, labels), value in found.items() if name == "seconds_bucket"}
    assert buckets == {
        (("api", "fetch"), ("le", "0.1")): 2,
        (("api", "fetch"), ("le", "1")): 3,
        (("api", "fetch"), ("le", "2.5")): 4,
        (("api", "fetch"), ("le", "+Inf")): 5,
    }
    assert found["seconds_count", (("api", "fetch"),)] == 5
    assert found["seconds_sum", (("api", "fetch"),)] == pytest.approx(101.65)


def test_samples_survive_json_and_several_processes_make_one_page() -> None:
    pages = []
    for process in ("1", "2"):
        metrics = Metrics()
        metrics.counter("rows_total", "Rows.", table="t").inc(int(process))
        metrics.histogram("seconds", "Time.").observe(1)
        pages.append(labelled(json.loads(json.dumps(metrics.samples())), server=process))
    page = render(pages[0] + pages[1])
    found = parsed(page)
    assert found["rows_total", (("server", "1"), ("table", "t"))] == 1
    assert found["rows_total", (("server", "2"), ("table", "t"))] == 2
    assert page.count("# TYPE rows_total counter") == 1
    assert page.count("# HELP seconds Time.") == 1


def test_labels_and_docs_of_any_text_are_escaped() -> None:
    metrics = Metrics()
    nasty = 'a"b\\c\nd'
    metrics.gauge("x", "Back\\slash\nand line.", name=nasty).set(-1.5)
    assert parsed(render(metrics.samples())) == {("x", (("name", nasty),)): -1.5}


@pytest.mark.parametrize("value", [float("inf"), float("-inf"), 1e300, 0.1, 123456789012345])
def test_numbers_of_any_size_are_read_back(value: float) -> None:
    metrics = Metrics()
    metrics.gauge("x", "X.").set(value)
    assert parsed(render(metrics.samples())) == {("x", ()): value}


def test_not_a_number_is_shown_as_such() -> None:
    metrics = Metrics()
    metrics.gauge("x", "X.").set(float("nan"))
    assert "x NaN\n" in render(metrics.samples())


def test_forgetting_drops_all_metrics_with_these_labels() -> None:
    metrics = Metrics()
    metrics.counter("rows_total", "Rows.", table="a", bucket="0").inc()
    metrics.counter("rows_total", "Rows.", table="b", bucket="0").inc()
    metrics.gauge("lag", "Lag.", table="a").set(1)
    metrics.forget(table="a")
    assert [sample["labels"] for sample in metrics.samples()] == [{"table": "b", "bucket": "0"}]
