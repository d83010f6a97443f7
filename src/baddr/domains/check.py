"""Does a domain keep its promises? Members and shapes, ranges, probabilities and frequencies, in sentences.

`structure_problems` computes nothing but shapes and takes milliseconds; `problems` goes on with random walks
and draws. All draws come from one fixed seed: a domain passes always, or never.
"""

import inspect
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np

from baddr import prng
from baddr.core.belief_update import initial_belief
from baddr.core.gba_pomdp import GBAPOMDP
from baddr.core.pomdp import POMDP, Dynamics, SplitDynamics
from baddr.domains.domain import Domain
from baddr.domains.entry import Preset
from baddr.domains.hooks import HOOK_CHECKS, hook_shapes
from baddr.domains.probabilities import WALKERS, probabilities, walk
from baddr.domains.shapes import (
    SEED,
    Kind,
    Problems,
    dynamics_shapes,
    kinds,
    short,
    traced,
    undetermined,
    zeros,
)
from baddr.errors import UserError
from baddr.posteriors import Architecture, Counts, Dropout, Factored, Partial, Posterior
from baddr.posteriors.dropout import initial_weights
from baddr.posteriors.settings import Network
from baddr.posteriors.sparse_dirichlet import dirichlet_of

# --- structure: types and shapes ---------------------------------------------------------------------


def refuse_malformed(domain: Domain) -> None:
    """One sentence about a domain that no agent could work with."""
    wrong = structure_problems(domain)
    if wrong:
        raise UserError(f"{domain.name}: {'; '.join(wrong)}.")


def structure_problems(domain: Any) -> list[str]:
    """What is wrong with a domain's members, their types and their shapes. Computes shapes only."""
    if not isinstance(domain, Domain):
        return [f"the domain is of type {type(domain).__name__}, not a baddr Domain"]
    if not isinstance(domain.pomdp, POMDP):
        return [f"pomdp is of type {type(domain.pomdp).__name__}, not a baddr POMDP"]
    return (
        list(_sizes(domain.pomdp))
        or list(_pomdp_shapes(domain.pomdp))
        or [
            *_simulator_shapes(domain),
            *_prior_shapes(domain),
            *hook_shapes(domain),
            *_names_and_presets(domain),
        ]
    )


def _sizes(pomdp: POMDP) -> Problems:
    """pomdp: sizes, discount, horizon and dynamics"""
    for name in ("state_sizes", "observation_sizes"):
        sizes = getattr(pomdp, name, None)
        if not isinstance(sizes, tuple) or not sizes or not all(map(_is_positive, sizes)):
            yield f"pomdp.{name} must be a tuple of positive integers, one for each feature, not {sizes!r}"
    for name in ("num_actions", "horizon"):
        if not _is_positive(getattr(pomdp, name, None)):
            yield f"pomdp.{name} must be a positive integer, not {getattr(pomdp, name, None)!r}"
    discount = getattr(pomdp, "discount", None)
    if not isinstance(discount, float | int) or not 0 <= discount <= 1:
        yield f"pomdp.discount must be a number in [0, 1], not {discount!r}"
    D = getattr(pomdp, "dynamics", None)
    if not isinstance(D, Dynamics):
        yield f"pomdp.dynamics must be a baddr Dynamics, not of type {type(D).__name__}"


def _is_positive(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 1


def _pomdp_shapes(pomdp: POMDP) -> Problems:
    """pomdp: shapes and types of what its functions and its dynamics return"""
    of, key = kinds(pomdp), prng.key(SEED)
    s, a, _ = zeros(pomdp)
    yield from traced("pomdp.initial_state(key)", pomdp.initial_state, (key,), (of["s"],))
    yield from traced("pomdp.initial_observation(key, s)", pomdp.initial_observation, (key, s), (of["o"],))
    yield from traced("pomdp.step(key, s, a)", pomdp.step, (key, s, a), (of["s"], of["o"]))
    yield from traced("pomdp.reward(s, a, s')", pomdp.reward, (s, a, s), (of["float"],))
    yield from traced("pomdp.is_terminal(s, a, s')", pomdp.is_terminal, (s, a, s), (of["bool"],))
    yield from dynamics_shapes("pomdp.dynamics", pomdp.dynamics, pomdp)  # type: ignore[attr-defined]


def _simulator_shapes(domain: Domain) -> Problems:
    """simulators: the prior's dynamics have the same shapes and fit into the pomdp"""
    draw, expected = domain.sample_simulator, domain.expected_simulator
    if expected is not None:
        yield from _simulator("expected_simulator", expected, domain.pomdp)
    if draw is not None:
        try:
            drawn = draw(prng.key(SEED))
        except Exception as error:
            yield f"sample_simulator(key) raised {short(error)}"
            return
        yield from _simulator("sample_simulator(key)", drawn, domain.pomdp)


def _simulator(name: str, D: Any, pomdp: POMDP) -> Problems:
    if not isinstance(D, Dynamics):
        yield f"{name} must be a baddr Dynamics, not of type {type(D).__name__}"
        return
    yield from dynamics_shapes(name, D, pomdp)
    s, a, _ = zeros(pomdp)
    both = (kinds(pomdp)["s"], kinds(pomdp)["o"])
    step = lambda D, key, s, a: pomdp.with_dynamics(D).step(key, s, a)
    yield from traced(f"pomdp.with_dynamics({name}).step(key, s, a)", step, (D, prng.key(SEED), s, a), both)


def _prior_shapes(domain: Domain) -> Problems:
    """the prior's other members: counts, graphs, is_legal, learned"""
    pomdp, s = domain.pomdp, zeros(domain.pomdp)[0]
    S, A, Z = pomdp.num_states, pomdp.num_actions, pomdp.num_observations
    if isinstance(domain.counts, Counts):
        for name, shape in (("T", (S, A, S)), ("O", (A, S, Z))):
            kind = Kind("S, A, S" if name == "T" else "A, S, Z", shape, jnp.floating)
            sentence = kind.problem(f"counts.{name}", getattr(domain.counts, name, None))
            if sentence:
                yield sentence
    sizes = lambda x: (tuple(x.state_sizes), x.num_actions, tuple(x.observation_sizes))
    for name, graph in domain.graphs.items():
        if sizes(graph) != sizes(pomdp):
            yield f"graphs[{name!r}] has other sizes than the pomdp: {sizes(graph)}, not {sizes(pomdp)}"
    if domain.is_legal is not None:
        yield from traced("is_legal(s)", domain.is_legal, (s,), (kinds(pomdp)["bool"],))
    if domain.learned not in ("TO", "T", "O"):
        yield f"learned must be 'TO', 'T' or 'O', not {domain.learned!r}"
    elif domain.learned != "TO" and not isinstance(pomdp.dynamics, SplitDynamics):  # type: ignore[attr-defined]
        yield (
            f"learned is {domain.learned!r}, so pomdp.dynamics must be a SplitDynamics, which gives the "
            "other half"
        )


def _names_and_presets(domain: Domain) -> Problems:
    """names and presets, where it brings some"""
    pomdp, names = domain.pomdp, domain.names
    if names is not None:
        counts = lambda features: tuple(len(values) for _, values in features)
        named = counts(names.state), len(names.action), counts(names.observation)
        sizes = tuple(pomdp.state_sizes), pomdp.num_actions, tuple(pomdp.observation_sizes)
        if named != sizes:
            yield f"names are those of other sizes than the pomdp's: {named}, not {sizes}"
    for name, preset in domain.presets.items():
        if not isinstance(preset, Preset):
            yield f"presets[{name!r}] must be a baddr Preset, not of type {type(preset).__name__}"


# --- values: walks, probabilities, frequencies -------------------------------------------------------


def problems(domain: Any) -> list[str]:
    """All that is wrong with a domain: its structure, or else what its functions return."""
    wrong = structure_problems(domain)
    for check in CHECKS if not wrong else ():
        try:
            wrong += check(domain)
        except Exception as error:
            wrong.append(f"the check of {inspect.getdoc(check)} raised {short(error)}")
    return wrong


def checked(domain: Domain) -> list[str]:
    """What `problems` looks at, in words; what a domain does not have is left out."""
    has = {"simulators": domain.expected_simulator or domain.sample_simulator, "counts": domain.counts}
    members = ("is_legal", "describe", "leaf_value", "legal", "rollout", "preferred")
    has |= {name: getattr(domain, name) for name in members}
    has["hooks"] = any(getattr(domain, name) is not None for name in members[2:])
    lines = [
        inspect.getdoc(check) or ""
        for check in (_sizes, _pomdp_shapes, _prior_shapes, hook_shapes, _names_and_presets, *CHECKS)
    ]
    return [line for line in lines if has.get(line.partition(":")[0], True)]


def _outside(member: str, values: np.ndarray, sizes: tuple[int, ...]) -> Problems:
    """Features beyond their sizes."""
    for i, size in enumerate(sizes):
        low, high = int(values[:, i].min()), int(values[:, i].max())
        if low < 0 or high >= size:
            beyond = low if low < 0 else high
            yield f"{member}: feature {i} takes the value {beyond}, outside 0 to {size - 1}"


def _values(domain: Domain) -> Problems:
    """pomdp: states, observations and rewards on random walks lie in their ranges"""
    pomdp, steps = domain.pomdp, walk(domain.pomdp)
    yield from _outside("pomdp.initial_state", steps.s_0, pomdp.state_sizes)
    yield from _outside("pomdp.initial_observation", steps.o_0, pomdp.observation_sizes)
    yield from _outside("pomdp.step, s'", steps.s_next, pomdp.state_sizes)
    yield from _outside("pomdp.step, o", steps.o, pomdp.observation_sizes)
    if not np.all(np.isfinite(steps.r)):
        yield f"pomdp.reward is not finite: {steps.r[~np.isfinite(steps.r)][0]}"


def _determined(domain: Domain) -> Problems:
    """pomdp: its arguments determine what its functions return"""
    pomdp, steps = domain.pomdp, walk(domain.pomdp)
    given = [jnp.asarray(x[:WALKERS]) for x in (steps.s, steps.a, steps.s_next)]

    key, s, a, s_next = jr.split(prng.key(SEED + 1), WALKERS), *given
    functions: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
        "initial_state": (pomdp.initial_state, (key,)),
        "initial_observation": (pomdp.initial_observation, (key, s)),
        "step": (pomdp.step, (key, s, a)),
        "reward": (pomdp.reward, (s, a, s_next)),
        "is_terminal": (pomdp.is_terminal, (s, a, s_next)),
    }
    for name, (f, x) in functions.items():
        yield from undetermined(f"pomdp.{name}", jax.vmap(f), x)


def _true_probabilities(domain: Domain) -> Problems:
    """pomdp.dynamics: probabilities sum to one, agree with each other, and are those that step draws with"""
    yield from probabilities("pomdp.dynamics", domain.pomdp.dynamics, domain.pomdp)  # type: ignore[attr-defined]


def _simulator_probabilities(domain: Domain) -> Problems:
    """simulators: the same, for the expected one and one that is drawn"""
    if domain.expected_simulator is not None:
        yield from probabilities("expected_simulator", domain.expected_simulator, domain.pomdp)
    if domain.sample_simulator is not None:
        drawn = domain.sample_simulator(prng.key(SEED))
        yield from probabilities("sample_simulator(key)", drawn, domain.pomdp)


def _rows(domain: Domain) -> Problems:
    """counts: none is negative, and every row has a positive sum"""
    for name in "TO" if isinstance(domain.counts, Counts) else "":
        table = np.asarray(getattr(domain.counts, name))
        if not np.all(np.isfinite(table)) or np.any(table < 0):
            yield f"counts.{name} must be finite and not negative"
        elif np.any(table.sum(-1) <= 0):
            row = np.argwhere(table.sum(-1) <= 0)[0].tolist()
            yield f"counts.{name}: row {row} is all zero; every row must have a positive sum"


def _legal(domain: Domain) -> Problems:
    """is_legal: accepts every state that random walks act in"""
    if domain.is_legal is not None:
        s = np.unique(walk(domain.pomdp).s, axis=0)
        refused = s[~np.asarray(jax.jit(jax.vmap(domain.is_legal))(jnp.asarray(s)))]
        if len(refused):
            yield f"is_legal rejects {refused[0].tolist()}, a state that an episode can reach"


def _describes(domain: Domain) -> Problems:
    """describe: names for numbers and vectors about a belief"""
    if domain.describe is None:
        return
    posterior = some_posterior(domain)
    gba = GBAPOMDP(domain.pomdp, posterior)
    about = lambda key: domain.describe(key, posterior, initial_belief(key, gba, 4))  # type: ignore[misc]
    try:
        described = jax.eval_shape(about, prng.key(SEED))
    except Exception as error:
        yield f"describe(key, posterior, belief) raised {short(error)}"
        return
    named = isinstance(described, dict) and all(isinstance(name, str) for name in described)
    if not named or any(x.ndim > 1 for x in jax.tree.leaves(described)):
        yield "describe(key, posterior, belief) must return a dict from names to arrays of rank 0 or 1"
    elif domain.shows is not None:
        yield from _shown(domain, described)


def _shown(domain: Domain, described: dict[str, Any]) -> Problems:
    """What a step shows, against what is described."""
    s, a, o = zeros(domain.pomdp)
    try:
        shown = jax.eval_shape(domain.shows, s, a, s, o)  # type: ignore[arg-type]
    except Exception as error:
        yield f"shows(s, a, s', o) raised {short(error)}"
        return
    for name, x in shown.items() if isinstance(shown, dict) else {"": None}.items():
        std = described.get(f"{name}_std")
        if std is None or x is None or x.dtype != bool or x.shape != std.shape:
            yield f"shows(s, a, s', o) must return bools for each NAME_std, by NAME; {name!r} has none"


def some_posterior(domain: Domain) -> Posterior:
    """Counts, a Bayes network, or small networks: what the domain has a prior for."""
    pomdp = domain.pomdp
    if domain.counts is not None:
        return dirichlet_of(domain.counts, pomdp.state_sizes, pomdp.observation_sizes)
    if domain.graphs:
        return Factored(next(iter(domain.graphs.values())))
    sizes = pomdp.state_sizes, pomdp.num_actions, pomdp.observation_sizes
    architecture = Architecture(Network(hidden=4), *sizes, domain.learned)
    networks = Dropout(initial_weights(prng.key(SEED), architecture)[None], architecture)
    D = pomdp.dynamics  # type: ignore[attr-defined]
    return {"TO": networks, "T": Partial(networks, D), "O": Partial(D, networks)}[domain.learned]


CHECKS: tuple[Callable[[Domain], Problems], ...] = (
    _values,
    _determined,
    _true_probabilities,
    _simulator_probabilities,
    _rows,
    _legal,
    *HOOK_CHECKS,
    _describes,
)
