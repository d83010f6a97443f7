"""Settings are of their types, wherever they come from: a flag, a config file, a result folder, Python."""

import copy
from dataclasses import fields, is_dataclass, replace
from typing import Any, Literal, get_args, get_origin

import pytest

import baddr
from baddr.agents import AGENTS
from baddr.agents.kinds import KINDS, find, settings_of
from baddr.cli import main
from baddr.domains.catalog import DOMAINS, entry
from baddr.errors import UserError
from baddr.files.settings import misfit, problems, types_of
from baddr.files.store import Folder
from baddr.lab.experiment import from_toml, of_folder, preset, to_config

EVERY = {f"domain of {name}": entry(name).settings for name in (*DOMAINS, "cassandra")}
EVERY |= {f"{group} {kind}": settings_of(group, kind) for group, known in KINDS.items() for kind in known}
for agent in (find(home)() for home in AGENTS.values()):
    EVERY |= {type(group).__name__: group for group in agent.groups().values()}


def with_value(settings: Any, name: str, value: Any) -> Any:
    """As outside the tests, where nobody checks types before us."""
    changed = copy.copy(settings)
    object.__setattr__(changed, name, value)
    return changed


def wrong_values(kind: Any) -> list[Any]:
    """Values that are not of a type, though some code might take them."""
    if get_origin(kind) is Literal:
        return [f"{get_args(kind)[0]}x", 3, True]
    plain: dict[Any, list[Any]] = {
        int: [True, 1.0, "1", 2**31, 10**20],
        float: ["1.0", True, float("nan"), float("inf"), 1e39, 10**400],
        bool: [1, "yes"],
        str: [1, "\udcff"],
    }
    return plain.get(kind, [])


@pytest.mark.parametrize("name", EVERY)
def test_every_field_of_every_settings_class_is_checked(name):
    """A value of another type, a word that is no choice, a number that float32 or int32 has not."""
    settings = EVERY[name]
    for field in fields(settings):
        kind = types_of(type(settings))[field.name]
        for value in (x for x in wrong_values(kind) if x != field.default):
            found = problems(with_value(settings, field.name, value), "group.")
            said = f"group.{field.name.replace('_', '-')} must"
            assert [x for x in found if x.startswith(said)] == found and len(found) == 1, (field.name, value)
            assert len(found[0]) < 200


@pytest.mark.parametrize(
    ("value", "kind", "sentence"),
    [
        (("raw", "row"), Literal["raw"] | tuple[Literal["raw"], ...], "one must be raw, not 'row'"),
        ("row", Literal["raw"] | tuple[Literal["raw"], ...], "must be raw, not 'row'"),
        (("raw",), Literal["raw"] | tuple[Literal["raw"], ...], None),
        ((1, 2.5), tuple[int, ...], "must be of type int, not 2.5"),
        ((1, 2), tuple[int, float], None),
        ((1,), tuple[int, float], "must have 2 entries, not 1"),
        (None, int | None, None),
        ("x", int | None, "must be of type int"),
    ],
)
def test_entries_of_tuples_are_checked(value, kind, sentence):
    found = misfit(value, kind)
    assert found is None if sentence is None else found is not None and sentence in found


MISSPELT = [
    ("filter", "kind", "rejecton", "did you mean 'rejection'"),
    ("filter", "resampling", "sytematic", "resampling must be systematic or independent"),
    ("planner", "backup", "maxx", "backup must be mean or max"),
    ("network", "dropout_placement", "frist", "must be first or all"),
    ("network", "inputs", ["raw", "one-hot"], "one must be raw, scaled or onehot"),
    ("pretrain", "optimizer", "adm", "must be sgd or adam"),
]


@pytest.mark.parametrize(("group", "name", "value", "sentence"), MISSPELT)
def test_a_misspelt_choice_is_refused_in_files_folders_and_python(group, name, value, sentence, tmp_path):
    start = preset("tiger", kinds={"planner": "po-uct"})
    path = tmp_path / "c.toml"
    path.write_text(f"[{group}]\n{name} = {value!r}\n")
    with pytest.raises(UserError, match=sentence):
        from_toml(path, start)
    lines = to_config(start).decode().splitlines()
    at = lines.index(f"[{group}]")
    kept = [line for i, line in enumerate(lines) if not (i > at and line.startswith(f"{name} ="))]
    (tmp_path / "config.toml").write_text(
        "\n".join([*kept[: at + 1], f"{name} = {value!r}", *kept[at + 1 :]])
    )
    (tmp_path / "manifest.json").write_text("{}")
    with pytest.raises(UserError, match=sentence):
        of_folder(Folder(tmp_path))
    with pytest.raises(UserError, match=sentence):
        baddr.run("tiger", **{f"{group}.{name}": tuple(value) if isinstance(value, list) else value})
    if name != "kind":
        settings, value = start.settings.groups()[group], tuple(value) if isinstance(value, list) else value
        with pytest.raises(UserError, match=sentence):
            start.changed(**{group: with_value(settings, name, value)}).check()


def test_a_range_is_checked_in_a_result_folder(tmp_path):
    experiment = preset("tiger", "pomcp")
    bad = experiment.changed(filter=replace(experiment.settings.filter, num_particles=0))
    (tmp_path / "config.toml").write_bytes(to_config(bad))
    (tmp_path / "manifest.json").write_text("{}")
    with pytest.raises(UserError, match="num-particles must be at least 1"):
        of_folder(Folder(tmp_path))


@pytest.mark.parametrize(
    ("flags", "sentence"),
    [
        (("--runs", 10**20), "--runs must be at most 2147483647"),
        (("--domain.horizon", 2**31), "domain.horizon must be at most 2147483647"),
        (("--filter.resample-below", "inf"), "filter.resample-below must be a finite number"),
        (("--seed", 2**32), "--seed must lie between"),
    ],
)
def test_flags_are_checked_by_the_same_code(flags, sentence, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as exit:
        main(["run", "tiger", "--agent", "pomcp", *map(str, flags)])
    error = capsys.readouterr().err
    assert exit.value.code == 2 and sentence in error and error.count("\n") <= 2
    assert not list(tmp_path.iterdir())


def test_every_settings_class_is_a_dataclass():
    assert all(map(is_dataclass, EVERY.values()))
