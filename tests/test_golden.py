"""The golden record: what some tiny experiments leave, as hashes. A redesign must not change a bit of it.

`python tests/test_golden.py` writes the record anew. Do that only where random streams change on purpose
(then `STREAMS` is raised, too), or from unchanged code on another machine. Hashes hold for the versions and
the processor that they were written with. Another processor rounds otherwise, even one that has the same name
and flags (`rounding` tells), so elsewhere the tests are skipped.
"""

import hashlib
import json
import os
import platform
import subprocess
import sys
import tempfile
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import pytest

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parent))
    import conftest  # noqa: F401  (the tests' settings: compiled code depends on them)

import baddr
from baddr.cli import main
from baddr.fast.compiler import LEVEL, jit

RECORD = Path(__file__).parent / "data" / "golden.json"
EXAMPLES = Path(__file__).parent.parent / "examples"

SIZE = "--runs 3 --episodes 3 --chunk-size 2 --seed 7"
ONE = "--planner.in-flight 1"  # PO-UCT as published
REJECT = f"--planner.num-simulations 32 --filter.num-particles 64 {ONE}"
SEARCH = f"{REJECT} --filter.resample-below 32"
STILL = "--filter.no-rejuvenate"  # as the presets were when the record was made
UNTIED = "--factored.tying untied"  # likewise
NETWORK = "--pretrain.batches 16 --pretrain.max-gap 100 --network.hidden 16"
REWARDS = "--planner.exploration {}"  # u as files' presets once had it: the range of rewards
LEARNER = "--dpfrl.actors 2 --dpfrl.hidden 8 --dpfrl.features 8 --dpfrl.num-particles 4"
COMMANDS = {
    "tiger-baddr": f"tiger {SEARCH} {NETWORK} --pretrain.num-networks 2",
    "tiger-baddr-many-in-flight": f"tiger {SEARCH.replace(ONE, '--planner.in-flight 4')} {NETWORK}",
    "tiger-baddr-rejection": f"tiger {REJECT} {NETWORK} --filter.kind rejection",
    "tiger-baddr-redrawn-masks": f"tiger {SEARCH} {NETWORK} --network.redraw-masks",
    "tiger-baddr-many-particles": f"tiger {SEARCH} {NETWORK} --filter.num-particles 256 --trace 0",
    "tiger-baddr-weight-after-update": f"tiger {SEARCH} {NETWORK} --filter.weight-after-update",
    "tiger-filtering": f"tiger --agent filtering {SEARCH} {NETWORK}",
    "tiger-ba-pomcp": f"tiger --agent ba-pomcp {SEARCH} {STILL}",
    "tiger-ba-pomcp-ray": f"tiger --agent ba-pomcp {SEARCH} {STILL} --engine ray",
    "tiger-fba-pomcp": f"tiger --agent fba-pomcp {SEARCH}",
    "tiger-pomcp": f"tiger --agent pomcp {SEARCH}",
    "tiger-dpfrl": f"tiger --agent dpfrl {LEARNER}",
    "tiger-a2c": f"tiger --agent a2c {LEARNER}",
    "tiger-random": "tiger --agent random --filter.num-particles 64",
    "factored-tiger-uncertain": f"factored-tiger --agent fba-pomcp {SEARCH} --factored.structure uncertain",
    "road-racing-baddr": f"road-racing {REJECT} {NETWORK} --filter.kind rejection",
    "road-racing-fba-pomcp-sampled": f"road-racing --agent fba-pomcp {REJECT} --factored.model sampled",
    "collision-avoidance-baddr": f"collision-avoidance {SEARCH} {NETWORK}",
    "collision-avoidance-ba-pomcp": f"collision-avoidance --agent ba-pomcp {SEARCH}",
    "gridverse-baddr": f"gridverse {REJECT} {NETWORK} --filter.num-particles 8",
    "sysadmin-fba-pomcp": f"sysadmin --agent fba-pomcp {SEARCH} {UNTIED}",
    "sysadmin-ba-pomcp": f"sysadmin --agent ba-pomcp {REJECT} --filter.kind rejection",
    "machine-ba-pomcp": f"{EXAMPLES / 'machine.pomdp'} --agent ba-pomcp {SEARCH} {REWARDS.format(6.925)}",
    "maintenance-baddr": f"{EXAMPLES / 'maintenance.py'} {SEARCH} {NETWORK} {REWARDS.format(12)}",
}
LEARNING = "without-root-sampling"  # simulations that learn: another door


def environment() -> dict[str, str]:
    """What rounding depends on."""
    names = ("jax", "jaxlib", "numpy", "equinox")
    return {"processor": _processor(), **{name: version(name) for name in names}}


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    wanted = ("cpu family", "model", "stepping", "cache size", "cpu cores", "flags")  # and the model's name
    found = {line.split(":")[0].strip(): line for line in lines if line.startswith(wanted)}
    return hashlib.sha256("".join(found.values()).encode()).hexdigest()[:16]


def rounding() -> str:
    """A hash of how a small network is trained here, without any code of ours."""
    import jax
    import jax.numpy as jnp

    rng = np.random.default_rng(0)
    x, y = (jnp.asarray(rng.normal(size=(32, n)), jnp.float32) for n in (7, 3))
    net = [jnp.asarray(rng.normal(size=size), jnp.float32) for size in ((7, 16), (16, 16), (16, 3))]

    def loss(net: list[Any]) -> Any:
        logits = jnp.tanh(jnp.tanh(x @ net[0]) @ net[1]) @ net[2]
        return jnp.mean(jax.nn.logsumexp(logits, axis=1) - jnp.sum(jnp.exp(y) * logits, axis=1))

    def step(net: list[Any], _: None) -> tuple[list[Any], Any]:
        L, gradient = jax.value_and_grad(loss)(net)
        return [w - 0.005 * g for w, g in zip(net, gradient, strict=True)], L

    net, L = jax.jit(lambda net: jax.lax.scan(step, net, None, length=64))(net)
    return _hash(np.concatenate([np.ravel(w) for w in (*net, L)]))


def hashes_of(table: dict[str, Any]) -> dict[str, str]:
    """A hash for each column: a difference says where it is."""
    return {name: _hash(np.asarray(table[name])) for name in sorted(table)}


def _hash(array: np.ndarray) -> str:
    if array.dtype == object:  # lists
        array = np.concatenate([np.ravel(x) for x in array]) if len(array) else np.zeros(0)
    return hashlib.sha256(np.ascontiguousarray(array).tobytes()).hexdigest()[:16]


def table_of(name: str, folder: Path) -> dict[str, Any]:
    arguments = ["run", *COMMANDS[name].split(), *SIZE.split(), "--out", str(folder)]
    if "--engine" in arguments:  # Ray cannot pickle what the tests' type checks are attached to
        subprocess.run([sys.executable, "-m", "baddr", *arguments], check=True)
    else:
        with pytest.raises(SystemExit) as end:
            main(arguments)
        assert end.value.code == 0
    return baddr.load_results(folder)


def without_root_sampling() -> dict[str, Any]:
    """Simulations that learn: the GBA-POMDP itself is searched."""
    import jax
    import jax.numpy as jnp
    import jax.random as jr

    from baddr.domains import tiger

    domain = tiger.make_domain()
    posterior = baddr.Dirichlet(domain.counts, domain.pomdp.state_sizes, domain.pomdp.observation_sizes)
    gba = baddr.GBAPOMDP(domain.pomdp, posterior)
    planner = baddr.PoUct(num_simulations=32, root_sampling=False, in_flight=1)
    agent = baddr.Agent(gba, baddr.Importance(num_particles=64, resample_below=32.0), planner)
    runs = baddr.start(jr.split(baddr.key(3), 2), agent, domain.pomdp)
    runs, steps = baddr.advance(runs, agent, domain.pomdp, jnp.int32(2), 8)
    plan = steps.plan
    found = {"a": steps.a, "o": steps.o, "r": steps.r, "Q": plan.Q, "N": plan.N}
    found |= {"log_weights": runs.belief.log_weights, "counts": runs.belief.states.theta.O}
    return {name: np.asarray(jax.device_get(x)) for name, x in found.items()}


def own_levels(set_environment: Callable[[str, str], None]) -> None:
    """Programs are compiled as they are for a user, with levels of their own, and not as in other tests."""
    flags = [flag for flag in os.environ["XLA_FLAGS"].split() if LEVEL not in flag]
    set_environment("XLA_FLAGS", " ".join(flags))
    jit.cache_clear()


def found(name: str, cache: Path) -> dict[str, str]:
    """The hashes of an experiment that a process of its own runs: as for a user, without priors that other
    tests trained, and without the tests' other ways to compile quickly."""
    environment = os.environ | {"BADDR_CACHE": str(cache), "XLA_FLAGS": f"--{LEVEL}=0"}
    command = [sys.executable, __file__, name]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def record() -> dict[str, Any]:
    return json.loads(RECORD.read_text())


needs_same_machine = pytest.mark.skipif(
    not RECORD.exists() or record()["environment"] != environment(),
    reason="the golden record is for other versions or another processor",
)


# The others take minutes: `make golden` compares all.
QUICK = ("tiger-baddr", "collision-avoidance-ba-pomcp")
CASES = [pytest.param(x, marks=[] if x in QUICK else pytest.mark.slow) for x in (*COMMANDS, LEARNING)]


@needs_same_machine
@pytest.mark.parametrize("name", CASES)
def test_an_experiment_leaves_what_it_left_before(name: str, tmp_path: Path) -> None:
    now, before = found(name, tmp_path), record()["hashes"][name]
    if now.pop("rounding") != record()["rounding"]:
        pytest.skip("this processor rounds otherwise than that of the record")
    assert {column: now.get(column) for column in before} == before  # a column that is new is no change


def computed(name: str) -> dict[str, str]:
    if name == LEARNING:
        return hashes_of(without_root_sampling())
    with tempfile.TemporaryDirectory() as folder:
        return hashes_of(table_of(name, Path(folder) / "out"))


if __name__ == "__main__":
    if len(sys.argv) > 1:
        own_levels(os.environ.__setitem__)
        print(json.dumps(computed(sys.argv[1]) | {"rounding": rounding()}))
    else:  # as the tests compute them, each in a process of its own
        with tempfile.TemporaryDirectory() as cache:
            hashes = {name: found(name, Path(cache) / name) for name in (*COMMANDS, LEARNING)}
        roundings = {x.pop("rounding") for x in hashes.values()}
        written = {"environment": environment(), "rounding": roundings.pop(), "hashes": hashes}
        RECORD.write_text(json.dumps(written, indent=1) + "\n")
        print(f"{len(hashes)} experiments in {os.path.relpath(RECORD)}")
