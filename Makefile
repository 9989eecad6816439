# Two commands do everything: `make demo` and `make test`. Each makes the virtual environment it needs.
VENV ?= .venv
export VENV
BIN = $(VENV)/bin
export PYTHONSAFEPATH = 1
export LANGSMITH_TRACING = false

.PHONY: demo test test-slow test-gpu check setup setup-dev clean

demo: setup
	$(BIN)/warpsmith optimize examples/softmax.py --budget 16

test: setup-dev
	$(BIN)/pytest -q -n $${WARPSMITH_JOBS:-3} --dist loadfile --no-loadscope-reorder

test-slow: setup-dev
	$(BIN)/pytest -q -m slow

test-gpu: setup-dev
	$(BIN)/pytest -q -m gpu

check: setup-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	./scripts/link_types
	$(BIN)/mypy
	$(BIN)/python scripts/check_size.py
	$(BIN)/python scripts/check_layers.py

setup:
	@./scripts/setup

setup-dev:
	@./scripts/setup dev

clean:
	rm -rf $(VENV) .links build dist *.egg-info .mypy_cache .pytest_cache .ruff_cache
