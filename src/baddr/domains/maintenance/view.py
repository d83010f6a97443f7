"""How the machine looks: a gauge of its wear."""

from typing import Any

from baddr.domains.render import BLUE, DARK, GREEN, ORANGE, Renderer, Scene, cell, frame

BROKEN = 3


def text(scene: Scene) -> str:
    wear = scene.s_next[0]
    gauge = "".join("#" if i <= wear else "." for i in range(BROKEN + 1))
    heard = "" if scene.o is None else f"   {scene.names.observation[0][1][scene.o[0]]}"
    return f"  [{gauge}] {scene.names.state[0][1][wear]}{heard}"


def draw(axes: Any, scene: Scene) -> None:
    """The wear from new to broken; below each step the belief in it."""
    for i, name in enumerate(scene.names.state[0][1]):
        here = i == scene.s_next[0]
        cell(axes, i, 0, (ORANGE if i == BROKEN else GREEN) if here else "#F2F2F2", edge=DARK)
        axes.text(i, 0, name, ha="center", va="center", fontsize=9)
        if scene.belief is not None:
            axes.text(i, -0.8, f"{scene.belief[0][i]:.2f}", ha="center", color=BLUE, fontsize=9)
    axes.text(1.5, -1.35, "blue: believed", ha="center", fontsize=9)
    if scene.o is not None:
        axes.text(1.5, 1.0, scene.names.observation[0][1][scene.o[0]], ha="center", fontsize=11)
    frame(axes, -0.8, 3.8, -1.6, 1.5)


RENDERER = Renderer(text, draw)
