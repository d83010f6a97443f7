"""The least that a plan and a belief update can take on this device, and what they do take.

    python benchmarks/roofline.py [--runs 1] [--cases tiger road-racing-9 gridverse-32] [--campaign]

Counts the flops and bytes that an update and a plan at the paper's settings must do and move (docs/speed.md
derives them), measures the device's matrix products and memory bandwidth, and divides. One core of a CPU, or
the accelerator that JAX finds. `--campaign` adds up the steps of all figures at the paper's numbers of runs.
"""

import argparse
import os
from itertools import pairwise
from typing import Any, NamedTuple

from timing import about, pin, seconds

CASES = {
    "tiger": "tiger/baddr",
    "road-racing-9": "road-racing-9/baddr",
    "gridverse-32": "gridverse-32/baddr",
    "tiger, latent": "tiger/latent",
    "road-racing-9, latent": "road-racing-9/latent",
}
WORD = 4  # bytes of a number
STEP_BYTES = 128  # of the tree and a table that a simulated step reads and writes
LENGTHS = {"tiger": 4.5, "road-racing": 20.0, "collision-avoidance": 4.0, "gridverse": 9.0}  # of an episode


class Work(NamedTuple):
    """Floating-point operations, and bytes to and from memory."""

    flops: float
    bytes: float

    def floor(self, flop_rate: float, bandwidth: float) -> float:
        """Seconds: whichever of the two takes longer."""
        return max(self.flops / flop_rate, self.bytes / bandwidth)


def architecture_of(posterior: Any) -> Any:
    """Of the networks; where one half of D is given, of the other half's."""
    halves = (posterior, getattr(posterior, "transition", None), getattr(posterior, "observation", None))
    return next(half.architecture for half in halves if hasattr(half, "architecture"))


def forward(architecture: Any, net: str) -> float:
    """Flops of one input through a network: a multiplication and an addition for each weight."""
    return 2 * sum(a * b for a, b in pairwise(architecture.widths(net)))


def size(posterior: Any) -> float:
    """Bytes of a particle's theta: its weights, or its Gaussian over z."""
    if hasattr(posterior, "dimensions"):
        return WORD * posterior.dimensions * (1 + posterior.dimensions)
    architecture = architecture_of(posterior)
    return WORD * sum(architecture.num_weights(net) for net in "TO")


def plan_work(some: Any, steps: float) -> Work:
    """Where the networks are tabulated, each simulation evaluates them at all rows; elsewhere at each of its
    steps. Weights are read once for each particle that is drawn."""
    planner = some.agent.planner
    n, rows = planner.how.num_simulations, planner.rows
    posterior = some.agent.gba.posterior
    architecture = architecture_of(posterior)
    T, O = forward(architecture, "T"), forward(architecture, "O")
    flops = n * (len(rows.T) * T + len(rows.O) * O) if rows else steps * (T + O)
    distinct = min(n, some.beliefs.num_particles)  # weights that are read more than once may stay in a cache
    return Work(flops, distinct * size(posterior) + steps * STEP_BYTES)


def update_work(some: Any, rounds: float) -> Work:
    """Every round sends all particles through both networks (F); U goes forward again and back: 3 F. Weights
    are read once a round, and once more for U, which writes them."""
    posterior, n = some.agent.gba.posterior, some.beliefs.num_particles
    architecture = architecture_of(posterior)
    F = forward(architecture, "T") + forward(architecture, "O")
    U = latent_work(posterior) if hasattr(posterior, "dimensions") else 3 * F
    return Work(n * (rounds * F + U), n * (rounds + 2) * size(posterior))


def latent_work(posterior: Any) -> float:
    """Flops of U of one Gaussian over z: forward, the Jacobian, A^T J and J p J^T of every network that has
    z, and the elimination of d columns."""
    d, flops = posterior.dimensions, 0.0
    for net, name in ((posterior.T, "T"), (posterior.O, "O")):
        if net is not None and net.of_z is not None:
            *_, hidden, outputs = posterior.architecture.widths(name)
            flops += forward(posterior.architecture, name) + 2 * d * outputs * (hidden + 2 * d)
    return flops + 2 * d**3


def flop_rate() -> float:
    """Flops a second of a large product of matrices."""
    import jax
    import jax.numpy as jnp

    n = 1024 if jax.default_backend() == "cpu" else 8192
    x = jnp.ones((n, n))
    return 2 * n**3 / seconds(jax.jit(lambda x: jnp.matmul(x, x, precision="highest")), x)


def bandwidth() -> float:
    """Bytes a second, read and written, of a large array that is changed in place."""

    import jax
    import jax.numpy as jnp
    from timing import clock

    x = jnp.ones((2**27,))  # 512 MiB
    scale = jax.jit(lambda x: x * 1.0001, donate_argnums=0)
    x, times, now = jax.block_until_ready(scale(x)), [], clock()
    for _ in range(5):
        started = now()
        x = jax.block_until_ready(scale(x))
        times.append(now() - started)
    return 2 * WORD * x.size / sorted(times)[2]


def measure(names: list[str], runs: int, batches: int) -> None:
    from cases import case, time_plan, time_update
    from domains import experiment_of

    rates = flop_rate(), bandwidth()
    print(f"measured: {1e-9 * rates[0]:,.0f} Gflop/s of products, {1e-9 * rates[1]:,.1f} GB/s in place")
    print(f"{'per run':30s} {'Mflop':>9s} {'MB':>9s} {'floor, ms':>10s} {'ms':>9s} {'ratio':>7s}  rounds")
    for name in names:
        some = case(experiment_of(CASES[name]), runs, batches)
        plan, steps = time_plan(some)
        update, rounds = time_update(some)
        works = {"plan": (plan_work(some, steps / runs), plan), "update": (update_work(some, rounds), update)}
        for what, (work, took) in works.items():
            floor, mine = work.floor(*rates), took / runs
            print(
                f"{name + ', ' + what:30s} {1e-6 * work.flops:9.1f} {1e-6 * work.bytes:9.1f} "
                f"{1e3 * floor:10.3f} {1e3 * mine:9.2f} {mine / floor:7.1f}  "
                f"{rounds if what == 'update' else 0:.1f}",
                flush=True,
            )
    print(f"load {os.getloadavg()[0]:.1f}")


def campaign() -> None:
    """Real steps of every agent on every domain, over all figures at the paper's numbers of runs."""
    from baddr.agents.base import Bayesian
    from baddr.paper.figures import FIGURES, parts
    from baddr.paper.figures.figure import Sizes

    totals: dict[tuple[str, str], float] = {}
    for experiment, timed in parts(list(FIGURES.values()), Sizes("paper")).values():
        if timed or not isinstance(experiment.settings, Bayesian):
            continue
        shape = getattr(experiment.domain, "lanes", None) or getattr(experiment.domain, "size", "")
        which = f"{experiment.name} {shape}".strip(), experiment.agent
        steps = experiment.runs * experiment.episodes * LENGTHS[experiment.name]
        totals[which] = totals.get(which, 0) + steps
    print(f"{'real steps of all figures':44s} {'millions':>9s}")
    for (domain, agent), steps in totals.items():
        print(f"{domain + ', ' + agent:44s} {1e-6 * steps:9.2f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--cases", nargs="+", choices=list(CASES), default=list(CASES))
    parser.add_argument("--runs", type=int, default=1)
    parser.add_argument("--batches", type=int, default=256, help="that the networks are trained on")
    parser.add_argument("--campaign", action="store_true")
    options = parser.parse_args()
    if options.campaign:
        campaign()
        return
    pin()
    print(f"What a plan and an update must do at the least, and what they take\n{about()}", flush=True)
    from cases import fresh_cache

    with fresh_cache() as folder:
        os.environ["BADDR_CACHE"] = folder
        measure(options.cases, options.runs, options.batches)


if __name__ == "__main__":
    main()
