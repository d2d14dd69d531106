# `make mimic_full` takes a fresh checkout to a report; `make test` proves it.
BIN := .venv/bin
MIMIC ?= $(NEST_MIMIC_DIR)
CROSSWALKS ?= $(NEST_VOCAB_DIR)
WORK ?= /tmp/nest-bench
# the tables and figures of a run; those of docs/benchmarks are ours
OUT ?= /tmp/nest-bench-results
PORT ?= 3000
GPU = $(shell nvidia-smi -L 2>/dev/null)

# a run is dozens of processes, each of which would compile our modules again
unexport PYTHONDONTWRITEBYTECODE

.PHONY: setup mimic_full pcornet_full instacart_full test test-long aces ui bench-etl bench-instacart bench-pcornet bench-baskets bench-extraction bench-model bench-table1 bench-scaling bench-systems bench-loader bench-simulation bench-learning bench-recipe docs docs-check lint clean

# by uv where there is one, which fetches a Python too; else by the first Python of these that starts (a shim may not) and
# can make an environment. PYTHON=… names another. An environment that is there and fits is kept
comma := ,
FITS := import sys; sys.exit(not (3, 11) <= sys.version_info < (3, 14))
PYTHON ?= $(shell for python in python3.11 python3.12 python3.13 python3; do \
	$$python -c 'import ensurepip, venv; $(FITS)' 2> /dev/null && echo $$python && break; done)
UV = $(shell command -v uv 2> /dev/null)
NAMED = $(filter command environment,$(origin PYTHON))
HOW_TO_GET_ONE := no Python 3.11, 3.12 or 3.13 that can make an environment: apt install python3-venv (Debian, Ubuntu), \
	or get uv (docs.astral.sh/uv), which fetches one; then make setup again
PINNED := --quiet --constraint constraints.txt torch==2.13.0 --editable '.[dev]'

setup: .venv/.installed

.venv/.installed: pyproject.toml constraints.txt hatch_build.py $(wildcard assets/environment/*.py assets/environment/*.pth)
	@$(BIN)/python -c 'import pip; $(FITS)' 2> /dev/null || $(if $(UV),\
		$(UV) venv --quiet --seed --clear --python '$(if $(NAMED),$(PYTHON),>=3.11$(comma)<3.14)' .venv,\
		$(or $(PYTHON),false) -m venv --clear .venv) || { echo "$(HOW_TO_GET_ONE)" >&2; exit 2; }
	@echo "installing the pinned packages into .venv, by $(if $(UV),uv,pip); it is quiet for some minutes"
	@$(if $(UV),$(UV) pip install --reinstall-package nest --python $(BIN)/python,$(BIN)/python -m pip install) $(PINNED)
	@touch $@

mimic_full: setup
	$(BIN)/dagster job execute -j mimic_full
	$(BIN)/python -m assets.results mimic

pcornet_full: setup
	$(BIN)/dagster job execute -j pcornet_full
	$(BIN)/python -m assets.results pcornet

instacart_full: setup
	$(BIN)/dagster job execute -j instacart_full
	$(BIN)/python -m assets.results instacart

# three workers to two cores: a worker waits a third of its time for processes it started
test: setup
	$(BIN)/python -m pytest -m 'not long' --numprocesses 3 --dist loadfile --no-loadscope-reorder

test-long: setup
	$(BIN)/python -m pytest --numprocesses auto --dist worksteal

# ACES, with whose labels the long suite compares ours; a separate environment for its versions of polars and meds
aces: .venv-aces/.installed

.venv-aces/.installed:
	$(PYTHON) -m venv .venv-aces
	.venv-aces/bin/python -m pip install --quiet es-aces==0.7.3 polars==1.44.2 meds==0.4.1
	touch $@

ui: setup
	@$(BIN)/python -c "import socket; socket.create_server(('127.0.0.1', $(PORT))).close()" 2> /dev/null \
		|| { echo "port $(PORT) is taken, perhaps by another make ui: end that, or make ui PORT=3001" >&2; exit 2; }
	$(BIN)/dagster dev --host 127.0.0.1 --port $(PORT)

# the demo replicated, from MIMIC (its folder) and CROSSWALKS; FLAGS=--full adds synthetic data of the real size: 60 GB of disk
bench-etl: setup
	$(BIN)/python -m benchmarks.pipelines --mimic $(MIMIC) --crosswalks $(CROSSWALKS) \
		--work $(WORK) --out $(OUT) $(FLAGS)

# a synthetic Instacart of the real size: 6 GB of disk
bench-instacart: setup
	$(BIN)/python -m benchmarks.pipelines --instacart --name instacart --work $(WORK) --out $(OUT) $(FLAGS)

# a synthetic CDM of 500,000 children, and the labels of its cohorts: 14 GB of disk
bench-pcornet: setup
	$(BIN)/python -m benchmarks.pipelines --pcornet --name pcornet --work $(WORK) --out $(OUT) $(FLAGS)

# what recommending costs at the real size: 6 GB of disk; with SHOP=… (a raw Instacart) every system there too, by 20 points
# and three seeds, for which a shop of 1,100 users takes some hours
bench-baskets: setup
	$(BIN)/python -m benchmarks.baskets --work $(WORK)/baskets --out $(OUT) $(FLAGS)
	$(if $(SHOP),for target in last_visible held_out; do NEST_INSTACART_TARGET=$$target NEST_INSTACART_DIR=$(SHOP) \
		NEST_DATA_DIR=$(WORK)/shop NEST_INSTACART_POINTS=20 NEST_SEEDS=42$(comma)123$(comma)456 $(MAKE) instacart_full || exit; done)

# 5 M laboratory rows from its own PostgreSQL: 4 GB of disk
bench-extraction: setup
	$(BIN)/python -m benchmarks.pipelines.extraction --work $(WORK) --out $(OUT) $(FLAGS)

# a training step, padded and packed, each shortcut added
bench-model: setup
	$(BIN)/python -m benchmarks.model.step --out $(OUT) $(FLAGS)

# the paper's Table 1 at its sizes; without a GPU at a quarter of each, so that attention, blocks and head keep their shares
QUARTER := --subjects 1 --sets 32 --set-rows 16 --window 16 --d-model 192 --d-ff 512 --vocab-size 11250

bench-table1: setup
	$(BIN)/python -m benchmarks.model.table1 --out $(OUT) $(if $(GPU),,$(QUARTER)) $(FLAGS)

# contexts of 512 to 16 K rows; without a GPU in a model that leaves room for BERT's 16 K × 16 K scores
NARROW := --subjects 1 --sets 512 --d-model 64 --heads 1 --d-ff 176 --layers 2 --vocab-size 1000 --protocol D --batches 5

bench-scaling: setup
	$(BIN)/python -m benchmarks.model.scaling --out $(OUT) $(if $(GPU),,$(NARROW)) $(FLAGS)

# a pretraining step of every system; without a GPU in the smallest preset
bench-systems: setup
	$(BIN)/python -m benchmarks.model.systems --work $(WORK) --out $(OUT) $(if $(GPU),,--model tiny) $(FLAGS)

# the loader on synthetic shards of the real size: 6 GB of disk
bench-loader: setup
	$(BIN)/python -m benchmarks.model.loader --work $(WORK) --out $(OUT) $(FLAGS)

# the paper's simulation study and a sweep of its noise; FLAGS=… as the command's --help says
bench-simulation: setup
	$(BIN)/python -m benchmarks.simulation --sweep 0.25 1 --out $(OUT) $(FLAGS)

# NEST and its yardsticks on 500 to 20,000 synthetic patients: 4 hours on two cores, resumed if broken off;
# SIZES="500 1000", SEEDS="42 123", FLAGS=… as the command's --help says; FLAGS="--hours 8" for five seeds of every size
bench-learning: setup
	$(BIN)/python -m benchmarks.learning_curve --work $(WORK)/learning_curve --out $(OUT) \
		$(if $(SIZES),--sizes $(SIZES)) $(if $(SEEDS),--seeds $(SEEDS)) $(FLAGS)

# what each part of the recipe is worth, on the tables that `make mimic_full` has made: 76 of its 329 trainings took 102
# minutes on two cores beside other work; resumed if broken off; VARIANTS="readout thinning" and FLAGS=… as the command's --help says
bench-recipe: setup
	$(BIN)/python -m benchmarks.recipe --work $(WORK)/recipe --out $(OUT) $(if $(VARIANTS),--variants $(VARIANTS)) $(FLAGS)

# docs/ as a site in site/, every link checked
docs: .venv/.docs
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet
	@echo "open site/index.html"

.venv/.docs: .venv/.installed
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[docs]'
	touch $@

# the tests that compare pages of docs/ with code, settings and figures
DOCS_TESTS := tests/system/test_links.py tests/schemas/test_settings_page.py \
	tests/benchmarks/test_model_docs.py tests/benchmarks/test_pipelines_docs.py \
	tests/benchmarks/test_learning_curve.py tests/benchmarks/test_recipe.py \
	tests/nest_model/commands/test_parser.py tests/nest_model/training/test_paper_differences.py \
	tests/pipelines/cohorts/test_examples.py tests/bad_inputs/test_bad_inputs.py tests/silent_faults/test_silent_faults.py

docs-check: setup
	$(BIN)/python -m pytest -m docs $(DOCS_TESTS)

lint: setup
	$(BIN)/ruff check . && $(BIN)/ruff format --check . && $(BIN)/mypy && $(BIN)/lint-imports && $(BIN)/deptry .

clean:
	rm -rf .venv .venv-aces .dagster data
