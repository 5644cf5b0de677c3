# Each target sees to its own set-up; all share one build folder outside the checkout, so that
# RocksDB is compiled once. Everything builds in the dev profile, which builds RocksDB optimised:
# --release or RUSTFLAGS would compile it again.

export CARGO_TARGET_DIR ?= $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/ringfence/target
export PATH := $(PATH):$(HOME)/.cargo/bin
# Where the demo writes (sqlite, postgres, mariadb or redis) and how many runs the simulation makes.
export DEST ?= sqlite
export SEEDS ?= 20000
# What `bench` measures, and how: see `ringfence bench --help`.
ARGS ?=

CARGO := scripts/cargo
BARE := --no-default-features
CLIENT := --no-default-features --features client
# The bare rung with rules that tests can switch off: the simulation and the counterexamples.
SWITCHES := --profile sim --no-default-features --features switches
CHECKS := fmt deny clippy doc

.NOTPARALLEL:
.PHONY: help demo bench test jepsen verify checks list-checks fix sim setup $(CHECKS:%=check-%)

help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-8s %s\n", $$1, $$2 }' Makefile

demo: ## three nodes, a paused worker, a late write refused (DEST=postgres, mariadb, redis)
	@scripts/setup rust build $(filter postgres mariadb redis,$(DEST))
	@$(CARGO) build --locked --bin ringfence
	@"$(CARGO_TARGET_DIR)/debug/ringfence" demo

bench: ## what a cluster does on this machine (ARGS="cycles --seconds 10")
	@scripts/setup rust build
	@$(CARGO) build --locked --bin ringfence --config scripts/optimised.toml
	@"$(CARGO_TARGET_DIR)/debug/ringfence" bench $(ARGS)

test: ## all tests
	@scripts/setup rust build postgres pgbouncer mariadb redis
	@$(CARGO) test --locked
	@$(CARGO) test --locked $(SWITCHES)

verify: checks test ## what CI runs: format, lints, docs, licences, tests; changes nothing

checks: $(CHECKS:%=check-%)

fix: ## format, and take the lints' suggestions
	@scripts/setup rust build
	@cargo fmt
	@$(CARGO) clippy --locked --all-targets --fix --allow-dirty --allow-staged
	@$(CARGO) clippy --locked --all-targets --fix --allow-dirty --allow-staged $(CLIENT)
	@$(CARGO) clippy --locked --all-targets --fix --allow-dirty --allow-staged $(BARE)
	@cargo fmt

sim: ## the seeded simulation alone (SEEDS=n; needs no C++ compiler)
	@scripts/setup rust
	@SIM_SEEDS=$(SEEDS) $(CARGO) test --locked $(SWITCHES) --test sim -- --nocapture

jepsen: ## five nodes under faults for two minutes, as root (ARGS="--seed 7")
	@scripts/setup rust build
	@$(CARGO) build --locked --bin ringfence
	@$(CARGO) build --locked -p ringfence-jepsen -p ringfence-fault-shim
	@"$(CARGO_TARGET_DIR)/debug/jepsen" run --binary "$(CARGO_TARGET_DIR)/debug/ringfence" $(ARGS)

setup: ## install what the targets need, or name it
	@scripts/setup rust build postgres pgbouncer mariadb redis deny

check-fmt:
	@scripts/setup rust
	cargo fmt --check

check-deny:
	@scripts/setup rust deny
	@scripts/deny

check-clippy:
	@scripts/setup rust build
	$(CARGO) clippy --locked --all-targets $(BARE) --features switches -- -D warnings
	$(CARGO) clippy --locked --all-targets $(CLIENT) -- -D warnings
	$(CARGO) clippy --locked --all-targets -- -D warnings

check-doc:
	@scripts/setup rust build
	RUSTDOCFLAGS="-D warnings" $(CARGO) doc --locked --no-deps

list-checks:
	@echo $(CHECKS)
