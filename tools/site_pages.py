"""``make docs``: the pages of ``docs/`` as a site, in which every link leads somewhere.

Pages are Markdown as they stand; the table of contents is ``docs/contents.md``. A link to a page, a heading, a picture
or a file of the repository that is not there is an error, and so is a page that the contents leave out.
"""

from __future__ import annotations

import argparse
import html
import posixpath
import re
import shutil
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from markdown_it import MarkdownIt
from markdown_it.token import Token

CONTENTS = "docs/contents.md"
FRONT = "README.md"
PICTURES = (".svg", ".png")
STYLE = Path(__file__).with_suffix(".css")


@dataclass
class Page:
    """One Markdown file. ``anchors`` are the headings that a link may name."""

    path: str
    tokens: list[Token]
    title: str = ""
    anchors: set[str] = field(default_factory=set)

    @property
    def target(self) -> str:
        """Where it lies in the site."""
        return (
            "index.html"
            if self.path == FRONT
            else self.path.removeprefix("docs/").removesuffix(".md") + ".html"
        )


def parser() -> MarkdownIt:
    """Markdown as GitHub reads it, as far as these pages use it."""
    return MarkdownIt("commonmark", {"html": False}).enable("table")


def anchor_of(heading: str) -> str:
    """The name under which a heading is linked to, as on GitHub."""
    return re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-")


def read_page(root: Path, path: str) -> Page:
    """A page, its title and its headings; headings get their anchors as ids."""
    page = Page(path, parser().parse((root / path).read_text(encoding="utf-8")))
    for before, token in zip(page.tokens, page.tokens[1:], strict=False):
        if before.type != "heading_open":
            continue
        text = "".join(one.content for one in token.children or [] if one.type in ("text", "code_inline"))
        name = anchor_of(text)
        number = 1
        while name in page.anchors:
            name = f"{anchor_of(text)}-{number}"
            number += 1
        page.anchors.add(name)
        before.attrSet("id", name)
        page.title = page.title or text
    return page


def links(page: Page) -> Iterator[tuple[Token, str]]:
    """Every link and picture of a page, with the attribute that holds where it leads."""
    for token in page.tokens:
        for one in token.children or []:
            if one.type == "link_open":
                yield one, "href"
            elif one.type == "image":
                yield one, "src"


class Site:
    """All pages, and what is wrong with them."""

    def __init__(self, root: Path) -> None:
        self._root = root
        found = sorted(str(path.relative_to(root)) for path in (root / "docs").rglob("*.md"))
        self.pages = {path: read_page(root, path) for path in [FRONT, *found]}
        self.problems: list[str] = []
        self._assets: set[str] = set()
        self._check_contents()
        for page in self.pages.values():
            for token, attribute in links(page):
                token.attrSet(attribute, self._lead(page, str(token.attrGet(attribute))))

    def _check_contents(self) -> None:
        """Every page is in the table of contents: what is not cannot be found."""
        if CONTENTS not in self.pages:
            self.problems.append(f"{CONTENTS} is missing")
            return
        listed = {
            posixpath.normpath(posixpath.join("docs", str(token.attrGet(attribute)).partition("#")[0]))
            for token, attribute in links(self.pages[CONTENTS])
        }
        for path in self.pages:
            if path not in listed and path not in (CONTENTS, FRONT):
                self.problems.append(f"{CONTENTS} leaves {path} out")

    def _lead(self, page: Page, to: str) -> str:
        """The link as the site has it; a problem where it leads nowhere."""
        if re.match(r"[a-z]+:", to):
            return to
        file, _, anchor = to.partition("#")
        path = posixpath.normpath(posixpath.join(posixpath.dirname(page.path), file)) if file else page.path
        other = self.pages.get(path)
        if other is None:
            return self._asset(page, to, path)
        if anchor and anchor not in other.anchors:
            self.problems.append(f"{page.path}: {to}: {other.path} has no such heading")
        target = posixpath.relpath(other.target, posixpath.dirname(page.target) or ".")
        return f"{target}#{anchor}" if anchor else target

    def _asset(self, page: Page, to: str, path: str) -> str:
        if not (self._root / path).exists():
            self.problems.append(f"{page.path}: {to} leads nowhere")
            return to
        if path.endswith(PICTURES) or (self._root / path).is_file():
            self._assets.add(path)
            return posixpath.relpath(posixpath.join("files", path), posixpath.dirname(page.target) or ".")
        return to  # a folder: to be looked at in the repository

    def write(self, folder: Path) -> int:
        """The site as files; returns how many pages."""
        shutil.rmtree(folder, ignore_errors=True)
        for page in self.pages.values():
            target = folder / page.target
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(self._html(page), encoding="utf-8")
        for path in self._assets:
            (folder / "files" / path).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(self._root / path, folder / "files" / path)
        shutil.copyfile(STYLE, folder / "style.css")
        return len(self.pages)

    def _html(self, page: Page) -> str:
        up = posixpath.relpath("style.css", posixpath.dirname(page.target) or ".")
        body = _render(page.tokens)
        return (
            '<!doctype html><html lang="en"><head><meta charset="utf-8">'
            f"<title>{html.escape(page.title)} · Strom</title>"
            f'<meta name="viewport" content="width=device-width"><link rel="stylesheet" href="{up}"></head>'
            f"<body><nav>{self._navigation(page)}</nav><main>{body}</main></body></html>\n"
        )

    def _navigation(self, page: Page) -> str:
        """The table of contents, with links as seen from this page."""
        contents = read_page(self._root, CONTENTS)
        for token, attribute in links(contents):
            if attribute != "href":
                continue
            path = posixpath.normpath(posixpath.join("docs", str(token.attrGet("href")).partition("#")[0]))
            other = self.pages.get(path)
            if other is not None:
                token.attrSet("href", posixpath.relpath(other.target, posixpath.dirname(page.target) or "."))
                if other is page:
                    token.attrSet("class", "here")
        return _render(contents.tokens)


def _render(tokens: list[Token]) -> str:
    made = parser()
    rendered: str = made.renderer.render(tokens, made.options, {})
    return rendered


def main(arguments: list[str] | None = None) -> int:
    """Build the site; 1 when something leads nowhere."""
    told = argparse.ArgumentParser(description=__doc__)
    told.add_argument("--root", type=Path, default=Path(__file__).resolve().parents[1])
    told.add_argument("--to", type=Path, default=None, help="the folder to write (build/site)")
    asked = told.parse_args(arguments)
    site = Site(asked.root)
    for problem in site.problems:
        print(problem, file=sys.stderr)
    if site.problems:
        return 1
    folder = asked.to or asked.root / "build" / "site"
    print(f"{site.write(folder)} pages in {folder}: open {folder / 'index.html'}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
