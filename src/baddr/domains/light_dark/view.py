"""How Light-Dark looks: a line of cells with the goal in its middle."""

from typing import Any

from baddr.domains.render import BLUE, DARK, GREEN, ORANGE, Renderer, Scene, cell, frame


def text(scene: Scene) -> str:
    n, here = scene.state_sizes[0], scene.s_next[0]
    line = ["."] * n
    line[n // 2], line[here] = "G", "A"
    seen = ["."] * n if scene.o is None else [" "] * n
    if scene.o is not None:
        seen[scene.o[0]] = "o"
    return f"  {''.join(line)}\n  {''.join(seen)}" if scene.o is not None else f"  {''.join(line)}"


def draw(axes: Any, scene: Scene) -> None:
    """The goal in green, the agent dark, what it saw in orange, and its belief in blue above."""
    n, here = scene.state_sizes[0], scene.s_next[0]
    for i in range(n):
        cell(axes, i, 0, GREEN if i == n // 2 else "#F2F2F2", edge="white")
        if scene.belief is not None:
            axes.bar([i], [n / 4 * scene.belief[0][i]], bottom=0.8, width=0.9, color=BLUE)
    axes.plot([here], [0], "o", color=DARK, markersize=7)
    if scene.o is not None:
        axes.plot([scene.o[0]], [-1.2], "^", color=ORANGE, markersize=7)
    words = "green: the goal, dark: the agent, orange: where it seems to be, blue: believed"
    axes.text(n / 2, -n / 8, words, ha="center", va="center", fontsize=8)
    frame(axes, -0.8, n - 0.2, -n / 6, n / 4 + 1)


RENDERER = Renderer(text, draw)
