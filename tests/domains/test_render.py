"""Pictures of an episode: what they say, that they can be read, and that looking changes nothing."""

import io
import itertools
import json
from dataclasses import replace

import jax.numpy as jnp
import numpy as np
import pytest
from PIL import Image

import baddr
from baddr import prng
from baddr.cli import main
from baddr.domains import catalog
from baddr.domains.battleship.settings import places
from baddr.domains.battleship.view import believed_cells
from baddr.domains.gridverse.settings import GridverseSettings
from baddr.domains.render import (
    FORMATS,
    TABLE,
    Renderer,
    Scene,
    pixels,
    plain_names,
    render_episode,
    scenes_of,
    text_frame,
)
from baddr.errors import UserError

pytestmark = pytest.mark.usefixtures("unchecked")  # whole commands

SMALL = ["--planner.num-simulations", "64", "--filter.num-particles", "64", "--chunk-size", "2"]
RUN = ["run", "tiger", "--agent", "ba-pomcp", "--filter.no-rejuvenate", "--runs", "4", *SMALL]


def make(name, **settings):
    entry = catalog.DOMAINS[name]
    settings = replace(entry.settings, **settings)
    return entry.make_domain(settings), entry.names(settings)


def walk(domain, actions):
    """A trace of these actions, with a belief that knows the state."""
    pomdp, steps, s = domain.pomdp, [], domain.pomdp.initial_state(prng.key(0))
    for t, action in enumerate(actions):
        a = jnp.int32(action)
        s_next, o = pomdp.step(prng.key(t), s, a)
        certain = [np.eye(n)[i].tolist() for n, i in zip(pomdp.state_sizes, s_next.tolist(), strict=True)]
        steps.append(
            {
                "episode": 2,
                "step": t,
                "state": s.tolist(),
                "next_state": s_next.tolist(),
                "action": action,
                "observation": o.tolist(),
                "reward": float(pomdp.reward(s, a, s_next)),
                "ended": t == len(actions) - 1,
                "belief": {"state": {"features": certain}},
            }
        )
        s = s_next
    return steps


EPISODES = {
    "tiger": [2, 2, 1],
    "road-racing": [0, 1, 2, 1],
    "collision-avoidance": [0, 1, 2, 1],
    "gridverse": [0, 0, 2, 0],
    "sysadmin": [0, 5],  # has no picture of its own: a table
}


@pytest.mark.parametrize("name", EPISODES)
def test_every_domain_is_drawn_in_every_format(name, tmp_path):
    domain, names = make(name)
    trace = tmp_path / "trace.jsonl"
    trace.write_text("".join(json.dumps(step) + "\n" for step in walk(domain, EPISODES[name])))
    num_frames = 1 + len(EPISODES[name])
    for suffix in FORMATS:
        path = tmp_path / f"episode{suffix}"
        render_episode(trace, domain, names, path)
        if suffix == ".txt":
            frames = path.read_text().strip().split("\n\n")
            assert len(frames) == num_frames and all(frame.startswith(name) for frame in frames)
            continue
        picture = Image.open(io.BytesIO(path.read_bytes()))
        assert np.asarray(picture.convert("RGB")).std() > 5  # not an empty page
        if suffix == ".gif":
            assert picture.n_frames == num_frames


def texts(name, actions, **settings):
    domain, names = make(name, **settings)
    scenes = scenes_of(walk(domain, actions), domain, names)
    return [text_frame(domain.renderer, scene) for scene in scenes]


def test_gridverse_as_text():
    """Two steps of 4 cells east, a turn to the right, 4 cells down: drawn by hand."""
    frames = texts("gridverse", [0, 0, 2, 0], size=7, forward_length=4)
    room = ["#######", "#.....#", "#.....#", "#.....#", "#.....#", "#....G#", "#######"]
    for frame, y, x, agent in zip(frames, (1, 1, 1, 1, 5), (1, 5, 5, 5, 5), ">>>vv", strict=True):
        drawn = list(room)
        drawn[y] = drawn[y][:x] + agent + drawn[y][x + 1 :]
        assert "\n".join("  " + row for row in drawn) in frame
    assert frames[0] == "gridverse, episode 3: start\n" + "\n".join(
        "  " + r for r in ["#######", "#>....#", *room[2:]]
    )
    assert frames[4].splitlines()[:2] == [
        "gridverse, episode 3, step 4: forward",
        "reward 1, discounted return so far 0.857",  # .95^3
    ]
    assert frames[4].splitlines()[-1] == "believed: y 5 (1.00), x 5 (1.00), heading south (1.00)"


def scene(name, s, s_next, a, o, **settings):
    domain, names = make(name, **settings)
    return Scene(s, s_next, a, o, None, domain.pomdp.state_sizes, names, "title")


def text_of(name, *args, **settings):
    return make(name, **settings)[0].renderer.text(scene(name, *args, **settings))


def test_tiger_as_text():
    assert text_of("tiger", [0], [0], 2, [1]) == "  [ good  ]  [ tiger ]   heard right"
    assert (
        text_of("tiger", [1], [0], 1, [2]) == "  [ tiger ]  < good  >   opened right"
    )  # s, not the redrawn s'
    assert text_of("tiger", [1], [1], None, None) == "  [ tiger ]  [ good  ]"


def test_road_racing_as_text():
    assert text_of("road-racing", [1, 5, 5, 5], [2, 0, 3, 5], 2, [5], lanes=3) == (
        "  0  |C.....\n  1  |...C..\n  2 A|.....C\n  seen: 5 ahead"
    )


def test_collision_avoidance_as_text():
    """Rows are counted from the bottom."""
    assert text_of("collision-avoidance", [2, 1, 1], [1, 2, 0], 2, [1, 2, 1], size=3) == (
        "  . P .\n  o . .\n  O . ."
    )
    assert text_of("collision-avoidance", [1, 1, 1], [0, 0, 0], 0, [0, 0, 0], size=3) == (
        "  . . .\n  . . .\n  X . ."
    )


def scene_of(name, belief=None, **settings):
    """The start of an episode, or what `belief` says of it."""
    domain, names = make(name, **settings)
    s = domain.pomdp.initial_state(prng.key(0)).tolist()
    return domain, Scene(s, s, None, None, belief, domain.pomdp.state_sizes, names, "title")


def test_a_frame_is_as_high_as_its_drawing():
    """The T-maze is flat, tiger is not; films ask for even numbers of pixels."""
    flat, high = (
        pixels(domain.renderer, scene).shape for domain, scene in map(scene_of, ("t-maze", "tiger"))
    )
    assert flat[0] < 0.6 * high[0] and flat[1] == high[1]
    assert not [n for n in (*flat[:2], *high[:2]) if n % 2]


def test_a_belief_that_was_rounded_to_more_than_one_is_drawn():
    certain = lambda sizes: [[1 + 2.4e-7] + [0.0] * (n - 1) for n in sizes]
    for name in EPISODES:
        domain, scene = scene_of(name)
        pixels(domain.renderer or TABLE, scene._replace(belief=certain(scene.state_sizes)))


def test_battleship_shows_where_ships_are_believed_to_lie():
    """Of 2 x 2 cells: a ship of two lies in the first row, or in the first column, or is not put yet."""
    _, scene = scene_of("battleship", size=2, ships=(2,))
    assert scene.state_sizes[0] == 5
    at = [places(2, 2).index(cells) for cells in ((0, 1), (0, 2))]
    marginal = [0.1, 0.0, 0.0, 0.0, 0.0]
    marginal[1 + at[0]], marginal[1 + at[1]] = 0.6, 0.3
    found = believed_cells(scene._replace(belief=[marginal, *[[1.0, 0.0]] * 4]))
    assert found == pytest.approx([0.9, 0.6, 0.3, 0.0])
    assert believed_cells(scene) == [0.0] * 4


def test_a_domain_of_ones_own_is_a_table_or_draws_itself(tmp_path):
    domain = replace(make("gridverse", size=4)[0], name="mine", names=None, renderer=None)
    trace = tmp_path / "trace.jsonl"
    trace.write_text("".join(json.dumps(step) + "\n" for step in walk(domain, [0])))
    render_episode(trace, domain, None, tmp_path / "table.txt")
    frame = (tmp_path / "table.txt").read_text().strip().split("\n\n")[1].splitlines()
    assert frame[0] == "mine, episode 3, step 1: action 0"
    assert [line.split() for line in frame[2:7]] == [
        ["true", "believed"],
        ["state", "0", "1", "1", "(1.00)"],
        ["state", "1", "2", "2", "(1.00)"],
        ["state", "2", "1", "1", "(1.00)"],
        ["seen"],
    ]
    own = Renderer(lambda scene: f"at {scene.s_next}", lambda axes, scene: None)
    render_episode(trace, replace(domain, renderer=own), None, tmp_path / "own.txt")
    assert "at [1, 2, 1]" in (tmp_path / "own.txt").read_text()


def test_the_names_of_a_nameless_domain():
    names = plain_names(make("tiger")[0].pomdp)
    assert names.state == (("state 0", ("0", "1")),) and names.action == ("action 0", "action 1", "action 2")


def test_what_cannot_be_drawn_is_refused(tmp_path):
    domain, names = make("tiger")
    with pytest.raises(UserError, match="was not traced"):
        render_episode(tmp_path / "trace.jsonl", domain, names, tmp_path / "a.gif")
    steps = [{**step, "ended": False} for step in walk(domain, [2])]
    (tmp_path / "trace.jsonl").write_text("".join(json.dumps(step) + "\n" for step in steps))
    with pytest.raises(UserError, match="holds no finished episode"):
        render_episode(tmp_path / "trace.jsonl", domain, names, tmp_path / "a.gif")


def baddr_main(*arguments):
    with pytest.raises(SystemExit) as exit:
        main([str(a) for a in arguments])
    return int(exit.value.code or 0)


def test_a_bad_ending_is_refused_before_any_work(tmp_path, capsys):
    assert baddr_main(*RUN, "--render", "episode.mp4", "--out", tmp_path / "new") == 2
    assert ".gif, .png, .txt; 'episode.mp4'" in capsys.readouterr().err
    assert not (tmp_path / "new").exists()


def test_run_renders_the_last_episode_and_computes_the_same(tmp_path, capsys):
    """The states of the trace follow one another, and a rendered run's results are those of a plain one."""
    plain, drawn = tmp_path / "plain", tmp_path / "drawn"
    assert baddr_main(*RUN, "--episodes", "3", "--out", plain) == 0
    assert baddr_main(*RUN, "--episodes", "3", "--render", tmp_path / "last.txt", "--out", drawn) == 0
    assert (plain / "episodes.parquet").read_bytes() == (drawn / "episodes.parquet").read_bytes()
    results = baddr.load_results(drawn)
    last = (results["run"] == 0) & (results["episode"] == 2)
    frames = (tmp_path / "last.txt").read_text().strip().split("\n\n")
    assert len(frames) == 1 + results["length"][last][0]
    said = float(frames[-1].splitlines()[1].split()[-1])  # of three digits
    assert said == pytest.approx(results["discounted_return"][last][0], rel=0.005)
    steps = [json.loads(line) for line in (drawn / "trace.jsonl").read_text().splitlines()]
    for step, after in itertools.pairwise(steps):
        assert step["ended"] or step["next_state"] == after["state"]
        if step["action"] != 2:  # the true state decides what an opened door is worth
            assert step["reward"] == (10 if step["state"] == [step["action"]] else -100)
    assert "last.txt" in capsys.readouterr().out


def test_flags_win_over_the_settings_that_a_preset_brings(capsys):
    """`paper` walks 4 cells, unless the user says otherwise."""
    from baddr.cli.parse import parse_with_domain
    from baddr.cli.run import Run

    length = lambda *flags: parse_with_domain(Run, "run", ["gridverse", *flags], Run).experiment.domain
    assert length("--preset", "paper") == GridverseSettings(forward_length=4)
    assert length("--preset", "paper", "--domain.size", "32") == GridverseSettings(size=32, forward_length=8)
    assert length("--preset", "paper", "--domain.forward-length", "1") == GridverseSettings()
    assert length() == GridverseSettings()
