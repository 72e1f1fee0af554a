//! Interrupts that are moved to the other NUMA node, and a CPU that goes away.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::guest::{Guest, Kernel, on, on_each_kernel};
use crate::prometheus::Prometheus;

const CARD: &str = "0000:81:00.0";

/// Sends traffic between the two cards so that their vectors work.
const TRAFFIC: &str = "ip netns exec n0 ping -c 300 -i 0.01 -q 192.168.51.1";

#[test]
fn vectors_on_the_other_node_are_found() {
    on_each_kernel(|kernel| {
        let Some(mut guest) = Guest::boot(kernel) else { return };
        guest.stand_in();
        guest.sh("rmmod labib; modprobe labib pci=0000:81:00.0 roce=1; ip netns add n0; ip link set pf0 netns n0; \
             ip -n n0 link set pf0 up; ip -n n0 addr add 192.168.51.2/24 dev pf0");
        guest.until("ip netns exec n0 ping -q -c 1 -W 1 192.168.51.1 >/dev/null");
        let move_to = |cpus: &str| {
            format!(
                "for i in /sys/bus/pci/devices/{CARD}/msi_irqs/*; do echo {cpus} > /proc/irq/${{i##*/}}/smp_affinity_list; done"
            )
        };
        guest.sh(&move_to("2-3"));
        guest.serve("[policy.hold]\nirq_remote = \"0s\"\n");
        guest.sh(TRAFFIC);
        guest.wait_for_finding("irq_remote", "mlx5_0", false);
        let remote = [("pci_address", CARD), ("locality", "remote")];
        guest.wait_for("lanewatch_irq_vectors", &remote, Some(0.0));
        let Some(prometheus) = Prometheus::watching(&guest) else { return };

        guest.sh(&move_to("0"));
        guest.sh(TRAFFIC);
        guest.wait_until("interrupts on the other node", |guest| {
            guest.value("lanewatch_irq_vectors", &remote) > Some(0.0)
        });
        guest.wait_for_finding("irq_remote", "mlx5_0", true);
        prometheus.wait_for("IrqRemote", "mlx5_0", true);

        guest.sh(&move_to("2-3"));
        guest.sh(TRAFFIC);
        guest.wait_for_finding("irq_remote", "mlx5_0", false);
        prometheus.wait_for("IrqRemote", "mlx5_0", false);

        // The kernel moves what a CPU served that goes away.
        guest.sh("echo 0 > /sys/devices/system/cpu/cpu3/online");
        guest.sh(TRAFFIC);
        guest.wait_for("lanewatch_collector_success", &[("collector", "irq")], Some(1.0));
        guest.wait_for("lanewatch_irq_vectors", &remote, Some(0.0));
    });
}

/// Vectors that the kernel itself places: which they are, it tells by refusing to move them. 6.1 refuses, too, and shows
/// it in no file.
#[test]
fn vectors_that_only_the_kernel_may_move_are_told_apart() {
    on(Kernel::V6_12, |kernel| {
        let options = json!({"nvme": true, "mods": "igb,virtio_net,nvme"});
        let Some(mut guest) = Guest::boot_with(kernel, &options) else { return };
        guest.until("grep -q nvme0q1 /proc/interrupts");
        let card = guest.sh("basename $(dirname $(grep -l 0x010802 /sys/bus/pci/devices/*/class))").trim().to_owned();
        guest.sh(&format!("modprobe labib pci={card} roce=0"));
        guest.until("[ -d /sys/class/infiniband/mlx5_0/ports/1/counters ]");
        guest.serve("[policy.hold]\nirq_remote = \"0s\"\n");
        guest.wait_for("lanewatch_collector_success", &[("collector", "irq")], Some(1.0));
        let vectors = |guest: &Guest| -> BTreeMap<u64, bool> {
            let snapshot: Value = serde_json::from_str(&guest.get("/api/v1/snapshot")).unwrap();
            let functions = snapshot["interrupts"].as_array().unwrap_or_else(|| panic!("{snapshot}"));
            let of_card = functions.iter().filter(|function| function["pci_address"] == card.as_str());
            let vectors = of_card.flat_map(|function| function["vectors"].as_array().unwrap());
            vectors.map(|one| (one["irq"].as_u64().unwrap(), one["managed"].as_bool().unwrap())).collect()
        };
        let said = vectors(&guest);
        for (irq, managed) in &said {
            let file = format!("/proc/irq/{irq}/smp_affinity_list");
            let (code, _) = guest.run(&format!("echo $(cat {file}) > {file}"));
            assert_eq!(code != 0, *managed, "vector {irq} of {said:?}");
        }
        assert!(said.values().any(|managed| *managed) && said.values().any(|managed| !*managed), "{said:?}");

        // Only the one that can be moved is complained of, and moving it is the end of that.
        guest.wait_for_finding("irq_remote", "mlx5_0", true);
        let own: Vec<String> = said.iter().filter(|(_, managed)| !**managed).map(|(irq, _)| irq.to_string()).collect();
        guest.sh(&format!(
            "for i in {}; do echo 2-3 > /proc/irq/$i/smp_affinity_list; done; \
                 for i in 1 2 3 4 5; do echo 1 > /sys/class/nvme/nvme0/rescan_controller; sleep 0.2; done",
            own.join(" ")
        ));
        guest.wait_for_finding("irq_remote", "mlx5_0", false);

        // The kernel shuts a managed one down with its CPU: it is still told apart.
        guest.sh("echo 0 > /sys/devices/system/cpu/cpu1/online");
        guest.wait_for("lanewatch_collector_success", &[("collector", "irq")], Some(1.0));
        guest.wait_until("the same vectors", |guest| vectors(guest) == said);
    });
}
