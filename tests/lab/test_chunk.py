"""A chunk tells its rows early, and comes out the same however its steps are put into blocks."""

import json
from dataclasses import replace

import numpy as np

from baddr.lab import chunk
from baddr.lab.chunk import Chunk, Work
from baddr.lab.experiment import preset
from baddr.lab.runner import resolve


def test_blocks_grow_while_steps_are_quick_and_shrink_where_they_are_not(monkeypatch):
    random = preset("tiger", "random")
    few = random.changed(filter=replace(random.settings.filter, num_particles=8))
    small = replace(few, runs=2, episodes=12, chunk_size=2)
    experiment, _, life, _ = resolve(small)
    found, blocks = [], []
    for seconds in (1e9, 0.0):
        monkeypatch.setattr(chunk, "SECONDS_PER_BLOCK", seconds)
        runs = Chunk(Work(experiment, life), 0, 2, None)
        runs.block, sizes = (1 if seconds else 4), []
        told = []
        while not runs.finished:
            sizes.append(runs.block)
            told.append(runs.advance())
        found.append({name: np.concatenate([rows[name] for rows in told]) for name in told[0]})
        assert not len(runs.rows["run"]) and runs.told.tolist() == [12, 12]
        blocks.append(sizes)
    assert max(blocks[0]) == chunk.STEPS_PER_BLOCK and sorted(blocks[0]) == blocks[0]
    assert blocks[1][:4] == [4, 2, 1, 1] and set(blocks[1][2:]) == {1}
    order = [np.lexsort((rows["episode"], rows["run"])) for rows in found]
    for name in found[0]:
        np.testing.assert_array_equal(found[0][name][order[0]], found[1][name][order[1]])


def test_a_checkpoint_of_an_older_version_goes_on_without_what_it_lacks():
    """It has no ancestors and no sights: rows from before say -1, and all else is as it would have been."""
    counts = preset("tiger", "ba-pomcp", kinds={"planner": "po-uct"})
    planner = replace(counts.settings.planner, num_simulations=8)
    few = counts.changed(filter=replace(counts.settings.filter, num_particles=8), planner=planner)
    experiment, _, life, _ = resolve(replace(few, runs=2, episodes=6, chunk_size=2))
    whole, told = Chunk(Work(experiment, life), 0, 2, None), []
    joined = lambda parts: {name: np.concatenate([rows[name] for rows in parts]) for name in parts[0]}
    while sum(len(rows["run"]) for rows in told) < 4:
        told.append(whole.advance())
    saved, left = whole.checkpoint(), joined(told)
    new = ("distinct_ancestors", "accuracy_seen_0", "accuracy_seen_1")
    older = saved | {f"rows/{name}": column for name, column in left.items()}  # they were kept there
    for name in [f"rows/{x}" for x in new] + [name for name in saved if name.startswith("state/")][-2:]:
        del older[name]  # the ancestors, and what was seen of both doors
    note = json.loads(bytes(saved["note"]))
    older["note"] = np.frombuffer(
        json.dumps({k: x for k, x in note.items() if k != "told"}).encode(), np.uint8
    )
    resumed, again = Chunk(Work(experiment, life), 0, 2, older), []
    while not whole.finished:
        told.append(whole.advance())
    while not resumed.finished:
        again.append(resumed.advance())
    before, mine = len(left["run"]), joined(again)
    for name, column in joined(told).items():
        if name in new:
            assert (mine[name][:before] == -1).all() and (mine[name][before:] >= 0).all()
        else:
            np.testing.assert_array_equal(mine[name], column)
