"""Returns and times of POMCP beside pomdp-py's, on its own RockSample and Tag: same rules, same budget.

    python benchmarks/rivals.py [--problems rocksample tag] [--simulations 256] [--episodes 32]
                                [--install]

pomdp-py runs in an environment of its own, which `--install` makes (see `peers.py`). There its problem is
written as a .pomdp file, state by state from its own models, which is what our planners get. Both plan by
PO-UCT with so many simulations of DEPTH steps and uniformly random rollouts, from a new tree at each step;
pomdp-py with the exact belief, ours with a filter of 1024 particles. The belief tree has its default
settings. Discounted returns over STEPS steps with their standard errors; CPU milliseconds of a plan.

Python 3.11 draws no samples from sets, which pomdp-py's Tag asks for: there they are made lists first.
"""

import argparse
import json
import math
import random
import subprocess
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

DEPTH, DISCOUNT, STEPS = 20, 0.95, 60
EXPLORATION = {"rocksample": 20.0, "tag": 20.0}
SIZE, ROCKS, SEED = 4, 4, 0


class Rules(NamedTuple):
    """Of a problem of pomdp-py's: what may follow, as (probability, s', reward)."""

    states: dict[Any, int]
    actions: list[Any]
    observations: list[Any]
    start: dict[Any, float]
    follows: Callable[[Any, Any], list[tuple[float, Any, float]]]
    seen: Callable[[Any, Any], list[float]]  # (s', a): the probability of each observation
    models: tuple[Any, Any, Any]  # of transitions, observations and rewards


# In the environment of pomdp-py.


def rocksample() -> Rules:
    from pomdp_py.problems.rocksample import rocksample_problem as rs

    random.seed(SEED)
    first, rocks = rs.RockSampleProblem.generate_instance(SIZE, ROCKS)
    leaves = lambda position: position[0] == SIZE
    T, R = rs.RSTransitionModel(SIZE, rocks, leaves), rs.RSRewardModel(rocks, leaves)
    O = rs.RSObservationModel(rocks)
    moves = [rs.MoveEast, rs.MoveWest, rs.MoveNorth, rs.MoveSouth]
    actions = [*moves, rs.SampleAction(), *(rs.CheckAction(i) for i in range(ROCKS))]
    observations = [rs.Observation(x) for x in (None, rs.RockType.GOOD, rs.RockType.BAD)]
    kinds = lambda i: tuple(rs.RockType.GOOD if i >> j & 1 else rs.RockType.BAD for j in range(ROCKS))
    start = {rs.State(first.position, kinds(i), False): 1 / 2**ROCKS for i in range(2**ROCKS)}

    def follows(s: Any, a: Any) -> list[tuple[float, Any, float]]:
        s_next = T.sample(s, a)
        return [(1.0, s_next, R.sample(s, a, s_next))]

    def seen(s_next: Any, a: Any) -> list[float]:
        if s_next.terminal or not isinstance(a, rs.CheckAction):
            return [1.0, 0.0, 0.0]
        return [0.0, *(O.probability(o, s_next, a) for o in observations[1:])]

    return Rules(reachable(start, actions, follows), actions, observations, start, follows, seen, (T, O, R))


def tag() -> Rules:
    from pomdp_py.problems.tag.domain.action import MOTION_ACTIONS, TagAction
    from pomdp_py.problems.tag.domain.observation import TagObservation
    from pomdp_py.problems.tag.domain.state import TagState
    from pomdp_py.problems.tag.example_worlds import world0
    from pomdp_py.problems.tag.models.components.grid_map import GridMap
    from pomdp_py.problems.tag.models.components.motion_policy import TagTargetMotionPolicy
    from pomdp_py.problems.tag.models.observation_model import TagObservationModel
    from pomdp_py.problems.tag.models.reward_model import TagRewardModel
    from pomdp_py.problems.tag.models.transition_model import TagTransitionModel

    sample = random.sample
    random.sample = lambda x, k: sample(list(x), k)  # type: ignore[assignment]
    grid = GridMap.from_str(world0[0])
    flight = TagTargetMotionPolicy(grid, 0.2)
    T, R = TagTransitionModel(grid, flight), TagRewardModel()
    O, cells = TagObservationModel(), sorted(grid.free_cells())
    actions = [*sorted(MOTION_ACTIONS, key=str), TagAction()]
    observations = [TagObservation(None), *map(TagObservation, cells)]
    start = {TagState(cells[0], cell, False): 1 / len(cells) for cell in cells}

    def follows(s: Any, a: Any) -> list[tuple[float, Any, float]]:
        if s.target_found:
            return [(1.0, s, 0.0)]
        moved = T.sample(s, a)
        if isinstance(a, TagAction):
            return [(1.0, moved, R.sample(s, a, moved))]
        away = flight._compute_candidate_actions(
            s.robot_position, s.target_position, grid.valid_motions(s.target_position)
        )
        places = [T.if_move_by(grid, s.target_position, move) for move in away]
        share = 0.8 / len(places) if places else 0.0
        each = [(1 - share * len(places), s.target_position), *((share, place) for place in places)]
        state = lambda place: TagState(moved.robot_position, place, False)
        return [(p, state(place), R.sample(s, a, state(place))) for p, place in each]

    def seen(s_next: Any, a: Any) -> list[float]:
        found = O.sample(s_next, a)
        return [float(o == found) for o in observations]

    return Rules(reachable(start, actions, follows), actions, observations, start, follows, seen, (T, O, R))


def reachable(start: dict[Any, float], actions: list[Any], follows: Any) -> dict[Any, int]:
    """All states that may come, numbered."""
    found, new = dict.fromkeys(start), list(start)
    while new:
        s = new.pop()
        for a in actions:
            for _, s_next, _ in follows(s, a):
                if s_next not in found:
                    found[s_next] = None
                    new.append(s_next)
    return {s: i for i, s in enumerate(found)}


def export(rules: Rules, path: Path) -> None:
    """As a .pomdp file."""
    sizes = len(rules.states), len(rules.actions), len(rules.observations)
    start = [rules.start.get(s, 0.0) for s in rules.states]
    lines = [f"discount: {DISCOUNT}", "values: reward"]
    lines += [f"{name}: {n}" for name, n in zip(("states", "actions", "observations"), sizes, strict=True)]
    lines.append("start: " + " ".join(map(repr, start)))
    for a, action in enumerate(rules.actions):
        for s, i in rules.states.items():
            r = 0.0
            for p, s_next, reward in rules.follows(s, action):
                lines.append(f"T: {a} : {i} : {rules.states[s_next]} {p!r}")
                r += p * reward
            lines.append(f"R: {a} : {i} : * : * {r!r}")
            shown = enumerate(rules.seen(s, action))
            lines += [f"O: {a} : {i} : {o} {p!r}" for o, p in shown if p > 0]
    path.write_text("\n".join(lines) + "\n")


def agent_of(rules: Rules, belief: dict[Any, float]) -> Any:
    import pomdp_py

    class Uniform(pomdp_py.RolloutPolicy):
        def get_all_actions(self, state: Any = None, history: Any = None) -> list[Any]:
            return rules.actions

        def rollout(self, state: Any, history: Any = None) -> Any:
            return random.choice(rules.actions)

    T, O, R = rules.models
    return pomdp_py.Agent(pomdp_py.Histogram(belief), Uniform(), T, O, R)


def play(rules: Rules, name: str, simulations: int) -> tuple[float, float, int]:
    """An episode: its return, and the CPU seconds and number of its plans."""
    import pomdp_py

    draw = lambda pairs: random.choices([x for _, x in pairs], [p for p, _ in pairs])[0]
    belief, total, seconds, t = dict(rules.start), 0.0, 0.0, 0
    s = draw([(p, s) for s, p in belief.items()])
    for t in range(STEPS):
        agent = agent_of(rules, belief)
        planner = pomdp_py.POUCT(
            max_depth=DEPTH,
            discount_factor=DISCOUNT,
            num_sims=simulations,
            exploration_const=EXPLORATION[name],
            rollout_policy=agent.policy_model,
        )
        started = time.process_time()
        a = planner.plan(agent)
        seconds += time.process_time() - started
        s, r = draw([(p, (s_next, r)) for p, s_next, r in rules.follows(s, a)])
        total += DISCOUNT**t * r
        o = draw([(p, i) for i, p in enumerate(rules.seen(s, a))])
        after: dict[Any, float] = {}
        for before, p in belief.items():
            for q, s_next, _ in rules.follows(before, a):
                weight = p * q * rules.seen(s_next, a)[o]
                if weight > 0:
                    after[s_next] = after.get(s_next, 0.0) + weight
        belief = {s: p / sum(after.values()) for s, p in after.items()}
        if getattr(s, "terminal", False) or getattr(s, "target_found", False):
            break
    return total, seconds, t + 1


# In our own.


def ours(path: Path, name: str, options: argparse.Namespace) -> None:
    from lives import live

    from baddr.lab.build import build_agent, build_domain
    from baddr.lab.experiment import preset
    from baddr.planners.po_uct import PoUct

    experiment = preset(str(path), "pomcp", "quick")
    experiment = replace(experiment, domain=replace(experiment.domain, horizon=STEPS))
    domain = build_domain(experiment)
    pouct = PoUct(options.simulations, EXPLORATION[name], DEPTH, in_flight=1)
    for title, planner in (("PO-UCT", pouct), ("belief tree", experiment.settings.planner)):
        agent = build_agent(experiment.changed(planner=planner), domain)
        life = live(agent, agent, domain.pomdp, options.episodes, 1)
        show(f"baddr, {title}", life.returns.tolist(), life.seconds)


def show(name: str, returns: list[float], seconds: float) -> None:
    mean = sum(returns) / len(returns)
    error = math.sqrt(sum((x - mean) ** 2 for x in returns) / max(1, len(returns) - 1) / len(returns))
    print(f"{name:20s} {mean:9.3f} {error:7.2g} {1e3 * seconds:9.2f}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    problems = {"rocksample": rocksample, "tag": tag}
    parser.add_argument("--problems", nargs="+", choices=list(problems), default=list(problems))
    parser.add_argument("--simulations", type=int, default=256)
    parser.add_argument("--episodes", type=int, default=32)
    parser.add_argument("--environments", type=Path, default=Path.home() / ".cache" / "baddr-peers")
    parser.add_argument("--install", action="store_true", help="make the environment of pomdp-py")
    parser.add_argument("--measure", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.measure:  # in the environment of pomdp-py
        rules = problems[options.problems[0]]()
        export(rules, options.measure)
        played = [play(rules, options.problems[0], options.simulations) for _ in range(options.episodes)]
        print(json.dumps([list(column) for column in zip(*played, strict=True)]))
        return

    from peers import environment
    from timing import about, pin

    pin()
    print(f"{options.episodes} episodes, {options.simulations} simulations of {DEPTH} steps\n{about()}")
    python = environment(options.environments, "pomdp-py", options.install)
    if python is None:
        parser.error("pomdp-py is not installed: --install does it")
    for name in options.problems:
        path = options.environments / f"{name}.pomdp"
        command = [python, __file__, "--problems", name, "--measure", path]
        command += ["--simulations", str(options.simulations), "--episodes", str(options.episodes)]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        returns, seconds, plans = json.loads(done.stdout.splitlines()[-1])
        print(f"\n{name}\n{'':20s} {'return':>9s} {'+-':>7s} {'ms/plan':>9s}")
        show("pomdp-py, PO-UCT", returns, sum(seconds) / sum(plans))
        ours(path, name, options)


if __name__ == "__main__":
    main()
