"""How Battleship looks: the sea from above."""

from typing import Any

from baddr.domains.battleship.settings import places
from baddr.domains.render import BLUE, DARK, GREY, ORANGE, Renderer, Scene, cell, frame


def _sea(scene: Scene) -> tuple[int, int, set[int], list[int]]:
    """The size, the number of ships, the cells that they cover, and which cells were shot."""
    flags = [size for size in scene.state_sizes if size == 2]
    n = int(len(flags) ** 0.5)
    ships = len(scene.state_sizes) - n * n
    covered: set[int] = set()
    for i in range(ships):
        count, at = scene.state_sizes[i] - 1, scene.s_next[i] - 1
        found = next(x for x in (places(n, length) for length in range(1, n + 1)) if len(x) == count)
        covered |= set(found[at]) if at >= 0 else set()
    return n, ships, covered, scene.s_next[ships:]


def text(scene: Scene) -> str:
    n, _, covered, shot = _sea(scene)
    mark = lambda i: ("X" if shot[i] else "s") if i in covered else ("o" if shot[i] else ".")
    return "\n".join("  " + "".join(mark(y * n + x) for x in range(n)) for y in range(n))


def draw(axes: Any, scene: Scene) -> None:
    """Ships are grey, hits orange, misses blue."""
    n, _, covered, shot = _sea(scene)
    for i in range(n * n):
        y, x = divmod(i, n)
        hit = ORANGE if shot[i] else GREY
        cell(axes, x, y, hit if i in covered else BLUE if shot[i] else "#F2F2F2", edge="white")
        if scene.a == i:
            axes.plot([x], [y], "x", color=DARK, markersize=9)
    frame(axes, -0.8, n - 0.2, n - 0.2, -0.8)


RENDERER = Renderer(text, draw)
