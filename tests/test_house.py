"""The house: imports go one way, one file asks for the backend, no function is too long or takes too much."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent / "src" / "baddr"
# A room imports from those to its left, and from itself. (`posteriors` and `planners` are beside each other.)
ROOMS = [
    "errors",
    "files",
    "core",
    "exact",
    "life",
    "posteriors",
    "planners",
    "solve",
    "fast",
    "domains",
    "agents",
    "lab",
    "paper",
    "bench",
    "cli",
    "gym",
]
MOST_LINES, MOST_PARAMETERS, CORE_LINES = 60, 8, 1600
JAX_FREE = ["errors", "files", "planners", "planners.po_uct", "posteriors.settings", "core.filters"]
JAX_FREE += ["solve.point_based", "domains.cassandra.sparse"]
JAX_FREE += ["domains.catalog", "agents.kinds", "agents.dpfrl", "agents.own", "lab.experiment", "cli.help"]

FILES = sorted(ROOT.rglob("*.py"))
name_of = lambda path: str(path.relative_to(ROOT))


def room(path: Path) -> str:
    return path.relative_to(ROOT).parts[0].removesuffix(".py")


def imported(tree: ast.AST) -> set[str]:
    """The rooms that a module imports from, wherever in it."""
    froms = [n.module for n in ast.walk(tree) if isinstance(n, ast.ImportFrom) and n.module]
    plain = [a.name for n in ast.walk(tree) if isinstance(n, ast.Import) for a in n.names]
    return {name.split(".")[1] for name in [*froms, *plain] if name.startswith("baddr.")}


@pytest.mark.parametrize("path", FILES, ids=name_of)
def test_imports_go_one_way(path: Path) -> None:
    here = room(path)
    if here not in ROOMS:
        return  # the package's own door
    later = {other for other in imported(ast.parse(path.read_text())) & {*ROOMS}}
    assert not {other for other in later if ROOMS.index(other) > ROOMS.index(here)}


def functions() -> list[tuple[str, ast.FunctionDef]]:
    found = []
    for path in FILES:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.FunctionDef):
                found.append((f"{name_of(path)}:{node.name}", node))
    return found


def test_no_function_is_long() -> None:
    def lines(node: ast.FunctionDef) -> int:
        body = node.body[ast.get_docstring(node) is not None :]
        return len({x.lineno for part in body for x in ast.walk(part) if hasattr(x, "lineno")})

    assert not [name for name, node in functions() if lines(node) > MOST_LINES]


def test_no_function_takes_too_much() -> None:
    def parameters(node: ast.FunctionDef) -> int:
        arguments = node.args
        return len([*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs])

    assert not [name for name, node in functions() if parameters(node) > MOST_PARAMETERS]


def classes() -> dict[str, tuple[list[str], dict[str, bool]]]:
    """Of each class its bases, and whether each of its methods is abstract."""
    found = {}
    for path in FILES:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ClassDef):
                bases = [ast.unparse(base).partition("[")[0].rpartition(".")[2] for base in node.bases]
                methods = [x for x in node.body if isinstance(x, ast.FunctionDef) and x.name[:2] != "__"]
                abstract = lambda x: any("abstract" in ast.unparse(d) for d in x.decorator_list)
                found[node.name] = bases, {x.name: abstract(x) for x in methods}
    return found


def test_no_concrete_method_is_overridden() -> None:
    """A method is abstract or final."""
    known = classes()

    def above(name: str) -> set[str]:
        bases = {base for base in known[name][0] if base in known and base != name}
        return bases.union(*map(above, bases))

    overridden = [
        f"{name}.{method} of {base}"
        for name, (_, methods) in known.items()
        for base in above(name)
        for method in methods
        if known[base][1].get(method) is False
    ]
    assert overridden == []


def test_one_file_asks_for_the_backend() -> None:
    asks = [name_of(path) for path in FILES if "default_backend" in path.read_text()]
    assert asks == ["fast/backend.py"]


def test_the_core_reads_in_an_hour() -> None:
    assert sum(path.read_text().count("\n") for path in FILES if room(path) == "core") <= CORE_LINES


def test_a_posterior_has_four_methods() -> None:
    from baddr.core.posterior import Posterior

    own = {name for name, value in vars(Posterior).items() if callable(value) and not name.startswith("_")}
    assert own == {"prior", "draw", "dynamics", "update"} == set(Posterior.__abstractmethods__)


@pytest.mark.parametrize("module", JAX_FREE)
def test_what_the_command_line_needs_for_help_needs_no_jax(module: str) -> None:
    code = f"import sys, baddr.{module}; sys.exit('jax' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


def test_importing_baddr_changes_no_environment_variable() -> None:
    code = "import os; before = dict(os.environ); import baddr, baddr.fast.runs\n"
    code += "assert dict(os.environ) == before"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
