"""Exact solutions of small problems; `baddr.core.exact` is their home."""

from baddr.core.exact import *  # noqa: F403
