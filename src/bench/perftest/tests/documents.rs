//! JSON, and what it was before it was JSON.

use proptest::prelude::*;

use super::super::*;

const UNQUOTED: &str = "{\ntest_info: {\ntest: RDMA_Write_Latency_Test,\nDual_port: OFF,\nDevice: \"rxe4\",\nMtu: 1024,\n\
    TX_depth : 1,\nLink_type: Ethernet,\nGID_index: 1,\n},\nresults: {\nMsgSize: 64,\nn_iterations: 2000,\nt_min: 3.07,\n\
    t_max: 8.11,\nt_typical: 3.21,\nt_avg: 3.25,\nt_stdev: 0.11,\npercentile_99: 3.90,\npercentile_99.9: 6.72,\n},\n}\n";

const QUOTED: &str = r#"{
"test_info": { "test": "RDMA_Write_BW_Test", "Device": "mlx5_4", "Link_type": "IB", "GID_index": "3" },
"results": { "MsgSize": 1048576, "n_iterations": 30000, "BW_peak": 0, "BW_average": 92.35, "MsgRate": 0.011, "CPU_util": 1.5 }
}"#;

fn read(text: &str) -> Result<PerftestReport, PerftestJsonError> {
    from_json(text, BandwidthUnit::GigabitsPerSecond)
}

#[test]
fn unquoted_latency() {
    let report = read(UNQUOTED).unwrap();
    let row = &report.latency[0];
    assert_eq!((row.size, row.iterations, report.device.as_deref()), (Some(64), Some(2_000), Some("rxe4")));
    let micros = |statistic| (row.value(statistic).unwrap() * 1e8).round() / 100.0;
    for (statistic, expected) in [
        (Statistic::Average, 3.25),
        (Statistic::Minimum, 3.07),
        (Statistic::Maximum, 8.11),
        (Statistic::P99, 3.90),
        (Statistic::P999, 6.72),
    ] {
        assert!((micros(statistic) - expected).abs() < 1e-9, "{statistic:?}");
    }
    assert!(report.bandwidth.is_empty() && report.gid_index == Some(1));
}

#[test]
fn quoted_bandwidth_in_the_unit_that_was_asked_for() {
    let report = read(QUOTED).unwrap();
    let row = report.bandwidth[0];
    assert!((row.average.gbits() - 92.35).abs() < 1e-9);
    assert_eq!((row.peak, row.cpu, row.size), (None, Some(1.5), Some(1_048_576)));
    let other = from_json(QUOTED, BandwidthUnit::MebibytesPerSecond).unwrap();
    assert!((other.bandwidth[0].average.0 - 92.35 * 1_048_576.0).abs() < 1e-3);
}

#[test]
fn a_lone_value_with_a_comma_and_a_key_without_quotes() {
    let lone = read("{\n\"results\": {\n\"bw_avg\": 88.1,\n}\n}\n").unwrap();
    assert!((lone.bandwidth[0].average.gbits() - 88.1).abs() < 1e-9);
    let one_line = read(r#"{"results": {BW_average: 70.5, "MsgSize": 65536,}}"#).unwrap();
    assert_eq!(one_line.bandwidth[0].size, Some(65_536));
}

#[test]
fn of_three_results_the_first_is_the_own() {
    let text = format!("{QUOTED}\n{}\n{}", QUOTED.replace("92.35", "184.0"), QUOTED.replace("92.35", "91.65"));
    assert!((read(&text).unwrap().bandwidth[0].average.gbits() - 92.35).abs() < 1e-9);
}

#[test]
fn all_of_a_result_or_nothing() {
    assert_eq!(read("garbage"), Err(PerftestJsonError::NoResult));
    assert_eq!(read("{\"test_info\": {\"Device\": \"x\"}}"), Err(PerftestJsonError::NoResult));
    assert!(matches!(read(&QUOTED.replace("92.35", "-nan")), Err(PerftestJsonError::NotANumber { .. })));
    assert!(matches!(read(&QUOTED.replace("92.35", "-4.0")), Err(PerftestJsonError::Impossible { .. })));
    assert!(matches!(read(&QUOTED.replace("92.35", "1e30")), Err(PerftestJsonError::Impossible { .. })));
    let beyond = read(&UNQUOTED.replace("3.21", "1e30")).unwrap_err();
    assert_eq!(beyond.to_string(), "t_typical is 1e30, which cannot be");
    assert!(matches!(read(&UNQUOTED.replace("3.21", "oops")), Err(PerftestJsonError::NotANumber { .. })));
    assert_eq!(read(&"x".repeat(2 << 20)), Err(PerftestJsonError::TooLong));
}

proptest! {
    #[test]
    fn no_text_breaks_it(text in ".{0,300}") {
        let _ = read(&text);
    }

    #[test]
    fn what_is_read_is_possible(value in any::<f64>(), cut in 0usize..300) {
        let text = QUOTED.replace("92.35", &value.to_string());
        let cut = cut.min(text.len());
        for text in [text.as_str(), &text[..cut]] {
            if let Ok(report) = read(text) {
                prop_assert!(report.bandwidth.iter().all(|row| can_be(row.average)));
            }
        }
    }
}
