"""What `run`, `resume` and `sweep` say: before, what would run; after, what came of it, with pictures."""

import sys
from typing import Any

from baddr.files.manifest import gaps_of
from baddr.files.store import Folder, load_results
from baddr.lab.experiment import AnyExperiment


def describe_plan(experiment: AnyExperiment, estimate: dict[str, Any]) -> str:
    """What `--dry-run` prints."""
    minutes = estimate["seconds"] / 60
    return (
        f"{experiment.title}: {experiment.runs} runs of {experiment.episodes} episodes "
        f"in {estimate['chunks']} chunk(s) of {estimate['runs_per_chunk']} runs on a {estimate['device']}.\n"
        f"memory about {estimate['memory_bytes'] / 2**20:.0f} MiB, "
        f"disk at most {estimate['disk_bytes'] / 2**20:.0f} MiB, "
        f"time about {minutes:.1f} minutes and a compilation. Nothing was run." + _describe_cluster(estimate)
    )


def _describe_cluster(estimate: dict[str, Any]) -> str:
    cluster = estimate["engine"]
    if cluster["name"] != "ray":
        return ""
    gpus = f" and {cluster['gpus_per_chunk']:g} GPU" if cluster["gpus_per_chunk"] else ""
    return (
        f"\nRay: {cluster['nodes']} node(s), {cluster['chunks_at_a_time']} chunk(s) at a time, "
        f"each with {cluster['cpus_per_chunk']:g} CPU{gpus}."
    )


def finish(experiment: AnyExperiment, folder: Folder, failures: list[Any]) -> int:
    """The pictures and the summary; the exit code."""
    from baddr.lab.plots import plot_belief, plot_curves, plot_histograms

    results, title = load_results(folder.path), experiment.title
    if len(results["run"]):
        paths = [folder.path / "curve.png", folder.path / "curve.svg"]
        plot_curves({title: results}, "", paths)
        plot_belief(results, title, folder.path / "belief.png")
        plot_histograms(results, title, lambda name: getattr(experiment.domain, name, None), folder.path)
        print(summary(experiment, folder, results))
    for failure in failures:
        print(
            f"baddr: run {failure.run} failed in episode {failure.episode}, step {failure.step}: "
            "its belief (or its weights) holds a NaN or an infinity; its earlier episodes are kept.",
            file=sys.stderr,
        )
    return 3 if failures else 0


def summary(experiment: AnyExperiment, folder: Folder, results: dict[str, Any]) -> str:
    """One screen about the results."""
    from baddr.lab.statistics import mean_interval, per_run

    table = per_run(results, "discounted_return")
    episodes = table.shape[1]
    tenth = max(1, episodes // 10)
    blocks = [(0, tenth), (episodes // 2, episodes // 2 + tenth), (episodes - tenth, episodes)]
    lines = [f"{experiment.title}: {len(table)} runs of {episodes} episodes"]
    lines.append("  discounted return, mean over runs with its 95 % interval")
    for first, last in dict.fromkeys(blocks):
        mean = mean_interval(table[:, first:last])
        which = f"episode {first + 1}" if last == first + 1 else f"episodes {first + 1}-{last}"
        lines.append(f"    {which:18s} {mean.value:9.3f}   {mean.interval}")
    manifest = folder.read_manifest()
    lines += _about_prior(manifest) + _about_depletion(results)
    lines.append(f"  wall time {manifest['wall_seconds']:.0f} s; results in {folder.path}")
    return "\n".join(lines)


def _about_prior(manifest: dict[str, Any]) -> list[str]:
    if not (gaps := gaps_of(manifest)):
        return []
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
