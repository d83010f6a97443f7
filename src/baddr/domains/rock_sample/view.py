"""How RockSample looks: the map from above, with the exit on its right."""

from typing import Any

from baddr.domains.render import BLUE, DARK, GREEN, GREY, ORANGE, Renderer, Scene, cell, frame
from baddr.domains.rock_sample.settings import layout

SAMPLE = 4
SEEN = ("", "bad", "good")


def _rocks(scene: Scene) -> dict[tuple[int, int], int]:
    k = len(scene.state_sizes) - 2
    return {at: i for i, at in enumerate(layout(scene.state_sizes[0], k)[1])}


def text(scene: Scene) -> str:
    n, (x, y, *good), rocks = scene.state_sizes[0], scene.s_next, _rocks(scene)
    mark = lambda at: "+" if at in rocks and good[rocks[at]] else "-" if at in rocks else "."
    row = lambda j: "".join("R" if (i, j) == (x, y) else mark((i, j)) for i in range(n))
    seen = scene.o is not None and scene.o[0]
    lines = [f"  {row(j)}>" for j in reversed(range(n))]
    return "\n".join([*lines, f"  the sensor says {SEEN[scene.o[0]]}"] if scene.o and seen else lines)


def draw(axes: Any, scene: Scene) -> None:
    """Good rocks green, bad ones orange; the number in a rock is the belief that it is good."""
    n, (x, y, *good), rocks = scene.state_sizes[0], scene.s_next, _rocks(scene)
    for i in range(n):
        for j in range(n):
            cell(axes, i, j, "#F2F2F2", edge="white")
    cell(axes, n, (n - 1) / 2, BLUE, 0.3)
    axes.text(n, (n - 1) / 2, "exit", ha="center", va="center", fontsize=9)
    for (i, j), rock in rocks.items():
        cell(axes, i, j, GREEN if good[rock] else ORANGE, 0.8)
        if scene.belief is not None:
            p = f"{scene.belief[2 + rock][1]:.2f}"
            axes.text(i, j + 0.25, p, ha="center", va="center", color="white", fontsize=8)
    axes.plot([x], [y - 0.12], "o", color=DARK, markersize=9, zorder=3)
    if scene.a is not None and scene.a > SAMPLE and scene.o is not None:
        i, j = layout(n, len(good))[1][scene.a - SAMPLE - 1]
        axes.plot([x, i], [y, j], color=DARK if scene.o[0] else GREY, linestyle=":")
        axes.text((n - 1) / 2, -0.9, f"the sensor says {SEEN[scene.o[0]]}", ha="center", fontsize=9)
    frame(axes, -0.8, n + 0.6, -1.2, n - 0.2)


RENDERER = Renderer(text, draw)
