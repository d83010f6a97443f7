"""What computes, and where compiled code is kept. Call `prepare` before JAX is used."""

import os
import warnings

from baddr.errors import UserError
from baddr.fast.compiler import compile_small_loops


def prepare(device: str) -> None:
    """Choose JAX's device, and keep compiled code on disk."""
    if device == "cpu":
        os.environ["JAX_PLATFORMS"] = "cpu"
    compile_small_loops()
    import jax

    from baddr.fast.backend import on_gpu
    from baddr.files.cache import bound, compiled_code, is_writable

    if device == "gpu" and not on_gpu():
        raise UserError("--device gpu: JAX sees no GPU here; install jax with its CUDA extra, or use cpu.")
    folder = compiled_code()
    if not is_writable(folder):
        warnings.warn(
            f"{folder} cannot be written: compiled code is not kept for the next time.", stacklevel=2
        )
        return
    bound(folder)
    jax.config.update("jax_compilation_cache_dir", str(folder))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)
