//! What only arm64 has: nodes from a devicetree, interrupts of a GICv3's translation service, and a BlueField in DPU mode.
//! `make lab-arm64` runs them with other scenarios.

use serde_json::json;

use crate::guest::{Guest, Kernel, on};
use crate::kernels::architecture;

/// The card on the only bridge of a machine that a devicetree describes: on node 1, whose CPUs are 2 and 3.
const CARD: &str = "0000:02:00.0";

/// Scenarios of one architecture: none on another.
fn arm() -> bool {
    architecture() == "aarch64"
}

#[test]
#[ignore = "make lab-arm64"]
fn vectors_of_the_its_are_placed_by_the_nodes_of_the_devicetree() {
    on(Kernel::V6_12, |kernel| {
        let Some(mut guest) = arm().then(|| Guest::boot_with(kernel, &json!({"devicetree": true}))).flatten() else {
            return;
        };
        guest.sh("ip link set pf0 up; ip link set pf1 up; ip addr add 192.168.51.1/24 dev pf1; \
             modprobe labib pci=0000:02:00.0 roce=1; ip netns add n0; ip link set pf0 netns n0; \
             ip -n n0 link set pf0 up; ip -n n0 addr add 192.168.51.2/24 dev pf0");
        guest.until("ip netns exec n0 ping -q -c 1 -W 1 192.168.51.1 >/dev/null");
        guest.sh(&format!(
            "grep -q 'ITS-PCI-MSIX-{CARD} .* Edge ' /proc/interrupts; grep -q 1 /sys/bus/pci/devices/{CARD}/numa_node"
        ));
        let traffic = "ip netns exec n0 ping -c 300 -i 0.01 -q 192.168.51.1";
        let move_to = |cpus: &str| {
            format!(
                "for i in /sys/bus/pci/devices/{CARD}/msi_irqs/*; do echo {cpus} > /proc/irq/${{i##*/}}/smp_affinity_list; done"
            )
        };
        guest.sh(&move_to("2-3"));
        guest.serve("[policy.hold]\nirq_remote = \"0s\"\n");
        guest.sh(traffic);
        let remote = [("pci_address", CARD), ("locality", "remote")];
        guest.wait_for("lanewatch_irq_vectors", &remote, Some(0.0));
        guest.wait_for_finding("irq_remote", "mlx5_0", false);

        guest.sh(&move_to("0"));
        guest.sh(traffic);
        guest.wait_until("interrupts on the other node", |guest| {
            guest.value("lanewatch_irq_vectors", &remote) > Some(0.0)
        });
        guest.wait_for_finding("irq_remote", "mlx5_0", true);
    });
}

/// Writes the host of a BlueField in DPU mode below `/run/dpu`: 8 CPUs of no node, and one card whose RDMA device has an uplink and
/// 128 ports of representors, each with an interface.
const DPU: &str = r#"
h=/run/dpu; c=$h/sys/devices/pci0000:00/0000:00:00.0/0000:03:00.0; b=$h/sys/bus/pci; d=$c/infiniband/mlx5_0
mkdir -p $d/ports $c/net $b/devices $b/drivers/mlx5_core $h/sys/class/infiniband $h/sys/class/net $h/sys/devices/system/cpu $h/proc/sys/kernel
echo 0-7 | tee $h/sys/devices/system/cpu/online > $h/sys/devices/system/cpu/possible
echo 5.15.0-1063-bluefield > $h/proc/sys/kernel/osrelease
ln -s ../../../devices/pci0000:00/0000:00:00.0/0000:03:00.0 $b/devices/0000:03:00.0
ln -s ../../../../devices/pci0000:00/0000:00:00.0/0000:03:00.0 $b/drivers/mlx5_core/0000:03:00.0
ln -s ../../devices/pci0000:00/0000:00:00.0/0000:03:00.0/infiniband/mlx5_0 $h/sys/class/infiniband/mlx5_0
ln -s ../../../../bus/pci/drivers/mlx5_core $c/driver
put() { echo "$2" > "$1"; }
put $c/vendor 0x15b3; put $c/device 0xa2dc; put $c/class 0x020000; put $c/numa_node -1
put $c/current_link_speed '32.0 GT/s PCIe'; put $c/max_link_speed '32.0 GT/s PCIe'; put $c/current_link_width 16; put $c/max_link_width 16
put $c/../vendor 0x15b3; put $c/../class 0x060400
put $d/node_type '1: CA'; put $d/hca_type MT41692; put $d/fw_ver 32.43.1014; put $d/node_guid b83f:d203:0044:aa00; ln -s ../../../0000:03:00.0 $d/device
for i in $(seq 1 129); do
  p=$d/ports/$i; mkdir -p $p/counters $p/hw_counters $p/gid_attrs/ndevs
  put $p/state '4: ACTIVE'; put $p/phys_state '5: LinkUp'; put $p/rate '200 Gb/sec (4X HDR)'; put $p/link_layer Ethernet
  [ $i = 1 ] && { n=p0; q=p0; } || { n=pf0vf$((i - 2)); q=$n; }
  put $p/gid_attrs/ndevs/0 $n
  for k in port_rcv_data port_xmit_data port_rcv_packets port_xmit_packets symbol_error link_downed port_rcv_errors port_xmit_discards; do put $p/counters/$k $((i * 1000)); done
  for k in out_of_sequence packet_seq_err local_ack_timeout_err rnr_nak_retry_err; do put $p/hw_counters/$k 0; done
  e=$c/net/$n; mkdir -p $e; put $e/phys_port_name $q; put $e/operstate up; put $e/type 1; put $e/mtu 9000; put $e/address 02:00:00:00:00:$(printf %02x $((i % 256)))
  ln -s ../../devices/pci0000:00/0000:00:00.0/0000:03:00.0/net/$n $h/sys/class/net/$n
done
"#;

/// CPU time of the agent so far, to which a busy host adds, in milliseconds.
const SPENT: &str =
    "cat /proc/$(pgrep -x lanewatch)/task/*/schedstat | awk '{ spent += $1 } END { print spent / 1e6 }'";

#[test]
#[ignore = "make lab-arm64"]
fn a_dpu_with_128_representors_costs_less_than_16_mib() {
    let Some(mut guest) = arm().then(|| Guest::boot_with(Kernel::V6_12, &json!({"smp": 8}))).flatten() else { return };
    guest.sh(DPU);
    guest.serve("[path]\nrootfs = \"/run/dpu\"\n");
    guest.wait_for("lanewatch_port_state", &[("device", "mlx5_0"), ("port", "129"), ("state", "ACTIVE")], Some(1.0));
    // One wire, however many ports: nothing asks for more than the link carries.
    let findings = guest.findings();
    assert!(!findings.iter().any(|[check, ..]| check == "pcie_below_port_rate"), "{findings:?}");
    let number = |guest: &mut Guest, command: &str| guest.sh(command).trim().parse::<f64>().unwrap();
    let (mut least, mut samples) = (f64::INFINITY, 0);
    for _ in 0..5 {
        guest.sh("sleep 1.5");
        let before = number(&mut guest, SPENT);
        samples = guest.scrape().len();
        least = least.min(number(&mut guest, SPENT) - before);
    }
    let before = number(&mut guest, SPENT);
    guest.sh("sleep 60");
    let idle = (number(&mut guest, SPENT) - before) / 60_000.0 * 100.0;
    let memory = |field: &str| format!("awk '/{field}:/ {{ print $2 / 1024 }}' /proc/$(pgrep -x lanewatch)/status");
    let (heap, peak) = (number(&mut guest, &memory("RssAnon")), number(&mut guest, &memory("VmHWM")));
    println!(
        "arm64, emulated, 8 CPUs, 128 representors: {least:.1} ms of CPU a scrape ({samples} samples), {idle:.2} % of a core idle, \
         {peak:.1} MiB resident at most, {heap:.1} MiB of it without a file"
    );
    assert!(peak < 16.0, "{peak} MiB");
}
