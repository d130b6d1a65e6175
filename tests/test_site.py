"""``make docs``: the site holds every page, and every link leads somewhere."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "tools"))

import site_pages  # noqa: E402


def small(folder: Path, **pages: str) -> site_pages.Site:
    (folder / "docs").mkdir()
    (folder / "README.md").write_text("# Front\n\n[start](docs/a.md#first-steps)\n")
    (folder / "docs/contents.md").write_text("# Contents\n\n[a](a.md) [b](b.md)\n")
    written = {"a": "# A\n\n## First steps\n\n[b](b.md) [out](https://example.org)\n", "b": "# B\n"} | pages
    for name, text in written.items():
        (folder / "docs" / f"{name}.md").write_text(text)
    return site_pages.Site(folder)


def test_the_pages_of_this_repository_lead_somewhere(tmp_path: Path) -> None:
    site = site_pages.Site(ROOT)
    assert site.problems == []
    assert site.write(tmp_path / "site") > 30
    assert "<nav>" in (tmp_path / "site" / "index.html").read_text()
    assert 'href="../index.html"' in (tmp_path / "site" / "formats" / "segment.html").read_text()


def test_links_are_those_of_the_site(tmp_path: Path) -> None:
    site = small(tmp_path)
    assert site.problems == []
    site.write(tmp_path / "out")
    assert 'href="a.html#first-steps"' in (tmp_path / "out" / "index.html").read_text()
    assert 'id="first-steps"' in (tmp_path / "out" / "a.html").read_text()


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("# A\n\n[x](gone.md)\n", "docs/a.md: gone.md leads nowhere"),
        ("# A\n\n[x](b.md#nope)\n", "docs/a.md: b.md#nope: docs/b.md has no such heading"),
        ("# A\n\n![x](picture.svg)\n", "docs/a.md: picture.svg leads nowhere"),
    ],
)
def test_a_link_that_leads_nowhere_is_a_problem(tmp_path: Path, text: str, problem: str) -> None:
    assert problem in small(tmp_path, a=text + "\n## First steps\n").problems


def test_a_page_that_nobody_finds_is_a_problem(tmp_path: Path) -> None:
    assert small(tmp_path, c="# C\n").problems == ["docs/contents.md leaves docs/c.md out"]
