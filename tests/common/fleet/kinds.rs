//! The kinds of hosts that a simulated fleet is made of, each with what an audit must find on it, reckoned by hand.

use super::super::host::{Card, GEN3, GEN4, GEN5, HW, HostTree, Layer, LinkEnd, PMA};
use super::super::tree::Tree;

/// What an audit must find on one host of a kind. Bandwidth is in Gb/s.
#[derive(Debug, Clone, Default)]
pub struct Truth {
    /// Devices.
    pub devices: u64,
    /// Ports, active ports, ports that should be up, devices that are gone, ports of these without a known rate.
    pub ports: [u64; 5],
    /// The sum of rates.
    pub installed: f64,
    /// The sum of shares.
    pub usable: f64,
    /// By degraded links, slots, design, ports down, devices gone.
    pub stranded: [f64; 5],
    /// Usable, without a VF.
    pub vf_less: f64,
    /// Limit, configured, held, on the host, free, unknown.
    pub vfs: [u64; 6],
    /// What to do: action, subject, gain in Gb/s.
    pub fixes: Vec<(&'static str, String, f64)>,
}

/// What stands behind a host's name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CheckResult {
    /// A host that is scraped.
    Up,
    /// One that no longer answers.
    Dead,
    /// One whose agent answers and no longer looks.
    Stale,
    /// One that is scraped under another name as well.
    Twice,
}

/// A kind of host.
pub struct Kind {
    /// A word for it.
    pub name: &'static str,
    /// How many of 10,000 hosts are of this kind.
    pub weight: u64,
    /// Its standing.
    pub standing: CheckResult,
    /// Its files.
    pub tree: Tree,
    /// The same host before, when something that was up is down or gone.
    pub before: Option<Tree>,
    /// Device type and firmware.
    pub model: (&'static str, &'static str),
    /// What must be found.
    pub truth: Truth,
}

/// What a link carries in Gb/s, from 8 GT/s on.
fn link(giga: f64, width: f64) -> f64 {
    giga * 128.0 / 130.0 * width
}

const CX6: (&str, &str) = ("MT4123", "20.39.3004");
const CX7: (&str, &str) = ("MT4129", "28.39.1002");
const CX6DX: (&str, &str) = ("MT4125", "22.39.1002");

/// The files of a host with these cards, of this model.
fn tree(cards: &[Card], model: (&str, &str)) -> Tree {
    let host = HostTree { cards: cards.to_vec(), ..HostTree::new(0) };
    let mut tree = host.tree();
    for device in host.devices() {
        let directory = device.function.join("infiniband").join(&device.name);
        tree.line(directory.join("hca_type"), model.0);
        tree.line(directory.join("fw_ver"), model.1);
    }
    // Nobody else runs there: who holds a VF can be seen, and is nobody.
    tree.line("proc/1/comm", "systemd");
    tree.link("proc/1/ns/net", "net:[1]");
    tree.link("proc/self/ns/net", "net:[1]");
    tree.directory("proc/1/fd");
    tree
}

fn kind(name: &'static str, weight: u64, cards: &[Card], model: (&'static str, &'static str), truth: Truth) -> Kind {
    Kind { name, weight, standing: CheckResult::Up, tree: tree(cards, model), before: None, model, truth }
}

/// A port that went down after it had moved data.
fn down(card: &Card) -> Card {
    Card { state: "1: DOWN", phys_state: "2: Polling", ..card.clone() }
}

/// Address of a card's first function, by the card's place.
fn address(index: usize) -> String {
    format!("0000:{:02x}:00.0", 5 + index * 7)
}

fn hpc() -> Vec<Kind> {
    let card = Card::default();
    let one = |usable: f64, stranded: [f64; 5]| Truth {
        devices: 1,
        ports: [1, 1, 0, 0, 0],
        installed: 200.0,
        usable,
        stranded,
        ..Truth::default()
    };
    let whole = || one(200.0, [0.0; 5]);
    let end = LinkEnd::full(GEN4, 16);
    let (narrow, slow) = (link(8.0, 8.0), link(8.0, 16.0));
    let degraded = Card { device: end.trained(GEN3, 8), ..card.clone() };
    let held = Card { device: end.trained(GEN3, 16), upstream: LinkEnd::full(GEN3, 16), ..card.clone() };
    let both = Card { device: end.trained(GEN3, 8), upstream: LinkEnd::full(GEN3, 16), ..card.clone() };
    let mend = |gain| ("mend_link", address(0), gain);
    let shift = |gain| ("move_card", address(0), gain);
    let mut never = tree(std::slice::from_ref(&down(&card)), CX6);
    let port = HostTree { cards: vec![down(&card)], ..HostTree::new(0) }.devices()[0].port.clone();
    // A port that has never been up: no address in the subnet, no packet, no link lost.
    never.line(port.join("lid"), "0x0");
    for counter in PMA {
        never.line(port.join("counters").join(counter), 0);
    }
    for counter in HW {
        never.line(port.join("hw_counters").join(counter), 0);
    }
    let lost = Truth {
        ports: [1, 0, 1, 0, 0],
        fixes: vec![("bring_up_port", "mlx5_0/1".to_owned(), 200.0)],
        ..one(0.0, [0.0, 0.0, 0.0, 200.0, 0.0])
    };
    vec![
        kind("hpc", 3000, std::slice::from_ref(&card), CX6, whole()),
        kind("hpc, old firmware", 200, std::slice::from_ref(&card), (CX6.0, "20.31.1014"), whole()),
        kind(
            "hpc, degraded",
            60,
            &[degraded],
            CX6,
            Truth { fixes: vec![mend(200.0 - narrow)], ..one(narrow, [200.0 - narrow, 0.0, 0.0, 0.0, 0.0]) },
        ),
        kind(
            "hpc, slow slot",
            120,
            &[held],
            CX6,
            Truth { fixes: vec![shift(200.0 - slow)], ..one(slow, [0.0, 200.0 - slow, 0.0, 0.0, 0.0]) },
        ),
        kind(
            "hpc, degraded in a slow slot",
            30,
            &[both],
            CX6,
            Truth {
                fixes: vec![mend(slow - narrow), shift(200.0 - slow)],
                ..one(narrow, [slow - narrow, 200.0 - slow, 0.0, 0.0, 0.0])
            },
        ),
        Kind {
            before: Some(tree(std::slice::from_ref(&card), CX6)),
            ..kind("hpc, down", 50, &[down(&card)], CX6, lost)
        },
        Kind {
            tree: never,
            ..kind(
                "hpc, never up",
                400,
                &[down(&card)],
                CX6,
                Truth { devices: 1, ports: [1, 0, 0, 0, 0], ..Truth::default() },
            )
        },
        Kind {
            standing: CheckResult::Dead,
            ..kind("hpc, dead", 40, std::slice::from_ref(&card), CX6, Truth::default())
        },
        Kind {
            standing: CheckResult::Stale,
            ..kind("hpc, stale", 20, std::slice::from_ref(&card), CX6, Truth::default())
        },
        Kind { standing: CheckResult::Twice, ..kind("hpc, twice", 10, std::slice::from_ref(&card), CX6, whole()) },
        kind("no card", 20, &[], CX6, Truth::default()),
    ]
}

fn gpu() -> Vec<Kind> {
    let end = LinkEnd::full(GEN5, 16);
    let card = Card { device: end, upstream: end, rate: "400 Gb/sec (4X NDR)", switch: false, ..Card::default() };
    let cards =
        || -> Vec<Card> { (0..8).map(|index| Card { numa_node: i32::from(index % 2 == 1), ..card.clone() }).collect() };
    let truth = Truth { devices: 8, ports: [8, 8, 0, 0, 0], installed: 3200.0, usable: 3200.0, ..Truth::default() };
    let half = link(32.0, 8.0);
    let (mut narrow, mut two, seven) = (cards(), cards(), cards()[..7].to_vec());
    narrow[3].device = end.trained(GEN5, 8);
    two[2] = down(&two[2]);
    two[5] = down(&two[5]);
    vec![
        kind("gpu", 2400, &cards(), CX7, truth.clone()),
        kind(
            "gpu, one narrow",
            40,
            &narrow,
            CX7,
            Truth {
                usable: 2800.0 + half,
                stranded: [400.0 - half, 0.0, 0.0, 0.0, 0.0],
                fixes: vec![("mend_link", address(3), 400.0 - half)],
                ..truth.clone()
            },
        ),
        kind(
            "gpu, two down",
            30,
            &two,
            CX7,
            Truth {
                ports: [8, 6, 2, 0, 0],
                usable: 2400.0,
                stranded: [0.0, 0.0, 0.0, 800.0, 0.0],
                fixes: [2, 5].map(|index| ("bring_up_port", format!("mlx5_{index}/1"), 400.0)).into(),
                ..truth.clone()
            },
        ),
        Kind {
            before: Some(tree(&cards(), CX7)),
            ..kind(
                "gpu, one gone",
                20,
                &seven,
                CX7,
                Truth {
                    devices: 7,
                    ports: [7, 7, 0, 1, 0],
                    usable: 2800.0,
                    stranded: [0.0, 0.0, 0.0, 0.0, 400.0],
                    fixes: vec![("restore_device", "mlx5_7".to_owned(), 400.0)],
                    ..truth
                },
            )
        },
    ]
}

/// VFs of each function of a hypervisor, and how many of them VMs hold.
const VFS: (u16, u16) = (8, 5);

fn hypervisors() -> Vec<Kind> {
    let end = LinkEnd::full(GEN4, 16);
    let card = |vfs| Card {
        functions: 2,
        device: end,
        upstream: end,
        layer: Layer::Ethernet,
        rate: "100 Gb/sec (2X HDR)",
        vfs,
        vfs_limit: Some(16),
        gids: 4,
        ..Card::default()
    };
    let truth = Truth { devices: 4, ports: [4, 4, 0, 0, 0], installed: 400.0, usable: 400.0, ..Truth::default() };
    let full = Truth { vfs: [64, 32, 20, 0, 12, 0], ..truth.clone() };
    let half = Truth {
        vfs: [64, 16, 10, 0, 6, 0],
        vf_less: 200.0,
        fixes: vec![
            ("configure_vfs", "0000:0c:00.0".to_owned(), 100.0),
            ("configure_vfs", "0000:0c:00.1".to_owned(), 100.0),
        ],
        ..truth
    };
    let mut kinds = vec![
        kind("hypervisor", 2500, &[card(VFS.0), card(VFS.0)], CX6DX, full),
        kind("hypervisor, one card without VFs", 60, &[card(VFS.0), card(0)], CX6DX, half),
    ];
    for (kind, cards) in kinds.iter_mut().zip([2, 1]) {
        for pf in 0..cards * 2 {
            machine(&mut kind.tree, pf);
        }
    }
    kinds
}

/// A virtual machine that holds VFs of a PF.
fn machine(tree: &mut Tree, pf: usize) {
    let process = format!("proc/{}", 1000 + pf);
    tree.line(format!("{process}/comm"), "qemu-system-x86");
    tree.file(format!("{process}/cmdline"), format!("/usr/bin/qemu-system-x86_64\0-name\0guest=vm{pf}\0"));
    tree.link(format!("{process}/ns/net"), "net:[1]");
    for vf in 0..usize::from(VFS.1) {
        let group = (5 + pf / 2 * 7) * 1000 + pf % 2 * 200 + vf;
        tree.link(format!("{process}/fd/{}", 10 + vf), format!("/dev/vfio/{group}"));
    }
}

fn storage() -> Vec<Kind> {
    let card = Card { functions: 2, ..Card::default() };
    let both = link(16.0, 16.0);
    vec![kind(
        "storage",
        1000,
        &[card],
        CX6,
        Truth {
            devices: 2,
            ports: [2, 2, 0, 0, 0],
            installed: 400.0,
            usable: both,
            stranded: [0.0, 0.0, 400.0 - both, 0.0, 0.0],
            ..Truth::default()
        },
    )]
}

/// Every kind.
pub fn kinds() -> Vec<Kind> {
    let kinds: Vec<Kind> = [hpc(), gpu(), hypervisors(), storage()].into_iter().flatten().collect();
    assert_eq!(kinds.iter().map(|kind| kind.weight).sum::<u64>(), 10_000);
    kinds
}
