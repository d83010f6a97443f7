"""How tiger looks: two doors."""

from typing import Any

from baddr.domains.render import BLUE, DARK, GREEN, ORANGE, Renderer, Scene, frame

LISTEN = 2


def text(scene: Scene) -> str:
    good = scene.s[0]
    doors = ["[ good  ]" if door == good else "[ tiger ]" for door in range(2)]
    if scene.a is not None and scene.a != LISTEN:
        doors[scene.a] = doors[scene.a].replace("[", "<").replace("]", ">")
    seen = "" if scene.o is None or scene.a != LISTEN else f"   heard {('left', 'right', 'null')[scene.o[0]]}"
    opened = "" if scene.a is None or scene.a == LISTEN else f"   opened {('left', 'right')[scene.a]}"
    return f"  {doors[0]}  {doors[1]}{seen}{opened}"


def draw(axes: Any, scene: Scene) -> None:
    """Two doors; above them the belief about which is the good one, below what was heard or opened."""
    from matplotlib.patches import Rectangle

    opened = None if scene.a in (None, LISTEN) else scene.a
    for door, x in enumerate((0.0, 3.0)):
        good = scene.s[0] == door
        colour = GREEN if good else ORANGE
        axes.add_patch(Rectangle((x, 0), 2, 3, facecolor=colour, alpha=0.85, edgecolor="none"))
        edge = Rectangle((x, 0), 2, 3, fill=False, edgecolor=DARK, linewidth=6 if opened == door else 1.5)
        axes.add_patch(edge)
        axes.text(x + 1, 1.5, "good" if good else "tiger", ha="center", color="white", fontsize=14)
        if opened == door:
            axes.text(x + 1, -0.5, "opened", ha="center", fontsize=12)
        elif scene.o is not None and scene.a == LISTEN and scene.o[0] == door:
            axes.text(x + 1, -0.5, "heard here", ha="center", fontsize=12)
        if scene.belief is not None and opened is None:
            p = scene.belief[0][door]
            axes.add_patch(Rectangle((x, 3.6), 2 * p, 0.4, facecolor=BLUE))
            axes.add_patch(Rectangle((x, 3.6), 2, 0.4, fill=False, edgecolor=BLUE))
            axes.text(x + 1, 4.15, f"believed good: {p:.2f}", ha="center", fontsize=10)
    frame(axes, -0.4, 5.4, -0.9, 4.7)


RENDERER = Renderer(text, draw)
