"""Settings on disk come back as they were."""

from dataclasses import asdict, dataclass, field

import pytest

from baddr.files.toml import merge, read_toml, to_toml


@dataclass(frozen=True)
class Inner:
    sizes: tuple[int, ...] = (32, 32)
    rate: float = 1e-5


@dataclass(frozen=True)
class Middle:
    inner: Inner = field(default_factory=Inner)
    on: bool = True


@dataclass(frozen=True)
class Outer:
    text: str = ""
    count: int = 0
    many: float = float("inf")
    middle: Middle = field(default_factory=Middle)


@pytest.mark.parametrize("text", ["", 'a "b" \\ c', "über\n\ttab", "\x00\x7f", "a # b = [c]"])
def test_settings_come_back_as_they_were(tmp_path, text):
    """Also strings that TOML must escape, and tables in tables."""
    settings = Outer(text, -3, 0.1, Middle(Inner((), 2.0), False))
    path = tmp_path / "settings.toml"
    path.write_bytes(to_toml({"name": text, **asdict(settings)}).encode())
    values = read_toml(path)
    assert values.pop("name") == text and merge(Outer(), values, "here") == settings
