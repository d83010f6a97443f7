"""Pictures of an episode: text for terminals, and an animation or a sheet of drawings.

An episode is read from a run's trace and becomes a `Scene` per step, the start included. A domain is drawn by
its own `Renderer` (the `view.py` of its folder), or as a table of its features.
"""

import io
import json
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from baddr.domains.entry import Names, numbered
from baddr.errors import UserError
from baddr.files.store import write

FORMATS = (".gif", ".png", ".txt")
MILLISECONDS, LAST_MILLISECONDS = 700, 2500  # that a frame of an animation stays, and the last one
COLUMNS = 5  # of a sheet
DPI = 90
FRAME, TITLE = (4.8, 4.4), 0.53  # inches: width and greatest height, and what the title takes of that

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
        raise UserError(
            f"The file of a rendered episode must end in {', '.join(FORMATS)}; {path.name!r} does not."
        )


def render_episode(trace: Path, domain: Any, names: Names | None, path: Path) -> None:
    """The last whole episode of a `trace.jsonl`, as a picture at `path`. `domain` is the traced `Domain`."""
    check_path(path)
    named: Names = names or domain.names or plain_names(domain.pomdp)
    scenes = scenes_of(last_episode(trace), domain, named)
    renderer = domain.renderer or TABLE
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
        raise UserError(f"{trace} holds no finished episode.")
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
    return numbered(pomdp, action="action", observation="seen")


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

    figure = Figure(figsize=(FRAME[0] * columns, FRAME[1] * rows), layout=layout, dpi=DPI)
    FigureCanvasAgg(figure)
    return figure, list(figure.subplots(rows, columns, squeeze=False).flat)


def _draw(axes: Any, renderer: Renderer, scene: Scene) -> None:
    axes.clear()
    axes.set_axis_off()
    renderer.draw(axes, scene)
    axes.set_title(scene.title, fontsize=10)


def _draw_frame(figure: Any, axes: Any, renderer: Renderer, scene: Scene) -> None:
    """A frame as high as the drawing needs it, below two lines of title."""
    _draw(axes, renderer, scene)
    width, height = FRAME
    if axes.get_aspect() != "auto":
        (left, right), (low, high) = axes.get_xlim(), axes.get_ylim()
        height = min(height, TITLE + 0.96 * width * abs((high - low) / (right - left)))
    height = 2 * round(height * DPI / 2) / DPI  # an even number of pixels, which films ask for
    figure.set_size_inches(width, height)
    figure.subplots_adjust(0.02, 0.02, 0.98, 1 - TITLE / height)
    figure.canvas.draw()


def pixels(renderer: Renderer, scene: Scene) -> np.ndarray:
    """One frame: [height, width, 3], of bytes. Those of one domain are equally high."""
    figure, (axes,) = _figure()
    _draw_frame(figure, axes, renderer, scene)
    return np.asarray(figure.canvas.buffer_rgba())[..., :3].copy()


def _animation(renderer: Renderer, scenes: Sequence[Scene]) -> bytes:
    from PIL import Image

    figure, (axes,) = _figure()
    frames = []
    for scene in scenes:
        _draw_frame(figure, axes, renderer, scene)
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


def cell(
    axes: Any, x: float | int, y: float | int, colour: str, alpha: float = 1.0, edge: str = "none"
) -> None:
    """The unit square around (x, y). `alpha` may be a probability that was rounded to a little above 1."""
    from matplotlib.patches import Rectangle

    square = Rectangle((x - 0.5, y - 0.5), 1, 1, facecolor=colour, edgecolor=edge, alpha=min(alpha, 1.0))
    axes.add_patch(square)


def frame(axes: Any, left: float, right: float, low: float, high: float) -> None:
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
