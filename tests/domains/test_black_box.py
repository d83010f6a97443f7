"""Black boxes and toy-text environments: their tables, their samples, and agents that learn them."""

import re
from pathlib import Path

import equinox as eqx
import gymnasium
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from baddr import prng
from baddr.domains import Domain, from_environment, from_gymnasium, from_simulators
from baddr.domains.callback import BlackBox, Call
from baddr.domains.check import structure_problems
from baddr.domains.finite import Finite
from baddr.domains.sparse import SparseFinite
from baddr.errors import UserError
from baddr.fast.pretrain import pretrain
from baddr.gym import player
from baddr.posteriors.settings import Network, Pretrain

ROOT = Path(__file__).parent.parent.parent

# --- toy text ----------------------------------------------------------------------------------------


def table_of(env):
    P = env.unwrapped.P
    T, R = np.zeros((len(P), len(P[0]), len(P))), np.zeros((len(P), len(P[0])))
    for s, by_action in P.items():
        for a, outcomes in by_action.items():
            for p, s_next, r, _ in outcomes:
                T[s, a, s_next] += p
                R[s, a] += p * r
    return T, R


def test_a_frozen_lake_is_a_domain():
    """Against its own table P, read in another way; expected rewards, ends and the start."""
    env = gymnasium.make("FrozenLake-v1")
    domain = from_gymnasium(env, discount=0.9)
    T, R = table_of(env)
    pomdp = domain.pomdp
    assert isinstance(pomdp, Finite) and domain.learned == "T" and pomdp.start[0] == 1
    np.testing.assert_allclose(pomdp.dynamics.T, T, atol=1e-6)
    np.testing.assert_allclose(np.sum(T * np.asarray(pomdp.R), axis=2), R, atol=1e-6)
    holes = np.array([c in "HG" for c in "SFFFFHFHFFFHHFFG"])
    assert np.array_equal(np.asarray(pomdp.terminal)[0, 0], holes)
    np.testing.assert_allclose(pomdp.dynamics.O[0], np.eye(16))


def test_what_is_seen_may_be_a_function_or_a_table():
    env = gymnasium.make("CliffWalking-v1")
    by_column = from_gymnasium(env, observation=lambda s: s % 12)
    assert by_column.pomdp.observation_sizes == (12,)
    noisy = np.full((48, 2), 0.5)
    noisy[0] = 1, 0
    np.testing.assert_allclose(from_gymnasium(env, observation=noisy).pomdp.dynamics.O[3], noisy)
    for wrong in (np.ones((48, 2)), np.ones((3, 1)), lambda s: -1):
        with pytest.raises(UserError, match="observation"):
            from_gymnasium(env, observation=wrong)
    with pytest.raises(UserError, match="needs an environment with a table P"):
        from_gymnasium(gymnasium.make("CartPole-v1"))


def test_a_taxi_is_a_sparse_domain():
    """500 states: steps of the domain and of the environment's table, for some (s, a)."""
    env = gymnasium.make("Taxi-v4") if "Taxi-v4" in gymnasium.registry else gymnasium.make("Taxi-v3")
    pomdp = from_gymnasium(env).pomdp
    T, R = table_of(env)
    assert isinstance(pomdp, SparseFinite) and pomdp.num_states == 500
    vector = lambda s: jnp.array([s], jnp.int32)
    for s, a in ((1, 0), (250, 5), (499, 3)):
        s_next = int(np.argmax(T[s, a]))
        r = pomdp.reward(vector(s), jnp.int32(a), vector(s_next))
        assert float(r) == R[s, a]
        log_p = pomdp.dynamics.transition_log_prob(vector(s), jnp.int32(a), vector(s_next))
        np.testing.assert_allclose(float(jnp.exp(log_p)), T[s, a, s_next], rtol=1e-5)


FILE = """
import gymnasium
from baddr.domains import from_gymnasium

def make_domain():
    return from_gymnasium(gymnasium.make("FrozenLake-v1", is_slippery=False), horizon=6)
"""


def test_ba_pomcp_learns_a_frozen_lake(tmp_path):
    """In the environment itself: every step adds one to the counts of the (s, a) that it was in."""
    (tmp_path / "lake.py").write_text(FILE)
    sizes = {"planner": {"kind": "po-uct", "num_simulations": 8}, "filter": {"num_particles": 8}}
    agent = player(str(tmp_path / "lake.py"), "ba-pomcp", seed=0, **sizes)
    env, before = gymnasium.make("FrozenLake-v1", is_slippery=False), agent.belief.states.theta.T[0]
    env.reset(seed=0)
    agent.reset()
    for _ in range(3):
        a = agent.act()
        observation, _, terminated, truncated, _ = env.step(a)
        agent.observe(observation, terminated, truncated)
        if terminated:
            break
    after = agent.belief.states.theta.T[0]
    assert float((after - before).sum()) == pytest.approx(agent.t, abs=1e-3)
    here = np.asarray(agent.belief.states.s)[:, 0] == observation  # which is seen
    assert float(np.asarray(agent.belief.weights)[here].sum()) == pytest.approx(1, abs=1e-3)


# --- black boxes -------------------------------------------------------------------------------------


def biased(rng, s, a):
    """The next side of a coin that shows 1 in 3 of 4 tosses; it is seen through glass that errs."""
    side = int(rng.random() < 0.75)
    return side, side if rng.random() < 0.9 else 1 - side


def fair(rng, s, a):
    return [int(rng.random() < 0.5)], [int(rng.integers(2))]


def coin(simulators=(biased,), **more):
    sizes = {"state_sizes": (2,), "observation_sizes": (2,), "num_actions": 2, "horizon": 4}
    return from_simulators(list(simulators), np.array([0.0, 1.0]), [0.5, 0.5], **sizes, **more)


def frequencies(D, n=600, number=0):
    draw = eqx.filter_jit(
        lambda keys: jax.vmap(lambda key: D.step(key, jnp.zeros(1, jnp.int32), jnp.int32(0)))(keys)
    )
    s, o = draw(jr.split(prng.key(number), n))
    return np.bincount(np.asarray(2 * s + o)[:, 0], minlength=4) / n


def test_a_black_box_draws_what_it_should():
    """600 steps, 5 standard errors; with several simulators their average, and each alone."""
    p, q = np.array([0.225, 0.025, 0.075, 0.675]), np.full(4, 0.25)
    domain = coin((biased, fair))
    close = lambda found, p: np.all(np.abs(found - p) < 5 * np.sqrt(p * (1 - p) / 600))
    assert close(frequencies(domain.expected_simulator), (p + q) / 2)
    drawn = [domain.sample_simulator(prng.key(i)) for i in range(16)]
    assert {int(D.number) for D in drawn} == {0, 1}
    for number, wanted in ((0, p), (1, q)):
        assert close(frequencies(next(D for D in drawn if int(D.number) == number)), wanted)
    assert np.array_equal(frequencies(domain.expected_simulator), frequencies(domain.expected_simulator))


@pytest.mark.slow
def test_networks_learn_a_black_box():
    """p(s' = 1) and p(o = s') of the trained network, within .07 of the box that it never saw inside."""
    settings = Pretrain(batches=400, batch_size=32, learning_rate=0.01, optimizer="adam")
    network = Network(hidden=8, dropout=0.1, inputs="onehot")
    domain = coin()
    posterior, fit = pretrain(prng.key(0), domain.expected_simulator, domain.pomdp, network, settings)
    assert not fit.failed.any() and np.isnan(fit.entropy).all()
    theta, one = posterior.prior(prng.key(1)), jnp.ones(1, jnp.int32)
    D = posterior.dynamics(theta, posterior.draw(prng.key(2), theta))
    assert abs(float(jnp.exp(D.transition_log_prob(0 * one, jnp.int32(0), one))) - 0.75) < 0.07
    assert abs(float(jnp.exp(D.observation_log_prob(0 * one, jnp.int32(0), one, one))) - 0.9) < 0.07


def test_an_environment_is_a_black_box():
    """FrozenLake from a state that is set, against its table; 5 standard errors."""
    env = gymnasium.make("FrozenLake-v1")
    step, rng, n = from_environment(env), np.random.default_rng(0), 2000
    seen = np.bincount([int(step(rng, np.array([6]), 1)[0]) for _ in range(n)], minlength=16) / n
    p = table_of(env)[0][6, 1]
    assert np.all(np.abs(seen - p) <= 5 * np.sqrt(p * (1 - p) / n))
    with pytest.raises(UserError, match="does not expose its state"):
        from_environment(gymnasium.make("Blackjack-v1"))


def test_wrong_black_boxes_get_a_sentence():
    with pytest.raises(UserError, match="A simulator must be a function step"):
        coin((3,))
    with pytest.raises(UserError, match="start must be a state, or 2 probabilities"):
        from_simulators(
            [fair], np.zeros(2), [1, 1, 1], state_sizes=(2,), observation_sizes=(2,), num_actions=1
        )
    with pytest.raises(UserError, match="reward must be a function"):
        from_simulators([fair], np.zeros(3), [1, 0], state_sizes=(2,), observation_sizes=(2,), num_actions=1)
    with pytest.raises(Exception, match="must hold integers from 0 to below"):
        jax.block_until_ready(coin((lambda rng, s, a: (7, 0),)).expected_simulator.step(prng.key(0), *START))


START = jnp.zeros(1, jnp.int32), jnp.int32(0)


def test_numpy_where_jax_is_needed_is_told_both_ways_out():
    domain = coin()

    class Untraceable(type(domain.pomdp)):
        def step(self, key, s, a):
            return np.clip(np.asarray(s) + 1, 0, 1), np.asarray(s)

    fields = {name: getattr(domain.pomdp, name) for name in domain.pomdp.__dataclass_fields__}
    (sentence, *_) = structure_problems(Domain("mine", Untraceable(**fields)))
    assert (
        "write it with jax.numpy" in sentence and "from_simulators" in sentence and "Tracer" not in sentence
    )


# --- the page ----------------------------------------------------------------------------------------


def test_the_pages_code_runs(monkeypatch, tmp_path):
    """docs/black-box.md, with less training and a small search; the agent ends its episodes."""
    monkeypatch.chdir(ROOT)
    page = (ROOT / "docs" / "black-box.md").read_text()
    small = 'pretrain={"batches": 16, "batch_size": 8}, planner={"kind": "po-uct", "num_simulations": 16}'
    small += ', filter={"num_particles": 16}'
    names: dict = {}
    for block in re.findall(r"^```python\n(.*?)^```", page, re.DOTALL | re.MULTILINE):
        exec(block.replace('pretrain={"batches": 256, "batch_size": 32}', small), names)
    assert names["agent"].episode == 2 and player is names["player"]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["corridor", "lake"])
def test_one_network_for_all_simulators_learns_them_too(tmp_path, name):
    """Agent latent, at a tiny size: it acts, and its belief about z moves."""
    (tmp_path / "lake.py").write_text(FILE)
    path = tmp_path / "lake.py" if name == "lake" else ROOT / "examples" / "corridor.py"
    sizes = {"planner": {"kind": "po-uct", "num_simulations": 8}, "filter": {"num_particles": 8}}
    training = {"simulators": 4, "steps": 4, "batch_size": 32, "hidden": 8}
    agent = player(str(path), "latent", seed=0, latent=training, **sizes)
    before = jax.tree.map(np.asarray, agent.belief.states.theta)
    agent.reset()
    assert agent.act() in range(4)
    agent.observe(0)
    pairs = zip(jax.tree.leaves(before), jax.tree.leaves(agent.belief.states.theta), strict=True)
    assert any(not np.array_equal(x, y) for x, y in pairs)


def test_a_batch_is_its_steps_and_one_call(monkeypatch):
    """JAX calls Python once for a batch with two axes, and every step is as it is alone."""
    calls = []
    inner = Call.__call__
    monkeypatch.setattr(Call, "__call__", lambda self, *given: calls.append(given) or inner(self, *given))
    draw = lambda rng, s, a: (int(rng.integers(5)), int(rng.integers(2)))
    box = BlackBox(jnp.int32(0), (draw,), (5,), (2,))
    step = lambda key, s, a: box.step(key, s, a)
    keys, s, a = jr.split(prng.key(0), (3, 4)), jnp.ones((3, 4, 1), jnp.int32), jnp.zeros((3, 4), jnp.int32)
    s_next, o = jax.block_until_ready(jax.vmap(jax.vmap(step))(keys, s, a))
    assert len(calls) == 1 and s_next.shape == o.shape == (3, 4, 1) and len(set(s_next.ravel().tolist())) > 1
    for i in range(3):
        for j in range(4):
            alone = step(keys[i, j], s[i, j], a[i, j])
            assert (alone[0].tolist(), alone[1].tolist()) == (s_next[i, j].tolist(), o[i, j].tolist())
