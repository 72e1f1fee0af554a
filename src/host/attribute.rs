//! Files of one directory whose listing says which of them are there: an absent one costs no open.

use std::path::Path;

use super::collector::Pass;
use super::file::Watched;
use crate::model::reading::Reading;

/// A file that follows what is known of its directory.
pub trait Listed {
    /// Takes note of what the directory has now.
    fn relist(&mut self, names: &[String]);

    /// Whether it is being left alone.
    fn is_quarantined(&self) -> bool;
}

/// A file that is read at each pass, if the directory has it.
pub struct Attribute {
    name: &'static str,
    file: Watched,
    listed: bool,
}

impl Attribute {
    /// A file of this directory; absent until [`Listed::relist`] says that it is there.
    pub fn new(directory: &Path, name: &'static str) -> Self {
        Self { name, file: Watched::new(directory.join(name)), listed: false }
    }

    /// Reads it as [`Watched::read`] does.
    pub fn read<T>(&mut self, pass: &mut Pass<'_>, parse: impl FnOnce(&[u8]) -> Reading<T>) -> Reading<T> {
        if self.listed { self.file.read(pass, parse) } else { Reading::Absent }
    }

    /// Reads it as [`Watched::read_unless_down`] does.
    pub fn read_unless_down<T>(&mut self, pass: &mut Pass<'_>, parse: impl FnOnce(&[u8]) -> Reading<T>) -> Reading<T> {
        if self.listed { self.file.read_unless_down(pass, parse) } else { Reading::Absent }
    }
}

impl Listed for Attribute {
    fn relist(&mut self, names: &[String]) {
        self.listed = names.iter().any(|name| name == self.name);
        self.file.close();
    }

    fn is_quarantined(&self) -> bool {
        self.file.is_quarantined()
    }
}

/// A file whose content seldom changes: read until it has a value, and not again until the directory changes.
pub struct Settled<T> {
    attribute: Attribute,
    value: Option<T>,
}

impl<T: Clone> Settled<T> {
    /// A file of this directory; absent until [`Listed::relist`] says that it is there.
    pub fn new(directory: &Path, name: &'static str) -> Self {
        Self { attribute: Attribute::new(directory, name), value: None }
    }

    /// Lets go of the value, so that it is read again.
    pub fn forget(&mut self) {
        self.value = None;
    }

    /// The value, read if need be.
    pub fn read(&mut self, pass: &mut Pass<'_>, parse: impl FnOnce(&[u8]) -> Reading<T>) -> Reading<T> {
        if let Some(value) = &self.value {
            return Reading::Value(value.clone());
        }
        let reading = self.attribute.read(pass, parse);
        if let Reading::Value(value) = &reading {
            self.value = Some(value.clone());
            self.attribute.file.close();
        }
        reading
    }
}

impl<T> Listed for Settled<T> {
    fn relist(&mut self, names: &[String]) {
        self.attribute.relist(names);
        self.value = None;
    }

    fn is_quarantined(&self) -> bool {
        self.attribute.is_quarantined()
    }
}
