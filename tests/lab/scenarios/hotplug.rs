//! A card that is pulled out while it works and is watched, and put back.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use serde_json::json;

use crate::common::exposition::parse;
use crate::common::http;
use crate::guest::{Guest, on_each_kernel};
use crate::prometheus::Prometheus;

const PF: &str = "0000:41:00.0";

/// Two VFs of `pf0`, and a network namespace behind `pf1` that sends to `pf0` without end.
fn load(guest: &mut Guest) {
    guest.sh(&format!(
        "modprobe igbvf; echo 2 > /sys/bus/pci/devices/{PF}/sriov_numvfs; ip addr add 192.168.52.1/24 dev pf0; \
         ip netns add n1; ip link add mv0 link pf1 type macvlan; ip link set mv0 netns n1; ip -n n1 link set mv0 up; \
         ip -n n1 addr add 192.168.52.2/24 dev mv0; (setsid ip netns exec n1 ping -q -i 0.02 192.168.52.1 >/dev/null 2>&1 &)"
    ));
    guest.until("[ $(cat /sys/class/net/pf0/statistics/rx_packets) -gt 50 ]");
}

#[test]
fn a_card_goes_and_comes_back_while_it_works_and_is_scraped() {
    on_each_kernel(|kernel| {
        let Some(mut guest) = Guest::boot(kernel) else { return };
        guest.stand_in();
        load(&mut guest);
        guest.set("mlx5_0", &[("rcv_packets", 4711)]);
        guest.serve("[policy.hold]\ndevice_missing = \"15s\"\n");
        let (address, done) = (guest.address(), AtomicBool::new(false));
        let scrapes = thread::scope(|scope| {
            let scraper = scope.spawn(|| {
                let mut scrapes = 0;
                while !done.load(Ordering::Relaxed) {
                    let answer = http::get(address, "/metrics").expect("the agent answers throughout");
                    assert_eq!(answer.status, 200);
                    parse(&answer.text()).unwrap();
                    scrapes += 1;
                    thread::sleep(Duration::from_millis(500));
                }
                scrapes
            });
            // Whatever becomes of it, the scraper is told to end.
            let _ends = Ends(&done);
            goes_and_comes_back(&mut guest);
            done.store(true, Ordering::Relaxed);
            scraper.join().unwrap()
        });
        assert!(scrapes > 10, "{scrapes}");
        assert!(!guest.log().contains("panicked"));
    });
}

struct Ends<'a>(&'a AtomicBool);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

fn goes_and_comes_back(guest: &mut Guest) {
    let active = [("device", "mlx5_0"), ("port", "1"), ("state", "ACTIVE")];
    let vfs = [("pf", PF), ("kind", "present")];
    guest.wait_for("lanewatch_port_state", &active, Some(1.0));
    guest.wait_for("lanewatch_sriov_vfs", &vfs, Some(2.0));
    guest.wait_for_event("baseline_learned", "mlx5_0");
    let Some(prometheus) = Prometheus::watching(guest) else { return };

    guest.call("qmp", &json!({"cmd": "device_del", "id": "igb0"}));
    guest.call("wait_event", &json!({"name": "DEVICE_DELETED"}));
    guest.wait_for("lanewatch_port_state", &active, None);
    guest.wait_for("lanewatch_sriov_vfs", &vfs, None);
    guest.wait_for_finding("device_missing", "mlx5_0", true);
    assert_eq!(guest.check_finds("device_missing", "mlx5_0", true).as_deref(), Some("baseline"));
    // Not before its hold.
    let gone = guest.event_time("device_gone", "mlx5_0", "").expect("an event");
    let missing = guest.event_time("finding_began", "mlx5_0", "device_missing").expect("an event");
    assert!(missing.duration_since(gone).unwrap() >= Duration::from_secs(14), "{gone:?} {missing:?}");
    let scrape = guest.scrape();
    let of_card = scrape.iter().filter(|sample| {
        let is = |label: &str, value: &str| sample.labels.get(label).is_some_and(|there| there == value);
        let about = ["lanewatch_p", "lanewatch_device", "lanewatch_vf_i", "lanewatch_irq"];
        about.iter().any(|name| sample.name.starts_with(name)) && (is("device", "mlx5_0") || is("pci_address", PF))
    });
    let left: Vec<_> = of_card.collect();
    assert!(left.is_empty(), "{left:?}");
    assert_eq!(guest.value("lanewatch_port_state", &[("device", "mlx5_1"), ("state", "ACTIVE")]), Some(1.0));
    prometheus.wait_for("DeviceMissing", "mlx5_0", true);

    let card = json!({
        "cmd": "device_add", "driver": "igb", "id": "igb0", "bus": "rp0", "netdev": "h0", "mac": "52:54:00:aa:00:00",
    });
    guest.call("qmp", &card);
    guest.wait_for("lanewatch_port_state", &active, Some(1.0));
    guest.wait_for_finding("device_missing", "mlx5_0", false);
    guest.wait_for_event("device_appeared", "mlx5_0");
    guest.wait_for("lanewatch_sriov_vfs", &vfs, Some(0.0));
    prometheus.wait_for("DeviceMissing", "mlx5_0", false);
}
