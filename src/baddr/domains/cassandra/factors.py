"""Conditional probabilities of a POMDPX file: tables, decision diagrams, and their products. Needs no JAX."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float64, Int

from baddr.domains.cassandra.rules import EVERY, MOST_PLACES, Rules, TooLarge, entries
from baddr.domains.cassandra.tokens import NUMBER, quoted
from baddr.domains.cassandra.xml import Element
from baddr.errors import UserError

MOST_PATHS = 2**18  # of a decision diagram

Wrong = Callable[[Element | None, str], UserError]
Column = Int[np.ndarray, " n"]


@dataclass(frozen=True)
class Variable:
    name: str
    values: tuple[str, ...]

    @property
    def size(self) -> int:
        return len(self.values)


@dataclass(frozen=True, eq=False)
class Factor:
    """A function of some variables; what is not listed is 0. A probability is that of its last variable."""

    variables: tuple[Variable, ...]
    place: Int[np.ndarray, " n"]  # of the values of the variables as one number, in order
    value: Float64[np.ndarray, " n"]

    def look_up(self, columns: dict[str, Column]) -> Float64[np.ndarray, " rows"]:
        """The function's value in each row."""
        key = _number(self.variables, columns)
        if not len(self.place):
            return np.zeros(len(key))
        i = np.minimum(np.searchsorted(self.place, key), len(self.place) - 1)
        return np.where(self.place[i] == key, self.value[i], 0.0)


@dataclass(frozen=True, eq=False)
class Rows:
    """Some assignments of values to variables, and the probability of each."""

    columns: dict[str, Column]
    p: Float64[np.ndarray, " n"]

    @staticmethod
    def all(variables: tuple[Variable, ...]) -> "Rows":
        sizes = tuple(variable.size for variable in variables)
        n = int(np.prod(sizes))
        values = np.unravel_index(np.arange(n), sizes) if sizes else ()
        return Rows(dict(zip((v.name for v in variables), values, strict=True)), np.ones(n))

    def number(self, variables: tuple[Variable, ...]) -> Column:
        """What the values of some variables are as one number."""
        return _number(variables, self.columns) if variables else np.zeros(len(self.p), np.int64)

    def with_child(self, factor: Factor) -> "Rows":
        """Each row once for every value of the factor's last variable that may follow."""
        *parents, child = factor.variables
        key = self.number(tuple(parents))
        owner, value = np.divmod(factor.place, child.size)
        first, end = np.searchsorted(owner, key), np.searchsorted(owner, key, side="right")
        each = end - first
        if each.sum() > MOST_PLACES:
            raise TooLarge
        row = np.repeat(np.arange(len(key)), each)
        place = np.arange(each.sum()) - np.repeat(np.cumsum(each) - each, each) + np.repeat(first, each)
        columns = {name: column[row] for name, column in self.columns.items()}
        return Rows(columns | {child.name: value[place]}, self.p[row] * factor.value[place])


def _number(variables: tuple[Variable, ...], columns: dict[str, Column]) -> Column:
    sizes = tuple(variable.size for variable in variables)
    return np.ravel_multi_index([columns[variable.name] for variable in variables], sizes)


def joined(rows: Rows, factors: list[Factor], children: tuple[Variable, ...], wrong: Wrong) -> Rows:
    """With the values of the children, each given its parents; a parent may be a child that comes before."""
    left = list(factors)
    for child in children:
        count = sum(factor.variables[-1].name == child.name for factor in left)
        if count != 1:
            raise wrong(None, f"{quoted(child.name)} needs one <CondProb>, and has {count}")
    while left:
        ready = [f for f in left if all(parent.name in rows.columns for parent in f.variables[:-1])]
        if not ready:
            raise wrong(None, f"the parents of {quoted(left[0].variables[-1].name)} are not known before it")
        rows = rows.with_child(ready[0])
        left.remove(ready[0])
    return rows


# --- from XML ----------------------------------------------------------------------------------------


def factor_of(element: Element, known: tuple[Variable, ...], wrong: Wrong, reward: bool = False) -> Factor:
    """A <CondProb>, or a <Func> that gives rewards."""
    by_name = {variable.name: variable for variable in known}
    parents = _listed(element, "Parent", by_name, wrong)
    child = () if reward else _listed(element, "Var", by_name, wrong)
    if not reward and len(child) != 1:
        raise wrong(element, "a <CondProb> needs one <Var>")
    variables = (*parents, *child)
    if np.prod([float(variable.size) for variable in variables]) > 2.0**62:
        raise TooLarge
    table = Rules(tuple(variable.size for variable in variables))
    parameter = element.first("Parameter")
    if parameter is None or not variables:
        raise wrong(element, "there is no <Parameter>, or no <Parent>")
    kind = parameter.attributes.get("type", "TBL").strip().upper()
    if kind == "TBL":
        for entry in parameter.all("Entry"):
            _add_entry(table, entry, variables, wrong)
    elif kind == "DD":
        _Diagram(table, parameter, variables, by_name, wrong).add()
    else:
        raise wrong(parameter, f"a <Parameter> is of type TBL or DD, not {quoted(kind)}")
    return Factor(variables, *entries(table))


def _listed(element: Element, tag: str, known: dict[str, Variable], wrong: Wrong) -> tuple[Variable, ...]:
    found = element.first(tag)
    words = [] if found is None else [word for word in found.words if word != "null"]
    for word in words:
        if word not in known:
            raise wrong(found, f"{quoted(word)} is no variable that can stand here")
    return tuple(known[word] for word in words)


def _add_entry(table: Rules, entry: Element, variables: tuple[Variable, ...], wrong: Wrong) -> None:
    """<Instance> names a value for each variable, `*` for all of them, or `-` for a table of all of them."""
    instance, values = entry.first("Instance"), entry.first("ProbTable", "ValueTable")
    if instance is None or values is None:
        raise wrong(entry, "an <Entry> needs an <Instance> and a <ProbTable> or <ValueTable>")
    words = instance.words
    if len(words) != len(variables):
        n = len(variables)
        raise wrong(instance, f"expected {n} value{'s' * (n > 1)}, found {len(words)}")
    free = [i for i, word in enumerate(words) if word == "-"]
    index = [_value(word, variable, instance, wrong) for word, variable in zip(words, variables, strict=True)]
    shape = tuple(variables[i].size for i in free)
    found = _numbers(values, shape, variables[-1].size, wrong)
    if not free or isinstance(found, float | int):
        table.add(tuple(index), float(np.asarray(found).ravel()[0]))
        return
    table.add(tuple(index), 0.0)
    where = np.nonzero(found)
    for i, place in zip(free, where, strict=True):
        index[i] = place  # type: ignore[call-overload]
    table.add_many(tuple(index), found[where])


def _value(word: str, variable: Variable, element: Element, wrong: Wrong) -> int:
    if word in ("*", "-"):
        return EVERY
    if word in variable.values:
        return variable.values.index(word)
    if word.isdecimal() and int(word[:9]) < variable.size:
        return int(word[:9])
    raise wrong(element, f"{quoted(word)} is no value of {quoted(variable.name)}")


def _numbers(
    element: Element, shape: tuple[int, ...], outcomes: int, wrong: Wrong
) -> Float64[np.ndarray, "..."] | float:
    """`uniform`, `identity`, or as many numbers as the shape holds."""
    words, n = element.words, int(np.prod(shape))
    if words == ["uniform"]:
        return 1 / outcomes
    if words == ["identity"] and len(shape) == 2 and shape[0] == shape[1]:
        return np.eye(shape[0])
    if len(words) != n or not all(map(NUMBER.fullmatch, words)):
        numbers, given = f"{n} number{'s' * (n > 1)}", f"{len(words)} word{'s' * (len(words) != 1)}"
        raise wrong(element, f"expected {numbers}, found {given}")
    found = np.array(words, np.float64).reshape(shape)
    if element.tag == "ProbTable" and not np.all((found >= 0) & (found <= 1)):
        raise wrong(element, "a probability lies in [0, 1]")
    if not np.all(np.isfinite(found)):
        raise wrong(element, "expected numbers that a float64 can hold")
    return found


class _Diagram:
    """A decision diagram: nodes look at a variable, and what none looks at does not matter."""

    def __init__(
        self, table: Rules, parameter: Element, variables: tuple[Variable, ...], known: Any, wrong: Wrong
    ):
        self.table, self.parameter, self.variables, self.wrong = table, parameter, variables, wrong
        self.axis = {variable.name: i for i, variable in enumerate(variables)}
        self.templates = {found.attributes.get("id", ""): found for found in parameter.all("SubDAGTemplate")}
        self.paths = 0

    def add(self) -> None:
        diagram = self.parameter.first("DAG")
        if diagram is None:
            raise self.wrong(self.parameter, "a decision diagram needs a <DAG>")
        self.follow(diagram, (EVERY,) * len(self.variables))

    def follow(self, element: Element, index: tuple[int, ...]) -> None:
        """What is in an edge, or in the whole diagram."""
        self.paths += 1
        if self.paths > MOST_PATHS:
            raise TooLarge
        for inner in element.children:
            if inner.tag == "Node":
                axis = self.axis_of(inner, "var")
                for edge in sorted(inner.all("Edge"), key=lambda edge: edge.attributes.get("val") != "*"):
                    self.follow(edge, self.fixed(index, axis, edge, "val"))
            elif inner.tag == "Terminal":
                self.table.add(index, float(np.ravel(_numbers(inner, (), 1, self.wrong))[0]))
            elif inner.tag == "SubDAG":
                self.follow_part(inner, index)

    def follow_part(self, part: Element, index: tuple[int, ...]) -> None:
        kind = part.attributes.get("type", "")
        if kind == "template":
            template = self.templates.get(part.attributes.get("idref", ""))
            if template is None:
                raise self.wrong(part, "there is no <SubDAGTemplate> of this id")
            self.follow(template, index)
        elif kind == "uniform":
            self.table.add(index, 1 / self.variables[self.axis_of(part, "var")].size)
        elif kind == "deterministic":
            self.table.add(self.fixed(index, self.axis_of(part, "var"), part, "val"), 1.0)
        elif kind == "persistent":
            self.stays(part, index)
        else:
            raise self.wrong(part, "a <SubDAG> is deterministic, persistent, uniform or a template")

    def stays(self, part: Element, index: tuple[int, ...]) -> None:
        """The last variable has the value that it had before the step: that of the parent of as many values
        which the diagram is about."""
        child = self.axis_of(part, "var")
        same = [i for i, v in enumerate(self.variables[:-1]) if v.values == self.variables[child].values]
        own = [i for i in same if _stem(self.variables[i].name) == _stem(self.variables[child].name)] or same
        if len(own) != 1:
            raise self.wrong(part, "a persistent variable needs itself as a parent")
        for value in range(self.variables[child].size):
            if index[own[0]] in (EVERY, value):
                fixed = list(index)
                fixed[own[0]] = fixed[child] = value
                self.table.add(tuple(fixed), 1.0)

    def axis_of(self, element: Element, attribute: str) -> int:
        name = element.attributes.get(attribute, "").strip()
        if name not in self.axis:
            raise self.wrong(element, f"{quoted(name)} is no variable that can stand here")
        return self.axis[name]

    def fixed(self, index: tuple[int, ...], axis: int, element: Element, attribute: str) -> tuple[int, ...]:
        word = element.attributes.get(attribute, "").strip()
        value = _value(word, self.variables[axis], element, self.wrong)
        return (*index[:axis], value, *index[axis + 1 :])


def _stem(name: str) -> str:
    """rover_0 and rover_1 are the same variable before and after a step."""
    return name.rstrip("01'_")
