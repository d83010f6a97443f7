"""A fault campaign: whatever dies, breaks or is edited, what a run leaves is the same, or it is refused.

    make faults                                           # all of it: about half an hour on an idle machine
    python tests/faults.py --kills 8 --of run sweep --damages 20 --edits 10 --full 0 --losses 0     # a part
    python tests/faults.py --kills 0 --damages 0 --edits 0 --full 0 --losses 20 --seed 3

Kills are `kill -9` at random moments of run, resume, sweep, reproduce and suite; damages change or cut bytes
of any file of a folder; edits change what its files say; full disks fail a write; losses kill a worker or a
node of a Ray cluster, or its head. After each the experiment is resumed. It survived where its tables are,
bit for bit, those of an undisturbed run. It was refused where a sentence says why, with exit code 2: nobody
but who damages or edits a file may cause that. All else is wrong. Not a part of the default tests.
"""

import argparse
import contextlib
import errno
import io
import json
import multiprocessing
import os
import random
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ.setdefault("MPLBACKEND", "agg")
HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE / "lab")]

BASE = ["tiger", "--agent", "random", "--filter.num-particles", "8", "--runs", "5", "--chunk-size", "2"]
BASE += ["--keep-beliefs", "yes"]
RUN = ["run", *BASE, "--episodes", "60", "--track", "jsonl"]
COMMANDS = {
    "run": RUN,
    "sweep": ["sweep", *BASE, "--episodes", "20", "--over", "domain.accuracy=0.7,0.9"],
    "reproduce": ["reproduce", "toy"],
    "suite": ["suite", "--agents", "random", "--domains", "tiger", "--runs", "2", "--episodes", "10"],
}
LONG = ["run", *BASE, "--episodes", "2000"]  # for a cluster, which is told of more than one step at a time
STARTED = ("config.toml", "reproduce.toml", "suite.toml")  # there is something to resume
MOST_RESUMES = 5
SECONDS = 900  # that a command may take: others may use the machine, too
Outcome = str  # survived, refused or wrong


# Commands, here and in other processes.


def prepare() -> None:
    """A checkpoint whenever there may be one; a figure and a suite that take a moment."""
    from test_reproduce import TOY, toy_curves

    from baddr.bench import suite
    from baddr.lab import runner
    from baddr.paper.figures import FIGURES

    real = vars(suite).get("_real_preset", suite.preset)

    def preset(domain: str, agent: str, **given: Any) -> Any:
        found = real(domain, agent, **given)
        small = {"planner": {"num_simulations": 16}, "filter": {"num_particles": 8}}
        groups = {name: group for name, group in found.settings.groups().items() if name in small}
        for name, group in groups.items():
            values = {key: value for key, value in small[name].items() if hasattr(group, key)}
            groups[name] = replace(group, **values)
        return found.changed(**groups)

    suite.__dict__.update(_real_preset=real, preset=preset)
    suite.SIZES["quick"] = suite.SIZES["quick"]._replace(solve_seconds=0.2)
    runner.SECONDS_BETWEEN_CHECKPOINTS = 0
    shorter = lambda c: replace(c, experiment=replace(c.experiment, episodes=min(c.experiment.episodes, 30)))
    FIGURES["toy"] = replace(TOY, curves=lambda sizes: tuple(map(shorter, toy_curves(sizes))))


def without_pictures() -> None:
    """Here they take most of the time; processes that are killed draw them."""
    from baddr.lab import plots

    for name in ("plot_run", "plot_belief", "plot_histograms", "plot_curves"):
        setattr(plots, name, lambda *_, **__: None)


def child(arguments: list[str], errors: str) -> None:
    """In a process of its own: the command line."""
    with open(errors, "w") as file:
        os.dup2(file.fileno(), 2)
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    os.setpgid(0, 0)
    prepare()
    from baddr.cli import main

    main(arguments)


def start(errors: Path, *arguments: object) -> Any:
    """A process that has all modules, and has started nothing else."""
    context = multiprocessing.get_context("forkserver")
    modules = [
        "test_reproduce",
        "baddr.lab.runner",
        "baddr.bench.folder",
        "baddr.paper.reproduce",
        "baddr.cli",
    ]
    context.set_forkserver_preload([*modules, "baddr.cli", "baddr.cli.run", "baddr.lab.plots"])
    process = context.Process(target=child, args=([*map(str, arguments)], str(errors)))
    process.start()
    return process


def within(*arguments: object) -> tuple[int, str]:
    """A command in this process, where all is compiled: its exit code and what it said."""
    from baddr.cli import main

    said = io.StringIO()
    with contextlib.redirect_stderr(said), contextlib.redirect_stdout(said):
        try:
            main([str(a) for a in arguments])
        except SystemExit as exit:
            return int(exit.code or 0), said.getvalue()
        except BaseException as error:
            return 1, f"{said.getvalue()}{type(error).__name__}: {error}"
    return 0, said.getvalue()


def tables(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("episodes.parquet")}


def judged(folder: Path, whole: dict[str, bytes], code: int, said: str) -> Outcome:
    if code == 0 and tables(folder) == whole:
        return "survived"
    lines = [line for line in said.splitlines() if line.startswith("baddr: ") and "warning" not in line]
    if code == 2 and len(lines) == 1 and len(lines[0]) <= 540:
        return "refused"
    same = "the same tables" if tables(folder) == whole else "other tables"
    print(f"WRONG: {folder}: exit code {code}, {same}: {said[-500:]}", flush=True)
    return "wrong"


def unresumable(folder: Path, outcome: Outcome, said: str) -> Outcome:
    """After what nobody did to the files, a refusal is wrong, too."""
    if outcome != "refused":
        return outcome
    print(f"UNRESUMABLE: {folder}: {said[-500:]}", flush=True)
    return "wrong"


# Kills.


def again(folder: Path, begin: list[str]) -> list[object]:
    """What a user types next: the same, or resume."""
    begun = begin[0] != "sweep" and any((folder / name).exists() for name in STARTED)
    return ["resume", folder] if begun else [*begin, "--out", folder]


def finish(folder: Path, begin: list[str]) -> tuple[int, str]:
    """Start again or resume, as a user would, until it ends."""
    code, said = 0, ""
    for _ in range(MOST_RESUMES):
        code, said = within(*again(folder, begin))
        if code == 0:
            break
    return code, said


def kill(folder: Path, name: str, chance: random.Random, whole: "Whole") -> tuple[Outcome, int]:
    """One to three kills in a row of one experiment, then it is finished; and how many kills there were."""
    begin, kills = COMMANDS[name], 0
    for _ in range(chance.randint(1, 3)):
        process = start(folder.with_suffix(".err"), *again(folder, begin))
        process.join(chance.uniform(0, 0.9 * whole.seconds[name]))
        ended = not process.is_alive()
        process.kill()
        process.join()
        if ended:
            break
        kills += 1
    code, said = finish(folder, begin)
    return unresumable(folder, judged(folder, whole.tables[name], code, said), said), kills


# Damage, edits, a full disk: to a copy of an experiment that was stopped half-way, or that has ended.


def stopped(folder: Path) -> None:
    """An experiment that was killed in the middle."""
    process = start(folder.with_suffix(".err"), *RUN, "--out", folder)
    while len(list(folder.glob("checkpoints/*/*.ckpt"))) < 3 and process.is_alive():
        time.sleep(0.01)
    process.kill()
    process.join()


def damage(folder: Path, chance: random.Random) -> str:
    """Change some bytes of a file, cut it, double it, or take it away."""
    files = sorted(path for path in folder.rglob("*") if path.is_file() and path.name != ".lock")
    path = chance.choice(files)
    content = bytearray(path.read_bytes())
    how = chance.choice(["bytes", "bytes", "cut", "zeros", "twice", "gone"])
    if how == "bytes" and content:
        for _ in range(chance.randint(1, 8)):
            content[chance.randrange(len(content))] = chance.randrange(256)
    elif how == "cut":
        content = content[: chance.randrange(len(content) + 1)]
    elif how == "zeros":
        content = content[: len(content) // 2] + bytes(len(content) - len(content) // 2)
    elif how == "twice":
        content = content * 2
    path.unlink()
    if how != "gone":
        path.write_bytes(bytes(content))
    return f"{how} of {path.relative_to(folder)}"


def edit(folder: Path, chance: random.Random, other: Path) -> str:
    """Say something else in config.toml or manifest.json, or put checkpoints where they do not belong."""
    config, manifest = folder / "config.toml", json.loads((folder / "manifest.json").read_text())
    how = chance.choice(["setting", "setting", "chunks", "swap", "seed", "entry", "checkpoints", "prior"])
    if how == "setting":
        lines = config.read_text().splitlines()
        i = chance.choice([i for i, line in enumerate(lines) if " = " in line])
        value = chance.choice(["0", "-1", "2", "1e39", '"x"', "[1]", "true", "0.3", str(10**20), "nan"])
        lines[i] = f"{lines[i].partition(' = ')[0]} = {value}"
        config.write_text("\n".join(lines))
        return lines[i]
    if how == "swap":
        one, two = sorted((folder / "checkpoints").iterdir())[:2]
        one.rename(folder / "away")
        two.rename(one)
        (folder / "away").rename(two)
        return how
    if how == "checkpoints":
        shutil.rmtree(folder / "checkpoints")
        shutil.copytree(other / "checkpoints", folder / "checkpoints")
        return "checkpoints of another seed"
    if how == "chunks":
        others = [[[0, 2], [1, 5]], [[0, 5]], [[0, 3], [3, 5]], [], [[2, 0]], [[0, 2]]]
        manifest["chunks"] = chance.choice(others)
    elif how == "seed":
        manifest["seeds"] = manifest["seeds"] | {"seed": 1}
    else:
        name = chance.choice(sorted(manifest))
        manifest[name] = chance.choice([None, [], {}, 3, "x", -1, {"a": [1]}])
        how = f"{name} = {manifest[name]!r}"
    (folder / "manifest.json").write_text(json.dumps(manifest))
    return how


@contextlib.contextmanager
def full_disk(n: int):
    """The n-th file cannot be written."""
    real, count = os.fsync, [0]

    def fsync(descriptor: int) -> None:
        count[0] += 1
        if count[0] == n:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        real(descriptor)

    os.fsync = fsync
    try:
        yield
    finally:
        os.fsync = real


def read(folder: Path, whole: dict[str, bytes]) -> str:
    """What is wrong with what the folder's readers see: nothing, where they see the rows or are refused."""
    import numpy as np

    from baddr import load_results
    from baddr.errors import StorageError, UserError
    from baddr.files.tables import read_table

    for name in whole:
        with contextlib.suppress(UserError, StorageError), tempfile.TemporaryDirectory() as there:
            (Path(there) / "whole").write_bytes(whole[name])
            truth = read_table(Path(there) / "whole")
            rows = load_results((folder / name).parent)
            known = {(r, e): i for i, (r, e) in enumerate(zip(truth["run"], truth["episode"], strict=True))}
            keys = zip(rows["run"], rows["episode"], strict=True)
            places = [known.get((run, episode), -1) for run, episode in keys]
            if -1 in places or any(not np.array_equal(rows[c], truth[c][places]) for c in rows):
                return f"{name} is read as other rows"
    return ""


def resumed(folder: Path, name: str, whole: "Whole") -> Outcome:
    """The folder is read, then resumed."""
    if wrong := read(folder, whole.tables[name]):
        print(f"WRONG: {folder}: {wrong}", flush=True)
        return "wrong"
    again = COMMANDS[name] + ["--out", str(folder)] if name == "sweep" else ["resume", str(folder)]
    return judged(folder, whole.tables[name], *within(*again))


# Losses.


@contextlib.contextmanager
def clusters() -> Iterator[Callable[[], Any]]:
    """Gives a cluster of a head and two nodes, the same one for as long as it has not lost its head."""
    from test_engine import running  # pyright: ignore[reportMissingImports]

    with contextlib.ExitStack() as stack:
        held: list[Any] = []

        def cluster() -> Any:
            if not held or held[0].nodes[0].poll() is not None:
                stack.close()
                held[:] = [stack.enter_context(running())]
            for i, node in enumerate(held[0].nodes):
                if node.poll() is not None:
                    del held[0].nodes[i]
                    held[0]._add("--address", held[0].address, "--num-cpus", "1")
            return held[0]

        yield cluster


def lose(folder: Path, whole: "Whole", chance: random.Random, cluster: Any) -> Outcome:
    """Kill a worker, a node or the head of a Ray cluster, then let it end, or resume it without Ray."""
    what = chance.choice(["worker", "worker", "worker", "node", "node", "head"])
    process = cluster.run(*LONG, "--out", folder)
    deadline = time.monotonic() + SECONDS
    ready = lambda: list(folder.rglob("*.ckpt")) and (cluster.workers(1) or cluster.workers(2))
    while not ready() and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.05)
    time.sleep(chance.uniform(0, 1))
    hit = process.poll() is None
    if what == "worker":
        for pid in (cluster.workers(1) + cluster.workers(2))[:1]:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
    else:
        cluster.kill(0 if what == "head" else 2)
    _, said = process.communicate(timeout=SECONDS)
    print(f"  lost a {what}{'' if hit else ' too late'}: exit code {process.returncode}", flush=True)
    if process.returncode != 0:
        if what != "head":
            print(f"WRONG: {folder}: {said[-500:]}")
            return "wrong"
        code, said = finish(folder, LONG)
        return unresumable(folder, judged(folder, whole.tables["long"], code, said), said)
    return judged(folder, whole.tables["long"], 0, said)


# The campaign.


class Whole:
    """What undisturbed commands leave, and the seconds that they take in a process of their own."""

    def __init__(self, root: Path, options: argparse.Namespace):
        self.root, self.tables, self.seconds = root, {}, {}
        start(root / "err", "--version").join()  # what all others are forked from has then started
        for name in dict.fromkeys(["run", *(options.of if options.kills or options.damages else [])]):
            said = within(*COMMANDS[name], "--out", root / name)
            assert said[0] == 0, said
            self.tables[name] = tables(root / name)
            if options.kills:
                self.seconds[name] = min(self._timed(name, i) for i in range(2))  # the first fills the cache
                print(f"{name} takes {self.seconds[name]:.1f} s", flush=True)
        assert within(*RUN, "--seed", "1", "--out", root / "other")[0] == 0
        if options.losses:
            assert within(*LONG, "--out", root / "long")[0] == 0
            self.tables["long"] = tables(root / "long")
        stopped(root / "stopped")

    def _timed(self, name: str, i: int) -> float:
        started = time.monotonic()
        start(self.root / "err", *COMMANDS[name], "--out", self.root / f"{name}-{i}").join()
        return time.monotonic() - started

    def copied(self, folder: Path, chance: random.Random) -> str:
        """A folder to break: of an experiment that was stopped, mostly, or of a command that has ended."""
        name = chance.choice(["run"] * 5 + [*self.tables]) if len(self.tables) > 2 else "run"
        name = name if name in COMMANDS else "run"
        was = self.root / ("stopped" if name == "run" and chance.random() < 0.7 else name)
        shutil.copytree(was, folder)
        return name


class Campaign:
    def __init__(self, root: Path, options: argparse.Namespace):
        self.root, self.chance, self.found = root, random.Random(options.seed), dict[str, Counter]()
        self.whole = Whole(root, options)

    def trials(self, kind: str, number: int, trial: Callable[[Path], Outcome]) -> None:
        counts = self.found.setdefault(kind, Counter())
        for i in range(number):
            folder = self.root / f"{kind.replace(' ', '-')}-{i}"
            counts[trial(folder)] += 1
            counts["tried"] += 1
            shutil.rmtree(folder, ignore_errors=True)
            if i % 20 == 19:
                print(line(kind, counts), flush=True)
        if number:
            print(line(kind, counts), flush=True)

    def kills(self, name: str, number: int) -> None:
        """Trials with so many kills in all."""
        counts = self.found.setdefault(f"kills of {name}", Counter())
        while counts["kills"] < number:
            folder = self.root / f"kills-of-{name}-{counts['tried']}"
            outcome, kills = kill(folder, name, self.chance, self.whole)
            counts.update({outcome: 1, "tried": 1, "kills": kills})
            shutil.rmtree(folder, ignore_errors=True)
            if number and counts["tried"] % 5 == 0:
                print(line(f"kills of {name}", counts), flush=True)
        if number:
            print(line(f"kills of {name}", counts), flush=True)

    def broken(self, change: Callable[[Path], object]) -> Callable[[Path], Outcome]:
        def trial(folder: Path) -> Outcome:
            name = self.whole.copied(folder, self.chance)
            what = change(folder)
            outcome = resumed(folder, name, self.whole)
            if outcome == "wrong":
                print(f"  after: {what} in a folder of {name}", flush=True)
            return outcome

        return trial

    def edited(self, folder: Path) -> Outcome:
        shutil.copytree(self.root / "stopped", folder)
        what = edit(folder, self.chance, self.root / "other")
        outcome = resumed(folder, "run", self.whole)
        if outcome == "wrong":
            print(f"  after: {what}", flush=True)
        return outcome

    def full(self, folder: Path) -> Outcome:
        shutil.copytree(self.root / "stopped", folder)
        with full_disk(self.chance.randint(1, 40)):
            within("resume", folder)
        outcome = resumed(folder, "run", self.whole)
        return unresumable(folder, outcome, "after a full disk")

    def __call__(self, options: argparse.Namespace) -> dict[str, Counter]:
        share = options.kills // (len(options.of) + 1)  # of the first, which includes resume, twice as many
        for i, name in enumerate(options.of if options.kills else []):
            self.kills(name, share if i else options.kills - (len(options.of) - 1) * share)
        self.trials("damages", options.damages, self.broken(lambda f: damage(f, self.chance)))
        self.trials("edits", options.edits, self.edited)
        self.trials("full disks", options.full, self.full)
        if options.losses:
            with clusters() as cluster:
                trial = lambda f: lose(f, self.whole, self.chance, cluster())
                self.trials("losses", options.losses, trial)
        return self.found


def line(kind: str, counts: Counter) -> str:
    kills = f"  ({counts['kills']} kills)" if counts["kills"] else ""
    columns = (f"{counts[what]:6d} {what}" for what in ("tried", "survived", "refused", "wrong"))
    return f"{kind:20s}{''.join(columns)}{kills}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    for name, number in {"kills": 200, "damages": 200, "edits": 120, "full": 40, "losses": 20}.items():
        parser.add_argument(f"--{name}", type=int, default=number)
    parser.add_argument("--of", nargs="+", choices=COMMANDS, default=[*COMMANDS], help="commands")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="baddr-faults-", ignore_cleanup_errors=True) as root:
        os.environ.setdefault("BADDR_CACHE", str(Path(root) / "cache"))
        os.environ["PYTHONPATH"] = os.pathsep.join([*sys.path[:2], os.environ.get("PYTHONPATH", "")])
        prepare()
        without_pictures()
        found = Campaign(Path(root), options)(options)
    total = sum(found.values(), Counter())
    print(line("all", total))
    sys.exit(1 if total["wrong"] else 0)


if __name__ == "__main__":
    main()
