"""`--prior DIR`: the beliefs that another experiment ended with, as the prior of this one. Needs no JAX."""

import shutil
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from baddr.agents import AGENTS
from baddr.agents.kinds import KINDS, agent_class, kind_of, kinds_in
from baddr.domains.catalog import entry, is_python
from baddr.errors import UserError
from baddr.files.store import Folder
from baddr.files.toml import read_toml
from baddr.files.writing import write
from baddr.lab.experiment import AnyExperiment, of_values
from baddr.lab.sources import check_sources
from baddr.lab.spans import spans_in


def check_prior(experiment: AnyExperiment) -> None:
    """Refuse a learned belief that does not fit this experiment. No file that the other one names is executed
    which this one does not name too."""
    source = Folder(Path(experiment.prior))
    source.check_existing()
    values, manifest = read_toml(source.config), source.read_experiment_manifest()
    where, named = f"--prior {source.path}", (values.get("name"), values.get("agent"))
    groups = experiment.settings.groups()
    own = {name: kind_of(name, group) for name, group in groups.items() if name in KINDS}
    theirs = {name: kind for name, kind in kinds_in(values).items() if name == "posterior"}
    fits = named == (experiment.name, experiment.agent) and all(own.get(x) == theirs[x] for x in theirs)
    if not fits or not experiment.settings.learns:
        raise _unfit(where, values)
    check_sources({"name": named[0], **{name: values[name] for name in theirs}}, manifest, source)
    other = of_values(_less_own(values), source)
    if _shape(other) != _shape(experiment):
        raise _unfit(where, values)
    if other.keep_beliefs == "no":
        raise UserError(f"{where}: that experiment did not keep its beliefs (--keep-beliefs).")
    if manifest["status"] != "complete":
        raise UserError(
            f"{where}: that experiment is not finished; `baddr resume {source.path}` finishes it."
        )


def _unfit(where: str, theirs: Mapping[str, Any]) -> UserError:
    name, agent, filter = (theirs.get(field) for field in ("name", "agent", "filter"))
    particles = filter.get("num_particles", "no") if isinstance(filter, Mapping) else "no"
    shares = agent in AGENTS and agent_class(str(agent)).shares
    same = ", and with the same --seed and --domain settings" if shares else ""
    seed = f" and seed {theirs.get('seed')}" if shares else ""
    return UserError(
        f"{where}: a learned belief only fits the same agent on the same domain of the same size, with the "
        f"same network and number of particles{same}; that experiment was {agent} on {name} with "
        f"{particles} particles{seed}."
    )


def _less_own(values: Mapping[str, Any]) -> dict[str, Any]:
    """Without a planner, and with a built-in filter: a belief does not depend on whose they were."""
    values = {name: value for name, value in values.items() if name != "planner"}
    filter = values.get("filter")
    if isinstance(filter, Mapping) and is_python(str(filter.get("kind", ""))):
        size = {name: filter[name] for name in ("num_particles",) if name in filter}
        values["filter"] = {"kind": "importance", "rejuvenate": False, **size}
    return values


def _shape(experiment: AnyExperiment) -> Any:
    """What a belief of one experiment must share with that of another to take its place."""
    groups = experiment.settings.groups()
    filter = groups.pop("filter", None)
    rest = {name: group for name, group in groups.items() if name not in ("planner", "pretrain")}
    names = entry(experiment.name).names(experiment.domain)
    sizes = [len(values) for _, values in (*names.state, *names.observation)], len(names.action)
    shared = (experiment.seed, experiment.domain) if experiment.settings.shares else ()
    particles = getattr(filter, "num_particles", type(filter))
    moves = getattr(filter, "rejuvenate", False) and filter.history  # type: ignore[union-attr]
    return experiment.name, experiment.agent, sizes, particles, moves, rest, shared


def copy_prior(source: Folder, target: Folder) -> None:
    """All that `_learned_beliefs` reads, so that the other experiment may go. Nothing there is changed."""
    shutil.rmtree(target.path, ignore_errors=True)  # of a program that was killed before it started
    manifest = source.read_manifest()
    for number, _ in enumerate(spans_in(manifest.get("chunks"), source.manifest)):
        packed = source.newest(number)
        if packed is None:
            raise UserError(f"--prior {source.path}: its chunk {number} has no checkpoint.")
        target.keep(number, packed)
    target.write_manifest(manifest)
    write(target.config, source.config.read_bytes())


def with_absolute_prior(experiment: AnyExperiment) -> AnyExperiment:
    """So that it can be resumed from anywhere."""
    return replace(experiment, prior=str(Path(experiment.prior).absolute()) if experiment.prior else "")


def prior_of(experiment: AnyExperiment, folder: Folder) -> Path | None:
    """Where the beliefs are that runs start from: the folder's copy. Older folders have none."""
    if not experiment.prior:
        return None
    return folder.prior.path if folder.prior.config.exists() else Path(experiment.prior)
