use std::sync::Arc;

use super::*;
use crate::assess::capacity::HostCapacity;
use crate::export::testing;
use crate::model::event::{Event, EventKind};

fn report() -> HostReport {
    let mut report = testing::report();
    report.lanes = HostCapacity::new(&report.snapshot, &report.topology);
    report
}

#[test]
fn it_says_what_the_report_says() {
    let page = page(Some(&report()), "/metrics");
    for part in [
        "<title>lanewatch: CRITICAL on node7</title>",
        "<meta http-equiv=\"refresh\" content=\"15\">",
        "<b>4</b> devices",
        "The PCIe path of mlx5_3/1 carries 63.0 Gb/s of 200 Gb/s.",
        "pcie_below_port_rate · link_degraded",
        "<b>63.0 Gb/s</b><small>8 GT/s x8</small>",
        "<strong class=\"limit\">the limit</strong>",
        "degraded in speed and width: both ends can do 16 GT/s x16 = 252.1 Gb/s",
        "the link above 0000:98:00.0 is the limit (trained at 8 GT/s x8",
        "at their maximum, no longer counting: link_downed",
        "old board, known",
        "Holders of VFs are hidden.",
        "16 GT/s x16 became 8 GT/s x8.",
        "does not answer: 0000:3b:00.0",
        "sys/class/infiniband/mlx5_10/ports/1/state",
        "href=\"/metrics\"",
        "href=\"/api/v1/findings\"",
        "<a class=\"subject\" href=\"#mlx5_3\"><code>mlx5_3/1</code></a>",
        "<details class=\"lane critical\" id=\"mlx5_3\" open>",
        "VF of <code>0000:98:00.0</code>",
    ] {
        assert!(page.contains(part), "{part:?} is not in the page");
    }
    let order = ["bnxt_re0", "mlx5_3", "mlx5_10", "rxe0"].map(|name| page.find(&format!("class=\"name\">{name}<")));
    assert!(order.iter().all(Option::is_some) && order.is_sorted(), "{order:?}");
}

#[test]
fn nothing_comes_from_elsewhere_and_nothing_runs() {
    let page = page(Some(&report()), "/metrics");
    let foreign = ["http://", "https://", "src=", "<script", "<img", "<link", "@import", "url(", " onclick", " onload"];
    for part in foreign {
        assert!(!page.contains(part), "{part:?} is in the page");
    }
}

#[test]
fn texts_of_the_host_stay_texts() {
    let mut report = report();
    let bad = "<script>alert(1)</script>\"'&";
    report.events = Arc::from([Event {
        time: bad.to_owned(),
        kind: EventKind::Started,
        subject: bad.to_owned(),
        text: bad.to_owned(),
    }]);
    report.limited = vec![Arc::from(bad)];
    report.findings[0].condition.summary = bad.to_owned();
    report.excepted[0].1 = Arc::from(bad);
    let mut devices: Vec<_> = report.snapshot.devices().cloned().collect();
    let mut identity = (*devices[0].identity).clone();
    identity.hca_type = Some(Arc::from(bad));
    identity.firmware_version = Some(Arc::from(bad));
    devices[0].identity = Arc::new(identity);
    devices[0].ports[0].netdev = Some(Arc::from(bad));
    devices[0].name = crate::model::ids::DeviceName::new(bad);
    for page in [page(Some(&report), bad), page(Some(&testing::report_of(devices)), bad)] {
        assert!(!page.contains("<script"));
        assert!(page.contains("&lt;script&gt;alert(1)&lt;/script&gt;&quot;"));
    }
}

#[test]
fn a_quiet_host_and_one_that_is_not_read_yet() {
    let mut report = testing::report_of(Vec::new());
    report.findings.clear();
    report.excepted.clear();
    report.limited.clear();
    report.events = Arc::from([]);
    report.status = Status::Ok;
    let quiet = page(Some(&report), "/metrics");
    for part in ["lanewatch: OK on this host", "Nothing found.", "No RDMA device here.", "None yet."] {
        assert!(quiet.contains(part), "{part:?}");
    }
    assert!(!quiet.contains("Accepted") && !quiet.contains("Hidden from"));
    let none = page(None, "/m");
    assert!(none.contains("no complete reading yet") && none.contains("href=\"/m\""));
}

#[test]
fn many_devices_that_are_well_are_folded() {
    let one = testing::report().snapshot.devices().find(|device| device.name.as_str() == "mlx5_3").unwrap().clone();
    let devices = (0..64).map(|n| {
        let name = crate::model::ids::DeviceName::new(&format!("mlx5_{n}"));
        crate::model::rdma::RdmaDevice { name, ..one.clone() }
    });
    let mut report = testing::report_of(devices.collect());
    report.findings.clear();
    report.lanes = HostCapacity::default();
    let page = page(Some(&report), "/metrics");
    assert_eq!(page.matches("<details class=\"lane").count(), 64);
    assert_eq!(page.matches("\" open>").count(), 0);
    assert!(page.len() < 400_000, "{}", page.len());
}

#[test]
fn spans() {
    let spans = [5, 119, 120, 7_199, 7_200, 172_799, 172_800].map(|s| span(Duration::from_secs(s)));
    assert_eq!(spans, ["5 s", "119 s", "2 min", "119 min", "2 h", "47 h", "2 d"]);
}
