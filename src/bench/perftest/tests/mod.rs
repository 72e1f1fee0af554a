#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests")]

mod documents;
mod messages;

use proptest::prelude::*;

use super::*;

const RULE: &str = "---------------------------------------------------------------------------------------\n";

/// A block of settings as perftest 6 prints it.
fn settings(test: &str, device: &str, link: &str, gid: &str) -> String {
    format!(
        "{RULE}                    {test} Test\n Dual-port       : OFF\t\tDevice         : {device}\n Number of qps   : 1\t\t\
         Transport type : IB\n Connection type : RC\t\tUsing SRQ      : OFF\n PCIe relax order: ON\n Mtu             : \
         4096[B]\n Link type       : {link}\n{gid} Max inline data : 0[B]\n rdma_cm QPs\t : OFF\n Data ex. method : \
         Ethernet\n{RULE} local address: LID 0x07 QPN 0x0a01 PSN 0x11aa22\n remote address: LID 0x07 QPN 0x0a02 PSN \
         0x33bb44\n{RULE}"
    )
}

const GBITS: &str = " #bytes     #iterations    BW peak[Gb/sec]    BW average[Gb/sec]   MsgRate[Mpps]\n";

#[test]
fn a_sweep_with_mixed_precision_and_tabs() {
    let rows = " 2          5000           0.031250            0.031125            1.945313\n \
                16         5000             0.25               0.25   \t\t     1.953125\n \
                4194304    5000             94.15              94.11  \t\t     0.002805\n";
    let text = format!("{}{GBITS}{rows}{RULE}", settings("RDMA_Write BW", "mlx5_4", "IB", ""));
    let report = from_text(&text);
    let words = [&report.test, &report.device, &report.link_type, &report.transport].map(|w| w.as_deref().unwrap());
    assert_eq!(words, ["RDMA_Write BW", "mlx5_4", "IB", "IB"]);
    assert_eq!(
        (report.unit, report.bandwidth.len(), report.trouble.is_none()),
        (Some(BandwidthUnit::GigabitsPerSecond), 3, true)
    );
    let best = report.best().unwrap();
    assert_eq!((best.size, best.iterations), (Some(4_194_304), Some(5_000)));
    assert!((best.average.gbits() - 94.11).abs() < 1e-9 && (best.peak.unwrap().gbits() - 94.15).abs() < 1e-9);
    assert!((report.bandwidth[0].average.gbits() - 0.031_125).abs() < 1e-12);
    assert!((report.bandwidth[0].messages.unwrap() - 1_945_313.0).abs() < 1e-6);
}

#[test]
fn a_loop_whose_ends_speak_into_one_stream() {
    let heading = GBITS.replace("Gb/sec", "MB/sec");
    let row = " 1048576    20000            11250.41            11250.33\t\t   0.011250\n";
    let waits = "************************************\n* Waiting for client to connect... *\n\
                 ************************************\n";
    let end = settings("RDMA_Write BW", "ib3", "IB", "");
    let report = from_text(&format!("{end}{heading}{row}{waits}{end}{heading}{row}{RULE}\n{RULE}"));
    assert_eq!(report.bandwidth.len(), 1, "one row though both ends say it");
    assert_eq!((report.unit, report.trouble), (Some(BandwidthUnit::MebibytesPerSecond), None));
    assert!((report.bandwidth[0].average.0 - 11_250.33 * 1_048_576.0).abs() < 1.0);
}

#[test]
fn a_timed_run_has_no_peak_and_may_have_one_column_more() {
    let text = format!(
        " WARNING: BW peak won't be measured in this run.\n{}{}{}",
        settings("RDMA_Write BW", "mlx5_4", "Ethernet", " GID index       : 5\n"),
        GBITS.replace("MsgRate[Mpps]", "MsgRate[Mpps]    CPU_Util[%]"),
        " 1048576    111222           0.00               92.71 \t\t   0.011052\t    2.63\n"
    );
    let report = from_text(&text);
    let row = report.bandwidth[0];
    assert_eq!((row.peak, row.cpu, row.messages), (None, Some(2.63), Some(11_052.0)));
    assert_eq!((report.gid_index, report.notes.len(), report.trouble.is_none()), (Some(5), 1, true));
    assert!((row.average.gbits() - 92.71).abs() < 1e-9);
}

#[test]
fn mebibytes_are_not_megabytes() {
    let text = format!(
        "{}{}{}",
        settings("RDMA_Write BW", "mlx5_4", "IB", ""),
        GBITS.replace("Gb/sec", "MiB/sec"),
        " 65536      5000             6902.00            6890.50\t\t     0.110248\n"
    );
    let report = from_text(&text);
    assert_eq!(report.unit, Some(BandwidthUnit::MebibytesPerSecond));
    assert!((report.best().unwrap().average.gbits() - 57.801_703_424).abs() < 1e-6);
    let unknown = from_text(&text.replace("MiB/sec", "furlong/sec"));
    assert!(!unknown.has_values(), "a unit that is not known makes no value");
}

#[test]
fn latency() {
    let text = format!(
        "{}{}{}",
        settings("RDMA_Write Latency", "mlx5_4", "IB", ""),
        " #bytes #iterations    t_min[usec]    t_max[usec]  t_typical[usec]    t_avg[usec]    t_stdev[usec]   \
         99% percentile[usec]   99.9% percentile[usec] \n",
        " 2       1000          1.05           9.81         1.10     \t       1.11        \t0.09   \t\t1.33    \t\t9.81   \n"
    );
    let report = from_text(&text);
    let row = &report.latency[0];
    assert!(report.bandwidth.is_empty() && (row.size, row.iterations) == (Some(2), Some(1_000)));
    let micros = |statistic| (row.value(statistic).unwrap() * 1e8).round() / 100.0;
    assert!((micros(Statistic::Typical) - 1.10).abs() < 1e-9 && (micros(Statistic::P99) - 1.33).abs() < 1e-9);
    assert!((micros(Statistic::Maximum) - 9.81).abs() < 1e-9 && (micros(Statistic::P999) - 9.81).abs() < 1e-9);
}

#[test]
fn a_warning_within_the_table_and_a_negative_average() {
    let text = format!(
        "{GBITS}Conflicting CPU frequency values detected: 800.000000 != 2100.000000. CPU Frequency is not max.\n \
         65536      5000             91.10              91.02\t\t     0.173607\n"
    );
    let report = from_text(&text);
    assert_eq!((report.bandwidth.len(), report.notes.len()), (1, 1));
    let negative = from_text(&text.replace("91.02", "-91.02"));
    assert!(negative.impossible && !negative.has_values());
    let beyond = from_text(&text.replace("91.02", "1e30"));
    assert!(beyond.impossible && !beyond.has_values());
    let odd = from_text(&text.replace("91.10", "1e30").replace("0.173607", "-inf"));
    assert_eq!((odd.bandwidth[0].peak, odd.bandwidth[0].messages), (None, None), "and the average stands");
}

proptest! {
    #[test]
    fn no_text_breaks_the_reader(text in ".{0,400}") {
        let _ = from_text(&text);
    }

    #[test]
    fn no_table_gives_a_value_that_cannot_be(cells in proptest::collection::vec(".{0,12}", 0..12)) {
        for heading in [GBITS, " #bytes #iterations t_min[usec] t_max[usec] t_typical[usec] t_avg[usec]\n"] {
            let report = from_text(&format!("{heading} {}\n", cells.join(" ")));
            prop_assert!(report.bandwidth.iter().all(|row| can_be(row.average)));
            let mut times = report.latency.iter().flat_map(|row| &row.values);
            prop_assert!(times.all(|(_, value)| value.is_finite() && *value > 0.0));
        }
    }

    #[test]
    fn a_row_comes_back(size in 1u64..1 << 40, average in 0.01f64..900.0) {
        let report = from_text(&format!("{GBITS} {size} 5000 {average:.6} {average:.6} 0.5\n"));
        prop_assert_eq!(report.bandwidth.len(), 1);
        prop_assert!((report.bandwidth[0].average.gbits() - average).abs() < 1e-5);
        prop_assert_eq!(report.bandwidth[0].size, Some(size));
    }
}
