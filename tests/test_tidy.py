"""Facts about the repository itself: what a reader may rely on without looking."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections import Counter
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
SOURCES = sorted((ROOT / "src" / "strom").rglob("*.py"))
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])


def _name(path: Path) -> str:
    return str(path.relative_to(ROOT))


@cache
def _parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


def test_a_module_opens_by_saying_what_it_is() -> None:
    assert [_name(path) for path in SOURCES if not ast.get_docstring(_parsed(path))] == []


def test_a_module_has_one_subject() -> None:
    long = [path for path in SOURCES if path.read_text().count("\n") > 500]
    assert [_name(path) for path in long] == [], "two subjects?"


def test_no_room_is_crowded() -> None:
    rooms = Counter(path.parent for path in SOURCES if path.name != "__init__.py")
    assert {_name(room): modules for room, modules in rooms.items() if modules > 25} == {}


def test_a_class_name_has_one_meaning() -> None:
    """Only the two faces share names: ``strom.aio.Scan`` and ``strom.api.Scan`` serve two kinds of caller."""
    homes: dict[str, set[str]] = {}
    for path in SOURCES:
        for node in _parsed(path).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                homes.setdefault(node.name, set()).add(_name(path))
    faces = {"src/strom/aio", "src/strom/api"}
    twice = {
        name: sorted(paths)
        for name, paths in homes.items()
        if len(paths) > 1 and not (len(paths) == 2 and {path.rsplit("/", 1)[0] for path in paths} == faces)
    }
    assert twice == {}


def test_the_picture_of_the_house_is_drawn_from_the_contracts() -> None:
    sys.path.insert(0, str(ROOT / "tools"))
    import house_picture

    house = house_picture.read_house()
    packages = {path.name for path in (ROOT / "src" / "strom").iterdir() if (path / "__init__.py").exists()}
    assert {name for row in house.layers for name in row} == packages | {"errors"}
    drawn = (ROOT / "docs" / "pictures" / "house.svg").read_text()
    assert drawn == house_picture.draw(house), "docs/pictures/house.svg is stale: run `make docs`"


NAMED_MODULE = re.compile(r"(?<![\w/.-])((?:[a-z_]+/)+[a-z_]+\.py)\b")


def test_modules_that_pages_and_docstrings_name_exist() -> None:
    """A path is named from the root, from a package or from the folder of the module that names it."""
    lost = [
        f"{_name(path)}: {named}"
        for path in [*PAGES, *SOURCES]
        if path.name != "CHANGELOG.md"
        for named in NAMED_MODULE.findall(path.read_text())
        if not any(
            (base / named).exists() for base in (ROOT, ROOT / "src", ROOT / "src" / "strom", path.parent)
        )
    ]
    assert lost == []


def test_no_module_hides_its_noun() -> None:
    banned = {"utils", "util", "helper", "helpers", "common", "misc", "base", "manager"}
    assert [path for path in SOURCES if path.stem in banned] == []


@pytest.mark.parametrize("path", PAGES, ids=_name)
def test_links_between_pages_lead_somewhere(path: Path) -> None:
    text = re.sub(r"```.*?```", "", path.read_text(), flags=re.DOTALL)
    for target in re.findall(r"\]\(([^)#\s]+)", text):
        if not target.startswith(("http://", "https://", "mailto:")):
            assert (path.parent / target).exists(), f"{_name(path)} links to {target}, which is not there"


def test_generated_pages_are_up_to_date() -> None:
    from strom.cli.pages.references import pages

    for name, content in pages().items():
        assert (ROOT / "docs" / name).read_text() == content, f"docs/{name} is stale: run `make docs`"


def test_every_error_class_has_a_sentence_and_stands_in_the_tree() -> None:
    from strom import errors

    tree = errors.__doc__ or ""
    for name, kind in vars(errors).items():
        if isinstance(kind, type) and issubclass(kind, Exception):
            assert kind.__doc__, f"{name} has no docstring"
            assert re.search(rf"\b{name}\b", tree), f"{name} is missing from the tree in errors.py"


def test_only_small_text_is_committed() -> None:
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True)
    if listed.returncode != 0:
        pytest.skip("not a git checkout")
    for name in filter(None, listed.stdout.split("\0")):
        path = ROOT / name
        assert not path.is_file() or path.stat().st_size < 1_000_000, f"{name} is over 1 MB"


def _asserts(test: ast.AST) -> bool:
    """An assert, or a block that has to raise or warn, in a function's own text."""
    for node in ast.walk(test):
        if isinstance(node, ast.Assert):
            return True
        if isinstance(node, ast.Call) and ast.unparse(node.func) in (
            "pytest.raises",
            "pytest.warns",
            "pytest.fail",
        ):
            return True
    return False


def test_every_test_asserts_in_its_own_body() -> None:
    """What a test claims can be read in it, and is not lost when a function it calls stops asserting."""
    silent = [
        f"{_name(path)}:{node.lineno} {node.name}"
        for path in sorted((ROOT / "tests").rglob("test_*.py"))
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_")
        if not _asserts(node)
    ]
    assert silent == []


def test_every_part_of_a_test_runs() -> None:
    """A function inside of a test that nobody names asserts nothing, whatever it says."""
    idle = [
        f"{_name(path)}:{part.lineno} {node.name}: {part.name}"
        for path in sorted((ROOT / "tests").rglob("*.py"))
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        for part in node.body
        if isinstance(part, ast.FunctionDef | ast.AsyncFunctionDef) and not part.decorator_list
        if part.name not in _named_beside(node, part)
    ]
    assert idle == []


def _named_beside(node: ast.AST, part: ast.AST) -> set[str]:
    """Every name that stands in ``node`` and outside of ``part``."""
    inside = {id(one) for one in ast.walk(part)}
    return {one.id for one in ast.walk(node) if isinstance(one, ast.Name) and id(one) not in inside}


def test_the_readme_shows_the_two_commands() -> None:
    text = (ROOT / "README.md").read_text()
    assert "make demo" in text
    assert "make test" in text
    assert "make test" in (ROOT / ".ci" / "run").read_text()
