"""How Battleship looks: the sea from above."""

from typing import Any

from baddr.domains.battleship.settings import Cells, places
from baddr.domains.render import BLUE, DARK, ORANGE, Renderer, Scene, cell, frame


def _places(scene: Scene, ship: int) -> list[Cells]:
    """Where it can lie. Its length follows from how many places there are, and from whether one has two ends:
    in some seas a single cell has as many places as a longer ship."""
    n, (_, (_, *named)) = _size(scene), scene.names.state[ship]  # the first value is "not yet"
    first, last = named[0].split("-")
    lengths = (1,) if first == last else range(2, n + 1)
    return next(at for at in (places(n, length) for length in lengths) if len(at) == len(named))


def _size(scene: Scene) -> int:
    """n, of n x n cells: each is a feature, whether it was shot."""
    return int(scene.state_sizes.count(2) ** 0.5)


def _sea(scene: Scene) -> tuple[int, int, set[int], list[int]]:
    """The size, the number of ships, the cells that they cover, and which cells were shot."""
    n = _size(scene)
    ships = len(scene.state_sizes) - n * n
    covered: set[int] = set()
    for i in range(ships):
        at = scene.s_next[i] - 1
        covered |= set(_places(scene, i)[at]) if at >= 0 else set()
    return n, ships, covered, scene.s_next[ships:]


def text(scene: Scene) -> str:
    n, _, covered, shot = _sea(scene)
    mark = lambda i: ("X" if shot[i] else "s") if i in covered else ("o" if shot[i] else ".")
    return "\n".join("  " + "".join(mark(y * n + x) for x in range(n)) for y in range(n))


def believed_cells(scene: Scene) -> list[float]:
    """The probability that a ship lies there, cell by cell: no two ships share a cell."""
    n, ships, _, _ = _sea(scene)
    p = [0.0] * (n * n)
    for i, marginal in enumerate((scene.belief or [])[:ships]):
        for cells, mass in zip(_places(scene, i), marginal[1:], strict=True):
            for j in cells:
                p[j] += mass
    return [min(x, 1.0) for x in p]


def draw(axes: Any, scene: Scene) -> None:
    """Ships are framed, hits orange, misses dark; the belief about where ships lie is blue."""
    from matplotlib.patches import Rectangle

    n, _, covered, shot = _sea(scene)
    p = believed_cells(scene)
    for i in range(n * n):
        y, x = divmod(i, n)
        cell(axes, x, y, "#F2F2F2", edge="white")
        cell(axes, x, y, BLUE, 0.85 * p[i])
        if i in covered:
            axes.add_patch(Rectangle((x - 0.4, y - 0.4), 0.8, 0.8, fill=False, edgecolor=DARK, linewidth=1.5))
        if shot[i]:
            axes.plot([x], [y], "o", color=ORANGE if i in covered else DARK, markersize=11)
        if scene.a == i:
            axes.plot([x], [y], "x", color="white", markersize=7)
    words = "frames: ships, orange: hits, dark: misses, blue: believed"
    axes.text((n - 1) / 2, n - 0.1, words, ha="center", va="center", fontsize=9)
    frame(axes, -0.8, n - 0.2, n + 0.2, -0.8)


RENDERER = Renderer(text, draw)
