"""Whoever comes first, everybody gets the catalog."""

from __future__ import annotations

import threading
from pathlib import Path

from strom.lake.iceberg.catalogs import LakeCatalog, open_catalog
from strom.model.lake.lake import LakeConfig

THREADS = 6


def test_many_who_open_a_new_catalog_and_make_tables_in_it_at_once_all_succeed(tmp_path: Path) -> None:
    for number in range(5):
        config = LakeConfig(warehouse=f"file://{tmp_path}/w{number}")
        together = threading.Barrier(THREADS)
        opened: list[LakeCatalog] = []
        made: list[object] = []

        def one(place: int, config=config, together=together, opened=opened, made=made) -> None:  # type: ignore[no-untyped-def]
            together.wait(30)
            catalog = open_catalog(config)
            opened.append(catalog)
            made.append(catalog.create(("db", f"t{place}"), f"{config.warehouse}/db/t{place}", {}))

        threads = [threading.Thread(target=one, args=(place,)) for place in range(THREADS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(opened) == THREADS
        assert len(made) == THREADS
        assert None not in made
        for catalog in opened:
            catalog.close()
