"""Pictures of an episode: text for terminals, and an animation or a sheet of drawings.

An episode is read from a run's trace and becomes a `Scene` per step, the start included. A domain is drawn by
its own `Renderer` (`Domain.renderer`), by one of those below, or as a table of its features.
"""

import io
import json
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from baddr.errors import UserError
from baddr.files.store import write
from baddr.lab.catalog import Feature, Names

FORMATS = (".gif", ".png", ".txt")
MILLISECONDS, LAST_MILLISECONDS = 700, 2500  # that a frame of an animation stays, and the last one
COLUMNS = 5  # of a sheet
DPI = 90

# Okabe and Ito's colours, which colour-blind readers can tell apart.
BLUE, ORANGE, GREEN, YELLOW, GREY, DARK = "#0072B2", "#D55E00", "#009E73", "#F0E442", "#BBBBBB", "#444444"


class Scene(NamedTuple):
    """What there is to see after a step (s, a, s', o). Before the first there are no a, o and belief."""

    s: list[int]
    s_next: list[int]  # before the first step: s
    a: int | None
    o: list[int] | None
    belief: list[list[float]] | None  # the marginals of the features of s'
    state_sizes: tuple[int, ...]
    names: Names
    title: str


class Renderer(NamedTuple):
    """How a domain looks, on a terminal and on matplotlib's axes."""

    text: Callable[[Scene], str]
    draw: Callable[[Any, Scene], None]


# From a trace to a file.


def check_path(path: Path) -> None:
    """Refuse a picture that could not be written, before there is anything to draw."""
    if path.suffix not in FORMATS:
        raise UserError(f"A rendered episode ends in {', '.join(FORMATS)}; {path.name!r} does not.")


def render_episode(trace: Path, domain: Any, names: Names | None, path: Path) -> None:
    """The last whole episode of a `trace.jsonl`, as a picture at `path`. `domain` is the traced `Domain`."""
    check_path(path)
    names = names or plain_names(domain.pomdp)
    scenes = scenes_of(last_episode(trace), domain, names)
    renderer = domain.renderer or RENDERERS.get(domain.name, TABLE)
    if path.suffix == ".txt":
        data = "\n\n".join(text_frame(renderer, scene) for scene in scenes) + "\n"
        write(path, data.encode())
    else:
        write(path, (_animation if path.suffix == ".gif" else _sheet)(renderer, scenes))


def last_episode(trace: Path) -> list[dict[str, Any]]:
    """The steps of the last episode that came to its end."""
    try:
        steps = [json.loads(line) for line in trace.read_text().splitlines()]
    except FileNotFoundError:
        raise UserError(
            f"There is no {trace}: the run was not traced, so there is nothing to draw."
        ) from None
    ended = [step["episode"] for step in steps if step["ended"]]
    if not ended:
        raise UserError(f"{trace} holds no episode that came to its end.")
    return [step for step in steps if step["episode"] == ended[-1]]


def scenes_of(steps: Sequence[dict[str, Any]], domain: Any, names: Names) -> list[Scene]:
    """The start, and what each step led to."""
    sizes, discount = domain.pomdp.state_sizes, domain.pomdp.discount
    episode, start = steps[0]["episode"] + 1, steps[0]["state"]
    title = f"{domain.name}, episode {episode}: start"
    scenes = [Scene(start, start, None, None, None, sizes, names, title)]
    total = 0.0
    for step in steps:
        total += discount ** step["step"] * step["reward"]
        action = names.action[step["action"]]
        title = f"{domain.name}, episode {episode}, step {step['step'] + 1}: {action}\n"
        title += f"reward {step['reward'] + 0.0:g}, discounted return so far {total + 0.0:.3g}"  # no "-0"
        belief = step["belief"]["state"]["features"]
        s, s_next, a, o = step["state"], step["next_state"], step["action"], step["observation"]
        scenes.append(Scene(s, s_next, a, o, belief, sizes, names, title))
    return scenes


def plain_names(pomdp: Any) -> Names:
    """Numbers for names, where a domain has none."""

    def features(kind: str, sizes: Sequence[int]) -> tuple[Feature, ...]:
        return tuple((f"{kind} {i}", tuple(map(str, range(size)))) for i, size in enumerate(sizes))

    actions = tuple(f"action {a}" for a in range(pomdp.num_actions))
    return Names(features("state", pomdp.state_sizes), actions, features("seen", pomdp.observation_sizes))


def text_frame(renderer: Renderer, scene: Scene) -> str:
    lines = [scene.title, renderer.text(scene)]
    if scene.belief is not None and renderer is not TABLE:  # which says so itself
        lines.append(
            "believed: " + ", ".join(believed(scene, i, named=True) for i in range(len(scene.belief)))
        )
    return "\n".join(lines)


def believed(scene: Scene, i: int, named: bool = False) -> str:
    """The likeliest value of state feature i, and its probability."""
    if scene.belief is None:
        return ""
    name, values = scene.names.state[i]
    best = int(np.argmax(scene.belief[i]))
    return f"{name + ' ' if named else ''}{values[best]} ({scene.belief[i][best]:.2f})"


def _figure(columns: int = 1, rows: int = 1, layout: Any = None) -> tuple[Any, list[Any]]:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(4.8 * columns, 4.4 * rows), layout=layout, dpi=DPI)
    FigureCanvasAgg(figure)
    return figure, list(figure.subplots(rows, columns, squeeze=False).flat)


def _draw(axes: Any, renderer: Renderer, scene: Scene) -> None:
    axes.clear()
    axes.set_axis_off()
    renderer.draw(axes, scene)
    axes.set_title(scene.title, fontsize=10)


def _animation(renderer: Renderer, scenes: Sequence[Scene]) -> bytes:
    from PIL import Image

    figure, (axes,) = _figure()
    figure.subplots_adjust(0.02, 0.02, 0.98, 0.88)  # the same in every frame
    frames = []
    for scene in scenes:
        _draw(axes, renderer, scene)
        figure.canvas.draw()
        pixels = np.asarray(figure.canvas.buffer_rgba())[..., :3]
        frames.append(Image.fromarray(pixels).quantize(128, dither=Image.Dither.NONE))
    buffer = io.BytesIO()
    duration = [MILLISECONDS] * (len(frames) - 1) + [LAST_MILLISECONDS]
    first, others = frames[0], frames[1:]
    first.save(buffer, "GIF", save_all=True, append_images=others, duration=duration, loop=0, disposal=2)
    return buffer.getvalue()


def _sheet(renderer: Renderer, scenes: Sequence[Scene]) -> bytes:
    columns = min(COLUMNS, len(scenes))
    figure, places = _figure(columns, math.ceil(len(scenes) / columns), "constrained")
    for axes in places:
        axes.set_axis_off()
    for axes, scene in zip(places, scenes, strict=False):
        _draw(axes, renderer, scene)
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png")
    return buffer.getvalue()


def _cell(
    axes: Any, x: float | int, y: float | int, colour: str, alpha: float = 1.0, edge: str = "none"
) -> None:
    """The unit square around (x, y)."""
    from matplotlib.patches import Rectangle

    axes.add_patch(Rectangle((x - 0.5, y - 0.5), 1, 1, facecolor=colour, alpha=alpha, edgecolor=edge))


def _frame(axes: Any, left: float, right: float, low: float, high: float) -> None:
    axes.set(xlim=(left, right), ylim=(low, high))
    axes.set_aspect("equal")


# Any domain: a table of its features.


def table_text(scene: Scene, most: int = 16) -> str:
    """Feature by feature, up to `most` of them: its value, what is believed, and what was seen."""
    s, o = scene.names.state, scene.names.observation
    rows = [("", "true", "believed")]
    rows += [(name, values[scene.s_next[i]], believed(scene, i)) for i, (name, values) in enumerate(s[:most])]
    rows += [("...", "", "")] * (len(s) > most)
    if scene.o is not None:
        rows += [("", "seen", "")]
        rows += [(name, values[scene.o[i]], "") for i, (name, values) in enumerate(o[:most])]
        rows += [("...", "", "")] * (len(o) > most)
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in rows]
    return "\n".join(line.rstrip() for line in lines)


def table_draw(axes: Any, scene: Scene) -> None:
    text = table_text(scene)
    longest = max(max(map(len, text.splitlines())), 1.8 * len(text.splitlines()))
    size = min(11.0, 460 / longest)
    axes.text(0, 1, text, family="monospace", fontsize=size, va="top", transform=axes.transAxes)


TABLE = Renderer(table_text, table_draw)


# Tiger.

LISTEN = 2


def tiger_text(scene: Scene) -> str:
    good = scene.s[0]
    doors = ["[ good  ]" if door == good else "[ tiger ]" for door in range(2)]
    if scene.a is not None and scene.a != LISTEN:
        doors[scene.a] = doors[scene.a].replace("[", "<").replace("]", ">")
    seen = "" if scene.o is None or scene.a != LISTEN else f"   heard {('left', 'right', 'null')[scene.o[0]]}"
    opened = "" if scene.a is None or scene.a == LISTEN else f"   opened {('left', 'right')[scene.a]}"
    return f"  {doors[0]}  {doors[1]}{seen}{opened}"


def tiger_draw(axes: Any, scene: Scene) -> None:
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
    _frame(axes, -0.4, 5.4, -0.9, 4.7)


# Road racing: (lane, distance of the car in each lane).

FARTHEST = 5


def road_text(scene: Scene) -> str:
    """A lane per line, the agent A at its left end; a car 6 cells ahead at most."""
    lane, distances = scene.s_next[0], scene.s_next[1:]
    lines = []
    for i, distance in enumerate(distances):
        road = ["."] * (FARTHEST + 1)
        road[distance] = "C"
        lines.append(f"  {i} {'A' if i == lane else ' '}|{''.join(road)}")
    seen = "" if scene.o is None else f"  seen: {scene.o[0]} ahead"
    return "\n".join(lines) + f"\n{seen}".rstrip()


def road_draw(axes: Any, scene: Scene) -> None:
    """Lanes from left to right, lane 0 on top; shades of blue: where the belief puts each car."""
    lane, distances = scene.s_next[0], scene.s_next[1:]
    lanes = len(distances)
    for i, distance in enumerate(distances):
        y = lanes - 1 - i
        for d in range(FARTHEST + 1):
            _cell(axes, d, y, "#F2F2F2", edge="white")
            if scene.belief is not None:
                _cell(axes, d, y, BLUE, 0.75 * scene.belief[1 + i][d])
        axes.text(-1.75, y, str(i), va="center", ha="center", fontsize=9, color=DARK)
        _car(axes, distance, y, ORANGE)
    _car(axes, -0.95, lanes - 1 - lane, GREEN)
    for d in range(FARTHEST + 1):
        axes.text(d, -0.8, str(d), ha="center", va="center", fontsize=9, color=DARK)
    seen = "" if scene.o is None else f"seen: {scene.o[0]} ahead.  "
    axes.text(2, -1.5, f"{seen}blue: believed", ha="center", va="center", fontsize=9)
    _frame(axes, -2.1, FARTHEST + 0.7, -1.9, lanes - 0.3)


def _car(axes: Any, x: float | int, y: float | int, colour: str) -> None:
    from matplotlib.patches import FancyBboxPatch

    shape = FancyBboxPatch((x - 0.26, y - 0.12), 0.52, 0.24, boxstyle="round,pad=0.08", facecolor=colour)
    shape.set_edgecolor(DARK)
    axes.add_patch(shape)


# Collision avoidance: (column, row, the obstacle's row), rows from the bottom.


def collision_text(scene: Scene) -> str:
    """P the plane, O the obstacle, X both in one cell; o the obstacle's row as it was seen."""
    n = scene.state_sizes[0]
    x, y, b = scene.s_next
    grid = [["."] * n for _ in range(n)]
    if scene.o is not None:
        grid[scene.o[2]][0] = "o"
    grid[b][0] = "O"
    grid[y][x] = "X" if (x, y) == (0, b) else "P"
    return "\n".join("  " + " ".join(row) for row in reversed(grid))


def collision_draw(axes: Any, scene: Scene) -> None:
    """Shades of blue in column 0: where the belief puts the obstacle; a ring: where it was seen."""
    from matplotlib.patches import Circle

    n = scene.state_sizes[0]
    x, y, b = scene.s_next
    for i in range(n):
        for j in range(n):
            _cell(axes, i, j, "#F2F2F2", edge="white")
    if scene.belief is not None:
        for j, p in enumerate(scene.belief[2]):
            _cell(axes, 0, j, BLUE, 0.75 * p)
    axes.add_patch(Circle((0, b), 0.24, facecolor=ORANGE, edgecolor=DARK, zorder=3))
    axes.fill([x - 0.32, x + 0.24, x + 0.24], [y, y + 0.22, y - 0.22], color=GREEN, zorder=4)
    if scene.o is not None:
        axes.add_patch(Circle((0, scene.o[2]), 0.38, fill=False, edgecolor=DARK, linestyle="--", zorder=5))
    if (x, y) == (0, b):
        axes.text(0.5, y, "collision", ha="left", va="center", fontsize=14, weight="bold", zorder=6)
    legend = "triangle: plane, disc: obstacle, ring: seen, blue: believed"
    axes.text((n - 1) / 2, -0.95, legend, ha="center", va="center", fontsize=9)
    _frame(axes, -0.7, n - 0.3, -1.25, n - 0.4)


# Gridverse: (y, x, heading).

ARROWS = "^>v<"
STEP = ((-1, 0), (0, 1), (1, 0), (0, -1))  # (dy, dx) of north, east, south, west


def gridverse_text(scene: Scene) -> str:
    n = scene.state_sizes[0]
    y, x, heading = scene.s_next
    room = np.full((n, n), ".")
    room[[0, -1]], room[:, [0, -1]] = "#", "#"
    room[n - 2, n - 2] = "G"
    room[y, x] = ARROWS[heading]
    return "\n".join("  " + "".join(row) for row in room)


def gridverse_draw(axes: Any, scene: Scene) -> None:
    """The beam in yellow. Above the room and on its left, in blue: the belief about x and about y."""
    n = scene.state_sizes[0]
    y, x, heading = scene.s_next
    for i in range(n):
        for j in range(n):
            wall = i in (0, n - 1) or j in (0, n - 1)
            _cell(axes, j, i, GREEN if i == j == n - 2 else DARK if wall else "#F2F2F2", edge="white")
    for i, j in _beam_cells(y, x, heading, n):
        _cell(axes, j, i, YELLOW, 0.55)
    if scene.belief is not None:
        for i in range(n):
            _cell(axes, -1.2, i, BLUE, scene.belief[0][i], edge=BLUE)
            _cell(axes, i, -1.2, BLUE, scene.belief[1][i], edge=BLUE)
        caption = f"blue: believed x and y; believed heading: {believed(scene, 2)}"
        axes.text((n - 1) / 2, n + 0.1, caption, ha="center", va="center", fontsize=9)
    dy, dx = STEP[heading]
    tip, base = (x + 0.42 * dx, y + 0.42 * dy), (x - 0.34 * dx, y - 0.34 * dy)
    side = 0.3 * dy, 0.3 * dx
    corners = [tip, (base[0] + side[0], base[1] + side[1]), (base[0] - side[0], base[1] - side[1])]
    axes.fill(*zip(*corners, strict=True), color=ORANGE, zorder=3)
    _frame(axes, -2.0, n - 0.3, n + 0.5, -2.0)


def _beam_cells(y: int, x: int, heading: int, n: int) -> list[tuple[int, int]]:
    (dy, dx), (ry, rx) = STEP[heading], STEP[(heading + 1) % 4]
    cells = [(y + d * dy + c * ry, x + d * dx + c * rx) for d in range(n) for c in (-1, 0, 1)]
    return [(i, j) for i, j in cells if 0 <= i < n and 0 <= j < n]


RENDERERS = {
    "tiger": Renderer(tiger_text, tiger_draw),
    "factored-tiger": Renderer(tiger_text, tiger_draw),
    "road-racing": Renderer(road_text, road_draw),
    "collision-avoidance": Renderer(collision_text, collision_draw),
    "gridverse": Renderer(gridverse_text, gridverse_draw),
}
