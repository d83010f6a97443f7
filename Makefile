# Two commands do everything: `make run` and `make test`. Both set up .venv first, once.
PYTHON ?= python3
BIN := .venv/bin

.PHONY: run test slow golden matrix check docs bench mutants faults clean

# Many runs with few particles: what is learned can be seen in two minutes on two cores.
run: .venv/installed
	$(BIN)/baddr run tiger --runs 96 --episodes 24 --filter.num-particles 256 --filter.resample-below 32 \
	  --planner.num-particles 128 --reference all

test: .venv/installed
	$(BIN)/pytest -n auto --durations 15

slow: .venv/installed
	$(BIN)/pytest -n auto --slow

# What 25 tiny experiments leave, bit for bit, against the record of it. Five minutes.
golden: .venv/installed
	$(BIN)/pytest -n auto --slow tests/test_golden.py

# Every domain with every agent, as by default; and also every command line of the docs.
matrix: .venv/installed
	$(BIN)/pytest -n auto --slow tests/test_product.py

check: .venv/installed
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pyright

# The book as a site, in site/: strict, and without the network. `python docs/tutorials.py --write` runs the
# tutorials and writes their pages anew.
docs: .venv/installed
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

# Puts deliberate bugs into a copy of the tree, one at a time: some test must notice each. Half an hour.
mutants: .venv/installed
	$(BIN)/python tests/mutants.py

# Kills, damaged and edited files, full disks and lost workers: nothing may be wrong. About 15 minutes.
faults: .venv/installed
	$(BIN)/python tests/faults.py

# About 20 minutes on an idle machine. PEERS: the libraries from PyPI to compare with, which are installed in
# ~/.cache/baddr-peers once (POMDPPlanners takes 7 GB there); `make bench PEERS=pomdp-py` leaves one out.
PEERS ?= pomdp-py POMDPPlanners

bench: .venv/installed
	$(BIN)/python benchmarks/start.py --imports
	$(BIN)/python benchmarks/peers.py --install $(PEERS)
	$(BIN)/python benchmarks/planner.py
	$(BIN)/python benchmarks/planners.py --quick --picture results/planners.png
	$(BIN)/python benchmarks/domains.py
	$(BIN)/python benchmarks/roofline.py
	$(BIN)/python benchmarks/scaling.py --picture results/scaling.png

.venv/installed: pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "baddr needs Python 3.11 or newer; set PYTHON=python3.x")'
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	touch $@

clean:
	rm -rf .venv results
