//! A tree of files, links and directories, made in memory and written into a directory.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::fs;
use std::io;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

/// What stands at a path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Entry {
    /// A file with this content.
    File(Vec<u8>),
    /// A symbolic link to this.
    Link(PathBuf),
    /// A directory, for one that is empty or stands where a file should be, so that reading it fails.
    Directory,
}

/// Entries by their paths from the top of the tree, parents before children.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Tree {
    entries: BTreeMap<PathBuf, Entry>,
}

impl Tree {
    /// A file that holds a line, as most of sysfs does.
    pub fn line(&mut self, path: impl AsRef<Path>, text: impl Display) {
        self.file(path, format!("{text}\n"));
    }

    /// A file with exactly this content.
    pub fn file(&mut self, path: impl AsRef<Path>, content: impl Into<Vec<u8>>) {
        self.put(path, Entry::File(content.into()));
    }

    /// A link with exactly this target.
    pub fn link(&mut self, path: impl AsRef<Path>, target: impl Into<PathBuf>) {
        self.put(path, Entry::Link(target.into()));
    }

    /// A link to another place in the tree, relative as the kernel writes it: up to the directory that both have in
    /// common above the target, and down again.
    pub fn link_to(&mut self, path: impl AsRef<Path>, target: impl AsRef<Path>) {
        let target = relative(path.as_ref(), target.as_ref());
        self.link(path, target);
    }

    /// A file whose read fails: a directory in its place.
    pub fn unreadable(&mut self, path: impl AsRef<Path>) {
        self.put(path, Entry::Directory);
    }

    /// An empty directory.
    pub fn directory(&mut self, path: impl AsRef<Path>) {
        self.put(path, Entry::Directory);
    }

    /// Puts an entry in the place of whatever stood there.
    pub fn put(&mut self, path: impl AsRef<Path>, entry: Entry) {
        self.entries.insert(path.as_ref().to_owned(), entry);
    }

    /// Takes a path and all below it away.
    pub fn remove(&mut self, path: impl AsRef<Path>) {
        self.entries.retain(|at, _| !at.starts_with(path.as_ref()));
    }

    /// Every entry, by path.
    pub fn entries(&self) -> impl Iterator<Item = (&Path, &Entry)> {
        self.entries.iter().map(|(path, entry)| (path.as_path(), entry))
    }

    /// What stands at a path.
    pub fn entry(&self, path: impl AsRef<Path>) -> Option<&Entry> {
        self.entries.get(path.as_ref())
    }

    /// The content of a file, as text.
    pub fn text(&self, path: impl AsRef<Path>) -> Option<&str> {
        match self.entries.get(path.as_ref()) {
            Some(Entry::File(content)) => std::str::from_utf8(content).ok(),
            _ => None,
        }
    }

    /// Writes the tree into a directory, which is made if it is not there.
    pub fn write(&self, directory: &Path) -> io::Result<()> {
        fs::create_dir_all(directory)?;
        for (path, entry) in &self.entries {
            let path = directory.join(path);
            if let Some(parent) = path.parent() {
                fs::create_dir_all(parent)?;
            }
            match entry {
                Entry::File(content) => fs::write(&path, content)?,
                Entry::Link(target) => symlink(target, &path)?,
                Entry::Directory => fs::create_dir_all(&path)?,
            }
        }
        Ok(())
    }
}

fn relative(from: &Path, to: &Path) -> PathBuf {
    let from: Vec<_> = from.parent().into_iter().flat_map(Path::components).collect();
    let to: Vec<_> = to.components().collect();
    let most = to.len().saturating_sub(1);
    let common = from.iter().zip(&to).take(most).take_while(|(a, b)| a == b).count();
    let up = std::iter::repeat_n("..", from.len() - common);
    up.map(Path::new).chain(to[common..].iter().map(AsRef::as_ref)).collect()
}
