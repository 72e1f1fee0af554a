//! The tests' own tools, tried on their own: whether they can be trusted with the product.

#[path = "common/mod.rs"]
mod common;

use std::fs;
use std::process::Command;
use std::time::Duration;

use common::exposition::parse;
use common::host::{Card, GEN3, HW, HostTree, Layer, LinkEnd, PMA};
use common::http;
use common::promql;
use common::run::{free_address, to_its_end};
use common::tools::{Prometheus, Tool, Vmagent, node_exporter, require};
use common::toy::Toy;
use tempfile::TempDir;

const TOY: &str = "# HELP toy_total A toy.\n# TYPE toy_total counter\ntoy_total{name=\"a \\\"b\\\"\\n\"} 42\n";

#[test]
fn a_host_has_its_links_where_the_kernel_has_them() {
    let mut host = HostTree::new(3);
    host.cards[1] = Card { functions: 2, switch: true, layer: Layer::Ethernet, vfs: 3, ..Card::default() };
    let directory = TempDir::new().unwrap();
    host.write(directory.path()).unwrap();
    let devices = host.devices();
    assert_eq!(devices.len(), 4);
    for device in &devices {
        let class = directory.path().join("sys/class/infiniband").join(&device.name);
        let function = directory.path().join(&device.function).canonicalize().unwrap();
        assert_eq!(class.join("device").canonicalize().unwrap(), function);
        let bus = directory.path().join("sys/bus/pci");
        assert_eq!(bus.join("devices").join(&device.address).canonicalize().unwrap(), function);
        assert_eq!(bus.join("drivers/mlx5_core").join(&device.address).canonicalize().unwrap(), function);
        assert!(function.join("driver").canonicalize().unwrap().ends_with("bus/pci/drivers/mlx5_core"));
        for name in PMA {
            assert!(class.join("ports/1/counters").join(name).is_file());
        }
        assert_eq!(fs::read_dir(class.join("ports/1/hw_counters")).unwrap().count(), HW.len() + 1);
        assert_eq!(function.parent().unwrap(), directory.path().join(&device.above).canonicalize().unwrap());
    }
    let pf = directory.path().join(&devices[1].function);
    assert_eq!(pf.join("virtfn2/physfn").canonicalize().unwrap(), pf.canonicalize().unwrap());
    assert_eq!(fs::read_to_string(pf.join("sriov_numvfs")).unwrap(), "3\n");
    let link = |path: &str| fs::read_link(directory.path().join(path)).unwrap();
    let first = &devices[0];
    let target = format!("../../devices/pci0000:04/0000:04:01.0/{}/infiniband/mlx5_0", first.address);
    assert_eq!(link("sys/class/infiniband/mlx5_0"), std::path::Path::new(&target));
    let device = first.function.join("infiniband/mlx5_0/device");
    assert_eq!(link(device.to_str().unwrap()).to_str(), Some(format!("../../../{}", first.address).as_str()));
}

#[test]
fn the_largest_host_has_an_address_for_everything() {
    let mut host = HostTree::new(64);
    for card in &mut host.cards {
        (card.functions, card.switch, card.vfs) = (2, true, 8);
        card.device = LinkEnd::full(GEN3, 16).trained(GEN3, 8);
    }
    let devices = host.devices();
    let mut addresses: Vec<_> = devices.iter().map(|device| &device.address).collect();
    addresses.sort();
    addresses.dedup();
    assert_eq!(addresses.len(), 128);
    assert_eq!(host.tree(), host.tree(), "the same description gives the same host");
    let functions = host.tree().entries().filter(|(path, _)| path.starts_with("sys/bus/pci/devices")).count();
    assert_eq!(functions, 64 * (3 + 2 + 16));
}

#[test]
fn expositions_are_read_strictly() {
    let samples = parse(TOY).unwrap();
    assert_eq!(samples[0].labels["name"], "a \"b\"\n");
    assert_eq!((samples[0].name.as_str(), samples[0].text.as_str()), ("toy_total", "42"));
    assert_eq!(parse("a 18446744073709551615\n").unwrap()[0].text, "18446744073709551615");
    for wrong in ["a", "a b", "a{b=\"c} 1", "a{b=\"c\",b=\"d\"} 1", "{a=\"b\"} 1", "1a 1", "a{b=\"\\q\"} 1"] {
        assert!(parse(wrong).is_err(), "{wrong}");
    }
}

#[test]
fn the_client_reads_what_the_toy_says() {
    let toy = Toy::serve(TOY);
    let answer = http::get(toy.address, "/metrics").unwrap();
    assert_eq!((answer.status, answer.text().as_str()), (200, TOY));
    assert_eq!(answer.header("content-type"), Some("text/plain; version=0.0.4"));
    assert!(http::get(free_address(), "/").is_err());
}

#[test]
#[should_panic(expected = "did not end")]
fn a_command_that_does_not_end_is_killed() {
    let mut command = Command::new("sleep");
    command.arg("600");
    to_its_end(command, Duration::from_millis(100));
}

#[test]
fn a_real_prometheus_scrapes() {
    let toy = Toy::serve(TOY);
    let Some(prometheus) = Prometheus::scraping(toy.address) else { return };
    prometheus.wait_for("up", |series| series.iter().any(|(_, value)| *value > 0.5));
    let toys = prometheus.query("toy_total");
    assert_eq!(toys[0].0["name"], "a \"b\"\n");
    assert!((toys[0].1 - 42.0).abs() < f64::EPSILON);
    assert_eq!(prometheus.targets(), [("up".to_owned(), String::new())]);
}

#[test]
fn a_real_vmagent_scrapes() {
    let Some(program) = require(Tool::Vmagent) else { return };
    let toy = Toy::serve(TOY);
    let agent = Vmagent::scraping(&program, toy.address);
    agent.wait_until_up();
    assert_eq!(agent.targets(), [("up".to_owned(), String::new())]);
}

#[test]
fn a_real_node_exporter_reads_a_written_host() {
    let Some(program) = require(Tool::NodeExporter) else { return };
    let directory = TempDir::new().unwrap();
    HostTree::new(8).write(directory.path()).unwrap();
    let server = node_exporter(&program, &directory.path().join("sys"));
    let samples = parse(&server.get("/metrics").text()).unwrap();
    let of = |name: &str| samples.iter().filter(|sample| sample.name == name).count();
    assert_eq!(of("node_infiniband_state_id"), 8);
    assert_eq!(of("node_infiniband_port_data_received_bytes_total"), 8);
    let success = samples.iter().find(|sample| sample.name == "node_scrape_collector_success").unwrap();
    assert!(success.value > 0.5);
    println!(
        "{} samples, {} of them of the collector",
        samples.len(),
        samples.iter().filter(|sample| sample.name.starts_with("node_infiniband")).count()
    );
}

#[test]
fn selectors_have_their_function_and_range() {
    let text = r#"sum by (instance, pf) (rate(a_total{job=~"$job",x!="y"}[$__rate_interval])) / on (instance) group_left (driver) b{} > 5 and c"#;
    let found = promql::parse(text).unwrap();
    let names: Vec<_> =
        found.selectors.iter().map(|s| (s.name.as_str(), s.function.as_deref(), s.range.as_deref())).collect();
    assert_eq!(names, [("a_total", Some("rate"), Some("$__rate_interval")), ("b", None, None), ("c", None, None)]);
    assert!(found.selectors[0].matches("job", "=~", "$job") && found.selectors[0].matches("x", "!=", "y"));
    assert_eq!(found.labels.iter().map(String::as_str).collect::<Vec<_>>(), ["driver", "instance", "pf"]);
}

#[test]
fn labels_behind_the_aggregation_and_made_ones_are_found() {
    let text = "count(label_replace(max_over_time(x[1h]) offset 5m, 'pf', '$1', 'pci', '(.+)')) without (job) unless vector(1)";
    let found = promql::parse(text).unwrap();
    assert_eq!(found.selectors.len(), 1);
    assert_eq!(found.selectors[0].function.as_deref(), Some("max_over_time"));
    assert_eq!(found.made.iter().collect::<Vec<_>>(), ["pf"]);
    assert_eq!(found.labels.iter().collect::<Vec<_>>(), ["job", "pci"]);
    let bare = promql::parse(r#"{__name__=~"a|b", c="d\"e"}"#).unwrap();
    assert_eq!((bare.selectors[0].name.as_str(), bare.selectors[0].matchers[1].value.as_str()), ("", "d\"e"));
}

#[test]
fn what_is_not_promql_is_refused() {
    for text in ["sum(a", "a{b}", "a)", "a[5m", "sum by (a) b", "a{b=\"c}"] {
        assert!(promql::parse(text).is_err(), "{text}");
    }
}

#[test]
fn what_no_agent_serves_is_unknown() {
    let unknown = |text: &str| promql::unknown(&promql::parse(text).unwrap(), |_| None);
    let fine = r#"sum by (site, device) (rate(lanewatch_port_received_bytes_total{device="a", rack="b"}[5m])) and on (job) up"#;
    assert_eq!(unknown(fine), Vec::<String>::new());
    assert_eq!(unknown("lanewatch_port_bytes_total"), [r#"no series "lanewatch_port_bytes_total""#]);
    assert_eq!(unknown(r#"lanewatch_vf_info{vlan=""}"#), [r#"lanewatch_vf_info has no label "vlan""#]);
    assert_eq!(unknown("sum by (vlan) (lanewatch_vf_info)"), [r#"no label "vlan""#]);
}
