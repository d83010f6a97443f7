"""A fault campaign: whatever dies, breaks or is edited, what a run leaves is the same, or it is refused.

    make faults                                           # all of it: about 15 minutes on an idle machine
    python tests/faults.py --kills 4 --damages 20 --edits 10 --losses 0     # a small part

Kills are `kill -9` at random moments of run, resume and sweep; damages change or cut bytes of any file of a
folder; edits change what its files say; full disks fail a write; losses kill a worker of a Ray cluster. After
each the experiment is resumed. It survived where its table is, bit for bit, that of an undisturbed run. It
was refused where a sentence says why, with exit code 2. All else is wrong. Not a part of the default tests.
"""

import argparse
import contextlib
import errno
import io
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

os.environ.setdefault("JAX_PLATFORMS", "cpu")
CODE = "import sys; from baddr.lab import runner; from baddr.cli import main\n"
CODE += "runner.SECONDS_BETWEEN_CHECKPOINTS = 0\nmain(sys.argv[1:])"
RUN = ["run", "tiger", "--agent", "random", "--filter.num-particles", "8", "--runs", "5", "--episodes", "60"]
RUN += ["--chunk-size", "2", "--keep-beliefs", "yes", "--track", "jsonl"]
SWEEP = ["sweep", *RUN[1:-2], "--over", "domain.accuracy=0.7,0.9"]
MOST_RESUMES = 5
Outcome = str  # survived, refused or wrong


def start(*arguments: object) -> subprocess.Popen:
    command = [sys.executable, "-c", CODE, *map(str, arguments)]
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)


def within(*arguments: object) -> tuple[int, str]:
    """A command in this process, where all is compiled: its exit code and what it said."""
    from baddr.cli import main

    said = io.StringIO()
    with contextlib.redirect_stderr(said), contextlib.redirect_stdout(said):
        try:
            main([str(a) for a in arguments])
        except SystemExit as exit:
            return int(exit.code or 0), said.getvalue()
    return 0, said.getvalue()


def tables(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("episodes.parquet")}


def judged(folder: Path, whole: dict[str, bytes], code: int, said: str) -> Outcome:
    if code == 0 and tables(folder) == whole:
        return "survived"
    lines = [line for line in said.splitlines() if line.startswith("baddr: ") and "warning" not in line]
    if code == 2 and len(lines) == 1 and len(lines[0]) <= 540:
        return "refused"
    print(f"WRONG: {folder}: exit code {code}: {said[-500:]}", flush=True)
    return "wrong"


# Kills.


def finish(folder: Path, begin: list[str]) -> tuple[int, str]:
    """Start again or resume, as a user would, until it ends."""
    code, said = 0, ""
    for _ in range(MOST_RESUMES):
        again = begin[0] == "sweep" or not (folder / "config.toml").exists()
        code, said = within(*begin, "--out", folder) if again else within("resume", folder)
        if code == 0:
            break
    return code, said


def kill(folder: Path, begin: list[str], moments: random.Random, whole: dict[str, bytes]) -> Outcome:
    """One to three kills in a row of one experiment, then it is finished."""
    for _ in range(moments.randint(1, 3)):
        again = begin[0] == "sweep" or not (folder / "config.toml").exists()
        process = start(*begin, "--out", folder) if again else start("resume", folder)
        if moments.random() < 0.8:  # not before it has done something new
            before = checkpoints(folder)
            while checkpoints(folder) == before and process.poll() is None:
                time.sleep(0.01)
        time.sleep(moments.uniform(0, 0.5))
        process.kill()
        process.communicate()
    return judged(folder, whole, *finish(folder, begin))


def checkpoints(folder: Path) -> set[str]:
    return {str(path) for path in folder.rglob("*.ckpt")}


# Damage, edits, a full disk: to a copy of an experiment that was stopped half-way.


def stopped(folder: Path) -> None:
    """An experiment that was killed in the middle."""
    process = start(*RUN, "--out", folder)
    while len(list(folder.glob("checkpoints/*/*.ckpt"))) < 3 and process.poll() is None:
        time.sleep(0.01)
    process.kill()
    process.communicate()


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


def resumed(folder: Path, whole: dict[str, bytes]) -> Outcome:
    return judged(folder, whole, *within("resume", folder))


# Losses.


def descendants(pid: int) -> list[int]:
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            words = path.read_text().rpartition(")")[2].split()
            if int(words[1]) == pid:
                found += [int(path.parent.name), *descendants(int(path.parent.name))]
    return found


def lose(folder: Path, whole: dict[str, bytes], chance: random.Random) -> Outcome:
    """Kill a worker of the experiment's own Ray cluster, then let it end, or resume it."""
    process = start(*RUN, "--engine", "ray", "--out", folder)
    deadline = time.monotonic() + 120
    while not checkpoints(folder) and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.05)
    workers = [pid for pid in descendants(process.pid) if b"ray::Worker" in _command(pid)]
    if workers:
        with contextlib.suppress(ProcessLookupError):
            os.kill(chance.choice(workers), signal.SIGKILL)
    _, said = process.communicate(timeout=300)
    if process.returncode == 0:
        return judged(folder, whole, 0, said)
    return judged(folder, whole, *finish(folder, RUN))


def _command(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


# The campaign.


def campaign(options: argparse.Namespace, root: Path) -> dict[str, Counter]:
    chance, found = random.Random(options.seed), {}
    for name, begin in (("run", RUN), ("sweep", SWEEP)):
        assert within(*begin, "--out", root / f"whole-{name}")[0] == 0
    assert within(*RUN, "--seed", "1", "--out", root / "other")[0] == 0
    whole = {name: tables(root / f"whole-{name}") for name in ("run", "sweep")}
    stopped(root / "stopped")

    def trials(kind: str, number: int, trial: Callable[[Path], Outcome]) -> None:
        counts = found.setdefault(kind, Counter())
        for i in range(number):
            folder = root / f"{kind}-{i}"
            counts[trial(folder)] += 1
            counts["tried"] += 1
            shutil.rmtree(folder, ignore_errors=True)
        print(line(kind, counts), flush=True)

    def on_a_copy(change: Callable[[Path], object]) -> Callable[[Path], Outcome]:
        def trial(folder: Path) -> Outcome:
            shutil.copytree(root / "stopped", folder)
            what = change(folder)
            outcome = resumed(folder, whole["run"])
            if outcome == "wrong":
                print(f"  after: {what}", flush=True)
            return outcome

        return trial

    def full(folder: Path) -> Outcome:
        shutil.copytree(root / "stopped", folder)
        with full_disk(chance.randint(1, 20)):
            within("resume", folder)
        return resumed(folder, whole["run"])

    trials("kills of run", options.kills - options.kills // 4, lambda f: kill(f, RUN, chance, whole["run"]))
    trials("kills of sweep", options.kills // 4, lambda f: kill(f, SWEEP, chance, whole["sweep"]))
    trials("damages", options.damages, on_a_copy(lambda f: damage(f, chance)))
    trials("edits", options.edits, on_a_copy(lambda f: edit(f, chance, root / "other")))
    trials("full disks", options.full, full)
    trials("losses", options.losses, lambda f: lose(f, whole["run"], chance))
    return found


def line(kind: str, counts: Counter) -> str:
    return f"{kind:16s}" + "".join(
        f"{counts[what]:6d} {what}" for what in ("tried", "survived", "refused", "wrong")
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    for name, number in {"kills": 200, "damages": 200, "edits": 120, "full": 40, "losses": 20}.items():
        parser.add_argument(f"--{name}", type=int, default=number)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="baddr-faults-") as root:
        os.environ.setdefault("BADDR_CACHE", str(Path(root) / "cache"))
        found = campaign(options, Path(root))
    total = sum(found.values(), Counter())
    print(line("all", total))
    sys.exit(1 if total["wrong"] else 0)


if __name__ == "__main__":
    main()
