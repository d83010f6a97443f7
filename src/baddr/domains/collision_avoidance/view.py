"""How the sky looks: a grid, the plane and the obstacle. Rows are counted from the bottom."""

from typing import Any

from baddr.domains.render import BLUE, DARK, GREEN, ORANGE, Renderer, Scene, cell, frame


def text(scene: Scene) -> str:
    """P the plane, O the obstacle, X both in one cell; o the obstacle's row as it was seen."""
    n = scene.state_sizes[0]
    x, y, b = scene.s_next
    grid = [["."] * n for _ in range(n)]
    if scene.o is not None:
        grid[scene.o[2]][0] = "o"
    grid[b][0] = "O"
    grid[y][x] = "X" if (x, y) == (0, b) else "P"
    return "\n".join("  " + " ".join(row) for row in reversed(grid))


def draw(axes: Any, scene: Scene) -> None:
    """Shades of blue in column 0: where the belief puts the obstacle; a ring: where it was seen."""
    from matplotlib.patches import Circle

    n = scene.state_sizes[0]
    x, y, b = scene.s_next
    for i in range(n):
        for j in range(n):
            cell(axes, i, j, "#F2F2F2", edge="white")
    if scene.belief is not None:
        for j, p in enumerate(scene.belief[2]):
            cell(axes, 0, j, BLUE, 0.75 * p)
    axes.add_patch(Circle((0, b), 0.24, facecolor=ORANGE, edgecolor=DARK, zorder=3))
    axes.fill([x - 0.32, x + 0.24, x + 0.24], [y, y + 0.22, y - 0.22], color=GREEN, zorder=4)
    if scene.o is not None:
        axes.add_patch(Circle((0, scene.o[2]), 0.38, fill=False, edgecolor=DARK, linestyle="--", zorder=5))
    if (x, y) == (0, b):
        axes.text(0.5, y, "collision", ha="left", va="center", fontsize=14, weight="bold", zorder=6)
    legend = "triangle: plane, disc: obstacle, ring: seen, blue: believed"
    axes.text((n - 1) / 2, -0.95, legend, ha="center", va="center", fontsize=9)
    frame(axes, -0.7, n - 0.3, -1.25, n - 0.4)


RENDERER = Renderer(text, draw)
