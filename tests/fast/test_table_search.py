"""PO-UCT on tables, by a loop and by a kernel that is interpreted, against the search by a tree."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from searches import TIGER, TRUE, chain, known, plan

from baddr import prng
from baddr.core.belief_update import initial_belief
from baddr.core.gba_pomdp import GBAPOMDP
from baddr.domains import tiger
from baddr.fast.table_search import Limits, _uniforms, search_tables
from baddr.fast.tables import rows_that_matter, tables
from baddr.fast.tuning import MOST_ROWS
from baddr.posteriors import Dirichlet, Known

POSTERIORS = {
    "known": Known(TIGER.pomdp.dynamics),
    "counts": Dirichlet(TIGER.counts, *tiger.SIZES),
}


@pytest.mark.parametrize("name", POSTERIORS)
def test_tables_are_searched_as_the_pomdp_is(name):
    """Visits, values and nodes of 200 searches of 150 simulations, means within 4 standard errors; the
    tiger goes on after a door is opened, so all of D is used, and every simulation takes all its steps."""
    gba = GBAPOMDP(Continuing(TIGER.pomdp.dynamics), POSTERIORS[name])
    settings = dict(num_runs=200, num_simulations=150, exploration=30.0, depth=6)
    plain = plan(gba, seed=1, **settings)
    loop, kernel = (plan(gba, way=way, **settings) for way in ("loop", "interpreted kernel"))
    assert np.all(np.asarray(kernel.num_steps) == 150 * 6)
    # The same random numbers: only where rounding turns a choice do the two part.
    assert np.mean(np.all(np.asarray(loop.N) == np.asarray(kernel.N), axis=1)) > 0.9
    for ours, theirs in zip(loop[:3], plain[:3], strict=True):
        ours, theirs = np.asarray(ours, float), np.asarray(theirs, float)
        standard_error = np.sqrt((ours.var(0) + theirs.var(0)) / 200)
        assert np.all(np.abs(ours.mean(0) - theirs.mean(0)) < 4 * standard_error)


class Continuing(tiger.Tiger):
    def is_terminal(self, s, a, s_next):
        return jnp.array(False)


def test_the_kernel_is_exact_where_nothing_is_random():
    """With one step left walking is worth 1 and staying 0; with two, 1 + .5 (1 or 2) and .5 (0 or 1): the
    first visit of a child is a rollout, and exploration alone then visits its actions in turn."""
    pomdp = known(chain(horizon=2))
    for steps_left, Q in ((1, [0.0, 1.0]), (2, [0.25, 1.75])):
        settings = dict(num_simulations=402, exploration=1e6, steps_left=steps_left)
        found = plan(pomdp, 5, way="interpreted kernel", **settings)
        np.testing.assert_allclose(found.Q, [Q] * 5, atol=0.01)
        assert np.all(np.asarray(found.N) == 201)
        assert np.all(np.asarray(found.num_nodes) == (1 if steps_left == 1 else 3))


@pytest.mark.skipif(
    jax.__version_info__ > (0, 10, 2), reason="this JAX lowers for a GPU only where it has one"
)
def test_the_kernel_compiles_for_a_gpu_at_the_size_of_the_paper():
    def searched(keys, beliefs):
        s, limit = jnp.zeros((2048, 4096), jnp.int32), jnp.full((2048,), 30)
        rows = rows_that_matter(TRUE.pomdp, MOST_ROWS)
        found, limits = tables(TRUE, beliefs, (s, ()), rows), Limits(0.95, 100.0, 30)
        return search_tables(keys, found, s, limit, limit > 0, limits, "kernel")

    keys = jax.ShapeDtypeStruct((2048,), prng.key(0).dtype)
    beliefs = jax.eval_shape(jax.vmap(lambda k: initial_belief(k, TRUE, 1024)), keys)
    lowered = jax.jit(searched).trace(keys, beliefs).lower(lowering_platforms=("cuda",))
    assert "triton" in lowered.as_text()


def test_the_three_numbers_of_a_step_are_uniform_and_independent():
    """Chi-square over 8^3 boxes (mean 511, standard deviation 32.0) and, for the number that is put together
    from two bytes, over 4096 intervals (mean 4095, standard deviation 90.5): within 4 of them."""
    n = 409_600
    u = _uniforms((jnp.uint32(7), jnp.uint32(11)), jnp.arange(n, dtype=jnp.int32))
    boxes = np.histogramdd(np.stack(u, axis=1), bins=8, range=[(0, 1)] * 3)[0]
    assert abs(((boxes - n / 512) ** 2).sum() / (n / 512) - 511) < 4 * 32.0
    intervals = np.histogram(u[0], bins=4096, range=(0, 1))[0]
    assert abs(((intervals - n / 4096) ** 2).sum() / (n / 4096) - 4095) < 4 * 90.5
