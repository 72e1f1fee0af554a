CARGO ?= cargo
export CARGO_TERM_COLOR ?= auto

.PHONY: help run test lab capture capture-libvirt shuffles soak state web-edits bench fleet fuzz lint alerts alerts-timing screenshot dashboards-pictures setup lab-image dist dist-twice release arm64 lab-arm64

help:
	@echo 'make run    a built-in example host, served; open its page'
	@echo 'make test   installs what the tests need, then runs everything, virtual machines included where there can be any'
	@echo 'make lab    the scenarios on real kernels alone (Debian 12 on x86_64, as root; no KVM needed), and what the agent costs there'
	@echo 'make capture   records the hosts of the lab anew that the tests have, tests/cases/hosts/lab-*'
	@echo 'make capture-libvirt   records anew what a real libvirtd writes of a machine that is saved, moved and killed'
	@echo 'make shuffles   the timelines of VF maps in 10,000 orders each (LANEWATCH_SHUFFLES says how many)'
	@echo 'make soak   a day of work in minutes: hosts that change, reloads, rotations, full disks, kill -9'
	@echo 'make state  baselines accepted beside an agent 100 times on tmpfs, ext4 and overlayfs, and 500 agents killed twice'
	@echo 'make web-edits   10,000 random edits of a web configuration while somebody without a certificate tries to get in'
	@echo 'make bench  cost of a scrape, a pass and a crowd, as ratios with their limits'
	@echo 'make fleet  an audit of 10,000 simulated hosts, and the rules over 1,000: what they cost'
	@echo 'make fuzz   each fuzz target for a minute (FUZZ_SECONDS=3600: an hour); needs a C++ compiler, installs cargo-fuzz'
	@echo 'make dist   packages (Debian, RPM), tarballs and image for x86_64 and aarch64, chart, bill of materials, checksums, in dist/'
	@echo 'make release TAG=v1.2.3   that, of a tag, with checks that everything states the same version'
	@echo 'make arm64  the aarch64 program under user-mode emulation: library tests, recorded hosts, packages in old distributions'
	@echo 'make lab-arm64   scenarios on an arm64 kernel (QEMU virt)'
	@echo 'make dist-twice  that, of two clones at other paths, compared byte by byte'
	@echo 'make lint   format, clippy, documentation and spelling without a warning'
	@echo 'make alerts the rules for Kubernetes and vmalert, and tables of alerts, from alerts/lanewatch.rules.yml'
	@echo 'make alerts-timing  16 faults with the waits that ship: a table of pages, tickets and times; an hour and a half'
	@echo 'make screenshot   docs/images/page.png, the status page of the example host'
	@echo 'make dashboards-pictures   docs/images/dashboards, drawn by components of Grafana from npm'

run:
	$(CARGO) run --release -- demo

setup:
	bash tests/setup.sh

lab-image:
	bash tests/lab/image.sh
	bash tests/packaging/tree.sh

# One more at a time than there are CPUs: machines and servers wait for a good part of their time.
test: export RUST_TEST_THREADS ?= $(shell echo $$(($$(nproc) + 1)))
test: setup lab-image
	@mkdir -p target && rm -f target/skipped target/cases.txt target/lab/again
	$(CARGO) fetch --locked
	$(CARGO) test --locked
	@[ ! -f target/cases.txt ] || cat target/cases.txt
	@if [ -s target/skipped ]; then echo "$$(wc -l <target/skipped) skipped:"; cat target/skipped; fi
	@if [ -s target/lab/again ]; then echo "$$(grep -c '^[^ ]' target/lab/again) passed at the second try:"; cat target/lab/again; fi

lab: lab-image
	$(CARGO) test --locked --test lab
	$(CARGO) test --locked --test lab -- --ignored --nocapture cost:: systemd:: replays::

capture: lab-image
	$(CARGO) test --locked --test lab -- --ignored captures::

capture-libvirt:
	bash tests/libvirt/record.sh src/watch/vfmap/tests/libvirt.txt

shuffles: export LANEWATCH_SHUFFLES ?= 10000
shuffles:
	$(CARGO) test --locked --lib -- --nocapture vfmap::tests::order::every_interleaving vfmap::tests::libvirt

state:
	bash tests/state.sh

web-edits:
	LANEWATCH_WEB_EDITS=10000 $(CARGO) test --locked --test web no_edit_lets_anyone_in -- --nocapture

soak:
	$(CARGO) test --locked --test soak -- --ignored --nocapture

# The whole fleet is `make fleet`, which takes ten minutes.
bench: setup
	LANEWATCH_FLEET_HOSTS=1000 LANEWATCH_RULE_HOSTS=0 $(CARGO) bench --locked

fleet: setup
	$(CARGO) bench --locked --bench fleet

fuzz:
	@command -v cargo-fuzz >/dev/null || $(CARGO) install --locked --version 0.13.2 cargo-fuzz
	bash fuzz/run.sh

dist:
	bash tests/setup.sh packaging
	bash packaging/dist.sh dist

release:
	bash tests/setup.sh packaging
	bash packaging/release.sh $(TAG)

# Its own folders: nothing of it is shared with other tests' builds.
arm64:
	bash tests/setup.sh arm64
	bash tests/arm64.sh

lab-arm64:
	bash tests/setup.sh arm64
	bash tests/lab/image.sh arm64
	bash tests/lab/arm64.sh

# The clones and what they build stay in .cache/twice: a second time only what has changed is built.
dist-twice:
	bash tests/setup.sh packaging
	bash packaging/dist-twice.sh .cache/twice

lint:
	$(CARGO) fmt --check
	$(CARGO) fmt --check --manifest-path fuzz/Cargo.toml
	$(CARGO) clippy --locked --all-targets -- -D warnings
	RUSTDOCFLAGS='-D warnings' $(CARGO) doc --locked --no-deps
	bash tests/spelling.sh

alerts:
	LANEWATCH_UPDATE=1 $(CARGO) test --locked --test alerts generated

# Mostly waiting. LANEWATCH_ALERTS_MINUTES=45 leaves out what clears an hour after its last event.
alerts-timing: setup
	$(CARGO) test --locked --test alerts -- --ignored --nocapture every_fault_with_the_waits_that_ship

screenshot: setup
	$(CARGO) test --locked --test page -- --ignored the_picture_in_the_readme

dashboards-pictures: setup
	mkdir -p .cache/pictures
	cp tests/dashboards/pictures/package.json .cache/pictures/
	cd .cache/pictures && npm install --ignore-scripts --no-audit --no-fund --legacy-peer-deps --no-package-lock
	$(CARGO) test --locked --test dashboards -- --ignored the_pictures_of_the_dashboards
