//! Numbers with the word that they count.

/// `1 device`, `2 devices`; for words that take an `s`.
pub fn counted<N: TryInto<u64> + Copy>(count: N, thing: &str) -> String {
    counted_as(count, thing, &format!("{thing}s"))
}

/// The same for other words: `1 entry`, `2 entries`.
pub fn counted_as<N: TryInto<u64> + Copy>(count: N, one: &str, more: &str) -> String {
    // What does not fit is more than one.
    let count = count.try_into().unwrap_or(u64::MAX);
    format!("{count} {}", if count == 1 { one } else { more })
}

/// `once`, `2 times`.
pub fn times<N: TryInto<u64> + Copy>(count: N) -> String {
    match count.try_into() {
        Ok(1) => "once".to_owned(),
        _ => counted(count, "time"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_is_one_and_all_others_are_more() {
        assert_eq!([0, 1, 2].map(|n: usize| counted(n, "file")), ["0 files", "1 file", "2 files"]);
        assert_eq!(counted_as(1u32, "entry", "entries"), "1 entry");
        assert_eq!(counted_as(3u64, "entry", "entries"), "3 entries");
        assert_eq!([0, 1, 2].map(|n: u64| times(n)), ["0 times", "once", "2 times"]);
    }
}
