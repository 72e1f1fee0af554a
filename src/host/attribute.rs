//! Files of one directory whose listing says which of them are there: an absent one costs no open.

use std::path::Path;

use super::collector::ReadContext;
use super::file::PolledFile;
use crate::model::reading::Reading;

/// A file that follows what is known of its directory.
pub trait AttributeFile {
    /// Takes note of what the directory has now.
    fn relist(&mut self, names: &[String]);

    /// Whether it is being left alone.
    fn is_quarantined(&self) -> bool;
}

/// A file that is read at each pass, if the directory has it.
pub struct Attribute {
    name: &'static str,
    file: PolledFile,
    listed: bool,
}

impl Attribute {
    /// A file of this directory; absent until [`AttributeFile::relist`] says that it is there.
    pub fn new(directory: &Path, name: &'static str) -> Self {
        Self { name, file: PolledFile::new(directory.join(name)), listed: false }
    }

    /// Reads it as [`PolledFile::read`] does.
    pub fn read<T>(&mut self, cx: &mut ReadContext<'_>, parse: impl FnOnce(&[u8]) -> Reading<T>) -> Reading<T> {
        if self.listed { self.file.read(cx, parse) } else { Reading::Absent }
    }

    /// Reads it as [`PolledFile::read_unless_down`] does.
    pub fn read_unless_down<T>(
        &mut self,
        cx: &mut ReadContext<'_>,
        parse: impl FnOnce(&[u8]) -> Reading<T>,
    ) -> Reading<T> {
        if self.listed { self.file.read_unless_down(cx, parse) } else { Reading::Absent }
    }
}

impl AttributeFile for Attribute {
    fn relist(&mut self, names: &[String]) {
        self.listed = names.iter().any(|name| name == self.name);
        self.file.close();
    }

    fn is_quarantined(&self) -> bool {
        self.file.is_quarantined()
    }
}

/// A file whose content seldom changes: read until it has a value, and not again until the directory changes.
pub struct CachedAttribute<T> {
    attribute: Attribute,
    value: Option<T>,
}

impl<T: Clone> CachedAttribute<T> {
    /// A file of this directory; absent until [`AttributeFile::relist`] says that it is there.
    pub fn new(directory: &Path, name: &'static str) -> Self {
        Self { attribute: Attribute::new(directory, name), value: None }
    }

    /// Lets go of the value, so that it is read again.
    pub fn forget(&mut self) {
        self.value = None;
    }

    /// The value, read if need be.
    pub fn read(&mut self, cx: &mut ReadContext<'_>, parse: impl FnOnce(&[u8]) -> Reading<T>) -> Reading<T> {
        if let Some(value) = &self.value {
            return Reading::Value(value.clone());
        }
        let reading = self.attribute.read(cx, parse);
        if let Reading::Value(value) = &reading {
            self.value = Some(value.clone());
            self.attribute.file.close();
        }
        reading
    }
}

impl<T> AttributeFile for CachedAttribute<T> {
    fn relist(&mut self, names: &[String]) {
        self.attribute.relist(names);
        self.value = None;
    }

    fn is_quarantined(&self) -> bool {
        self.attribute.is_quarantined()
    }
}
