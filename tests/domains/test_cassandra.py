"""Cassandra's format: every form against tables written by hand, every mistake with its line, and back."""

import re
import subprocess
import sys
import warnings
from dataclasses import replace
from pathlib import Path

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from baddr import prng
from baddr.core.agent import Agent
from baddr.core.filters import Importance
from baddr.core.gba_pomdp import GBAPOMDP
from baddr.domains.cassandra import format as cassandra
from baddr.domains.cassandra import make_domain
from baddr.domains.cassandra.format import Model, parse, read, read_header, to_text, write
from baddr.domains.cassandra.settings import CassandraSettings
from baddr.domains.finite import dirichlet
from baddr.errors import UserError
from baddr.exact import (
    DirichletTables,
    expectimax,
    initial_mixture,
    mixture_update,
    state_probabilities,
    tabulate,
)
from baddr.fast.runs import advance, start
from baddr.life.record import state_marginals
from baddr.planners.po_uct import PoUct
from baddr.planners.uniform import Uniform
from baddr.posteriors import Dirichlet, Known

EXAMPLES = Path(__file__).parent.parent.parent / "examples"

TIGER = """
discount: 0.95
values: reward
states: tiger-left tiger-right
actions: listen open-left open-right
observations: hear-left hear-right
T: listen
identity
T: open-left
uniform
T: open-right
uniform
O: listen
0.85 0.15
0.15 0.85
O: open-left
uniform
O: open-right
uniform
R:listen : * : * : * -1
R:open-left : tiger-left : * : * -100
R:open-left : tiger-right : * : * 10
R:open-right : tiger-left : * : * 10
R:open-right : tiger-right : * : * -100
"""

HEAD = "discount: 1 values: reward states: x y z actions: a b observations: o p\n"
ALL = "T: * uniform O: * uniform\n"  # so that no row is missing


def same(model, other):
    tables = all(np.array_equal(getattr(model, k), getattr(other, k)) for k in ("T", "O", "R", "start"))
    names = ("states", "actions", "observations", "discount")
    return tables and all(getattr(model, k) == getattr(other, k) for k in names)


# --- tiger -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("model", [parse(TIGER), read(EXAMPLES / "tiger.pomdp")])
def test_tiger_tables(model):
    half = [[0.5, 0.5], [0.5, 0.5]]
    assert np.array_equal(model.T, [[[1, 0], [0, 1]], half, half])
    assert np.array_equal(model.O, [[[0.85, 0.15], [0.15, 0.85]], half, half])
    assert np.array_equal(model.R, [[[-1, -1]] * 2, [[-100] * 2, [10] * 2], [[10] * 2, [-100] * 2]])
    assert np.array_equal(model.start, [0.5, 0.5])
    assert model.actions == ("listen", "open-left", "open-right") and model.discount == 0.95


def tiger_values(steps, lattice):
    """Optimal values of tiger for 0 ... `steps` steps left, at p(left) = .85^d / (.85^d + .15^d) for
    d = -lattice ... lattice: the belief depends on how often left was heard more often than right alone.
    Written from the problem's numbers; nobody listens for longer at the edge."""
    d = np.arange(-lattice, lattice + 1)
    left = 1 / (1 + (0.15 / 0.85) ** d.astype(float))
    hear_left = 0.85 * left + 0.15 * (1 - left)
    open_now = np.maximum(-100 * left + 10 * (1 - left), 10 * left - 100 * (1 - left))
    V, values = np.zeros(len(d)), [0.0]
    for _ in range(steps):
        up, down = np.append(V[1:], V[-1]), np.append(V[0], V[:-1])
        listen = -1 + 0.95 * (hear_left * up + (1 - hear_left) * down)
        V = np.maximum(listen, open_now + 0.95 * V[lattice])
        values.append(float(V[lattice]))
    return values


def test_tiger_is_worth_what_it_is_known_to_be():
    """19.37 for tiger.95 (Cassandra's own solution of the file, and of everyone after him)."""
    assert tiger_values(600, 12)[-1] == pytest.approx(19.3714, abs=1e-3)


def test_planning_on_the_file_gives_the_values_of_the_enumeration():
    domain = make_domain(str(EXAMPLES / "tiger.pomdp"), horizon=6)
    tables = tabulate(domain.pomdp, np.array([0.5, 0.5]))
    assert not tables.terminal.any()
    values = tiger_values(6, 12)
    for steps in range(1, 7):
        assert expectimax(tables, steps)[0] == pytest.approx(values[steps], abs=1e-5)


# --- the grammar -------------------------------------------------------------------------------------


def test_elements_rows_and_matrices_of_t_and_wildcards_with_later_lines_over_earlier_ones():
    model = parse(
        HEAD
        + """
        T: * uniform
        T: a : x   0.2 .3 5e-1      # a row
        T: b : y : z 1              # an element; the two below make the row whole
        T: b : y : x 0.0
        T: b : 1 : 1 +0
        T: 1 : * : x .25
        T: b : * : y .25   T: b : * : z .5
        T: b : z 0 0 1
        O: *
        .5 .5 .5
        .5 .5 .5
        O: a : z uniform O: b : * : o 1.
        O: b : * : p 0
        O: * : 0  .1 .9
        """
    )
    third = [1 / 3] * 3
    assert np.array_equal(model.T[0], [[0.2, 0.3, 0.5], third, third])
    assert np.array_equal(model.T[1], [[0.25, 0.25, 0.5], [0.25, 0.25, 0.5], [0, 0, 1]])
    assert np.array_equal(model.O[0], [[0.1, 0.9], [0.5, 0.5], [0.5, 0.5]])
    assert np.array_equal(model.O[1], [[0.1, 0.9], [1, 0], [1, 0]])


def test_identity_reset_and_whole_matrices():
    model = parse(
        HEAD
        + """start: .2 .3 .5
        T: a identity  T: a : y reset
        T: b
        0 1 0
        1 0 0   0 0 1
        O: * uniform
        O: a
        1 0 0 1 .25 .75
        """
    )
    assert np.array_equal(model.T[0], [[1, 0, 0], [0.2, 0.3, 0.5], [0, 0, 1]])
    assert np.array_equal(model.T[1], [[0, 1, 0], [1, 0, 0], [0, 0, 1]])
    assert np.array_equal(model.O[0], [[1, 0], [0, 1], [0.25, 0.75]])


def test_rewards_of_every_form_and_later_lines_over_earlier_ones():
    """Rows are (x, y, z) by next state; entries that do not depend on o are not averaged."""
    model = parse(
        HEAD
        + ALL
        + """R: * : * : * : * 1
        R: a : x : * : * -2.5
        R: a : x : z : * + 7
        R: b : y : z   4 4          # a row over observations
        R: b : z                    # a matrix of next states and observations
        1 1  2 2  3 3
        """
    )
    assert np.array_equal(model.R[0], [[-2.5, -2.5, 7], [1, 1, 1], [1, 1, 1]])
    assert np.array_equal(model.R[1], [[1, 1, 1], [1, 1, 4], [1, 2, 3]])


def test_rewards_that_depend_on_the_observation_are_averaged_with_a_note():
    text = (
        HEAD
        + "T: * uniform O: a uniform O: b : x .1 .9 O: b : y .6 .4 O: b : z 0 1"
        + " R: b : x : * : o 10  R: b : x : y : p 5  R: b : y : z 7 -3  R: b : z 1 2 3 4 5 5"
    )
    with pytest.warns(UserWarning, match=r"<text>: rewards depend on the observation; .* average"):
        model = parse(text)
    assert np.array_equal(model.R[0], np.zeros((3, 3)))
    by_hand = [[0.1 * 10, 0.6 * 10 + 0.4 * 5, 0], [0, 0, -3], [0.1 * 1 + 0.9 * 2, 0.6 * 3 + 0.4 * 4, 5]]
    np.testing.assert_allclose(model.R[1], by_hand, rtol=1e-15)


def test_costs_are_negative_rewards():
    model = parse(HEAD.replace("reward", "cost") + ALL + "R: a : * : * : * 2 R: b : * : * : * -1")
    assert np.array_equal(model.R[0], np.full((3, 3), -2.0)) and np.array_equal(model.R[1], np.ones((3, 3)))


@pytest.mark.parametrize(
    "text, expected",
    [
        ("", [1 / 3, 1 / 3, 1 / 3]),
        ("start: uniform", [1 / 3, 1 / 3, 1 / 3]),
        ("start: 0.5 0 .5", [0.5, 0, 0.5]),
        ("start:\n0 1\n0", [0, 1, 0]),
        ("start: y", [0, 1, 0]),
        ("start: 2", [0, 0, 1]),
        ("start: 1", [0, 1, 0]),
        ("start include: x z", [0.5, 0, 0.5]),
        ("start include : 1", [0, 1, 0]),
        ("start include: *", [1 / 3, 1 / 3, 1 / 3]),
        ("start exclude: x", [0, 0.5, 0.5]),
        ("start exclude: 0 z", [0, 1, 0]),
    ],
)
def test_start(text, expected):
    for preamble in (HEAD + text, text + " " + HEAD):
        np.testing.assert_allclose(parse(f"{preamble}\n{ALL}").start, expected, rtol=1e-15)


def test_a_single_state_starts_with_probability_one():
    rest = "values: reward states: 1 actions: 1 observations: 1 discount: 0"
    for text in ("", "start: 1", "start: 1.0", "start: 0", "start: uniform", "start include: 0"):
        model = parse(f"{rest}\n{text}\n{ALL}")
        assert model.start.tolist() == [1.0] and model.states == ("0",)


def test_the_preamble_comes_in_any_order_and_comments_and_line_breaks_mean_nothing():
    text = "observations:2#:\nactions\n:\n2 states: x\n y#z\n z values:reward discount:.5\n" + ALL
    model = parse(text)
    assert (model.states, model.actions, model.observations) == (("x", "y", "z"), ("0", "1"), ("0", "1"))
    assert model.discount == 0.5 and np.array_equal(model.T, np.full((2, 3, 3), 1 / 3))
    assert same(model, parse(text.replace("\n", "\r\n")))


def test_sums_may_be_off_by_a_hundred_thousandth():
    parse(HEAD + ALL + "T: a : x 0.333333 0.333333 0.333333")
    with pytest.raises(
        UserError, match=r"line 3: the row of T for action 'a', state 'x' sums to 0.99998, not"
    ):
        parse(HEAD + ALL + "T: a : x 0.33334 0.33334 0.3333")


# --- mistakes ----------------------------------------------------------------------------------------

MISTAKES = [
    ("T: q : x uniform", "line 3: expected one of the actions or '*', found 'q'."),
    ("T: a : xx uniform", "line 3: expected one of the states or '*' (did you mean 'x'?), found 'xx'."),
    ("T: a : 3 uniform", "line 3: expected the number of one of the states (0 to 2), found '3'."),
    ("O: a : x : 2 1", "line 3: expected the number of one of the observations (0 to 1), found '2'."),
    (
        "T: a : x 0.5 0.5",
        "line 3: expected 3 probabilities or 'uniform' or 'reset', found 2, the last '0.5'.",
    ),
    (
        "T: a : x .5 .5\n 0 0",
        "line 4: expected 3 probabilities or 'uniform' or 'reset' and then a key word, found '0'.",
    ),
    ("T: a : x : y", "line 3: expected 1 probability after 'y', but this is where 'T' ends."),
    ("T: a : x :", "line 3: expected one of the states or '*' after ':', but this is where 'T' ends."),
    ("T", "line 3: expected ':' after 'T', but this is where 'T' ends."),
    ("T a", "line 3: expected ':' after 'T', found 'a'."),
    ("T: a : x : y : z 1", "line 3: expected 1 probability, found ':'."),
    ("T: a : x : y 1.5", "line 3: expected a probability in [0, 1], found '1.5'."),
    ("O: a : x -.5 1.5", "line 3: expected a probability in [0, 1], found '-.5'."),
    ("T: a : x identity", "line 3: expected 3 probabilities or 'uniform' or 'reset', found 'identity'."),
    ("T: a reset", "line 3: expected 9 probabilities or 'uniform' or 'identity', found 'reset'."),
    ("O: a identity", "line 3: expected 6 probabilities or 'uniform', found 'identity'."),
    ("O: a : x reset", "line 3: expected 2 probabilities or 'uniform', found 'reset'."),
    ("T: a uniform 1", "line 3: expected the end of 'T', or a key word, found '1'."),
    ("O: a : x 0.5 half", "line 3: expected a probability, found 'half'."),
    ("O: a : x 0.5 0.5x", "line 3: expected a probability, found '0.5x'."),
    ("O: a : x 0.5 0.4", "line 3: the row of O for action 'a', next state 'x' sums to 0.9, not to 1."),
    ("R: a 1 2 3", "line 3: R needs an action and a state at least, then numbers."),
    ("R: a : x : y : o", "line 3: expected 1 number after 'o', but this is where 'R' ends."),
    ("R: a : x : y : o 1e999", "line 3: expected a number that a float64 can hold, found '1e999'."),
    ("R: a : x : y 1", "line 3: expected 2 numbers, found 1, the last '1'."),
    ("R: a : x : y uniform", "line 3: expected 2 numbers, found 'uniform'."),
    ("discount: 1", "line 3: 'discount' must come before the first T, O or R."),
]

PREAMBLE_MISTAKES = [
    ("discount: 1", "discount: 2", "line 1: expected a discount in [0, 1], found '2'."),
    ("discount: 1", "discount: none", "line 1: expected a discount in [0, 1], found 'none'."),
    ("discount: 1", "Discount: 1", "found 'Discount'."),
    ("discount: 1", "", "there is no 'discount:' before the first T, O or R."),
    ("observations: o p", "", "there is no 'observations:' before the first T, O or R."),
    ("values: reward", "values: money", "line 1: expected 'reward' or 'cost', found 'money'."),
    ("states: x y z", "states: x y x", "line 1: 'x' is listed twice among the states."),
    ("states: x y z", "states: x 2y", "line 1: expected a name for one of the states, which begins with a"),
    ("states: x y z", "states: 3 x", "line 1: expected the end of 'states', or a key word, found 'x'."),
    ("states: x y z", "states: 0", "line 1: expected a number of states, 1 to 65536, or names that begin"),
    ("states: x y z", "states: 99999999999999", "line 1: expected a number of states, 1 to 65536,"),
    (
        "states: x y z",
        "states: 60000",
        "tables for 2 actions, 60000 states and 2 observations are too large.",
    ),
    ("states: x y z", "states:", "line 1: expected a number of states or their names after ':', but this is"),
    ("actions: a b", "actions: a uniform", "line 1: 'uniform' is a key word and cannot name one of the"),
    ("values: reward", "values: reward values: cost", "line 1: 'values' was given before, on line 1."),
    ("values: reward", "values: reward start: q", "expected one of the states or '*', found 'q'."),
    ("values: reward", "values: reward start: *", "expected a state, probabilities or 'uniform', found '*'."),
    ("values: reward", "values: reward start: .5 .5", "expected 3 probabilities or 'uniform', found 2,"),
    ("values: reward", "values: reward start: .5 .4 0", "the probabilities of 'start' sum to 0.9, not to 1."),
    ("values: reward", "values: reward start: 0.5", "expected 3 probabilities or 'uniform', found 1,"),
    ("values: reward", "values: reward start exclude: 0 1 2", "'start exclude' leaves no state to start in."),
    (
        "values: reward",
        "values: reward start include: 5",
        "expected the number of one of the states (0 to 2)",
    ),
    (
        "discount: 1",
        "5 discount: 1",
        "line 1: expected a key word (discount, values, states, actions, observ",
    ),
]


@pytest.mark.parametrize("text, message", MISTAKES)
def test_a_mistake_in_a_table_is_named_with_its_line_and_token(text, message):
    with pytest.raises(UserError) as error:
        parse(f"{HEAD}{ALL}{text}", "f.pomdp")
    assert str(error.value) == f"f.pomdp, {message}"


@pytest.mark.parametrize("old, new, message", PREAMBLE_MISTAKES)
def test_a_mistake_in_the_preamble_is_named(old, new, message):
    with pytest.raises(UserError, match=re.escape(message)) as error:
        parse(HEAD.replace(old, new, 1) + ALL, "f.pomdp")
    assert str(error.value).startswith("f.pomdp") and "\n" not in str(error.value)


def test_missing_rows_are_named():
    with pytest.raises(UserError, match=r"the row of T for action 'b', state 'y' is missing; every row must"):
        parse(HEAD + "O: * uniform T: a uniform T: b : x uniform T: b : z uniform")
    with pytest.raises(
        UserError, match=r"O for action 'a', next state 'x' is missing \(5 more rows are like"
    ):
        parse(HEAD + "T: * uniform")


def test_files_that_cannot_be_read(tmp_path):
    with pytest.raises(UserError, match="There is no file"):
        read(tmp_path / "none.pomdp")
    with pytest.raises(UserError, match="Cannot read"):
        read(tmp_path)
    (tmp_path / "binary.pomdp").write_bytes(bytes(range(256)))
    with pytest.raises(UserError, match="not a text file"):
        read(tmp_path / "binary.pomdp")
    (tmp_path / "empty.pomdp").write_text("")
    with pytest.raises(UserError, match="there is no 'discount:', no 'values:', no 'states:'"):
        read_header(tmp_path / "empty.pomdp")


WORDS = [
    *sorted(cassandra.RESERVED),
    *": : * # \n + - 0 1 2 7 .5 1e-3 1e9 -1 x tiger-left listen % é".split(" "),
]


@settings(max_examples=400, deadline=None, derandomize=True)
@given(
    st.lists(
        st.tuples(st.integers(0, 200), st.sampled_from(["delete", "insert", "swap"]), st.sampled_from(WORDS)),
        min_size=1,
        max_size=6,
    )
)
def test_broken_files_get_a_sentence(edits):
    tokens = re.findall(r"[:*]|[^\s:*]+|\n", TIGER)
    for place, edit, word in edits:
        place %= len(tokens)
        tokens[place : place + (edit != "insert")] = [] if edit == "delete" else [word]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            parse(" ".join(tokens))
        except UserError as error:
            assert str(error).endswith(".") and "\n" not in str(error)


@settings(max_examples=100, deadline=None, derandomize=True)
@given(st.text(max_size=80))
def test_noise_gets_a_sentence(text):
    with pytest.raises(UserError):
        parse(text)


# --- writing -----------------------------------------------------------------------------------------


def random_model(rng, kinds, prefix):
    """Tables of these kinds (dense, sparse, uniform or identity), and rewards over 24 orders of magnitude."""
    S, A, Z = rng.integers(1, 5, 3)

    def rows(kind, *shape):
        if kind == "uniform" or (kind == "identity" and shape[-2:] != (S, S)):
            return np.full(shape, 1 / shape[-1])
        if kind == "identity":
            return np.broadcast_to(np.eye(S), shape).copy()
        return rng.dirichlet(np.full(shape[-1], 1.0 if kind == "dense" else 0.05), shape[:-1])

    R = rng.normal(size=(A, S, S)) * 10.0 ** rng.integers(-12, 12, (A, S, S)) * rng.integers(0, 2, (A, S, 1))
    R = np.where(rng.integers(0, 2, (A, S, 1)) == 0, R, R[..., :1])
    R = np.where(rng.integers(0, 3, (A, S, 1)) == 0, rng.integers(0, 3, (A, S, S)), R)
    names = [tuple(f"{prefix}{i}" for i in range(n)) for n in (S, A, Z)]
    T, O = rows(kinds[0], A, S, S), rows(kinds[1], A, S, Z)
    return Model(*names, float(rng.uniform()), T=T, O=O, R=R, start=rng.dirichlet(np.ones(S)))


@settings(max_examples=150, deadline=None, derandomize=True)
@given(
    st.integers(0, 2**32 - 1),
    st.tuples(*[st.sampled_from(["dense", "sparse", "uniform", "identity"])] * 2),
    st.sampled_from(["", "s-", "übel_", "_x'"]),
)
def test_what_is_written_reads_back_to_identical_tables(seed, kinds, prefix):
    model = random_model(np.random.default_rng(seed), kinds, prefix)
    assert same(model, parse(to_text(model)))


def test_files_are_written_and_read_back(tmp_path):
    with pytest.warns(UserWarning, match="average"):
        model = read(EXAMPLES / "machine.pomdp")
    write(model, tmp_path / "again.pomdp")
    assert same(model, read(tmp_path / "again.pomdp"))
    header = read_header(tmp_path / "again.pomdp")
    assert (header.states, header.actions) == (
        ("good", "worn", "broken"),
        ("make", "inspect", "service", "replace"),
    )
    assert (header.observations, header.discount) == (("fine-part", "bad-part"), 0.97)


def test_a_model_that_no_file_can_hold_is_not_written(tmp_path):
    model = parse(TIGER)
    for states in (("a b", "c"), ("start", "c"), ("a#", "c"), ("a", "a")):
        with pytest.raises(UserError):
            write(replace(model, states=states), tmp_path / "bad.pomdp")
    with pytest.raises(UserError, match="sums to"):
        write(replace(model, T=model.T / 2), tmp_path / "bad.pomdp")
    assert not list(tmp_path.iterdir())


def test_reading_needs_no_jax():
    code = "import sys\nfrom baddr.domains.cassandra import format as c\n"
    code += "c.read_header(sys.argv[1]); sys.exit('jax' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code, str(EXAMPLES / "tiger.pomdp")]).returncode == 0


# --- the domain --------------------------------------------------------------------------------------

FILE = """discount: 0.9 values: reward states: 3 actions: 2 observations: 2 start: .5 .2 .3
T: 0 .1 .2 .7  0 1 0  .25 .25 .5
T: 1 identity
O: 0 .9 .1  .4 .6  0 1
O: 1 uniform
R: 0 : 0 : 2 : * 4
R: 1 : * : * : * -2
"""


@pytest.fixture
def path(tmp_path):
    (tmp_path / "small.pomdp").write_text(FILE)
    return str(tmp_path / "small.pomdp")


def test_the_domain_holds_the_files_tables(path):
    model, pomdp = read(path), make_domain(path, horizon=7).pomdp
    assert (pomdp.discount, pomdp.horizon, pomdp.num_actions) == (0.9, 7, 2)
    assert (pomdp.state_sizes, pomdp.observation_sizes) == ((3,), (2,))
    tables = tabulate(pomdp, model.start)
    np.testing.assert_allclose(tables.D, model.T.swapaxes(0, 1)[..., None] * model.O[None], atol=1e-6)
    np.testing.assert_allclose(tables.R, model.R.swapaxes(0, 1))
    assert not tables.terminal.any()
    assert make_domain(path, discount=0.5).pomdp.discount == 0.5


def test_the_domains_first_states_are_drawn_from_start(path):
    """10,000 draws, 5 standard errors."""
    pomdp = make_domain(path).pomdp
    s = jax.vmap(pomdp.initial_state)(jr.split(prng.key(0), 10_000))
    frequency = np.bincount(np.asarray(s)[:, 0], minlength=3) / 10_000
    p = np.array([0.5, 0.2, 0.3])
    assert np.all(np.abs(frequency - p) < 5 * np.sqrt(p * (1 - p) / 10_000))
    assert pomdp.initial_observation(prng.key(0), s[0]).tolist() == [0]


def test_the_prior_is_as_stated(path):
    """prior_total * ((1 - prior_noise) * truth + prior_noise * uniform), by hand for a row of each table."""
    domain = make_domain(path, prior_total=6.0, prior_noise=0.5)
    np.testing.assert_allclose(domain.counts.T[0, 0], [0.3 + 1, 0.6 + 1, 2.1 + 1], rtol=1e-6)
    np.testing.assert_allclose(domain.counts.O[0, 2], [1.5, 3 + 1.5], rtol=1e-6)
    np.testing.assert_allclose(domain.expected_simulator.T, domain.counts.T / 6, rtol=1e-6)
    np.testing.assert_allclose(domain.expected_simulator.O, domain.counts.O / 6, rtol=1e-6)
    exact, vague = make_domain(path, prior_noise=0.0), make_domain(path, prior_noise=1.0)
    np.testing.assert_allclose(exact.counts.T, 10 * exact.pomdp.dynamics.T, rtol=1e-6)
    np.testing.assert_allclose(vague.counts.O, 5, rtol=1e-6)
    with pytest.warns(UserWarning, match="average"):
        machine = make_domain(str(EXAMPLES / "machine.pomdp"), prior_total=7.0)
    for table in machine.counts:
        np.testing.assert_allclose(table.sum(-1), 7, rtol=1e-6)


def test_what_is_not_learned_is_known(path):
    domain = make_domain(path, prior_total=6.0, prior_noise=0.5, learned="O")
    np.testing.assert_allclose(domain.counts.T, 10_000 * domain.pomdp.dynamics.T, rtol=1e-6)
    np.testing.assert_allclose(domain.counts.O[0, 2], [1.5, 4.5], rtol=1e-6)
    M = domain.sample_simulator(prng.key(0))
    assert np.array_equal(M.T, domain.pomdp.dynamics.T) and not np.allclose(M.O, domain.pomdp.dynamics.O)
    assert domain.learned == "O"


def test_simulators_are_drawn_from_the_prior(path):
    """Means and variances of Dirichlet rows in closed form, 4,000 draws, 5 standard errors."""
    n, domain = 4000, make_domain(path, prior_total=6.0, prior_noise=0.5)
    M = jax.vmap(domain.sample_simulator)(jr.split(prng.key(3), n))
    for drawn, alpha in ((M.T, domain.counts.T), (M.O, domain.counts.O)):
        drawn, mean = np.asarray(drawn, np.float64), np.asarray(alpha, np.float64) / 6
        np.testing.assert_allclose(drawn.sum(-1), 1, atol=1e-5)
        variance = mean * (1 - mean) / (6 + 1)
        assert np.all(np.abs(drawn.mean(0) - mean) < 5 * np.sqrt(variance / n))
        fourth = ((drawn - mean) ** 4).mean(0)
        assert np.all(np.abs(((drawn - mean) ** 2).mean(0) - variance) < 5 * np.sqrt(fourth / n))


def test_dirichlet_rows_of_small_and_zero_counts():
    """Tiny counts make rows that are almost points, never NaN; zeros stay zero."""
    rows = np.asarray(dirichlet(prng.key(0), jnp.tile(jnp.array([1e-3, 0.0, 1e-3]), (1000, 1))))
    assert np.all(np.isfinite(rows)) and np.all(rows[:, 1] == 0)
    np.testing.assert_allclose(rows.sum(-1), 1, rtol=1e-5)
    assert abs(rows[:, 0].mean() - 0.5) < 5 * np.sqrt(0.25 / 1000)


def test_another_content_is_another_domain(path):
    """The cache of trained priors goes by the domain's name."""
    name = make_domain(path).name
    Path(path).write_text(FILE.replace(".9 .1", ".8 .2"))
    assert name.startswith("small-") and make_domain(path).name != name


def returns(agent, world, runs, episodes):
    state = start(jr.split(prng.key(1), runs), agent, world)
    _, steps = advance(state, agent, world, jnp.int32(episodes), episodes * world.horizon)
    ended = np.asarray(steps.ended)
    assert (
        ended.sum() == runs * episodes
        and np.asarray(steps.t)[ended].tolist() == [world.horizon - 1] * ended.sum()
    )
    return np.asarray(steps.tally.discounted_return)[ended]


def test_random_actions_return_what_they_must():
    """Tiger: listening costs 1, opening 45 on average; every step is like the first. 5 standard errors."""
    world = make_domain(str(EXAMPLES / "tiger.pomdp"), horizon=5).pomdp
    agent = Agent(GBAPOMDP(world, Known(world.dynamics)), Importance(num_particles=1), Uniform())
    r = returns(agent, world, 256, 8)
    expected = (-1 - 45 - 45) / 3 * (1 - 0.95**5) / (1 - 0.95)
    assert abs(r.mean() - expected) < 5 * r.std() / np.sqrt(len(r))


def learner(domain, **filter_settings):
    posterior = Dirichlet(domain.counts, domain.pomdp.state_sizes, domain.pomdp.observation_sizes)
    planner = PoUct(num_simulations=16, exploration=10.0)
    return Agent(GBAPOMDP(domain.pomdp, posterior), Importance(**filter_settings), planner)


def test_a_learners_belief_is_the_exact_mixture(path):
    """After (0, 1), (0, 0): p(s | h) within 5 standard errors at 20,000 particles, not resampled."""
    n, domain = 20_000, make_domain(path, prior_total=3.0)
    agent = learner(domain, num_particles=n, resample_below=0.0)
    p0 = np.array([0.5, 0.2, 0.3])
    exact = DirichletTables(np.asarray(domain.counts.T), np.asarray(domain.counts.O))
    b, belief = initial_mixture(exact, p0), agent.initial_belief(prng.key(2))
    update = eqx.filter_jit(agent.update)
    for t, o in enumerate((1, 0)):
        b, _ = mixture_update(exact, b, 0, o)
        belief, _ = update(prng.key(10 + t), belief, jnp.int32(0), jnp.array([o], jnp.int32))
    size = float(belief.effective_sample_size())
    p = state_probabilities(b)
    assert np.all(np.abs(state_marginals(belief, (3,))[0] - p) < 5 * np.sqrt(p * (1 - p) / size))


@pytest.mark.slow
def test_a_learner_lives_in_the_file(path):
    domain = make_domain(path, horizon=4)
    assert np.all(np.isfinite(returns(learner(domain, num_particles=16), domain.pomdp, 2, 2)))


@pytest.mark.parametrize(
    "changes, sentence",
    [
        ({"path": ""}, "domain.path must name a .pomdp file"),
        ({"horizon": 0}, "domain.horizon must be at least 1"),
        ({"discount": 1.5}, r"domain.discount must lie in \[0, 1\], or be -1"),
        ({"prior_total": 0.0}, "domain.prior-total must be positive"),
        ({"prior_noise": 2.0}, r"domain.prior-noise must lie in \[0, 1\]"),
    ],
)
def test_settings_say_what_is_wrong(changes, sentence):
    assert CassandraSettings(path="x.pomdp").problems() == []
    assert re.fullmatch(sentence, "; ".join(replace(CassandraSettings(path="x.pomdp"), **changes).problems()))
