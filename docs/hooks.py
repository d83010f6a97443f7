"""What mkdocs does to pages: links to files outside of docs/ become their names. A site has no such files."""

import re
from pathlib import PurePosixPath
from typing import Any

LINK = re.compile(r"\[([^\]\[]+)\]\(((?:\.\./)+[^)\s#]+)(#[^)\s]*)?\)")


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    depth = len(PurePosixPath(page.file.src_uri).parts)

    def told(match: re.Match[str]) -> str:
        text, target = match[1], match[2]
        if target.count("../") < depth:
            return match[0]  # within docs/
        name = target.replace("../", "")
        return f"{text} (`{name}`)" if name not in text else f"`{text.strip('`')}`"

    return LINK.sub(told, markdown)
