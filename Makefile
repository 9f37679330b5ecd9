# make demo   a prediction, a comparison and a capacity report on a fresh checkout, without torch
# make test   the test suite         make test-live   real Slurm, PostgreSQL, browser, torch; slow ones
# make lint   style, types, layers, documentation
# make docs   the site of the documents, into build/site
# make house  how large and how tangled the code is, beside its bounds
# make bench  the budgets, measured  make clean  remove what was made here
# make bench-slurm   what the submit hook costs a real slurmctld
# make bench-k8s     what the extender costs kube-scheduler
# make bench-ingest   a million rows of sacct into the history
# make bench-capacity a report over a million jobs
# make bench-replay   the queue simulator
# make bench-forecast how often demand fell inside the forecast's bands
# make bench-tracing  the tracer against the catalog's builders
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
PIP := PIP_CONSTRAINT=$(CURDIR)/constraints.txt $(BIN)/python -m pip --disable-pip-version-check

.PHONY: demo test test-live lint docs house bench bench-slurm bench-k8s bench-capacity bench-forecast bench-ingest bench-replay \
	bench-tracing clean

demo: $(VENV)/.report
	$(BIN)/precision-time predict resnet50 --gpu a100-sxm4-80gb --gpus 8 --precision mixed_fp16_fp32 --batch-size 256 --image-size 224 --epochs 90 --dataset imagenet-1k
	$(BIN)/precision-time compare resnet50 --gpus 8 --batch-size 256 --image-size 224 --epochs 90 --dataset imagenet-1k
	$(BIN)/precision-time capacity report --from profiles/samples/history.csv.gz \
		--since 2025-02-01 --until 2025-03-01 --gpus v100-sxm2-16gb:24/8 --gpus a100-sxm4-80gb:24/8 \
		--gpus h100-sxm5-80gb:24/8 --add a100-sxm4-80gb:8 --output capacity-report.html

# Files of tests go to as many processes as there are WORKERS: one more than CI has cores, since many
# tests wait for servers; in the order of tests/conftest.py. Those of test-live also measure time.
WORKERS ?= 3
test test-live: export PYTHONDONTWRITEBYTECODE = # for the hundreds of processes they start
test: $(VENV)/.dev
	$(BIN)/python -m pytest -n $(WORKERS) --dist loadfile --no-loadscope-reorder \
		--ignore tests/live -m "not live and not slow"

test-live: $(VENV)/.dev
	$(BIN)/python -m pytest -n 2 --dist loadfile -m "live or slow"

lint: $(VENV)/.dev
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python tools/check_docs.py

docs: $(VENV)/.docs
	$(BIN)/mkdocs build --strict --quiet
	$(BIN)/python tools/refresh_outputs.py --check

house: $(VENV)/.dev
	$(BIN)/python tools/house.py

bench: $(VENV)/.core
	$(BIN)/python benchmarks/run.py

bench-slurm: $(VENV)/.slurm
	$(BIN)/python benchmarks/slurm_hook.py

bench-k8s: $(VENV)/.k8s
	$(BIN)/python benchmarks/k8s_calls.py

bench-capacity: $(VENV)/.report
	$(BIN)/python benchmarks/capacity.py

bench-replay: $(VENV)/.report
	$(BIN)/python benchmarks/replay.py

bench-forecast: $(VENV)/.report
	$(BIN)/python benchmarks/forecast.py

bench-tracing: $(VENV)/.dev
	$(BIN)/python benchmarks/tracing.py

ROWS ?= 1000000
bench-ingest: $(VENV)/.ingest
	$(BIN)/python benchmarks/ingest.py $(ROWS)

clean:
	rm -rf $(VENV) capacity-report.html build dist *.egg-info .hypothesis .import_linter_cache .mypy_cache .pytest_cache .ruff_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(VENV)/.created:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "$(PYTHON) is older than 3.11: name another, as in 'make PYTHON=python3.12'" >&2; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || \
		{ echo "$(PYTHON) cannot make virtual environments: on Debian, 'apt install python3-venv'" >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)
	@touch $@

# What is installed is editable, so a change in the sources needs no second installation.
$(VENV)/.core: $(VENV)/.created pyproject.toml constraints.txt
	$(PIP) install --quiet --editable .
	@touch $@

$(VENV)/.report: $(VENV)/.created pyproject.toml constraints.txt
	$(PIP) install --quiet --editable '.[report]'
	@touch $@

$(VENV)/.slurm: $(VENV)/.created pyproject.toml constraints.txt
	$(PIP) install --quiet --editable '.[slurm]'
	@touch $@

$(VENV)/.k8s: $(VENV)/.created pyproject.toml constraints.txt
	$(PIP) install --quiet --editable '.[kubernetes]'
	@touch $@

$(VENV)/.ingest: $(VENV)/.created pyproject.toml constraints.txt
	$(PIP) install --quiet --editable '.[slurm,history]'
	@touch $@

$(VENV)/.docs: $(VENV)/.dev
	$(PIP) install --quiet --editable '.[dev,docs]'
	@touch $@

$(VENV)/.dev: $(VENV)/.created pyproject.toml constraints.txt
	$(PIP) install --quiet --editable '.[dev]'
	@touch $@
