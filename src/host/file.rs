//! A file that is read again and again: kept open, and left alone for a while when the driver refuses it.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::collector::Pass;
use super::io::{LONGEST, OpenFile, reason_of};
use crate::model::reading::{Reading, Reason};
use crate::model::time::Tick;

/// How long a refused file is left alone at first; the pause doubles with each refusal up to [`LONGEST_PAUSE`].
const FIRST_PAUSE: Duration = Duration::from_secs(10 * 60);
const LONGEST_PAUSE: Duration = Duration::from_secs(60 * 60);

/// One file of a lane.
///
/// A file that the driver refuses with EINVAL or the like is not read again for ten minutes, then an hour: each
/// such read costs a firmware command and often a line in the kernel log.
pub struct Watched {
    path: PathBuf,
    file: Option<Box<dyn OpenFile>>,
    refused: Option<Refusal>,
}

#[derive(Clone, Copy)]
struct Refusal {
    until: Tick,
    pause: Duration,
}

impl Watched {
    /// A file at this path; it is opened at its first read.
    pub fn new(path: PathBuf) -> Self {
        Self { path, file: None, refused: None }
    }

    /// Its path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Whether it is being left alone.
    pub fn is_quarantined(&self) -> bool {
        self.refused.is_some()
    }

    /// Reads it and makes something of its content. `parse` gets the bytes without surrounding white space and says
    /// [`Reading::Absent`] for a text that means "I do not know", [`Reading::Unreadable`] for one that is wrong.
    ///
    /// A missing file is [`Reading::Absent`] and no fault; everything else that fails is noted in the pass, once.
    pub fn read<T>(&mut self, pass: &mut Pass<'_>, parse: impl FnOnce(&[u8]) -> Reading<T>) -> Reading<T> {
        if self.refused.is_some_and(|refusal| pass.now < refusal.until) {
            return Reading::Unreadable(Reason::Quarantined);
        }
        let reading = match self.bytes(pass) {
            Ok(length) if length > LONGEST => Reading::Unreadable(Reason::Malformed),
            Ok(length) => parse(pass.buffer.get(..length).unwrap_or_default().trim_ascii()),
            Err(error) => reason_of(&error).map_or(Reading::Absent, Reading::Unreadable),
        };
        match reading {
            Reading::Unreadable(Reason::NotSupported) => Reading::Unreadable(self.refuse(pass)),
            Reading::Unreadable(reason) => {
                pass.fault(&self.path, reason);
                reading
            }
            Reading::Value(_) | Reading::Absent => {
                self.refused = None;
                reading
            }
        }
    }

    fn refuse(&mut self, pass: &mut Pass<'_>) -> Reason {
        let (reason, pause) = match self.refused {
            None => (Reason::NotSupported, FIRST_PAUSE),
            Some(refusal) => (Reason::Quarantined, (refusal.pause * 2).min(LONGEST_PAUSE)),
        };
        self.file = None;
        self.refused = Some(Refusal { until: pass.now.after(pause), pause });
        pass.fault(&self.path, reason);
        reason
    }

    /// Reads through the kept descriptor. One that no longer reads may belong to a device that was taken away and
    /// came back under the same name: then the path is opened once more.
    fn bytes(&mut self, pass: &mut Pass<'_>) -> io::Result<usize> {
        if let Some(file) = &mut self.file {
            match file.read(&mut pass.buffer[..]) {
                Ok(length) => return Ok(length),
                Err(error) if reason_of(&error) != Some(Reason::Gone) => return Err(error),
                Err(_) => self.file = None,
            }
        }
        let mut file = pass.host.io.open(&self.path)?;
        let length = file.read(&mut pass.buffer[..])?;
        self.file = Some(file);
        Ok(length)
    }
}
