"""POMDPX files: a finite POMDP of several variables, as XML. Needs no JAX.

A state is a value of every state variable, the first one most significant; so is an action, and an
observation of the observation variables and then of the state variables that are fully observed.
docs/cassandra.md says what is read.
"""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from jaxtyping import Float64, Int
from scipy.sparse import csr_array

from baddr.domains.cassandra.factors import Factor, Rows, Variable, factor_of, joined
from baddr.domains.cassandra.header import MOST_NAMES, TOLERANCE, Header
from baddr.domains.cassandra.rules import MOST_LAYERS, MOST_PLACES, MOST_ROWS, TooLarge
from baddr.domains.cassandra.tables import Rewards, SparseTables, like_it
from baddr.domains.cassandra.tokens import NUMBER, quoted, source_name
from baddr.domains.cassandra.xml import Element, parse_xml
from baddr.errors import UserError


@dataclass(frozen=True)
class Variables:
    """Of a file. Those of the state have two names: before a step and after it."""

    previous: tuple[Variable, ...]
    current: tuple[Variable, ...]
    actions: tuple[Variable, ...]
    observations: tuple[Variable, ...]
    seen: tuple[Variable, ...]  # state variables, after the step, that are fully observed

    @property
    def shown(self) -> tuple[Variable, ...]:
        return (*self.observations, *self.seen)


class Mistakes:
    """Sentences about a file."""

    def __init__(self, path: Path):
        self.source = source_name(path)

    def __call__(self, element: Element | None, sentence: str) -> UserError:
        line = f", line {element.line}" if element is not None else ""
        return UserError(f"{self.source}{line}: {sentence}.")


def read_pomdpx(path: str | Path) -> SparseTables:
    """The model in a .pomdpx file."""
    root, wrong = parse_xml(Path(path)), Mistakes(Path(path))
    variables, header = _opened(root, wrong)
    A, S, Z = len(header.actions), len(header.states), len(header.observations)
    try:
        return _model(root, variables, header, wrong)
    except TooLarge:
        raise wrong(None, f"tables for {A} actions, {S} states and {Z} observations are too large") from None


def read_pomdpx_header(path: str | Path) -> Header:
    """The names and the discount alone."""
    return _opened(parse_xml(Path(path)), Mistakes(Path(path)))[1]


# --- names -------------------------------------------------------------------------------------------


def _opened(root: Element, wrong: Mistakes) -> tuple[Variables, Header]:
    if root.tag != "pomdpx":
        raise wrong(root, f"expected <pomdpx>, found <{quoted(root.tag)[1:-1]}>")
    variables = _variables(_needed(root, "Variable", wrong), wrong)
    names = (_names(kind, wrong) for kind in (variables.previous, variables.actions, variables.shown))
    states, actions, observations = names
    return variables, Header(states, actions, observations, _discount(root, wrong))


def _variables(element: Element, wrong: Mistakes) -> Variables:
    states = element.all("StateVar")
    for found, kind in ((states, "StateVar"), (element.all("ActionVar"), "ActionVar")):
        if not found:
            raise wrong(element, f"there is no <{kind}>")
    previous = tuple(_variable(state, "vnamePrev", "s", wrong) for state in states)
    current = tuple(_variable(state, "vnameCurr", "s", wrong) for state in states)
    observed = [state.attributes.get("fullyObs", "false").strip().lower() == "true" for state in states]
    actions = tuple(_variable(action, "vname", "a", wrong) for action in element.all("ActionVar"))
    shown = tuple(_variable(shown, "vname", "o", wrong) for shown in element.all("ObsVar"))
    seen = tuple(variable for variable, each in zip(current, observed, strict=True) if each)
    names = [variable.name for variable in (*previous, *current, *actions, *shown)]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise wrong(element, f"there are two variables {quoted(twice)}")
    if not shown and not seen:
        raise wrong(element, "nothing is observed: there is no <ObsVar> and no state variable with fullyObs")
    return Variables(previous, current, actions, shown, seen)


def _variable(element: Element, attribute: str, prefix: str, wrong: Mistakes) -> Variable:
    """Its values by name, or by number: then they are called s0, s1, ..."""
    name = element.attributes.get(attribute, "").strip()
    number, listed = element.first("NumValues"), element.first("ValueEnum")
    if not name:
        raise wrong(element, f"a <{element.tag}> needs a name, {attribute}")
    if listed is not None and listed.words:
        values = tuple(listed.words)
    else:
        words = number.words if number is not None else []
        if len(words) != 1 or not words[0].isdecimal() or not 1 <= int(words[0][:9]) <= MOST_NAMES:
            raise wrong(element, f"{quoted(name)} needs <ValueEnum> or <NumValues>, 1 to {MOST_NAMES}")
        values = tuple(f"{prefix}{i}" for i in range(int(words[0][:9])))
    if len(set(values)) < len(values):
        raise wrong(element, f"{quoted(name)} has two values of the same name")
    return Variable(name, values)


def _names(variables: tuple[Variable, ...], wrong: Mistakes) -> tuple[str, ...]:
    """Of all values of some variables."""
    if np.prod([float(variable.size) for variable in variables]) > MOST_NAMES:
        raise wrong(None, f"the variables have more than {MOST_NAMES} values together")
    names = [""]
    for variable in variables:
        names = [f"{name},{value}" if name else value for name in names for value in variable.values]
    return tuple(names)


def _discount(root: Element, wrong: Mistakes) -> float:
    element = _needed(root, "Discount", wrong)
    words = element.words
    if len(words) != 1 or not NUMBER.fullmatch(words[0]) or not 0 <= float(words[0]) <= 1:
        raise wrong(element, "expected a discount in [0, 1]")
    return float(words[0])


def _needed(element: Element, tag: str, wrong: Mistakes) -> Element:
    found = element.first(tag)
    if found is None:
        raise wrong(element, f"there is no <{tag}>")
    return found


# --- tables ------------------------------------------------------------------------------------------


def _model(root: Element, variables: Variables, header: Header, wrong: Mistakes) -> SparseTables:
    A, S, Z = len(header.actions), len(header.states), len(header.observations)
    if A > MOST_LAYERS or A * S > MOST_ROWS:
        raise TooLarge
    given = (*variables.actions, *variables.previous)
    T = _factors(_needed(root, "StateTransitionFunction", wrong), (*given, *variables.current), wrong)
    seen_by = (*variables.actions, *variables.current)
    O = _factors(root.first("ObsFunction"), (*seen_by, *variables.observations), wrong)
    start = _factors(_needed(root, "InitialStateBelief", wrong), variables.previous, wrong)
    steps = joined(Rows.all(given), T, variables.current, wrong)
    seen = joined(Rows.all(seen_by), O, variables.observations, wrong)
    first = joined(Rows.all(()), start, variables.previous, wrong)
    p_start = np.bincount(first.number(variables.previous), first.p, S)
    tables = (
        _tables(steps, given, variables.current, (A, S, S)),
        _tables(seen, seen_by, variables.shown, (A, S, Z)),
    )
    for what, table in zip("TO", tables, strict=True):
        _check_sums(what, table, header, wrong)
    if abs(p_start.sum() - 1) > TOLERANCE:
        raise wrong(None, f"the probabilities of the first state sum to {p_start.sum():.6g}, not to 1")
    R = _rewards(root.first("RewardFunction"), variables, tables[0], wrong)
    names = header.states, header.actions, header.observations
    return SparseTables(*names, header.discount, T=tables[0], O=tables[1], R=R, start=p_start)


def _factors(element: Element | None, known: tuple[Variable, ...], wrong: Mistakes) -> list[Factor]:
    return [] if element is None else [factor_of(found, known, wrong) for found in element.all("CondProb")]


def _tables(
    rows: Rows, given: tuple[Variable, ...], outcomes: tuple[Variable, ...], sizes: tuple[int, int, int]
) -> tuple[csr_array, ...]:
    """p(outcome | a, state), by action."""
    A, S, n = sizes
    row, column = rows.number(given), rows.number(outcomes)
    whole = csr_array((rows.p, (row, column)), shape=(A * S, n))
    return tuple(csr_array(whole[a * S : (a + 1) * S]) for a in range(A))


def _check_sums(what: str, tables: tuple[csr_array, ...], header: Header, wrong: Mistakes) -> None:
    sums = np.stack([table.sum(axis=1) for table in tables])
    off = np.abs(sums - 1) > TOLERANCE
    if off.any():
        a, s = np.argwhere(off)[0].tolist()
        row = f"action {quoted(header.actions[a])}, state {quoted(header.states[s])}"
        others = like_it(int(off.sum()) - 1)
        raise wrong(None, f"the row of {what} for {row} sums to {sums[a, s]:.6g}, not to 1{others}")


# --- rewards -----------------------------------------------------------------------------------------


def _rewards(
    element: Element | None, variables: Variables, T: tuple[csr_array, ...], wrong: Mistakes
) -> Rewards:
    """The sum of all functions: of (a, s), and of (a, s, s') where they look at the state after the step."""
    A, S = len(T), T[0].indptr.size - 1
    given, after = (*variables.actions, *variables.previous), variables.current
    found = [] if element is None else element.all("Func", "CondProb")
    functions = [factor_of(func, (*given, *after), wrong, reward=True) for func in found]
    later = {variable.name for variable in after}
    plain = [f for f in functions if later.isdisjoint(v.name for v in f.variables)]
    rows = Rows.all(given)
    r = sum((f.look_up(rows.columns) for f in plain), np.zeros(A * S)).reshape(A, S)
    others = [csr_array((S, S)) for _ in range(A)]
    if len(plain) < len(functions):
        for a in range(A):
            others[a] = _of_next(a, [f for f in functions if f not in plain], variables, r[a], T[a])
    return Rewards(r, tuple(others))


def _of_next(
    a: int, functions: list[Factor], variables: Variables, own: Float64[np.ndarray, " S"], T: csr_array
) -> csr_array:
    """R(s, a, s') of an action where it differs from `own`: of all s', or where these are too many of those
    that can follow."""
    S = len(own)
    if S * S <= MOST_PLACES // 16:
        s, s_next = np.divmod(np.arange(S * S), S)
    else:
        s, s_next = T.tocoo().row, T.tocoo().col
    columns = _values_of(variables.previous, s) | _values_of(variables.current, s_next)
    columns |= _values_of(variables.actions, np.full(len(s), a))
    more = sum((f.look_up(columns) for f in functions), np.zeros(len(s)))
    keep = more != 0
    return csr_array((own[s[keep]] + more[keep], (s[keep], s_next[keep])), shape=(S, S))


def _values_of(variables: tuple[Variable, ...], number: Int[np.ndarray, " n"]) -> dict[str, np.ndarray]:
    """The value of each variable, of what has this number."""
    values = np.unravel_index(number, tuple(variable.size for variable in variables))
    return {variable.name: value for variable, value in zip(variables, values, strict=True)}
