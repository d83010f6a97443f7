"""What differs between Linux, macOS and Windows, with the attributes hidden that they lack."""

import ast
import os
import sys
import types
from pathlib import Path

import pytest

import baddr
from baddr.errors import UserError
from baddr.files import machine
from baddr.files.store import Folder


def test_cores_and_memory_are_those_of_this_process():
    assert machine.num_cores() == len(os.sched_getaffinity(0))
    assert 2**28 < machine.memory() < 2**50


def test_macos_has_no_affinity(monkeypatch):
    monkeypatch.delattr(os, "sched_getaffinity")
    assert machine.num_cores() == os.cpu_count()
    monkeypatch.setattr(os, "cpu_count", lambda: None)
    assert machine.num_cores() == 1


def test_a_system_that_does_not_say_its_memory_has_some(monkeypatch):
    def unknown(name: str) -> int:
        raise ValueError("unrecognized configuration name")

    monkeypatch.setattr(os, "sysconf", unknown)
    assert machine.memory() == machine.SOME_MEMORY
    monkeypatch.delattr(os, "sysconf")
    assert machine.memory() == machine.SOME_MEMORY


def test_windows_locks_by_its_own_means(tmp_path, monkeypatch):
    """A stand-in for msvcrt, which holds a file for whoever asks first."""
    held: list[str] = []

    def locking(descriptor: int, mode: int, size: int) -> None:
        if held:
            raise OSError("held")
        held.append("us")

    monkeypatch.setitem(sys.modules, "fcntl", None)
    monkeypatch.setitem(sys.modules, "msvcrt", types.SimpleNamespace(locking=locking, LK_NBLCK=2))
    with Folder(tmp_path).owned():
        assert held == ["us"]
        with pytest.raises(UserError, match="Another program"), Folder(tmp_path).owned():
            pass


def test_nobody_else_asks_the_system():
    """Elsewhere, what macOS or Windows lacks would be met only there."""
    root = Path(baddr.__file__).parent
    asked = {"sched_getaffinity", "sysconf", "fcntl", "msvcrt", "resource"}
    for path in sorted(root.rglob("*.py")):
        if path == root / "files" / "machine.py":
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            name = node.attr if isinstance(node, ast.Attribute) else None
            names = {alias.name for alias in node.names} if isinstance(node, ast.Import) else {name}
            assert names.isdisjoint(asked), f"{path.name}: {names & asked}"
