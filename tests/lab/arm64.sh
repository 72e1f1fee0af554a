#!/usr/bin/env bash
# Scenarios of the lab on an arm64 kernel: QEMU's virt board with Debian's kernel 6.12, emulated, so slower than the others. LANEWATCH_LAB_PROGRAM
# names another build of the program than that of the release profile, whose memory has a limit. `make lab-arm64` makes the image first.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
export LANEWATCH_LAB_ARCH=aarch64
if [[ -z ${LANEWATCH_LAB_PROGRAM:-} ]]; then
  cargo build --release --locked --target-dir target/arm64 --target aarch64-unknown-linux-musl
  export LANEWATCH_LAB_PROGRAM=$PWD/target/arm64/aarch64-unknown-linux-musl/release/lanewatch
fi
# Links, ports, errors, hot-plug, VFs, interrupts and what a user may see; the others need an IOMMU or are about the agent alone.
scenarios=(
  a_link_trains_down_and_recovers
  a_card_that_answers_with_ones_is_off_the_bus
  a_card_goes_and_comes_back_while_it_works_and_is_scraped
  soft_roce_counts_as_the_kernel_does
  infiniband_roce_and_their_links_are_as_the_kernel_says
  a_port_goes_down_and_comes_back
  a_flap_shorter_than_a_scrape_is_found_by_its_counter
  counters_saturate_and_refuse_without_harm_to_the_others
  files_and_netlink_say_the_same
  errors_count_where_they_are_seen
  a_fatal_error_is_critical
  lines_count_once_over_a_restart_and_a_burst_is_bounded
  an_ordinary_user_sees_the_lane_and_is_told_what_is_hidden
  scenarios::arm64::
)
cargo test --locked --test lab -- --include-ignored --nocapture --test-threads "${LANEWATCH_LAB_MACHINES:-2}" "${scenarios[@]}" "$@"
