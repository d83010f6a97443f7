"""The process that talks to a Ray cluster, and the workers there. `engine.Ray` starts it and hears from it.

It places workers, each with the resources of one chunk, and gives them chunk after chunk. Workers keep their
chunk's state; what they have computed, and a checkpoint now and then, goes back to the process that started
this one, which alone writes the result folder. A worker that is lost, with its node or alone, is replaced,
and its chunk goes on from the last checkpoint. This process holds nothing that matters and needs no JAX.
"""

import logging
import os
import platform
import secrets
import socket
import sys
import time
from collections import deque
from contextlib import suppress
from importlib.metadata import version
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, NamedTuple

from baddr.files.machine import num_cores
from baddr.files.store import pack, unpack
from baddr.files.tables import Arrays

SECONDS_PER_CALL = 1.0  # of a worker, between two reports
LOSSES = 5  # of a chunk without a checkpoint between them: then something is wrong with it
SECONDS_UNTIL_WARNING = 60.0
MOST_WAITING = 64  # workers that no node has had room for yet, however many chunks there are
# What Ray raises when its head is gone, before it ends this process.
LOST_HEAD = ("RpcError", "RaySystemError", "LocalRayletDiedError", "GetTimeoutError", "RayChannelError")
Block = tuple[Arrays, bytes | None, bool]  # episodes that ended, a checkpoint, whether the chunk is finished


class Worker:
    """Computes chunks in a process of its own, on some node."""

    def hello(self, environment: dict[str, str], versions: dict[str, str], gpu: bool) -> tuple[str, int]:
        """Set JAX up as it is where the experiment was started; what computes here, and its memory."""
        mine = _versions()
        for name, theirs in versions.items():
            if mine[name] != theirs:
                raise ValueError(
                    f"node {platform.node()} has {name} {mine[name]}, this machine {theirs}: "
                    "results would differ"
                )
        for name in [name for name in os.environ if _shapes_results(name)]:
            del os.environ[name]
        os.environ.update(environment)
        from baddr.lab.device import prepare

        prepare("gpu" if gpu else "cpu")
        import jax

        from baddr.fast.backend import device_memory

        device = jax.devices()[0]
        return device.device_kind, device_memory(device)

    def join(self, hello: tuple[Any, ...], own: list[tuple[str, bytes]], work: bytes, seconds: float) -> str:
        """Get ready for chunks; what computes here."""
        kind, _ = self.hello(*hello)
        for path, source in own:
            from baddr.domains.own import load

            load(Path(path), source)
        import ray.cloudpickle

        self.work, self.seconds = ray.cloudpickle.loads(work), seconds
        return kind

    def start(self, first: int, last: int, saved: bytes | None) -> Block:
        from baddr.lab.chunk import Chunk, Schedule

        arrays = None if saved is None else unpack(saved)
        self.chunk = Chunk(self.work, first, last, arrays)
        self.schedule = Schedule(self.seconds)
        rows = self.chunk.tell()
        return rows, (saved or self._checkpoint()) if self.chunk.finished else None, self.chunk.finished

    def advance(self, stop: bool) -> Block:
        """Blocks of steps for a while."""
        import numpy as np

        started, blocks = time.monotonic(), [self.chunk.tell()]  # no rows, but their columns
        while not stop and not self.chunk.finished:
            blocks.append(self.chunk.advance())
            if time.monotonic() - started > SECONDS_PER_CALL:
                break
        rows = {name: np.concatenate([block[name] for block in blocks]) for name in blocks[0]}
        finished = self.chunk.finished
        due = stop or finished or self.schedule.due
        return rows, self._checkpoint() if due else None, finished

    def _checkpoint(self) -> bytes:
        with self.schedule.checkpoint():
            return pack(self.chunk.checkpoint())


def _versions() -> dict[str, str]:
    return {name: version(name) for name in ("baddr", "jax", "jaxlib", "numpy")}


def _shapes_results(name: str) -> bool:
    """Whether an environment variable may change what is computed."""
    return name == "XLA_FLAGS" or (name.startswith("JAX_") and "CACHE" not in name)


def _joined(address: str) -> Any:
    """Ray, as a member of the cluster at an address, or of a new one on this machine."""
    options: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.ERROR}
    if address == "local":
        options |= {"num_cpus": num_cores(), "include_dashboard": False, "_node_ip_address": "127.0.0.1"}
        # For this machine alone: Ray listens on the loopback, as it always does on macOS and Windows.
        os.environ["RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"] = "0"
        if "RAY_AUTH_MODE" not in os.environ:
            # A secret of its own, or Ray would leave one in the user's home, for other clusters to trip over.
            os.environ |= {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32)}
    elif address != "auto":
        host, _, port = address.rpartition("://")[2].rpartition(":")
        try:  # Ray itself would wait for minutes
            socket.create_connection((host, int(port)), timeout=10).close()
        except ValueError:
            raise ValueError(f"--address must be HOST:PORT, not {address!r}") from None
        except OSError as error:
            raise RuntimeError(f"nothing answers at {address}: {error.strerror or error}") from None
    import ray  # which reads the environment

    ray.init(address, **options)
    return ray


class _Placed(NamedTuple):
    """A worker, and the chunk that it works on (-1: none yet)."""

    actor: Any
    number: int


class Drive:
    """Gives chunks to workers until all are finished."""

    def __init__(self, connection: Connection, settings: dict[str, Any]):
        ray = _joined(settings["address"] or os.environ.get("RAY_ADDRESS") or "local")
        self.ray, self.connection = ray, connection
        self.cpus, gpus = settings["cpus"], settings["gpus"]
        nodes = [node["Resources"] for node in ray.nodes() if node["Alive"]]
        some = any(node.get("GPU", 0) > 0 for node in nodes)
        if gpus < 0:
            gpus = 1.0 if settings["device"] == "gpu" or (settings["device"] == "auto" and some) else 0.0
        self.gpus = gpus
        slots = [self._slots(node) for node in nodes]
        self.environment = {name: value for name, value in os.environ.items() if _shapes_results(name)}
        if gpus:
            self.environment.pop("JAX_PLATFORMS", None)
        remote = ray.remote(num_cpus=self.cpus, num_gpus=self.gpus, max_restarts=0, max_task_retries=0)
        self.worker: Any = remote(Worker)
        shares = [node.get("memory", 8 << 30) / n for node, n in zip(nodes, slots, strict=True) if n]
        memory = min(shares, default=8 << 30)
        if gpus and sum(slots):
            actor = self.worker.remote()
            memory = ray.get(actor.hello.remote(*self._hello()))[1] * min(1.0, gpus)
            ray.kill(actor)
        place = ("gpu" if gpus else "cpu", int(memory), max(1, sum(slots)))
        about = {"name": "ray", "nodes": len(nodes), "cpus_per_chunk": self.cpus, "gpus_per_chunk": gpus}
        connection.send(("ready", place, about | {"chunks_at_a_time": sum(slots)}))

    def _slots(self, node: dict[str, float]) -> int:
        """Chunks that a node computes at the same time."""
        wanted = [(node.get("CPU", 0), self.cpus), (node.get("GPU", 0), self.gpus)]
        return int(min(has // takes for has, takes in wanted if takes))

    def _hello(self) -> tuple[Any, ...]:
        return self.environment, _versions(), self.gpus > 0

    def __call__(self) -> None:
        ray = self.ray
        (own, work), self.seconds, self.spans = self.connection.recv()
        self.work = own, ray.put(work)
        self.queue, self.stopping, self.losses = deque(range(len(self.spans))), False, deque[int]()
        self.calls: dict[Any, _Placed] = {}
        self.kinds: set[str] = set()
        for _ in self.spans[:MOST_WAITING]:
            self._add_worker()
        heard = time.monotonic()
        while self.queue or any(placed.number >= 0 for placed in self.calls.values()):
            while self.connection.poll():
                self.connection.recv()  # "stop"
                self.stopping = True
                self.queue.clear()
            for call in ray.wait(list(self.calls), timeout=0.5)[0]:
                heard = time.monotonic()
                self._hear(call, self.calls.pop(call))
            if time.monotonic() - heard > SECONDS_UNTIL_WARNING and self._idle():
                self._warn_of_waiting()
                heard = time.monotonic()
        self.connection.send(("stopped",))

    def _add_worker(self) -> None:
        """A worker, as soon as some node has room."""
        actor = self.worker.remote()
        joined = actor.join.remote(self._hello(), *self.work, self.seconds)
        self.calls[joined] = _Placed(actor, -1)

    def _hear(self, call: Any, placed: _Placed) -> None:
        ray, (actor, number) = self.ray, placed
        try:
            block = ray.get(call)
        except ray.exceptions.RayTaskError:
            raise
        except ray.exceptions.RayError as error:
            self._lose(number, error)
            return
        if number < 0:
            self._greet(block)
            if len(self.queue) > len(self.calls):  # some will find no worker that waits for a place
                self._add_worker()
        else:
            self.connection.send(("block", number, *block))
            if block[1] is not None:
                self.losses = deque(n for n in self.losses if n not in (number, -1))
            if not block[2] and not (self.stopping and block[1] is not None):
                self.calls[actor.advance.remote(self.stopping)] = placed
                return
        if not self.queue:
            ray.kill(actor)
            return
        number = self.queue.popleft()
        self.connection.send(("load", number))
        saved = self.connection.recv()
        while saved == "stop":  # which crossed our question
            self.stopping = True
            saved = self.connection.recv()
        if self.stopping:
            self.queue.clear()
        first, last = self.spans[number]
        self.calls[actor.start.remote(first, last, saved)] = _Placed(actor, number)

    def _greet(self, kind: str) -> None:
        """A worker has joined, that computes on devices of this kind."""
        if self.kinds and kind not in self.kinds:
            both = " and ".join(sorted({kind, *self.kinds}))
            self.connection.send(
                ("warning", f"the cluster computes on both {both}, which round differently.")
            )
        self.kinds.add(kind)

    def _lose(self, number: int, error: Exception) -> None:
        """A worker died: its chunk goes back to the queue, another worker takes its place."""
        self.losses.append(number)
        if self.losses.count(number) > LOSSES:
            what = f"chunk {number}" if number >= 0 else "workers before they started"
            reason = " ".join(str(error).split())[:300]
            raise RuntimeError(f"the cluster lost {what} {LOSSES + 1} times in a row: {reason}")
        if self.stopping:
            return
        if number >= 0:
            self.queue.appendleft(number)
        self._add_worker()

    def _idle(self) -> bool:
        return not any(placed.number >= 0 for placed in self.calls.values())

    def _warn_of_waiting(self) -> None:
        needs = f"{self.cpus:g} CPU" + (f" and {self.gpus:g} GPU" if self.gpus else "")
        self.connection.send(
            ("warning", f"no node of the Ray cluster has {needs} free for a chunk; waiting.")
        )


def main() -> None:
    connection = Connection(int(sys.argv[1]))
    try:
        _serve(connection)
        connection.recv()
    except (EOFError, ConnectionError):
        return  # whoever started this one ended, or has what it wanted; or Ray is gone, which it then says
    finally:
        with suppress(Exception):
            import ray

            ray.shutdown()


def _serve(connection: Connection) -> None:
    try:
        drive = Drive(connection, connection.recv())
    except (EOFError, ConnectionError):
        raise
    except Exception as error:
        connection.send(("error", _sentence(error)))
        return
    try:
        drive()
    except EOFError:
        raise
    except (OSError, drive.ray.exceptions.RaySystemError) as error:  # Ray has nobody to talk to
        raise ConnectionError("the cluster was lost") from error
    except Exception as error:
        connection.send(("error", _sentence(error)))


def _sentence(error: Exception) -> str:
    cause = getattr(error, "cause", None) or error
    if type(cause).__name__ in LOST_HEAD:
        return "The Ray cluster was lost: its head or the node on this machine ended."
    said = " ".join(str(cause).split("\n\n")[0].split()).rstrip(".")
    return f"Ray: {said[:300] or type(cause).__name__}."


if __name__ == "__main__":
    main()
