//! Errors on the line of a port: what is counted before and after correction, and how that adds up over time.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use super::labels::label_enum;
use super::link::LinkCause;
use super::time::BootTime;
use super::units::BytesPerSecond;

label_enum! {
    /// How errors on a line are corrected (the active link mode of ethtool's `FEC_GET`).
    FecMode {
        /// Not at all.
        Off = "off",
        /// Reed-Solomon: RS(528,514) or, with PAM4, RS(544,514).
        Rs = "rs",
        /// FireCode (BASE-R).
        BaseR = "baser",
        /// Reed-Solomon with low latency: RS(272,257).
        LowLatency = "llrs",
    }
}

/// The code that corrects the errors of a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FecCode {
    /// RS(544,514): lines with PAM4.
    Rs544,
    /// RS(528,514): lines with 25 Gb/s a lane.
    Rs528,
    /// RS(272,257): low latency.
    Rs272,
    /// FireCode (2112,2080).
    FireCode,
}

impl FecCode {
    /// Bits of a codeword on the line.
    pub const fn codeword_bits(self) -> f64 {
        match self {
            Self::Rs544 => 5440.0,
            Self::Rs528 => 5280.0,
            Self::Rs272 => 2720.0,
            Self::FireCode => 2112.0,
        }
    }

    /// Wrong symbols of a codeword that can be corrected; `None` for a code without symbols.
    pub const fn correctable_symbols(self) -> Option<u32> {
        match self {
            Self::Rs544 => Some(15),
            Self::Rs528 | Self::Rs272 => Some(7),
            Self::FireCode => None,
        }
    }

    /// Wrong symbols of a codeword from which on it is nearly lost: the last third of those that can be corrected.
    pub const fn nearly_lost_symbols(self) -> Option<u32> {
        match self {
            Self::Rs544 => Some(11),
            Self::Rs528 | Self::Rs272 => Some(5),
            Self::FireCode => None,
        }
    }
}

/// How the bits of a port go over its line, all the time and without traffic, too.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Line {
    /// Bits per second of all lanes, with those that the code adds.
    pub bits_per_second: f64,
    /// Lanes; `None` if unknown.
    pub lanes: Option<u8>,
    /// What corrects errors; `None` if nothing does.
    pub code: Option<FecCode>,
}

/// Gigabits per second of a lane from which on it has PAM4, and so RS(544,514).
const PAM4: f64 = 40.0;

/// Gigabits per second of a lane from which on a line without a known mode is taken to have FEC.
const HAS_FEC: f64 = 20.0;

impl Line {
    /// The line of a port with this data rate and number of lanes. The mode of InfiniBand is unknown and follows from the
    /// rate. A rate whose lanes are unknown has PAM4 from 200 Gb/s on.
    pub fn new(rate: BytesPerSecond, lanes: Option<u8>, mode: Option<FecMode>) -> Self {
        let gbits = rate.gbits();
        let lane = gbits / f64::from(lanes.filter(|lanes| *lanes > 0).unwrap_or(4));
        let code = match mode {
            Some(FecMode::Off) => None,
            Some(FecMode::BaseR) => Some(FecCode::FireCode),
            Some(FecMode::LowLatency) => Some(FecCode::Rs272),
            _ if lane >= PAM4 => Some(FecCode::Rs544),
            Some(FecMode::Rs) => Some(FecCode::Rs528),
            None => (lane >= HAS_FEC).then_some(FecCode::Rs528),
        };
        // PAM4 lines carry 544 symbols for 514, and 257 bits for 256; others 66 bits for 64, whatever the code.
        let overhead = if lane >= PAM4 { 1.0625 } else { 1.03125 };
        Self { bits_per_second: gbits * 1e9 * overhead, lanes, code }
    }

    /// Whether its lanes have PAM4.
    pub fn is_pam4(self) -> bool {
        let lane = self.bits_per_second / 1e9 / f64::from(self.lanes.unwrap_or(4));
        lane >= PAM4
    }
}

/// Codewords of which this many symbols were wrong and corrected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FecBin {
    /// At least.
    pub low: u32,
    /// At most.
    pub high: u32,
    /// Codewords.
    pub codewords: u64,
}

/// Errors on the line of an interface, before and after correction: counters since the driver or firmware started them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LineErrors {
    /// The interface.
    pub netdev: Arc<str>,
    /// How errors are corrected, if the driver says.
    pub fec: Option<FecMode>,
    /// Bits that were wrong and corrected, all lanes together.
    pub corrected_bits: Option<u64>,
    /// The same by lane; empty if the driver does not count lanes.
    pub lanes: Vec<u64>,
    /// Whether `lanes` has names of its own among the driver's statistics.
    pub lanes_are_statistics: bool,
    /// Codewords that were wrong and corrected.
    pub corrected_codewords: Option<u64>,
    /// Codewords that could not be corrected: data was lost.
    pub lost_codewords: Option<u64>,
    /// Symbols that were wrong after all correction.
    pub symbol_errors: Option<u64>,
    /// Codewords by the number of symbols that were corrected, if the driver has a histogram.
    pub bins: Vec<FecBin>,
    /// How often the firmware lost the link.
    pub link_downs: Option<u64>,
    /// When they were read.
    pub at: BootTime,
}

/// The share of bits that were wrong, from corrected bits and the bits that the line carried.
pub fn ratio_of_bits(corrected_bits: u64, line_bits: f64) -> Option<f64> {
    (line_bits > 0.0).then(|| lossy(corrected_bits) / line_bits)
}

/// The share of bits that were wrong, from a histogram of one time: one wrong bit for each wrong symbol, so it is a lower
/// bound. No clock and no rate are needed. `None` if no codeword was counted.
pub fn ratio_of_bins(bins: &[FecBin], code: FecCode) -> Option<f64> {
    let codewords: f64 = bins.iter().map(|bin| lossy(bin.codewords)).sum();
    let errors: f64 = bins.iter().map(|bin| f64::from(bin.low) * lossy(bin.codewords)).sum();
    (codewords > 0.0).then(|| errors / (codewords * code.codeword_bits()))
}

/// The share of bits that were wrong, from the share of codewords that had errors, if errors are independent; a lower
/// bound under bursts.
pub fn ratio_of_codewords(corrected: u64, code: FecCode, line_bits: f64) -> Option<f64> {
    let all = line_bits / code.codeword_bits();
    let wrong = lossy(corrected) / all;
    (all > 0.0 && wrong < 1.0).then(|| -(1.0 - wrong).ln() / code.codeword_bits())
}

/// A count as a number to calculate with.
#[expect(clippy::cast_precision_loss, reason = "a share, not a count")]
pub fn lossy(count: u64) -> f64 {
    count as f64
}

/// The lane with the most errors.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct WorstLane {
    /// Its number, from 0.
    pub lane: u8,
    /// The share of its bits that were wrong.
    pub raw: f64,
    /// The median of that of the other lanes.
    pub others: f64,
}

/// What a line carried in a minute, or somewhat more, during which it had a link all the time.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct LineMinute {
    /// When it ended.
    pub ended: BootTime,
    /// How long it was.
    pub seconds: f64,
    /// All codewords that the line carried; `None` without FEC.
    pub codewords: Option<f64>,
    /// The share of bits that were wrong before correction.
    pub raw: Option<f64>,
    /// The worst lane, if lanes are counted.
    pub worst_lane: Option<WorstLane>,
    /// Codewords that could not be corrected; without their number, symbols that were wrong after correction.
    pub lost: Option<u64>,
    /// Codewords that took the last third of what the code can correct.
    pub nearly_lost: Option<u64>,
}

impl LineMinute {
    /// What happened between two readings, of which the second is later and has no lesser count.
    pub fn between(first: &LineErrors, second: &LineErrors, line: Line) -> Self {
        let rise = |of: fn(&LineErrors) -> Option<u64>| of(second)?.checked_sub(of(first)?);
        let seconds = second.at.since(first.at).as_secs_f64();
        let line_bits = line.bits_per_second * seconds;
        let bins: Vec<FecBin> = second
            .bins
            .iter()
            .zip(&first.bins)
            .map(|(now, before)| FecBin { codewords: now.codewords.saturating_sub(before.codewords), ..*now })
            .collect();
        let raw = line.code.and_then(|code| {
            let by_count = rise(|errors| errors.corrected_bits).and_then(|bits| ratio_of_bits(bits, line_bits));
            let codewords = || ratio_of_codewords(rise(|errors| errors.corrected_codewords)?, code, line_bits);
            by_count.or_else(|| ratio_of_bins(&bins, code)).or_else(codewords)
        });
        let lanes = second.lanes.iter().zip(&first.lanes).map(|(now, before)| now.saturating_sub(*before));
        let worst_lane = line.code.and_then(|_| worst_lane(lanes.collect(), line, line_bits));
        let nearly = line.code.and_then(FecCode::nearly_lost_symbols).filter(|_| !bins.is_empty());
        let nearly_lost = nearly.map(|least| bins.iter().filter(|bin| bin.low >= least).map(|bin| bin.codewords).sum());
        let lost = rise(|errors| errors.lost_codewords).or_else(|| rise(|errors| errors.symbol_errors));
        let codewords = line.code.map(|code| line_bits / code.codeword_bits());
        Self { ended: second.at, seconds, codewords, raw, worst_lane, lost, nearly_lost }
    }
}

/// The worst of several lanes, from the errors of each.
fn worst_lane(errors: Vec<u64>, line: Line, line_bits: f64) -> Option<WorstLane> {
    let counted = u8::try_from(errors.len()).ok().filter(|lanes| *lanes > 1)?;
    let bits = line_bits / f64::from(line.lanes.unwrap_or(counted).max(1));
    let ratios: Vec<f64> = errors.into_iter().map(|errors| lossy(errors) / bits).collect();
    let (worst, raw) = (0u8..).zip(ratios.iter().copied()).max_by(|(_, a), (_, b)| a.total_cmp(b))?;
    let mut others: Vec<f64> = (0u8..).zip(ratios).filter(|(lane, _)| *lane != worst).map(|(_, ratio)| ratio).collect();
    others.sort_by(f64::total_cmp);
    let others = others.get(others.len() / 2).copied()?;
    Some(WorstLane { lane: worst, raw, others })
}

/// Why an interface had no link, as last said.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LastCause {
    /// What the driver said.
    pub cause: LinkCause,
    /// When it last said so.
    pub at: BootTime,
    /// Whether it said so often enough in a row.
    pub steady: bool,
}

/// How long minutes are kept: UFM's longer window, and a minute.
const KEPT: Duration = Duration::from_secs(126 * 60);

/// The window in which few lost codewords are too many.
pub const LOSS_WINDOW: Duration = Duration::from_secs(12 * 60);

/// How old a minute may be to say how a line is now.
const RECENT: Duration = Duration::from_secs(150);

/// The past of an interface's line.
#[derive(Debug, Clone, Default)]
pub struct LineHistory {
    /// Why it last had no link; kept for an hour.
    pub cause: Option<LastCause>,
    /// How its bits go; `None` if its rate is unknown.
    pub line: Option<Line>,
    /// Minutes with a link, oldest first.
    pub minutes: VecDeque<LineMinute>,
}

/// How a line does now.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct LineSummary {
    /// How its bits go; `None` if its rate is unknown or it has no link.
    pub line: Option<Line>,
    /// The share of bits that were wrong before correction, in the last minute with a link.
    pub raw: Option<f64>,
    /// The worst lane in that minute.
    pub worst_lane: Option<WorstLane>,
    /// The share of codewords that were lost in the last twelve minutes.
    pub lost: Option<f64>,
}

/// What was lost in a window.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Losses {
    /// Codewords.
    pub count: u64,
    /// Time with a link that was watched.
    pub seconds: f64,
    /// All codewords in that time; `None` without FEC.
    pub codewords: Option<f64>,
}

impl LineHistory {
    /// How the line does now.
    pub fn summary(&self, now: BootTime) -> LineSummary {
        let last = self.last(now).filter(|_| self.line.is_some());
        LineSummary {
            line: self.line,
            raw: last.and_then(|minute| minute.raw),
            worst_lane: last.and_then(|minute| minute.worst_lane),
            lost: last.and_then(|_| self.lost_ratio(now)),
        }
    }

    /// Adds a minute; those that are too old go.
    pub fn push(&mut self, minute: LineMinute) {
        self.minutes.push_back(minute);
        while self.minutes.front().is_some_and(|first| minute.ended.since(first.ended) > KEPT) {
            self.minutes.pop_front();
        }
    }

    /// Minutes that ended within a window, which begins so long ago and ends so long ago.
    pub fn within(&self, now: BootTime, begin: Duration, end: Duration) -> impl Iterator<Item = &LineMinute> {
        self.minutes.iter().filter(move |minute| {
            let age = now.since(minute.ended);
            age < begin && age >= end
        })
    }

    /// The last minute, unless it is long gone.
    pub fn last(&self, now: BootTime) -> Option<&LineMinute> {
        self.minutes.back().filter(|minute| now.since(minute.ended) < RECENT)
    }

    /// What was lost in a window; `None` if nothing was counted in it.
    pub fn losses(&self, now: BootTime, begin: Duration, end: Duration) -> Option<Losses> {
        let mut losses: Option<Losses> = None;
        for minute in self.within(now, begin, end) {
            let Some(lost) = minute.lost else { continue };
            let before = losses.unwrap_or(Losses { count: 0, seconds: 0.0, codewords: Some(0.0) });
            losses = Some(Losses {
                count: before.count.saturating_add(lost),
                seconds: before.seconds + minute.seconds,
                codewords: before.codewords.zip(minute.codewords).map(|(before, now)| before + now),
            });
        }
        losses
    }

    /// The share of codewords that were lost in the last twelve minutes; `None` before so much was watched, and without
    /// FEC.
    pub fn lost_ratio(&self, now: BootTime) -> Option<f64> {
        let losses = self.losses(now, LOSS_WINDOW + Duration::from_secs(60), Duration::ZERO)?;
        let watched = losses.seconds >= LOSS_WINDOW.as_secs_f64();
        losses.codewords.filter(|all| watched && *all > 0.0).map(|all| lossy(losses.count) / all)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn line(gbits: f64, lanes: u8, mode: Option<FecMode>) -> Line {
        Line::new(BytesPerSecond::from_gbits(gbits), Some(lanes), mode)
    }

    fn near(a: f64, b: f64) -> bool {
        (a - b).abs() <= b.abs() * 1e-3
    }

    #[test]
    fn rates_on_the_line() {
        for (gbits, lanes, mode, bits, code) in [
            (10.0, 1, None, 10.3125e9, None),
            (25.0, 1, Some(FecMode::Rs), 25.78125e9, Some(FecCode::Rs528)),
            (25.0, 1, Some(FecMode::BaseR), 25.78125e9, Some(FecCode::FireCode)),
            (100.0, 4, Some(FecMode::Rs), 103.125e9, Some(FecCode::Rs528)),
            (100.0, 2, Some(FecMode::Rs), 106.25e9, Some(FecCode::Rs544)),
            (100.0, 1, Some(FecMode::LowLatency), 106.25e9, Some(FecCode::Rs272)),
            (200.0, 4, None, 212.5e9, Some(FecCode::Rs544)),
            (400.0, 4, None, 425e9, Some(FecCode::Rs544)),
            (800.0, 8, Some(FecMode::Rs), 850e9, Some(FecCode::Rs544)),
            (800.0, 4, Some(FecMode::Off), 850e9, None),
        ] {
            let line = line(gbits, lanes, mode);
            assert!(near(line.bits_per_second, bits), "{gbits} over {lanes}: {line:?}");
            assert_eq!(line.code, code, "{gbits} over {lanes}");
            assert_eq!(line.is_pam4(), gbits / f64::from(lanes) >= 50.0, "{gbits} over {lanes}");
        }
        let unknown = Line::new(BytesPerSecond::from_gbits(100.0), None, Some(FecMode::Rs));
        assert_eq!(unknown.code, Some(FecCode::Rs528));
    }

    /// A 400G DR4 port: 65,772,270 errors before correction in 4,876.6 minutes; the vendor's tool prints 5E-10.
    #[test]
    fn one_recorded_link_by_its_bits_and_by_its_bins() {
        let line = line(400.0, 4, Some(FecMode::Rs));
        let seconds = 4_876.6 * 60.0;
        let counted = ratio_of_bits(65_772_270, line.bits_per_second * seconds).unwrap();
        assert!(near(counted, 5.29e-10), "{counted}");
        // The same codewords: 78.125 million a second, nearly all without an error.
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a count")]
        let codewords = (line.bits_per_second * seconds / FecCode::Rs544.codeword_bits()) as u64;
        assert_eq!(codewords / 292_596, 78_125_000);
        let bin = |low: u32, codewords| FecBin { low, high: low, codewords };
        let wrong = [bin(1, 65_771_903), bin(2, 180), bin(3, 6)];
        let errors: u64 = wrong.iter().map(|bin| u64::from(bin.low) * bin.codewords).sum();
        assert_eq!(errors, 65_772_281);
        let without = codewords - wrong.iter().map(|bin| bin.codewords).sum::<u64>();
        let bins = [&[bin(0, without)][..], &wrong].concat();
        let from_histogram = ratio_of_bins(&bins, FecCode::Rs544).unwrap();
        assert!(near(from_histogram, 5.29e-10), "{from_histogram}");
        let by_codewords = ratio_of_codewords(65_772_089, FecCode::Rs544, line.bits_per_second * seconds).unwrap();
        assert!(near(by_codewords, 5.29e-10), "{by_codewords}");
    }

    #[test]
    fn nothing_counted_is_no_ratio_and_no_error_is_zero() {
        assert_eq!(ratio_of_bits(0, 0.0), None);
        assert_eq!(ratio_of_bits(0, 1e12), Some(0.0));
        assert_eq!(ratio_of_bins(&[], FecCode::Rs544), None);
        assert_eq!(ratio_of_bins(&[FecBin { low: 0, high: 0, codewords: 9 }], FecCode::Rs544), Some(0.0));
        assert_eq!(ratio_of_codewords(5, FecCode::Rs528, 0.0), None);
    }

    fn errors(second: i64, change: impl FnOnce(&mut LineErrors)) -> LineErrors {
        let mut errors = LineErrors { at: BootTime(second * 1000), ..LineErrors::default() };
        change(&mut errors);
        errors
    }

    #[test]
    fn a_minute_has_what_the_driver_counts() {
        let line = line(400.0, 4, Some(FecMode::Rs));
        let lanes = |lanes: [u64; 4]| move |errors: &mut LineErrors| errors.lanes = lanes.to_vec();
        let minute = LineMinute::between(&errors(0, lanes([5; 4])), &errors(60, lanes([5, 7, 9, 6_375_005])), line);
        let worst = minute.worst_lane.unwrap();
        assert_eq!(worst.lane, 3);
        assert!(near(worst.raw, 1e-6) && near(worst.others, 2.0 / 6.375e12), "{worst:?}");
        assert_eq!((minute.raw, minute.lost, minute.nearly_lost), (None, None, None), "it counts lanes alone");
        let bins = |counts: [u64; 2]| {
            move |errors: &mut LineErrors| {
                let bin = |low, codewords| FecBin { low, high: low, codewords };
                errors.bins = vec![bin(10, counts[0]), bin(11, counts[1])];
            }
        };
        let minute = LineMinute::between(&errors(0, bins([1, 1])), &errors(60, bins([9, 4])), line);
        assert_eq!(minute.nearly_lost, Some(3));
        // Symbols after correction stand for codewords that a driver does not count.
        let symbols = |count| move |errors: &mut LineErrors| errors.symbol_errors = Some(count);
        assert_eq!(LineMinute::between(&errors(0, symbols(1)), &errors(60, symbols(4)), line).lost, Some(3));
        let off = super::Line { code: None, ..line };
        let minute = LineMinute::between(&errors(0, symbols(1)), &errors(60, symbols(4)), off);
        assert_eq!((minute.raw, minute.codewords, minute.lost), (None, None, Some(3)));
    }

    #[test]
    fn a_ratio_of_losses_needs_twelve_minutes() {
        let mut history = LineHistory::default();
        for minute in 1..=20 {
            history.push(LineMinute {
                ended: BootTime(minute * 60_000),
                seconds: 60.0,
                codewords: Some(1e9),
                raw: Some(0.0),
                worst_lane: None,
                lost: Some(u64::from(minute == 9)),
                nearly_lost: None,
            });
            let now = BootTime(minute * 60_000 + 10_000);
            let ratio = history.lost_ratio(now);
            assert_eq!(ratio.is_some(), minute >= 12, "{minute}");
            assert!(ratio.is_none_or(|ratio| near(ratio, 1.0 / 13e9) || near(ratio, 1.0 / 12e9)), "{ratio:?}");
        }
    }

    proptest! {
        #[test]
        fn any_two_readings_make_finite_numbers(
            counts in proptest::collection::vec((any::<u64>(), any::<u64>()), 6),
            seconds in 0i64..100_000, gbits in 0.0..2000.0, lanes in 0u8..9, mode in 0usize..5,
        ) {
            let mode = FecMode::ALL.get(mode).copied();
            let line = Line::new(BytesPerSecond::from_gbits(gbits), Some(lanes), mode);
            let made = |of: fn(&(u64, u64)) -> u64, at: i64| errors(at, |errors| {
                let all: Vec<u64> = counts.iter().map(of).collect();
                errors.corrected_bits = Some(all[0]);
                errors.lost_codewords = Some(all[1]);
                errors.corrected_codewords = Some(all[2]);
                errors.lanes = all.clone();
                errors.bins = (0u32..).zip(&all).map(|(low, codewords)| FecBin { low, high: low, codewords: *codewords }).collect();
            });
            let minute = LineMinute::between(&made(|pair| pair.0, 0), &made(|pair| pair.1, seconds), line);
            prop_assert!(minute.raw.is_none_or(|raw| raw >= 0.0), "{:?}", minute);
        }
    }
}
