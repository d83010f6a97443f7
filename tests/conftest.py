"""Strict settings for every test: shapes and types checked, no silent promotion."""

import gc
import os
import signal
import threading
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path

import pytest

# The tests spend most of their time compiling. Half of it goes without LLVM's optimisations, and a third of
# the rest without XLA's newer way to write kernels, which sets up MLIR for each of them. (Not all versions
# know that flag, and XLA ends a process for one that it does not know.)
if "XLA_FLAGS" not in os.environ:
    emitters = " --xla_cpu_use_fusion_emitters=false" * version("jaxlib").startswith("0.10.")
    os.environ["XLA_FLAGS"] = f"--xla_backend_optimization_level=0{emitters}"

# Compiled code is kept between test processes, and the user's own cache is left alone.
os.environ.setdefault("BADDR_CACHE", str(Path(__file__).parent.parent / ".pytest_cache" / "baddr"))

# A shell without job control lets what it starts in the background ignore Ctrl-C, and so do their children.
ignored, main = signal.getsignal(signal.SIGINT) is signal.SIG_IGN, threading.main_thread()
if ignored and threading.current_thread() is main:
    signal.signal(signal.SIGINT, signal.default_int_handler)

from baddr.fast.compiler import compile_small_loops  # noqa: E402

compile_small_loops()  # as the command line does

import jax  # noqa: E402
import jaxtyping  # noqa: E402

# Modules that name shapes have them checked at run time; plain types are pyright's, for nothing.
SRC = Path(__file__).parent.parent / "src"
SHAPES = [
    x.relative_to(SRC) for x in (SRC / "baddr").rglob("*.py") if "from jaxtyping import" in x.read_text()
]
jaxtyping.install_import_hook([".".join(x.with_suffix("").parts) for x in SHAPES], "beartype.beartype")

jax.config.update("jax_numpy_rank_promotion", "raise")
jax.config.update("jax_numpy_dtype_promotion", "strict")
jax.config.update("jax_compilation_cache_dir", str(Path(os.environ["BADDR_CACHE"]) / "tests"))
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.3)


@pytest.fixture
def unchecked() -> Iterator[None]:
    """Shapes are not checked: for whole commands, as each function that they trace has tests that check its
    shapes (`test_dry_run_and_trace` has every domain with every agent). A quarter of tracing is checking."""
    jaxtyping.config.update("jaxtyping_disable", True)
    yield
    jaxtyping.config.update("jaxtyping_disable", False)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--slow", action="store_true", help="also run the tests that take minutes")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if config.getoption("--slow"):
        return
    kept = covering([x for x in items if "cover" in x.keywords and "slow" not in x.keywords])
    for item in items:
        if "slow" in item.keywords:
            item.add_marker(pytest.mark.skip(reason="takes minutes: --slow runs it"))
        elif "cover" in item.keywords and item not in kept:
            item.add_marker(pytest.mark.skip(reason="others have its parameters: --slow runs it"))


def covering(items: list[pytest.Item]) -> set[pytest.Item]:
    """Of each test so many that every value of each of its parameters occurs, greedily."""
    values = {item: {(item.nodeid.partition("[")[0], *x) for x in parameters(item)} for item in items}
    missing, kept = set().union(*values.values()), set()
    while missing:
        best = max(items, key=lambda item: len(values[item] & missing))
        kept.add(best)
        missing -= values[best]
    return kept


def parameters(item: pytest.Item) -> list[tuple[str, str]]:
    return [(name, repr(value)) for name, value in item.callspec.params.items()]  # type: ignore[attr-defined]


# Each compiled program takes some of a process's memory maps, of which Linux allows 65,530. XLA crashes when
# there are no more, so a process that has many forgets its programs. What is on disk is found again.
MOST_MAPS = 25_000


def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> None:
    maps = Path("/proc/self/maps")
    if nextitem is not None and maps.exists() and maps.read_bytes().count(b"\n") > MOST_MAPS:
        jax.clear_caches()
        gc.collect()
