"""A report as Markdown, and as one page of HTML that refers to nothing outside of itself. Needs no JAX."""

import base64
import html
import re
from collections.abc import Callable

from baddr.paper.report import MARKS, Block


def to_markdown(document: list[Block]) -> str:
    lines: list[str] = []
    cell = lambda text: str(text).replace("|", "\\|")
    for kind, *content in document:
        if kind in ("h1", "h2", "h3"):
            lines += [f"{'#' * int(kind[1])} {content[0]}"]
        elif kind == "picture":
            lines += [f"![{content[1]}]({content[0]})"]
        elif kind == "table":
            header, rows = content
            lines += ["| " + " | ".join(map(cell, header)) + " |", "|" + "---|" * len(header)]
            lines += ["| " + " | ".join(map(cell, row)) + " |" for row in rows]
        elif kind == "list":
            lines += [f"- {text}" for text in content[0]]
        else:
            lines += [f"```sh\n{content[0]}\n```" if kind == "code" else content[0]]
        lines.append("")
    return "\n".join(lines)


def to_html(document: list[Block], picture: Callable[[str], bytes]) -> str:
    """A page that needs nothing else; `picture` gives the bytes of a file."""
    title = next(text for kind, text, *_ in document if kind == "h1")
    body = "\n".join(_html_block(block, picture) for block in document)
    return PAGE.format(title=html.escape(title), style=STYLE, body=body)


def _html_block(block: Block, picture: Callable[[str], bytes]) -> str:
    kind, *content = block
    if kind == "table":
        return _html_table(*content)
    if kind == "picture":
        data = base64.b64encode(picture(content[0])).decode()
        return f'<figure><img src="data:image/png;base64,{data}" alt="{html.escape(content[1])}"></figure>'
    if kind == "list":
        return f"<ul>{''.join(f'<li>{html.escape(text)}</li>' for text in content[0])}</ul>"
    text = html.escape(content[0])
    text = text if kind == "code" else re.sub("`([^`]+)`", r"<code>\1</code>", text)
    return {
        "code": f"<pre>{text}</pre>",
        "note": f'<p class="note">{text}</p>',
    }.get(kind, f"<{kind}>{text}</{kind}>")


def _html_table(header: list[str], rows: list[list[str]]) -> str:
    def cell(text: str) -> str:
        verdict = next((key for key, mark in MARKS.items() if str(text).startswith(mark)), "")
        mark = f' class="{verdict.replace(" ", "-")}"' if verdict else ""
        return f"<td{mark}>{html.escape(str(text))}</td>"

    head = "".join(f"<th>{html.escape(name)}</th>" for name in header)
    body = "".join(f"<tr>{''.join(map(cell, row))}</tr>" for row in rows)
    return f'<div class="table"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'


PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<link rel="icon" href="data:,">
<title>{title}</title>
<style>{style}</style>
</head>
<body>
<main>
{body}
</main>
</body>
</html>
"""
STYLE = """
:root { color-scheme: light; }
body { margin: 0; font: 16px/1.5 system-ui, sans-serif; color: #1a1a1a; background: #fff; }
main { max-width: 62rem; margin: 0 auto; padding: 1rem; }
h1 { font-size: 1.7rem; line-height: 1.2; }
h2 { font-size: 1.3rem; margin-top: 2.5rem; border-bottom: 1px solid #ccc; padding-bottom: .2rem; }
h3 { font-size: 1rem; margin-bottom: .3rem; }
figure { margin: 1rem 0; text-align: center; }
img { max-width: 100%; height: auto; }
pre { background: #f4f4f4; padding: .6rem; white-space: pre-wrap; overflow-wrap: anywhere; }
.note { background: #f4f4f4; border-left: 4px solid #999; padding: .5rem .8rem; }
.table { overflow-x: auto; margin: .5rem 0 1rem; }
table { border-collapse: collapse; font-size: .85rem; font-variant-numeric: tabular-nums; }
th, td { text-align: left; vertical-align: top; padding: .3rem .6rem; border-bottom: 1px solid #ddd; }
th { border-bottom: 2px solid #888; }
td.held, td.not-held, td.undecided { min-width: 7rem; font-weight: 600; }
td.held { color: #00553d; background: #e2f4ee; }
td.not-held { color: #7a2f00; background: #fbe6d9; }
td.undecided { color: #444; background: #eee; }
@media (max-width: 40rem) {
  body { font-size: 15px; } table { font-size: .8rem; } th, td { padding: .3rem; }
}
@media print {
  main { max-width: none; padding: 0; }
  .table { overflow: visible; } table { font-size: 8pt; }
  figure, tr, .note { break-inside: avoid; } h2, h3 { break-after: avoid; }
}
"""
