"""The loop: same seed, same result; one compilation; returns that others computed."""

import importlib.util
import json
from dataclasses import replace

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from helpers import DATA, EXAMPLES, world_and_agent

from baddr import prng
from baddr.domains import tiger
from baddr.fast.runs import advance, start
from baddr.lab.build import build_agent, build_domain
from baddr.lab.experiment import preset
from baddr.posteriors import Dirichlet

VALUES = json.loads((DATA / "values.json").read_text())


def run(world, agent, runs, episodes, seed=0, block=8):
    keys = jax.vmap(jr.fold_in, in_axes=(None, 0))(prng.key(seed), jnp.arange(runs))
    state, blocks = start(keys, agent, world), []
    while not blocks or blocks[-1].active[-1].any():
        state, steps = advance(state, agent, world, jnp.int32(episodes), block)
        blocks.append(jax.device_get(steps))
    return state, jax.tree.map(lambda *x: np.concatenate(x), *blocks)


def returns(steps, episodes):
    """[run, episode]."""
    table = np.full((steps.ended.shape[1], episodes), np.nan)
    when, lane = np.nonzero(steps.ended)
    table[lane, steps.episode[when, lane]] = steps.tally.discounted_return[when, lane]
    return table


def test_same_seed_same_result_and_blocks_do_not_matter():
    world, agent = world_and_agent(num_particles=32)
    first = returns(run(world, agent, 4, 3)[1], 3)
    assert np.array_equal(first, returns(run(world, agent, 4, 3)[1], 3))
    assert np.array_equal(first, returns(run(world, agent, 4, 3, block=3)[1], 3))
    assert not np.array_equal(first, returns(run(world, agent, 4, 3, seed=1)[1], 3))


def test_a_runs_life_does_not_depend_on_its_neighbours():
    world, agent = world_and_agent(num_particles=32, rejuvenate=True)
    together, fewer = returns(run(world, agent, 4, 3)[1], 3), returns(run(world, agent, 2, 3)[1], 3)
    np.testing.assert_allclose(together[:2], fewer, rtol=1e-5)


def test_finished_runs_stand_still_and_can_go_on():
    """More episodes continue the same life as asking for them at once."""
    world, agent = world_and_agent(num_particles=32)
    state, _ = run(world, agent, 4, 2)
    blocks = []
    while not blocks or blocks[-1].active[-1].any():
        state, steps = advance(state, agent, world, jnp.int32(4), 8)
        blocks.append(jax.device_get(steps))
    later = returns(jax.tree.map(lambda *x: np.concatenate(x), *blocks), 4)[:, 2:]
    assert np.array_equal(later, returns(run(world, agent, 4, 4)[1], 4)[:, 2:])


def test_nothing_is_compiled_again_between_episodes():
    world, agent = world_and_agent(num_particles=16, num_simulations=8)
    traces = []
    plan = type(agent).plan

    def counted(self, *arguments):
        traces.append(1)
        return plan(self, *arguments)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(type(agent), "plan", counted)
        run(world, agent, 5, 6)
        run(world, agent, 5, 9, seed=3)
    assert len(traces) == 1


def test_discounted_and_undiscounted_returns_add_up():
    world, agent = world_and_agent("random")
    _, steps = run(world, agent, 8, 5)
    for lane in range(8):
        for episode in range(5):
            mine = steps.active[:, lane] & (steps.episode[:, lane] == episode)
            r = steps.r[mine, lane]
            at_end = mine & steps.ended[:, lane]
            tally = jax.tree.map(lambda x: x[at_end, lane][0], steps.tally)  # noqa: B023
            assert tally.return_ == pytest.approx(r.sum(), rel=1e-5)
            assert tally.discounted_return == pytest.approx((r * 0.95 ** np.arange(len(r))).sum(), rel=1e-5)


def compare(steps, episodes, name):
    """Within 4 standard errors (theirs included) of an independently computed return."""
    table = returns(steps, episodes)
    theirs = VALUES[name]["tol"] / 3 if VALUES[name]["kind"].startswith("Monte") else 0
    standard_error = np.hypot(table.mean(1).std() / np.sqrt(len(table)), theirs)
    assert abs(table.mean() - VALUES[name]["value"]) < 4 * standard_error


def test_random_actions_return_what_they_must():
    world, agent = world_and_agent("random", num_particles=1)
    compare(run(world, agent, 512, 16)[1], 16, "tiger/random_uniform_3_actions/disc")


def test_pomcp_with_256_simulations_returns_what_others_measured():
    world, agent = world_and_agent("pomcp", 256, num_particles=512)
    compare(run(world, agent, 128, 12)[1], 12, "tiger/pouct u=100 sims=256 model_acc=0.85/disc")


@pytest.mark.slow
def test_a_known_wrong_model_returns_what_others_measured():
    """PO-UCT that believes in accuracy .625, on the truth .85."""
    experiment = preset("tiger", "pomcp", kinds={"planner": "po-uct"})
    domain = build_domain(experiment)
    wrong = build_domain(replace(experiment, domain=replace(experiment.domain, accuracy=0.625)))
    planner = replace(experiment.settings.planner, num_simulations=256)
    agent = build_agent(experiment.changed(planner=planner), wrong)
    compare(run(domain.pomdp, agent, 128, 12)[1], 12, "tiger/pouct u=100 sims=256 model_acc=0.625/disc")


@pytest.mark.parametrize("kind", ["importance", pytest.param("rejection", marks=pytest.mark.slow)])
def test_nan_in_a_belief_stops_that_run_only(kind):
    world, agent = world_and_agent(num_particles=16, num_simulations=8, kind=kind)
    keys = jr.split(prng.key(0), 3)
    state = start(keys, agent, world)
    broken = state.belief.states.theta.O.at[1, :, 2].set(jnp.nan)
    theta = state.belief.states.theta._replace(O=broken)
    belief = type(state.belief)(state.belief.states._replace(theta=theta), state.belief.log_weights)
    state = state._replace(belief=belief)
    state, steps = advance(state, agent, world, jnp.int32(3), 60)
    assert np.asarray(state.failed).tolist() == [False, True, False]
    assert np.asarray(state.episode).tolist() == [3, 0, 3]
    assert int(np.asarray(steps.failed).sum()) == 1


@pytest.mark.slow
def test_pomcp_on_true_tiger_is_worth_3_3():
    """The paper's budget: FACTS gives 3.335 +- .116 over 20,000 episodes."""
    world, agent = world_and_agent("pomcp", 4096)
    table = returns(run(world, agent, 64, 40)[1], 40)
    standard_error = np.hypot(table.mean(1).std() / 8, 0.116)
    assert abs(table.mean() - 3.335) < 4 * standard_error


@pytest.mark.slow
def test_ba_pomcp_follows_the_curve_of_an_exact_posterior():
    """64 runs of 400 episodes at the paper's settings. A run is locked into the mirrored model where its
    mean accuracy over the last 40 episodes is below one half; such runs are left out."""
    world, agent = world_and_agent("ba-pomcp", 4096, rejuvenate=True)
    _, steps = run(world, agent, 64, 400)
    table = returns(steps, 400)
    accuracy = np.full((64, 400), np.nan)
    when, lane = np.nonzero(steps.ended)
    accuracy[lane, steps.episode[when, lane]] = steps.model["accuracy_mean"][when, lane].mean(-1)
    locked = accuracy[:, -40:].mean(1) < 0.5
    print(f"{locked.mean():.3f} of the runs are locked into the mirrored model")
    assert locked.mean() <= 0.1
    for first, last in ((1, 1), (11, 20), (31, 50), (76, 100), (151, 200), (301, 400)):
        oracle = VALUES[f"tiger/ba-pomcp exact posterior, episodes {first}-{last}/disc"]
        ours = table[~locked, first - 1 : last].mean(1)
        standard_error = np.hypot(ours.std() / np.sqrt(len(ours)), oracle["tol"] / 3)
        print(
            f"episodes {first}-{last}: {ours.mean():.3f} +- {standard_error:.3f}, exact {oracle['value']:.3f}"
        )
        assert abs(ours.mean() - oracle["value"]) < 4 * standard_error


def test_the_example_of_an_own_posterior_runs():
    """examples/forgetting.py as its reader would call it; counts that forget nothing are Dirichlet's."""
    spec = importlib.util.spec_from_file_location("forgetting", EXAMPLES / "forgetting.py")
    example = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(example)
    returns = example.main(runs=2, episodes=2, expansions=2)
    assert returns.shape == (2,) and np.all(returns <= 10) and np.all(returns >= -130)
    domain = tiger.make_domain()
    s, a, o = jnp.array([1]), jnp.int32(2), jnp.array([0])
    theta = [
        posterior.update(prng.key(0), posterior.prior(prng.key(0)), s, a, s, o)
        for posterior in (
            example.make_posterior(domain, keep=1.0),
            Dirichlet(domain.counts, *tiger.SIZES),
        )
    ]
    jax.tree.map(np.testing.assert_array_equal, *theta)
    forgets = example.make_posterior(domain, keep=0.5)
    after = forgets.update(prng.key(0), theta[0], s, a, s, o)
    np.testing.assert_allclose(after.O[2, 1, 0], 3 + 0.5 + 1)
