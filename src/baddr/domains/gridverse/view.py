"""How the room looks: its walls, the goal, and the agent as an arrow."""

from typing import Any

import numpy as np

from baddr.domains.render import BLUE, DARK, GREEN, ORANGE, YELLOW, Renderer, Scene, believed, cell, frame

ARROWS = "^>v<"
STEP = ((-1, 0), (0, 1), (1, 0), (0, -1))  # (dy, dx) of north, east, south, west


def text(scene: Scene) -> str:
    n = scene.state_sizes[0]
    y, x, heading = scene.s_next
    room = np.full((n, n), ".")
    room[[0, -1]], room[:, [0, -1]] = "#", "#"
    room[n - 2, n - 2] = "G"
    room[y, x] = ARROWS[heading]
    return "\n".join("  " + "".join(row) for row in room)


def draw(axes: Any, scene: Scene) -> None:
    """The beam in yellow. Above the room and on its left, in blue: the belief about x and about y."""
    n = scene.state_sizes[0]
    y, x, heading = scene.s_next
    for i in range(n):
        for j in range(n):
            wall = i in (0, n - 1) or j in (0, n - 1)
            cell(axes, j, i, GREEN if i == j == n - 2 else DARK if wall else "#F2F2F2", edge="white")
    for i, j in _beam_cells(y, x, heading, n):
        cell(axes, j, i, YELLOW, 0.55)
    if scene.belief is not None:
        for i in range(n):
            cell(axes, -1.2, i, BLUE, scene.belief[0][i], edge=BLUE)
            cell(axes, i, -1.2, BLUE, scene.belief[1][i], edge=BLUE)
        caption = f"blue: believed x and y; believed heading: {believed(scene, 2)}"
        axes.text((n - 1) / 2, n + 0.1, caption, ha="center", va="center", fontsize=9)
    dy, dx = STEP[heading]
    tip, base = (x + 0.42 * dx, y + 0.42 * dy), (x - 0.34 * dx, y - 0.34 * dy)
    side = 0.3 * dy, 0.3 * dx
    corners = [tip, (base[0] + side[0], base[1] + side[1]), (base[0] - side[0], base[1] - side[1])]
    axes.fill(*zip(*corners, strict=True), color=ORANGE, zorder=3)
    frame(axes, -2.0, n - 0.3, n + 0.5, -2.0)


def _beam_cells(y: int, x: int, heading: int, n: int) -> list[tuple[int, int]]:
    (dy, dx), (ry, rx) = STEP[heading], STEP[(heading + 1) % 4]
    cells = [(y + d * dy + c * ry, x + d * dx + c * rx) for d in range(n) for c in (-1, 0, 1)]
    return [(i, j) for i, j in cells if 0 <= i < n and 0 <= j < n]


RENDERER = Renderer(text, draw)
