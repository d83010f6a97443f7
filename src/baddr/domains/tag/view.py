"""How Tag looks: the cells from above, with the robot, the opponent and where it is believed to be."""

from typing import Any

from baddr.domains.render import BLUE, DARK, ORANGE, Renderer, Scene, cell, frame
from baddr.domains.tag.settings import cells


def _cells(scene: Scene) -> list[tuple[int, int]]:
    n = scene.state_sizes[0]
    return next(found for found in map(cells, range(2, 21)) if len(found) == n)


def text(scene: Scene) -> str:
    found, (robot, opponent) = _cells(scene), scene.s_next
    marks = {found[opponent]: "O", found[robot]: "R"}
    if robot == opponent:
        marks[found[robot]] = "X"
    across, up = (1 + max(at[i] for at in found) for i in range(2))
    mark = lambda at: marks.get(at, ".") if at in found else " "
    return "\n".join("  " + "".join(mark((x, y)) for x in range(across)) for y in reversed(range(up)))


def draw(axes: Any, scene: Scene) -> None:
    """The belief about the opponent in blue."""
    found, (robot, opponent) = _cells(scene), scene.s_next
    for i, (x, y) in enumerate(found):
        cell(axes, x, y, "#F2F2F2", edge="white")
        if scene.belief is not None:
            cell(axes, x, y, BLUE, scene.belief[1][i])
    (x, y), (u, v) = found[robot], found[opponent]
    axes.plot([u], [v], "o", color=ORANGE, markersize=12)
    axes.plot([x], [y], "s", color=DARK, markersize=7)
    across, up = (max(at[i] for at in found) for i in range(2))
    axes.text(
        across / 2, -1.1, "dark: the robot, orange: the opponent, blue: believed", ha="center", fontsize=9
    )
    frame(axes, -0.8, across + 0.8, -1.5, up + 0.8)


RENDERER = Renderer(text, draw)
