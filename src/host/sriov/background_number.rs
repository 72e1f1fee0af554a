//! A file whose read may take minutes, read beside the reader.

use std::io;
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;
use std::time::Duration;

use crate::host::collector::ReadContext;
use crate::host::io::{Host, LONGEST, reason_of};
use crate::host::text;

/// How long an answer that usually comes at once is waited for.
const PATIENCE: Duration = Duration::from_millis(200);

const STACK: usize = 128 * 1024;

/// `sriov_numvfs`: its read waits for the device's lock, which is held as long as VFs are being made.
pub(super) struct BackgroundNumber {
    jobs: Option<SyncSender<()>>,
    path: PathBuf,
    answers: Receiver<Result<u32, io::Error>>,
    waiting: bool,
}

impl BackgroundNumber {
    /// Starts a reader of this file; it ends with this.
    pub(super) fn new(host: &Host, path: PathBuf) -> Self {
        let (jobs, inbox) = sync_channel::<()>(1);
        let (sender, answers) = sync_channel(1);
        let (io, file) = (host.io.clone(), path.clone());
        let body = move || {
            while inbox.recv().is_ok() {
                let mut buffer = [0; LONGEST];
                let read = io.open(&file).and_then(|mut file| file.read(&mut buffer));
                let answer = read.and_then(|length| {
                    let text = buffer.get(..length).unwrap_or_default().trim_ascii();
                    let number = text::parse_decimal(text).and_then(|number| u32::try_from(number).ok());
                    number.ok_or_else(|| io::ErrorKind::InvalidData.into())
                });
                if sender.send(answer).is_err() {
                    return;
                }
            }
        };
        // Without a thread the number stays unknown.
        let started = thread::Builder::new().name("sriov_numvfs".to_owned()).stack_size(STACK).spawn(body);
        Self { jobs: started.ok().map(|_| jobs), path, answers, waiting: false }
    }

    /// The number as it is now; none while the kernel holds it back.
    pub(super) fn read(&mut self, cx: &mut ReadContext<'_>) -> Option<u32> {
        let jobs = self.jobs.as_ref()?;
        if self.waiting {
            // What was asked long ago is old: asked again.
            drop(self.answers.try_recv().ok()?);
            self.waiting = false;
        }
        jobs.try_send(()).ok()?;
        if let Ok(answer) = self.answers.recv_timeout(PATIENCE) {
            let noted = |error: io::Error| reason_of(&error).map(|reason| cx.fault(&self.path, reason));
            return answer.map_err(noted).ok();
        }
        self.waiting = true;
        None
    }
}
