"""A chunk tells its rows early, and comes out the same however its steps are put into blocks."""

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
        while not runs.finished:
            sizes.append(runs.block)
            runs.advance()
        found.append(runs.rows)
        blocks.append(sizes)
    assert max(blocks[0]) == chunk.STEPS_PER_BLOCK and sorted(blocks[0]) == blocks[0]
    assert blocks[1][:4] == [4, 2, 1, 1] and set(blocks[1][2:]) == {1}
    order = [np.lexsort((rows["episode"], rows["run"])) for rows in found]
    for name in found[0]:
        np.testing.assert_array_equal(found[0][name][order[0]], found[1][name][order[1]])
