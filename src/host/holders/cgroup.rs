//! What a process belongs to, by its control groups (`/proc/<pid>/cgroup`): a pod, a virtual machine, a batch job.

use std::sync::Arc;

use crate::model::holder::CgroupOwner;

/// The longest `/proc/<pid>/cgroup` that is read: under cgroup v1 each controller has a line of its own.
pub const LONGEST: usize = 64 * 1024;

/// What the content of `/proc/<pid>/cgroup` says, or one path of a control group. Lines are `<hierarchy>:<controllers>:<path>`, and
/// a path may hold more colons. `None` if it belongs to nothing that is known.
pub fn owner(text: &str) -> Option<CgroupOwner> {
    let path = |line| str::splitn(line, 3, ':').nth(2).unwrap_or(line);
    text.lines().map(path).find_map(owner_of_path)
}

/// What a path of a control group says.
pub fn owner_of_path(path: &str) -> Option<CgroupOwner> {
    let parts: Vec<&str> = path.split('/').filter(|part| !part.is_empty()).collect();
    let below_kubernetes = parts.iter().any(|part| part.contains("kubepods"));
    for (index, part) in parts.iter().enumerate() {
        if let Some((uid, beside)) = pod_of(part, below_kubernetes) {
            let next = parts.get(index + 1).copied();
            let container = beside.or(next).and_then(container_of);
            return Some(CgroupOwner::Pod { uid, container });
        }
    }
    job(&parts).or_else(|| machine(&parts))
}

/// The UID in the name of a pod's control group, and what follows it within the name: `kubepods-burstable-pod<uid>.slice`,
/// `pod<uid>`, `kubelet-kubepods-pod<uid>.slice`, `kubepods-besteffort-pod<uid>.slice:cri-containerd:<id>`.
fn pod_of(part: &str, below_kubernetes: bool) -> Option<(Arc<str>, Option<&str>)> {
    let (name, beside) = match part.split_once(".slice:") {
        Some((name, beside)) => (name, Some(beside)),
        None => (part.strip_suffix(".slice").unwrap_or(part), None),
    };
    let (before, uid) = name.rsplit_once("pod")?;
    let by_kubelet = before.is_empty() || before.ends_with('-') && before.contains("kubepods");
    let uid: String = uid.chars().map(|c| if c == '_' { '-' } else { c }).collect();
    let is_uid = uid.bytes().all(|byte| byte.is_ascii_hexdigit() || byte == b'-');
    // From within another control group namespace nothing above the pod is in the text: then the UID has to be a whole one.
    let whole = matches!((uid.len(), uid.contains('-')), (36, true) | (32, false));
    (by_kubelet && is_uid && (whole || (below_kubernetes && uid.len() >= 8))).then(|| (Arc::from(uid), beside))
}

/// The identifier in the name of a container's control group: `cri-containerd-<id>.scope`, `crio-<id>`, `docker-<id>.scope`,
/// `cri-containerd:<id>`, `<id>`.
fn container_of(part: &str) -> Option<Arc<str>> {
    let name = part.strip_suffix(".scope").unwrap_or(part);
    let id = name.rsplit(['-', ':']).next()?;
    (id.len() >= 12 && id.bytes().all(|byte| byte.is_ascii_hexdigit())).then(|| Arc::from(id))
}

/// Slurm: `/slurm[_<node>]/uid_<u>/job_<id>/…` (v1), `/system.slice/[<node>_]slurmstepd.scope/job_<id>/…` (v2).
fn job(parts: &[&str]) -> Option<CgroupOwner> {
    let slurm = |part: &&str| *part == "slurm" || part.starts_with("slurm_") || part.ends_with("slurmstepd.scope");
    let mut below = parts.iter().skip_while(|part| !slurm(part)).skip(1);
    let id = below.find_map(|part| part.strip_prefix("job_"))?;
    (!id.is_empty() && id.bytes().all(|byte| byte.is_ascii_digit())).then(|| CgroupOwner::Job(Arc::from(id)))
}

/// A machine of systemd's or libvirt's (`machine-qemu\x2d2\x2dvm1.scope`, `qemu-2-vm1.libvirt-qemu`) or of Proxmox
/// (`/qemu.slice/<vmid>.scope`).
fn machine(parts: &[&str]) -> Option<CgroupOwner> {
    let number = parts.windows(2).find_map(proxmox);
    if let Some(number) = number.filter(|number| !number.is_empty() && number.bytes().all(|b| b.is_ascii_digit())) {
        return Some(CgroupOwner::Vm(Arc::from(number)));
    }
    parts.iter().find_map(|part| {
        let name = match part.strip_prefix("machine-").and_then(|name| name.strip_suffix(".scope")) {
            Some(escaped) => unescape(escaped)?,
            None => part.strip_suffix(".libvirt-qemu")?.to_owned(),
        };
        // The number of this start of the domain comes before its name.
        let (_, domain) = name.strip_prefix("qemu-")?.split_once('-')?;
        (!domain.is_empty()).then(|| CgroupOwner::Vm(Arc::from(domain)))
    })
}

/// The number of a Proxmox machine, by a slice and the scope in it.
fn proxmox<'a>(pair: &[&'a str]) -> Option<&'a str> {
    match pair {
        ["qemu.slice", scope] => scope.strip_suffix(".scope"),
        ["machine.slice", scope] => scope.strip_prefix("qemu-")?.strip_suffix(".scope"),
        _ => None,
    }
}

/// The text that systemd escaped in the name of a unit: `\x2d` is a dash. `None` if the result is no text.
fn unescape(name: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(name.len());
    let mut rest = name;
    while let Some((before, after)) = rest.split_once("\\x") {
        bytes.extend_from_slice(before.as_bytes());
        let byte = after.get(..2).and_then(|digits| u8::from_str_radix(digits, 16).ok())?;
        bytes.push(byte);
        rest = after.get(2..)?;
    }
    bytes.extend_from_slice(rest.as_bytes());
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const UID: &str = "3b1f0a52-1111-4222-8333-944444444444";
    const STATIC: &str = "8f1c2b3a4d5e6f708192a3b4c5d6e7f8";
    const ID: &str = "0a1b2c3d4e5f60718293a4b5c6d7e8f90a1b2c3d4e5f60718293a4b5c6d7e8f9";

    fn shown(text: &str) -> String {
        match owner(text) {
            Some(CgroupOwner::Pod { uid, container: Some(id) }) => format!("pod {uid} {id}"),
            Some(CgroupOwner::Pod { uid, container: None }) => format!("pod {uid}"),
            Some(CgroupOwner::Vm(name)) => format!("vm {name}"),
            Some(CgroupOwner::Job(id)) => format!("job {id}"),
            None => "nothing".to_owned(),
        }
    }

    #[test]
    fn pods_of_every_runtime_and_driver() {
        let systemd = UID.replace('-', "_");
        let whole = format!("pod {UID} {ID}");
        let burstable = format!("/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{systemd}.slice");
        for (line, expected) in [
            (format!("0::{burstable}/cri-containerd-{ID}.scope\n"), &whole),
            (format!("0::{burstable}/crio-{ID}.scope\n"), &whole),
            (format!("0::{burstable}/crio-conmon-{ID}.scope\n"), &whole),
            (format!("0::{burstable}/docker-{ID}.scope/init\n"), &whole),
            (format!("0::/kubepods.slice/kubepods-pod{systemd}.slice/cri-containerd-{ID}.scope"), &whole),
            (format!("0::/kubepods/besteffort/pod{UID}/{ID}\n"), &whole),
            (format!("0::/kubepods/pod{UID}/crio-{ID}\n"), &whole),
            (
                format!(
                    "0::/system.slice/containerd.service/kubepods-besteffort-pod{systemd}.slice:cri-containerd:{ID}"
                ),
                &whole,
            ),
            (format!("0::/docker/{}/kubepods/burstable/pod{UID}/{ID}\n", ID.replace('0', "f")), &whole),
            (
                format!(
                    "0::/kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-burstable.slice/\
                     kubelet-kubepods-burstable-pod{systemd}.slice/cri-containerd-{ID}.scope"
                ),
                &whole,
            ),
            (format!("0::/../../pod{UID}/{ID}\n"), &whole),
            (format!("0::/../kubepods-burstable-pod{systemd}.slice/cri-containerd-{ID}.scope\n"), &whole),
            (format!("0::{burstable}\n"), &format!("pod {UID}")),
            (format!("0::/kubepods.slice/kubepods-pod{STATIC}.slice/crio-{ID}.scope"), &format!("pod {STATIC} {ID}")),
            (
                format!("12:pids:/user.slice\n5:cpu,cpuacct:/kubepods/burstable/pod{UID}/{ID}\n1:name=systemd:/x\n"),
                &whole,
            ),
        ] {
            assert_eq!(shown(&line), *expected, "{line}");
        }
        for line in [
            "0::/user.slice\n".to_owned(),
            "0::/kubepods.slice\n".to_owned(),
            format!("0::/machine.slice/libpod-{ID}.scope/container"),
            format!("0::/machine.slice/libpod-{STATIC}.scope"),
            "0::/../podcast".to_owned(),
            format!("0::/../../tripod{UID}/x"),
        ] {
            assert_eq!(shown(&line), "nothing", "{line}");
        }
    }

    #[test]
    fn jobs_and_machines() {
        for (line, expected) in [
            ("4:memory:/slurm/uid_1000/job_4711/step_0/task_3\n", "job 4711"),
            ("4:memory:/slurm_node7/uid_1000/job_4711/step_batch\n", "job 4711"),
            ("0::/system.slice/slurmstepd.scope/job_99/step_extern/user/task_0\n", "job 99"),
            ("0::/system.slice/node7_slurmstepd.scope/job_99/step_0/user\n", "job 99"),
            ("0::/system.slice/slurmstepd.scope/system\n", "nothing"),
            ("0::/job_5/x\n", "nothing"),
            ("0::/qemu.slice/104.scope\n", "vm 104"),
            ("11:cpuset:/machine.slice/qemu-104.scope\n", "vm 104"),
            (
                "0::/machine.slice/machine-qemu\\x2d2\\x2dinstance\\x2d0000001a.scope/libvirt/emulator\n",
                "vm instance-0000001a",
            ),
            ("0::/machine.slice/machine-qemu\\x2d12\\x2dweb\\x5fone.scope\n", "vm web_one"),
            ("3:cpu:/machine/qemu-1-vm1.libvirt-qemu/vcpu0\n", "vm vm1"),
            ("0::/machine.slice/machine-lxc\\x2d1\\x2dct.scope\n", "nothing"),
            ("0::/machine.slice/machine-qemu\\x2.scope\n", "nothing"),
        ] {
            assert_eq!(shown(line), expected, "{line}");
        }
    }

    proptest! {
        #[test]
        fn any_text_parses_without_a_panic(text in any::<String>(), like in "(/|pod|kubepods|[0-9a-f]{8}|\\\\x2d|\\.slice:?|qemu-|job_|[-_:.]){0,12}") {
            let _ = (owner(&text), owner(&like));
        }
    }
}
