"""The map of the house, drawn from the imports as they are: rooms, and who imports from whom.

`python docs/map.py` prints it; `python docs/map.py --write` puts it into design.md, between its markers.
"""

import ast
import sys
from pathlib import Path

PACKAGE = Path(__file__).parent.parent / "src" / "baddr"
PAGE = Path(__file__).parent / "design.md"
FIRST, LAST = "<!-- map: python docs/map.py --write -->", "<!-- end of map -->"

Graph = dict[str, set[str]]  # a room, and those that it imports from


def rooms() -> list[str]:
    """The folders of the package, and its files that folders import from."""
    folders = [path.parent.name for path in PACKAGE.glob("*/__init__.py")]
    needed = {name for path in PACKAGE.glob("*/**/*.py") for name in imported(path)}
    return sorted({*folders, *(path.stem for path in PACKAGE.glob("*.py") if path.stem in needed)})


def imported(path: Path) -> set[str]:
    """The first name after `baddr.` in every import of a file, also of those within functions."""
    names: list[str] = []
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module == "baddr":
            names += [f"baddr.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names.append(node.module or "")
        elif isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
    return {name.split(".")[1] for name in names if name.startswith("baddr.")}


def graph() -> Graph:
    known = rooms()
    files = {room: [PACKAGE / f"{room}.py", *(PACKAGE / room).rglob("*.py")] for room in known}
    found = {room: set().union(*(imported(path) for path in files[room] if path.exists())) for room in known}
    return {room: (found[room] & {*known}) - {room} for room in known}


def reached(arrows: Graph, room: str) -> set[str]:
    """All rooms that a room needs, by whatever way."""
    return arrows[room].union(*(reached(arrows, other) for other in arrows[room]))


def in_order(arrows: Graph) -> list[str]:
    """Each room after those that it needs."""
    return sorted(arrows, key=lambda room: (len(reached(arrows, room)), room))


def shortest(arrows: Graph) -> Graph:
    """Without the arrows that lead where others lead, too."""
    beyond = {room: set().union(*(reached(arrows, other) for other in arrows[room])) for room in arrows}
    return {room: arrows[room] - beyond[room] for room in arrows}


def about(room: str) -> str:
    """The first sentence that a room says about itself."""
    path = next(p for p in (PACKAGE / f"{room}.py", PACKAGE / room / "__init__.py") if p.exists())
    text = ast.get_docstring(ast.parse(path.read_text()))
    return " ".join((text or "").split("\n\n")[0].split()).split(". ")[0].rstrip(".")


def drawn() -> str:
    arrows = graph()
    lines = ["```mermaid", "graph TB"]
    drawing = shortest(arrows)
    for room in in_order(arrows):
        lines += [f"  {room} --> {other}" for other in in_order(arrows) if other in drawing[room]]
    lines += ["```", "", "| room | what it is | imports from |", "|---|---|---|"]
    for room in in_order(arrows):
        others = ", ".join(other for other in in_order(arrows) if other in arrows[room])
        lines.append(f"| `{room}` | {about(room)} | {others} |")
    return "\n".join(lines)


def page_with(text: str, drawing: str) -> str:
    """The page with another map."""
    before, _, rest = text.partition(FIRST)
    _, _, after = rest.partition(LAST)
    return f"{before}{FIRST}\n{drawing}\n{LAST}{after}"


if __name__ == "__main__":
    if "--write" in sys.argv[1:]:
        PAGE.write_text(page_with(PAGE.read_text(), drawn()))
    else:
        print(drawn())
