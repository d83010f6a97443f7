"""What functions return: shapes and types, traced and not computed, and whether arguments determine it."""

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from baddr import prng
from baddr.core.pomdp import POMDP, Dynamics, SplitDynamics
from baddr.domains.own import line_of

SEED = 0
UNTRACEABLE = (
    jax.errors.ConcretizationTypeError,
    jax.errors.TracerArrayConversionError,
    jax.errors.TracerIntegerConversionError,
)
BOTH_WAYS_OUT = (
    "is plain Python or NumPy, but JAX must trace it: write it with jax.numpy and draw from its key, or give "
    "it to from_simulators as a black box (docs/black-box.md)"
)
Problems = Iterator[str]


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


def kinds(pomdp: POMDP) -> dict[str, Kind]:
    state, observation = (len(pomdp.state_sizes),), (len(pomdp.observation_sizes),)
    return {
        "s": Kind("one value for each state feature", state, jnp.int32),
        "o": Kind("one value for each observation feature", observation, jnp.int32),
        "float": Kind("a scalar", (), jnp.floating),
        "bool": Kind("a scalar", (), jnp.bool_),
    }


def traced(member: str, f: Callable[..., Any], given: tuple[Any, ...], wanted: tuple[Kind, ...]) -> Problems:
    """Trace f(*given), whose outputs must be of the `wanted` kinds."""
    wrong: list[str] = []

    def look(*arguments: Any) -> None:
        out = f(*arguments)
        parts = out if len(wanted) > 1 else (out,)
        if not isinstance(parts, tuple) or len(parts) != len(wanted):
            wrong.append(
                f"{member} must return {len(wanted)} arrays, not a value of type {type(out).__name__}"
            )
            return
        numbered = [f", output {i}," if len(wanted) > 1 else "" for i in range(len(wanted))]
        found = [k.problem(member + i, x) for k, i, x in zip(wanted, numbered, parts, strict=True)]
        wrong.extend(sentence for sentence in found if sentence)

    try:
        eqx.filter_eval_shape(look, *given)
    except UNTRACEABLE as error:
        line = f" (line {line_of(error)})" if line_of(error) else ""
        wrong.append(f"{member}{line} {BOTH_WAYS_OUT}")
    except Exception as error:
        wrong.append(f"{member} raised {short(error)}")
    yield from wrong


def short(error: Exception) -> str:
    """An exception's type, the beginning of what it says, and the line of a user's file where it was."""
    said = " ".join(str(error).split("\n\n")[0].split())
    line = line_of(error)
    return f"{type(error).__name__}: {said[:200].rstrip('.')}" + (f" (line {line})" if line else "")


def zeros(pomdp: POMDP) -> tuple[Array, Array, Array]:
    """Some s, a and o."""
    nothing = lambda sizes: jnp.zeros((len(sizes),), jnp.int32)
    return nothing(pomdp.state_sizes), jnp.int32(0), nothing(pomdp.observation_sizes)


def dynamics_shapes(name: str, D: Dynamics, pomdp: POMDP) -> Problems:
    of, key = kinds(pomdp), prng.key(SEED)
    s, a, o = zeros(pomdp)
    of_s, of_o, number = (of["s"],), (of["o"],), (of["float"],)
    yield from traced(f"{name}.step(key, s, a)", D.step, (key, s, a), of_s + of_o)
    yield from traced(f"{name}.log_prob(s, a, s', o)", D.log_prob, (s, a, s, o), number)
    given = s, a, s, o
    yield from traced(f"{name}.observation_log_prob(s, a, s', o)", D.observation_log_prob, given, number)
    if isinstance(D, SplitDynamics):
        yield from traced(f"{name}.sample_state(key, s, a)", D.sample_state, (key, s, a), of_s)
        given = key, s, a, s
        yield from traced(f"{name}.sample_observation(key, s, a, s')", D.sample_observation, given, of_o)
        yield from traced(f"{name}.transition_log_prob(s, a, s')", D.transition_log_prob, (s, a, s), number)


def undetermined(member: str, f: Callable[..., Any], given: tuple[Any, ...]) -> Problems:
    """A sentence where f gives something else when it is traced anew."""
    once, again = (jax.jit(lambda *x: f(*x)) for _ in range(2))
    # Equal programs need not be compiled.
    if once.lower(*given).as_text() != again.lower(*given).as_text() and differ(once(*given), again(*given)):
        yield (
            f"{member} returns different values for the same arguments; all randomness must come from the key"
        )


def differ(x: Any, y: Any) -> bool:
    pairs = zip(jax.tree.leaves(x), jax.tree.leaves(y), strict=True)
    return not all(np.array_equal(np.asarray(a), np.asarray(b), equal_nan=True) for a, b in pairs)
