//! The released packages in Debians of several ages, on both architectures; another architecture's programs run under QEMU's
//! user-mode emulation. `make arm64` makes the trees and the packages, whose folder `LANEWATCH_DIST` names.

use std::fs;
use std::path::{Path, PathBuf};

use crate::install::{Debian, deb_comes_and_goes, rpm_comes_and_goes};
use crate::root;

/// The one file of the folder that ends like this.
fn package(ending: &str) -> PathBuf {
    let dist =
        std::env::var_os("LANEWATCH_DIST").unwrap_or_else(|| panic!("LANEWATCH_DIST is the folder of the packages"));
    let files = fs::read_dir(dist).unwrap().map(|entry| entry.unwrap().path());
    let named: Vec<_> = files.filter(|path| path.to_str().is_some_and(|path| path.ends_with(ending))).collect();
    let [package] = &*named else { panic!("{ending}: {named:?}") };
    package.clone()
}

fn tree(suite: &str, architecture: &str) -> PathBuf {
    root().join(".cache/userlands").join(format!("{suite}-{architecture}"))
}

/// Both packages in a copy of this Debian each.
fn come_and_go(suite: &str, architecture: &str, machine: &str) {
    let clean: &Path = &tree(suite, architecture);
    if let Some(debian) = Debian::copy_of(clean) {
        deb_comes_and_goes(&package(&format!("_{architecture}.deb")), &debian);
    }
    if let Some(debian) = Debian::copy_of(clean) {
        rpm_comes_and_goes(&package(&format!(".{machine}.rpm")), &debian);
    }
}

macro_rules! userlands {
    ($($test:ident $suite:literal $architecture:literal $machine:literal)*) => {$(
        #[test]
        #[ignore = "make arm64"]
        fn $test() {
            come_and_go($suite, $architecture, $machine);
        }
    )*};
}

userlands! {
    debian_11_on_amd64 "bullseye" "amd64" "x86_64"
    debian_11_on_arm64 "bullseye" "arm64" "aarch64"
    debian_12_on_amd64 "bookworm" "amd64" "x86_64"
    debian_12_on_arm64 "bookworm" "arm64" "aarch64"
    debian_13_on_amd64 "trixie" "amd64" "x86_64"
    debian_13_on_arm64 "trixie" "arm64" "aarch64"
}
