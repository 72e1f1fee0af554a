//! Records of `/dev/kmsg`, and the same as text (`dmesg`, with or without times, and lines of a system log).

use std::borrow::Cow;

use crate::host::text::parse_decimal;

/// When a line was written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum When {
    /// Microseconds since boot.
    Boot(u64),
    /// Seconds on a wall clock of an unknown zone.
    Wall(i64),
    /// It does not say.
    Unknown,
}

/// One line of the kernel's.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record<'a> {
    /// Number, where the log numbers its records.
    pub sequence: Option<u64>,
    /// When.
    pub when: When,
    /// Its text.
    pub text: Cow<'a, str>,
    /// `DEVICE=` of its continuation lines, without the sign and subsystem before it.
    pub device: Option<Cow<'a, str>>,
}

/// The header of a record: `prio,seq,usec,flags[,…];text`. None for what is no record, and for what is not the
/// kernel's: every process may write to the log, as another facility.
pub fn kmsg(line: &str) -> Option<Record<'_>> {
    let (header, text) = line.split_once(';')?;
    let mut fields = header.split(',');
    let mut number = || parse_decimal(fields.next()?.as_bytes());
    let (priority, sequence, micros) = (number()?, number()?, number()?);
    let kernel = priority >> 3 == 0;
    kernel.then(|| Record { sequence: Some(sequence), when: When::Boot(micros), text: unescaped(text), device: None })
}

/// The sequence number of a record, whoever wrote it.
pub fn sequence(line: &str) -> Option<u64> {
    let (header, _) = line.split_once(';')?;
    parse_decimal(header.split(',').nth(1)?.as_bytes())
}

/// ` DEVICE=+pci:0000:98:00.0`: the device of the record before.
pub fn device(continuation: &str) -> Option<Cow<'_, str>> {
    let value = continuation.trim_start().strip_prefix("DEVICE=+")?;
    Some(unescaped(value.split_once(':')?.1))
}

/// `\xNN` stands for a byte; what is no text then has signs in place of it.
fn unescaped(text: &str) -> Cow<'_, str> {
    if !text.contains("\\x") {
        return Cow::Borrowed(text);
    }
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((byte, after)) = rest.split_first() {
        let escape = after.strip_prefix(b"x").filter(|_| *byte == b'\\').and_then(|digits| digits.split_at_checked(2));
        let value = escape.and_then(|(digits, after)| {
            let plain = digits.iter().all(u8::is_ascii_hexdigit);
            let digits = std::str::from_utf8(digits).ok().filter(|_| plain)?;
            Some((u8::from_str_radix(digits, 16).ok()?, after))
        });
        let (byte, after) = value.unwrap_or((*byte, after));
        bytes.push(byte);
        rest = after;
    }
    Cow::Owned(String::from_utf8_lossy(&bytes).into_owned())
}

/// A line of `dmesg`, `dmesg -T` or a system log: what stands before the kernel's own words is taken off.
pub fn dmesg(line: &str) -> Record<'_> {
    let mut when = When::Unknown;
    let mut text = line.trim_end();
    if let Some((before, after)) = text.split_once(" kernel: ").or_else(|| split_at_start(text, "kernel: ")) {
        // A bracket of the line's own would stand before the word, as in `[Sun Dec 1 14:54:40 2024] host1 kernel:`.
        when = bracketed(before).map_or(When::Unknown, |(inner, _)| time(inner));
        text = after;
    }
    if let Some((inner, after)) = bracketed(text) {
        let stamp = time(inner);
        if stamp != When::Unknown {
            (when, text) = (stamp, after);
        }
    }
    Record { sequence: None, when, text: Cow::Borrowed(text.trim_start()), device: None }
}

/// The time on a wall clock that a line has, as it stands there.
pub fn wall_stamp(line: &str) -> Option<&str> {
    let inside = line.split('[').skip(1).filter_map(|rest| Some(rest.split_once(']')?.0));
    inside.into_iter().find(|inner| matches!(time(inner), When::Wall(_)))
}

fn split_at_start<'a>(text: &'a str, word: &str) -> Option<(&'a str, &'a str)> {
    Some(("", text.strip_prefix(word)?))
}

/// What stands in brackets at the start of a text, and what follows them.
fn bracketed(text: &str) -> Option<(&str, &str)> {
    text.strip_prefix('[')?.split_once(']')
}

/// `   13.283418`, or `Sun Dec  1 14:54:40 2024`.
fn time(inner: &str) -> When {
    let boot = inner.trim().split_once('.').and_then(|(seconds, micros)| {
        let micros = parse_decimal(micros.as_bytes()).filter(|_| micros.len() == 6)?;
        parse_decimal(seconds.as_bytes())?.checked_mul(1_000_000)?.checked_add(micros)
    });
    boot.map_or_else(|| wall(inner).map_or(When::Unknown, When::Wall), When::Boot)
}

fn wall(inner: &str) -> Option<i64> {
    const MONTHS: [&str; 12] = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
    let mut words = inner.split_ascii_whitespace().skip(1);
    let month = words.next()?;
    let month = i64::try_from(MONTHS.iter().position(|name| *name == month)?).ok()? + 1;
    let number = |text: &str| i64::try_from(parse_decimal(text.as_bytes())?).ok().filter(|number| *number < 10_000);
    let day = number(words.next()?)?;
    let mut clock = words.next()?.split(':').map(number);
    let (hour, minute, second) = (clock.next()??, clock.next()??, clock.next()??);
    let year = number(words.next()?)?;
    // Days since 1970 of a date, counted from March, so that a leap day comes last.
    let (year, month) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let days = 365 * year + year.div_euclid(4) - year.div_euclid(100) + year.div_euclid(400);
    let days = days + (153 * month + 2) / 5 + day - 1 - 719_468;
    Some(((days * 24 + hour) * 60 + minute) * 60 + second)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn records_of_the_kernel() {
        let record = kmsg("3,1201,22648340,-,caller=T123;mlx5_core 0000:5c:00.0: a\\x0ab \\x5c \\xzz").unwrap();
        assert_eq!((record.sequence, record.when), (Some(1201), When::Boot(22_648_340)));
        assert_eq!(record.text, "mlx5_core 0000:5c:00.0: a\nb \\ \\xzz");
        assert_eq!(kmsg("30,5,6,-;systemd[1]: not the kernel"), None);
        assert_eq!(sequence("30,5,6,-;systemd[1]: not the kernel"), Some(5));
        for wrong in ["", "a", "3;text", "3,1;text", "3,1,x,-;text", "-3,1,2,-;text", " DEVICE=+pci:0000:5c:00.0"] {
            assert_eq!(kmsg(wrong), None, "{wrong}");
        }
        assert_eq!(device(" DEVICE=+pci:0000:5c:00.0").as_deref(), Some("0000:5c:00.0"));
        assert_eq!(device(" DEVICE=+infiniband:mlx5_0").as_deref(), Some("mlx5_0"));
        for other in [" DEVICE=n8", " DEVICE=c127:3", " SUBSYSTEM=pci", ""] {
            assert_eq!(device(other), None, "{other}");
        }
    }

    #[test]
    fn lines_of_every_form() {
        let text = "mlx5_core 0000:5c:00.0: x";
        let boot = When::Boot(13_283_418);
        let wall = When::Wall(1_733_064_880);
        for (line, when) in [
            (format!("[   13.283418] {text}"), boot),
            (format!("[Sun Dec  1 14:54:40 2024] {text}"), wall),
            (format!("[Sun Dec  1 14:54:40 2024] host1 kernel: {text}"), wall),
            (format!("Wed Aug 12 17:30:58 2026 kern.info kernel: [   13.283418] {text}"), boot),
            (format!("host1 kernel: {text}"), When::Unknown),
            (format!("kernel: {text}"), When::Unknown),
            (text.to_owned(), When::Unknown),
        ] {
            let record = dmesg(&line);
            assert_eq!((&*record.text, record.when), (text, when), "{line}");
        }
        assert_eq!(dmesg("[Hardware Error]: x").text, "[Hardware Error]: x");
        assert_eq!(dmesg("").text, "");
    }

    proptest! {
        #[test]
        fn no_text_breaks_the_parsers(text in any::<String>(), like in "[0-9,;\\\\x\\[\\]. a-f:]{0,40}") {
            for text in [text, like] {
                let _ = (kmsg(&text), sequence(&text), device(&text), dmesg(&text));
                let _ = (device(&format!(" DEVICE=+{text}")), dmesg(&format!("[Sun Dec {text}")));
            }
        }

        #[test]
        fn a_record_survives_its_text(level in 0u64..8, seq in any::<u64>(), micros in any::<u64>(), text in "[ -\\[\\]-~]{0,40}") {
            let line = format!("{level},{seq},{micros},-;{text}");
            let record = kmsg(&line).unwrap();
            prop_assert_eq!((record.sequence, record.when, &*record.text), (Some(seq), When::Boot(micros), &*text));
        }
    }
}
