//! What the collector asks the helper, and what it answers: one line, then lines.
//!
//! ```text
//! identity eth2
//!
//! 50 00 00 00 1206..        address, bank, page, offset and bytes, in hexadecimal
//! ok
//! ```
//!
//! Instead of `ok`: `error 5` with an errno of the kernel, or `refused`.

use std::fmt::Write as _;

use super::eeprom::{BlockAddress, Eeprom, EepromPart};

/// Longest request, in bytes.
pub const LONGEST_REQUEST: usize = 64;

/// Longest answer, in bytes: four blocks of 128 bytes.
pub const LONGEST_ANSWER: u64 = 4096;

/// Longest name of an interface, in bytes (`IFNAMSIZ`).
const LONGEST_NAME: usize = 15;

/// A part of the memory of the module of an interface.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request {
    /// Which part.
    pub part: EepromPart,
    /// Whose module.
    pub netdev: String,
}

impl Request {
    /// The request as it is sent.
    pub fn line(&self) -> String {
        format!("{} {}\n", self.part.as_str(), self.netdev)
    }

    /// Reads a request; `None` for everything that is not one.
    pub fn parse(line: &str) -> Option<Self> {
        let (word, netdev) = line.strip_suffix('\n')?.split_once(' ')?;
        let part = EepromPart::ALL.into_iter().find(|part| part.as_str() == word)?;
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'.');
        let is_name = !netdev.is_empty()
            && netdev.len() <= LONGEST_NAME
            && netdev.bytes().all(plain)
            && !matches!(netdev, "." | "..");
        is_name.then(|| Self { part, netdev: netdev.to_owned() })
    }
}

/// What the helper answers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    /// Blocks that were read.
    Blocks(Eeprom),
    /// The errno that the kernel answered with.
    Failed(i32),
    /// Not asked of this helper, or too soon.
    Refused,
}

impl Answer {
    /// The answer as it is sent.
    pub fn text(&self) -> String {
        let mut out = String::new();
        match self {
            Self::Blocks(eeprom) => {
                // Writing to a string cannot fail.
                for (block, bytes) in eeprom.blocks() {
                    let BlockAddress { i2c, bank, page, offset, .. } = block;
                    let _ = write!(out, "{i2c:02x} {bank:02x} {page:02x} {offset:02x} ");
                    for byte in bytes {
                        let _ = write!(out, "{byte:02x}");
                    }
                    out.push('\n');
                }
                out.push_str("ok\n");
            }
            Self::Failed(errno) => {
                let _ = writeln!(out, "error {errno}");
            }
            Self::Refused => out.push_str("refused\n"),
        }
        out
    }

    /// Reads an answer; `None` if it is none, or not whole.
    pub fn parse(text: &str) -> Option<Self> {
        let mut lines = text.strip_suffix('\n')?.split('\n').collect::<Vec<_>>();
        let last = lines.pop()?;
        if last == "refused" {
            return lines.is_empty().then_some(Self::Refused);
        }
        if let Some(errno) = last.strip_prefix("error ") {
            return errno.parse().ok().filter(|errno| *errno > 0 && lines.is_empty()).map(Self::Failed);
        }
        if last != "ok" {
            return None;
        }
        let mut eeprom = Eeprom::default();
        for line in lines {
            let (block, bytes) = block(line)?;
            eeprom.set(block, bytes);
        }
        Some(Self::Blocks(eeprom))
    }
}

fn block(line: &str) -> Option<(BlockAddress, Vec<u8>)> {
    let fields: Vec<&str> = line.split(' ').collect();
    let [i2c, bank, page, offset, hex] = fields[..] else { return None };
    let number = |text: &str| u8::from_str_radix(text, 16).ok().filter(|_| text.len() == 2);
    if !hex.is_ascii() || hex.len() % 2 != 0 || hex.len() > 256 {
        return None;
    }
    let pairs = (0..hex.len() / 2).map(|at| number(hex.get(2 * at..2 * at + 2)?));
    let bytes: Vec<u8> = pairs.collect::<Option<_>>()?;
    let length = u8::try_from(bytes.len()).ok()?;
    let block =
        BlockAddress { i2c: number(i2c)?, bank: number(bank)?, page: number(page)?, offset: number(offset)?, length };
    Some((block, bytes))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::host::module::eeprom::KIND;

    #[test]
    fn a_request_is_a_part_and_an_interface_and_nothing_else() {
        let request = Request { part: EepromPart::Values, netdev: "enp59s0f0np0".to_owned() };
        assert_eq!(Request::parse(&request.line()), Some(request));
        for wrong in [
            "",
            "\n",
            "values\n",
            "values \n",
            "values eth2",
            "write eth2\n",
            "values eth2 0x50\n",
            "values ../../x\n",
            "values ..\n",
            "values eth2\0\n",
            "values a-name-that-is-too-long\n",
            "identity eth2\nvalues eth2\n",
            "Identity eth2\n",
        ] {
            assert_eq!(Request::parse(wrong), None, "{wrong:?}");
        }
    }

    #[test]
    fn answers_are_whole_or_none() {
        let mut eeprom = Eeprom::default();
        eeprom.set(KIND, vec![0x19, 0x50, 0]);
        for answer in [Answer::Blocks(eeprom), Answer::Failed(5), Answer::Refused, Answer::Blocks(Eeprom::default())] {
            let text = answer.text();
            assert_eq!(Answer::parse(&text), Some(answer));
            for end in 0..text.len() {
                assert_eq!(Answer::parse(&text[..end]), None, "{end} of {text:?}");
            }
        }
    }

    proptest! {
        #[test]
        fn any_text_parses_without_a_panic(text in any::<String>(), like in "(identity|values|50|ok|error|[0-9a-f ]{0,12}|\n){0,8}") {
            for text in [text, like] {
                let _ = (Request::parse(&text), Answer::parse(&text));
            }
        }
    }
}
