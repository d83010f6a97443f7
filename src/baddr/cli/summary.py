"""What `run`, `resume` and `sweep` say: before, what would run; after, what came of it, with pictures."""

import sys
from typing import Any

from baddr.domains.catalog import entry
from baddr.errors import counted
from baddr.files.manifest import gaps_of
from baddr.files.store import Folder, load_results
from baddr.lab.experiment import AnyExperiment
from baddr.lab.output import in_line


def describe_plan(experiment: AnyExperiment, estimate: dict[str, Any]) -> str:
    """What `--dry-run` prints."""
    chunks, size = counted(estimate["chunks"], "chunk"), counted(estimate["runs_per_chunk"], "run")
    return (
        f"{experiment.title}: {counted(experiment.runs, 'run')} of {counted(experiment.episodes, 'episode')} "
        f"in {chunks} of {size} on a {estimate['device']}.\n"
        f"memory about {estimate['memory_bytes'] / 2**20:.0f} MiB, "
        f"disk at most {estimate['disk_bytes'] / 2**20:.0f} MiB, "
        f"time {_how_long(estimate)}{_describe_cluster(estimate)}"
    )


def _how_long(estimate: dict[str, Any]) -> str:
    """By a few steps that were computed, or by a rule of thumb."""
    from baddr.lab.measure import said

    about = said(estimate["seconds"])
    if estimate["measured"]:
        most = "at most " * estimate["longest"]
        return f"{most}about {about}: {estimate['measured']}. Nothing was written."
    return f"roughly {about} after training and compilation (a rule of thumb). Nothing was run."


def _describe_cluster(estimate: dict[str, Any]) -> str:
    cluster = estimate["engine"]
    if cluster["name"] != "ray":
        return ""
    gpus = f" and {cluster['gpus_per_chunk']:g} GPU" if cluster["gpus_per_chunk"] else ""
    return (
        f"\nRay: {cluster['nodes']} node(s), {cluster['chunks_at_a_time']} chunk(s) at a time, "
        f"each with {cluster['cpus_per_chunk']:g} CPU{gpus}."
    )


def finish(experiment: AnyExperiment, folder: Folder, failures: list[Any], reference: str = "none") -> int:
    """The pictures and the summary; the exit code."""
    from baddr.lab.certainty import warning
    from baddr.lab.plots import plot_belief, plot_histograms, plot_run

    results, title = load_results(folder.path), experiment.title
    if len(results["run"]):
        names = entry(experiment.name).names(experiment.domain)
        compared = references_of(experiment, reference)
        paths = [folder.path / "curve.png", folder.path / "curve.svg"]
        plot_run(results, title, paths, names, compared.optimum, compared.lines())
        plot_belief(results, title, folder.path / "belief.png", names)
        plot_histograms(results, title, folder.path, names)
        print(summary(experiment, folder, results))
        if (said := warning(experiment, results, names)) is not None:
            print(f"  {said}")
        if reference != "none":
            print(in_a_sentence(results, compared, names))
    for failure in failures:
        print(
            f"baddr: run {failure.run} failed in episode {failure.episode}, step {failure.step}: "
            "its belief (or its weights) holds a NaN or an infinity; its earlier episodes are kept.",
            file=sys.stderr,
        )
    return 3 if failures else 0


def references_of(experiment: AnyExperiment, reference: str) -> Any:
    """What the result is compared with."""
    from baddr.lab import reference as lab

    if reference == "all":
        return lab.references(experiment)
    best = lab.optimum(experiment.domain, lab.build_domain(experiment)) if reference == "optimum" else None
    return lab.References(None, None, best)


def in_a_sentence(results: dict[str, Any], compared: Any, names: Any) -> str:
    """How much was learned, beside what there was to learn."""
    from baddr.lab.columns import MEAN, entries, stems
    from baddr.lab.statistics import per_run, quarters

    first, last, error = quarters(results)
    said = f"The return went from {first:.2f} (first quarter of the episodes) to {last:.2f} (last quarter)"
    said += f", a difference of {(last - first) / error:.1f} standard errors" if error > 0 else ""
    parts = [
        f"{line.name} is worth {line.value:.2f}" + (f" ± {line.error:.2f}" if line.error else "")
        for line in compared.lines()
    ]
    if compared.optimum is not None:
        lower, upper = (f"{bound:.2f}" for bound in compared.optimum)
        parts.append(f"the optimum is {lower if lower == upper else f'between {lower} and {upper}'}")
    said += "; " + ", ".join(parts) + "." if parts else "."
    for stem in stems(results):
        quantity = names.quantity(stem)
        mine = [per_run(results, name) for name in entries(results, stem, MEAN)]
        if len(set(quantity.truth)) == 1:  # the same truth for all: their mean can be said
            start, end = (sum(float(x[:, i].mean()) for x in mine) / len(mine) for i in (0, -1))
            said += f" The believed {quantity.title} went from {start:.2f} to {end:.2f}; "
            said += f"the truth is {quantity.truth[0]:.2f}."
    return said


def summary(experiment: AnyExperiment, folder: Folder, results: dict[str, Any]) -> str:
    """One screen about the results."""
    from baddr.lab.statistics import mean_interval, per_run

    table = per_run(results, "discounted_return")
    episodes = table.shape[1]
    tenth = max(1, episodes // 10)
    blocks = [(0, tenth), (episodes // 2, episodes // 2 + tenth), (episodes - tenth, episodes)]
    lines = [f"{experiment.title}: {counted(len(table), 'run')} of {counted(episodes, 'episode')}"]
    lines.append("  discounted return: mean over runs, with a 95 % interval")
    for first, last in dict.fromkeys(blocks):
        mean = mean_interval(table[:, first:last])
        which = f"episode {first + 1}" if last == first + 1 else f"episodes {first + 1}-{last}"
        lines.append(f"    {which:18s} {mean.value:9.3f}   {mean.interval}")
    manifest = folder.read_manifest()
    lines += _about_prior(manifest) + _about_depletion(results)
    lines.append(f"  wall time {manifest['wall_seconds']:.0f} s; results in {in_line(folder.path)}")
    return "\n".join(lines)


def _about_prior(manifest: dict[str, Any]) -> list[str]:
    if not (gaps := gaps_of(manifest)):
        return []
    if any(gap != gap for gap in gaps):  # NaN: black boxes, of which nobody knows the entropy
        return [f"  prior: {len(gaps)} network(s); how well they fit is unknown (black boxes)"]
    if "distance" in manifest["prior"]:  # of one network, for many simulators
        half = len(gaps) // 2
        inside, edge = (sum(part) / max(len(part), 1) for part in (gaps[:half], gaps[half:]))
        floor = f"{inside:.4f} nats above the entropy floor, {edge:.4f} at the edge of the prior"
        return [f"  prior: one network for all simulators, cross-entropy {floor}"]
    floor = f"{max(gaps):.4f} nats above the entropy floor at most"
    return [f"  prior: {len(gaps)} network(s), cross-entropy {floor}"]


def _about_depletion(results: dict[str, Any]) -> list[str]:
    names = ("impossible_observations", "filled_particles")
    impossible, filled = (results[name].sum() if name in results else 0 for name in names)
    if not impossible and not filled:
        return []
    return [f"  depletion: {filled} particles filled, {impossible} impossible observations"]
