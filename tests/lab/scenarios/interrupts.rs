//! Interrupts that are moved to the other NUMA node, and a CPU that goes away.

use crate::guest::{Guest, Kernel};

const CARD: &str = "0000:81:00.0";

/// Sends traffic between the two cards so that their vectors work.
const TRAFFIC: &str = "ip netns exec n0 ping -c 300 -i 0.01 -q 192.168.51.1";

#[test]
fn vectors_on_the_other_node_are_found() {
    let Some(mut guest) = Guest::boot(Kernel::V6_12) else { return };
    guest.stand_in();
    guest.sh("rmmod labib; modprobe labib pci=0000:81:00.0 roce=1; ip netns add n0; ip link set pf0 netns n0; \
         ip -n n0 link set pf0 up; ip -n n0 addr add 192.168.51.2/24 dev pf0; sleep 2");
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

    guest.sh(&move_to("0"));
    guest.sh(TRAFFIC);
    guest.wait_until("interrupts on the other node", |guest| guest.value("lanewatch_irq_vectors", &remote) > Some(0.0));
    guest.wait_for_finding("irq_remote", "mlx5_0", true);

    guest.sh(&move_to("2-3"));
    guest.sh(TRAFFIC);
    guest.wait_for_finding("irq_remote", "mlx5_0", false);

    // The kernel moves what a CPU served that goes away.
    guest.sh("echo 0 > /sys/devices/system/cpu/cpu3/online");
    guest.sh(TRAFFIC);
    guest.wait_for("lanewatch_collector_success", &[("collector", "irq")], Some(1.0));
    guest.wait_for("lanewatch_irq_vectors", &remote, Some(0.0));
}
