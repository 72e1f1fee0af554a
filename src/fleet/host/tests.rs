use super::*;
use crate::fleet::answer::{Labels, Series};

/// A host from lines: `family{labels} value`, with labels as `name=value` without quotes.
fn host(lines: &[&str]) -> HostFacts {
    let mut host = HostFacts::new(HostId([].into()), vec!["r1".to_owned(), String::new()], String::new());
    let mut rows: Vec<(String, Series)> = lines.iter().map(|line| row(line)).collect();
    rows.sort_by_key(|(name, _)| !name.ends_with("_info"));
    for (name, row) in rows {
        match &*name {
            "finding" => host.finding(&row),
            "holders" => host.holder(&row),
            "past" => host.past(&row),
            name if name.ends_with("_info") => host.info(&row),
            _ => host.value(&row),
        }
    }
    host
}

fn row(line: &str) -> (String, Series) {
    let (series, value) = line.rsplit_once(' ').unwrap();
    let (name, labels) = series.split_once('{').unwrap();
    let full = format!("lanewatch_{name}");
    let pairs = labels.trim_end_matches('}').split(',').filter_map(|pair| pair.split_once('='));
    let labels: Labels = pairs.chain([("__name__", &*full)]).collect();
    (name.to_owned(), Series { labels, value: value.parse().unwrap() })
}

const X16: f64 = 16e9 * 128.0 / 130.0 * 16.0 / 8.0;

/// A card with one device and one active port of 25 GB/s on a link of this width at 16 GT/s.
fn card_of(device: &str, address: &str, lanes: f64, share: f64) -> Vec<String> {
    let current = X16 * lanes / 16.0;
    vec![
        format!(
            "device_info{{device={device},pci_address={address},hca_type=MT4123,firmware_version=1.2,function=pf}} 1"
        ),
        format!("port_info{{device={device},port=1,link_layer=InfiniBand}} 1"),
        format!("port_rate_bytes_per_second{{device={device},port=1}} 25000000000"),
        format!("port_share_bytes_per_second{{device={device},port=1}} {share}"),
        format!("pcie_path_info{{device={device},pci_address={address},limiting_pci_address={address}}} 1"),
        format!("pcie_link_current_bandwidth_bytes_per_second{{pci_address={address}}} {current}"),
        format!("pcie_link_capable_bandwidth_bytes_per_second{{pci_address={address}}} {X16}"),
        format!("pcie_link_max_speed_transfers_per_second{{pci_address={address}}} 16000000000"),
        format!("pcie_link_max_width_lanes{{pci_address={address}}} 16"),
    ]
}

fn report(cards: &[Vec<String>], more: &[&str]) -> HostCapacityReport {
    let lines: Vec<&str> = cards.iter().flatten().map(String::as_str).chain(more.iter().copied()).collect();
    compute_capacity(&host(&lines), &["rack".to_owned(), "hca_type".to_owned()])
}

fn whole(sums: &Sums) {
    let all = sums.usable.0 + sums.stranded().0 + sums.unknown.0;
    assert!((sums.installed.0 - all).abs() < 1.0, "{sums:?}");
}

#[test]
fn a_degraded_link_is_a_fix_with_its_gain() {
    let quarter = X16 / 4.0;
    let good = card_of("mlx5_0", "0000:0a:00.0", 16.0, 25e9);
    let found = report(&[good, card_of("mlx5_1", "0000:0b:00.0", 4.0, quarter)], &[]);
    assert_eq!((found.total.ports, found.total.installed.0, found.total.usable.0), (2, 50e9, 25e9 + quarter));
    assert!((found.total.degraded.0 - (25e9 - quarter)).abs() < 1.0);
    assert_eq!(found.fixes.len(), 1);
    let fix = &found.fixes[0];
    assert_eq!((fix.action, &*fix.subject), (RepairKind::FixLink, "0000:0b:00.0"));
    assert_eq!(found.groups.keys().next().unwrap(), &["r1", "MT4123"]);
    assert_eq!(found.firmware[&(("MT4123".to_owned(), String::new()), "1.2".to_owned())], 2);
    whole(&found.total);
}

#[test]
fn two_functions_of_one_card_share_its_link_and_are_not_counted_twice() {
    let half = X16 / 2.0;
    let (first, mut second) =
        (card_of("mlx5_0", "0000:0a:00.0", 16.0, half), card_of("mlx5_1", "0000:0a:00.1", 16.0, half));
    // One link, named by the lowest function.
    second.retain(|line| !line.starts_with("pcie_link"));
    let found = report(&[first, second], &[]);
    assert!((found.total.usable.0 - X16).abs() < 1.0);
    assert!((found.total.design.0 - (50e9 - X16)).abs() < 1.0);
    assert!(found.fixes.is_empty(), "{:?}", found.fixes);
    whole(&found.total);
}

#[test]
fn an_uplink_that_the_metrics_do_not_show_goes_by_the_finding() {
    let share = 25e9 / 2.0;
    let cards = [card_of("mlx5_0", "0000:0a:00.0", 16.0, share), card_of("mlx5_1", "0000:0b:00.0", 16.0, share)];
    let found = report(&cards, &["finding{check=pcie_below_port_rate,reason=link_degraded,device=mlx5_0,port=1} 1"]);
    assert_eq!((found.total.degraded.0, found.total.unknown.0), (share, share));
    assert_eq!(found.fixes.len(), 1);
    whole(&found.total);
}

#[test]
fn a_port_that_should_be_up_has_its_last_rate_or_that_of_its_like() {
    let down = [
        "device_info{device=mlx5_1,pci_address=0000:0b:00.0,hca_type=MT4123} 1",
        "port_info{device=mlx5_1,port=1} 1",
        "pcie_path_bandwidth_bytes_per_second{device=mlx5_1,pci_address=0000:0b:00.0} 8000000000",
    ];
    let finding = "finding{check=port_down,reason=link_down,device=mlx5_1,port=1} 1";
    let good = [card_of("mlx5_0", "0000:0a:00.0", 16.0, 25e9)];
    let never = report(&good, &down);
    assert_eq!((never.total.ports, never.total.down_ports, never.total.installed.0), (2, 0, 25e9));
    let [first, second, third] = down;
    let like = report(&good, &[first, second, third, finding]);
    assert_eq!((like.total.down_ports, like.total.down.0), (1, 25e9));
    assert_eq!(like.fixes[0].gain.0, 8e9, "what its path carries");
    let past = report(&good, &[first, second, third, finding, "past{device=mlx5_1,port=1} 5000000000"]);
    assert_eq!((past.total.down.0, past.fixes[0].gain.0), (5e9, 5e9));
    let alone = report(&[], &[first, second, third, finding]);
    assert_eq!((alone.total.down_ports, alone.total.rateless_ports, alone.total.installed.0), (1, 1, 0.0));
    whole(&past.total);
}

#[test]
fn a_device_that_is_gone_is_worth_its_past() {
    let finding = "finding{check=device_missing,reason=gone,device=mlx5_9} 1";
    let found = report(&[], &[finding, "past{device=mlx5_9,port=1} 12500000000"]);
    assert_eq!((found.total.missing_devices, found.total.missing.0, found.total.ports), (1, 12.5e9, 0));
    assert_eq!(found.fixes[0].action, RepairKind::RestoreDevice);
    assert_eq!(report(&[], &[finding]).total.rateless_ports, 1);
}

#[test]
fn vfs_by_who_holds_them_and_a_pf_without_any_on_a_host_that_gives_them_out() {
    let cards = [card_of("mlx5_0", "0000:0a:00.0", 16.0, 25e9), card_of("mlx5_1", "0000:0b:00.0", 16.0, 25e9)];
    let pfs = [
        "sriov_vfs{pf=0000:0a:00.0,kind=configured} 8",
        "sriov_vfs{pf=0000:0a:00.0,kind=present} 8",
        "sriov_vfs_limit{pf=0000:0a:00.0} 16",
        "sriov_vfs{pf=0000:0b:00.0,kind=configured} 0",
        "sriov_vfs_limit{pf=0000:0b:00.0} 16",
        "holders{pf=0000:0a:00.0,holder_kind=vm} 3",
        "holders{pf=0000:0a:00.0,holder_kind=pod} 1",
        "holders{pf=0000:0a:00.0,holder_kind=host} 1",
        "holders{pf=0000:0a:00.0,holder_kind=none} 2",
    ];
    let found = report(&cards, &pfs);
    let expected = VfSums { limit: 32, configured: 8, held: 4, on_host: 1, free: 2, unknown: 1 };
    assert_eq!(found.total.vfs, expected);
    assert_eq!((found.total.vf_less.0, found.total.usable.0), (25e9, 50e9));
    assert_eq!((found.fixes[0].action, &*found.fixes[0].subject), (RepairKind::ConfigureVfs, "0000:0b:00.0"));
    // Where nobody gives out VFs, none is missed.
    assert_eq!(report(&cards, &pfs[3..5]).total.vf_less.0, 0.0);
    whole(&found.total);
}

#[test]
fn a_bond_is_one_device_with_the_rate_of_all_its_ports() {
    let mut bond = card_of("mlx5_bond_0", "0000:0a:00.0", 16.0, 25e9);
    bond.push("sriov_vfs{pf=0000:0a:00.1,kind=configured} 0".to_owned());
    let found = report(&[bond], &[]);
    assert_eq!((found.total.devices, found.total.installed.0, found.total.usable.0), (1, 25e9, 25e9));
}

#[test]
fn software_devices_and_vfs_add_nothing() {
    let lines = [
        "device_info{device=rxe0,pci_address=,function=none} 1",
        "port_info{device=rxe0,port=1} 1",
        "port_rate_bytes_per_second{device=rxe0,port=1} 1000000000",
        "port_rate_bytes_per_second{device=mlx5_7,port=1} 25000000000",
    ];
    let found = report(&[], &lines);
    assert_eq!((found.total.hosts, found.total.devices, found.total.ports, found.total.installed.0), (1, 0, 0, 0.0));
}

#[test]
fn a_path_that_is_not_known_is_neither_usable_nor_stranded() {
    let mut card = card_of("mlx5_0", "0000:0a:00.0", 16.0, 25e9);
    card.retain(|line| !line.contains("share"));
    let found = report(&[card], &[]);
    assert_eq!((found.total.unknown.0, found.total.usable.0), (25e9, 0.0));
    whole(&found.total);
}

#[test]
fn hosts_are_known_by_their_guids() {
    let of = |guid: &str| host(&[&format!("device_info{{device=a,pci_address=0000:0a:00.0,node_guid={guid}}} 1")]);
    assert!(fingerprint(&of("0011:2233:4455:6677")).is_some());
    assert!(fingerprint(&of("0000:0000:0000:0000")).is_none() && fingerprint(&of("")).is_none());
    assert_eq!(fingerprint(&of("0011:2233:4455:6677")), fingerprint(&of("0011:2233:4455:6677")));
}
