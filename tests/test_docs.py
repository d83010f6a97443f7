"""The book: its map is that of the imports, its links lead somewhere, and what it names exists.

Pages of the logbook (docs/notebook) are dated and not edited: only their links and width are looked at.
"""

import ast
import functools
import importlib
import importlib.util
import re
import sys
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parent.parent
PAGES = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md"))]
BOOK = [page for page in PAGES if page.parent.name != "notebook"]
ROOMS = sorted(path.parent.name for path in (ROOT / "src" / "baddr").glob("*/__init__.py"))
WIDTH = 110
# One word per concept, and what stands for it elsewhere. (The changelog says what was renamed.)
WORDS = {
    r"\bgo(es|ing)? on\b|\bwent on\b": "resume",
    r"\bbeg[aiu]n\w*": "start",
    r"planner\.lanes": "in flight",
}

by_name = lambda page: page.relative_to(ROOT).as_posix()
each_page = pytest.mark.parametrize("page", PAGES, ids=by_name)
each_of_the_book = pytest.mark.parametrize("page", BOOK, ids=by_name)


def prose(page: Path) -> str:
    """A page without its fenced blocks."""
    return re.sub(r"^ *```.*?^ *```", "", page.read_text(), flags=re.DOTALL | re.MULTILINE)


def blocks(page: Path, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", page.read_text(), re.DOTALL | re.MULTILINE)


def in_backticks(page: Path) -> list[str]:
    return re.findall(r"`([^`\n]+)`", prose(page))


# The map.


def _module(path: Path) -> Any:
    place = importlib.util.spec_from_file_location(path.stem, path)
    assert place is not None and place.loader is not None
    module = importlib.util.module_from_spec(place)
    place.loader.exec_module(module)
    return module


def test_the_map_is_that_of_the_imports():
    house = _module(ROOT / "docs" / "map.py")
    now = house.PAGE.read_text()
    assert now == house.page_with(now, house.drawn()), "run python docs/map.py --write"


# Links and width.


def anchors(page: Path) -> set[str]:
    """Of a page's headings, as GitHub makes them."""
    titles = re.findall(r"^#+ (.*)$", prose(page), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


@each_page
def test_no_link_is_dead(page: Path):
    for target in re.findall(r"\]\(([^)\s]+)\)", prose(page)):
        if "://" in target:
            continue
        name, _, anchor = target.partition("#")
        there = page.parent / name if name else page
        assert there.exists(), f"{target}: no such file"
        assert not anchor or anchor in anchors(there), f"{target}: no such heading"


def test_no_link_of_the_readme_is_dead_on_the_package_index(monkeypatch):
    """With the address of the source they are absolute, without it they are words."""
    hatchling = types.SimpleNamespace(MetadataHookInterface=object)  # the builder, which is not installed
    monkeypatch.setitem(sys.modules, "hatchling.metadata.plugin.interface", hatchling)
    for name in ("hatchling", "hatchling.metadata", "hatchling.metadata.plugin"):
        monkeypatch.setitem(sys.modules, name, types.SimpleNamespace())
    build = _module(ROOT / "hatch_build.py")
    readme = (ROOT / "README.md").read_text()
    links = lambda text: re.findall(r"\]\(([^)\s]+)\)", text)
    assert not links(build.for_the_index(readme, None))
    absolute = build.for_the_index(readme, "https://example.org/baddr")
    assert len(links(absolute)) == len(links(readme)) > 20
    assert all(link.startswith("https://example.org/baddr/") for link in links(absolute))


def test_every_page_can_be_found():
    """From the index or the logbook's, by one link."""
    listed = " ".join((ROOT / "docs" / name).read_text() for name in ("index.md", "notebook/index.md"))
    pages = [page.name for page in PAGES if page.is_relative_to(ROOT / "docs") and page.name != "index.md"]
    assert not [name for name in pages if f"{name})" not in listed]


@each_page
def test_one_width(page: Path):
    lines = [line for line in prose(page).splitlines() if not line.startswith(("|", "![", "#", "    "))]
    assert not [line for line in lines if len(line) > WIDTH]


@each_of_the_book
def test_one_word_per_concept(page: Path):
    if page.name != "CHANGELOG.md":
        found = {word: re.findall(f".*(?:{word}).*", prose(page), re.IGNORECASE) for word in WORDS}
        assert not {WORDS[word]: lines for word, lines in found.items() if lines}


# What is named in backticks.

HOMES = [ROOT, ROOT / "tests", ROOT / "docs", ROOT / "benchmarks"]
HOMES += [ROOT / "src" / path for path in ("", "baddr", "baddr/domains/tiger")]  # files that each domain has


@functools.cache
def file_named(name: str) -> Path | None:
    """By its path below one of the homes."""
    return next((home / name for home in HOMES if (home / name).is_file()), None)


def files_in(words: list[str]) -> Iterator[tuple[str, str]]:
    """Paths of Python files with what stands after `::`; FILE.py and the like stand for a user's own."""
    for word in words:
        for name, test in re.findall(r"(?<![\w.*/])([\w./-]+/[\w-]+\.py|[a-z_]\w*\.py)(?:::(\w+))?", word):
            if not name.startswith("/") and not any(part.isupper() for part in re.split(r"[/.]", name)):
                yield name, test


@each_of_the_book
def test_files_and_tests_that_are_named_exist(page: Path):
    if page.name == "CHANGELOG.md":
        return
    for name, test in files_in(in_backticks(page)):
        path = file_named(name)
        assert path, f"`{name}` does not exist"
        if test:
            defined = {node.name for node in ast.walk(ast.parse(path.read_text())) if hasattr(node, "name")}
            assert test in defined, f"{name} has no {test}"


def found(dotted: str) -> Any:
    """What baddr.X.Y stands for: modules as far as they go, then attributes."""
    value, names = importlib.import_module("baddr"), dotted.split(".")[1:]
    for i, name in enumerate(names):
        try:
            value = getattr(value, name)
        except AttributeError:
            value = importlib.import_module(".".join(["baddr", *names[: i + 1]]))
    return value


@each_of_the_book
def test_names_in_backticks_exist(page: Path):
    if page.name == "CHANGELOG.md":
        return
    for word in in_backticks(page):
        for name in re.findall(rf"^((?:baddr|{'|'.join(ROOMS)})(?:\.[A-Za-z_]\w*)+)(?=$|\(| )", word):
            if not re.search(r"\.(py|md|log|toml|parquet|png|svg)$", name):
                found(name if name.startswith("baddr.") else f"baddr.{name}")


@each_of_the_book
def test_what_code_blocks_import_exists(page: Path):
    for block in blocks(page, "python"):
        for node in ast.walk(ast.parse(block)):
            if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "baddr":
                for alias in node.names:
                    found(f"{node.module}.{alias.name}")
            elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
                if node.value.id == "baddr":
                    found(f"baddr.{node.attr}")
