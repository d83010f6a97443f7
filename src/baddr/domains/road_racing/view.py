"""How the road looks: a lane for each car, and the agent at their left end."""

from typing import Any

from baddr.domains.render import BLUE, DARK, GREEN, ORANGE, Renderer, Scene, cell, frame

FARTHEST = 5


def text(scene: Scene) -> str:
    """A lane per line, the agent A at its left end; a car 6 cells ahead at most."""
    lane, distances = scene.s_next[0], scene.s_next[1:]
    lines = []
    for i, distance in enumerate(distances):
        road = ["."] * (FARTHEST + 1)
        road[distance] = "C"
        lines.append(f"  {i} {'A' if i == lane else ' '}|{''.join(road)}")
    seen = "" if scene.o is None else f"  seen: {scene.o[0]} ahead"
    return "\n".join(lines) + f"\n{seen}".rstrip()


def draw(axes: Any, scene: Scene) -> None:
    """Lanes from left to right, lane 0 on top; shades of blue: where the belief puts each car."""
    lane, distances = scene.s_next[0], scene.s_next[1:]
    lanes = len(distances)
    for i, distance in enumerate(distances):
        y = lanes - 1 - i
        for d in range(FARTHEST + 1):
            cell(axes, d, y, "#F2F2F2", edge="white")
            if scene.belief is not None:
                cell(axes, d, y, BLUE, 0.75 * scene.belief[1 + i][d])
        axes.text(-1.55, y, f"lane {i}", va="center", ha="right", fontsize=9, color=DARK)
        _car(axes, distance, y, ORANGE)
    _car(axes, -0.95, lanes - 1 - lane, GREEN)
    for d in range(FARTHEST + 1):
        axes.text(d, -0.8, str(d), ha="center", va="center", fontsize=9, color=DARK)
    seen = "" if scene.o is None else f"seen: {scene.o[0]} ahead.  "
    axes.text(2.5, -1.35, "cells ahead", ha="center", va="center", fontsize=9, color=DARK)
    axes.text(2.5, -2.0, f"{seen}blue: believed", ha="center", va="center", fontsize=9)
    frame(axes, -2.8, FARTHEST + 0.7, -2.4, lanes - 0.3)


def _car(axes: Any, x: float | int, y: float | int, colour: str) -> None:
    from matplotlib.patches import FancyBboxPatch

    shape = FancyBboxPatch((x - 0.26, y - 0.12), 0.52, 0.24, boxstyle="round,pad=0.08", facecolor=colour)
    shape.set_edgecolor(DARK)
    axes.add_patch(shape)


RENDERER = Renderer(text, draw)
