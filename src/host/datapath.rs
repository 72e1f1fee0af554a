//! Interfaces of a guest that are joined with a VF: of Hyper-V (`hv_netvsc`) and of virtio (`net_failover`).
//!
//! Both drivers link themselves above the VF's interface, which sysfs shows as `lower_<vf>`. `net_failover` is above its
//! virtio interface, too, and has that one's device.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::collector::{DeviceReader, ReadContext};
use super::file::read_once;
use super::text;
use crate::model::datapath::{DataPath, Failover, PathInUse};
use crate::model::snapshot::Fact;

/// The reader.
pub(super) struct DataPathReader;

/// Whether a driver of such interfaces is loaded.
pub(super) fn has_drivers(cx: &ReadContext<'_>) -> bool {
    ["bus/vmbus/drivers/hv_netvsc", "module/net_failover"]
        .iter()
        .any(|path| cx.host.io.stamp(&cx.host.sysfs.join(path)).is_ok())
}

impl DeviceReader for DataPathReader {
    fn read(&mut self, cx: &mut ReadContext<'_>) -> Vec<Fact> {
        let class = cx.host.sysfs.join("class/net");
        let mut names = cx.host.io.list(&class).unwrap_or_default();
        names.sort_unstable();
        names.iter().filter_map(|name| Some(Arc::new(data_path(cx, &class, name)?) as Fact)).collect()
    }
}

fn data_path(cx: &mut ReadContext<'_>, class: &Path, name: &str) -> Option<DataPath> {
    let directory = class.join(name);
    let driver = cx.host.io.link(&directory.join("device/driver")).ok()?;
    let failover = match driver.file_name()?.to_str()? {
        "hv_netvsc" => Failover::HvNetvsc,
        "virtio_net" => Failover::NetFailover,
        _ => return None,
    };
    // Below a bond or bridge every interface has links up, these have links down.
    let entries = cx.host.io.list(&directory).ok()?;
    let lower: Vec<&str> = entries.iter().filter_map(|entry| entry.strip_prefix("lower_")).collect();
    if failover == Failover::NetFailover && lower.is_empty() {
        // A virtio interface that stands alone, or the one below.
        return None;
    }
    let own = device(cx, &directory);
    let vf = lower.into_iter().find(|lower| device(cx, &class.join(lower)) != own);
    let is_up = vf.is_some_and(|vf| {
        let state = read_once(cx, &class.join(vf).join("operstate"), text::label);
        state.is_some_and(|state| matches!(&*state, "up" | "unknown" | "dormant"))
    });
    let in_use = if is_up { PathInUse::Vf } else { PathInUse::Synthetic };
    Some(DataPath { netdev: Arc::from(name), failover, vf: vf.map(Arc::from), in_use })
}

/// The device that an interface belongs to, by the last part of its path.
fn device(cx: &ReadContext<'_>, directory: &Path) -> Option<PathBuf> {
    cx.host.io.link(&directory.join("device")).ok()?.file_name().map(PathBuf::from)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::collector::Filter;
    use crate::host::harness::{CollectorHarness, facts};
    use crate::host::machine::SPEC;

    /// An interface of a device with this driver; `bus` leads to the device.
    fn interface(harness: &CollectorHarness, name: &str, device: &str, driver: &str, state: &str) {
        let at = format!("/sys/class/net/{name}");
        harness.memory.set(format!("{at}/operstate"), format!("{state}\n"));
        harness.memory.symlink(format!("{at}/device"), format!("../../../{device}"));
        harness.memory.symlink(format!("/sys/{device}/driver"), format!("../../bus/x/drivers/{driver}"));
    }

    fn read(harness: &mut CollectorHarness) -> Vec<(String, Option<String>, &'static str)> {
        harness.discover().unwrap();
        let paths = facts::<DataPath>(&harness.read());
        let row =
            |path: &DataPath| (path.netdev.to_string(), path.vf.as_deref().map(str::to_owned), path.in_use.as_str());
        paths.iter().map(row).collect()
    }

    #[test]
    fn a_hyper_v_guest_has_its_vf_and_then_not() {
        let mut harness = CollectorHarness::new(&SPEC, Filter::default());
        assert_eq!(read(&mut harness), []);
        harness.memory.directory("/sys/bus/vmbus/drivers/hv_netvsc");
        interface(&harness, "eth0", "000d3a6c-71f2-000d-3a6c-71f2000d3a6c", "hv_netvsc", "up");
        interface(&harness, "enP40338s1", "9d92:00:02.0", "mlx5_core", "up");
        assert_eq!(read(&mut harness), [("eth0".to_owned(), None, "synthetic")]);
        harness.memory.symlink("/sys/class/net/eth0/lower_enP40338s1", "../enP40338s1");
        let joined = |path| [("eth0".to_owned(), Some("enP40338s1".to_owned()), path)];
        assert_eq!(read(&mut harness), joined("vf"));
        harness.memory.set("/sys/class/net/enP40338s1/operstate", "down\n");
        assert_eq!(read(&mut harness), joined("synthetic"));
        assert_eq!(harness.faults, []);
    }

    #[test]
    fn a_virtio_failover_is_told_from_its_standby() {
        let mut harness = CollectorHarness::new(&SPEC, Filter::default());
        harness.memory.directory("/sys/module/net_failover");
        interface(&harness, "ens3", "virtio0", "virtio_net", "up");
        interface(&harness, "ens3nsby", "virtio0", "virtio_net", "up");
        interface(&harness, "ens4", "0000:00:04.0", "mlx5_core", "up");
        interface(&harness, "ens9", "virtio5", "virtio_net", "up");
        harness.memory.symlink("/sys/class/net/ens3/lower_ens3nsby", "../ens3nsby");
        assert_eq!(read(&mut harness), [("ens3".to_owned(), None, "synthetic")]);
        harness.memory.symlink("/sys/class/net/ens3/lower_ens4", "../ens4");
        assert_eq!(read(&mut harness), [("ens3".to_owned(), Some("ens4".to_owned()), "vf")]);
    }
}
