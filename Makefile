# `make demo` and `make test` need Python 3.11+, make and nothing else; each installs what it uses into .venv, or with
# PYTHON=… into an environment of that interpreter's own, such as .venv-3.12.

PYTHON ?= python3
VENV := $(if $(filter file,$(origin PYTHON)),.venv,.venv-$(shell $(PYTHON) -c 'import sys; print("%d.%d" % sys.version_info[:2])'))
BIN := $(VENV)/bin
# Programs that some tests run, and the Debian packages they come in. Without them those tests are skipped with a
# message that names the package.
SYSTEM_PACKAGES := strace:strace bwrap:bubblewrap ps:procps

.PHONY: demo test test-pythons test-slow test-trainers lint format bench clean

demo: $(VENV)/.demo
	@$(BIN)/python examples/demo.py

test: system-packages lint test-only

# The fast tests with every interpreter that is found, on the PATH and with pyenv, one after the other.
VERSIONS := 3.11 3.12 3.13 3.14

test-pythons: system-packages
	@tested=""; failed=""; for version in $(VERSIONS); do \
		python=$$(for one in "$$(command -v python$$version)" $$HOME/.pyenv/versions/$$version.*/bin/python; do \
			[ -x "$$one" ] && "$$one" -c '' 2>/dev/null && echo "$$one" && break; done); \
		if [ -z "$$python" ]; then echo "Python $$version: not found"; continue; fi; \
		echo "Python $$version: $$python"; tested="$$tested $$version"; \
		$(MAKE) --no-print-directory test-only PYTHON="$$python" || failed="$$failed $$version"; \
	done; \
	echo "tested:$${tested:- none}; failed:$${failed:- none}"; [ -n "$$tested" ] && [ -z "$$failed" ]

.PHONY: test-only
test-only: $(VENV)/.test
	$(BIN)/python -m pytest -n 2

test-slow: $(VENV)/.test system-packages
	$(BIN)/python -m pytest -n 2 -m slow --override-ini addopts="-q --import-mode=importlib"

# The trainers' own loaders, each in an environment of its own: minutes and gigabytes, so not part of `make test`.
TRAINERS := trl axolotl llamafactory atropos tinker
TORCH ?= torch==2.13.0

test-trainers: $(TRAINERS:%=test-trainer-%)

test-trainer-%: $(VENV)-%/.installed
	$(VENV)-$*/bin/python -m pytest tests/trainers/$* tests/formats/test_entries.py

# Without this, make takes the file for an intermediate one, removes it, and installs everything again next time.
.PRECIOUS: $(VENV)-%/.installed

$(VENV)-%/.installed: tests/trainers/%/requirements.txt pyproject.toml
	$(PYTHON) -m venv $(VENV)-$*
	$(VENV)-$*/bin/python -m pip install --quiet --disable-pip-version-check $(TORCH)
	$(VENV)-$*/bin/python -m pip install --quiet --disable-pip-version-check -r $<
	if [ -f tests/trainers/$*/requirements-nodeps.txt ]; then \
		$(VENV)-$*/bin/python -m pip install --quiet --disable-pip-version-check --no-deps -r tests/trainers/$*/requirements-nodeps.txt; fi
	$(VENV)-$*/bin/python -m pip install --quiet --disable-pip-version-check --editable '.[columns]' pytest hypothesis
	touch $@

lint: $(VENV)/.test
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

format: $(VENV)/.test
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

# Each prints ratios measured in one run, and ends with 1 if a bound was missed; --incumbent adds the race against
# hermes-agent where there is one: see each file's first lines.
BENCHMARKS := graph formats client chat batch onpolicy compress

bench: $(VENV)/.test
	@for name in $(BENCHMARKS); do echo; echo "$$name"; $(BIN)/python benchmarks/$$name.py || true; done

$(VENV)/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "stemma needs Python 3.11 or newer; set PYTHON=..."; exit 1; }
	@$(PYTHON) -m venv $(VENV)

$(VENV)/.run: $(VENV)/bin/python pyproject.toml
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable .
	@touch $@

$(VENV)/.demo: $(VENV)/bin/python pyproject.toml
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[local]'
	@touch $@ $(VENV)/.run

define OPTIONAL
from importlib.metadata import requires
wanted = [line.split(";") for line in requires("stemmata") if "extra ==" in line]
print(*{package.strip() for package, extra in wanted if "test" not in extra})
endef
export OPTIONAL

# Not every optional package has a wheel for every Python: the tests that need one that is missing are skipped, by name.
$(VENV)/.test: $(VENV)/bin/python pyproject.toml
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[test]'
	@optional=$$($(BIN)/python -c "$$OPTIONAL"); \
	install="$(BIN)/python -m pip install --quiet --disable-pip-version-check --only-binary :all:"; \
	$$install $$optional 2>/dev/null || for package in $$optional; do \
		$$install "$$package" 2>/dev/null || echo "there is no $$package for this Python; the tests that need it are skipped"; \
	done
	@touch $@ $(VENV)/.run

.PHONY: system-packages
system-packages:
	@missing=$$(for p in $(SYSTEM_PACKAGES); do command -v $${p%%:*} >/dev/null || echo $${p##*:}; done); \
	if [ -n "$$missing" ] && [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
		apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $$missing >/dev/null \
			|| echo "could not install: $$missing; the tests that need them will be skipped"; \
	fi

clean:
	rm -rf $(VENV) $(VENV)-* .pytest_cache .mypy_cache .ruff_cache .hypothesis build dist
