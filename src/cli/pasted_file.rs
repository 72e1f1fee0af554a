//! Files with the output of other tools: `bench --read`, `explain --read`.

use std::fs::File;
use std::io::{self, Read as _};
use std::path::Path;

use super::error::CliError;

/// Longest output that is read, in bytes.
const LONGEST: u64 = 4 << 20;

/// The text of a file, of a pipe (`<(ib_write_bw …)`), or of standard input.
pub(super) fn contents(path: &Path) -> Result<String, CliError> {
    let read = if path == Path::new("-") { whole(std::io::stdin().lock()) } else { File::open(path).and_then(whole) };
    read.map_err(|error| {
        let why = match error.kind() {
            io::ErrorKind::IsADirectory => "is a directory".to_owned(),
            io::ErrorKind::NotFound => "no such file".to_owned(),
            io::ErrorKind::PermissionDenied => "permission denied".to_owned(),
            _ => error.to_string(),
        };
        CliError::Usage(format!("--read {}: {why}", path.display()))
    })
}

fn whole(from: impl io::Read) -> io::Result<String> {
    let mut bytes = Vec::new();
    from.take(LONGEST + 1).read_to_end(&mut bytes)?;
    if u64::try_from(bytes.len()).is_ok_and(|length| length > LONGEST) {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "longer than 4 MiB: too long for the output of a tool"));
    }
    if bytes.contains(&0) {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "not a text file"));
    }
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// What a file is called.
pub(super) fn called(path: &Path) -> String {
    if path == Path::new("-") { "standard input".to_owned() } else { path.display().to_string() }
}
