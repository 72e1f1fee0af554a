//! A recorded host as one readable text; `tests/cases/README.md` describes it.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use crate::common::tree::{Entry, Tree};

/// What a text holds: a tree, or for raw inputs a file (its tree has one entry, with an empty path), by section.
pub type Archive = BTreeMap<String, Tree>;

/// Reads a text.
pub fn parse(text: &str) -> Result<Archive, String> {
    let mut reader = Reader::default();
    for (number, line) in text.lines().enumerate() {
        reader.line(line).map_err(|what| format!("line {}: {what}: {line}", number + 1))?;
    }
    Ok(reader.archive)
}

#[derive(Default)]
struct Reader {
    archive: Archive,
    section: Option<String>,
    base: PathBuf,
    /// Files whose lines may follow, indented.
    open: Vec<PathBuf>,
}

impl Reader {
    fn line(&mut self, line: &str) -> Result<(), String> {
        if let Some(text) = line.strip_prefix("  ") {
            return self.more(text);
        }
        self.open.clear();
        if line.is_empty() || line.starts_with('#') {
            return Ok(());
        }
        if let Some(section) = line.strip_prefix("== ") {
            return self.start(section);
        }
        if let Some(base) = line.strip_prefix('@') {
            self.base = PathBuf::from(base.trim());
            return Ok(());
        }
        self.entry(line)
    }

    /// `== sys`, `== sys.t1 from sys`, `== dmesg.txt:`.
    fn start(&mut self, section: &str) -> Result<(), String> {
        let (name, tree) = match section.split_once(" from ") {
            Some((name, from)) => (name, self.archive.get(from).ok_or("no such section")?.clone()),
            None => (section, Tree::default()),
        };
        self.base = PathBuf::new();
        let (name, raw) = name.strip_suffix(':').map_or((name, false), |name| (name, true));
        if self.archive.insert(name.to_owned(), tree).is_some() {
            return Err("a section twice".to_owned());
        }
        self.section = Some(name.to_owned());
        if raw {
            self.put(Path::new(""), Entry::File(Vec::new()))?;
            self.open.push(PathBuf::new());
        }
        Ok(())
    }

    fn entry(&mut self, line: &str) -> Result<(), String> {
        if let Some(path) = line.strip_prefix("- ") {
            let path = self.base.join(path);
            let tree = self.tree()?;
            let before = tree.entries().count();
            tree.remove(path);
            return if tree.entries().count() < before { Ok(()) } else { Err("nothing to take away".to_owned()) };
        }
        if let Some(path) = line.strip_suffix('/').or_else(|| line.strip_suffix(" !")) {
            return self.put(Path::new(path), Entry::Directory);
        }
        let colon = line.find(": ").or_else(|| line.strip_suffix(':').map(str::len));
        let separators = [(line.find(" -> "), " -> "), (line.find(" = \""), " = "), (colon, ":")];
        let first = separators.into_iter().filter_map(|(at, separator)| Some((at?, separator))).min();
        let (at, separator) = first.ok_or("not an entry")?;
        let (path, rest) = (&line[..at], &line[at + separator.len()..]);
        match separator {
            " -> " => self.put(Path::new(path), Entry::Link(PathBuf::from(rest))),
            " = " => self.put(Path::new(path), Entry::File(unquoted(rest).ok_or("not a quoted text")?)),
            _ => self.files(path, rest),
        }
    }

    /// One content for each of several names.
    fn files(&mut self, paths: &str, rest: &str) -> Result<(), String> {
        for path in paths.split_whitespace() {
            let content = rest.strip_prefix(' ').map(|text| format!("{text}\n").into_bytes());
            if content.is_none() {
                self.open.push(PathBuf::from(path));
            }
            self.put(Path::new(path), Entry::File(content.unwrap_or_default()))?;
        }
        Ok(())
    }

    fn more(&mut self, text: &str) -> Result<(), String> {
        if self.open.is_empty() {
            return Err("indented below no file".to_owned());
        }
        for path in self.open.clone() {
            let at = self.at(&path);
            let mut content = self.tree()?.text(at).unwrap_or_default().to_owned();
            content.extend([text, "\n"]);
            self.put(&path, Entry::File(content.into_bytes()))?;
        }
        Ok(())
    }

    fn put(&mut self, path: &Path, entry: Entry) -> Result<(), String> {
        let at = self.at(path);
        self.tree()?.put(at, entry);
        Ok(())
    }

    /// From the top of the section. `join` with an empty path would add a slash.
    fn at(&self, path: &Path) -> PathBuf {
        if self.base.as_os_str().is_empty() { path.to_owned() } else { self.base.join(path) }
    }

    fn tree(&mut self) -> Result<&mut Tree, String> {
        self.section.as_ref().and_then(|name| self.archive.get_mut(name)).ok_or_else(|| "before any section".to_owned())
    }
}

/// The bytes of a text in quotes: `\n`, `\t`, `\"`, `\\` and `\xNN` stand for what they do in Rust.
fn unquoted(text: &str) -> Option<Vec<u8>> {
    let mut bytes = text.strip_prefix('"')?.strip_suffix('"')?.bytes();
    let mut content = Vec::new();
    while let Some(byte) = bytes.next() {
        content.push(match byte {
            b'\\' => match bytes.next()? {
                b'n' => b'\n',
                b't' => b'\t',
                quoted @ (b'"' | b'\\') => quoted,
                b'x' => {
                    let digits = [bytes.next()?, bytes.next()?];
                    u8::from_str_radix(std::str::from_utf8(&digits).ok()?, 16).ok()?
                }
                _ => return None,
            },
            b'"' => return None,
            other => other,
        });
    }
    Some(content)
}

#[test]
fn every_form_of_entry_is_read() {
    let text = "# A host.\n== sys\nclass/net/\n@ devices/pci0000:3a\nclass: 0x020700\nlink -> ../../a: b\nbroken !\n\
                a b: 0\nlong c:\n  RxErr 0\n  TOTAL 0\nnothing:\nodd = \"x\\n\\n\\xff\"\n@\ntop: 1 -> 2\n\
                == sys.t1 from sys\n- devices/pci0000:3a/a\n== dmesg.txt:\n  one\n  two\n";
    let archive = parse(text).unwrap();
    let sys = &archive["sys"];
    assert_eq!(sys.text("devices/pci0000:3a/class"), Some("0x020700\n"));
    assert_eq!(sys.text("devices/pci0000:3a/b"), Some("0\n"));
    assert_eq!(sys.text("devices/pci0000:3a/c"), Some("RxErr 0\nTOTAL 0\n"));
    assert_eq!(sys.text("devices/pci0000:3a/nothing"), Some(""));
    assert_eq!(sys.text("top"), Some("1 -> 2\n"));
    let entry = |path: &str| sys.entries().find(|(at, _)| *at == Path::new(path)).map(|(_, entry)| entry.clone());
    assert_eq!(entry("devices/pci0000:3a/link"), Some(Entry::Link("../../a: b".into())));
    assert_eq!(entry("devices/pci0000:3a/broken"), Some(Entry::Directory));
    assert_eq!(entry("devices/pci0000:3a/odd"), Some(Entry::File(b"x\n\n\xff".to_vec())));
    assert_eq!(entry("class/net"), Some(Entry::Directory));
    assert_eq!(archive["sys.t1"].text("devices/pci0000:3a/a"), None);
    assert_eq!(archive["sys.t1"].text("devices/pci0000:3a/b"), Some("0\n"));
    assert_eq!(archive["dmesg.txt"].text(""), Some("one\ntwo\n"));
    for wrong in ["a: b\n", "== sys\nno entry\n", "== sys\n  loose\n", "== sys\n- a\n", "== a from b\n", "== a\n== a\n"]
    {
        assert!(parse(wrong).is_err(), "{wrong:?}");
    }
}

#[cfg(test)]
mod any {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use crate::common::archive::write;
    use crate::common::tree::{Entry, Tree};

    fn entry() -> impl Strategy<Value = Entry> {
        let text = "([ -~]{0,8}\n){0,3}[ -~]{0,3}";
        prop_oneof![
            text.prop_map(|text| Entry::File(text.into_bytes())),
            proptest::collection::vec(any::<u8>(), 0..12).prop_map(Entry::File),
            "(\\.\\./){0,3}[a-z:]{1,6}".prop_map(|target| Entry::Link(target.into())),
            Just(Entry::Directory),
        ]
    }

    proptest! {
        /// What is written of a recorded host is read as what it was.
        #[test]
        fn what_is_written_is_read(sys in proptest::collection::btree_map("([a-c]{1,2}/){0,2}[d-z]{1,3}[.:_0-9]{0,3}[a-z]", entry(), 0..12)) {
            let mut tree = Tree::default();
            for (path, entry) in sys {
                tree.put(path, entry);
            }
            let trees = BTreeMap::from([("proc".to_owned(), Tree::default()), ("sys".to_owned(), tree)]);
            prop_assert_eq!(super::parse(&write(&trees).unwrap()).unwrap(), trees);
        }

        #[test]
        fn no_text_breaks_the_reader(text in any::<String>(), like in "((== |@|- |  |:| -> | = |\"|[\\\\xa-c/]|sys| from ){1,6}\n){0,12}") {
            let _ = (super::parse(&text).is_ok(), super::parse(&like).is_ok(), super::parse(&format!("== sys\n{like}")).is_ok());
        }
    }
}
