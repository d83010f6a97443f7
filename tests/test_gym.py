"""Gymnasium both ways: environments that pass its own checks, and agents that live the life of a run."""

import json
import subprocess
import sys
import warnings
from dataclasses import replace
from pathlib import Path

import gymnasium
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

from baddr import gym, prng
from baddr.bench.folder import Suite
from baddr.bench.outside import add, outside
from baddr.core.agent import Agent
from baddr.core.filters import Importance
from baddr.core.gba_pomdp import GBAPOMDP
from baddr.domains import tiger
from baddr.errors import UserError
from baddr.fast.runs import advance, start
from baddr.gym import Environment, Player, VectorEnvironment, player
from baddr.lab.catalog import DOMAINS
from baddr.life.record import state_marginals
from baddr.planners.po_uct import PoUct
from baddr.planners.uniform import Uniform
from baddr.posteriors import Dirichlet

DOMAIN = tiger.make_domain(horizon=4)  # short, so that plans depend on the steps left
OPEN_LEFT, LISTEN, NULL = 0, 2, 2
ORACLES = json.loads((Path(__file__).parent / "data" / "tiger_exact_beliefs.json").read_text())["histories"]
ACTIONS = {"openL": 0, "openR": 1, "listen": 2}
HEARD = {"hearL": 0, "hearR": 1, "null": 2}
TIGER_FILE = str(Path(__file__).parent.parent / "examples" / "tiger.pomdp")
PPO = str(Path(__file__).parent.parent / "examples" / "ppo.py")


def ba_pomcp(num_simulations=32, num_particles=64, **filter_settings):
    posterior = Dirichlet(DOMAIN.counts, DOMAIN.pomdp.state_sizes, DOMAIN.pomdp.observation_sizes)
    filter = Importance(num_particles=num_particles, **filter_settings)
    return Agent(GBAPOMDP(DOMAIN.pomdp, posterior), filter, PoUct(num_simulations=num_simulations))


# --- environments ------------------------------------------------------------------------------------


def test_every_domain_is_registered():
    for name in DOMAINS:
        assert gym.environment_id(name) in gymnasium.registry
    assert gym.environment_id("road-racing") == "baddr/RoadRacing-v0"
    assert "baddr/Tiger-v0" in gymnasium.registry and "baddr/Cassandra-v0" in gymnasium.registry


def check(identity, **settings):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check_env(gymnasium.make(identity, **settings).unwrapped)


def test_tiger_passes_gymnasiums_checks():
    check("baddr.gym:baddr/Tiger-v0")


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in DOMAINS if name not in ("tiger", "cassandra")])
def test_every_domain_passes_gymnasiums_checks(name):
    check(gym.environment_id(name))


def test_a_module_name_in_the_id_is_enough():
    code = "import gymnasium; print(gymnasium.make('baddr.gym:baddr/Tiger-v0', horizon=3).reset(seed=0)[0])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout.strip() == str(NULL), done.stderr


def test_spaces_and_a_reset():
    env = gymnasium.make("baddr/Tiger-v0", accuracy=1)
    assert env.action_space.n == 3 and env.observation_space.n == 3
    observation, info = env.reset(seed=0)
    assert observation == NULL and observation.dtype == np.int64 and info["discount"] == 0.95
    heard, reward, *_, info = env.step(LISTEN)
    assert [heard] == info["state"].tolist() and reward == -1
    several = Environment(DOMAINS["collision-avoidance"].make_domain(DOMAINS["collision-avoidance"].settings))
    assert several.observation_space.nvec.tolist() == list(several.pomdp.observation_sizes)


def test_tiger_hears_as_it_should():
    """Two listens in each of 1,000 episodes: p(left) = .5, p(right answer) = .85, of both .7225, as they are
    independent; 5 standard errors."""
    env, n, seen = Environment(DOMAIN), 1000, []
    for i in range(n):
        _, info = env.reset(seed=7 if i == 0 else None)
        heard = [int(env.step(LISTEN)[0]) for _ in range(2)]
        state = int(info["state"][0])
        seen.append((state == 0, heard[0] == state, heard[1] == state, heard == [state, state]))
    p = np.array([0.5, 0.85, 0.85, 0.7225])
    assert np.all(np.abs(np.mean(seen, 0) - p) < 5 * np.sqrt(p * (1 - p) / n))


def life(env, seed, episodes=6):
    seen = []
    for i in range(episodes):
        observation, info = env.reset(seed=seed if i == 0 else None)
        seen += [observation, *info["state"]]
        for action in (LISTEN, LISTEN, LISTEN, i % 2):
            observation, reward, terminated, truncated, info = env.step(action)
            seen += [observation, *info["state"], reward, terminated, truncated]
    return seen


def test_seeds_are_reproducible():
    first, second = Environment(DOMAIN), Environment(DOMAIN.pomdp)
    assert life(first, 3) == life(second, 3) == life(first, 3) != life(first, 4)


def test_terminated_is_the_pomdps_and_truncated_the_horizons():
    env = gymnasium.make("baddr/Tiger-v0", horizon=2)
    env.reset(seed=0)
    assert env.step(LISTEN)[2:4] == (False, False)
    assert env.step(LISTEN)[2:4] == (False, True)
    env.reset()
    state = env.reset()[1]["state"]
    env.step(LISTEN)
    _, reward, terminated, truncated, _ = env.step(OPEN_LEFT)
    assert (terminated, truncated) == (True, False) and reward == (10 if state[0] == 0 else -100)
    with pytest.raises(gymnasium.error.ResetNeeded, match=r"call reset\(\) first"):
        env.unwrapped.step(LISTEN)
    with pytest.raises(gymnasium.error.ResetNeeded):
        Environment(DOMAIN).step(LISTEN)


def test_a_file_is_an_environment_that_only_the_horizon_ends():
    env = gymnasium.make("baddr/Cassandra-v0", path=TIGER_FILE, horizon=3, render_mode="ansi")
    env.reset(seed=0)
    assert env.render().startswith("step 0: sees hear-left; the state is tiger-")
    ends = [env.step(action)[2:4] for action in (0, 1, 2)]
    assert ends == [(False, False), (False, False), (False, True)]
    assert env.render().startswith("step 3: action open-right, reward ")


def test_rendering_without_names_tells_numbers():
    env = Environment(DOMAIN, render_mode="ansi")
    env.reset(seed=0)
    env.step(LISTEN)
    assert env.render().startswith("step 1: action 2, reward -1, sees ")
    assert Environment(DOMAIN).render() is None


@pytest.mark.parametrize("action", [3, -1, 1.5, "listen", None, [0, 1]])
def test_wrong_actions_get_a_sentence(action):
    env = Environment(DOMAIN)
    env.reset(seed=0)
    with pytest.raises(UserError, match="is not one of 0 to 2"):
        env.step(action)


@pytest.mark.parametrize(
    "settings, sentence",
    [
        ({"accurracy": 0.9}, "baddr/Tiger-v0: there is no setting 'accurracy'; known: accuracy,"),
        ({"accuracy": 2.0}, r"^accuracy must lie in \[0, 1\]\.$"),
        ({"horizon": "long"}, "horizon must be of type int, not 'long'"),
    ],
)
def test_wrong_settings_get_a_sentence(settings, sentence):
    with pytest.raises(UserError, match=sentence):
        gymnasium.make("baddr/Tiger-v0", **settings)


def test_a_wrong_render_mode_gets_a_sentence():
    with pytest.raises(UserError, match="render_mode must be 'ansi', 'rgb_array' or None, not 'human'"):
        Environment(DOMAIN, render_mode="human")


def test_pictures_are_arrays_of_bytes():
    """By the domain's own renderer, or as a table; another step is another picture."""
    for env in (
        gymnasium.make("baddr/Tiger-v0", render_mode="rgb_array"),
        Environment(DOMAIN.pomdp, "rgb_array"),
    ):
        env.reset(seed=0)
        first = env.render()
        env.step(LISTEN)
        after = env.render()
        assert first.shape == after.shape and first.shape[2] == 3 and first.dtype == np.uint8
        assert not np.array_equal(first, after)


# --- many copies -------------------------------------------------------------------------------------


def copies(num_envs, **settings):
    return gymnasium.make_vec(
        "baddr/Tiger-v0", num_envs=num_envs, vectorization_mode="vector_entry_point", **settings
    )


def test_copies_live_the_first_episodes_of_single_environments():
    """Copy i has seed + i, or its own; after an end the next step starts the next episode."""
    for seed, seeds in ((5, [5, 6, 7]), ([9, 1, 4], [9, 1, 4])):
        envs, life = copies(3, horizon=4), []
        life.append(envs.reset(seed=seed)[0])
        for action in (LISTEN, LISTEN, OPEN_LEFT):
            life.append(envs.step(np.full(3, action)))
        for i, one in enumerate(seeds):
            env = gymnasium.make("baddr/Tiger-v0", horizon=4)
            assert env.reset(seed=one)[0] == life[0][i]
            for action, seen in zip((LISTEN, LISTEN, OPEN_LEFT), life[1:], strict=True):
                assert env.step(action)[:4] == tuple(x[i] for x in seen[:4])
        assert life[-1][2].all()
        observation, reward, terminated, truncated, _ = envs.step(np.full(3, OPEN_LEFT))
        assert observation.tolist() == [NULL] * 3 and not reward.any()
        assert not terminated.any() and not truncated.any()


def test_copies_hear_as_they_should():
    """p(right answer) = .85 in later episodes, whose states are .5 each; 5 standard errors."""
    n, envs = 2000, copies(2000, horizon=1)
    envs.reset(seed=0)
    for _ in range(3):
        envs.step(np.full(n, LISTEN))
    heard, _, _, truncated, _ = envs.step(np.full(n, LISTEN))
    s = np.asarray(envs.unwrapped.copies.s)[:, 0]
    assert not truncated.any()  # it was the start of the third
    heard, _, _, truncated, _ = envs.step(np.full(n, LISTEN))
    assert truncated.all()
    for found, p in ((np.mean(heard == s), 0.85), (np.mean(s), 0.5)):
        assert abs(found - p) < 5 * np.sqrt(p * (1 - p) / n)
    again, _ = envs.reset()
    assert again.tolist() == [NULL] * n


def test_copies_out_of_order_get_a_sentence():
    with pytest.raises(UserError, match="num_envs must be at least 1, not 0"):
        VectorEnvironment(DOMAIN, 0)
    envs = VectorEnvironment(DOMAIN, 2)
    with pytest.raises(UserError, match=r"call reset\(\) first"):
        envs.step([0, 0])
    with pytest.raises(UserError, match="2 environments and 3 seeds"):
        envs.reset(seed=[1, 2, 3])
    envs.reset(seed=1)
    for actions in ([0], [0, 3], [0.5, 1.0]):
        with pytest.raises(UserError, match="There must be 2 actions, each one of 0 to 2"):
            envs.step(actions)


@pytest.mark.parametrize("agent", ["ppo", "recurrent-ppo"])
def test_stable_baselines_has_rows_of_the_suite(agent, tmp_path):
    """examples/ppo.py, at a tiny size: it learns by the id, and the suite takes what it writes."""
    for package in ("stable_baselines3", "sb3_contrib"):
        pytest.importorskip(package)
    path, suite = tmp_path / "ppo.parquet", Suite(tmp_path)
    suite.request.write_text('domains = ["tiger", "t-maze"]')
    options = ["--agent", agent, "--runs", "2", "--episodes", "3", "--out", str(path)]
    subprocess.run([sys.executable, PPO, "tiger", "t-maze", *options], check=True)
    assert add(suite, path, agent, ()) == ["t-maze", "tiger"]
    returns = outside(suite)[agent]["tiger"][0]["discounted_return"]
    assert returns.shape == (6,) and np.all(np.abs(returns) <= 100 * 20) and len(np.unique(returns)) > 1


def test_without_gymnasium_the_extra_is_named():
    code = "import sys; sys.modules['gymnasium'] = None; import baddr.gym"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 1 and "pip install 'baddr[gymnasium]'" in done.stderr


# --- players -----------------------------------------------------------------------------------------


def test_a_player_lives_the_life_of_a_run():
    """Given the observations of run 0 of `baddr run`, a player takes its actions and comes to its belief."""
    agent, episodes = ba_pomcp(), 12
    key = jr.fold_in(prng.key(11), 0)
    run, steps = advance(start(key[None], agent, DOMAIN.pomdp), agent, DOMAIN.pomdp, jnp.int32(episodes), 100)
    one, lived = Player(agent, seed=11), 0
    for i in np.flatnonzero(np.asarray(steps.active[:, 0])):
        if steps.t[i, 0] == 0:
            one.reset()
        assert one.act() == int(steps.a[i, 0])
        ended = bool(steps.ended[i, 0])
        terminal = ended and int(steps.a[i, 0]) != LISTEN
        one.observe(np.asarray(steps.o[i, 0]), terminal, ended and not terminal)
        lived += ended
    one.reset()
    assert lived == episodes
    np.testing.assert_allclose(one.belief.log_weights, run.belief.log_weights[0], rtol=1e-5)
    assert np.array_equal(one.belief.states.s, run.belief.states.s[0])
    np.testing.assert_allclose(one.belief.states.theta.O, run.belief.states.theta.O[0], rtol=1e-6)


@pytest.mark.parametrize("history", ["h06_LLLRL", "h10_2ep_LLL_open_LLL", "h11_3ep_LLL_open_RR_open_L"])
def test_a_players_belief_is_the_exact_one(history):
    """After every step within 5 standard errors, at 20,000 particles; opening ends an episode. Each
    resampling adds its own noise: after t steps the variance is at most (t + 1) / n times that of a draw."""
    n = 20_000
    one = Player(ba_pomcp(num_particles=n, resample_below=n / 8), seed=5)
    one.reset()
    for t, (action, heard) in enumerate(ORACLES[history]["history"], start=1):
        one.observe(np.array([HEARD[heard]]), action != "listen", action=ACTIONS[action])
        assert not one.info.impossible
        if action != "listen":
            one.reset()
        exact = ORACLES[history]["steps"][t]
        size = min(float(one.belief.effective_sample_size()), n) / (t + 1)
        p_left = float(state_marginals(one.belief, (2,))[0][0])
        assert abs(p_left - exact["p_state_L"]) < 5 * np.sqrt(0.25 / size)
        described = tiger.describe(prng.key(0), one.agent.gba.posterior, one.belief)
        for side in (0, 1):
            standard_error = np.sqrt(exact[f"var_acc_{'LR'[side]}"] / size)
            mean = float(described["accuracy_mean"][side])
            assert abs(mean - exact[f"mean_acc_{'LR'[side]}"]) < 5 * standard_error


def play(one, env, episodes, seed=0):
    """Any loop of Gymnasium's kind."""
    returns = []
    for episode in range(episodes):
        env.reset(seed=seed if episode == 0 else None)
        one.reset()
        terminated = truncated = False
        returns.append(0.0)
        while not (terminated or truncated):
            observation, reward, terminated, truncated, _ = env.step(one.act())
            one.observe(observation, terminated, truncated)
            returns[-1] += float(reward)
    return returns


def test_nothing_is_compiled_twice():
    agent, traces = replace(ba_pomcp(num_particles=16), planner=Uniform()), []
    plan, update = Agent.plan, Agent.update

    def counted(name, method):
        def wrapper(self, *arguments):
            traces.append(name)
            return method(self, *arguments)

        return wrapper

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Agent, "plan", counted("plan", plan))
        patch.setattr(Agent, "update", counted("update", update))
        first = play(Player(agent, seed=1), gymnasium.make("baddr/Tiger-v0"), 5)
        again = play(Player(agent, seed=1), gymnasium.make("baddr/Tiger-v0"), 5)
        play(Player(agent, seed=2), gymnasium.make("baddr/Tiger-v0"), 3)
    assert sorted(traces) == ["plan", "update"]
    assert first == again and len(first) == 5


def test_learning_stays_between_episodes():
    """Every listen adds one to the counts of each particle, in whichever episode."""
    one = Player(ba_pomcp(), seed=0)
    prior = float(one.belief.states.theta.O[0, LISTEN].sum())
    for _ in range(3):
        one.reset()
        one.observe([0], action=LISTEN)
        one.observe(1, truncated=True, action=LISTEN)
    assert one.episode == 2
    np.testing.assert_allclose(one.belief.states.theta.O[:, LISTEN].sum((1, 2)), prior + 6)


def test_the_step_that_ends_an_episode_is_learned_from_only_if_the_filter_says_so():
    one = Player(ba_pomcp(learn_terminal=False), seed=0)
    before = float(one.belief.states.theta.O.sum())
    one.observe([0], action=LISTEN)
    one.observe([1], terminated=True, action=LISTEN)
    np.testing.assert_allclose(one.belief.states.theta.O.sum(), before + one.belief.num_particles, rtol=1e-6)


def test_an_action_is_planned_once_for_an_observation():
    one = Player(ba_pomcp(), seed=3)
    one.reset()
    one.reset()  # a reset before the first step is no new episode
    assert one.act() == one.act() and one.episode == 0


def test_an_environment_may_outlive_the_agents_horizon():
    one = Player(ba_pomcp(), seed=0)
    for _ in range(DOMAIN.pomdp.horizon + 1):
        one.observe([0], action=LISTEN)
    assert one.act() in (0, 1, 2)


@pytest.mark.parametrize(
    "observation, sentence",
    [
        ([0, 1], r"must be 1 integer\(s\), one for each feature"),
        ([[0]], r"must be 1 integer\(s\), one for each feature"),
        ([], r"must be 1 integer\(s\), one for each feature"),
        ([0.5], r"must be 1 integer\(s\), one for each feature"),
        ("left", r"must be 1 integer\(s\), one for each feature"),
        (None, r"must be 1 integer\(s\), one for each feature"),
        ([3], r"^Observation feature 0 is 3, not one of 0 to 2\.$"),
        ([-1], r"^Observation feature 0 is -1, not one of 0 to 2\.$"),
    ],
)
def test_wrong_observations_get_a_sentence(observation, sentence):
    one = Player(ba_pomcp(), seed=0)
    with pytest.raises(UserError, match=sentence):
        one.observe(observation, action=LISTEN)
    assert one.t == 0


def test_a_loop_out_of_order_gets_a_sentence():
    one = Player(ba_pomcp(), seed=0)
    with pytest.raises(UserError, match=r"call act\(\) first, or pass the action"):
        one.observe([0])
    with pytest.raises(UserError, match="Action 5 is not one of 0 to 2"):
        one.observe([0], action=5)
    one.observe([NULL], terminated=True, action=OPEN_LEFT)
    for call in (one.act, lambda: one.observe([0], action=LISTEN)):
        with pytest.raises(UserError, match=r"call reset\(\) to start the next"):
            call()
    one.reset()
    one.observe([0], action=LISTEN)


def test_a_player_by_name():
    """The settings of `baddr run`, in groups as in a config file."""
    one = player(
        "tiger",
        "pomcp",
        seed=4,
        planner={"num_simulations": 32},
        filter={"num_particles": 64},
        domain={"accuracy": 1.0},
    )
    assert one.agent.planner.how.num_simulations == 32 and one.belief.num_particles == 64
    returns = play(one, gymnasium.make("baddr/Tiger-v0", accuracy=1.0), 4)
    assert len(returns) == 4
    for settings in ({"planer": {}}, {"planner": {"num_simulations": 0}}, {"agent": "pomcpp"}):
        with pytest.raises(UserError):
            player("tiger", **{"agent": "pomcp", **settings})
