//! Writes a recorded host as one readable text, in the form that `tests/cases/README.md` describes.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use flate2::read::GzDecoder;

use super::tree::{Entry, Tree};

/// The trees of a snapshot, by name: `sys`, `proc`.
pub fn of_snapshot(bytes: &[u8]) -> io::Result<BTreeMap<String, Tree>> {
    let mut trees: BTreeMap<String, Tree> = BTreeMap::new();
    let mut archive = tar::Archive::new(GzDecoder::new(bytes));
    for entry in archive.entries()? {
        let mut entry = entry?;
        let path: PathBuf = entry.path()?.components().collect();
        let mut parts = path.components();
        let (Some(top), below) = (parts.next(), parts.as_path()) else { continue };
        let tree = trees.entry(top.as_os_str().to_string_lossy().into_owned()).or_default();
        if let Some(target) = entry.link_name()? {
            tree.link(below, target.into_owned());
        } else if entry.header().entry_type().is_dir() {
            tree.directory(below);
        } else if below.file_name().is_some_and(|name| name != ".keep") {
            let mut content = Vec::new();
            entry.read_to_end(&mut content)?;
            tree.file(below, content);
        }
    }
    trees.retain(|_, tree| tree.entries().count() > 0);
    Ok(trees)
}

/// The text of these trees. A name that the form has no room for is an error.
pub fn write(trees: &BTreeMap<String, Tree>) -> Result<String, String> {
    let mut text = String::new();
    for (name, tree) in trees {
        let _ = writeln!(text, "== {name}");
        let mut base = PathBuf::new();
        for (path, entry) in tree.entries() {
            let has_more = || tree.entries().any(|(other, _)| other != path && other.starts_with(path));
            if *entry == Entry::Directory && has_more() {
                continue;
            }
            let parent = path.parent().unwrap_or(Path::new(""));
            if parent != base {
                let _ = writeln!(text, "\n@ {}", parent.display());
                parent.clone_into(&mut base);
            }
            text.push_str(&line(path, entry)?);
        }
        text.push('\n');
    }
    while text.ends_with("\n\n") {
        text.pop();
    }
    Ok(text)
}

fn line(path: &Path, entry: &Entry) -> Result<String, String> {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let odd = |c: char| c.is_whitespace() || c.is_control() || c == char::REPLACEMENT_CHARACTER;
    if name.is_empty() || name.contains(odd) || name.ends_with(':') || name.starts_with(['#', '@', '=', '-']) {
        return Err(format!("{}: no name that can be written", path.display()));
    }
    Ok(match entry {
        Entry::Directory => format!("{name}/\n"),
        Entry::Link(target) => {
            let target = target.to_str().filter(|target| !target.ends_with('/') && !target.contains(odd));
            format!("{name} -> {}\n", target.ok_or_else(|| format!("{}: an odd target", path.display()))?)
        }
        Entry::File(content) => match plain(content).as_deref() {
            Some([]) => format!("{name}:\n"),
            Some([only]) if !only.is_empty() && !only.ends_with('/') && !only.ends_with(" !") => {
                format!("{name}: {only}\n")
            }
            Some(lines) => format!("{name}:\n  {}\n", lines.join("\n  ")),
            None => format!("{name} = \"{}\"\n", quoted(content)),
        },
    })
}

/// The lines of a text that ends with its last line.
fn plain(content: &[u8]) -> Option<Vec<&str>> {
    let text = std::str::from_utf8(content).ok().filter(|text| text.is_empty() || text.ends_with('\n'))?;
    let odd = |c: char| c.is_control() && !matches!(c, '\n' | '\t');
    (!text.contains(odd)).then(|| text.lines().collect())
}

fn quoted(content: &[u8]) -> String {
    let one = |byte: &u8| match byte {
        b'\n' => "\\n".to_owned(),
        b'\t' => "\\t".to_owned(),
        b'"' | b'\\' => format!("\\{}", char::from(*byte)),
        b' '..=b'~' => char::from(*byte).to_string(),
        _ => format!("\\x{byte:02x}"),
    };
    content.iter().map(one).collect()
}
