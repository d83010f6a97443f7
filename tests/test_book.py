"""The book as a site: tutorials run and print what their pages say, other Python blocks run, and the site is
built strictly, without the network."""

import importlib.util
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from baddr.agents import AGENTS

pytestmark = pytest.mark.usefixtures("unchecked")  # whole commands

ROOT = Path(__file__).parent.parent
place = importlib.util.spec_from_file_location("tutorials", ROOT / "docs" / "tutorials.py")
assert place is not None and place.loader is not None
tutorials = importlib.util.module_from_spec(place)
place.loader.exec_module(tutorials)


def numbers(text: str) -> list[float]:
    return [float(x) for x in re.findall(r"-?\d+\.?\d*", text)]


def outputs(page: str) -> list[str]:
    return re.findall(r"^```text\n(.*?)^```", page, re.DOTALL | re.MULTILINE)


@pytest.mark.parametrize("path", tutorials.SCRIPTS, ids=lambda path: path.stem)
def test_a_tutorial_prints_what_its_page_says(path, monkeypatch):
    """Exactly the words, and the numbers to a tenth: the last digits differ from processor to processor."""
    monkeypatch.chdir(ROOT)
    monkeypatch.setattr(sys, "path", [*sys.path])
    now, before = tutorials.page(path), path.with_suffix(".md").read_text()
    words = lambda page: re.sub(r"-?\d+\.?\d*", "#", page)
    assert words(now) == words(before), "run python docs/tutorials.py --write"
    for new, old in zip(outputs(now), outputs(before), strict=True):
        assert numbers(new) == pytest.approx(numbers(old), rel=0.1, abs=0.1)


def test_every_tutorial_has_its_page_and_says_where_it_comes_from():
    for path in tutorials.SCRIPTS:
        assert path.with_suffix(".md").read_text().startswith(tutorials.WRITTEN)
    assert len(tutorials.SCRIPTS) == 4


def blocks(page: Path) -> list[str]:
    return re.findall(r"^```python\n(.*?)^```", page.read_text(), re.DOTALL | re.MULTILINE)


# Pages whose blocks other tests run: the tutorials above, tests/domains/test_own.py and test_black_box.py.
ELSEWHERE = {f"docs/{name}.md" for name in ("own-domain", "black-box")}
ELSEWHERE |= {path.with_suffix(".md").relative_to(ROOT).as_posix() for path in tutorials.SCRIPTS}
PAGES = [path.relative_to(ROOT).as_posix() for path in (ROOT / "README.md", *(ROOT / "docs").rglob("*.md"))]
# What is smaller here than in the page.
SMALLER = {
    "README.md": {
        "runs=8, episodes=20": "runs=2, episodes=2",
        "256})": "16})",
        "num_particles=1024": "num_particles=256",
    },
    "docs/dpfrl.md": {
        "learning_rate=1e-4)": "learning_rate=1e-4, hidden=8, features=8, num_particles=4, actors=2)",
        "agent, 100)": "agent, 4)",
        "key(0), 8)": "key(0), 2)",
        "key(1), 8)": "key(1), 2)",
    },
    "docs/gymnasium.md": {"range(100)": "range(2)", "1024": "16"},
}


def smaller(page: str) -> list[str]:
    found = blocks(ROOT / page)
    for large, small in SMALLER.get(page, {}).items():
        assert any(large in block for block in found), f"{page} has no {large} any more"
        found = [block.replace(large, small) for block in found]
    return found


@pytest.mark.parametrize(
    "page", sorted(page for page in PAGES if blocks(ROOT / page) and page not in ELSEWHERE)
)
def test_the_blocks_of_a_page_run(page, tmp_path, monkeypatch):
    """One after the other, as a reader would, in a folder with the examples."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    shutil.copytree(ROOT / "examples", "examples")
    monkeypatch.setitem(AGENTS, "forgetful", "")  # the page adds it: afterwards it is gone
    names = {"__name__": "__main__"}
    for block in smaller(page):
        if "class Forgetful" in block:  # the page says: in a file that can be imported
            Path("forgetful.py").write_text(block)
        exec(compile(block, page, "exec"), names)


def test_the_site_is_built_strictly_and_needs_no_network(tmp_path):
    pytest.importorskip("mkdocs", reason="pip install 'baddr[docs]'")
    pytest.importorskip("material", reason="pip install 'baddr[docs]'")
    pytest.importorskip("mkdocstrings", reason="pip install 'baddr[docs]'")
    nothing = {
        "https_proxy": "http://127.0.0.1:9",
        "http_proxy": "http://127.0.0.1:9",
    }  # nobody listens there
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(tmp_path)]
    environment = os.environ | nothing | {"NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stdout + done.stderr
    pages = list(tmp_path.rglob("*.html"))
    loaded = [x for p in pages for x in re.findall(r'(?:src|<link[^>]*href)="(https?:[^"]*)"', p.read_text())]
    assert not loaded and "GBAPOMDP" in (tmp_path / "api.html").read_text()
