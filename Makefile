CARGO ?= cargo
export CARGO_TERM_COLOR ?= auto

.PHONY: help run test soak bench fuzz lint screenshot setup

help:
	@echo 'make run    a built-in example host, served; open its page'
	@echo 'make test   installs what the tests need, then runs everything'
	@echo 'make soak   a day of work in minutes: hosts that change, reloads, rotations, full disks, kill -9'
	@echo 'make bench  cost of a scrape, a pass and a crowd, as ratios with their limits'
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

soak:
	$(CARGO) test --locked --test soak -- --ignored --nocapture

bench: setup
	$(CARGO) bench --locked

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
