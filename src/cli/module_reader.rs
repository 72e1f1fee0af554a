//! `lanewatch-module-reader`: the program that reads modules' memory for the agent, with CAP_NET_ADMIN alone. It takes no
//! arguments: systemd hands it a listening socket.

use std::ffi::{OsStr, OsString};
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::process::ExitCode;
use std::time::Instant;

use rustix::thread::{CapabilitySet, CapabilitySets, capabilities, set_capabilities};

use crate::host::module::helper::ModuleHelper;
use crate::host::netlink::socket;

/// The name by which the program is this one.
const NAME: &str = "lanewatch-module-reader";

/// Whether the program was started by this name.
pub fn is_name(program: Option<&OsStr>) -> bool {
    program.and_then(|program| Path::new(program).file_name()).is_some_and(|name| name == NAME)
}

/// Answers requests on the socket that systemd handed over, until it is closed.
pub fn main(args: impl IntoIterator<Item = OsString>) -> ExitCode {
    if args.into_iter().nth(1).is_some() {
        return fail("takes no arguments: it answers requests on a socket from systemd");
    }
    if let Err(error) = keep_net_admin_alone() {
        return fail(&format!("has more capabilities than it needs and cannot give them up: {error}"));
    }
    let Some(listener) = listener() else {
        return fail("has no socket: start lanewatch-module-reader.socket");
    };
    match ModuleHelper::new(socket::generic()).serve(&listener, Path::new("/sys"), Instant::now) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => fail(&error.to_string()),
    }
}

/// Gives up every capability but CAP_NET_ADMIN, whatever it was started with.
fn keep_net_admin_alone() -> std::io::Result<()> {
    let held = capabilities(None)?;
    let needed = |set: CapabilitySet| set & CapabilitySet::NET_ADMIN;
    let CapabilitySets { effective, permitted, .. } = held;
    let kept = CapabilitySets {
        effective: needed(effective),
        permitted: needed(permitted),
        inheritable: CapabilitySet::empty(),
    };
    // The unit grants nothing else, and denies the call.
    if (kept.effective, kept.permitted) == (effective, permitted) {
        return Ok(());
    }
    Ok(set_capabilities(None, kept)?)
}

/// The one Unix socket that systemd handed over (`LISTEN_FDS`).
fn listener() -> Option<UnixListener> {
    listenfd::ListenFd::from_env().take_unix_listener(0).ok().flatten()
}

fn fail(why: &str) -> ExitCode {
    eprintln!("{NAME} {why}");
    ExitCode::from(2)
}
