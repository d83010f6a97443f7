"""The README for the package index, where links between the project's files lead nowhere."""

import re
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface

LINK = re.compile(r"(!?)\[([^\]\[]*)\]\((?![a-z]+:)([^)\s]+)\)")


def for_the_index(readme: str, source: str | None) -> str:
    """Links to files are absolute, below the address `source`; where there is none, they are their words."""

    def absolute(match: re.Match[str]) -> str:
        picture, words, target = match.groups()
        if source is None:
            return "" if picture else words
        return f"{picture}[{words}]({source.rstrip('/')}/{'raw' if picture else 'blob'}/main/{target})"

    return LINK.sub(absolute, readme)


class Readme(MetadataHookInterface):
    """Gives the project's metadata its README."""

    def update(self, metadata: dict[str, Any]) -> None:
        text = Path(self.root, "README.md").read_text("utf-8")
        source = metadata.get("urls", {}).get("Source")
        metadata["readme"] = {"content-type": "text/markdown", "text": for_the_index(text, source)}
