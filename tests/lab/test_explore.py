"""`baddr explore`: what a session shows is what the agent believes, and the page works in a browser."""

import base64
import json
import shutil
import socket
import subprocess
import threading
import time
import urllib.error
import urllib.request
from contextlib import contextmanager
from dataclasses import replace

import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

pytest.importorskip("starlette", reason="pip install 'baddr[explore]'")
pytest.importorskip("uvicorn", reason="pip install 'baddr[explore]'")

from baddr.cli import main
from baddr.errors import UserError
from baddr.files.store import Folder
from baddr.lab import runner
from baddr.lab.build import build_agent, build_domain
from baddr.lab.experiment import preset
from baddr.lab.explore import server
from baddr.lab.explore.distributions import NUM_BINS, distributions
from baddr.lab.explore.folder import Results
from baddr.lab.explore.outlook import Outlook, outlook_view
from baddr.lab.explore.picture import drawn
from baddr.lab.explore.session import Inside, Session

pytestmark = pytest.mark.usefixtures("unchecked")  # whole commands

LEFT, RIGHT, LISTEN = 0, 1, 2


@pytest.fixture(scope="module")
def inside() -> Inside:
    """ba-pomcp on tiger, with few particles and a small tree."""
    start = preset("tiger", "ba-pomcp")
    small = start.changed(
        filter=replace(start.settings.filter, num_particles=256, resample_below=32.0),
        planner=replace(start.settings.planner, num_expansions=6, num_particles=64),
    )
    domain = build_domain(small)
    return Inside(build_agent(small, domain), domain)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A finished result with a trace."""
    small = preset("tiger", "random")
    path = tmp_path_factory.mktemp("explore") / "result"
    small = replace(small.changed(filter=replace(small.settings.filter, num_particles=16)), trace=0)
    runner.start(replace(small, runs=4, episodes=6), Folder(path), lambda *told: None)
    return path


# Sessions.


def test_a_session_goes_back_and_forth_and_forgets_what_was_left(inside):
    session = Session(inside, 1)
    first = session.view()
    session.act(LISTEN)
    second = session.view()
    assert second["t"] == 1 and second["history"][-1]["action"] == LISTEN
    session.move(-1)
    assert session.view()["state"] == first["state"] and session.view()["places"] == 2
    session.move(1)
    assert session.view()["state"] == second["state"] and session.view()["plan"] == second["plan"]
    session.move(-5)
    session.act(LEFT)
    ended = session.view()
    assert ended["over"] and ended["places"] == 2 and ended["plan"] is None
    with pytest.raises(UserError, match="has ended"):
        session.act(LISTEN)
    session.step()
    again = session.view()
    assert (again["episode"], again["t"], again["over"]) == (1, 0, False)
    assert again["history"][-1].get("action") is None
    with pytest.raises(UserError, match="no action"):
        session.act(7)
    with pytest.raises(UserError, match="no observation"):
        session.act(LISTEN, [3])


def test_counts_have_a_distribution_for_each_door(inside):
    """Before anything was heard every particle has the prior's counts: a Beta of mean .625 and 8 counts."""
    model = Session(inside, 1).view()["model"]
    found, middle = model["accuracy_distribution"], (np.arange(NUM_BINS) + 0.5) / NUM_BINS
    expected = np.diff(stats.beta(5, 3).cdf(np.linspace(0, 1, NUM_BINS + 1)))
    assert found["top"] == 1 and len(found["mass"]) == 2
    for mass, mean in zip(found["mass"], model["accuracy_mean"], strict=True):
        assert mass == pytest.approx(expected, abs=1e-4) and mean == pytest.approx(middle @ mass, abs=0.01)


def test_distributions_weigh_particles_and_stretch_to_what_is_largest():
    """Two particles that are certain, of .12 and .97 with weights 1/4 and 3/4; lengths of up to 4 cells."""
    weights, certain = np.array([0.25, 0.75]), np.zeros((2, 1))
    each = {"p_mean": np.array([[0.12], [0.97]]), "p_std": certain}
    each |= {"cells_mean": np.array([[1.1], [4.0]]), "cells_std": certain}
    each |= {"own_mean": certain, "own_std": certain, "own_histogram": certain, "alone_mean": certain}
    found = distributions(weights, each)
    assert set(found) == {"p_distribution", "cells_distribution"}
    for name, top, bins in (("p", 1, [2, 19]), ("cells", 4, [5, 19])):
        [mass] = found[f"{name}_distribution"]["mass"]
        assert found[f"{name}_distribution"]["top"] == top
        assert np.flatnonzero(mass).tolist() == bins and np.take(mass, bins).tolist() == [0.25, 0.75]


def test_what_would_be_believed_is_what_is_believed(inside):
    """Bayes on tiger: (5, 3) of 8 for each door, so that p(left | heard left) is .625; 256 particles have a
    standard error of .03 of the prior."""
    session = Session(inside, 2)
    imagined = session.after(LISTEN, [LEFT])
    assert imagined["state"][0][LEFT] == pytest.approx(0.625, abs=4 * 0.03)
    session.act(LISTEN, [LEFT])
    view = session.view()
    assert view["state"][0] == pytest.approx(imagined["state"][0], abs=4 * 0.03)
    assert view["history"][-1]["imagined"] and view["ancestors"] <= view["particles"] == 256
    assert session.after(LISTEN, [2])["impossible"], "listening never gives null"


def test_the_outlook_is_what_bayes_expects(inside):
    """Who heard the right door twice has counts (7, 3) if it is the good one; if not, (3, 5) became (5, 5).
    So p(hear right) = .7 b(right) + .5 b(left). Doors end the episode and are silent; 10 or -100."""
    session = Session(inside, 4)
    session.act(LISTEN, [RIGHT])
    session.act(LISTEN, [RIGHT])
    view = session.view()
    left, right = view["state"][0]
    opened, _, listened = view["outlook"]
    assert listened["reward"] == pytest.approx(-1) and listened["ends"] == 0
    heard = {x["o"][0]: x["p"] for x in listened["seen"]}
    assert list(heard) == [LEFT, RIGHT] and sum(heard.values()) == pytest.approx(1, abs=1e-4)
    assert heard[RIGHT] == pytest.approx(0.7 * right + 0.5 * left, abs=1e-3)
    assert opened["reward"] == pytest.approx(10 * left - 100 * right, abs=1e-3) and opened[
        "ends"
    ] == pytest.approx(1)
    assert opened["seen"] == [{"o": [2], "p": pytest.approx(1)}] and opened["others"] < 1e-4


def test_many_observations_are_counted():
    """Of 3 x 20 observations eight are shown, in their own order, and the rest is the others'."""
    o = np.array([[[i // 20, i % 20] for i in range(60)]])
    weights = np.where(np.arange(60) % 7 == 0, 0.1, 0.1 / 51)[None]
    [shown] = outlook_view(Outlook(*map(jnp.asarray, (np.ones(1), np.full(1, 0.5), o, weights))))
    assert [x["o"] for x in shown["seen"]] == [[i // 20, i % 20] for i in range(0, 56, 7)]
    assert shown["others"] == pytest.approx(weights.sum() - 0.8) and shown["ends"] == 0.5


def test_a_session_and_a_folder_are_drawn(inside, folder):
    session = Session(inside, 5)
    session.act(LISTEN)
    for png in (drawn(inside.domain.renderer, session.scene()), Results(folder).picture(0)):
        assert base64.b64decode(png).startswith(b"\x89PNG")
    assert Results(folder).picture(10**6) == ""


def test_the_tree_unfolds_to_what_the_plan_says(inside):
    session = Session(inside, 3)
    view = session.view()
    actions = session.node(0)
    assert [a["lower"] for a in actions] == pytest.approx(view["plan"]["Q"], abs=1e-3)
    assert [a["upper"] for a in actions] == pytest.approx(view["plan"]["upper"], abs=1e-3)
    assert view["tree"]["lower"] == pytest.approx(max(view["plan"]["Q"]), abs=1e-3)
    assert sum(view["tree"]["below"]) == view["tree"]["expansions"] - 1 == 5
    listened = actions[LISTEN]["children"]
    assert sum(child["p"] for child in listened) == pytest.approx(1)
    assert {child["observation"] for child in listened} == {LEFT, RIGHT}
    heard = next(child for child in listened if child["observation"] == LEFT)
    assert heard["state"][0][LEFT] == pytest.approx(session.after(LISTEN, [LEFT])["state"][0][LEFT], abs=0.15)
    assert not actions[LEFT]["children"], "an opened door ends the episode"
    grown = next(child for child in listened if not child["leaf"])
    below = session.node(grown["node"])
    assert max(a["upper"] for a in below) == pytest.approx(grown["upper"], abs=1e-3)
    assert session.node(10**6) == []


def test_a_folder_gives_its_curves_and_its_trace(folder):
    results = Results(folder)
    said = results.curves()
    assert said["rows"] == 24 and said["status"] == "complete" and len(said["curves"]["length"]["y"]) == 6
    before = sorted((p, p.stat().st_mtime_ns) for p in folder.rglob("*"))
    steps = results.trace()
    for place, step in enumerate(steps):
        view = results.view(place)
        assert view["true_state"] == step["next_state"] and view["led_here"]["action"] == step["action"]
        assert np.sum(view["state"][0]) == pytest.approx(1, abs=1e-3)
    assert results.view(10**6)["place"] == len(steps) - 1
    assert before == sorted((p, p.stat().st_mtime_ns) for p in folder.rglob("*")), "nothing is written"
    (folder / "trace.jsonl").rename(folder / "elsewhere")
    with pytest.raises(UserError, match="--trace 0"):
        results.view(0)
    (folder / "elsewhere").rename(folder / "trace.jsonl")


# The server.


@contextmanager
def served(explorer: server.Explorer):
    """Its address; in a thread of this process."""
    import uvicorn

    found = server.bound(0)
    running = uvicorn.Server(uvicorn.Config(explorer.app(), log_level="error", access_log=False))
    thread = threading.Thread(target=running.run, kwargs={"sockets": [found]}, daemon=True)
    thread.start()
    address = f"http://{server.HOST}:{found.getsockname()[1]}"
    deadline = time.monotonic() + 60
    while not running.started and time.monotonic() < deadline:
        time.sleep(0.02)
    try:
        yield address
    finally:
        running.should_exit = True
        thread.join(30)
        found.close()


@pytest.fixture(scope="module")
def explorer(inside) -> server.Explorer:
    return server.Explorer("ba-pomcp on tiger", inside.names, lambda seed: Session(inside, seed), None)


@pytest.fixture(scope="module")
def address(explorer):
    with served(explorer) as address:
        yield address


def asked(address: str, path: str, token: str, **headers: str) -> tuple[int, str]:
    request = urllib.request.Request(address + path, headers={"x-token": token, **headers})
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def test_a_wrong_token_and_a_wrong_host_are_refused(explorer, address):
    for path in ("/", "/?token=wrong", "/api/about", "/api/open?seed=0", "/api/step?session=x"):
        assert asked(address, path, "wrong")[0] == 403
    assert asked(address, f"/?token={explorer.token}", "")[0] == 200
    assert asked(address, "/api/about", explorer.token)[0] == 200
    assert asked(address, "/api/about", explorer.token, host="elsewhere.example")[0] == 400
    code, said = asked(address, "/api/step?session=none", explorer.token)
    assert code == 400 and "new one" in json.loads(said)["error"]
    assert asked(address, "/api/curves", explorer.token)[0] == 400


def test_the_socket_is_of_this_machine_alone():
    found = server.bound(0)
    assert found.getsockname()[0] == "127.0.0.1"
    with pytest.raises(UserError, match="--port"):
        server.bound(found.getsockname()[1])
    found.close()


def test_the_page_fetches_nothing_from_elsewhere():
    page = server.page()
    assert "<script>" in page and "/* script */" not in page and "/* style */" not in page
    assert "http://" not in page and "https://" not in page and "//cdn" not in page


def test_bad_input_gets_one_sentence(capsys, tmp_path):
    for arguments, sentence in (
        (["explore", "tiger", "--port", "70000"], "--port"),
        (["explore", str(tmp_path)], "no experiment"),
        (["explore"], "Name a domain"),
    ):
        with pytest.raises(SystemExit) as exit:
            main(arguments)
        assert exit.value.code == 2 and sentence in capsys.readouterr().err


# The page, in Chromium, by the WebDriver protocol.


class Browser:
    """A Chromium that chromedriver steers."""

    def __init__(self, driver: str, session: str):
        self.driver, self.session = driver, session

    def ask(self, method: str, path: str, **body: object):
        request = urllib.request.Request(f"{self.driver}/session/{self.session}{path}", method=method)
        if method == "POST":
            request.data = json.dumps(body).encode()
            request.add_header("Content-Type", "application/json")
        with urllib.request.urlopen(request, timeout=120) as answer:
            return json.loads(answer.read())["value"]

    def visit(self, url: str) -> None:
        self.ask("POST", "/url", url=url)

    def run(self, script: str):
        return self.ask("POST", "/execute/sync", script=f"return {script}", args=[])

    def click(self, id: str) -> None:
        self.run(f"document.getElementById('{id}').click()")

    def wait(self, script: str, seconds: float = 60.0):
        deadline = time.monotonic() + seconds
        while not (found := self.run(script)):
            assert time.monotonic() < deadline, (script, self.run("document.body.innerText"))
            time.sleep(0.05)
        return found


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    chromium = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    driver = shutil.which("chromedriver")
    if chromium is None or driver is None:
        pytest.skip("no Chromium with chromedriver here: the page of `baddr explore` is not tested")
    port = free_port()
    process = subprocess.Popen(
        [driver, f"--port={port}"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    address, opened = f"http://127.0.0.1:{port}", None
    try:
        opened = _opened(address, chromium, str(tmp_path_factory.mktemp("profile")))
        yield opened
    finally:
        if opened is not None:
            opened.ask("DELETE", "")  # or Chromium outlives its driver
        process.terminate()
        process.wait(30)


def _opened(address: str, chromium: str, profile: str) -> Browser:
    flags = ["--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={profile}"]
    flags += ["--window-size=1300,1500"]
    options = {"binary": chromium, "args": flags}
    wanted = {"capabilities": {"alwaysMatch": {"goog:chromeOptions": options}}}
    deadline = time.monotonic() + 60
    while True:
        try:
            request = urllib.request.Request(f"{address}/session", json.dumps(wanted).encode())
            with urllib.request.urlopen(request, timeout=120) as answer:
                return Browser(address, json.loads(answer.read())["value"]["sessionId"])
        except urllib.error.URLError:
            assert time.monotonic() < deadline
            time.sleep(0.2)


PLACE = "document.body.dataset.place"


def test_the_page_loads_steps_acts_and_survives_a_reload(browser, explorer, address):
    browser.visit(f"{address}/?token={explorer.token}")
    browser.wait(f"{PLACE} === '0' && document.getElementById('states') !== null")
    assert browser.run("document.getElementById('title').textContent") == "ba-pomcp on tiger"
    browser.click(f"act-{LISTEN}")
    browser.wait(f"{PLACE} === '1'")
    assert "listen" in browser.run("document.getElementById('history').innerText")
    browser.click("step")
    browser.wait(f"{PLACE} === '2'")
    browser.click("back")
    browser.wait(f"{PLACE} === '1'")
    browser.visit(f"{address}/?token={explorer.token}")
    browser.wait(f"{PLACE} === '1'")
    browser.run("document.getElementById('root').open = true")
    browser.wait("document.querySelectorAll('#root > details').length === 3")
    browser.run("document.querySelector('[data-after=\"2,0\"]').click()")
    browser.wait("document.getElementById('after-states') !== null")
    browser.click(f"act-{LEFT}")
    browser.wait("document.getElementById('standing').textContent.includes('over')")
    assert browser.run("document.getElementById('error').textContent") == ""


def test_keys_a_slider_and_clicks_lead_through_an_episode(browser, explorer, address):
    """Keys: 3 listens, arrows go back and forth. A click on an observation supposes it; the slider and the
    history lead to a moment."""
    browser.visit(f"{address}/?token={explorer.token}")
    browser.wait(f"{PLACE} !== undefined")
    browser.click("new")
    browser.wait(f"{PLACE} === '0'")
    press = lambda key: browser.run(f"document.dispatchEvent(new KeyboardEvent('keydown', {{key: '{key}'}}))")
    press("3")
    browser.wait(f"{PLACE} === '1' && !busy")
    press("ArrowLeft")
    browser.wait(f"{PLACE} === '0' && !busy")
    press("ArrowRight")
    browser.wait(f"{PLACE} === '1' && !busy")
    browser.run(f"document.querySelector('[data-act=\"{LISTEN},{RIGHT}\"]').click()")
    browser.wait(f"{PLACE} === '2' && !busy")
    assert "right (supposed)" in browser.run("document.getElementById('history').innerText")
    slide = "slider.value = 0; document.getElementById('slider').dispatchEvent(new Event('input'))"
    browser.run(f"eval({json.dumps(slide)})")
    browser.wait(f"{PLACE} === '0' && !busy")
    press("ArrowRight")
    browser.wait(f"{PLACE} === '1' && !busy")
    browser.run("document.querySelector('#history tbody tr').click()")
    browser.wait("document.querySelector('#picture img') !== null")
    assert browser.run("document.querySelectorAll('[data-act]').length") == 4, "null after doors, two sounds"
    assert browser.run("document.documentElement.scrollWidth <= innerWidth")


def test_two_pages_at_once_do_not_meet(browser, explorer, address):
    url = f"{address}/?token={explorer.token}"
    browser.visit(url)
    first = browser.ask("GET", "/window")
    browser.wait(f"{PLACE} !== undefined")
    browser.click("new")
    browser.wait(f"{PLACE} === '0'")
    browser.click(f"act-{LISTEN}")
    browser.wait(f"{PLACE} === '1'")
    second = browser.ask("POST", "/window/new", type="tab")["handle"]
    browser.ask("POST", "/window", handle=second)
    browser.visit(url)
    browser.wait(f"{PLACE} === '0'")
    browser.click(f"act-{LEFT}")
    browser.wait("document.getElementById('standing').textContent.includes('over')")
    browser.ask("DELETE", "/window")
    browser.ask("POST", "/window", handle=first)
    assert browser.run(PLACE) == "1" and "over" not in browser.run(
        "document.getElementById('standing').textContent"
    )


def test_the_page_is_refused_without_its_token(browser, address):
    browser.visit(f"{address}/?token=wrong")
    assert (
        "token" in browser.run("document.body.innerText")
        and browser.run("document.getElementById('main')") is None
    )


def test_the_page_of_a_folder_shows_its_curves_and_steps_its_trace(browser, folder):
    results = Results(folder)
    explorer = server.Explorer(results.experiment.title, results.names, None, results)
    with served(explorer) as address:
        browser.visit(f"{address}/?token={explorer.token}")
        browser.wait("document.getElementById('curves') !== null")
        assert browser.run("document.getElementById('curves').dataset.rows") == "24"
        browser.wait(f"{PLACE} === '0'")
        browser.click("forward")
        browser.wait(f"{PLACE} === '1'")
        browser.click("back")
        browser.wait(f"{PLACE} === '0'")
        browser.click("following")
        second = next(i for i, step in enumerate(results.trace()) if step["episode"] == 1)
        browser.wait(f"{PLACE} === '{second}'")
        assert browser.run("document.getElementById('standing').textContent").startswith("episode 2, step 1")
