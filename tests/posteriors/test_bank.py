"""A bank is exact: its weights, its belief and what is told of it, against brute force over a family."""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from baddr import exact, prng
from baddr.agents.members import refuse_large, with_reach
from baddr.core.agent import Agent
from baddr.core.belief_update import initial_belief
from baddr.core.filters import Importance
from baddr.core.gba_pomdp import GBAPOMDP
from baddr.core.models import EachAlone
from baddr.core.pomdp import Table, Transition
from baddr.domains import tiger
from baddr.domains.finite import from_tables
from baddr.errors import UserError
from baddr.fast.choose import fast_agent, models_of
from baddr.life.run import Outcome, Remembered, learn, step_keys
from baddr.planners.belief_tree import BeliefTree
from baddr.planners.belief_tree.mean_model import mean_model, transition_table
from baddr.planners.po_uct import PoUct
from baddr.posteriors.bank import LOWEST, Bank, bank_of, by_member, draw_bank, member_weights
from baddr.posteriors.exact_filter import ExactFilter, of_members, table_of
from baddr.posteriors.moments import described, observation_moments

S, A, Z, K = 3, 2, 2, 4


def random_tables(seed, n=K):
    """T and O of n members; more than half of the transitions cannot be, others in each member."""
    rng = np.random.default_rng(seed)
    T = rng.dirichlet(np.ones(S), (n, S, A)) * (rng.uniform(size=(n, S, A, S)) < 0.4)
    T[..., 0] += T.sum(-1) == 0
    O = rng.dirichlet(np.ones(Z), (n, A, S))
    return T / T.sum(-1, keepdims=True), O


def family(T, O):
    """The same members as an exact family, equally likely."""
    return exact.Family(np.einsum("ksat,katz->ksatz", T, O), np.full(len(T), 1 / len(T)))


def bank_of_tables(T, O):
    sizes = (T.shape[1],), (O.shape[-1],)
    Ds = [Table(jnp.asarray(t, float), jnp.asarray(o, float), *sizes) for t, o in zip(T, O, strict=True)]
    return bank_of(jax.tree.map(lambda *x: jnp.stack(x), *Ds), len(Ds))


def problem(seed=0):
    T, O = random_tables(seed)
    start = np.array([0.5, 0.3, 0.2])
    pomdp = from_tables(T[0], O[0], np.arange(S * A).reshape(S, A) / 4, start, 0.9, horizon=4).pomdp
    return pomdp, with_reach(bank_of_tables(T, O), pomdp), family(T, O), start


POMDP, BANK, FAMILY, START = problem()
GBA = GBAPOMDP(POMDP, BANK)
EXACT = ExactFilter(S)
update = jax.jit(
    lambda belief, a, o, learn, active: EXACT.update(prng.key(0), GBA, belief, a, o, learn, active)
)


class OfBank(exact.TabularPosterior):
    """A bank as an exact posterior: its predictive is the sum over members, not a draw."""

    def __init__(self, bank: Bank, tables) -> None:
        self.bank, self.tables = bank, tables
        self._update = jax.jit(lambda theta, *x: bank.update(prng.key(0), theta, *x))

    def prior(self):
        return {tuple(np.asarray(self.bank.prior(prng.key(0))).tolist()): 1.0}

    def predictive(self, theta):
        return np.einsum("k,ksatz->satz", np.exp(theta), self.tables)

    def update(self, theta, s, a, s_next, o):
        one = lambda x: jnp.array([x], jnp.int32)
        found = self._update(jnp.asarray(theta), one(s), jnp.int32(a), one(s_next), one(o))
        return tuple(np.asarray(found).tolist())


def test_def_3_holds_exactly():
    """Every full history of two steps: the largest difference of any prediction is one of rounding."""
    histories = exact.full_histories((S, A, Z), 2)
    assert exact.update_criterion_gap(OfBank(BANK, FAMILY.Ds), FAMILY.evidence, histories) < 1e-6


@pytest.mark.parametrize("listens", [1, 4, 16])
def test_the_criterion_gap_on_tiger_is_none(listens):
    """Of 64 simulators drawn from tiger's prior, against Bayes' rule over the same 64 in float64."""
    domain = tiger.make_domain()
    bank = draw_bank(prng.key(1), domain.sample_simulator, 64)
    D = np.asarray(bank.each(lambda D: exact._dynamics_table(D, domain.pomdp)), np.float64)
    reference = exact.Family(D / D.sum((-1, -2), keepdims=True), np.full(64, 1 / 64))
    histories = [(s, ((tiger.LISTEN, s, s),) * listens) for s in (0, 1)]
    assert exact.update_criterion_gap(OfBank(bank, reference.Ds), reference.evidence, histories) < 1e-5


def test_the_exact_filter_is_brute_force():
    """Two episodes of a random POMDP: p(s, k | h) after every step."""
    rng, belief = np.random.default_rng(5), EXACT.initial_belief(prng.key(0), GBA)
    b = exact.initial_mixture(FAMILY, START)
    for episode in range(2):
        for _ in range(4):
            a, o = int(rng.integers(A)), int(rng.integers(Z))
            b, p_o = exact.mixture_update(FAMILY, b, a, o)
            belief, info = update(belief, jnp.int32(a), jnp.array([o]), jnp.array(True), jnp.array(True))
            wanted = np.stack([b.get(k, np.zeros(S)) for k in range(K)], axis=1)
            assert np.allclose(np.exp(table_of(belief)), wanted, atol=1e-5)
            assert np.isclose(info.acceptance_rate, p_o, rtol=1e-4) and not info.impossible
        if episode == 0:
            b = exact.next_episode(b, START)
            belief = EXACT.next_episode(prng.key(0), GBA, belief)
            assert np.allclose(belief.weights, START, atol=1e-6)


def test_it_is_brute_force_on_tiger_too():
    domain = tiger.make_domain()
    bank = with_reach(draw_bank(prng.key(1), domain.sample_simulator, 16), domain.pomdp)
    gba, filter = GBAPOMDP(domain.pomdp, bank), ExactFilter(2)
    listen = jax.jit(lambda belief, o: filter.update(prng.key(0), gba, belief, jnp.int32(2), o))
    accuracy = np.asarray(bank.each(lambda D: D.O)[:, tiger.LISTEN, [0, 1], [0, 1]], np.float64)
    joint, belief = np.full((2, 16), 1 / 32), filter.initial_belief(prng.key(0), gba)
    for heard in (0, 0, 1, 0, 0):
        joint *= np.stack([accuracy[:, s] if heard == s else 1 - accuracy[:, s] for s in (0, 1)])
        belief, _ = listen(belief, jnp.array([heard]))
        assert np.allclose(np.exp(table_of(belief)), joint / joint.sum(), atol=1e-6)
    model = jax.jit(lambda belief: described(domain.describe, bank)(prng.key(0), bank, belief))(belief)
    p = (joint / joint.sum()).sum(0)
    mean = p @ accuracy
    assert np.allclose(model["accuracy_mean"], mean, atol=1e-5)
    assert np.allclose(model["accuracy_std"], np.sqrt(p @ (accuracy - mean) ** 2), atol=1e-4)
    assert np.isclose(model["effective_members"], 1 / np.sum(p**2), rtol=1e-4)
    assert np.isclose(np.sum(model["accuracy_histogram"]), 1, atol=1e-5)


def test_after_the_last_step_of_an_episode_members_keep_the_weights_of_all_states():
    agent = Agent(GBA, EXACT, PoUct(num_simulations=1))
    before, _ = update(
        EXACT.initial_belief(prng.key(0), GBA), jnp.int32(0), jnp.array([1]), jnp.array(True), jnp.array(True)
    )
    a, o = jnp.int32(1), jnp.array([0])
    outcome = Outcome(a, jnp.array([0]), o, jnp.float32(0), jnp.array(False), jnp.array([0]))
    keys = step_keys(prng.key(0), jnp.int32(0), jnp.int32(0))
    for last in (True, False):
        given = keys, outcome, jnp.array(last), jnp.array(True), ()
        (found, _), _ = jax.jit(lambda belief, *given: learn(agent, (belief, Remembered()), *given))(
            before, *given
        )
        wanted, _ = update(before, a, o, jnp.array(True), jnp.array(True))
        wanted = EXACT.next_episode(prng.key(0), GBA, wanted) if last else wanted
        assert np.allclose(np.exp(table_of(found)), np.exp(table_of(wanted)), atol=1e-6)


def test_no_member_is_lost_to_rounding():
    """After 1,000 listens a member of weight e^-118 still has it: it would come back as Bayes' rule says."""
    O = np.zeros((2, 3, 2, 3), np.float32)
    O[:, :2, :, 2] = 1
    O[:, 2, :, :2] = [[[0.9, 0.1], [0.1, 0.9]], [[0.2, 0.8], [0.8, 0.2]]]
    domain = tiger.make_domain()
    bank = with_reach(bank_of_tables(np.asarray(tiger.dynamics().T)[None].repeat(2, 0), O), domain.pomdp)
    gba, filter = GBAPOMDP(domain.pomdp, bank), ExactFilter(2)
    listen = jax.jit(lambda b, o: filter.update(prng.key(0), gba, b, jnp.int32(2), o)[0])
    belief = filter.initial_belief(prng.key(0), gba)
    log_p = np.log(np.full((2, 2), 0.25))
    for _ in range(1000):
        belief = listen(belief, jnp.array([0]))
        log_p = log_p + np.log(np.stack([O[:, 2, s, 0] for s in (0, 1)]).astype(np.float64))
    wanted = np.logaddexp.reduce(log_p, axis=0)
    wanted -= np.logaddexp.reduce(wanted)
    assert np.min(wanted) < -100 and np.allclose(of_members(table_of(belief)), wanted, rtol=1e-3, atol=1e-3)


def test_where_nothing_is_learned_members_keep_their_weights():
    start = EXACT.initial_belief(prng.key(0), GBA)
    yes, no = jnp.array(True), jnp.array(False)
    given = jnp.int32(0), jnp.array([1])
    before, _ = update(start, *given, yes, yes)
    learned, _ = update(before, *given, yes, yes)
    kept, _ = update(before, *given, no, yes)
    assert np.allclose(kept.weights, learned.weights, atol=1e-6)
    assert np.allclose(member_weights(kept), member_weights(before), atol=1e-6)
    assert not np.allclose(member_weights(learned), member_weights(before), atol=1e-3)
    same, _ = update(before, *given, yes, no)
    assert all(map(np.array_equal, jax.tree.leaves(same), jax.tree.leaves(before)))


def test_an_impossible_observation_is_a_prediction_and_teaches_nothing():
    domain = tiger.make_domain()
    bank = with_reach(draw_bank(prng.key(1), domain.sample_simulator, 8), domain.pomdp)
    gba, filter = GBAPOMDP(domain.pomdp, bank), ExactFilter(2)
    listen = jax.jit(lambda belief, o: filter.update(prng.key(0), gba, belief, jnp.int32(2), o))
    before, _ = listen(filter.initial_belief(prng.key(0), gba), jnp.array([0]))
    after, info = listen(before, jnp.array([tiger.NULL]))
    assert info.impossible and np.allclose(after.weights, before.weights, atol=1e-6)
    assert np.allclose(member_weights(after), member_weights(before), atol=1e-6)
    theta = bank.prior(prng.key(0))
    s = jnp.array([0])
    assert np.array_equal(bank.update(prng.key(0), theta, s, jnp.int32(2), s, jnp.array([2])), theta)


def test_a_member_that_cannot_be_stays_finite_and_is_never_drawn():
    theta = BANK.prior(prng.key(0))
    impossible = np.argwhere(np.asarray(FAMILY.Ds[0]) == 0)
    s, a, s_next, o = next(tuple(x) for x in impossible if np.any(FAMILY.Ds[:, *x] > 0))
    one = lambda x: jnp.array([x], jnp.int32)
    learn = jax.jit(lambda theta: BANK.update(prng.key(0), theta, one(s), jnp.int32(a), one(s_next), one(o)))
    for _ in range(3):
        theta = learn(theta)
    assert theta[0] == LOWEST and np.all(np.isfinite(theta)) and np.isclose(np.exp(theta).sum(), 1, atol=1e-5)
    drawn = jax.vmap(lambda key: BANK.draw(key, theta))(jr.split(prng.key(0), 200))
    assert 0 not in np.asarray(drawn)


def test_importance_sampling_with_a_bank_converges_to_the_exact_belief():
    """p(k | h) of 4096 particles, over 16 seeds: within 4 standard errors."""
    history = [(0, 1), (1, 0), (0, 0)]
    b = exact.initial_mixture(FAMILY, START)
    for a, o in history:
        b, _ = exact.mixture_update(FAMILY, b, a, o)
    filter = Importance(4096, resample_below=2048.0)

    @jax.jit
    @jax.vmap
    def one(key):
        step = lambda belief, x: (filter.update(x[0], GBA, belief, x[1], x[2])[0], None)
        given = jr.split(key, 3), jnp.array([a for a, _ in history]), jnp.array([[o] for _, o in history])
        return member_weights(jax.lax.scan(step, initial_belief(key, GBA, 4096), given)[0])

    found = np.asarray(one(jr.split(prng.key(3), 16)), np.float64)
    wanted = np.array([b[k].sum() for k in range(K)])
    assert np.all(np.abs(found.mean(0) - wanted) < 4 * found.std(0, ddof=1) / 4 + 1e-5)


def test_fast_draws_are_the_plain_ones():
    rng = np.random.default_rng(0)
    for members in (1, 100):
        bank = bank_of_tables(*random_tables(1, members))
        weights = rng.dirichlet(np.full(members, 0.3), 5)
        thetas = jnp.maximum(jnp.log(jnp.asarray(weights, float)), LOWEST)
        keys, i = jr.split(prng.key(2), 300), jnp.asarray(rng.integers(5, size=300), jnp.int32)
        fast, plain = (eqx.filter_jit(m.draw)(keys, thetas, i) for m in (models_of(bank), EachAlone(bank)))
        assert np.array_equal(fast, plain)


def test_what_members_have_in_common_is_kept_once():
    domain = tiger.make_domain()
    bank = draw_bank(prng.key(0), domain.sample_simulator, 32)
    assert bank.members.T.shape == (2, 3, 2) and bank.members.O.shape == (32, 3, 2, 3)
    D = bank.member(jnp.int32(5))
    assert np.array_equal(D.T, tiger.dynamics().T) and np.array_equal(D.O, bank.members.O[5])


def test_reach_is_what_any_member_can_do():
    """Its tables are the members' own; a row is missing where no member goes, and its mean is theirs."""
    reach = BANK.reach
    T = np.zeros((A, S, S, K))
    for a in range(A):
        for s_next in range(S):
            for x in np.asarray(reach.into[a, s_next]):
                T[a, int(reach.s[x]), s_next] += np.asarray(reach.p[x])
    wanted = np.moveaxis(np.asarray(BANK.each(lambda D: transition_table(POMDP, D)), np.float64), 0, -1)
    assert np.allclose(T, wanted, atol=1e-6)
    assert len(reach.place) == np.sum(np.any(wanted > 0, axis=-1)) < A * S * S
    belief, _ = update(
        EXACT.initial_belief(prng.key(0), GBA), jnp.int32(0), jnp.array([1]), jnp.array(True), jnp.array(True)
    )
    w = np.asarray(member_weights(belief), np.float64)
    assert np.allclose(mean_model(prng.key(0), GBA, belief).T, wanted @ w, atol=1e-5)


def test_what_is_told_of_a_bank_is_of_all_its_members():
    belief = initial_belief(prng.key(0), GBA, 8)
    s, o, a = jnp.array([1]), jnp.array([0]), jnp.int32(1)
    x = Transition(s, a, s, o)
    mean, variance = observation_moments(BANK, belief.states.theta[0], x, None)
    p = np.asarray(BANK.each(lambda D: jnp.exp(D.observation_log_prob(*x))))
    assert np.isclose(mean, p.mean(), atol=1e-6) and np.isclose(variance, p.var(), atol=1e-6)
    member, members = by_member(BANK, belief)
    assert members.num_particles == K and np.allclose(members.weights, 1 / K, atol=1e-6)
    D = member.dynamics(jnp.int32(2), ())
    assert np.array_equal(D.T, BANK.member(jnp.int32(2)).T)


@pytest.mark.slow
def test_the_belief_tree_of_a_bank_encloses_the_optimum():
    """Three members of tiger, three steps: Bayes-adaptive dynamic programming, which the tree ends at."""
    domain = tiger.make_domain(horizon=3)
    Ds = [tiger.dynamics(accuracy) for accuracy in (0.6, 0.85, 0.97)]
    members = jax.tree.map(lambda *x: jnp.stack(x), *Ds)
    bank = with_reach(bank_of(members, 3), domain.pomdp)
    table = exact.tabulate(domain.pomdp, np.full(2, 0.5))
    each = [exact.tabulate(domain.pomdp.with_dynamics(D), np.full(2, 0.5)).D for D in Ds]
    posterior = exact.Family(np.stack(each), np.full(3, 1 / 3))
    planner = BeliefTree(num_expansions=64, num_particles=16, precision=0.0, stop_when_certain=False)
    agent = fast_agent(Agent(GBAPOMDP(domain.pomdp, bank), ExactFilter(2), planner.build(domain)))
    assert agent.planner.stream == "beliefs by members"
    belief = agent.initial_belief(prng.key(0))
    b = exact.initial_mixture(posterior, np.full(2, 0.5))
    for heard in (None, 0):
        if heard is not None:
            belief, _ = agent.update(prng.key(0), belief, jnp.int32(2), jnp.array([heard]))
            b, _ = exact.mixture_update(posterior, b, 2, heard)
        runs = jax.tree.map(lambda x: x[None], belief)
        plan = eqx.filter_jit(agent.plan)(prng.key(0)[None], runs, jnp.array([3]))
        wanted = exact.optimal_Q(table, posterior)(b, 3)
        assert np.allclose(plan.Q[0], wanted, atol=1e-3) and np.allclose(plan.upper[0], wanted, atol=1e-3)


def test_the_exact_filter_refuses_what_is_no_bank_and_what_does_not_fit():
    with pytest.raises(UserError, match="--agent bank"):
        EXACT.refuse(BANK.member(jnp.int32(0)))
    with pytest.raises(UserError, match=r"1,000,000 numbers: choose fewer --bank.members"):
        refuse_large(POMDP, 400_000)
