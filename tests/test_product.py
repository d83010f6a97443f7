"""The product: every domain with every agent, and every command line of README and docs, at tiny sizes.

What `baddr list` names is what is tested, so a new domain or agent is covered by being listed. A pair may be
refused, but only those of `REFUSED`, and by a sentence that says what would work and how to provide it.
"""

import contextlib
import functools
import glob
import io
import itertools
import json
import math
import re
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest

import baddr
from baddr.agents.kinds import agent_class
from baddr.cli import main
from baddr.lab import runner
from baddr.lab.chunk import Work, no_rows
from baddr.lab.measure import Pace
from baddr.lab.runner import sized

ROOT = Path(__file__).parent.parent

# --- what is run, and how small -----------------------------------------------------------------------

SIZE = "--runs 1 --episodes 1"
SMALL = {  # by group of an agent's settings
    "planner": "--planner.num-simulations 8",
    "solver": "--solver.trials 10",
    "filter": "--filter.num-particles 16",
    "network": "--network.hidden 8",
    "bank": "--bank.members 8",
    "pretrain": "--pretrain.batches 4 --pretrain.batch-size 8 --pretrain.num-networks 1 "
    "--pretrain.max-gap 100",
    "latent": "--latent.hidden 8 --latent.simulators 8 --latent.steps 4 --latent.batch-size 32 "
    "--latent.max-gap 100",
    "dpfrl": "--dpfrl.actors 2 --dpfrl.hidden 8 --dpfrl.features 8 --dpfrl.num-particles 4",
}
TREE = "--planner.num-expansions 2 --planner.num-particles 8"  # in place of simulations
BY_A_TREE = ("pomcp", "fba-pomcp", "filtering")  # these plan so in `plan`, and the others by simulations
SMALL_DOMAIN = {  # settings that are not among these are the default ones
    "tiger": "--domain.horizon 4",
    "factored-tiger": "--domain.horizon 4 --domain.irrelevant 1",
    "road-racing": "--domain.horizon 4 --domain.lanes 3",
    "collision-avoidance": "--domain.size 3",
    "gridverse": "--domain.horizon 4 --domain.size 4",
    "sysadmin": "--domain.horizon 4 --domain.computers 2",
    "rock-sample": "--domain.horizon 4 --domain.size 2 --domain.rocks 1",
    "tag": "--domain.horizon 4 --domain.width 2",
    "t-maze": "--domain.horizon 4 --domain.length 2",
    "light-dark": "--domain.horizon 4 --domain.reach 2 --domain.light 1",
    "battleship": "--domain.size 2 --domain.ships 2",
    "maintenance": "--domain.horizon 4",
    "machine.pomdp": "--domain.horizon 4",
    "tiger.pomdp": "--domain.horizon 4",
    "maintenance.py": "--domain.horizon 4",
}
FILES = [f"examples/{name}" for name in ("machine.pomdp", "tiger.pomdp", "maintenance.py")]

# Pairs that are refused, and what the domain would have to provide.
REFUSED = {
    ("road-racing", "ba-pomcp"): "counts=",
    ("gridverse", "ba-pomcp"): "counts=",
    ("gridverse", "fba-pomcp"): "graphs=",
    ("battleship", "ba-pomcp"): "counts=",
    ("battleship", "fba-pomcp"): "graphs=",
    ("examples/machine.pomdp", "fba-pomcp"): "graphs=",
    ("examples/tiger.pomdp", "fba-pomcp"): "graphs=",
    ("examples/maintenance.py", "fba-pomcp"): "graphs=",
}
WITHOUT_BELIEF, WITHOUT_PLAN = ("dpfrl", "a2c"), ("dpfrl", "a2c", "random")


whole_command = pytest.mark.usefixtures("unchecked")  # what it traces is checked elsewhere


# --- the command line, in this process ----------------------------------------------------------------


def call(arguments: list[str]) -> tuple[int, str, str]:
    """Exit code, stdout and stderr of a command line; an error that is no sentence is raised."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err), pytest.raises(SystemExit) as end:
        main(arguments)
    return int(end.value.code or 0), out.getvalue(), err.getvalue()


def succeed(line: str) -> str:
    code, out, err = call(line.split())
    assert code == 0, f"baddr {line}\nended with {code}: {err}"
    return out


def refusal(line: str) -> str:
    """The one sentence that a command line is refused with."""
    code, _, err = call(line.split())
    assert code == 2, f"baddr {line}\nended with {code}: {err}"
    *before, sentence = err.splitlines()  # warnings and progress may come before it
    assert sentence.startswith("baddr: ") and sentence.endswith("."), err
    assert all("warning" in text or not text.startswith("baddr: ") for text in before), err
    return sentence


LISTED = json.loads(succeed("list --json"))
# Agent own needs a file of the user's: tests/agents/test_toys.py has it. prior-only is pomcp with another D:
# tests/bench has it.
EVERYBODY = [name for name in LISTED["agents"] if name != "own"]
DOMAINS, AGENTS = [*LISTED["domains"], *FILES], [name for name in EVERYBODY if name != "prior-only"]


def small(*agents: str) -> str:
    """The flags that all of these agents take."""
    groups = [set(agent_class(agent)().groups()) for agent in agents]
    return " ".join(SMALL[name] for name in SMALL if all(name in mine for mine in groups))


def pair(domain: str, agent: str) -> str:
    """The arguments that both have in common: the domain, small, and the agent."""
    where = ROOT / domain if domain in FILES else domain
    return f"{where} {SMALL_DOMAIN[Path(domain).name]} --agent {agent} {small(agent)}"


@functools.cache
def history(domain: str) -> dict:
    """Two steps that can happen, or fewer where an episode ends sooner: of a random run."""
    with tempfile.TemporaryDirectory() as folder:
        succeed(f"run {pair(domain, 'random')} {SIZE} --trace 0 --out {folder}/traced")
        steps = map(json.loads, (Path(folder) / "traced" / "trace.jsonl").read_text().splitlines())
        seen = [(step["action"], step["observation"]) for step in steps if not step["ended"]][:2]
    return {"episodes": [{"actions": [a for a, _ in seen], "observations": [o for _, o in seen]}]}


def with_history(command: str, domain: str, agent: str, folder: Path) -> str:
    path = folder / "history.json"
    path.write_text(json.dumps(history(domain)))
    return f"{command} {pair(domain, agent)} --history {path}"


# --- every domain with every agent ---------------------------------------------------------------------

# Nearly all of the time goes into compiling. Each pair is built, sized and traced with the checks of shapes
# and types on, and then run without them.
UNSOLVABLE = [("battleship", "optimal")]  # what is seen depends on the state before
PAIRS = [x for x in itertools.product(DOMAINS, AGENTS) if x not in REFUSED and x not in UNSOLVABLE]
every_pair = pytest.mark.parametrize(
    ("domain", "agent"), PAIRS, ids=[f"{Path(domain).name}-{agent}" for domain, agent in PAIRS]
)


@pytest.fixture
def unmeasured(monkeypatch) -> None:
    """A dry run does not compile a chunk to measure its steps: tests/lab/test_measure.py has that."""
    monkeypatch.setattr(runner, "pace", lambda *_: Pace(0.0, 1.0, steps=1, step=1.0, length=4.0))


@every_pair
def test_dry_run_and_trace(domain, agent, tmp_path, unmeasured, monkeypatch):
    """Nothing is written, and the real steps of a run have consistent shapes and types."""
    found = []
    monkeypatch.setattr(runner, "sized", lambda *given: found.append(sized(*given)) or found[-1])
    dry = succeed(f"run {pair(domain, agent)} {SIZE} --out {tmp_path / 'out'} --dry-run")
    assert "1 run" in dry and not (tmp_path / "out").exists()
    experiment, built = found[-1]
    assert {"run", "episode", "return"} <= set(no_rows(Work(experiment, built.life)))


@whole_command
@every_pair
def test_run(domain, agent, tmp_path):
    summary = succeed(f"run {pair(domain, agent)} {SIZE} --out {tmp_path / 'out'}")
    assert not re.search(r"\bnan\b", summary)
    results = baddr.load_results(tmp_path / "out")
    assert list(results["run"]) == [0] and list(results["episode"]) == [0]
    assert np.isfinite(results["return"][0]) and results["length"][0] >= 1
    assert (tmp_path / "out" / "curve.png").stat().st_size > 0


@whole_command
@pytest.mark.parametrize(
    ("domain", "agent"),
    [
        pytest.param("tiger", "baddr", marks=pytest.mark.slow),
        pytest.param("collision-avoidance", "baddr", marks=pytest.mark.slow),
        pytest.param("road-racing", "fba-pomcp", marks=pytest.mark.slow),
        pytest.param("gridverse", "filtering", marks=pytest.mark.slow),
        pytest.param("examples/machine.pomdp", "ba-pomcp", marks=pytest.mark.slow),
        ("examples/maintenance.py", "pomcp"),
    ],
)
def test_run_by_a_tree(domain, agent, tmp_path):
    """Two episodes, so that bounds are worked out again; then a third one, by a resume."""
    flags = pair(domain, agent).replace(SMALL["planner"], TREE)
    succeed(f"run {flags} --runs 2 --episodes 2 --out {tmp_path / 'out'}")
    succeed(f"resume {tmp_path / 'out'} --episodes 3")
    results = baddr.load_results(tmp_path / "out")
    assert list(results["episode"]) == [0, 1, 2] * 2 and np.all(np.isfinite(results["return"]))


@whole_command
@every_pair
def test_belief_and_plan(domain, agent, tmp_path):
    """After two steps: probabilities that sum to one; as many visits as simulations, of which one is best."""
    belief, plan = (with_history(command, domain, agent, tmp_path) for command in ("belief", "plan"))
    plan = plan.replace(SMALL["planner"], TREE) if agent in BY_A_TREE else plan
    if agent in WITHOUT_BELIEF:
        assert "keeps no belief" in refusal(belief)
    else:
        found = json.loads(succeed(belief))
        features = [*found["state"]["features"], *found["next_observation"]["0"]["features"]]
        assert found["num_particles"] == 16 and all(abs(sum(p) - 1) < 1e-4 for p in features)
    if agent in WITHOUT_PLAN:
        assert "does not plan" in refusal(plan)
    else:
        found = json.loads(succeed(plan))
        once = agent == "optimal" or agent in BY_A_TREE  # they look at every action once
        simulations = len(found["Q"]) if once else 8
        assert sum(found["visits"]) == simulations and found["visits"][found["action"]] > 0
        assert all(map(math.isfinite, found["Q"]))


@pytest.mark.parametrize(("domain", "agent"), REFUSED)
def test_a_pair_that_is_refused_says_what_would_work(domain, agent, tmp_path):
    """The agents that it names do work; what is missing is named as a domain's author writes it."""
    run = f"run {pair(domain, agent)} {SIZE} --out {tmp_path / 'out'}"
    belief, plan = (with_history(command, domain, agent, tmp_path) for command in ("belief", "plan"))
    sentences = {refusal(line) for line in (run, f"{run} --dry-run", belief, plan)}
    assert len(sentences) == 1 and not (tmp_path / "out").exists()
    [sentence] = sentences
    named = re.search(r"use --agent ([^:]*?),? or provide", sentence)
    assert named and REFUSED[domain, agent] in sentence
    others = re.split(r", | or ", named[1])
    assert set(others) == {name for name in EVERYBODY if (domain, name) not in REFUSED}
    [page] = re.findall(r"docs/\S+\.md", sentence)
    assert (ROOT / page).is_file()


@pytest.mark.parametrize(("domain", "agent"), UNSOLVABLE)
def test_what_cannot_be_solved_is_refused(domain, agent, tmp_path):
    assert "cannot be solved" in refusal(f"run {pair(domain, agent)} {SIZE} --out {tmp_path / 'out'}")


def test_where_an_agent_does_not_plan_those_that_do_are_named(tmp_path):
    for agent in WITHOUT_PLAN:
        sentence = refusal(with_history("plan", "tiger", agent, tmp_path))
        named = re.split(r", | or ", sentence.split("--agent ")[1].rstrip("."))
        assert set(named) == set(EVERYBODY) - set(WITHOUT_PLAN)


@whole_command
@pytest.mark.parametrize("preset", LISTED["presets"])
@pytest.mark.parametrize("figure", [*LISTED["figures"], pytest.param("all", marks=pytest.mark.slow)])
def test_reproduce_says_what_it_would_run(figure, preset, tmp_path):
    out = succeed(f"reproduce {figure} --preset {preset} --out {tmp_path / 'out'} --dry-run")
    assert "run" in out and not (tmp_path / "out").exists()


# --- every command line of README and docs ---------------------------------------------------------------

PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]

# Lines that are not run here. Each starts with one of these words.
OUTSIDE = {
    "make": "sets up .venv, and takes minutes; that its target exists is tested",
    "python": "a program of its own, minutes; that its file exists is tested",
    "pip": "installs baddr, as the tests' own environment was",
    "ray": "starts or stops a cluster",
    "export": "sets what a cluster's machines have in common",
}
MOST_OF_A_SWEEP = 2  # folders that are computed; larger sweeps are dry runs


class Line(NamedTuple):
    page: str
    text: str


def blocks(page: Path) -> Iterator[tuple[str, str]]:
    """Language and content of the fenced blocks."""
    for match in re.finditer(r"^( *)```(\w+)\n(.*?)^\1```", page.read_text(), re.DOTALL | re.MULTILINE):
        yield match[2], match[3]


def shell_lines(page: Path) -> Iterator[str]:
    """Of sh blocks every line, of console blocks what follows `$`; comments and scripts left out."""
    for language, content in blocks(page):
        if language not in ("sh", "bash", "console") or content.startswith("#!"):
            continue
        content = content.replace("\\\n", " ")
        for line in content.splitlines():
            if language == "console" and not line.startswith("$ "):
                continue
            words = shlex.split(line.removeprefix("$ "), comments=True)
            if words:
                yield shlex.join(words)


LINES = [Line(page.relative_to(ROOT).as_posix(), text) for page in PAGES for text in shell_lines(page)]
COMMANDS = sorted({line.text for line in LINES if line.text.startswith("baddr ")})


def test_lines_are_found():
    assert len(COMMANDS) > 40 and len({line.page for line in LINES}) > 8


@pytest.mark.parametrize("line", [x for x in LINES if not x.text.startswith("baddr ")], ids=str)
def test_a_line_that_is_no_baddr_command_is_known(line):
    program, *arguments = shlex.split(line.text)
    assert program in OUTSIDE, f"{line.page}: {line.text}: run it, or say in OUTSIDE why not"
    if program == "make":
        assert re.search(rf"^{arguments[0]}:", (ROOT / "Makefile").read_text(), re.MULTILINE)
    if program == "python":
        assert (ROOT / arguments[0]).is_file()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_scripts_are_shell(page):
    for language, content in blocks(page):
        if language in ("sh", "bash") and content.startswith("#!"):
            subprocess.run(["bash", "-n"], input=content, text=True, check=True)


def here(command: list[str]) -> list[str]:
    """A command without the cluster and the GPU that it names. Later flags win."""
    flags = set(command)
    here = ["--engine", "local"] if "--engine" in flags else []
    here += ["--address", ""] if "--address" in flags else []
    return [*command, *here, *(["--device", "cpu"] if "--device" in flags else [])]


def smaller(command: list[str]) -> list[str]:
    """A documented command of sizes that can run here: those of the pairs above, so that the programs are
    the same, and what one of them compiled the others find. Later flags win."""
    name, flags, cut = command[0], set(command), []
    if name in ("run", "sweep", "belief", "plan", "explore") and not Path(command[1]).is_dir():
        sizes = small(*agents_of(command))
        if any(flag.startswith(("--planner.kind", "--planner.num-expansions")) for flag in flags):
            sizes = sizes.replace(SMALL["planner"], "")  # another planner has settings of its own
        cut = f"{sizes} {SMALL_DOMAIN[Path(command[1]).name.partition(':')[0]]}".split()
        cut += SIZE.split() if name in ("run", "sweep") else []
    if name == "suite":
        cut = ["--domains", "tiger", "--agents", "ba-pomcp"]
    if name == "solve":
        cut = f"{SMALL_DOMAIN[Path(command[1]).name.partition(':')[0]]} --seconds 1".split()
    if name == "resume" and "--episodes" in flags:
        cut += ["--episodes", "2"]
    if "--trace" in flags:
        cut += ["--trace", "0"]
    swept = {f"--{word.partition('=')[0]}" for word in command if "=" in word}
    pairs = zip(cut[::2], cut[1::2], strict=True)
    return [*command, *(word for flag, value in pairs if flag not in swept for word in (flag, value))]


def agents_of(command: list[str]) -> list[str]:
    """Who acts: as the command says, the default one, or those that a sweep goes over."""
    words = " ".join(command).replace("=", " ").split()
    if "agent" in words:
        return words[words.index("agent") + 1].split(",")
    if "--agent" in words:
        return [words[words.index("--agent") + 1]]
    default = "ba-pomcp" if command[0] == "explore" else "baddr"
    return ["own" if "--posterior" in words else default]


def takes_minutes(command: list[str]) -> bool:
    """Whatever its sizes: a dry run of it must do."""
    values = [word.partition("=")[2].split(",") for word in command if "=" in word]
    return command[0] in ("reproduce", "suite") or math.prod(map(len, values)) > MOST_OF_A_SWEEP


@pytest.fixture(scope="module")
def finished(tmp_path_factory) -> Path:
    """A result of BADDr on tiger, of the sizes that the commands are cut to."""
    folder = tmp_path_factory.mktemp("documented") / "finished"
    succeed(f"run {pair('tiger', 'baddr')} {SIZE} --out {folder}")
    return folder


# Those of the README are run by default.
FIRST = {line.text for line in LINES if line.page == "README.md"}
documented = [pytest.param(text, marks=[] if text in FIRST else pytest.mark.slow) for text in COMMANDS]


@whole_command
@pytest.mark.parametrize("text", documented)
def test_a_documented_command_works(text, finished, tmp_path, monkeypatch, unmeasured, pytestconfig):
    """In a folder with what the commands name: examples, a history, a configuration, two results."""
    monkeypatch.chdir(tmp_path)
    shutil.copytree(ROOT / "examples", "examples")
    for name in ("tiger-baddr-1", "tiger-baddr-2"):
        shutil.copytree(finished, Path("results") / name)
    Path("h.json").write_text(json.dumps({"episodes": [{"actions": [2], "observations": [[0]]}]}))
    if "machine" in text or "tiger.pomdp" in text:  # numbered otherwise
        Path("h.json").write_text(json.dumps({"episodes": [{"actions": [0], "observations": [[0]]}]}))
    full = pytestconfig.getoption("--slow")
    [_, *command] = shlex.split(text)
    command = here(
        [path for word in command for path in (sorted(glob.glob(word)) if "*" in word else [word])]
    )
    if command[0] == "resume" and ("reproduce" in command[1] or "suite" in command[1]):  # takes minutes
        code, _, err = call(command)
        assert code == 2 and "holds no experiment" in err
        return
    if command[0] == "explore":  # it would serve until Ctrl-C
        server = pytest.importorskip("baddr.lab.explore.server", reason="pip install 'baddr[explore]'")
        monkeypatch.setattr(server, "serve", lambda explorer, port, ready: ready("an address"))
        command = [*command, "--no-browser"]
    if command[0] in ("run", "sweep", "reproduce", "suite") and "--prior" not in command:  # as it is written
        whole = command[0] != "suite" or full  # of all its parts, each is sized
        code, out, err = call([*(command if whole else smaller(command)), "--dry-run"])
        assert code == 0 and out, f"{text} --dry-run\nended with {code}: {err}"
    if not takes_minutes(command):
        code, out, err = call(smaller(command))
        assert code == 0 and out, f"{text}\nended with {code}: {err}"
