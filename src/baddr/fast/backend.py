"""What computes: the only file that asks JAX for its backend."""

from importlib.util import find_spec
from typing import Any

import jax

from baddr.files.machine import memory


def on_cpu() -> bool:
    return jax.default_backend() == "cpu"


def on_gpu() -> bool:
    return jax.default_backend() == "gpu"


def has_kernels() -> bool:
    """A GPU, and a JAX that still has Pallas for Triton, whose end 0.12 announces."""
    return on_gpu() and find_spec("jax.experimental.pallas.triton") is not None


def device_memory(device: Any = None) -> int:
    """Bytes of what computes."""
    device = jax.devices()[0] if device is None else device
    if device.platform == "cpu":
        return memory()
    return (device.memory_stats() or {}).get("bytes_limit", 8 << 30)
