//! The kernels that there are images of, and scenarios that are to be seen on each.

use std::fs;
use std::io::Write as _;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::{Path, PathBuf};
use std::sync::LazyLock;
use std::thread;

/// A kernel of Debian's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kernel {
    /// 6.12, from the backports.
    V6_12,
    /// 6.1.
    V6_1,
}

impl Kernel {
    /// All of them.
    pub const ALL: [Self; 2] = [Self::V6_12, Self::V6_1];

    /// Its version.
    pub fn version(self) -> &'static str {
        match self {
            Self::V6_12 => "6.12",
            Self::V6_1 => "6.1",
        }
    }

    /// Where its image is, or would be.
    pub fn image(self) -> PathBuf {
        let name = match (architecture(), self) {
            ("x86_64", Self::V6_12) => "image",
            ("x86_64", Self::V6_1) => "image-6.1",
            (_, Self::V6_12) => "image-arm64",
            (_, Self::V6_1) => "image-arm64-6.1",
        };
        Path::new(env!("CARGO_MANIFEST_DIR")).join(".cache/lab").join(name)
    }

    /// Those that scenarios run on: on arm64 the newer one alone.
    fn wanted() -> &'static [Self] {
        if architecture() == "x86_64" { &Self::ALL } else { &[Self::V6_12] }
    }
}

/// The machines' architecture: x86_64, or what `LANEWATCH_LAB_ARCH` names (`make lab-arm64`: aarch64).
pub fn architecture() -> &'static str {
    static NAME: LazyLock<String> =
        LazyLock::new(|| std::env::var("LANEWATCH_LAB_ARCH").unwrap_or_else(|_| "x86_64".to_owned()));
    &NAME
}

/// Runs a scenario on each kernel, side by side: a machine waits for most of its time. A failure names the kernel.
pub fn on_each_kernel(scenario: impl Fn(Kernel) + Sync) {
    let test = thread::current().name().unwrap_or("scenario").to_owned();
    let failed: Vec<&str> = thread::scope(|scope| {
        let start = |kernel: &Kernel| {
            let (kernel, scenario) = (*kernel, &scenario);
            let name = format!("{test}-on-{}", kernel.version());
            (kernel, thread::Builder::new().name(name).spawn_scoped(scope, move || on(kernel, scenario)).unwrap())
        };
        let runs: Vec<_> = Kernel::wanted().iter().map(start).collect();
        let failed = runs.into_iter().filter_map(|(kernel, run)| run.join().is_err().then_some(kernel.version()));
        failed.collect()
    });
    assert!(failed.is_empty(), "failed on kernel {}", failed.join(" and on "));
}

/// Runs a scenario on a kernel, and once more on new machines should it fail: emulation on a busy host now and then stands
/// still for longer than anything waits. What failed first is told in `target/lab/again`, which `make test` prints.
pub fn on(kernel: Kernel, scenario: impl Fn(Kernel)) {
    let Err(failure) = catch_unwind(AssertUnwindSafe(|| scenario(kernel))) else { return };
    let said = failure.downcast_ref::<String>().map(String::as_str).or(failure.downcast_ref::<&str>().copied());
    let said = said.unwrap_or_default().replace('\n', "\n    ");
    let test = thread::current().name().unwrap_or("scenario").to_owned();
    eprintln!("{test} failed on kernel {}, and runs once more: {said}", kernel.version());
    scenario(kernel);
    let kept = Path::new(env!("CARGO_MANIFEST_DIR")).join("target/lab");
    let noted = fs::create_dir_all(&kept)
        .and_then(|()| fs::OpenOptions::new().create(true).append(true).open(kept.join("again")))
        .and_then(|mut file| writeln!(file, "{test} on kernel {}: {said}", kernel.version()));
    if noted.is_err() {
        resume_unwind(failure);
    }
}
