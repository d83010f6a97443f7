"""`--help`: of every command, for every agent; in plain English, short, and true to what tyro takes."""

import importlib
import re

import pytest

from baddr.agents import AGENTS
from baddr.agents.kinds import agent_class
from baddr.cli import main
from baddr.cli.help import COMMANDS, list_options
from baddr.cli.parse import parse_with_domain
from baddr.cli.run import Run
from baddr.errors import UserError
from baddr.lab.experiment import preset

SETTINGS = {name for agent in AGENTS for name in agent_class(agent)().groups()}
# One word per concept: these are the others.
FORBIDDEN = r"\b(go|goes|going|gone|went) on\b|\bbeg[aiu]ns?\b|\bbeginning\b|\bcaveats?\b"


def told(capsys, *arguments: str) -> str:
    with pytest.raises(SystemExit) as exit:
        main(arguments)
    assert exit.value.code == 0
    return capsys.readouterr().out


def check_prose(text: str) -> None:
    assert max(map(len, text.splitlines())) < 100
    assert not re.findall(FORBIDDEN, text, re.IGNORECASE)
    assert "examples:\n  baddr " in text


def test_the_overview_names_every_command(capsys):
    text = told(capsys, "--help")
    check_prose(text)
    for name, (takes, does) in COMMANDS.items():
        assert re.search(rf"^  {name} {re.escape(takes)} *{re.escape(does)}$", text, re.M)


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("flag", ["--help", "-h", "--help-all"])
def test_every_command_has_help(command, flag, capsys):
    text = told(capsys, command, flag)
    check_prose(text)
    takes = COMMANDS[command][0]
    assert text.startswith(f"usage: baddr {command} {takes}".strip() + " [options]\n")


@pytest.mark.parametrize("command", COMMANDS)
def test_every_option_says_something(command):
    kind = getattr(importlib.import_module(f"baddr.cli.{command}"), command.capitalize())
    experiment = preset("tiger")
    given = (experiment.domain, experiment.settings) if command == "check" else (experiment,)
    options = list_options(kind, kind(*given) if COMMANDS[command][0].startswith("DOMAIN") else None)
    assert options and all(len(option.says.split()) > 1 for option in options)


@pytest.mark.parametrize("command", ["run", "sweep", "belief", "plan"])
@pytest.mark.parametrize("agent", AGENTS)
def test_help_shows_the_settings_of_the_chosen_agent_alone(command, agent, capsys):
    text = told(capsys, command, "tiger", "--agent", agent, "--help")
    check_prose(text)
    assert {name for name in SETTINGS if f"\n{name}:\n" in text} == set(agent_class(agent)().groups())
    assert "\ndomain:\n" in text
    everything = told(capsys, command, "tiger", "--agent", agent, "--help-all")
    check_prose(everything)
    assert all(f"\n{name}:\n" in everything for name in SETTINGS if name != "posterior")


@pytest.mark.parametrize(
    ("agent", "shown", "not_shown"),
    [
        (
            "baddr",
            ["planner.depth", "filter.kind", "network.hidden", "pretrain.batches"],
            ["dpfrl", "factored"],
        ),
        ("fba-pomcp", ["planner.depth", "filter.kind", "factored.graph"], ["network", "pretrain", "dpfrl"]),
        ("pomcp", ["planner.depth", "filter.kind"], ["network", "pretrain", "factored", "dpfrl"]),
        ("a2c", ["dpfrl.hidden"], ["planner", "filter", "network"]),
        ("random", ["filter.kind"], ["planner", "network", "dpfrl"]),
    ],
)
def test_what_some_agents_are_set_by(agent, shown, not_shown, capsys):
    text = told(capsys, "run", "tiger", "--agent", agent, "--help").partition("experiment:")[2]
    assert all(f"  --{flag} " in text for flag in shown) and not any(f"  --{x}." in text for x in not_shown)


def test_help_is_short(capsys):
    assert len(told(capsys, "run", "--help").splitlines()) < 130
    assert len(told(capsys, "run", "tiger", "--agent", "pomcp", "--help").splitlines()) < 90


def test_help_leaves_out_what_the_agent_cannot_use(capsys):
    counts, truth = (
        told(capsys, "run", "tiger", "--agent", name, "--help") for name in ("ba-pomcp", "pomcp")
    )
    for flag in ("--filter.rejuvenate", "--filter.history", "--filter.weight-after-update", "learn-terminal"):
        assert flag in counts and flag not in truth
    assert "--filter.rejuvenate" in told(capsys, "run", "tiger", "--agent", "pomcp", "--help-all")


def test_help_shows_the_defaults_that_hold(capsys):
    """Those of the preset, of a flag that is given, of a domain of that size."""

    def default(flag: str, *given: str) -> str:
        options = told(capsys, *given, "--help").partition("experiment:")[2]
        return re.search(rf"{flag} .*?\[(.*?)\]", options, re.S)[1]  # type: ignore[index]

    assert default("--runs", "run", "tiger", "--agent", "pomcp") == "64"
    assert default("--runs", "run", "tiger", "--agent", "pomcp", "--preset", "paper") == "7500"
    assert default("--domain.forward-length", "run", "gridverse", "--preset", "paper") == "4"
    assert default("--network.hidden", "run", "road-racing", "--domain.lanes", "9") == "64"


def test_every_flag_that_help_names_is_taken():
    """With a value of the form that it shows, or both ways where it is a switch that is on."""
    options = list_options(Run, Run(preset("tiger", "fba-pomcp")))
    flags = [option.flag.split() for option in options if option.flag.startswith("--")]
    values = {"N": "1", "X": "0.5", "HOST:PORT": "a:1", "NAME": "baddr"}
    assert len(flags) > 40
    for flag, *form in flags:
        if flag in ("--help-all", "--config"):
            continue
        if flag.endswith(".kind"):
            form = ["importance" if "filter" in flag else "po-uct"]
        value = [values.get(form[0], form[0].removesuffix("...").split("|")[0])] if form else []
        for name in {flag.replace("[no-]", ""), flag.replace("[no-]", "no-")}:
            agent = [] if name == "--agent" else ["--agent", "fba-pomcp"]
            parse_with_domain(Run, "run", ["tiger", *agent, name, *value], Run)


def test_settings_of_other_agents_are_refused():
    with pytest.raises(UserError, match=r"--network\.hidden"):
        parse_with_domain(Run, "run", ["tiger", "--agent", "pomcp", "--network.hidden", "8"], Run)
