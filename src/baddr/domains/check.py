"""Does a domain keep its promises? Members and shapes, ranges, probabilities and frequencies, in sentences.

`structure_problems` computes nothing but shapes and takes milliseconds; `problems` goes on with random walks
and draws. All draws come from one fixed seed: a domain passes always, or never.
"""

import inspect
import math
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Key

from baddr import prng
from baddr.core.belief_update import initial_belief
from baddr.core.gba_pomdp import GBAPOMDP
from baddr.core.pomdp import POMDP, Dynamics, SplitDynamics
from baddr.domains.domain import Domain
from baddr.domains.entry import Preset
from baddr.domains.tables import every_vector
from baddr.errors import UserError
from baddr.posteriors import Architecture, Dirichlet, Dropout, Factored, Partial, Posterior
from baddr.posteriors.dropout import initial_weights
from baddr.posteriors.settings import Network

SEED = 0
WALKERS, STEPS = 64, 64  # of the random walks
NUM_PAIRS = 32  # (s, a), from the walks, whose probabilities are looked at
NUM_DRAWS = 4096  # from each pair
STANDARD_ERRORS = 5.0
LARGEST_SPACE = 2**14  # outcomes that are summed over
TOLERANCE = 1e-4  # of sums and of log-probabilities

Problems = Iterator[str]


class Walk(NamedTuple):
    """Random walks in the true POMDP: how each begins, and all steps, flat over walkers and time."""

    s_0: Int[np.ndarray, "walkers state_features"]
    o_0: Int[np.ndarray, "walkers observation_features"]
    s: Int[np.ndarray, "n state_features"]
    a: Int[np.ndarray, " n"]
    s_next: Int[np.ndarray, "n state_features"]
    o: Int[np.ndarray, "n observation_features"]
    r: Float[np.ndarray, " n"]
    terminal: Bool[np.ndarray, " n"]


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
        or [*_simulator_shapes(domain), *_prior_shapes(domain), *_names_and_presets(domain)]
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


class Kind(NamedTuple):
    """What a value must be: an array of this shape and of this kind of numbers."""

    what: str
    shape: tuple[int, ...]
    dtype: Any

    def problem(self, member: str, value: Any) -> str | None:
        """A sentence where a value (or a tracer of it) is something else."""
        name = {jnp.floating: "float", jnp.bool_: "bool"}.get(self.dtype, "int32")
        wanted = f"{member} must be an array of {name} of shape {self.shape} ({self.what})"
        if not isinstance(value, jax.Array | np.ndarray | np.generic):
            return f"{wanted}, not of type {type(value).__name__}"
        right = jnp.issubdtype(value.dtype, self.dtype)
        if value.shape != self.shape or not right:
            return f"{wanted}, not of {value.dtype} and shape {value.shape}"
        return None


def _kinds(pomdp: POMDP) -> dict[str, Kind]:
    state, observation = (len(pomdp.state_sizes),), (len(pomdp.observation_sizes),)
    return {
        "s": Kind("one value for each state feature", state, jnp.int32),
        "o": Kind("one value for each observation feature", observation, jnp.int32),
        "float": Kind("a scalar", (), jnp.floating),
        "bool": Kind("a scalar", (), jnp.bool_),
    }


def _traced(member: str, f: Callable[..., Any], given: tuple[Any, ...], kinds: tuple[Kind, ...]) -> Problems:
    """Trace f(*given), whose outputs must be of these kinds."""
    wrong: list[str] = []

    def look(*arguments: Any) -> None:
        out = f(*arguments)
        parts = out if len(kinds) > 1 else (out,)
        if not isinstance(parts, tuple) or len(parts) != len(kinds):
            wrong.append(
                f"{member} must return {len(kinds)} arrays, not a value of type {type(out).__name__}"
            )
            return
        numbered = [f", output {i}," if len(kinds) > 1 else "" for i in range(len(kinds))]
        found = [k.problem(member + i, x) for k, i, x in zip(kinds, numbered, parts, strict=True)]
        wrong.extend(sentence for sentence in found if sentence)

    try:
        eqx.filter_eval_shape(look, *given)
    except Exception as error:
        wrong.append(f"{member} raised {_short(error)}")
    yield from wrong


def _short(error: Exception) -> str:
    """An exception's type and the beginning of what it says."""
    said = " ".join(str(error).split("\n\n")[0].split())
    return f"{type(error).__name__}: {said[:200].rstrip('.')}"


def _zeros(pomdp: POMDP) -> tuple[Array, Array, Array]:
    """Some s, a and o."""
    zeros = lambda sizes: jnp.zeros((len(sizes),), jnp.int32)
    return zeros(pomdp.state_sizes), jnp.int32(0), zeros(pomdp.observation_sizes)


def _pomdp_shapes(pomdp: POMDP) -> Problems:
    """pomdp: shapes and types of what its functions and its dynamics return"""
    kinds, key = _kinds(pomdp), prng.key(SEED)
    s, a, _ = _zeros(pomdp)
    yield from _traced("pomdp.initial_state(key)", pomdp.initial_state, (key,), (kinds["s"],))
    yield from _traced(
        "pomdp.initial_observation(key, s)", pomdp.initial_observation, (key, s), (kinds["o"],)
    )
    yield from _traced("pomdp.step(key, s, a)", pomdp.step, (key, s, a), (kinds["s"], kinds["o"]))
    yield from _traced("pomdp.reward(s, a, s')", pomdp.reward, (s, a, s), (kinds["float"],))
    yield from _traced("pomdp.is_terminal(s, a, s')", pomdp.is_terminal, (s, a, s), (kinds["bool"],))
    yield from _dynamics_shapes("pomdp.dynamics", pomdp.dynamics, pomdp)  # type: ignore[attr-defined]


def _dynamics_shapes(name: str, D: Dynamics, pomdp: POMDP) -> Problems:
    kinds, key = _kinds(pomdp), prng.key(SEED)
    s, a, o = _zeros(pomdp)
    of_s, of_o, number = (kinds["s"],), (kinds["o"],), (kinds["float"],)
    yield from _traced(f"{name}.step(key, s, a)", D.step, (key, s, a), of_s + of_o)
    yield from _traced(f"{name}.log_prob(s, a, s', o)", D.log_prob, (s, a, s, o), number)
    given = s, a, s, o
    yield from _traced(f"{name}.observation_log_prob(s, a, s', o)", D.observation_log_prob, given, number)
    if isinstance(D, SplitDynamics):
        yield from _traced(f"{name}.sample_state(key, s, a)", D.sample_state, (key, s, a), of_s)
        given = key, s, a, s
        yield from _traced(f"{name}.sample_observation(key, s, a, s')", D.sample_observation, given, of_o)
        yield from _traced(f"{name}.transition_log_prob(s, a, s')", D.transition_log_prob, (s, a, s), number)


def _simulator_shapes(domain: Domain) -> Problems:
    """simulators: the prior's dynamics have the same shapes and fit into the pomdp"""
    draw, expected = domain.sample_simulator, domain.expected_simulator
    if expected is not None:
        yield from _simulator("expected_simulator", expected, domain.pomdp)
    if draw is not None:
        try:
            drawn = draw(prng.key(SEED))
        except Exception as error:
            yield f"sample_simulator(key) raised {_short(error)}"
            return
        yield from _simulator("sample_simulator(key)", drawn, domain.pomdp)


def _simulator(name: str, D: Any, pomdp: POMDP) -> Problems:
    if not isinstance(D, Dynamics):
        yield f"{name} must be a baddr Dynamics, not of type {type(D).__name__}"
        return
    yield from _dynamics_shapes(name, D, pomdp)
    s, a, _ = _zeros(pomdp)
    both = (_kinds(pomdp)["s"], _kinds(pomdp)["o"])
    step = lambda D, key, s, a: pomdp.with_dynamics(D).step(key, s, a)
    yield from _traced(f"pomdp.with_dynamics({name}).step(key, s, a)", step, (D, prng.key(SEED), s, a), both)


def _prior_shapes(domain: Domain) -> Problems:
    """the prior's other members: counts, graphs, is_legal, learned, leaf_value"""
    pomdp, s = domain.pomdp, _zeros(domain.pomdp)[0]
    S, A, Z = pomdp.num_states, pomdp.num_actions, pomdp.num_observations
    if domain.counts is not None:
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
        yield from _traced("is_legal(s)", domain.is_legal, (s,), (_kinds(pomdp)["bool"],))
    if domain.leaf_value is not None:
        yield from _traced("leaf_value(s)", domain.leaf_value, (s,), (_kinds(pomdp)["float"],))
    if domain.learned not in ("TO", "T", "O"):
        yield f"learned must be 'TO', 'T' or 'O', not {domain.learned!r}"
    elif domain.learned != "TO" and not isinstance(pomdp.dynamics, SplitDynamics):  # type: ignore[attr-defined]
        yield f"learned is {domain.learned!r}, so the other half is given by pomdp.dynamics, a SplitDynamics"


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
            wrong.append(f"the check of {inspect.getdoc(check)} raised {_short(error)}")
    return wrong


def checked(domain: Domain) -> list[str]:
    """What `problems` looks at, in words; what a domain does not have is left out."""
    has = {"simulators": domain.expected_simulator or domain.sample_simulator, "counts": domain.counts}
    has |= {"is_legal": domain.is_legal, "leaf_value": domain.leaf_value, "describe": domain.describe}
    lines = [
        inspect.getdoc(check) or ""
        for check in (_sizes, _pomdp_shapes, _prior_shapes, _names_and_presets, *CHECKS)
    ]
    return [line for line in lines if has.get(line.partition(":")[0], True)]


@eqx.filter_jit
def _walk(key: Key[Array, ""], pomdp: POMDP) -> tuple[Array, ...]:
    def walker(key: Key[Array, ""]) -> tuple[Array, ...]:
        key_s, key_o, key_steps = jr.split(key, 3)
        s_0 = pomdp.initial_state(key_s)

        def step(s: Array, key: Key[Array, ""]) -> tuple[Array, tuple[Array, ...]]:
            key_a, key_step = jr.split(key)
            a = (jr.uniform(key_a) * pomdp.num_actions).astype(jnp.int32)
            s_next, o = pomdp.step(key_step, s, a)
            r, terminal = pomdp.reward(s, a, s_next), pomdp.is_terminal(s, a, s_next)
            return jnp.where(terminal, s_0, s_next), (s, a, s_next, o, r, terminal)

        steps = jax.lax.scan(step, s_0, jr.split(key_steps, STEPS))[1]
        return s_0, pomdp.initial_observation(key_o, s_0), *steps

    return jax.vmap(walker)(jr.split(key, WALKERS))


def walk(pomdp: POMDP) -> Walk:
    """Random walks of 64 steps; where an episode ends, a walk begins again where it began."""
    s_0, o_0, *steps = map(np.asarray, _walk(prng.key(SEED), pomdp))
    return Walk(s_0, o_0, *(x.reshape(-1, *x.shape[2:]) for x in steps))


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
        once, again = (jax.jit(jax.vmap(lambda *x, f=f: f(*x))) for _ in range(2))  # each is traced anew
        # Equal programs need not be compiled.
        if once.lower(*x).as_text() != again.lower(*x).as_text() and _differ(once(*x), again(*x)):
            yield (
                f"pomdp.{name} returns different values for the same arguments; "
                "all that is random must come from the key"
            )


def _differ(x: Any, y: Any) -> bool:
    pairs = zip(jax.tree.leaves(x), jax.tree.leaves(y), strict=True)
    return not all(np.array_equal(np.asarray(a), np.asarray(b)) for a, b in pairs)


def _true_probabilities(domain: Domain) -> Problems:
    """pomdp.dynamics: probabilities sum to one, agree with each other, and are those that step draws with"""
    yield from _probabilities("pomdp.dynamics", domain.pomdp.dynamics, domain.pomdp)  # type: ignore[attr-defined]


def _simulator_probabilities(domain: Domain) -> Problems:
    """simulators: the same, for the expected one and one that is drawn"""
    if domain.expected_simulator is not None:
        yield from _probabilities("expected_simulator", domain.expected_simulator, domain.pomdp)
    if domain.sample_simulator is not None:
        drawn = domain.sample_simulator(prng.key(SEED))
        yield from _probabilities("sample_simulator(key)", drawn, domain.pomdp)


def _probabilities(name: str, D: Dynamics, pomdp: POMDP) -> Problems:
    """One sentence at most for each kind of mistake, about the first (s, a) that shows it."""
    pairs = _pairs(pomdp)
    yield from _sums(name, D, pomdp, *pairs)
    yield from _agreement(name, D, pomdp, *pairs)
    yield from _frequencies(name, f"{name}.step", D, D.step, pomdp, pairs)
    through = f"pomdp.with_dynamics({name}).step" if name != "pomdp.dynamics" else "pomdp.step"
    yield from _frequencies(name, through, D, pomdp.with_dynamics(D).step, pomdp, pairs)


def _pairs(pomdp: POMDP) -> tuple[Array, Array]:
    """Different (s, a) of random walks, the actions in turn."""
    steps = walk(pomdp)
    visited = np.unique(steps.s, axis=0)
    count = min(NUM_PAIRS, len(visited) * pomdp.num_actions)
    number = np.linspace(0, len(visited) * pomdp.num_actions - 1, count).astype(int)
    s, a = visited[number // pomdp.num_actions], number % pomdp.num_actions
    return jnp.asarray(s, jnp.int32), jnp.asarray(a, jnp.int32)


@eqx.filter_jit
def _total(f: Callable[..., Array], s: Array, a: Array, *outcomes: Array) -> Float[Array, " pairs"]:
    """The sum of exp f(s, a, outcome), for each pair."""
    one = lambda s, a: jnp.sum(jnp.exp(jax.vmap(lambda *x: f(s, a, *x))(*outcomes)))
    return jax.lax.map(lambda pair: one(*pair), (s, a))


def _sums(name: str, D: Dynamics, pomdp: POMDP, s: Array, a: Array) -> Problems:
    """Over all (s', o); over s' and over o where these are too many; over neither where each is."""
    S, Z = pomdp.num_states, pomdp.num_observations
    if S * Z <= LARGEST_SPACE:
        both = every_vector((*pomdp.state_sizes, *pomdp.observation_sizes))
        n = len(pomdp.state_sizes)
        yield from _off_one(f"{name}.log_prob", _total(D.log_prob, s, a, both[:, :n], both[:, n:]), s, a)
    elif S <= LARGEST_SPACE and isinstance(D, SplitDynamics):
        total = _total(D.transition_log_prob, s, a, every_vector(pomdp.state_sizes))
        yield from _off_one(f"{name}.transition_log_prob", total, s, a)


def _off_one(member: str, total: Array, s: Array, a: Array) -> Problems:
    off = np.flatnonzero(~(np.abs(np.asarray(total) - 1) <= TOLERANCE))
    if len(off):
        i = off[0]
        where = f"s = {np.asarray(s[i]).tolist()}, a = {int(a[i])}"
        yield f"{member}: the probabilities for {where} sum to {float(total[i]):.6g}, not to 1"


@eqx.filter_jit
def _draws(step: Callable[..., Any], D: Dynamics, key: Key[Array, ""], s: Array, a: Array, n: int) -> Any:
    """n draws of (s', o) from each pair, and their log-probabilities."""

    def pair(key: Key[Array, ""], s: Array, a: Array) -> Any:
        s_next, o = jax.vmap(step, (0, None, None))(jr.split(key, n), s, a)
        return s_next, o, jax.vmap(D.log_prob, (None, None, 0, 0))(s, a, s_next, o)

    return jax.lax.map(lambda x: pair(*x), (jr.split(key, len(s)), s, a))


def _frequencies(
    name: str, member: str, D: Dynamics, step: Callable[..., Any], pomdp: POMDP, pairs: tuple[Array, Array]
) -> Problems:
    """Each outcome that was drawn, against its probability.

    By Bernstein's inequality a count X of n draws is off n p by more than 5 standard errors and 5 with
    probability at most 8e-6.
    """
    s_next, o, log_p = _draws(step, D, prng.key(SEED), *pairs, NUM_DRAWS)
    if np.any(np.isnan(log_p)):
        yield f"{name}.log_prob is NaN for an outcome of {member}"
        return
    outcomes = np.concatenate([s_next, o], axis=-1)
    for i in range(len(outcomes)):
        each, first, count = np.unique(outcomes[i], axis=0, return_index=True, return_counts=True)
        p = np.exp(np.asarray(log_p[i], np.float64)[first])
        bound = STANDARD_ERRORS * np.sqrt(NUM_DRAWS * p * np.maximum(1 - p, 0)) + 5
        wrong = (np.abs(count - NUM_DRAWS * p) > bound) | (p == 0)
        if np.any(wrong):
            j = np.flatnonzero(wrong)[0]
            k = len(pomdp.state_sizes)
            where = f"s = {np.asarray(pairs[0][i]).tolist()}, a = {int(pairs[1][i])}"
            yield (
                f"{member} draws s' = {each[j, :k].tolist()}, o = {each[j, k:].tolist()} from {where} in "
                f"{count[j]} of {NUM_DRAWS} draws ({count[j] / NUM_DRAWS:.4f}), but by {name}.log_prob its "
                f"probability is {p[j]:.4f}"
            )
            return


@eqx.filter_jit
def _parts(D: Dynamics, pomdp: POMDP, key: Key[Array, ""], s: Array, a: Array) -> tuple[Array | None, ...]:
    """For one draw (s', o) from each pair: log p(s', o), log p(s'), log p(o | s'), and sum_o p(o | s').

    p(s') is the sum of p(s', o) over o where these can be listed, or else what `transition_log_prob` says.
    """
    listed = pomdp.num_observations <= LARGEST_SPACE
    every = every_vector(pomdp.observation_sizes) if listed else None

    def pair(x: tuple[Array, Array, Array]) -> tuple[Array | None, ...]:
        key, s, a = x
        s_next, o = D.step(key, s, a)
        both, observation = D.log_prob(s, a, s_next, o), D.observation_log_prob(s, a, s_next, o)
        if every is None:
            transition = D.transition_log_prob(s, a, s_next) if isinstance(D, SplitDynamics) else None
            return both, transition, observation, None
        over_o = lambda f: jax.nn.logsumexp(jax.vmap(lambda o: f(s, a, s_next, o))(every))
        return both, over_o(D.log_prob), observation, jnp.exp(over_o(D.observation_log_prob))

    return jax.lax.map(pair, (jr.split(key, len(s)), s, a))


def _agreement(name: str, D: Dynamics, pomdp: POMDP, s: Array, a: Array) -> Problems:
    """observation_log_prob (and transition_log_prob) against log_prob."""
    both, transition, observation, total = _parts(D, pomdp, prng.key(SEED), s, a)
    if total is not None:
        yield from _off_one(f"{name}.observation_log_prob", total, s, a)
    if both is None or transition is None or observation is None:
        return
    apart = np.abs(np.asarray(transition + observation - both, np.float64))
    if not np.all(apart <= TOLERANCE):
        i = int(np.argmax(np.nan_to_num(apart, nan=np.inf)))
        yield (
            f"{name}.observation_log_prob does not agree with log_prob: p(s') p(o | s') is "
            f"{math.exp(transition[i] + observation[i]):.4g}, log_prob says {math.exp(both[i]):.4g}"
        )


def _rows(domain: Domain) -> Problems:
    """counts: none is negative, and every row has a positive sum"""
    for name in "TO" if domain.counts is not None else "":
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
            yield f"is_legal refuses {refused[0].tolist()}, a state that an episode can be in"


def _leaf(domain: Domain) -> Problems:
    """leaf_value: finite"""
    if domain.leaf_value is not None:
        value = np.asarray(jax.jit(jax.vmap(domain.leaf_value))(jnp.asarray(walk(domain.pomdp).s)))
        if not np.all(np.isfinite(value)):
            yield "leaf_value is not finite in a state that an episode can be in"


def _describes(domain: Domain) -> Problems:
    """describe: names for numbers and vectors about a belief"""
    if domain.describe is None:
        return
    posterior = _some_posterior(domain)
    gba = GBAPOMDP(domain.pomdp, posterior)
    about = lambda key: domain.describe(key, posterior, initial_belief(key, gba, 4))  # type: ignore[misc]
    try:
        described = jax.eval_shape(about, prng.key(SEED))
    except Exception as error:
        yield f"describe(key, posterior, belief) raised {_short(error)}"
        return
    named = isinstance(described, dict) and all(isinstance(name, str) for name in described)
    if not named or any(x.ndim > 1 for x in jax.tree.leaves(described)):
        yield "describe(key, posterior, belief) must return a dict from names to arrays of rank 0 or 1"


def _some_posterior(domain: Domain) -> Posterior:
    """Counts, a Bayes network, or small networks: what the domain has a prior for."""
    pomdp = domain.pomdp
    if domain.counts is not None:
        return Dirichlet(domain.counts, pomdp.state_sizes, pomdp.observation_sizes)
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
    _leaf,
    _describes,
)
