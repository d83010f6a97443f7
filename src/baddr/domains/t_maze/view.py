"""How the T-maze looks: a corridor with the cue at its start and the junction at its end."""

from typing import Any

from baddr.domains.render import BLUE, DARK, GREEN, YELLOW, Renderer, Scene, cell, frame

CUE = 1  # the cell where it is seen


def text(scene: Scene) -> str:
    n, (position, side) = scene.state_sizes[0], scene.s_next
    corridor = ["."] * n
    corridor[CUE], corridor[position] = "?", "A"
    arms = ["$" if side == arm else " " for arm in range(2)]
    seen = "" if scene.o is None else f"   saw {scene.names.observation[0][1][scene.o[0]]}"
    pad = " " * (n + 1)
    return f"{pad}{arms[0]}\n  {''.join(corridor)}{seen}\n{pad}{arms[1]}"


def draw(axes: Any, scene: Scene) -> None:
    """The treat in green, the belief about it in blue, the cue's cell in yellow."""
    n, (position, side) = scene.state_sizes[0], scene.s_next
    for x in range(n):
        cell(axes, x, 0, YELLOW if x == CUE else "#F2F2F2", edge="white")
    for arm, y in enumerate((1, -1)):
        cell(axes, n - 1, y, GREEN if side == arm else "#F2F2F2", edge="white")
        if scene.belief is not None:
            p = scene.belief[1][arm]
            axes.text(n - 2.8, y, f"believed {p:.2f}", ha="center", va="center", color=BLUE, fontsize=9)
    axes.plot([position], [0], "o", color=DARK, markersize=10)
    saw = "" if scene.o is None else f"saw {scene.names.observation[0][1][scene.o[0]]}.  "
    axes.text((n - 1) / 2, -2.2, f"{saw}yellow: the cue, green: the treat", ha="center", fontsize=9)
    frame(axes, -0.8, n - 0.2, -2.6, 1.8)


RENDERER = Renderer(text, draw)
