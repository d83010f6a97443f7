"""XML that a stranger may have written: elements alone, nothing that is expanded. Needs no JAX."""

from dataclasses import dataclass, field
from pathlib import Path
from xml.parsers import expat

from baddr.domains.cassandra.tokens import LONGEST_QUOTE, MOST_BYTES, source_name
from baddr.errors import UserError

MOST_ELEMENTS = 2**21
DEEPEST = 200


@dataclass
class Element:
    """A tag with its attributes, the text in it and the elements in it."""

    tag: str
    line: int
    attributes: dict[str, str]
    texts: list[str] = field(default_factory=list)
    children: list["Element"] = field(default_factory=list)

    @property
    def words(self) -> list[str]:
        return "".join(self.texts).split()

    def all(self, *tags: str) -> list["Element"]:
        return [child for child in self.children if child.tag in tags]

    def first(self, *tags: str) -> "Element | None":
        return next((child for child in self.children if child.tag in tags), None)


class _Builder:
    """What the parser tells, as a tree."""

    def __init__(self, source: str):
        self.source, self.count = source, 0
        self.root = Element("", 0, {})
        self.open = [self.root]
        self.parser = parser = expat.ParserCreate()
        parser.buffer_text = True
        parser.StartElementHandler, parser.EndElementHandler = self.start, self.end
        parser.CharacterDataHandler = lambda text: self.open[-1].texts.append(text)
        parser.StartDoctypeDeclHandler = parser.EntityDeclHandler = self.refuse

    def start(self, tag: str, attributes: dict[str, str]) -> None:
        self.count += 1
        if self.count > MOST_ELEMENTS or len(self.open) > DEEPEST:
            raise UserError(f"{self.source} has too many elements, or they lie too deep in each other.")
        element = Element(tag, self.parser.CurrentLineNumber, attributes)
        self.open[-1].children.append(element)
        self.open.append(element)

    def end(self, tag: str) -> None:
        self.open.pop()

    def refuse(self, *_: object) -> None:
        raise UserError(f"{self.source} declares a document type or entities, which are not read.")


def parse_xml(path: Path) -> Element:
    """The outermost element of a file."""
    source = source_name(path)
    try:
        if path.stat().st_size > MOST_BYTES:
            raise UserError(f"{source} is too large: more than {MOST_BYTES // 2**20} MB.")
        content = path.read_bytes()
    except FileNotFoundError:
        raise UserError(f"There is no file {source}.") from None
    except OSError as error:
        raise UserError(f"Cannot read {source}: {error.strerror}.") from error
    builder = _Builder(source)
    try:
        builder.parser.Parse(content, True)
    except (expat.ExpatError, LookupError) as error:  # the latter of an encoding that nobody knows
        raise UserError(f"{source} is not well-formed XML: {str(error)[: 2 * LONGEST_QUOTE]}.") from None
    return builder.root.children[0]
