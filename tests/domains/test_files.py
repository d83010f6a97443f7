"""Files from anywhere: those of others, large ones, hostile ones, and POMDPX."""

import itertools
import time
import warnings
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from baddr.domains.cassandra import tokens
from baddr.domains.cassandra.format import dense, parse, parse_sparse, read, read_header, read_sparse, to_text
from baddr.domains.cassandra.rules import EVERY, Rules, entries
from baddr.domains.cassandra.settings import CassandraSettings
from baddr.domains.cassandra.sparse import file_model
from baddr.domains.catalog import entry
from baddr.errors import UserError

EXAMPLES = Path(__file__).parents[2] / "examples"
SHARED = Path(__file__).parent.parent.parent.parent / "shared" / "pomdp"
PUBLIC = sorted(SHARED.glob("*.pomdp*")) if SHARED.is_dir() else []
TABLES = ("T", "O", "R", "start")

HEAD = "discount: 1 values: reward states: x y z actions: a b observations: o p\n"
ALL, SAME = "T: * uniform O: * uniform\n", "T: * identity O: * uniform\n"


def same(model, other):
    return all(np.array_equal(getattr(model, name), getattr(other, name)) for name in TABLES)


# --- files of others ---------------------------------------------------------------------------------


@pytest.mark.skipif(not PUBLIC, reason="needs the files of ../shared/pomdp")
def test_public_files_are_read_and_come_back_equal():
    with warnings.catch_warnings(action="ignore"):
        for path in PUBLIC:
            model = read_sparse(path)
            text = to_text(model)
            assert same(dense(model), parse(text)), path.name
            assert read_header(path).states == model.states
            assert len(text) < max(10_000, 3 * path.stat().st_size) and len(text) < 1_000_000


@pytest.mark.skipif(not PUBLIC, reason="needs the files of ../shared/pomdp")
def test_the_same_problem_in_two_formats_is_the_same_model():
    tiger = read(SHARED / "sarsop--Tiger.pomdpx")
    assert same(tiger, read(SHARED / "pomdp-solve--tiger.95.pomdp"))
    hall, other = read(SHARED / "sarsop--Hallway.pomdpx"), read(SHARED / "sarsop--Hallway.pomdp")
    assert np.array_equal(hall.T, other.T) and np.array_equal(hall.O, other.O)
    expected = lambda model: np.sum(model.T * model.R, axis=2)  # one writes R(s, a), the other R(s')
    np.testing.assert_allclose(expected(hall), expected(other), atol=1e-12)


def test_end_states(tmp_path):
    """Nothing is earned after a step into them; their own rows may be left out."""
    text = HEAD + "start: x\nE: z\nT: * : x 0 .5 .5 T: * : y 0 0 1 O: * : x uniform O: * : y uniform\n"
    model = parse(text + "R: a : * : * : * 2 R: a : z : * : * 9")
    assert model.ends.tolist() == [False, False, True]
    assert np.array_equal(model.T[:, 2], [[0, 0, 1]] * 2) and np.array_equal(model.O[0, 2], [0.5, 0.5])
    assert same(model, parse(to_text(model))) and np.array_equal(parse(to_text(model)).ends, model.ends)
    (tmp_path / "ends.pomdp").write_text(to_text(model))
    found = file_model(CassandraSettings(path=str(tmp_path / "ends.pomdp")))
    assert np.array_equal(found.T[0].toarray(), [[0, 0.5, 0], [0, 0, 0], [0, 0, 0]])
    assert found.R[0].tolist() == [2, 2, 0]
    named = HEAD.replace("x y z", "N E W").replace("a b", "E W")  # E is a name, too
    assert np.array_equal(
        parse(named + ALL + "T: E\n : E\n : E 1\n T: E : E : N 0\nT: E : E : W 0").T[0, 1], [0, 1, 0]
    )


@pytest.mark.parametrize(
    "text, expected",
    [("start: x z", [0.5, 0, 0.5]), ("start: 0 2", [0.5, 0, 0.5]), ("start: 0 0 1", [0, 0, 1])],
)
def test_several_states_to_start_in(text, expected):
    assert parse(HEAD + text + "\n" + ALL).start.tolist() == expected


def test_a_colon_may_stand_before_a_number():
    plain = HEAD + ALL + "T: a : x : x 0.5\nT: a : x : y 0.25 T: a : x : z 0.25\nR: a : x : y : o 3"
    with warnings.catch_warnings(action="ignore"):
        colons = plain.replace("x 0.5", "x : 0.5").replace("z 0.25", "z :\n0.25").replace("o 3", "o : 3")
        assert same(parse(plain), parse(colons))


def test_names_that_are_numbers_or_odd():
    text = "discount: 1.0 values: cost states: 11 12 2x actions: <go> 'a,b' $ observations: 1\n"
    model = parse(text + "start: 12\n" + ALL + "R: $ : 12 : * : * 1e+1")
    assert model.states == ("11", "12", "2x") and model.start.tolist() == [0, 1, 0]
    assert model.actions == ("<go>", "'a,b'", "$")
    assert model.R[2, 1].tolist() == [-10.0] * 3 and model.R[0].max() == 0
    with pytest.raises(UserError, match="line 1"):  # digits of another script are neither name nor number
        parse(text.replace("2x", "\u0663") + "start: 12\n" + ALL)


def test_other_encodings_and_line_ends(tmp_path):
    content = (HEAD + ALL).replace("\n", " # caf\u00e9\r").encode("latin-1")
    (tmp_path / "old.pomdp").write_bytes(content)
    assert read(tmp_path / "old.pomdp").states == ("x", "y", "z")


# --- the last rule holds -----------------------------------------------------------------------------

INDEX = st.integers(-1, 1)


@settings(max_examples=60, deadline=None, derandomize=True)
@given(st.lists(st.tuples(INDEX, INDEX, INDEX, INDEX, st.sampled_from([0.0, 1.0, 2.0, -3.0])), max_size=12))
def test_rules_hold_as_assignments_do(rules):
    """Against a dense array that is assigned to."""
    sizes, table, expected = (2, 2, 2, 2), Rules((2, 2, 2, 2)), np.zeros((2, 2, 2, 2))
    for *index, value in rules:
        table.add(tuple(index), value)
        expected[tuple(slice(None) if i == EVERY else i for i in index)] = value
    place, value = entries(table)
    found = np.zeros(16)
    found[place] = value
    assert np.array_equal(found.reshape(sizes), expected)


@settings(max_examples=60, deadline=None, derandomize=True)
@given(st.lists(st.tuples(INDEX, INDEX, INDEX, INDEX, st.integers(-2, 2)), max_size=10), st.integers(0, 99))
def test_rewards_hold_as_assignments_do(rules, seed):
    """R(s, a, s') is the average over p(o | a, s') of what was assigned last."""
    rng, full = np.random.default_rng(seed), np.zeros((2, 2, 2, 2))
    p = np.round(rng.uniform(size=(2, 2)), 2)
    O = np.stack([p, 1 - p], axis=-1)
    lines = [f"O: {a} : {s} {O[a, s, 0]} {O[a, s, 1]}" for a in range(2) for s in range(2)]
    name = lambda i: "*" if i == EVERY else str(i)
    for *index, value in rules:
        lines.append(f"R: {' : '.join(map(name, index))} {value}")
        full[tuple(slice(None) if i == EVERY else i for i in index)] = value
    head = "discount: 1 values: reward states: 2 actions: 2 observations: 2\nT: * uniform\n"
    with warnings.catch_warnings(action="ignore"):
        found = parse(head + "\n".join(lines)).R
    np.testing.assert_allclose(found, np.einsum("ajo,aijo->aij", O, full), atol=1e-12)


# --- hostile files -----------------------------------------------------------------------------------

HUGE = "discount: 1 values: reward states: {} actions: {} observations: {}\n"
HOSTILE = {
    "a dense table": HUGE.format(11000, 1, 1) + ALL + "R: * : * : * : * 1",
    "dense observations": HUGE.format(60000, 1, 60000) + "T: * identity O: * uniform",
    "rewards by observation": HUGE.format(60000, 1, 9) + "T: * identity O: * uniform R: * : * : * : 3 1",
    "many actions": HUGE.format(1000, 65536, 1) + "T: * identity O: * uniform",
    "columns": HUGE.format(9999, 1, 1) + ALL[15:] + "".join(f"T: * : * : {i} 0.001\n" for i in range(5000)),
    "many dense tables": HUGE.format(3000, 40, 1) + ALL,
    "columns of nothing": HUGE.format(3000, 999, 1)
    + SAME
    + "".join(f"T: * : * : {i} 0\n" for i in range(3000)),
    "identities": HUGE.format(60000, 4, 1) + SAME * 20_000,
    "one long word": "a" * 5_000_000,
    "a long number": "discount: " + "1" * 5_000_000,
    "no blank": HUGE.format(3, 2, 2) + ALL + "R:0:0:0:0" + "+1" * 2_000_000,
    "empty lines": HUGE.format(3, 2, 2) + "\n" * 20_000_000 + "x",
    "comments": HUGE.format(3, 2, 2) + "# x\n" * 5_000_000 + "x",
    "blanks": HUGE.format(3, 2, 2) + ALL + "+" + " " * 5_000_000 + "x",
    "colons": "states: " + "ab:" * 1_000_000,
    "names": "states: " + " ".join(f"s{i}" for i in range(300_000)),
    "long names": HUGE.format(f"{'x' * 250} {'y' * 250}", 1, 1) + "T: *\n1 0 1",
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_files_get_a_short_sentence_at_once(name):
    """Seconds of CPU, not minutes."""
    started = time.process_time()
    with pytest.raises(UserError) as error:
        parse_sparse(HOSTILE[name], "/long/" * 100)
    assert len(str(error.value)) <= 500 and "\n" not in str(error.value)
    assert time.process_time() - started < 10


@pytest.mark.parametrize("limit", ["MOST_ENTRIES", "MOST_WORDS"])
def test_there_is_an_end_to_entries_and_words(monkeypatch, limit):
    monkeypatch.setattr(tokens, limit, 500)
    with pytest.raises(UserError, match="there are more than 500"):
        parse(HEAD + ALL + "R: a : x : x : o 1\n" * 600)


def test_repeated_lines_cost_nothing_but_their_reading():
    text = HUGE.format(300, 2, 2) + "T: * identity O: * uniform\n" + "R: * : * : * : * 1\n" * 20_000
    started = time.process_time()
    model = parse_sparse(text + "R: 1 : 7 : * : * 2")
    assert model.R.rows[0].tolist() == [1.0] * 300 and model.R.rows[1, 7] == 2
    assert time.process_time() - started < 5


# --- large files -------------------------------------------------------------------------------------


def ring(S, A=2, Z=4):
    """A sparse file: S states in a ring; each action moves by its number and one, or stays."""
    lines = [f"discount: 0.95 values: reward states: {S} actions: {A} observations: {Z}", "start: 0 1"]
    for a, s in itertools.product(range(A), range(S)):
        lines.append(f"T: {a} : {s} : {(s + a + 1) % S} 0.75\nT: {a} : {s} : {s} 0.25")
    lines += [f"O: * : {s} : {s * Z // S} 0.9\nO: * : {s} : {(s * Z // S + 1) % Z} 0.1" for s in range(S)]
    lines += [
        "R: * : * : * : * -1",
        f"R: 1 : * : {S // 2} : * 10",
        "R: 0 : 3 : * : * 5",
        "R: 0 : 3 : 4 : * 7",
    ]
    return "\n".join(lines) + "\n"


def test_the_solvers_tables_are_those_of_the_dense_file(tmp_path):
    path = tmp_path / "ring.pomdp"
    path.write_text(ring(40))
    model, found = read(path), file_model(CassandraSettings(path=str(path)))
    np.testing.assert_allclose(np.stack([T.toarray() for T in found.T]), model.T)
    np.testing.assert_allclose(found.R, np.sum(model.T * model.R, axis=2))


def test_a_large_file_stays_sparse(tmp_path):
    path = tmp_path / "ring.pomdp"
    path.write_text(ring(9000))
    model = read(path)
    assert model.sizes == (2, 9000, 4) and sum(T.nnz for T in model.T) == 4 * 9000
    assert model.R.others[1].nnz == 9000 and model.R.rows[0, 3] == 5


# --- POMDPX ------------------------------------------------------------------------------------------

TABLE = """<CondProb><Var>rock_1</Var><Parent>do rover_1 rock_0</Parent><Parameter type="TBL">
<Entry><Instance>* * - -</Instance><ProbTable>identity</ProbTable></Entry>
<Entry><Instance>west s0 * -</Instance><ProbTable>0.25 0.75</ProbTable></Entry>
</Parameter></CondProb>"""
DIAGRAM = """<CondProb><Var>rock_1</Var><Parent>do rover_1 rock_0</Parent><Parameter type="DD"><DAG>
<Node var="do">
<Edge val="west"><Node var="rover_1">
<Edge val="s0"><Node var="rock_1"><Edge val="good"><Terminal>0.25</Terminal></Edge>
<Edge val="bad"><Terminal>0.75</Terminal></Edge></Node></Edge>
<Edge val="s1"><SubDAG type="template" idref="same"/></Edge>
<Edge val="s2"><SubDAG type="persistent" var="rock_1"/></Edge></Node></Edge>
<Edge val="east"><SubDAG type="template" idref="same"/></Edge>
<Edge val="check"><Node var="rock_0">
<Edge val="good"><SubDAG type="deterministic" var="rock_1" val="good"/></Edge>
<Edge val="bad"><SubDAG type="deterministic" var="rock_1" val="bad"/></Edge></Node></Edge>
</Node></DAG>
<SubDAGTemplate id="same"><SubDAG type="persistent" var="rock_1"/></SubDAGTemplate>
</Parameter></CondProb>"""
ROCK = (Path(__file__).parent.parent / "data" / "rock.pomdpx").read_text().replace(DIAGRAM, "ROCKS")


def rock(tmp_path, content):
    path = tmp_path / "rock.pomdpx"
    path.write_text(content)
    return read(path)


@pytest.mark.parametrize("rocks", [TABLE, DIAGRAM])
def test_variables_tables_and_diagrams_of_pomdpx(tmp_path, rocks):
    """All numbers by hand; the rock changes only where the rover arrives at s0 by going west."""
    model = rock(tmp_path, ROCK.replace("ROCKS", rocks))
    assert model.states == ("s0,good", "s0,bad", "s1,good", "s1,bad", "s2,good", "s2,bad")
    assert model.observations[:2] == ("ogood,s0", "ogood,s1") and len(model.observations) == 6
    assert model.start.tolist() == [0, 0, 0.5, 0.5, 0, 0]
    west, east, check = model.T
    assert west[2].tolist() == [0.8 * 0.25, 0.8 * 0.75, 0.2, 0, 0, 0] and west[0].tolist() == [
        0.25,
        0.75,
        0,
        0,
        0,
        0,
    ]
    assert east[3].tolist() == [0, 0, 0, 0, 0, 1] and np.array_equal(check, np.eye(6))
    assert model.O[2, 3].tolist() == [0, 0.2, 0, 0, 0.8, 0] and model.O[0, 4].tolist() == [
        0,
        0,
        0.5,
        0,
        0,
        0.5,
    ]
    rewards = np.full((3, 6, 6), -1.0)
    rewards[1, 2:4] = 5
    rewards[:, :, 0] += 10
    assert np.array_equal(model.R, rewards)
    assert same(model, parse(to_text(model)))


@pytest.mark.parametrize(
    "old, new, sentence",
    [
        ("<pomdpx version", '<!DOCTYPE x [<!ENTITY y "z">]><pomdpx version', "declares a document type"),
        ("</pomdpx>", "", "not well-formed XML"),
        ("0.9 0.1 0.2 0.8", "0.9 0.1 0.2", "expected 4 numbers, found 3 words"),
        ("0.9 0.1 0.2 0.8", "0.9", "expected 4 numbers, found 1 word."),
        ("<Instance>s1</Instance>", "<Instance>s1 s2</Instance>", "expected 1 value, found 2"),
        ("0.9 0.1", "0.9 0.3", "the row of O for action 'check', state 's0,good' sums to 1.2, not to 1"),
        ("check - -", "check - 7", "'7' is no value of 'sensor'"),
        ("<Parent>do rover_0</Parent>", "<Parent>doo rover_0</Parent>", "'doo' is no variable"),
        ("<Discount>0.95", "<Discount>95", "expected a discount in"),
        ('type="DD"', 'type="XY"', "TBL or DD, not 'XY'"),
        ("<NumValues>3<", "<NumValues>999999999999<", "needs <ValueEnum> or <NumValues>"),
        (TABLE, "", "'rock_1' needs one <CondProb>, and has 0"),
    ],
)
def test_mistakes_in_pomdpx_get_a_sentence(tmp_path, old, new, sentence):
    with pytest.raises(UserError) as error:
        rock(tmp_path, ROCK.replace("ROCKS", TABLE).replace(old, new, 1))
    assert sentence in str(error.value) and len(str(error.value)) <= 500


def test_pomdpx_is_known_by_its_content(tmp_path):
    """Whatever its name ends in; so is a text in Cassandra's format."""
    for start in ("", "\n \t", "<!-- a comment -->"):
        content = ROCK.replace("ROCKS", TABLE)
        if start:
            content = start + content.partition("?>")[2]
        for name in ("rock.pomdp", "rock.POMDPX"):
            (tmp_path / name).write_text(content)
            assert read_header(tmp_path / name).actions == read(tmp_path / name).actions
            assert entry(str(tmp_path / name)).summary == name
    wide = ROCK.replace("ROCKS", TABLE).replace("ISO-8859-1", "UTF-16").encode("utf-16")
    (tmp_path / "wide.pomdp").write_bytes(wide)
    assert same(read(tmp_path / "wide.pomdp"), read(tmp_path / "rock.pomdp"))
    text = (EXAMPLES / "tiger.pomdp").read_bytes()
    (tmp_path / "tiger.pomdpx").write_bytes(text)
    assert same(read(tmp_path / "tiger.pomdpx"), read(EXAMPLES / "tiger.pomdp"))


THIRDS = """discount: .95
values: reward
states: 3
actions: 1
observations: 3
start: .33333 .33333 .33333
T: *
.33333 .33333 .33333
.33333 .33333 .33333
1 0 0
O: *
uniform
"""


def test_thirds_with_five_digits_sum_to_one():
    """In float64 they are off by a little more than 1e-5."""
    assert parse(THIRDS).T[0, 0].tolist() == parse(THIRDS).start.tolist() == [0.33333] * 3
    for wrong in (".3333 .33333 .33333", ".33334 .33334 .33334"):
        with pytest.raises(UserError, match="not to 1"):
            parse(THIRDS.replace("\n.33333 .33333 .33333", f"\n{wrong}", 1))


def test_the_rows_that_are_like_a_wrong_one_are_counted():
    wrong = THIRDS.replace("\n.33333 .33333 .33333", "\n0 0 .5")
    with pytest.raises(UserError, match=r"\(1 more row is like it\)"):
        parse(wrong)
    with pytest.raises(UserError, match=r"\(2 more rows are like it\)"):
        parse(wrong.replace("1 0 0", "1 1 0"))
