"""What computes, and where compiled code is kept. Call `prepare` before JAX is used."""

import os

from baddr.errors import UserError
from baddr.fast.compiler import compile_small_loops


def prepare(device: str) -> None:
    """Choose JAX's device, and keep compiled code on disk."""
    if device == "cpu":
        os.environ["JAX_PLATFORMS"] = "cpu"
    compile_small_loops()
    import jax

    from baddr.fast.backend import on_gpu
    from baddr.files.cache import compiled_code

    if device == "gpu" and not on_gpu():
        raise UserError("--device gpu: JAX sees no GPU here; install jax with its CUDA extra, or use cpu.")
    jax.config.update("jax_compilation_cache_dir", str(compiled_code()))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)
