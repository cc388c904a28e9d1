# The commands of this repository. `make` alone lists them.

# Builds use the recorded descriptions of queries, as on any other machine, also where .env names a database.
export SQLX_OFFLINE ?= true

# Where everything was built already (.ci/run), the gate runner among it is used as it is.
XTASK := $(if $(GPUAAS_PROGRAMS),$(GPUAAS_PROGRAMS)/xtask,cargo xtask)

.DEFAULT_GOAL := help
.PHONY: help up tour down reset check test smoke generate fmt bench mutants devdb agent

help: ## list these commands
	@sed -n 's/^\([a-z][a-z-]*\):.*## \(.*\)$$/\1|\2/p' $(MAKEFILE_LIST) | while IFS='|' read -r name text; do printf '  make %-10s %s\n' "$$name" "$$text"; done

up: ## build and start the control plane with simulated nodes on this machine (PORT=8080 SIM_NODES=3)
	@scripts/up.sh

tour: ## show what runs by its commands, from signing in to checking the books (GPUAAS_TOUR_PASSWORD=…)
	@scripts/tour.sh

down: ## stop it, keep its data
	@scripts/down.sh

reset: ## stop it and delete its data (YES=1: without asking)
	@scripts/reset.sh

check: ## run every gate
	@scripts/tools.sh rust postgres
	@$(XTASK) check

test: ## run every test
	@scripts/tools.sh rust
	@$(XTASK) test

smoke: ## prove up, down and reset, beside what runs here already
	@scripts/smoke.sh

generate: ## write every generated file (after changing SQL, endpoints, events, errors, roles)
	@scripts/tools.sh rust postgres
	@scripts/generate.sh

fmt: ## format the code
	@cargo fmt --all

bench: ## measure, and write ratios to the limits of this machine into docs/benchmarks.md (SECTION=api, fleet, capacity, money or terminal)
	@scripts/tools.sh rust postgres wrk openssl bubblewrap nodes terminado
	@cargo build --release --locked -p gpuaasd -p node-sim -p cli -p bench
	@scripts/agent.sh
	@"$${CARGO_TARGET_DIR:-target}/release/bench" $(or $(SECTION),all) --out docs/benchmarks.md

mutants: ## change the modules that decide, one mutant at a time, and list what no test notices (MODULES=saga-decide)
	@scripts/tools.sh rust mutants
	@cargo xtask mutants $(MODULES)

agent: ## build the node agent as one static program into target/agents
	@scripts/agent.sh

devdb: ## start a database for the compiler to check queries against while you write them
	@scripts/devdb.sh
