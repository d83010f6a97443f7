"""Checks of settings, as sentences. Needs no JAX."""


def wrong(*checks: tuple[bool, str]) -> list[str]:
    """The sentences of the checks that do not hold."""
    return [sentence for holds, sentence in checks if not holds]
