"""Runs the tutorials and writes their pages: `python docs/tutorials.py` runs, `--write` writes.

A tutorial is a script in docs/tutorials. Lines that start with `#|` are its text, in Markdown; the code
between them is run, and what it prints stands below it in the page of the same name.
"""

import argparse
import contextlib
import io
import os
import sys
from pathlib import Path

HERE = Path(__file__).parent
ROOT = HERE.parent
SCRIPTS = sorted((HERE / "tutorials").glob("*.py"))
WRITTEN = "<!-- Written by docs/tutorials.py from the script of the same name. -->\n\n"


def cells(script: str) -> list[tuple[str, str]]:
    """("text" | "code", content), in order."""
    found: list[tuple[str, list[str]]] = []
    for line in script.splitlines():
        kind = "text" if line.startswith("#|") else "code"
        if not found or found[-1][0] != kind:
            found.append((kind, []))
        found[-1][1].append(line[2:].removeprefix(" ") if kind == "text" else line)
    joined = [(kind, "\n".join(lines).strip("\n")) for kind, lines in found]
    return [(kind, content) for kind, content in joined if content.strip()]


def page(path: Path) -> str:
    """The tutorial's page, with what its code prints now."""
    parts, names = [], {"__name__": "__main__"}
    for kind, content in cells(path.read_text()):
        if kind == "text":
            parts.append(content)
            continue
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(compile(content, str(path), "exec"), names)
        parts.append(f"```python\n{content}\n```")
        if printed.getvalue().strip():
            parts.append(f"```text\n{printed.getvalue().rstrip()}\n```")
    return WRITTEN + "\n\n".join(parts) + "\n"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", help="tutorials; all where none is named")
    parser.add_argument("--write", action="store_true", help="write the pages")
    options = parser.parse_args()
    os.chdir(ROOT)
    for path in SCRIPTS:
        if options.names and path.stem not in options.names:
            continue
        text = page(path)
        if options.write:
            path.with_suffix(".md").write_text(text)
        print(path.stem)
    return 0


if __name__ == "__main__":
    sys.exit(main())
