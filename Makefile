CARGO ?= cargo
export CARGO_TERM_COLOR ?= auto

.PHONY: help run test bench fuzz lint screenshot dashboards-pictures setup

help:
	@echo 'make run    a built-in example host, served; open its page'
	@echo 'make test   installs what the tests need, then runs everything'
	@echo 'make bench  cost of a scrape, a pass and a crowd, as ratios with their limits'
	@echo 'make fuzz   each fuzz target for a minute; needs a C++ compiler, installs cargo-fuzz'
	@echo 'make lint   format, clippy and documentation without a warning'
	@echo 'make screenshot   docs/images/page.png, the status page of the example host'
	@echo 'make dashboards-pictures   docs/images/dashboards, drawn by components of Grafana from npm'

run:
	$(CARGO) run --release -- demo

setup:
	bash tests/setup.sh

test: setup
	@mkdir -p target && rm -f target/skipped target/cases.txt
	$(CARGO) test --locked
	@[ ! -f target/cases.txt ] || cat target/cases.txt
	@if [ -s target/skipped ]; then echo "$$(wc -l <target/skipped) skipped:"; cat target/skipped; fi

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

dashboards-pictures: setup
	mkdir -p .cache/pictures
	cp tests/dashboards/pictures/package.json .cache/pictures/
	cd .cache/pictures && npm install --ignore-scripts --no-audit --no-fund --legacy-peer-deps --no-package-lock
	$(CARGO) test --locked --test dashboards -- --ignored the_pictures_of_the_dashboards
