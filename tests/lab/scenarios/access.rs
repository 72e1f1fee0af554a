//! What the agent opens, as the kernel sees it.

use crate::guest::{Guest, on_each_kernel};

/// Calls that open, make, move or remove something by a path.
const CALLS: &str = "open,openat,openat2,creat,mkdir,mkdirat,mknod,mknodat,rename,renameat,renameat2,link,linkat,symlink,\
     symlinkat,unlink,unlinkat,rmdir,truncate,chmod,fchmodat,chown,fchownat,setxattr,mount";

/// Whether a traced call can change something.
fn writes(call: &str) -> bool {
    let name = call.split('(').next().unwrap_or_default();
    !name.starts_with("open") || ["O_WRONLY", "O_RDWR", "O_CREAT", "O_TRUNC"].iter().any(|flag| call.contains(flag))
}

#[test]
fn nothing_is_opened_for_writing_but_its_own_state() {
    on_each_kernel(|kernel| {
        let Some(mut guest) = Guest::boot(kernel) else { return };
        guest.soft_roce();
        guest.sh("rdma link delete rxe1; modprobe labib pci=0000:81:00.0 roce=1; modprobe igbvf; modprobe vfio-pci; \
             echo 2 > /sys/bus/pci/devices/0000:41:00.0/sriov_numvfs; cd /sys/bus/pci/devices/0000:41:10.2; \
             echo vfio-pci > driver_override; echo 0000:41:10.2 > driver/unbind; echo 0000:41:10.2 > /sys/bus/pci/drivers_probe");
        // -y writes the path of a directory that something is opened in.
        let trace = format!("strace -f -qq -y --seccomp-bpf -o /run/trace -e trace={CALLS}");
        guest.serve_under(&trace, "[collector]\nenabled = [\"rdma_qp\"]\n");
        let passes = |guest: &Guest| {
            let scrape = guest.scrape();
            let of = |name: &str| {
                scrape.iter().filter(|sample| sample.name == name).map(|sample| sample.value).collect::<Vec<_>>()
            };
            (of("lanewatch_collector_success"), of("lanewatch_collector_last_success_timestamp_seconds"))
        };
        // Each has ended a complete pass, though traced and on a busy host not all may do so at one time.
        guest.wait_until("every collector", |guest| {
            let (success, ended) = passes(guest);
            !success.is_empty() && success.len() == ended.len()
        });
        let first = passes(&guest).1;
        // Those that read seldom have read again.
        guest.wait_until("two more passes", |guest| {
            let later = passes(guest).1;
            later.len() == first.len() && later.iter().zip(&first).all(|(later, first)| *later > first + 15.0)
        });
        guest.wait_until("a baseline", |guest| guest.event_kinds().iter().any(|kind| kind == "baseline_learned"));
        guest.stop("TERM");

        let trace = guest.sh("grep '(' /run/trace | sed 's/^[0-9]* *//'");
        // Of a thread that is killed at the door of a call, strace cannot say which it was: it was not carried out.
        let calls = trace.lines().filter(|line| !line.contains("resumed>") && !line.starts_with("???"));
        let calls: Vec<&str> = calls.collect();
        let sysfs = calls.iter().filter(|call| call.contains("/sys/")).count();
        assert!(sysfs > 200, "{sysfs} opened below /sys");
        let (own, others): (Vec<&str>, Vec<&str>) =
            calls.into_iter().filter(|call| writes(call)).partition(|call| call.contains("/var/lib/lanewatch"));
        assert!(own.len() > 2, "the trace shows no state that is written: {own:?}");
        assert!(others.is_empty(), "{others:#?}");
    });
}
