CARGO ?= cargo
export CARGO_TERM_COLOR ?= auto

.PHONY: help run test bench fleet fuzz lint screenshot setup

help:
	@echo 'make run    a built-in example host, served; open its page'
	@echo 'make test   installs what the tests need, then runs everything'
	@echo 'make bench  cost of a scrape, a pass and a crowd, as ratios with their limits'
	@echo 'make fleet  an audit of 10,000 simulated hosts, and the rules over 1,000: what they cost'
	@echo 'make fuzz   each fuzz target for a minute; needs a C++ compiler, installs cargo-fuzz'
	@echo 'make lint   format, clippy and documentation without a warning'
	@echo 'make screenshot   docs/images/page.png, the status page of the example host'

run:
	$(CARGO) run --release -- demo

setup:
	bash tests/setup.sh

test: setup
	@mkdir -p target && rm -f target/skipped target/cases.txt
	$(CARGO) test --locked
	@[ ! -f target/cases.txt ] || cat target/cases.txt
	@if [ -s target/skipped ]; then echo "$$(wc -l <target/skipped) skipped:"; cat target/skipped; fi

# The whole fleet is `make fleet`, which takes ten minutes.
bench: setup
	LANEWATCH_FLEET_HOSTS=1000 LANEWATCH_RULE_HOSTS=0 $(CARGO) bench --locked

fleet: setup
	$(CARGO) bench --locked --bench fleet

fuzz:
	@command -v cargo-fuzz >/dev/null || $(CARGO) install --locked --version 0.13.2 cargo-fuzz
	bash fuzz/run.sh

lint:
	$(CARGO) fmt --check
	$(CARGO) fmt --check --manifest-path fuzz/Cargo.toml
	$(CARGO) clippy --locked --all-targets -- -D warnings
	RUSTDOCFLAGS='-D warnings' $(CARGO) doc --locked --no-deps

screenshot: setup
	$(CARGO) test --locked --test page -- --ignored the_picture_in_the_readme
